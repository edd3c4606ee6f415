"""Copying and comparing the data of files; what is sparse stays sparse."""
import errno
import os

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterator

_CHUNK = 1 << 20


def list_pieces(descriptor: int, size: int) -> "Iterator[tuple[int, int]]":
    """Yield (offset, length) for each piece of data among the first size bytes of a file; between them are holes."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # nothing but a hole up to the end
        if start >= size:
            return
        end = min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
        yield start, end - start


def _read_chunks(descriptor: int, size: int) -> "Iterator[tuple[int, bytes]]":
    for start, length in list_pieces(descriptor, size):
        done = 0
        while done < length:
            chunk = os.pread(descriptor, min(_CHUNK, length - done), start + done)
            if not chunk:
                return  # it has just become shorter
            yield start + done, chunk
            done += len(chunk)


def copy_data(source: int, target: int, size: int) -> int:
    """Copy the first size bytes of one file (descriptor) into another, empty one; return how many source had."""
    size = min(size, os.fstat(source).st_size)
    for start, chunk in _read_chunks(source, size):
        os.lseek(target, start, os.SEEK_SET)
        done = 0
        while done < len(chunk):
            done += os.write(target, chunk[done:] if done else chunk)
    size = min(size, os.fstat(source).st_size)
    os.ftruncate(target, size)  # a hole at its end
    return size


def has_same_data(first: int, second: int, size: int) -> bool:
    """Whether the first size bytes of two files (descriptors) are the same."""
    for source, target in ((first, second), (second, first)):
        if not all(os.pread(target, len(chunk), start) == chunk for start, chunk in _read_chunks(source, size)):
            return False
        if list(list_pieces(source, size)) == [(0, size)]:
            break  # else what is a hole in one may be data in the other
    return True
