"""Files on the node's own file systems travel with the image, as the job's output does.

What the tree has open beneath the node's own directories (/tmp and the like) is copied into the image, each file once, and
restored before the engine's restore, if nothing is in the way. What would exceed the limit stays on the node: the
image is then bound to it. Everything here runs as the job's owner.
"""
import errno
import os
import resource
import stat

from ..errors import HookError, CANNOT_WRITE, COPY_CURE, REFUSED, TEMPORARY, quote_name
from ..system import mounts, processes, strict_json
from ..units import format_bytes
from . import scratch, sparse
from .open_files import WRITE_LEASE, format_state

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Iterable
    from .open_files import File, OpenFiles

_LEFT_MOST = 1000
"""How many files and trees left on other nodes an image remembers."""


# -- what travels with an image ----------------------------------------------------

def _expand_names(names: "list[str]", root: int) -> "list[str]":
    """Return the configured names with $TMPDIR of the job's root process (pid), resolved; those without it left out."""
    temporary = os.fsdecode(processes.read_variable(root, "TMPDIR") or b"")
    paths = []
    for name in names:
        start, rest = (temporary, name[len("$TMPDIR"):]) if name.startswith("$TMPDIR") else ("/", name)
        if os.path.isabs(start):
            paths.append(os.path.realpath(start + rest))
    return paths


class NodeLocal:
    """The node's own directories from which a job's files travel with its images.

    directories  list of str: outermost ones only
    trees        list of str: whole directories that travel
    """

    def __init__(self, settings: dict, root: int) -> None:
        """:param settings: from config.load_settings; root: pid of the job's root process"""
        self._mounts = mounts.read_mounts()
        directories = _expand_names(settings["node_local_directories"], root)
        self.directories = [path for path in directories
                            if self._is_local(path) and not any(mounts.is_beneath(path, outer) for outer in directories)]
        trees = _expand_names(settings["node_local_trees"], root)
        self.trees = sorted({path for path in trees if self._is_local(path) and not any(mounts.is_beneath(path, outer) for outer in trees)})

    def _is_local(self, path: str) -> bool:
        """Whether only this node sees what is in the directory path: nothing else needs to travel."""
        mount = mounts.find_mount(path, self._mounts)
        return mount is None or not mounts.is_shared(mount)

    def find_directory(self, path: str) -> "str | None":
        """Return the one of these directories that holds path, or None: what is in one of the trees is in none."""
        if any(mounts.is_beneath(path, tree) or path == tree for tree in self.trees):
            return None
        holders = (directory for directory in self.directories if mounts.is_beneath(path, directory))
        return next((directory for directory in holders if self._is_local(os.path.dirname(path))), None)


def _count_allocated(status: os.stat_result) -> int:
    return min(status.st_size, status.st_blocks * 512)


def check_work_directories(settings: dict, root: int, pids: "Iterable[int]") -> None:
    """Check that processes that are about to write restart files and to end do not work where those would stay on this node.

    :param root: pid of the job's root process
    :raises HookError: REFUSED if one does
    """
    node_local = NodeLocal(settings, root)
    for process in filter(None, map(processes.read_process, sorted(pids))):
        try:
            path = os.readlink("/proc/%d/cwd" % process.pid)
        except OSError:
            continue  # it has just ended
        if node_local.find_directory(os.path.join(path, "file")):
            raise HookError(REFUSED, "process %d (%s) works in %s, which only this node has: its restart files would stay here; the job "
                            "keeps running; have it work in a shared directory, or have the administrator name that directory in "
                            "checkpoint_hooks_node_local_trees" % (process.pid, quote_name(process.name), quote_name(path)))


class Load:
    """What travels with an image of a job.

    files        list of (open_files.File, its names as list of (path, directory))
    directories  list of (path, directory, os.stat_result), outer ones first
    trees        list of str
    bytes        int: what it takes in the image
    leased       list of str: those of its files that nobody can open, as the job has a lease on them
    """

    def __init__(self, open_files: "OpenFiles", node_local: NodeLocal, output: "list[str]", uid: int) -> None:
        """:param output: files that travel anyway; uid: the owner's"""
        self.files: "list[tuple[File, list[tuple[str, str]]]]" = []
        self.directories: "list[tuple[str, str, os.stat_result]]" = []
        for file in open_files.files:
            pairs = [(path, node_local.find_directory(path)) for path in file.names]
            names = [(path, directory) for path, directory in pairs if directory]
            if names and file.status.st_uid == uid and not set(file.names).intersection(output):
                self.files.append((file, names))
        for path, status in sorted(open_files.directories.items()):
            directory = node_local.find_directory(path)
            if directory and status.st_uid == uid:
                self.directories.append((path, directory, status))
        self.trees = [path for path in node_local.trees if scratch.is_owned(path, uid)]
        leased = {name for file in open_files.files if file.lease == WRITE_LEASE for name in file.names}
        self.leased = sorted(leased.intersection(name for _file, names in self.files for name, _directory in names)
                             .union(name for name in leased if any(mounts.is_beneath(name, tree) for tree in self.trees)))
        self.bytes = sum(_count_allocated(file.status) for file, _names in self.files) + sum(map(scratch.measure_size, self.trees))

    def format_names(self) -> str:
        """Return the names of its files and trees for a sentence."""
        names = self.trees + [names[0][0] for _file, names in sorted(self.files, key=lambda pair: -_count_allocated(pair[0].status))]
        return ", ".join(map(quote_name, names[:3])) + (" and %d more" % (len(names) - 3) if len(names) > 3 else "")


# -- into the image -------------------------------------------------------------

def _copy_file(image: int, source: int, name: str, file: "File") -> None:
    """Copy a file as it was when the tree was frozen, and close its descriptor (source)."""
    path, size = quote_name(file.names[0]), file.status.st_size
    try:
        target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=image)
        try:
            done = sparse.copy_data(source, target, size)
            now = os.fstat(source)
        finally:
            os.close(target)
            os.close(source)
    except OSError as error:
        raise HookError(CANNOT_WRITE, "cannot copy %s into the image: %s; the job keeps running; %s" % (path, error.strerror, COPY_CURE))
    if done != size:
        raise HookError(CANNOT_WRITE, "%s became shorter while it was copied into the image (%d bytes, had %d); the job keeps running; "
                        "try again" % (path, done, size))
    # One that has grown was appended to, as far as can be told.
    if not file.written and not file.logged and now.st_mtime_ns != file.status.st_mtime_ns and now.st_size <= size:
        raise HookError(TEMPORARY, "%s was changed while it was copied into the image; the job keeps running; try again" % path)


def _open_files(files: "list[tuple[File, list[tuple[str, str]]]]", opened: "list[int]") -> None:
    """Open the files (Load.files) for reading and append their descriptors to opened."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for file, _names in files:
        fifo = stat.S_ISFIFO(file.status.st_mode)
        opened.append(os.open(file.proc_path, os.O_CLOEXEC | (os.O_PATH if fifo else os.O_RDONLY)))
        if not os.path.samestat(os.fstat(opened[-1]), file.status):
            os.close(opened.pop())
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


class Capture:
    """Copies what travels into the image: work for frozen.Worker.

    :param image: descriptor of the image
    :param limit: bytes
    :param known: names that unlinked files had before the engine wrote the image. Others are the engine's: they are in the image, and are
        removed here, where they would be in the way of the next job's. None: nothing is removed
    """

    def __init__(self, image: int, load: Load, limit: int, known: "set[str] | None" = None) -> None:
        self._image, self._load, self._limit, self._known = image, load, limit, known
        self._entries: "list[dict]" = []
        self._copies: "list[tuple[int, int, str, File]]" = []
        self._bound_reason = ""

    def while_frozen(self) -> None:
        """Copy whole trees, and files that somebody may be changing.

        :raises HookError: CANNOT_WRITE
        """
        opened = self._open_sources()
        if self._bound_reason:
            return
        load = self._load
        self._entries = [{"kind": "directory", "path": path, "beneath": directory, "mode": stat.S_IMODE(status.st_mode),
                          "gid": status.st_gid} for path, directory, status in load.directories]
        for number, ((file, names), source) in enumerate(zip(load.files, opened), 1):
            if file.unlinked and self._known is not None:
                _remove_names(file, self._known)
            entry = _describe_file(file, names)
            self._entries.append(entry)
            if entry["kind"] == "fifo":  # what is in it is the engine's
                os.close(source)
                continue
            entry["name"] = "node-local-%d" % number
            copy = (self._image, source, entry["name"], file)
            if file.written:
                _copy_file(*copy)
            else:
                self._copies.append(copy)
        for number, path in enumerate(load.trees, 1):
            name = "scratch-%d.tar" % number
            self._entries.append(dict(scratch.save_directory(self._image, name, path), kind="tree", name=name, path=path, beneath=path))

    def after_thaw(self) -> "dict[str, Any]":
        """Copy the other files; return the fields for the manifest ("node_local", "bound", "bound_reason").

        :raises HookError: CANNOT_WRITE; TEMPORARY if one was changed meanwhile, other than by appending
        """
        for copy in self._copies:
            _copy_file(*copy)
        return {"node_local": self._entries, "bound": bool(self._bound_reason), "bound_reason": self._bound_reason[:strict_json.TEXT]}

    def _open_sources(self) -> "list[int]":
        """Return the descriptors of the files; none, and the reason is noted, if the image is bound to its node."""
        opened: "list[int]" = []
        if self._load.bytes > self._limit:
            self._bound_reason = ("%s (%s) lie on this node's own file systems, above the limit of %s (checkpoint_hooks_node_local_bytes)"
                                  % (format_bytes(self._load.bytes), self._load.format_names(), format_bytes(self._limit)))
            return opened
        if self._load.leased:
            self._bound_reason = ("the job has a lease on %s, so that opening the file would send it a signal"
                                  % quote_name(self._load.leased[0]))
            return opened
        try:
            _open_files(self._load.files, opened)
        except OSError as error:
            self._bound_reason = "%s cannot be read (%s)" % (quote_name(self._load.files[len(opened)][0].names[0]), error.strerror)
            for descriptor in opened:
                os.close(descriptor)
        return opened


def _remove_names(file: "File", known: "set[str]") -> None:
    """Remove those of an open file's names that are not known, as far as that is allowed; its status is read again."""
    for name in set(file.names) - known:
        try:
            os.unlink(name)
        except OSError:
            pass
    file.status = os.stat(file.proc_path)


def _describe_file(file: "File", names: "list[tuple[str, str]]") -> "dict[str, Any]":
    """Return the manifest's entry of an open file with these names."""
    status = file.status
    return {"kind": "fifo" if stat.S_ISFIFO(status.st_mode) else "file", "path": names[0][0], "beneath": names[0][1],
            "links": names[1:], "mode": stat.S_IMODE(status.st_mode), "gid": status.st_gid, "size": status.st_size,
            "mtime_ns": status.st_mtime_ns, "state": format_state(status),
            "opened": "write" if file.written else "append" if file.logged else "read"}


def estimate_need(opened: "OpenFiles", node_local: NodeLocal, limit: int, output: "list[str]", uid: int) -> "list[int]":
    """Return what would travel with an image that was written now: [bytes, files], see capacity.estimate_need; none if it would be bound.

    :param opened: what the job has open now
    :param limit: bytes
    :param output: the job's files in pbs_mom's spool, which are not counted; uid: the job owner's
    """
    load = Load(opened, node_local, output, uid)
    return [load.bytes, len(load.files) + len(load.trees)] if load.bytes <= limit else [0, 0]


def list_paths(facts: dict) -> "set[str]":
    """Return all names of the files that travel, by what Capture.after_thaw returned."""
    return {path for entry in facts["node_local"] for path in [entry["path"]] + [link[0] for link in entry.get("links", [])]}


def list_left_files(described: dict) -> "list[dict]":
    """Return what the job left on nodes ({"node", "path", "state"}), by the manifest of the image it is restarted from."""
    own = [{"node": described["node"], "path": path, "state": entry["state"]} for entry in described["node_local"] if "state" in entry
           for path in [entry["path"]] + [link[0] for link in entry.get("links", [])]]
    known = {(entry["node"], entry["path"]) for entry in own}
    return ([entry for entry in described["left"] if (entry["node"], entry["path"]) not in known] + own)[-_LEFT_MOST:]
