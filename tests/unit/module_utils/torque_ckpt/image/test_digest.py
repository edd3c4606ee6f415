import errno
import hashlib
import os

import pytest

from torque_ckpt.image import digest


def by_the_book(content):
    """The tree hash as the manifest's format defines it."""
    leaves = [hashlib.sha256(content[start:start + (4 << 20)]).digest() for start in range(0, len(content), 4 << 20)]
    return hashlib.sha256(b"".join(leaves)).hexdigest()


def opened(path, content):
    path.write_bytes(content)
    return os.open(str(path), os.O_RDONLY)


@pytest.mark.parametrize("size", [0, 1, 4095, (1 << 20) + 1, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 16 << 20, (23 << 20) + 7])
def test_hash_and_copy(tmp_path, size):
    content = os.urandom(size)
    source = opened(tmp_path / "source", content)
    target = os.open(str(tmp_path / "target"), os.O_WRONLY | os.O_CREAT)
    try:
        assert digest.hash_file(source, target) == digest.hash_file(source) == (size, by_the_book(content))
    finally:
        os.close(source)
        os.close(target)
    assert (tmp_path / "target").read_bytes() == content


@pytest.mark.parametrize("position", [0, (4 << 20) - 1, 4 << 20, (20 << 20) - 1])
def test_every_byte_counts(tmp_path, position):
    content = bytearray(20 << 20)
    before = digest.hash_file(opened(tmp_path / "before", content))
    content[position] = 1
    assert digest.hash_file(opened(tmp_path / "after", content)) != before


def test_chunks_that_change_places_are_seen(tmp_path):
    one, other = b"1" * digest.CHUNK, b"2" * digest.CHUNK
    assert digest.hash_file(opened(tmp_path / "a", one + other)) != digest.hash_file(opened(tmp_path / "b", other + one))


@pytest.mark.parametrize("size", [0, 1, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9 << 20])
@pytest.mark.parametrize("piece", [1000003, 4 << 20, 64 << 20])
def test_file_that_comes_in_pieces(size, piece):
    content = os.urandom(1 << 20) * (size // (1 << 20)) + b"x" * (size % (1 << 20))
    stream = digest.Stream()
    for start in range(0, size, piece):
        stream.add(content[start:start + piece])
    assert (stream.size, stream.hash()) == (size, by_the_book(content))


@pytest.mark.parametrize("chunks", [1, 9])
def test_failure_of_the_copy(tmp_path, chunks):
    source = opened(tmp_path / "source", b"x" * chunks * digest.CHUNK)
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError) as caught:
        digest.hash_file(source, full.fileno())
    assert caught.value.errno in (errno.ENOSPC, errno.ESPIPE)
    os.close(source)


@pytest.mark.parametrize("chunks", [1, 9])
@pytest.mark.parametrize("error, raised", [(MemoryError(), OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))), (ValueError("x"),) * 2])
def test_failure_in_one_chunk_is_a_failure(tmp_path, monkeypatch, chunks, error, raised):
    read = os.pread

    def fail(source, size, offset):
        if offset // digest.CHUNK == chunks - 1:
            raise error
        return read(source, size, offset)
    monkeypatch.setattr(digest.os, "pread", fail)
    with pytest.raises(type(raised)) as caught:
        digest.hash_file(opened(tmp_path / "source", b"x" * chunks * digest.CHUNK))
    assert str(caught.value) == str(raised)


def test_large_files_take_little_memory(tmp_path, in_child):
    import resource
    with open(str(tmp_path / "large"), "wb") as stream:
        stream.truncate(1 << 30)

    def work():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        digest.hash_file(os.open(str(tmp_path / "large"), os.O_RDONLY))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert in_child(work).result < 16 << 10  # KiB
