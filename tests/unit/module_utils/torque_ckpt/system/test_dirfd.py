"""Directories by their descriptors."""
import os

import pytest
from torque_ckpt.system.dirfd import DIRECTORY, list_directory


@pytest.fixture
def opened(tmp_path):
    directory = tmp_path / "directory"
    directory.mkdir()
    descriptor = os.open(str(directory), DIRECTORY)
    yield descriptor, directory
    os.close(descriptor)


def test_names_are_those_of_now(opened):
    """That btrfs shows them is seen in the integration tests."""
    descriptor, directory = opened
    assert list_directory(descriptor) == []
    (directory / "one").touch()
    assert list_directory(descriptor) == ["one"]
    (directory / "two").touch()
    assert sorted(list_directory(descriptor)) == ["one", "two"]


def test_directory_that_is_gone(opened):
    descriptor, directory = opened
    directory.rmdir()
    assert list_directory(descriptor) == []


def test_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError):
        os.open(str(tmp_path / "link"), DIRECTORY)
