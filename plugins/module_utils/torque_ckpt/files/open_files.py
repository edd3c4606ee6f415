"""What a process tree has open, by /proc. Look while it stands still.

Everything is proven by device and inode: a name counts only if it still leads to what the process has open.
Files without a name are the engine's.
"""
import os
import stat

from ..errors import HookError, SYSTEM, plain
from ..system import mounts, processes


class File:
    """A regular file or named pipe that the tree has open or mapped.

    names   list of str: the names by which the tree knows it
    status  os.stat_result
    way     str: a path in /proc that leads to the very file
    written bool: some process may write to it anywhere (a descriptor for writing, a shared mapping of one)
    logged  bool: some descriptor is for appending only
    read    bool: some descriptor is for reading only
    held    bool: there is a descriptor or a shared mapping; otherwise the file is a program, a library or the like
    """

    def __init__(self, status, way):
        self.names, self.status, self.way = [], status, way
        self.written = self.logged = self.read = self.held = False

    def appended(self):
        """Whether all descriptors are for appending only (bool)."""
        return self.logged and not self.written and not self.read


class Found:
    """What look() found.

    files        list of File
    directories  dict of os.stat_result by path (str): working directories, open ones, and those of bound sockets
    """

    def __init__(self):
        self._files = {}
        self.directories = {}

    @property
    def files(self):
        """See the class."""
        return list(self._files.values())

    def add(self, path, way):
        """Take in what way leads to, if path is its name; return the File, if it is one."""
        if not path.startswith("/") or path.startswith(("/proc/", "/sys/", "/dev/pts/")):
            return None
        try:
            status = os.stat(way)
            if not os.path.samestat(status, os.lstat(path)):
                return None
        except OSError:
            return None  # removed, or not to be seen from here
        if stat.S_ISDIR(status.st_mode):
            self.directories[path] = status
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
            return None
        found = self._files.setdefault((status.st_dev, status.st_ino), File(status, way))
        if path not in found.names:
            found.names.append(path)
        return found


def state(status):
    """Return what changes when anybody touches a file (str), from its os.stat_result."""
    return "%d %d %d %d" % (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)


def _flags(pid, number):
    with open("/proc/%d/fdinfo/%s" % (pid, number), "rb") as stream:
        return int(stream.read().split(b"flags:", 1)[1].split(None, 1)[0], 8)


def _descriptors(found, pid, sockets):
    for number in os.listdir("/proc/%d/fd" % pid):
        way = "/proc/%d/fd/%s" % (pid, number)
        try:
            path = os.readlink(way)
            if path.startswith("socket:["):
                sockets.add(path[8:-1])
            file = found.add(path, way)
            if file is None:
                continue
            flags = _flags(pid, number)
        except FileNotFoundError:
            continue  # this thread's own view of it has just gone
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


def _mappings(found, pid, directories):
    """Shared mappings, and in these directories also private ones: programs, libraries."""
    with open("/proc/%d/maps" % pid, "rb") as stream:
        lines = [line.split(None, 5) for line in stream if b" /" in line]
    seen = set()
    for fields in lines:
        path, shared = os.fsdecode(fields[5][:-1]), fields[1][3:4] == b"s"
        if (path, shared) in seen or not (shared or any(mounts.is_beneath(path, directory) for directory in directories)):
            continue
        seen.add((path, shared))
        way = "/proc/%d/map_files/%x-%x" % ((pid,) + tuple(int(number, 16) for number in fields[0].split(b"-")))
        try:
            path = os.readlink(way)
            os.stat(way)
            may_write = os.lstat(way).st_mode & stat.S_IWUSR
        except PermissionError:
            way, may_write = path, True  # without CAP_CHECKPOINT_RESTORE
        except OSError:
            continue
        file = found.add(path, way)
        if file is not None and shared:
            file.held = True
            if may_write:
                file.written = True
            else:
                file.read = True


def _bound(found, pid, sockets):
    """The directories of sockets: the engine makes the sockets, but not these."""
    try:
        with open("/proc/%d/net/unix" % pid, "rb") as stream:
            lines = [line.split(None, 7) for line in stream]
    except OSError:
        return
    for fields in lines:
        if len(fields) == 8 and fields[6].decode() in sockets:
            directory = os.path.dirname(os.fsdecode(fields[7][:-1]))
            found.add(directory, directory)


def _has_memory(pid):
    """Whether there is a process that is not ending: then its memory goes first, before its files and before its state tells."""
    try:
        with open("/proc/%d/statm" % pid, "rb") as stream:
            return not stream.read().startswith(b"0 ")
    except OSError:
        return False


def look(root, directories):
    """Return what the tree under root (pid) has Found.

    :param directories: where private mappings count, too (list of str)
    :raises HookError: SYSTEM when a process cannot be looked at that is not ending
    """
    found = Found()
    for pid in processes.list_tree(root):
        sockets = set()
        try:
            _descriptors(found, pid, sockets)
            _mappings(found, pid, directories)
            found.add(os.readlink("/proc/%d/exe" % pid), "/proc/%d/exe" % pid)
            found.add(os.readlink("/proc/%d/cwd" % pid), "/proc/%d/cwd" % pid)
        except OSError as error:
            there = processes.read_process(pid)
            if there is not None and _has_memory(pid):
                raise HookError(SYSTEM, "cannot see what process %d (%s) of the job has open: %s; the job runs on"
                                % (pid, plain(there.name), error.strerror))
        if sockets:
            _bound(found, pid, sockets)
    return found
