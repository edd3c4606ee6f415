"""Directories by their descriptors."""
import os

import pytest
from torque_ckpt.system.dirfd import DIRECTORY, list_directory


@pytest.fixture
def opened(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    descriptor = os.open(str(place), DIRECTORY)
    yield descriptor, place
    os.close(descriptor)


def test_names_are_those_of_now(opened):
    """That btrfs shows them is seen in the integration tests."""
    descriptor, place = opened
    assert list_directory(descriptor) == []
    (place / "one").touch()
    assert list_directory(descriptor) == ["one"]
    (place / "two").touch()
    assert sorted(list_directory(descriptor)) == ["one", "two"]


def test_directory_that_is_gone(opened):
    descriptor, place = opened
    place.rmdir()
    assert list_directory(descriptor) == []


def test_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError):
        os.open(str(tmp_path / "link"), DIRECTORY)
