"""install: what differs, how a file is put in its place, and what does not belong in a directory."""

import os
import stat

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils import install


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


# difference

@pytest.mark.root
@pytest.mark.parametrize("present, file_mode, owner, wanted", [
    ("text\n", 0o644, (0, 0), None),
    ("text", 0o644, (0, 0), "text"),
    ("", 0o644, (0, 0), ""),
    ("text\n", 0o755, (0, 0), "text\n"),
    ("text\n", 0o646, (0, 0), "text\n"),
    ("text\n", 0o4644, (0, 0), "text\n"),
    ("text\n", 0o644, (1, 0), "text\n"),
    ("text\n", 0o644, (0, 1), "text\n"),
], ids=["same", "content", "empty", "executable", "writable", "setuid", "owner", "group"])
def test_difference(tmp_path, present, file_mode, owner, wanted):
    path = tmp_path / "file"
    path.write_text(present)
    os.chown(path, *owner)
    path.chmod(file_mode)
    assert install.find_difference(str(path), "text\n", 0o644) == wanted


def test_difference_of_what_is_no_file(tmp_path):
    (tmp_path / "target").write_text("text\n")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "dangling").symlink_to("nothing")
    os.mkfifo(tmp_path / "fifo")
    assert install.find_difference(str(tmp_path / "missing"), "text\n", 0o644) == ""
    assert install.find_difference(str(tmp_path / "target" / "beneath"), "text\n", 0o644) == ""
    for name in ("link", "dangling", "fifo", "."):
        assert install.find_difference(str(tmp_path / name), "text\n", 0o644) == "(not a regular file)", name


def test_difference_of_bytes_that_are_no_text(tmp_path):
    (tmp_path / "file").write_bytes(b"a\xffz")
    assert install.find_difference(str(tmp_path / "file"), "text\n", 0o644) == "a\ufffdz"


@pytest.mark.root
def test_difference_is_of_utf8(tmp_path):
    (tmp_path / "file").write_bytes(b"\xc3\xbc\n")
    (tmp_path / "file").chmod(0o644)
    assert install.find_difference(str(tmp_path / "file"), "\u00fc\n", 0o644) is None


# write

@pytest.mark.root
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_write(tmp_path, umask):
    path = tmp_path / "new" / "file"
    previous = os.umask(umask)
    try:
        install.write_file(str(path), "\u00fc\n", 0o755)
    finally:
        os.umask(previous)
    assert path.read_bytes() == b"\xc3\xbc\n"
    assert (mode(path), path.stat().st_uid, path.stat().st_gid) == (0o755, 0, 0)
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.root
def test_write_into_a_directory_that_hands_on_its_group(tmp_path):
    os.chown(tmp_path, 0, 1)
    tmp_path.chmod(0o2775)
    install.write_file(str(tmp_path / "file"), "text\n", 0o644)
    assert ((tmp_path / "file").stat().st_gid, mode(tmp_path / "file")) == (0, 0o644)


@pytest.mark.root
def test_write_replaces_the_file_and_leaves_the_old_one_to_its_readers(tmp_path):
    path = tmp_path / "file"
    path.write_text("old\n")
    with open(path) as reader:
        install.write_file(str(path), "new\n", 0o644)
        assert reader.read() == "old\n"
    assert path.read_text() == "new\n"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.root
def test_write_replaces_a_link_and_not_its_target(tmp_path):
    (tmp_path / "target").write_text("other\n")
    (tmp_path / "directory").mkdir()
    for name, target in (("file", "target"), ("second", "directory")):
        (tmp_path / name).symlink_to(target)
        install.write_file(str(tmp_path / name), "new\n", 0o644)
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_text() == "new\n"
    assert (tmp_path / "target").read_text() == "other\n"
    assert os.listdir(tmp_path / "directory") == []


@pytest.mark.root
def test_write_replaces_a_directory(tmp_path):
    (tmp_path / "file" / "deep").mkdir(parents=True)
    (tmp_path / "file" / "deep" / "more").write_text("gone\n")
    install.write_file(str(tmp_path / "file"), "new\n", 0o644)
    assert (tmp_path / "file").read_text() == "new\n"


def note_syncs_and_renames(monkeypatch):
    """Return what is done from now on, in order: ("sync", size) of a file, ("rename", its new name)."""
    done, fsync, rename = [], os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda number: done.append(("sync", os.fstat(number).st_size)) or fsync(number))
    monkeypatch.setattr(os, "rename", lambda old, new: done.append(("rename", os.path.basename(new))) or rename(old, new))
    return done


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = note_syncs_and_renames(monkeypatch)
    with install.replace_file(str(tmp_path / "file")) as stream:
        stream.write(b"text\n")
    assert done == [("sync", 5), ("rename", "file")]


@pytest.mark.root
def test_all_files_are_on_the_disk_before_the_first_takes_its_place(tmp_path, monkeypatch):
    (tmp_path / "old.py").write_text("")
    installation = install.Installation({str(tmp_path / name): ("text\n", 0o644) for name in "abc"}, str(tmp_path))
    done = note_syncs_and_renames(monkeypatch)
    monkeypatch.setattr(install, "remove_path", lambda path: done.append(("remove", os.path.basename(path))) or os.unlink(path))
    installation.install()
    assert done == [("sync", 5)] * 3 + [("rename", name) for name in "abc"] + [("remove", "old.py")]
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


@pytest.mark.root
def test_installation_that_fails_before_the_first_rename_changes_nothing(tmp_path, monkeypatch):
    for name in ("a", "b", "old.py"):
        (tmp_path / name).write_text("old\n")
    installation = install.Installation({str(tmp_path / name): ("text\n", 0o644) for name in "ab"}, str(tmp_path))
    done, fsync = [], os.fsync

    def fill_disk(number):
        done.append(number)
        if len(done) == 2:
            raise OSError(28, "No space left on device")
        fsync(number)
    monkeypatch.setattr(os, "fsync", fill_disk)
    with pytest.raises(OSError, match="No space left on device"):
        installation.install()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old\n", "b": "old\n", "old.py": "old\n"}


# strays

@pytest.fixture
def tree(tmp_path):
    """Make a tree: tree(files, links) returns its root (str)."""
    def make(files=(), links=(), directories=()):
        for name in directories:
            (tmp_path / name).mkdir(parents=True)
        for name in files:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("")
        for name, target in links:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).symlink_to(target)
        return str(tmp_path)
    return make


WANTED = ("run", "package/__init__.py", "package/engines/criu.py")


@pytest.mark.parametrize("files, links, directories, strays", [
    (WANTED, [], [], []),
    (WANTED + ("package/__pycache__/__init__.cpython-311.pyc", "package/engines/__pycache__/criu.cpython-36.opt-1.pyc"), [], [], []),
    (WANTED + ("notes", "package/old.py"), [], [], ["notes", "package/old.py"]),
    (WANTED + ("other/deep/file",), [], [], ["other"]),
    (WANTED, [], ["empty"], ["empty"]),
    (WANTED + ("package/__pycache__/old.cpython-311.pyc",), [], [], ["package/__pycache__/old.cpython-311.pyc"]),
    (WANTED + ("__pycache__/run.cpython-311.pyc",), [], [], ["__pycache__/run.cpython-311.pyc"]),
    (WANTED + ("package/__pycache__/deep/__init__.pyc",), [], [], ["package/__pycache__/deep"]),
    (WANTED, [("package/link.py", "__init__.py"), ("etc", "/etc")], [], ["etc", "package/link.py"]),
    (("run", "package/__init__.py"), [("package/engines", "/etc")], [], ["package/engines"]),
    (WANTED, [("package/__pycache__", "/etc")], [], ["package/__pycache__"]),
    (("package/__init__.py", "package/engines/criu.py", "run/deep"), [], [], ["run"]),
    (WANTED + (".ckpt-torque-abc", "package/.hidden.py"), [], [], [".ckpt-torque-abc", "package/.hidden.py"]),
    (WANTED + ("packages/file", "package/engines2"), [], [], ["package/engines2", "packages"]),
], ids=["none", "compiled", "files", "directory", "empty directory", "compiled of none", "compiled of no module", "beneath compiled",
        "links", "link for a directory", "link for compiled", "directory for a file", "hidden", "same beginning"])
def test_strays(tree, files, links, directories, strays):
    root = tree(files, links, directories)
    assert install.list_strays(root, {os.path.join(root, name) for name in WANTED}) == [os.path.join(root, name) for name in strays]


def test_strays_of_a_missing_directory(tmp_path):
    assert install.list_strays(str(tmp_path / "missing"), set()) == []


# directories

@pytest.mark.root
def test_directories(tree):
    root = tree(WANTED + ("elsewhere/file",))
    os.makedirs(os.path.join(root, "lib", "package", "engines"))
    lib = os.path.join(root, "lib")
    for path in (lib, lib + "/package", lib + "/package/engines"):
        os.chmod(path, 0o755)
    os.chmod(root, 0o700)
    os.chmod(os.path.join(root, "elsewhere"), 0o700)
    assert install.list_wrong_directories(lib) == []
    os.chmod(lib, 0o775)
    os.chmod(lib + "/package/engines", 0o1755)
    assert install.list_wrong_directories(lib) == [lib, lib + "/package/engines"]
    os.chmod(lib, 0o755)
    os.chmod(lib + "/package/engines", 0o755)
    os.chown(lib + "/package", 1, 0)
    assert install.list_wrong_directories(lib) == [lib + "/package"]
    os.chown(lib + "/package", 0, 1)
    assert install.list_wrong_directories(lib) == [lib + "/package"]


def test_directories_that_are_missing_are_not_wrong(tmp_path):
    assert install.list_wrong_directories(str(tmp_path / "lib")) == []
