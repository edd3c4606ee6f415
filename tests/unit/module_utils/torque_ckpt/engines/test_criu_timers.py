"""Timers of timerfd in images. The images are built here; one of the real CRIU is in a test of real hooks."""
import os
import struct

import pytest
from core_images import message

from torque_ckpt import errors
from torque_ckpt.engines import criu

OWNER = message((1, 0), (2, 0), (3, 0), (4, 0), (5, 0))


def timer(left=(0, 0), interval=(0, 0), ticks=1, flags=0):
    """An entry of the image of open files: a timer, its two times as (seconds, nanoseconds)."""
    times = zip((7, 8, 9, 10), left + interval)
    return message((1, 17), (2, 9), (12, message((1, 9), (2, 2), (3, OWNER), (4, 1), (5, ticks), (6, flags), *times)))


FILE = message((1, 1), (2, 1), (3, message((1, 1))))


def image(*entries):
    return struct.pack("<II", 0x54564319, 0x56303138) + b"".join(struct.pack("<I", len(entry)) + entry for entry in entries)


@pytest.fixture
def settle(tmp_path):
    """Return a function that has the engine settle an image (bytes) of open files; it returns what that is then (bytes)."""
    path = tmp_path / "files.img"

    def settle(data):
        path.write_bytes(data)
        directory = os.open(str(tmp_path), os.O_RDONLY)
        try:
            criu.Criu.settle(object.__new__(criu.Criu), directory, False)
        finally:
            os.close(directory)
        return path.read_bytes()
    return settle


@pytest.mark.parametrize("before, after", [
    (timer(interval=(3, 200)), timer(left=(3, 200), interval=(3, 200))),
    (timer(interval=(0, 200), ticks=7), timer(left=(0, 200), interval=(0, 200), ticks=7)),
    (timer(left=(0, 5), interval=(3, 0), ticks=0), None),
    (timer(left=(2, 0), ticks=0), None),
    (timer(), None),
    (timer(interval=(3, 0), flags=1), None),
    (FILE, None),
], ids=["expired", "several times", "runs", "runs once", "expired at last", "at a point of time", "no timer"])
def test_timer_that_had_expired(settle, before, after):
    """With its interval as the time that is left; any other entry stays as it is."""
    assert settle(image(FILE, before, FILE)) == image(FILE, after or before, FILE)


def test_image_without_change_is_not_written(tmp_path):
    path = tmp_path / "files.img"
    path.write_bytes(image(FILE, timer(left=(0, 5), interval=(3, 0))))
    os.utime(str(path), (1, 1))
    directory = os.open(str(tmp_path), os.O_RDONLY)
    assert criu.Criu.settle(object.__new__(criu.Criu), directory, False) is False
    os.close(directory)
    assert os.stat(str(path)).st_mtime == 1


@pytest.mark.parametrize("data, why", [
    (b"", "it is not the image of open files"),
    (image(message((12, 7))), "field 12 is there 1 times or of another kind"),
    (image(message((12, message((6, 0), (7, 0))))), "it has no field 8"),
], ids=["empty", "another kind", "a field is missing"])
def test_image_that_is_not_as_criu_writes_it(settle, data, why):
    with pytest.raises(errors.HookError) as caught:
        settle(data)
    assert (caught.value.code, caught.value.sentence) == (
        errors.ENGINE, "an image of open files or connections is not as CRIU writes it: files.img: %s; the job keeps running; install the "
                       "version of CRIU that the role criu builds" % why)
