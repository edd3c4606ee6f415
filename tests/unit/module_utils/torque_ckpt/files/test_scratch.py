import os
import socket
import stat

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.files import scratch


@pytest.fixture
def tree(tmp_path):
    """A directory (str) with all kinds of things in it."""
    top = str(tmp_path / "tree")
    os.makedirs(top + "/a/closed")
    os.makedirs(top + "/empty")
    for name, text in (("a/closed/file", "inside"), ("large", "x" * 100000), (os.fsdecode(b"a/\xff\n name"), "")):
        with open(os.path.join(top, name), "w") as stream:
            stream.write(text)
    os.link(top + "/large", top + "/twin")
    os.symlink("a/closed/file", top + "/link")
    os.symlink("/nonexistent", top + "/dangling")
    os.mkfifo(top + "/pipe")
    with socket.socket(socket.AF_UNIX) as post:
        post.bind(top + "/socket")
    os.chmod(top + "/large", 0o750)
    os.chmod(top + "/a/closed", 0o555)
    for name in ("large", "a/closed", "a", "empty"):
        os.utime(os.path.join(top, name), ns=(0, 1234567890123456789))
    yield top
    os.chmod(top + "/a/closed", 0o755)


@pytest.fixture
def image(tmp_path):
    (tmp_path / "image").mkdir()
    descriptor = os.open(str(tmp_path / "image"), os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def listing(top):
    entries = {}
    for name, status in scratch._walk(top):
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFSOCK:
            continue
        full = os.path.join(top, name)
        content = open(full, "rb").read() if kind == stat.S_IFREG else os.readlink(full) if kind == stat.S_IFLNK else None
        entries[name] = (stat.filemode(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns, content)
    return entries


def test_everything_comes_back(tree, image, tmp_path):
    entry = scratch.save_directory(image, "scratch-1.tar", tree)
    assert entry["mode"] == stat.S_IMODE(os.stat(tree).st_mode)
    (tmp_path / "back").mkdir()
    scratch.unpack_archive(image, "scratch-1.tar", str(tmp_path / "back"))
    assert listing(str(tmp_path / "back")) == listing(tree)
    assert os.path.samefile(str(tmp_path / "back" / "large"), str(tmp_path / "back" / "twin"))
    scratch.empty_directory(str(tmp_path / "back"))
    assert os.listdir(str(tmp_path / "back")) == []


def test_any_tar_reads_it(tree, image, tmp_path):
    import subprocess
    scratch.save_directory(image, "scratch-1.tar", tree)
    listed = subprocess.run(["tar", "-tf", str(tmp_path / "image" / "scratch-1.tar")], stdout=subprocess.PIPE, check=True).stdout
    assert b"a/closed/file\n" in listed


def test_what_an_unpack_that_was_killed_left_is_of_no_use(tree, image, tmp_path):
    scratch.save_directory(image, "scratch-1.tar", tree)
    back = tmp_path / "back"
    (back / ".ckpt-torque-part" / "half").mkdir(parents=True)
    assert not scratch.is_filled(str(back))
    scratch.empty_directory(str(back))
    scratch.unpack_archive(image, "scratch-1.tar", str(back))
    assert scratch.is_filled(str(back))
    assert listing(str(back)) == listing(tree)


def test_size_and_state(tree):
    assert 200000 < scratch.measure_size(tree) < 220000
    assert scratch.measure_size("/nonexistent") == 0
    before = scratch.hash_directory(tree)
    assert scratch.hash_directory(tree) == before
    os.chmod(tree + "/large", 0o700)
    assert scratch.hash_directory(tree) != before


def test_is_owned(tree, tmp_path):
    assert scratch.is_owned(tree, os.getuid())
    assert not scratch.is_owned(tree, os.getuid() + 1)
    assert not scratch.is_owned(tree + "/large", os.getuid())
    assert not scratch.is_owned(tree + "/nothing", os.getuid())
    os.symlink(tree, str(tmp_path / "alias"))
    assert not scratch.is_owned(str(tmp_path / "alias"), os.getuid())


def test_archive_that_cannot_be_written(tree, image, tmp_path):
    (tmp_path / "image" / "scratch-1.tar").write_text("in the way")
    with pytest.raises(HookError) as caught:
        scratch.save_directory(image, "scratch-1.tar", tree)
    assert (caught.value.code, str(caught.value)) == (
        errors.CANNOT_WRITE, "cannot copy the directory %s into the image: File exists; the job keeps running; see to the rights on it, "
                             "and to the space and the quota in the store" % tree)


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out"])
def test_archive_that_leads_out(image, tmp_path, name):
    import io
    import tarfile
    with tarfile.open(str(tmp_path / "image" / "bad.tar"), "w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo(name)
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    (tmp_path / "back").mkdir()
    with pytest.raises(OSError) as caught:
        scratch.unpack_archive(image, "bad.tar", str(tmp_path / "back"))
    assert caught.value.strerror == "the archive holds %s" % name
    assert not (tmp_path / "out").exists()
