"""Directories and files of root's that nobody else can write."""
import os
import stat
import time

from ..errors import HookError, CONFIG


def make_directory(path):
    """Make a directory (str) of root's when it is missing, and prove that nobody else can write to it.

    :raises HookError: CONFIG when somebody else can
    """
    try:
        try:
            os.mkdir(path)
            os.chmod(path, 0o755)  # whatever the umask
        except FileExistsError:
            pass
        found = os.lstat(path)
    except OSError as error:
        raise HookError(CONFIG, "cannot use the directory %s of the hooks' records: %s; nothing was done" % (path, error.strerror))
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise HookError(CONFIG, "%s must be a directory of root's that nobody else can write to, because the hooks trust the records "
                        "in it; remove it, the next hook makes it anew; nothing was done" % path)


def open_directory(path):
    """Open a directory of root's that nobody else can write, and make it if it is missing; raise OSError when it is none."""
    mask = os.umask(0o022)
    try:
        os.makedirs(path, exist_ok=True)
    finally:
        os.umask(mask)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    there = os.fstat(descriptor)
    if there.st_uid != os.geteuid() or there.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(descriptor)
        raise OSError(0, "%s must be root's and writable by nobody else" % path)
    return descriptor


def replace_file(place, name, text, mode):
    """Put a file into a directory (descriptor) in one step."""
    draft = ".%s.%d" % (name, os.getpid())  # a name that node_exporter does not read
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=place), "w") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(text)
        os.rename(draft, name, src_dir_fd=place, dst_dir_fd=place)
    except BaseException:
        try:
            os.unlink(draft, dir_fd=place)
        except OSError:
            pass
        raise


def lock_file(directory, name, patience):
    """Return a descriptor that holds the lock name in a directory (descriptor) until it is closed; None when another holds it for too long.

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
