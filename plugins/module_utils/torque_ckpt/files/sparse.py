"""Copying and comparing what files hold; what is sparse stays sparse."""
import errno
import os

_CHUNK = 1 << 20


def pieces(descriptor, size):
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


def _chunks(descriptor, size):
    for start, length in pieces(descriptor, size):
        done = 0
        while done < length:
            chunk = os.pread(descriptor, min(_CHUNK, length - done), start + done)
            if not chunk:
                return  # it has just become shorter
            yield start + done, chunk
            done += len(chunk)


def copy(source, target, size):
    """Copy the first size bytes of one file (descriptor) into another, empty one; return how many source had (int)."""
    size = min(size, os.fstat(source).st_size)
    for start, chunk in _chunks(source, size):
        os.lseek(target, start, os.SEEK_SET)
        done = 0
        while done < len(chunk):
            done += os.write(target, chunk[done:] if done else chunk)
    size = min(size, os.fstat(source).st_size)
    os.ftruncate(target, size)  # a hole at its end
    return size


def is_same(one, other, size):
    """Whether the first size bytes of two files (descriptors) are the same."""
    for mine, yours in ((one, other), (other, one)):
        if not all(os.pread(yours, len(chunk), start) == chunk for start, chunk in _chunks(mine, size)):
            return False
        if list(pieces(mine, size)) == [(0, size)]:
            break  # else what is a hole in one may be data in the other
    return True
