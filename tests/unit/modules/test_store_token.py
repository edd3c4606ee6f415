"""store_token and store_token_info: what one node leaves, another sees."""
import os

import pytest

NODE = os.uname().nodename

pytestmark = pytest.mark.root


@pytest.fixture
def store(public_directory, nobody):
    """A store (pathlib.Path) with a directory for nobody."""
    path = public_directory / "ckpt"
    (path / "nobody").mkdir(parents=True)
    os.chown(str(path / "nobody"), nobody.pw_uid, nobody.pw_gid)
    return path


@pytest.fixture
def token(module, store):
    """Call store_token: token(state="present", check=False, **options) returns the answer (dict)."""
    def run(state="present", check=False, **options):
        return module("store_token", dict({"path": str(store), "user": "nobody", "name": "abc1", "state": state}, **options), check=check)
    return run


@pytest.fixture
def token_info(module, store):
    """Call store_token_info: token_info(check=False, **options) returns the answer (dict)."""
    def run(check=False, **options):
        arguments = {"path": str(store), "user": "nobody", "name": "abc1", "timeout": 0}
        return module("store_token_info", dict(arguments, **options), check=check)
    return run


def list_files(store):
    return sorted(os.listdir(str(store / "nobody")))


def test_token(token, token_info, store, nobody):
    path = store / "nobody/.ckpt-torque-token.abc1"
    assert (token_info()["seen"], token("absent")["changed"]) == (False, False)
    answer = token()
    assert (answer["changed"], answer["token"]) == (True, str(path))
    assert (path.read_text(), path.stat().st_uid, oct(path.stat().st_mode)) == (NODE, nobody.pw_uid, "0o100600")
    assert token()["changed"] is False
    seen = token_info()
    assert (seen["changed"], seen["seen"], seen["writer"], seen["store"]) == (False, True, NODE, str(store))
    assert 0 <= seen["seconds"] < 60
    assert list_files(store) == [path.name]
    assert [token("absent")["changed"] for _time in range(2)] == [True, False]
    assert list_files(store) == []


def test_other_directory(token, token_info, store, nobody):
    other = store / "jobs"
    other.mkdir()
    os.chown(str(other), nobody.pw_uid, nobody.pw_gid)
    assert token(directory=str(other))["token"] == str(other / ".ckpt-torque-token.abc1")
    assert (token_info()["seen"], token_info(directory=str(other))["seen"]) == (False, True)


def test_token_of_another_node(token, store):
    path = store / "nobody/.ckpt-torque-token.abc1"
    path.write_text("node9")
    path.chmod(0o644)
    assert token()["msg"] == "%s: store_token: FileExistsError: [Errno 17] File exists: '%s'" % (NODE, path)
    assert path.read_text() == "node9"


def test_token_that_is_a_link_is_none(token, token_info, store):
    path = store / "nobody/.ckpt-torque-token.abc1"
    path.symlink_to("/etc/passwd")
    assert token_info()["seen"] is False
    assert token()["msg"].startswith("%s: store_token: FileExistsError" % NODE)
    assert token("absent")["changed"] is True
    assert not path.is_symlink()


def test_token_that_is_empty_is_not_written_yet(token_info, store):
    (store / "nobody/.ckpt-torque-token.abc1").touch()
    assert token_info()["seen"] is False


def test_check_mode(token, token_info, store):
    assert (token(check=True)["changed"], token("absent", check=True)["changed"]) == (True, False)
    assert list_files(store) == []
    token()
    assert (token(check=True)["changed"], token("absent", check=True)["changed"]) == (False, True)
    assert (token_info(check=True)["seen"], list_files(store)) == (True, [".ckpt-torque-token.abc1"])


def test_directory_that_is_not_the_users(token, token_info, store):
    """Nothing can be said of the storage then; it must not look like a token that is not there."""
    os.chown(str(store / "nobody"), 0, 0)
    for answer in (token(), token_info()):
        assert answer["failed"] is True
        assert "Permission denied" in answer["msg"]
    assert "seen" not in token_info()


@pytest.mark.parametrize("module_name, ending", [("store_token", "changed"), ("store_token_info", "done")])
@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 65])
def test_bad_name(module, store, module_name, ending, name):
    answer = module(module_name, {"path": str(store), "user": "nobody", "name": name})
    assert answer["msg"] == "%s: %s: name must be 1 to 64 letters and digits; nothing was %s" % (NODE, module_name, ending)


@pytest.mark.parametrize("module_name", ["store_token", "store_token_info"])
def test_users_that_will_not_do(module, store, module_name, nobody, everyones_python):
    arguments = {"path": str(store), "user": "nosuchuser", "name": "abc1"}
    assert module(module_name, arguments)["msg"] == (
        "%s: %s: user nosuchuser is not known on this node; compare the account database with the other nodes" % (NODE, module_name))
    assert module(module_name, arguments, user=nobody, python=everyones_python)["msg"] == (
        "%s: %s must run as root to become user nosuchuser; use become" % (NODE, module_name))
