"""A file system that shows a directory and fails on demand: FUSE, for the store of a case.

Usage: faultfs.py DIRECTORY MOUNTPOINT CONTROL

CONTROL is a JSON file, read again when it changes:
  error    errno to answer with (int), "hang", or "reset": the node loses its power at that moment
  after    how many writing operations succeed before (int)
  reading  whether reading fails as well (bool)
It is answered in CONTROL.count: how many writing operations there were since, and whether one failed.

After a reset every operation fails until CONTROL says something else. By then what had not been flushed is gone: changes of directories
from some point on, in their order, and what was written into some of the files.
"""
import errno
import functools
import itertools
import json
import os
import random
import shutil
import stat
import sys
import threading
import time

try:
    import fusepy as fuse  # as Debian calls it
except ImportError:
    import fuse


class Unflushed:
    """What a loss of power would undo: changes of directories and what was written into files, each with its way back."""

    def __init__(self):
        self.lost = False
        self.lock = threading.Lock()
        self.changes = []  # (directories (set of str), function)
        self.written = {}  # by (device, inode): (descriptor, [(offset, bytes that were there, size before)])

    def changed(self, undo, *directories):
        with self.lock:
            self.changes.append((set(directories), undo))

    def write(self, handle, offset, length):
        status = os.fstat(handle)
        file = (status.st_dev, status.st_ino)
        with self.lock:
            if file not in self.written:
                self.written[file] = (os.open("/proc/self/fd/%d" % handle, os.O_RDWR), [])
            self.written[file][1].append((offset, os.pread(handle, length, offset), status.st_size))

    def flushed(self, handle):
        status = os.fstat(handle)
        with self.lock:
            written = self.written.pop((status.st_dev, status.st_ino), None)
        if written:
            os.close(written[0])

    def flushed_directory(self, path):
        with self.lock:
            for directories, _undo in self.changes:
                directories.discard(path)
            self.changes = [change for change in self.changes if change[0]]

    def forget(self):
        """Take all for flushed: what is kept of it takes a descriptor for each file."""
        with self.lock:
            for descriptor, _writes in self.written.values():
                os.close(descriptor)
            self.changes, self.written = [], {}

    def come_back(self):
        """Lose what is not flushed, or a part of it."""
        with self.lock:
            for descriptor, writes in self.written.values():
                for offset, before, size in reversed(writes) if random.random() < 0.7 else ():
                    os.pwrite(descriptor, before, offset)
                    os.truncate(descriptor, size)
                os.close(descriptor)
            first = random.choice([0, random.randint(0, len(self.changes))])
            for _directories, undo in reversed(self.changes[first:]):
                try:
                    undo()
                except OSError:
                    pass  # it was in a directory that is gone, and whose end had been flushed
            self.lost, self.changes, self.written = False, [], {}


class Faults:
    """What is to fail."""

    def __init__(self, control):
        self.control = control
        self.unflushed = Unflushed()
        self.lock = threading.Lock()
        self.seen = None
        self.orders = {}
        self.count = 0
        self.failed = 0

    def _look(self):
        status = os.stat(self.control)
        if (status.st_mtime_ns, status.st_ino) != self.seen:
            self.seen = (status.st_mtime_ns, status.st_ino)
            with open(self.control) as stream:
                self.orders = json.load(stream)
            self.count = self.failed = 0
            if self.orders.get("error") is None and self.unflushed.lost:
                self.unflushed.come_back()
            elif self.orders.get("error") != "reset":
                self.unflushed.forget()

    def _tell(self):
        with open(self.control + ".count", "w") as stream:
            json.dump({"count": self.count, "failed": self.failed}, stream)

    def check(self, writing):
        """Count an operation; fail if it is its turn."""
        with self.lock:
            self._look()
            error = self.orders.get("error")
            if writing:
                self.count += 1
            due = error and self.count > self.orders.get("after", 0) and (writing or self.orders.get("reading") or error == "reset")
            self.failed += bool(due)
            self._tell()
        if due and error == "reset":
            self.unflushed.lost = True
            raise fuse.FuseOSError(errno.EIO)
        if due and error == "hang":
            while self.orders.get("error") == "hang":
                time.sleep(0.05)
                with self.lock:
                    self._look()
        elif due:
            raise fuse.FuseOSError(error)


class FaultFS(fuse.Operations):
    """A directory, as it is."""

    def __init__(self, root, faults):
        self.root = root
        self.faults = faults
        self.attic = root + ".attic"  # what a reset may bring back
        self.numbers = itertools.count()
        shutil.rmtree(self.attic, ignore_errors=True)
        os.mkdir(self.attic, 0o700)

    def _real(self, path):
        return self.root + path

    def _mine(self, path):
        uid, gid, _pid = fuse.fuse_get_context()
        os.lchown(self._real(path), uid, gid)

    def access(self, path, mode):
        return 0  # the kernel has checked (default_permissions)

    def getattr(self, path, handle=None):
        status = os.lstat(self._real(path))
        return {name: getattr(status, name) for name in ("st_atime", "st_ctime", "st_gid", "st_mode", "st_mtime", "st_nlink", "st_size",
                                                         "st_uid", "st_ino", "st_blocks")}

    def readdir(self, path, handle):
        self.faults.check(False)
        return [".", ".."] + os.listdir(self._real(path))

    def readlink(self, path):
        return os.readlink(self._real(path))

    def _changed(self, undo, *paths):
        """A directory has changed: how to undo it (function), and the paths of its entries."""
        self.faults.unflushed.changed(undo, *[os.path.dirname(path) or "/" for path in paths])

    def mkdir(self, path, mode):
        self.faults.check(True)
        os.mkdir(self._real(path), mode)
        self._mine(path)
        self._changed(functools.partial(shutil.rmtree, self._real(path)), path)

    def rmdir(self, path):
        self.faults.check(True)
        status = os.lstat(self._real(path))
        os.rmdir(self._real(path))

        def undo():
            os.mkdir(self._real(path), stat.S_IMODE(status.st_mode))
            os.chown(self._real(path), status.st_uid, status.st_gid)
        self._changed(undo, path)

    def unlink(self, path):
        self.faults.check(True)
        in_attic = os.path.join(self.attic, str(next(self.numbers)))
        os.rename(self._real(path), in_attic)
        self._changed(functools.partial(os.rename, in_attic, self._real(path)), path)

    def symlink(self, path, target):
        self.faults.check(True)
        os.symlink(target, self._real(path))
        self._mine(path)
        self._changed(functools.partial(os.unlink, self._real(path)), path)

    def link(self, path, target):
        self.faults.check(True)
        os.link(self._real(target), self._real(path))
        self._changed(functools.partial(os.unlink, self._real(path)), path)

    def rename(self, old, new):
        self.faults.check(True)
        in_attic = None
        if os.path.lexists(self._real(new)):
            if os.path.isdir(self._real(new)):
                os.rmdir(self._real(new))  # an empty one: no other may be replaced
            else:
                in_attic = os.path.join(self.attic, str(next(self.numbers)))
                os.rename(self._real(new), in_attic)
        os.rename(self._real(old), self._real(new))

        def undo():
            os.rename(self._real(new), self._real(old))
            if in_attic:
                os.rename(in_attic, self._real(new))
        self._changed(undo, old, new)

    def chmod(self, path, mode):
        os.chmod(self._real(path), mode)

    def chown(self, path, uid, gid):
        os.lchown(self._real(path), uid, gid)

    def utimens(self, path, times=None):
        os.utime(self._real(path), times)

    def statfs(self, path):
        status = os.statvfs(self._real(path))
        return {name: getattr(status, name) for name in dir(status) if name.startswith("f_") and name != "f_fsid"}

    def create(self, path, mode, fi=None):
        self.faults.check(True)
        handle = os.open(self._real(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        self._mine(path)
        self._changed(functools.partial(os.unlink, self._real(path)), path)
        return handle

    def open(self, path, flags):
        return os.open(self._real(path), flags & ~(os.O_NOFOLLOW | os.O_APPEND))

    def read(self, path, size, offset, handle):
        self.faults.check(False)
        return os.pread(handle, size, offset)

    def write(self, path, data, offset, handle):
        self.faults.check(True)
        self.faults.unflushed.write(handle, offset, len(data))
        return os.pwrite(handle, data, offset)

    def truncate(self, path, length, handle=None):
        self.faults.check(True)
        handle = os.open(self._real(path), os.O_RDWR)
        try:
            self.faults.unflushed.write(handle, length, max(0, os.fstat(handle).st_size - length))
            os.truncate(handle, length)
        finally:
            os.close(handle)

    def flush(self, path, handle):
        return 0

    def release(self, path, handle):
        os.close(handle)
        return 0

    def fsync(self, path, datasync, handle):
        self.faults.check(True)
        self.faults.unflushed.flushed(handle)
        return 0

    def fsyncdir(self, path, datasync, handle):
        self.faults.check(True)
        self.faults.unflushed.flushed_directory(path)
        return 0


if __name__ == "__main__":
    if hasattr(fuse, "FUSE"):
        fuse.FUSE(FaultFS(sys.argv[1], Faults(sys.argv[3])), sys.argv[2], foreground=True, nothreads=False, allow_other=True,
                  default_permissions=True, attr_timeout=0, entry_timeout=0, use_ino=True, big_writes=True)
    else:
        sys.exit("faultfs: the module fuse is not fusepy (%s)" % os.strerror(errno.ENOPKG))
