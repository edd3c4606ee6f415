"""A place on this node that nobody but root can enter.

What must not change between its verification and its use is copied here: the
owner of an image could change the image itself at any time.
"""
import os

from . import identity, records
from .directory import DIRECTORY, names_in
from .errors import HookError, SYSTEM


class Place(object):
    """A directory of the user's in one of root's that nobody else can search; whoever is to work in it gets its descriptor.

    descriptor  int
    path        str: the directory that it is in

    :param directory: root's, on this node (str)
    :param user: privilege.User
    :raises HookError: SYSTEM when it cannot be made
    """

    def __init__(self, directory, user):
        self.path = parent = os.path.join(directory, "private")
        try:
            records.own(directory)
            try:
                os.mkdir(parent, 0o700)
            except FileExistsError:
                pass
            self._parent = os.open(parent, DIRECTORY)
            there = os.fstat(self._parent)
            if there.st_uid != os.geteuid() or there.st_mode & 0o077:
                raise HookError(SYSTEM, "%s must be root's and closed to everybody else; remove it and try again; image kept" % parent)
            self._sweep()
            self._name = "%d.%d" % (os.getpid(), identity.process(os.getpid()).start)
            os.mkdir(self._name, 0o700, dir_fd=self._parent)
            self.descriptor = os.open(self._name, DIRECTORY, dir_fd=self._parent)
            if os.geteuid() == 0:
                os.fchown(self.descriptor, user.uid, user.gid)
        except OSError as error:
            raise HookError(SYSTEM, "cannot make a private place in %s: %s; image kept" % (parent, error.strerror))

    def _sweep(self):
        """Remove what hooks that were killed have left."""
        for name in names_in(self._parent):
            pid, _dot, start = name.partition(".")
            there = identity.process(int(pid)) if pid.isdigit() else None
            if there is None or str(there.start) != start:
                self._remove(name)

    def _remove(self, name):
        try:
            inner = os.open(name, DIRECTORY, dir_fd=self._parent)
            try:
                for entry in names_in(inner):
                    os.unlink(entry, dir_fd=inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=self._parent)
        except OSError:
            pass  # the next hook tries again

    def remove(self):
        """Remove the place and what is in it."""
        os.close(self.descriptor)
        self._remove(self._name)
        os.close(self._parent)
