"""Directories by their descriptors."""
import os

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags with which a directory is opened, and a link is not."""


def names_in(directory):
    """Return the names (list of str) that are in a directory (descriptor) now, in no order.

    btrfs (from Linux 6.5 on) shows those that were there when the descriptor was opened, or was last at its beginning.

    :raises OSError: when it cannot be read
    """
    os.lseek(directory, 0, os.SEEK_SET)
    return os.listdir(directory)
