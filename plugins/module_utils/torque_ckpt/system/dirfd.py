"""Directories by their descriptors."""
import os
import stat

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags with which a directory is opened, and a link is not."""


def names_in(directory):
    """Return the names (list of str) that are in a directory (descriptor) now, in no order.

    btrfs (from Linux 6.5 on) shows those that were there when the descriptor was opened, or was last at its beginning.

    :raises OSError: when it cannot be read
    """
    os.lseek(directory, 0, os.SEEK_SET)
    return os.listdir(directory)


def open_file(directory, name):
    """Return a descriptor (int) of a file in directory (descriptor), to be read.

    :raises OSError: when it is not a file, or not there
    """
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(0, "Not a regular file")
    return opened
