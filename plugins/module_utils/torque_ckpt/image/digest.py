"""Hashing files, large ones by several threads at once.

A file's hash is that of its chunks' hashes: SHA-256 over the SHA-256 of each
4 MiB. (hashlib lets other threads run while it hashes.)
"""
import errno
import os

MYPY = False  # true for the type checker alone
if MYPY:
    from types import ModuleType
    from typing import Any, Callable

CHUNK = 4 << 20
"""How much each leaf of the tree covers (bytes). Part of the manifest's format."""

_PIECE = 1 << 20  # how much is in memory at once, for each thread
_THREADS = 4


def load_modules() -> "tuple[ModuleType, ModuleType]":
    """Load what hashing and sealing need, before privileges are dropped: it takes a while, and a hook that refuses does not need it."""
    import hmac
    import threading
    return hmac, threading


def _hash_leaf(source: int, number: int, target: "int | None") -> "tuple[bytes, int]":
    """Return (hash, size) of one chunk of a descriptor; write it into target (descriptor or None) at the same offset."""
    import hashlib
    digest, offset, end = hashlib.sha256(), number * CHUNK, (number + 1) * CHUNK
    while offset < end:
        try:
            piece = os.pread(source, min(_PIECE, end - offset), offset)
        except MemoryError:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        if not piece:
            break
        digest.update(piece)
        if target is not None:
            written = 0
            while written < len(piece):
                written += os.pwrite(target, piece[written:], offset + written)
        offset += len(piece)
    return digest.digest(), offset - number * CHUNK


def _hash_leaves(count: int, work: "Callable[[int], tuple[bytes, int]]") -> "list[tuple[bytes, int]]":
    """Return [work(0), ..., work(count - 1)], computed by a few threads."""
    import threading  # small images do not need it
    leaves = [(b"", 0)] * count
    failures: "list[Exception]" = []
    todo = iter(range(count))
    lock = threading.Lock()

    def take() -> None:
        while not failures:
            with lock:
                number = next(todo, None)
            if number is None:
                return
            try:
                leaves[number] = work(number)
            except Exception as error:  # it would end this thread alone, and the hash would be wrong
                failures.append(error)
    threads = [threading.Thread(target=take) for _number in range(min(_THREADS, count, len(os.sched_getaffinity(0))))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return leaves


class Stream:
    """A file that comes in pieces.

    size  int: how many bytes have come
    """

    def __init__(self) -> None:
        self.size = 0
        self._leaves: "list[Any]" = []  # hashes of hashlib

    def add(self, piece: bytes) -> None:
        """Take the file's next piece."""
        import hashlib
        rest = memoryview(piece)
        while rest:
            unfilled = CHUNK - self.size % CHUNK
            if unfilled == CHUNK:
                self._leaves.append(hashlib.sha256())
            self._leaves[-1].update(rest[:unfilled])
            self.size += len(rest[:unfilled])
            rest = rest[unfilled:]

    def hash(self) -> str:
        """Return the hexadecimal hash of these bytes, as hash_file() does."""
        import hashlib
        return hashlib.sha256(b"".join(leaf.digest() for leaf in self._leaves)).hexdigest()


def hash_file(source: int, target: "int | None" = None) -> "tuple[int, str]":
    """Return (size, hexadecimal hash) of a file.

    :param source: its descriptor
    :param target: descriptor of an empty file that becomes its copy, or None
    """
    count = -(-os.fstat(source).st_size // CHUNK)

    def leaf(number: int) -> "tuple[bytes, int]":
        return _hash_leaf(source, number, target)
    leaves = [leaf(number) for number in range(count)] if count < 4 else _hash_leaves(count, leaf)
    import hashlib
    tree = hashlib.sha256(b"".join(digest for digest, _size in leaves))
    return sum(size for _digest, size in leaves), tree.hexdigest()
