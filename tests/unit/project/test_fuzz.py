"""Arguments, configurations and manifests are hostile text, made up by hypothesis."""
import json
import os
import pathlib
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "plugins/module_utils"))

from torque_ckpt import config, contract, errors, fit, key, manifest, privilege, store  # noqa: E402
from torque_ckpt.errors import HookError  # noqa: E402

often = settings(max_examples=10000, deadline=None, suppress_health_check=list(HealthCheck))
sometimes = settings(often, max_examples=1000)
ROOM = [{"path": "/shared/ckpt", "id": "main"}]
GOOD = ["4711", "12.head", "alice", "users", "/shared/ckpt/12.head.CK", "ckpt.12.head.1", "15", "-"]

# Text as a job's owner would choose it: near what is right, or anything.
NASTY = st.sampled_from(["", "-", ".", "..", "/", "//", "~", " ", "\0", "\n", "$(id)", "`id`", ";id", "|id", "&", "%s", "-f", "--", "\\",
                         "'", '"', "*", "\u202e", "\ud800", "a" * 300, "/" * 300, "9" * 40, "-1", "0x10", "\u0661", "..%2f"])
TEXT = st.one_of(st.text(max_size=40), NASTY,
                 st.lists(st.one_of(NASTY, st.sampled_from(GOOD), st.text(max_size=5)), max_size=6).map("".join))
ARGUMENTS = st.one_of(st.lists(TEXT, max_size=10), st.tuples(*[st.one_of(st.just(word), TEXT) for word in GOOD]).map(list))
JSON = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT),
                    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)), max_leaves=12)


def near(whole):
    """Anything, or something with the fields of a dict that is right."""
    return st.one_of(JSON, st.fixed_dictionaries({}, optional={name: st.one_of(st.just(value), JSON) for name, value in whole.items()}))


def sentence(error):
    """What a hook says must be one line of plain characters that names no more than 400 of them."""
    words = " ".join(str(error).split())
    assert words and words.isprintable() and words.encode("ascii")
    assert len(words) < 600
    return words


def no_shell(text):
    return not set(text) & set(" \t\n\0;|&$`'\"\\<>(){}*?!~#%^")


@often
@given(ARGUMENTS)
def test_arguments_are_right_or_refused(argv):
    for read, count in ((contract.checkpoint, 8), (contract.restart, 6)):
        try:
            call = read(argv[:count])
        except HookError as error:
            assert error.code == errors.USAGE
            assert sentence(error).endswith("nothing was done")
            continue
        assert all(no_shell(value) for value in (call.job_id, call.user, call.directory, call.name, call.group or ""))
        assert call.directory == os.path.normpath(call.directory) and call.directory.startswith("/")
        assert "/" not in call.job_id + call.user + call.name and call.name not in (".", "..") and not call.name.startswith((".", "-"))
        assert call.signal in (0, 15, None)
        try:
            found = store.configured(ROOM, call.directory)
        except HookError as error:
            assert error.code == errors.REFUSED
        else:
            assert os.path.commonpath([found["path"], call.directory]) == found["path"] != call.directory


@sometimes
@given(st.lists(TEXT, max_size=3))
def test_commands_to_run_are_absolute_or_refused(argv):
    try:
        assert contract.run(argv) == argv and argv[0].startswith("/")
    except HookError as error:
        assert error.code == errors.USAGE
        sentence(error)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@sometimes
@given(found=near(config.DEFAULTS))
def test_configurations_are_right_or_refused(place, found):
    path = place / "hooks.json"
    path.write_text(json.dumps(found))
    try:
        values = config.load(str(path), owner=os.geteuid())
    except HookError as error:
        assert error.code == errors.CONFIG
        assert str(error).endswith("; run the role checkpoint_hooks on this node")
    else:
        assert {name: type(value) for name, value in values.items()} == {name: type(value) for name, value in config.DEFAULTS.items()}


CALL = contract.Call(1, "12.head", "alice", None, "/shared/ckpt/12.head.CK", "ckpt.12.head.1", None, None)
ALICE = privilege.User("alice", 1001, 100, "/home/alice")
KEYS = [("first", b"s" * 32)]
WHOLE = dict(fit.node(), format=3, job_id="12.head", user="alice", uid=1001, name="ckpt.12.head.1", engine={"name": "criu", "version": "4"},
             root=7, pids=[7], frozen_seconds=0.1, spool=[], bytes=1, files=[{"name": "a", "size": 1, "sha256_tree": "0"}], generation=1)


@sometimes
@given(near(WHOLE), st.booleans())
def test_manifests_are_right_or_refused(place, found, sealed):
    if sealed and isinstance(found, dict):
        found = key.seal(KEYS, found)
    (place / manifest.FILE).write_text(json.dumps(found))
    directory = os.open(str(place), os.O_RDONLY)
    try:
        manifest.verify(directory, CALL, ALICE, "/shown", lambda body, shown: key.check(KEYS, body, shown))
        assert sealed
    except HookError as error:
        assert error.code in (errors.DATA, errors.REFUSED)
        assert "/shown" in str(error)
    finally:
        os.close(directory)
