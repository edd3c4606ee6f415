"""Directories and files of root's that nobody else can write."""
import os
import stat
import time

from ..errors import HookError, CONFIG


def create_directory(path: str) -> None:
    """Create a directory of root's if it is missing, and check that nobody else can write to it.

    :raises HookError: CONFIG if somebody else can
    """
    try:
        try:
            os.mkdir(path)
            os.chmod(path, 0o755)  # whatever the umask
        except FileExistsError:
            pass
        status = os.lstat(path)
    except OSError as error:
        raise HookError(CONFIG, "cannot use the directory %s of the hooks' records: %s; see to that file system; nothing was done"
                        % (path, error.strerror))
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise HookError(CONFIG, "%s must be a directory of root's that nobody else can write to, because the hooks trust the records "
                        "in it; remove it, the next hook creates it again; nothing was done" % path)


def open_directory(path: str) -> int:
    """Open a directory of root's that nobody else can write, and create it if it is missing; raise OSError if others can write it."""
    mask = os.umask(0o022)
    try:
        os.makedirs(path, exist_ok=True)
    finally:
        os.umask(mask)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(descriptor)
        raise OSError(0, "%s must be root's and writable by nobody else" % path)
    return descriptor


def replace_file(directory: int, name: str, text: str, mode: int) -> None:
    """Write or replace a file in a directory (descriptor) atomically."""
    draft = ".%s.%d" % (name, os.getpid())  # a name that node_exporter does not read
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(draft, flags, mode, dir_fd=directory), "w") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(text)
        os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        try:
            os.unlink(draft, dir_fd=directory)
        except OSError:
            pass
        raise


def lock_file(directory: int, name: str, patience: float) -> "int | None":
    """Return a descriptor that holds the lock name in a directory (descriptor) until it is closed; None if it is taken for too long.

    :param patience: seconds
    """
    import fcntl
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
        time.sleep(0.01)
