"""What an image carries is restored on the node of the restart, if nothing is in the way, and removed again if the restart fails.

A file appears whole or not at all, so that a node that fails meanwhile leaves nothing half done. Runs as the job's owner.
"""
import errno
import os
import stat

from ..errors import HookError, REFUSED, RETURN_CURE, SYSTEM, TEMPORARY, quote_name
from ..image import schema
from ..system import mounts
from . import scratch, sparse
from .capture import list_left_files
from .open_files import format_state

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Sequence

_PASSAGE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)


def check_node(manifest: dict, image_path: str) -> None:
    """Check that an image which is bound to its node is restarted there.

    :param manifest: the image's
    :param image_path: the image's path, for the sentence
    :raises HookError: REFUSED
    """
    if manifest["bound"] and manifest["node"] != os.uname().nodename:
        raise HookError(REFUSED, "image %s restarts on %s only: when it was written, %s; restart the job there; image kept"
                        % (image_path, manifest["node"], manifest["bound_reason"]))


def _refused(path: str, why: str) -> HookError:
    return HookError(REFUSED, "%s, which the image carries, %s; move it away or restart the job on another node; image kept"
                     % (quote_name(path), why))


def _unsafe(directory: str, nature: str) -> HookError:
    return HookError(REFUSED, "the directory %s, which files of the image belong into, is %s on this node; move it away or restart the "
                     "job on another node; image kept" % (quote_name(directory), nature))


class SafeDirectories:
    """The node's directories, as the job's owner may safely use them.

    created  list of {"kind", "path", "beneath", "inode"}: what was created in them, in this order
    """

    def __init__(self, settings: dict, uid: int, created: "Sequence[dict]" = ()) -> None:
        """:param settings: from config.load_settings; uid: the job owner's; created: see the class"""
        self.uid = uid
        self.trusted = [os.path.realpath(name) for name in settings["node_local_directories"] if name.startswith("/")]
        self.created = list(created)

    def remove_created(self) -> None:
        """Remove what was created."""
        for entry in reversed(self.created):
            name = os.path.basename(entry["path"])
            try:
                parent = self.open_directory(os.path.dirname(entry["path"]), entry["beneath"])
                try:
                    if os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino != entry["inode"]:
                        continue
                    if entry["kind"] == "filled":
                        scratch.empty_directory(entry["path"])
                    elif entry["kind"] == "directory":
                        os.rmdir(name, dir_fd=parent)
                    else:
                        os.unlink(name, dir_fd=parent)
                finally:
                    os.close(parent)
            except (OSError, HookError):
                pass  # gone, or not empty: somebody else uses it by now
        self.created = []

    def note(self, kind: str, path: str, beneath: str, status: os.stat_result) -> None:
        """Note what was created, with its status."""
        self.created.append({"kind": kind, "path": path, "beneath": beneath, "inode": status.st_ino})

    def open_directory(self, path: str, beneath: str, create: bool = False) -> int:
        """Return a descriptor of a directory; no component of its path is another user's.

        Links are followed up to a configured directory only: root configured that. Missing directories are created beneath "beneath".
        """
        walked = beneath if beneath in self.trusted and (path == beneath or mounts.is_beneath(path, beneath)) else "/"
        descriptor = os.open(walked, _PASSAGE)
        try:
            for part in filter(None, path[len(walked):].split("/")):
                walked = os.path.join(walked, part)
                try:
                    deeper = os.open(part, _PASSAGE | os.O_NOFOLLOW, dir_fd=descriptor)
                except FileNotFoundError:
                    if not create or not mounts.is_beneath(walked, beneath):
                        raise
                    os.mkdir(part, 0o700, dir_fd=descriptor)
                    deeper = os.open(part, _PASSAGE | os.O_NOFOLLOW, dir_fd=descriptor)
                    self.note("directory", walked, beneath, os.fstat(deeper))
                os.close(descriptor)
                descriptor = deeper
                if os.fstat(descriptor).st_uid not in (0, self.uid):
                    raise _unsafe(walked, "another user's")
        except NotADirectoryError:
            os.close(descriptor)
            raise _unsafe(walked, "a link or a file")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


class Restoration(SafeDirectories):
    """One attempt to restore what an image carries."""

    def __init__(self, image: int, manifest: dict, settings: dict, uid: int) -> None:
        """:param image: its descriptor; manifest: what it holds; settings, uid: see SafeDirectories"""
        super().__init__(settings, uid)
        self.image = image
        self.entries: "list[dict]" = manifest["node_local"]
        node = os.uname().nodename
        self.left = {entry["path"]: entry["state"] for entry in list_left_files(manifest) if entry["node"] == node}
        self.whole: "dict[str, tuple[str, str]]" = {}  # by the first name of each that is present: a name that is, and what it is beneath
        self.modes: "list[tuple[str, dict]]" = []  # what is given its mode at the end, as it may forbid creating anything in it

    def restore(self) -> None:
        """Restore everything.

        :raises HookError: REFUSED when something is in the way, TEMPORARY when there is no free space, SYSTEM when it cannot be restored;
            everything is as it was then
        """
        entry: dict = {}
        waiting: "list[tuple[dict, tuple[str, str]]]" = []
        try:
            for entry in self.entries:
                waiting.extend((entry, name) for name in schema.list_names(entry) if not self._is_present(entry, *name))
            for entry, (path, beneath) in waiting:
                self._create(entry, path, beneath)
            for path, entry in reversed(self.modes):
                if entry["gid"] != os.lstat(path).st_gid:
                    os.chown(path, -1, entry["gid"], follow_symlinks=False)
                os.chmod(path, entry["mode"])
        except OSError as error:
            self.remove_created()
            where = error.filename if str(error.filename).startswith(entry["path"]) else entry["path"]  # in a tree
            raise HookError(TEMPORARY if error.errno in (errno.ENOSPC, errno.EDQUOT) else SYSTEM,
                            "cannot put back %s: %s; %s; image kept" % (quote_name(where), error.strerror, RETURN_CURE))
        except BaseException:
            self.remove_created()
            raise

    def _is_present(self, entry: dict, path: str, beneath: str) -> bool:
        """Whether path is present as the image has it; False also for what this very job left here and nobody has touched since.

        :raises HookError: REFUSED when something else has its name
        """
        try:
            parent = self.open_directory(os.path.dirname(path), beneath)
        except FileNotFoundError:
            return False
        try:
            status = os.stat(os.path.basename(path), dir_fd=parent, follow_symlinks=False)
            kind = _KINDS[entry["kind"]]
            if stat.S_IFMT(status.st_mode) != kind.file_type or status.st_uid != self.uid:
                raise _refused(path, "is something else or another user's on this node")
            if not kind.is_same(self, entry, path, parent, status):
                return False
            self.whole.setdefault(entry["path"], (path, beneath))
            return True
        except FileNotFoundError:
            return False
        finally:
            os.close(parent)

    def _create(self, entry: dict, path: str, beneath: str) -> None:
        parent = self.open_directory(os.path.dirname(path), beneath, create=True)
        try:
            _KINDS[entry["kind"]].create(self, entry, path, beneath, parent)
        finally:
            os.close(parent)

    def link(self, path: str, beneath: str, name: str, parent: int) -> None:
        """Link the file or pipe at path to another name in a directory (descriptor)."""
        directory = self.open_directory(os.path.dirname(path), beneath)
        try:
            os.link(os.path.basename(path), name, src_dir_fd=directory, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(directory)


class _Kind:
    """How one kind of what an image carries is compared and created. entry: of the manifest; path, beneath: of one of its names; parent:
    descriptor of the directory that it is in; status: as it is now.

    file_type  int: of the mode
    """

    file_type: int

    @staticmethod
    def is_same(_work: Restoration, _entry: dict, _path: str, _parent: int, _status: os.stat_result) -> bool:
        """See Restoration._is_present."""
        return True

    @staticmethod
    def create(work: Restoration, entry: dict, path: str, beneath: str, parent: int) -> None:
        """Create it, and note that."""
        raise NotImplementedError


class _Directory(_Kind):
    file_type = stat.S_IFDIR

    @staticmethod
    def create(work: Restoration, entry: dict, path: str, beneath: str, _parent: int) -> None:
        descriptor = work.open_directory(path, beneath, create=True)  # it may have been created a moment ago, as a parent
        os.close(descriptor)
        work.modes.append((path, entry))


class _Fifo(_Kind):
    file_type = stat.S_IFIFO

    @staticmethod
    def create(work: Restoration, entry: dict, path: str, beneath: str, parent: int) -> None:
        name = os.path.basename(path)
        if entry["path"] != path:
            work.link(entry["path"], entry["beneath"], name, parent)
        else:
            os.mkfifo(name, 0o600, dir_fd=parent)
            work.modes.append((path, entry))
        work.note("fifo", path, beneath, os.stat(name, dir_fd=parent, follow_symlinks=False))


class _Tree(_Kind):
    file_type = stat.S_IFDIR

    @staticmethod
    def is_same(work: Restoration, _entry: dict, path: str, _parent: int, _status: os.stat_result) -> bool:
        if scratch.is_filled(path) and work.left.get(path) != scratch.hash_directory(path):
            raise _refused(path, "is there already and is not empty")
        return False

    @staticmethod
    def create(work: Restoration, entry: dict, path: str, beneath: str, parent: int) -> None:
        name = os.path.basename(path)
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
            work.note("directory", path, beneath, os.stat(name, dir_fd=parent))
        except FileExistsError:
            scratch.empty_directory(path)  # of what this job left here, if it is not empty
        work.note("filled", path, beneath, os.stat(name, dir_fd=parent))
        scratch.unpack_archive(work.image, entry["name"], path)
        work.modes.append((path, entry))


class _File(_Kind):
    file_type = stat.S_IFREG

    @staticmethod
    def is_same(work: Restoration, entry: dict, path: str, parent: int, status: os.stat_result) -> bool:
        left_here = work.left.get(path) == format_state(status)
        if status.st_size != entry["size"]:
            if left_here:
                return False
            raise _refused(path, "is there already with %d bytes, in the image it has %d" % (status.st_size, entry["size"]))
        with open(os.open(os.path.basename(path), os.O_RDONLY | _FLAGS, dir_fd=parent), "rb") as here, \
                open(os.open(entry["name"], os.O_RDONLY | _FLAGS, dir_fd=work.image), "rb") as wanted:
            same = sparse.has_same_data(here.fileno(), wanted.fileno(), entry["size"])
        if same and stat.S_IMODE(status.st_mode) == entry["mode"]:
            return True
        if left_here:
            return False
        raise _refused(path, "is there already with another %s (%d bytes)" % ("mode" if same else "content", entry["size"]))

    @staticmethod
    def create(work: Restoration, entry: dict, path: str, beneath: str, parent: int) -> None:
        name = os.path.basename(path)
        try:
            os.unlink(name, dir_fd=parent)  # what this job left here
        except FileNotFoundError:
            pass
        if entry["path"] in work.whole:
            work.link(*work.whole[entry["path"]], name=name, parent=parent)
        else:
            _copy_out(work.image, entry, name, parent)
        work.whole.setdefault(entry["path"], (path, beneath))
        work.note("file", path, beneath, os.stat(name, dir_fd=parent, follow_symlinks=False))


_KINDS: "dict[str, type[_Kind]]" = {"directory": _Directory, "fifo": _Fifo, "tree": _Tree, "file": _File}


def _copy_out(image: int, entry: dict, name: str, parent: int) -> None:
    """Create a file of the image (descriptor) in a directory (descriptor): whole or not at all."""
    try:
        target, nameless = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=parent), True
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        target, nameless = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=parent), False
    try:
        with open(os.open(entry["name"], os.O_RDONLY | _FLAGS, dir_fd=image), "rb") as source:
            sparse.copy_data(source.fileno(), target, entry["size"])
        if entry["gid"] != os.fstat(target).st_gid:
            os.fchown(target, -1, entry["gid"])
        os.fchmod(target, entry["mode"])
        os.utime(target, ns=(entry["mtime_ns"], entry["mtime_ns"]))
        if nameless:
            os.link("/proc/self/fd/%d" % target, name, dst_dir_fd=parent)
    except BaseException:
        if not nameless:
            os.unlink(name, dir_fd=parent)
        raise
    finally:
        os.close(target)


def undo_restore(created: "list[dict]", settings: dict, uid: int) -> None:
    """Remove what an attempt created.

    :param settings: from config.load_settings; uid: the job owner's
    """
    SafeDirectories(settings, uid, created).remove_created()
