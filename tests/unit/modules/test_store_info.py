"""store_info: what it says of directories of this machine, and what it makes of what it finds."""
import os
import pathlib
import tempfile

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.store import probe

NODE = os.uname().nodename


@pytest.fixture
def store(public_directory, nobody):
    """A store (pathlib.Path) with a directory for nobody."""
    path = public_directory / "ckpt"
    (path / "nobody").mkdir(parents=True)
    os.chmod(str(path), 0o755)
    os.chown(str(path / "nobody"), nobody.pw_uid, nobody.pw_gid)
    return path


@pytest.fixture
def ask(module):
    """Ask for a store: ask(path, check=False, **options) returns the answer (dict)."""
    def run(path, check=False, **options):
        return module("store_info", dict({"user": "nobody"}, path=str(path), **options), check=check)
    return run


def everything(path):
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


@pytest.mark.root
def test_store_that_is_fit(ask, store, nobody):
    answer = ask(store)
    assert (answer["faults"], answer["changed"]) == ([], False)
    assert (answer["store"], answer["directory"], answer["mode"]) == (str(store), str(store / "nobody"), "0755")
    assert answer["root"] == {"refusal": "", "squashed": False}
    user = answer["user"]
    assert (user["refusal"], user["uid"], answer["uid"]) == ("", nobody.pw_uid, nobody.pw_uid)
    assert user["renames"] == {"rename": "", "rename_directory": "", "link": ""}
    assert set(user["seconds"]) == {"file", "name"} and all(value > 0 for value in user["seconds"].values())
    assert abs(user["skew"]) < 1
    free = os.statvfs(str(store))
    assert answer["free_space"]["total_bytes"] == free.f_blocks * free.f_frsize
    assert everything(store) == ["nobody"] and everything(store / "nobody") == []


@pytest.mark.root
def test_store_without_the_users_directory(ask, store):
    (store / "nobody").rmdir()
    assert ask(store)["faults"] == [
        "user nobody cannot create images in {0}/nobody: No such file or directory; create that directory and give it to nobody "
        "(checkpoint_store_users)".format(store)]


@pytest.mark.root
def test_directory_that_is_not_the_users(ask, store):
    os.chown(str(store / "nobody"), 0, 0)
    answer = ask(store)
    assert answer["user"] == {"refusal": "Permission denied"}
    assert "cannot create images in %s/nobody: Permission denied" % store in answer["faults"][0]


@pytest.mark.root
def test_other_directory(ask, store, nobody):
    other = store / "jobs"
    other.mkdir()
    os.chown(str(other), nobody.pw_uid, nobody.pw_gid)
    assert ask(store, directory=str(other))["directory"] == str(other)


@pytest.mark.root
def test_store_that_others_can_write_to(ask, store):
    os.chmod(str(store), 0o1777)
    assert ask(store)["faults"] == [
        "store %s is writable by users other than its owner (mode 1777), who could replace images; remove that write permission" % store]


@pytest.mark.root
def test_directory_above_it_that_others_can_write_to(ask, store):
    os.chmod(str(store.parent), 0o775)
    assert ask(store)["faults"] == [
        "{0} is writable by users other than root, who could replace {1} with another store; remove that write permission".format(
            store.parent, store)]


@pytest.mark.root
def test_directory_above_it_that_is_the_stores_owners(ask, store, nobody):
    """He may do what he likes with the store anyhow; another may not."""
    os.chown(str(store.parent), nobody.pw_uid, -1)
    assert ask(store)["exposed"] == str(store.parent)
    os.chown(str(store), nobody.pw_uid, -1)
    assert (ask(store)["exposed"], ask(store)["faults"]) == ("", [])


@pytest.mark.root
def test_store_behind_a_link(ask, store):
    link = store.parent / "link"
    link.symlink_to(store)
    assert ask(link)["faults"] == ["store %s is a link or lies behind one; name %s, the directory itself, on all nodes" % (link, store)]


@pytest.mark.root
def test_store_in_memory(ask, nobody):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        os.chmod(path, 0o755)
        os.mkdir(path + "/nobody")
        os.chown(path + "/nobody", nobody.pw_uid, nobody.pw_gid)
        assert ask(path)["faults"] == [
            "store %s is on tmpfs, so its images are lost on a reboot; put it on a disk or a shared file system" % path]


@pytest.mark.parametrize("name", ["none", "file"])
def test_store_that_is_not_there(ask, public_directory, name):
    (public_directory / "file").touch()
    path = public_directory / name
    answer = ask(path)
    assert answer["faults"] == ["store %s is not a directory on this node; mount it or create it (role checkpoint_store)" % path]
    assert [answer[key] for key in ("id", "mode", "mount", "free_space", "root", "user")] == ["", "", {}, {}, {}, {}]


@pytest.mark.root
def test_path_of_a_store_that_is_to_be_made(ask, store, nobody):
    path = store.parent / "deep" / "er"
    answer = ask(path, user=None, exists=False)
    assert (answer["faults"], answer["exposed"], answer["mode"]) == ([], "", "")
    assert not path.parent.exists()
    assert answer["mount"] == ask(store)["mount"]
    os.chown(str(store.parent), nobody.pw_uid, -1)
    assert ask(path, user=None, exists=False)["faults"] == [
        "{0} is writable by users other than root, who could replace {1} with another store; remove that write permission".format(
            store.parent, path)]
    os.chown(str(store.parent), 0, -1)
    (store.parent / "link").symlink_to(store)
    link = store.parent / "link/er"
    assert ask(link, user=None, exists=False)["faults"] == [
        "store %s is a link or lies behind one; name %s, the directory itself, on all nodes" % (link, store / "er")]
    assert ask("/dev/shm/none/er", user=None, exists=False)["faults"] == [
        "store /dev/shm/none/er is on tmpfs, so its images are lost on a reboot; put it on a disk or a shared file system"]
    os.chmod(str(store), 0o1777)  # the role closes it
    assert ask(store, user=None, exists=False)["faults"] == []


@pytest.mark.root
def test_name_of_the_store(ask, store):
    assert ask(store)["id"] == ""
    (store / ".ckpt-torque-store").write_text("first\n")
    assert ask(store)["id"] == "first"


@pytest.mark.root
def test_without_a_user(ask, store):
    (store / "nobody").rmdir()
    answer = ask(store, user=None)
    assert [answer[key] for key in ("faults", "directory", "uid", "user")] == [[], None, None, {}]
    assert answer["root"] == {"refusal": "", "squashed": False}


def test_check_mode_makes_nothing(ask, store):
    answer = ask(store, check=True)
    assert answer["would"] == ["as root, a directory in %s" % store, "as nobody, directories, renames and flushes in %s/nobody" % store]
    assert (answer["root"], answer["user"]) == ({}, {})
    assert everything(store) == ["nobody"] and everything(store / "nobody") == []


@pytest.mark.parametrize("path, options, sentence", [
    ("/", {}, "path / is the root of everything; name the store's directory in full"),
    ("{0}", {"user": None, "directory": "/x"}, "directory and copies are tried as a user; name one"),
    ("{0}", {"user": None, "copies": {"server": "head", "job": "x"}}, "directory and copies are tried as a user; name one"),
])
def test_bad_input(ask, public_directory, path, options, sentence):
    (public_directory / "file").touch()
    assert ask(path.format(public_directory), **options)["msg"] == "%s: store_info: %s; nothing was done" % (
        NODE, sentence.format(public_directory))


def test_unknown_user(module, store):
    assert module("store_info", {"path": str(store), "user": "nosuchuser"})["msg"] == (
        "%s: store_info: user nosuchuser is not known on this node; compare the account database with the other nodes" % NODE)


# What it makes of it

GOOD = {"store": "/shared/ckpt", "real_path": "/shared/ckpt", "directory": "/shared/ckpt/alice", "mode": "0755", "exposed": "", "uid": 1500,
        "mount": {"point": "/shared", "source": "head:/export", "type": "nfs4", "options": ["rw"]}, "root": {},
        "user": {"refusal": "", "uid": 1500, "renames": {"rename": "", "rename_directory": "", "link": ""}}}


@pytest.mark.parametrize("changed, sentences", [
    ({}, []),
    ({"root": {"refusal": "Permission denied", "squashed": True}}, []),  # nothing is done as root there
    ({"mount": dict(GOOD["mount"], options=["ro"])}, ["store /shared/ckpt is mounted read-only; mount /shared for writing"]),
    ({"mount": dict(GOOD["mount"], type="overlay")},
     ["store /shared/ckpt is on overlay, so its images are lost on a reboot; put it on a disk or a shared file system"]),
    ({"user": dict(GOOD["user"], uid=65534)},
     ["what user alice (uid 1500) creates in /shared/ckpt/alice belongs to uid 65534; configure the file server to keep uids"]),
    ({"user": dict(GOOD["user"], renames={"rename": "", "rename_directory": "Invalid cross-device link", "link": "no"})},
     ["an image cannot be published in /shared/ckpt/alice: rename directory fails (Invalid cross-device link); use another file system"]),
])
def test_faults(changed, sentences):
    assert probe.list_faults(dict(GOOD, **changed), "alice") == sentences


@pytest.mark.root
def test_squash_by_experiment(monkeypatch, tmp_path):
    """As far as it can be seen without a server: what is made belongs to somebody else, or cannot be made."""
    real = os.mkdir

    def squashed(path, mode):
        real(path, mode)
        os.chown(path, 65534, 65534)
    monkeypatch.setattr(probe.os, "mkdir", squashed)
    assert probe.try_as_root(str(tmp_path)) == {"refusal": "", "squashed": True}

    def refused(path, mode):
        raise OSError(number, os.strerror(number))
    for number, wanted in ((13, True), (1, True), (30, None), (28, None)):
        monkeypatch.setattr(probe.os, "mkdir", refused)
        assert probe.try_as_root(str(tmp_path)) == {"refusal": os.strerror(number), "squashed": wanted}
    assert list(pathlib.Path(str(tmp_path)).iterdir()) == []
