"""Directories by their descriptors."""
import os
import stat

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open a directory, but not a link."""


def list_directory(directory: int) -> "list[str]":
    """Return the names in a directory (descriptor), in no order.

    btrfs (from Linux 6.5 on) lists those that existed when the descriptor was opened, or was last at its beginning.

    :raises OSError: if it cannot be read
    """
    os.lseek(directory, 0, os.SEEK_SET)
    return os.listdir(directory)


def open_file(directory: int, name: str) -> int:
    """Open a file in directory (descriptor) for reading; return its descriptor.

    :raises OSError: if it is missing or not a regular file
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "Not a regular file")
    return descriptor
