"""A directory on this node that nobody but root can enter.

What must not change between its verification and its use is copied here: the
owner of an image can change the image itself at any time.
"""
import os
import stat

from ..errors import HookError, PRIVATE_CURE, SYSTEM
from . import privilege, processes, rootfiles
from .dirfd import DIRECTORY, list_directory

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable

_TAKE_OVER = ["take over", None, None]


def _remove(parent: int, name: str) -> None:
    try:
        inner = os.open(name, DIRECTORY, dir_fd=parent)
        try:
            for entry in list_directory(inner):
                os.unlink(entry, dir_fd=inner)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=parent)
    except OSError:
        pass  # the next hook tries again


def _remove_abandoned(parent: int) -> None:
    for name in list_directory(parent):
        pid, _dot, start = name.partition(".")
        process = processes.read_process(int(pid)) if pid.isdigit() else None
        if process is None or str(process.start) != start:
            _remove(parent, name)


def remove_abandoned(directory: str) -> None:
    """Remove the private directories in a directory that killed hooks have left: they hold memory of jobs. As root."""
    try:
        parent = os.open(os.path.join(directory, "private"), DIRECTORY)
    except OSError:
        return  # no hook has created it yet
    try:
        status = os.fstat(parent)
        if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
            _remove_abandoned(parent)
    finally:
        os.close(parent)


class PrivateDirectory:
    """A directory of the user's in one of root's that nobody else can search; whatever works in it gets its descriptor.

    descriptor  int
    path        str: its parent directory

    :param directory: root's, on this node
    :param consequence: what becomes of the job if it cannot be created, the end of the sentence
    :raises HookError: SYSTEM if it cannot be created
    """

    def __init__(self, directory: str, user: privilege.User, consequence: str = "image kept") -> None:
        self.path = parent = os.path.join(directory, "private")
        try:
            rootfiles.create_directory(directory)
            try:
                os.mkdir(parent, 0o700)
            except FileExistsError:
                pass
            self._parent = os.open(parent, DIRECTORY)
            status = os.fstat(self._parent)
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise HookError(SYSTEM, "%s must be root's and closed to everybody else; remove it and try again; %s"
                                % (parent, consequence))
            _remove_abandoned(self._parent)
            self._name = "%d.%d" % tuple(processes.get_mark())
            os.mkdir(self._name, 0o700, dir_fd=self._parent)
            self.descriptor = os.open(self._name, DIRECTORY, dir_fd=self._parent)
            if os.geteuid() == 0:
                os.fchown(self.descriptor, user.uid, user.gid)
        except OSError as error:
            raise HookError(SYSTEM, "cannot create a private directory in %s: %s; %s; %s"
                            % (parent, error.strerror, PRIVATE_CURE, consequence))

    def __enter__(self) -> "PrivateDirectory":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.remove()

    def get_free_space(self) -> "int | None":
        """Return how much can be written here (bytes), None if the file system does not know it."""
        status = os.fstatvfs(self.descriptor)
        return status.f_bavail * status.f_frsize if status.f_blocks else None

    def build_answer(self, fallback: "Callable[[Any], Any]") -> "Callable[[Any], Any]":
        """Return root's answer function (for privilege.as_user) to ask_to_take_over(); fallback(question) answers all other questions."""
        return lambda question: self._take_over() if question == _TAKE_OVER else fallback(question)

    def _take_over(self) -> None:
        """Make root the owner of all files here: whoever may read one of them, by whatever descriptor, cannot open it for writing."""
        try:
            for name in list_directory(self.descriptor):
                os.chown(name, os.geteuid(), os.getegid(), dir_fd=self.descriptor, follow_symlinks=False)
                if not stat.S_ISLNK(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode):
                    os.chmod(name, 0o444, dir_fd=self.descriptor)  # nobody else works in here
            os.fchown(self.descriptor, os.geteuid(), os.getegid())
            os.fchmod(self.descriptor, 0o555)
        except OSError as error:
            raise HookError(SYSTEM, "cannot take over the private directory in %s: %s; name another disk of this node in "
                            "checkpoint_hooks_private_directory; image kept" % (self.path, error.strerror))

    def remove(self) -> None:
        """Remove the directory and its files."""
        os.close(self.descriptor)
        _remove(self._parent, self._name)
        os.close(self._parent)


def ask_to_take_over() -> None:
    """As the user, in privilege.as_user: make root the owner of a private directory and its files, so that they cannot be changed."""
    privilege.ask_root(_TAKE_OVER)
