"""What a process tree has open, by /proc, while it stands still.

Everything is checked by device and inode: a name counts only if it still leads to what the process has open.
Files without a name are the engine's.
"""
import os
import stat

from ..errors import HookError, SYSTEM, quote_name
from ..system import mounts, processes

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Container


class File:
    """A regular file or named pipe that the tree has open or mapped.

    names      list of str: the names by which the tree knows it
    status     os.stat_result
    proc_path  str: a path in /proc that leads to the very file
    written    bool: some process may write to it anywhere (a descriptor for writing, a shared mapping of one)
    logged     bool: some descriptor is for appending only
    read       bool: some descriptor is for reading only
    held       bool: there is a descriptor or a shared mapping; otherwise the file is a program, a library or the like
    lease      str: READ_LEASE if the tree has a lease that opening the file for writing breaks, WRITE_LEASE if it has one that any opening
               breaks, or empty. Its holder gets a signal then, and whoever opens the file waits
    unlinked   bool: some name by which the tree has it open was removed; the names are others in the same directory
    """

    def __init__(self, status: os.stat_result, proc_path: str) -> None:
        self.names: "list[str]" = []
        self.status, self.proc_path = status, proc_path
        self.written = self.logged = self.read = self.held = False
        self.lease = ""
        self.unlinked = False

    def is_append_only(self) -> bool:
        """Whether all descriptors are for appending only."""
        return self.logged and not self.written and not self.read


READ_LEASE, WRITE_LEASE = "read", "write"
"""See File. A lease that is being broken counts as one for writing until its holder has given it up."""

REMOVED = " (deleted)"
"""The end of the name that the kernel shows of a removed file."""
_MEMORY = ("/memfd:", "/dev/zero", "/SYSV")
"""How names of what is no file but memory begin, which the kernel shows as removed files, too."""


class OpenFiles:
    """What find_open_files() returns.

    files        list of File
    directories  dict of os.stat_result by path (str): working directories, open ones, and those of bound sockets
    removed      dict of (bytes on its file system, path, pid) by device and inode: files without a name, which the engine writes
    others       list of (pid, descriptor (str), what it leads to (str)): sockets, pipes, devices and the like
    mapped       list of (pid, path): devices and System V shared memory that are mapped
    unix         dict of (type, name) (str, as /proc/net/unix has them) by inode (str): the tree's unix sockets
    breaking     list of (pid, path): files on which a process has a lease that another process is breaking
    pids         list of int: the tree
    """

    def __init__(self) -> None:
        self._files: "dict[tuple[int, int], File]" = {}
        self.directories: "dict[str, os.stat_result]" = {}
        self.removed: "dict[tuple[int, int], tuple[int, str, int]]" = {}
        self.others: "list[tuple[int, str, str]]" = []
        self.mapped: "list[tuple[int, str]]" = []
        self.unix: "dict[str, tuple[str, str]]" = {}
        self.breaking: "list[tuple[int, str]]" = []
        self.pids: "list[int]" = []

    @property
    def files(self) -> "list[File]":
        """See the class."""
        return list(self._files.values())

    def count_removed_bytes(self) -> int:
        """Return how many bytes removed files have."""
        return sum(size for size, _path, _pid in self.removed.values())

    def add_removed(self, path: str, numbers: "list[bytes]", pid: int) -> None:
        """Add a removed file that is only mapped, of which no more is known.

        :param path: what the kernel shows, with REMOVED at its end
        :param numbers: device and inode as /proc/PID/maps shows them
        """
        if not path.startswith(_MEMORY):
            major, minor = (int(number, 16) for number in numbers[0].split(b":"))
            self.removed.setdefault((os.makedev(major, minor), int(numbers[1])), (0, path[:-len(REMOVED)], pid))

    def add(self, path: str, proc_path: str) -> "File | None":
        """Add what proc_path leads to, if path is its name, or was and others are left beside it; return the File, if it is one."""
        if not path.startswith("/") or path.startswith(("/proc/", "/sys/", "/dev/pts/")):
            return None
        try:
            status = os.stat(proc_path)
            if not status.st_nlink and stat.S_ISREG(status.st_mode) and not path.startswith(_MEMORY):
                pid = int(proc_path.split("/")[2])
                self.removed.setdefault((status.st_dev, status.st_ino), (status.st_blocks * 512, path[:-len(REMOVED)], pid))
                return None
            names = [path] if _leads_to(path, status) else _find_other_names(path, status)
        except OSError:
            return None  # not to be seen from here
        if not names:
            return None
        if stat.S_ISDIR(status.st_mode):
            self.directories[path] = status
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
            return None
        file = self._files.setdefault((status.st_dev, status.st_ino), File(status, proc_path))
        file.unlinked = file.unlinked or names != [path]
        file.names += [name for name in names if name not in file.names]
        return file


def _leads_to(path: str, status: os.stat_result) -> bool:
    """Whether a path is the name of the file with this status."""
    try:
        return os.path.samestat(status, os.lstat(path))
    except OSError:
        return False


def _find_other_names(path: str, status: os.stat_result) -> "list[str]":
    """Return the names in the same directory of a file that lost the one by which it was opened: sem_open(3) leaves such files.

    :param path: what the kernel shows, with REMOVED at its end
    """
    directory = os.path.dirname(path)
    if not path.endswith(REMOVED) or not stat.S_ISREG(status.st_mode):
        return []
    with os.scandir(directory) as entries:
        names = [entry.path for entry in entries if entry.inode() == status.st_ino]
    return sorted(name for name in names if _leads_to(name, status))


def format_state(status: os.stat_result) -> str:
    """Return what changes when anybody touches a file, from its os.stat_result."""
    return "%d %d %d %d" % (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)


def read_information(pid: int, number: str) -> bytes:
    """Return what the kernel shows of a descriptor of a process (proc(5), fdinfo)."""
    with open("/proc/%d/fdinfo/%s" % (pid, number), "rb") as stream:
        return stream.read()


def parse_flags(information: bytes) -> int:
    """Return the flags with which a descriptor is open, by what read_information returned."""
    return int(information.split(b"flags:", 1)[1].split(None, 1)[0], 8)


def _note_lease(open_files: OpenFiles, file: File, pid: int, path: str, information: bytes) -> None:
    """Note the lease that a process has on a file by a descriptor.

    :param information: what read_information returned, with lines like "lock: 1: LEASE ACTIVE WRITE 4711 fe:00:2 0 EOF"
    """
    for line in information.splitlines():
        fields = line.split()
        if fields[:1] != [b"lock:"] or fields[2:3] != [b"LEASE"]:
            continue
        if fields[3] == b"BREAKING":
            open_files.breaking.append((pid, path))
        if fields[3:5] != [b"ACTIVE", b"READ"]:
            file.lease = WRITE_LEASE
        elif not file.lease:
            file.lease = READ_LEASE


def _add_descriptors(open_files: OpenFiles, pid: int, sockets: "set[str]") -> None:
    for number in os.listdir("/proc/%d/fd" % pid):
        proc_path = "/proc/%d/fd/%s" % (pid, number)
        try:
            path = os.readlink(proc_path)
            if path.startswith("socket:["):
                sockets.add(path[8:-1])
            if not path.startswith("/") or path.startswith("/dev/"):
                open_files.others.append((pid, number, path))
            file = open_files.add(path, proc_path)
            if file is None:
                continue
            information = read_information(pid, number)
        except FileNotFoundError:
            continue  # this thread's own view of it has just gone
        flags = parse_flags(information)
        _note_lease(open_files, file, pid, path, information)
        mode = flags & os.O_ACCMODE
        if flags & getattr(os, "O_PATH", 0):
            continue
        file.held = True
        if mode == os.O_RDONLY:
            file.read = True
        elif mode == os.O_WRONLY and flags & os.O_APPEND:
            file.logged = True
        else:
            file.written = True


def _add_mappings(open_files: OpenFiles, pid: int, directories: "list[str]") -> None:
    """Add shared mappings, and private ones of removed files and in these directories: programs, libraries."""
    with open("/proc/%d/maps" % pid, "rb") as stream:
        lines = [line.split(None, 5) for line in stream if b" /" in line]
    seen = set()
    for fields in lines:
        path, shared = os.fsdecode(fields[5][:-1]), fields[1][3:4] == b"s"
        if (path, shared) in seen or not (shared or path.endswith(REMOVED)
                                          or any(mounts.is_beneath(path, directory) for directory in directories)):
            continue
        seen.add((path, shared))
        if path.startswith(("/dev/", "/SYSV")):
            open_files.mapped.append((pid, path))
        proc_path = "/proc/%d/map_files/%x-%x" % ((pid,) + tuple(int(number, 16) for number in fields[0].split(b"-")))
        try:
            path = os.readlink(proc_path)
            os.stat(proc_path)
            may_write = os.lstat(proc_path).st_mode & stat.S_IWUSR
        except PermissionError:  # without CAP_CHECKPOINT_RESTORE
            if path.endswith(REMOVED):
                open_files.add_removed(path, fields[3:5], pid)
                continue
            proc_path, may_write = path, True
        except OSError:
            continue
        file = open_files.add(path, proc_path)
        if file is not None and shared:
            file.held = True
            if may_write:
                file.written = True
            else:
                file.read = True


def _add_socket_directories(open_files: OpenFiles, pid: int, sockets: "set[str]") -> None:
    """Add the directories of sockets: the engine creates the sockets, but not these."""
    try:
        with open("/proc/%d/net/unix" % pid, "rb") as stream:
            lines = [line.split(None, 7) for line in stream]
    except OSError:
        return
    for fields in lines:
        if len(fields) < 7 or fields[6].strip().decode() not in sockets:
            continue
        name = os.fsdecode(fields[7][:-1]) if len(fields) == 8 else ""
        open_files.unix[fields[6].strip().decode()] = (fields[4].decode(), name)
        if name:
            directory = os.path.dirname(name)
            open_files.add(directory, directory)


def _has_memory(pid: int) -> bool:
    """Whether the process exists and is not ending: one that ends loses its memory before its files, and before its state shows it."""
    try:
        with open("/proc/%d/statm" % pid, "rb") as stream:
            return not stream.read().startswith(b"0 ")
    except OSError:
        return False


def find_open_files(root: int, directories: "list[str]", without: "Container[int]" = ()) -> OpenFiles:
    """Return the OpenFiles of the tree under root (pid).

    :param directories: where private mappings count, too
    :param without: pids of the tree that do not count
    :raises HookError: SYSTEM when a process that is not ending cannot be examined
    """
    open_files = OpenFiles()
    open_files.pids = [pid for pid in processes.list_tree(root) if pid not in without]
    for pid in open_files.pids:
        sockets: "set[str]" = set()
        try:
            _add_descriptors(open_files, pid, sockets)
            _add_mappings(open_files, pid, directories)
            open_files.add(os.readlink("/proc/%d/exe" % pid), "/proc/%d/exe" % pid)
            open_files.add(os.readlink("/proc/%d/cwd" % pid), "/proc/%d/cwd" % pid)
        except OSError as error:
            process = processes.read_process(pid)
            if process is not None and _has_memory(pid):
                raise HookError(SYSTEM, "cannot see what process %d (%s) of the job has open: %s; the job keeps running; "
                                "checkpoint the job when the process has ended"
                                % (pid, quote_name(process.name), error.strerror))
        if sockets:
            _add_socket_directories(open_files, pid, sockets)
    return open_files
