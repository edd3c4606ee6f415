"""CRIU's image of open files, which has an entry for each (images/fdinfo.proto of CRIU; read of version 4.2)."""
import contextlib

from .criu_wire import COMMON, FIRST, LENGTH, Unreadable, read_image, write_image

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Iterator

LARGEST = 64 << 20
"""How long the image may be (bytes); an entry has about 100."""

_NAME = "files.img"
_FILES = 0x56303138
_MAGIC_SIZE = FIRST.size - LENGTH.size


def _list_entries(data: bytes) -> "Iterator[bytes]":
    """Yield the entries of the image (bytes)."""
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


@contextlib.contextmanager
def name_image() -> "Iterator[None]":
    """Have what is raised as Unreadable say that it is of this image."""
    try:
        yield
    except Unreadable as error:
        raise Unreadable("%s: %s" % (_NAME, error))


class OpenFiles:
    """The image of open files, read once.

    :param directory: of the images (descriptor)
    :raises Unreadable: when it is not as CRIU writes it
    :ivar entries: list of bytes
    """

    def __init__(self, directory: int) -> None:
        self._directory = directory
        with name_image():
            try:
                self.entries = list(_list_entries(read_image(directory, _NAME, LARGEST)))
            except FileNotFoundError:
                raise Unreadable("it does not exist")
        self._is_changed = False

    def change(self, change: "Callable[[bytes], bytes]") -> None:
        """Change the entries, each to what the function returns for it; raise Unreadable as it does."""
        with name_image():
            entries = [change(entry) for entry in self.entries]
        self._is_changed = self._is_changed or entries != self.entries
        self.entries = entries

    def save(self) -> None:
        """Write the image, if an entry has changed."""
        if self._is_changed:
            write_image(self._directory, _NAME, b"".join(
                [LENGTH.pack(COMMON), LENGTH.pack(_FILES)] + [LENGTH.pack(len(entry)) + entry for entry in self.entries]))
