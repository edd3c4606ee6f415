import os

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.image import compressors


@pytest.fixture
def directories(tmp_path, monkeypatch):
    """Two directories (pathlib.Path) where programs are looked for, instead of the real ones."""
    directories = tmp_path / "first", tmp_path / "second"
    for path in directories:
        path.mkdir()
    monkeypatch.setattr(compressors, "DIRECTORIES", tuple(map(str, directories)))
    return directories


def put(path, mode=0o755):
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)


def test_the_first_directory_counts(directories):
    put(directories[1] / "lz4")
    assert compressors.find_program("lz4") == str(directories[1] / "lz4")
    put(directories[0] / "lz4")
    assert compressors.find_program("lz4") == str(directories[0] / "lz4")


def test_what_is_no_program(directories):
    put(directories[0] / "gzip", 0o644)
    (directories[0] / "zstd").mkdir()
    (directories[0] / "lz4").symlink_to("/nonexistent")
    assert compressors.list_available() == []


@pytest.mark.parametrize("present, chosen", [
    (["zstd", "lz4", "gzip"], "zstd"), (["gzip", "lz4"], "lz4"), (["gzip"], "gzip"), ([], None)])
def test_auto_takes_the_first_that_is_there(directories, present, chosen):
    for name in present:
        put(directories[1] / name)
    assert compressors.choose_program("auto") == chosen
    assert compressors.choose_program("none") is None
    assert sorted(compressors.list_available()) == sorted(present)


def test_program_that_is_named_and_not_there(directories):
    put(directories[0] / "gzip")
    assert compressors.choose_program("gzip") == "gzip"
    with pytest.raises(HookError) as caught:
        compressors.choose_program("zstd")
    assert (caught.value.code, str(caught.value)) == (
        errors.CONFIG, "zstd, by which checkpoint_hooks_compression has images compressed, is not in %s or %s on this node; run the role "
        "checkpoint_hooks on it" % directories)


def test_places_are_the_systems():
    assert compressors.format_directories() == "/usr/bin, /bin or /usr/local/bin"


@pytest.mark.parametrize("name, level, wanted", [
    ("zstd", 0, []), ("zstd", 3, ["-3"]), ("zstd", 19, ["-19"]), ("zstd", 20, ["-19"]), ("lz4", 0, []), ("lz4", 13, ["-12"]),
    ("gzip", 0, []), ("gzip", 1, ["-1"]), ("gzip", 9, ["-9"]), ("gzip", 10, ["-9"])])
def test_level(name, level, wanted):
    command = compressors.build_compress_command(name, level)
    assert command[0] == compressors.find_program(name)
    assert command[3 + len(compressors.PROGRAMS[name].options):] == wanted


def test_zstd_has_as_many_threads_as_hashing():
    assert "-T%d" % min(4, len(os.sched_getaffinity(0))) in compressors.build_compress_command("zstd", 0)


def test_program_that_was_removed_since(directories):
    """What starts the command names the path."""
    assert compressors.build_decompress_command("gzip") == [str(directories[0] / "gzip"), "-q", "-d", "-c"]
