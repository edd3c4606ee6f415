"""A place on this node that nobody but root can enter.

What must not change between its verification and its use is copied here: the
owner of an image could change the image itself at any time.
"""
import os
import stat

from ..errors import HookError, SYSTEM
from . import privilege, processes, rootfiles
from .dirfd import DIRECTORY, names_in


_TAKE_OVER = ["take over", None, None]


def _remove(parent, name):
    try:
        inner = os.open(name, DIRECTORY, dir_fd=parent)
        try:
            for entry in names_in(inner):
                os.unlink(entry, dir_fd=inner)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=parent)
    except OSError:
        pass  # the next hook tries again


def _sweep(parent):
    for name in names_in(parent):
        pid, _dot, start = name.partition(".")
        there = processes.read_process(int(pid)) if pid.isdigit() else None
        if there is None or str(there.start) != start:
            _remove(parent, name)


def sweep(directory):
    """Remove the places in a directory (str) that hooks have left which were killed: memory of jobs is in them. As root."""
    try:
        parent = os.open(os.path.join(directory, "private"), DIRECTORY)
    except OSError:
        return  # there has been none yet
    try:
        there = os.fstat(parent)
        if there.st_uid == os.geteuid() and not there.st_mode & 0o077:
            _sweep(parent)
    finally:
        os.close(parent)


class Place:
    """A directory of the user's in one of root's that nobody else can search; whoever is to work in it gets its descriptor.

    descriptor  int
    path        str: the directory that it is in

    :param directory: root's, on this node (str)
    :param user: privilege.User
    :param otherwise: what becomes of the job if there can be none, the end of the sentence (str)
    :raises HookError: SYSTEM when it cannot be made
    """

    def __init__(self, directory, user, otherwise="image kept"):
        self.path = parent = os.path.join(directory, "private")
        try:
            rootfiles.make_directory(directory)
            try:
                os.mkdir(parent, 0o700)
            except FileExistsError:
                pass
            self._parent = os.open(parent, DIRECTORY)
            there = os.fstat(self._parent)
            if there.st_uid != os.geteuid() or there.st_mode & 0o077:
                raise HookError(SYSTEM, "%s must be root's and closed to everybody else; remove it and try again; %s" % (parent, otherwise))
            _sweep(self._parent)
            self._name = "%d.%d" % (os.getpid(), processes.read_process(os.getpid()).start)
            os.mkdir(self._name, 0o700, dir_fd=self._parent)
            self.descriptor = os.open(self._name, DIRECTORY, dir_fd=self._parent)
            if os.geteuid() == 0:
                os.fchown(self.descriptor, user.uid, user.gid)
        except OSError as error:
            raise HookError(SYSTEM, "cannot make a private place in %s: %s; %s" % (parent, error.strerror, otherwise))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.remove()

    def free(self):
        """Return how much can be written here (int, bytes), None where the file system does not know it."""
        there = os.fstatvfs(self.descriptor)
        return there.f_bavail * there.f_frsize if there.f_blocks else None

    def answer(self, otherwise):
        """Return root's answer function (for privilege.as_user) to ask_to_take_over(); to all else otherwise(question) answers."""
        return lambda question: self._take_over() if question == _TAKE_OVER else otherwise(question)

    def _take_over(self):
        """Make root the owner of what is here: who may read a file here, by whatever descriptor, may not open it for writing."""
        try:
            for name in names_in(self.descriptor):
                os.chown(name, os.geteuid(), os.getegid(), dir_fd=self.descriptor, follow_symlinks=False)
                if not stat.S_ISLNK(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode):
                    os.chmod(name, 0o444, dir_fd=self.descriptor)  # nobody else is at work in here
            os.fchown(self.descriptor, os.geteuid(), os.getegid())
            os.fchmod(self.descriptor, 0o555)
        except OSError as error:
            raise HookError(SYSTEM, "cannot take over the private place in %s: %s; image kept" % (self.path, error.strerror))

    def remove(self):
        """Remove the place and what is in it."""
        os.close(self.descriptor)
        _remove(self._parent, self._name)
        os.close(self._parent)


def ask_to_take_over():
    """As the user, in privilege.as_user: have root own a place and what is in it, so that it stays as it is."""
    privilege.ask(_TAKE_OVER)
