import os

import pytest

from torque_ckpt.files import sparse

MIB = 1 << 20


@pytest.fixture
def file(tmp_path):
    """Return a function that makes a file of this size with these pieces ({offset: bytes}) and returns its descriptor."""
    opened = []

    def make(size, pieces=None):
        opened.append(os.open(str(tmp_path / ("file%d" % len(opened))), os.O_RDWR | os.O_CREAT, 0o600))
        for offset, data in (pieces or {}).items():
            os.pwrite(opened[-1], data, offset)
        os.ftruncate(opened[-1], size)
        return opened[-1]

    yield make
    for descriptor in opened:
        os.close(descriptor)


def text(descriptor):
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


@pytest.mark.parametrize("size, pieces", [
    (0, {}),
    (5, {0: b"hello"}),
    (3 * MIB + 5, {0: b"x" * (3 * MIB), 3 * MIB: b"hello"}),
    (9 * MIB, {4 * MIB: b"middle"}),
    (9 * MIB, {0: b"begin", 9 * MIB - 3: b"end"}),
    (MIB, {}),
])
def test_copy_is_the_same(file, size, pieces):
    source, target = file(size, pieces), file(0)
    assert sparse.copy_data(source, target, size) == size
    assert text(target) == text(source)
    assert sparse.has_same_data(source, target, size)


def test_holes_stay_holes(file):
    source, target = file(3 << 30, {1 << 30: b"a", (2 << 30) - 1: b"b"}), file(0)
    if os.fstat(source).st_blocks * 512 > MIB:
        pytest.skip("this file system knows no holes")
    assert sparse.copy_data(source, target, 3 << 30) == 3 << 30
    assert os.fstat(target).st_blocks * 512 <= MIB
    assert sparse.has_same_data(source, target, 3 << 30)


def test_only_the_first_bytes(file):
    source, target = file(11, {0: b"before" b"after"}), file(0)
    assert sparse.copy_data(source, target, 6) == 6
    assert text(target) == b"before"


def test_less_than_expected(file):
    source, target = file(4, {0: b"less"}), file(0)
    assert sparse.copy_data(source, target, 9) == 4
    assert text(target) == b"less"


@pytest.mark.parametrize("one, other", [
    ({0: b"a"}, {0: b"b"}),
    ({}, {MIB * 5: b"x"}),
    ({MIB * 5: b"x"}, {}),
    ({0: b"x" * 4 * MIB}, {0: b"x" * (4 * MIB - 1)}),
])
def test_differences_are_seen(file, one, other):
    assert not sparse.has_same_data(file(8 * MIB, one), file(8 * MIB, other), 8 * MIB)


def test_zeros_are_like_a_hole(file):
    one, other = file(8 * MIB), file(8 * MIB, {0: b"\0" * 8 * MIB})
    assert sparse.has_same_data(one, other, 8 * MIB)
    assert sparse.has_same_data(other, one, 8 * MIB)
