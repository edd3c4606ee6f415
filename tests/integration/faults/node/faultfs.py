"""A file system that shows a directory and fails on demand: FUSE, for the store of a case.

Usage: faultfs.py DIRECTORY MOUNTPOINT CONTROL

CONTROL is a JSON file, read again when it changes:
  error    errno to answer with (int), or "hang"
  after    how many writing operations succeed before (int)
  reading  whether reading fails as well (bool)
It is answered in CONTROL.count: how many writing operations there were since, and whether one failed.
"""
import errno
import json
import os
import sys
import threading
import time

try:
    import fusepy as fuse  # as Debian calls it
except ImportError:
    import fuse


class Faults(object):
    """What is to fail."""

    def __init__(self, control):
        self.control = control
        self.lock = threading.Lock()
        self.seen = None
        self.orders = {}
        self.count = 0
        self.failed = 0

    def _look(self):
        there = os.stat(self.control)
        if (there.st_mtime_ns, there.st_ino) != self.seen:
            self.seen = (there.st_mtime_ns, there.st_ino)
            with open(self.control) as stream:
                self.orders = json.load(stream)
            self.count = self.failed = 0

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
            due = error and self.count > self.orders.get("after", 0) and (writing or self.orders.get("reading"))
            self.failed += bool(due)
            self._tell()
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

    def _real(self, path):
        return self.root + path

    def _mine(self, path):
        uid, gid, _pid = fuse.fuse_get_context()
        os.lchown(self._real(path), uid, gid)

    def access(self, path, mode):
        return 0  # the kernel has checked (default_permissions)

    def getattr(self, path, handle=None):
        there = os.lstat(self._real(path))
        return {name: getattr(there, name) for name in ("st_atime", "st_ctime", "st_gid", "st_mode", "st_mtime", "st_nlink", "st_size",
                                                        "st_uid", "st_ino", "st_blocks")}

    def readdir(self, path, handle):
        self.faults.check(False)
        return [".", ".."] + os.listdir(self._real(path))

    def readlink(self, path):
        return os.readlink(self._real(path))

    def mknod(self, path, mode, dev):
        self.faults.check(True)
        os.mknod(self._real(path), mode, dev)
        self._mine(path)

    def mkdir(self, path, mode):
        self.faults.check(True)
        os.mkdir(self._real(path), mode)
        self._mine(path)

    def rmdir(self, path):
        os.rmdir(self._real(path))

    def unlink(self, path):
        os.unlink(self._real(path))

    def symlink(self, path, target):
        self.faults.check(True)
        os.symlink(target, self._real(path))
        self._mine(path)

    def link(self, path, target):
        self.faults.check(True)
        os.link(self._real(target), self._real(path))

    def rename(self, old, new):
        self.faults.check(True)
        os.rename(self._real(old), self._real(new))

    def chmod(self, path, mode):
        os.chmod(self._real(path), mode)

    def chown(self, path, uid, gid):
        os.lchown(self._real(path), uid, gid)

    def utimens(self, path, times=None):
        os.utime(self._real(path), times)

    def statfs(self, path):
        there = os.statvfs(self._real(path))
        return {name: getattr(there, name) for name in dir(there) if name.startswith("f_") and name != "f_fsid"}

    def create(self, path, mode, fi=None):
        self.faults.check(True)
        handle = os.open(self._real(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        self._mine(path)
        return handle

    def open(self, path, flags):
        return os.open(self._real(path), flags & ~(os.O_NOFOLLOW | os.O_APPEND))

    def read(self, path, size, offset, handle):
        self.faults.check(False)
        return os.pread(handle, size, offset)

    def write(self, path, data, offset, handle):
        self.faults.check(True)
        return os.pwrite(handle, data, offset)

    def truncate(self, path, length, handle=None):
        self.faults.check(True)
        os.truncate(self._real(path), length)

    def flush(self, path, handle):
        return 0

    def release(self, path, handle):
        os.close(handle)
        return 0

    def fsync(self, path, datasync, handle):
        self.faults.check(True)
        os.fsync(handle)
        return 0

    def fsyncdir(self, path, datasync, handle):
        self.faults.check(True)
        return 0


if __name__ == "__main__":
    if hasattr(fuse, "FUSE"):
        fuse.FUSE(FaultFS(sys.argv[1], Faults(sys.argv[3])), sys.argv[2], foreground=True, nothreads=False, allow_other=True,
                  default_permissions=True, attr_timeout=0, entry_timeout=0, use_ino=True)
    else:
        sys.exit("faultfs: the module fuse is not fusepy (%s)" % os.strerror(errno.ENOPKG))
