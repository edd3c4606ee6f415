"""snapshot: what a host had is kept and comes back, whatever became of it."""

import os
import shutil
import stat

import pytest
from ansible_collections.ckpt.torque.plugins.module_utils.snapshot import Snapshot

pytestmark = pytest.mark.root


@pytest.fixture
def host(tmp_path):
    """A directory, a link, a file, and a path at which nothing is."""
    hooks = tmp_path / "hooks"
    (hooks / "room" / "__pycache__").mkdir(parents=True)
    (hooks / "run").write_bytes(b"#!/bin/sh\n\xff\0")
    (hooks / "run").chmod(0o755)
    (hooks / "room" / "main.py").write_text("VALUE = 1\n")
    (hooks / "room" / "__pycache__" / "main.cpython-313.pyc").write_bytes(b"compiled")
    (hooks / "room" / "__pycache__" / "other.cpython-313.pyc").write_bytes(b"compiled")
    (hooks / "current").symlink_to("run")
    (tmp_path / "config").write_text("$loglevel 3\n")
    os.chown(tmp_path / "config", 7, 8)
    (tmp_path / "config").chmod(0o640)
    (tmp_path / "link").symlink_to("/opt/torque/6.1.3-debian13-x86_64-5ec1b3943a7a")
    return tmp_path


def name_paths(host):
    return [str(host / name) for name in ("hooks", "config", "link", "absent")]


def describe(host):
    """Return all that is there ({path: (type and mode, uid, gid, content)}), without what is compiled."""
    entries = {}
    for top, directories, names in os.walk(host):
        for path in [os.path.join(top, name) for name in directories + names]:
            status = os.lstat(path)
            if "__pycache__" not in path and not path.endswith(".tar"):
                content = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
                if stat.S_ISREG(status.st_mode):
                    with open(path, "rb") as stream:
                        content = stream.read()
                entries[path] = (oct(status.st_mode), status.st_uid, status.st_gid, content)
    return entries


def keep(host):
    """Take a snapshot, write it and read it again."""
    Snapshot.take(name_paths(host), "update").write(str(host / "open.tar"))
    return Snapshot.read(str(host / "open.tar"))


def test_it_is_root_s_and_whole(host):
    snapshot = keep(host)
    status = os.stat(host / "open.tar")
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o600, 0)
    assert (snapshot.paths, snapshot.change) == (name_paths(host), "update")
    assert snapshot.entries == Snapshot.take(name_paths(host)).entries
    assert [name for name in os.listdir(host) if name.startswith(".")] == []


def test_nothing_has_changed(host):
    snapshot, before = keep(host), os.stat(host / "config").st_mtime_ns
    assert (snapshot.list_differences(), snapshot.put_back()) == ([], [])
    assert os.stat(host / "config").st_mtime_ns == before


def change_content(host):
    (host / "config").write_text("$loglevel 5\n")
    return ["config"]


def change_mode(host):
    (host / "hooks" / "run").chmod(0o700)
    return ["hooks/run"]


def change_owner(host):
    os.chown(host / "config", 0, 8)
    return ["config"]


def change_link(host):
    (host / "link").unlink()
    (host / "link").symlink_to("/opt/torque/6.1.3.h5")
    return ["link"]


def add_files(host):
    (host / "hooks" / "new").mkdir()
    (host / "hooks" / "new" / "extra.py").write_text("")
    (host / "absent").write_text("there now\n")
    return ["absent", "hooks/new", "hooks/new/extra.py"]


def remove_all(host):
    (host / "config").unlink()
    (host / "link").unlink()
    shutil.rmtree(host / "hooks")
    return ["config", "hooks", "hooks/current", "hooks/room", "hooks/room/main.py", "hooks/run", "link"]


def exchange_kinds(host):
    (host / "config").unlink()
    (host / "config").mkdir()
    (host / "config" / "file").write_text("")
    (host / "link").unlink()
    (host / "link").write_text("a file\n")
    (host / "hooks" / "room" / "main.py").unlink()
    (host / "hooks" / "room" / "__pycache__" / "main.cpython-313.pyc").unlink()
    (host / "hooks" / "room" / "__pycache__" / "other.cpython-313.pyc").unlink()
    (host / "hooks" / "room" / "__pycache__").rmdir()
    (host / "hooks" / "room").rmdir()
    (host / "hooks" / "room").symlink_to("/etc")
    return ["config", "config/file", "hooks/room", "hooks/room/main.py", "link"]


CHANGES = [change_content, change_mode, change_owner, change_link, add_files, remove_all, exchange_kinds]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_was_there_comes_back(host, change):
    snapshot, before = keep(host), describe(host)
    changed = sorted(str(host / name) for name in change(host))
    assert snapshot.list_differences() == changed
    assert snapshot.put_back() == changed
    assert describe(host) == before
    assert snapshot.list_differences() == []


def test_what_comes_back_is_new(host):
    """A daemon that started with the file of in between has to be restarted."""
    snapshot = keep(host)
    os.utime(host / "config", (1, 1))
    change_content(host)
    os.utime(host / "config", (2, 2))
    snapshot.put_back()
    assert os.stat(host / "config").st_mtime > 1e9


def test_compiled_file_of_the_source_between(host):
    """Python takes one for good by the time and size of its source, which can be the same."""
    snapshot = keep(host)
    (host / "hooks" / "room" / "main.py").write_text("VALUE = 2\n")
    snapshot.put_back()
    assert os.listdir(host / "hooks" / "room" / "__pycache__") == ["other.cpython-313.pyc"]


def test_what_a_link_leads_to_is_left_alone(host):
    outside = host / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine\n")
    snapshot = keep(host)
    (host / "hooks" / "stray").symlink_to(outside)
    snapshot.put_back()
    assert (outside / "file").read_text() == "mine\n" and not (host / "hooks" / "stray").is_symlink()


def fill_disk(*_arguments):
    raise OSError(28, "No space left on device")


def test_disk_that_is_full_in_between(host, monkeypatch):
    """Called again it continues."""
    snapshot, before = keep(host), describe(host)
    remove_all(host)
    with monkeypatch.context() as patched:
        patched.setattr(os, "symlink", fill_disk)
        with pytest.raises(OSError, match="No space left"):
            snapshot.put_back()
    assert snapshot.put_back() != []
    assert describe(host) == before


def test_a_device_is_refused(host):
    os.mkfifo(host / "hooks" / "fifo")
    with pytest.raises(ValueError, match=r"^%s is no file, directory or symbolic link$" % (host / "hooks" / "fifo")):
        Snapshot.take(name_paths(host))


@pytest.mark.parametrize("spoil", [lambda data: data[:700], lambda data: data[:2048], lambda data: b"", lambda data: b"text\n" * 300,
                                   lambda data: data.replace(b"ckpt_torque.snapshot", b"ckpt_torque.something")])
def test_damaged_snapshot(host, spoil):
    keep(host)
    path = host / "open.tar"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError, match=r"^%s is no whole snapshot \(" % path):
        Snapshot.read(str(path))
