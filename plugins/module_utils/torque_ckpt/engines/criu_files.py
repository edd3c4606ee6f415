"""CRIU's image of open files, which has an entry for each (images/fdinfo.proto of CRIU; read of version 4.2)."""
from .criu_wire import COMMON, FIRST, LENGTH, Unreadable, read_image, write_image

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Iterator

NAME = "files.img"
LARGEST = 64 << 20
"""How long the image may be (bytes); an entry has about 100."""

_FILES = 0x56303138
_MAGIC_SIZE = FIRST.size - LENGTH.size


def read_files(directory: int) -> bytes:
    """Return the image of open files in directory (descriptor); raise what read_image() does."""
    return read_image(directory, NAME, LARGEST)


def list_entries(data: bytes) -> "Iterator[bytes]":
    """Yield the entries of the image of open files (bytes).

    :raises Unreadable: when it is not as CRIU writes it
    """
    if data[:_MAGIC_SIZE] != LENGTH.pack(COMMON) + LENGTH.pack(_FILES):
        raise Unreadable("it is not the image of open files")
    position = _MAGIC_SIZE
    while position < len(data):
        if position + LENGTH.size > len(data):
            raise Unreadable("an entry in it does not end")
        start, length = position + LENGTH.size, LENGTH.unpack_from(data, position)[0]
        position = start + length
        if position > len(data):
            raise Unreadable("an entry in it does not end")
        yield data[start:position]


def change_entries(directory: int, change: "Callable[[bytes], bytes]") -> None:
    """Change the entries of the image of open files, each to what the function returns for it."""
    entries = [change(entry) for entry in list_entries(read_files(directory))]
    write_image(directory, NAME, b"".join(
        [LENGTH.pack(COMMON), LENGTH.pack(_FILES)] + [LENGTH.pack(len(entry)) + entry for entry in entries]))
