"""Arguments, configurations and manifests are hostile text, made up by hypothesis; five times as many in `make faults`."""
import json
import os
import pathlib
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "plugins/module_utils"))

from torque_ckpt import config, errors  # noqa: E402
from torque_ckpt.cli import main, node_records, stores  # noqa: E402
from torque_ckpt.errors import HookError  # noqa: E402
from torque_ckpt.image import compatibility, manifest, schema, seal  # noqa: E402
from torque_ckpt.store import catalog, generations, location  # noqa: E402
from torque_ckpt.system import privilege  # noqa: E402
from torque_ckpt.torque import contract  # noqa: E402

TIMES = 5 if os.environ.get("CKPT_TORQUE_FAULTS") == "full" else 1
often = settings(max_examples=2000 * TIMES, deadline=None, suppress_health_check=list(HealthCheck))
sometimes = settings(often, max_examples=200 * TIMES)
seldom = settings(often, max_examples=80 * TIMES)
ROOM = [{"path": "/shared/ckpt", "id": "main"}]
GOOD = ["4711", "12.head", "alice", "users", "/shared/ckpt/12.head.CK", "ckpt.12.head.1", "15", "-"]

# Text as a job's owner would choose it: near what is right, or anything.
NASTY = st.sampled_from(["", "-", ".", "..", "/", "//", "~", " ", "\0", "\n", "$(id)", "`id`", ";id", "|id", "&", "%s", "-f", "--", "\\",
                         "'", '"', "*", "\u202e", "\ud800", "a" * 300, "/" * 300, "9" * 40, "-1", "0x10", "\u0661", "..%2f"])
TEXT = st.one_of(st.text(max_size=40), NASTY,
                 st.lists(st.one_of(NASTY, st.sampled_from(GOOD), st.text(max_size=5)), max_size=6).map("".join))
ARGUMENTS = st.one_of(st.lists(TEXT, max_size=10), st.tuples(*[st.one_of(st.just(word), TEXT) for word in GOOD]).map(list))
HUGE = st.sampled_from([2 ** 63, -2 ** 63 - 1, 2 ** 64, 10 ** 400, float("inf"), float("nan"), "x" * 5000, {"x" * 5000: 1},
                        [[[[[[[[[[]]]]]]]]]], {str(number): number for number in range(200)}, [0] * 5000, ["x"] * 5000])
JSON = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT, HUGE),
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
    for read, count in ((contract.parse_checkpoint, 8), (contract.parse_restart, 6)):
        try:
            call = read(argv[:count])
        except HookError as error:
            assert error.code == errors.USAGE
            assert "; nothing was done" in sentence(error)
            continue
        assert all(no_shell(value) for value in (call.job_id, call.user, call.directory, call.name, call.group or ""))
        assert call.directory == os.path.normpath(call.directory) and call.directory.startswith("/")
        assert "/" not in call.job_id + call.user + call.name and call.name not in (".", "..") and not call.name.startswith((".", "-"))
        assert call.signal in (0, 15, None)
        try:
            store = location.find_store(ROOM, call.directory)
        except HookError as error:
            assert error.code == errors.REFUSED
        else:
            assert os.path.commonpath([store["path"], call.directory]) == store["path"] != call.directory


@sometimes
@given(st.lists(TEXT, max_size=3))
def test_commands_to_run_are_absolute_or_refused(argv):
    try:
        assert contract.parse_run(argv) == argv and argv[0].startswith("/")
    except HookError as error:
        assert error.code == errors.USAGE
        sentence(error)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@sometimes
@given(configuration=near(config.DEFAULTS))
def test_configurations_are_right_or_refused(directory, configuration):
    path = directory / "hooks.json"
    path.write_text(json.dumps(configuration))
    try:
        values = config.load_settings(str(path), owner=os.geteuid())
    except HookError as error:
        assert error.code == errors.CONFIG
        assert str(error).endswith("; run the role checkpoint_hooks on this node")
    else:
        assert {name: type(value) for name, value in values.items()} == {name: type(value) for name, value in config.DEFAULTS.items()}


CALL = contract.Call(1, "12.head", "alice", None, "/shared/ckpt/12.head.CK", "ckpt.12.head.1", None, None)
ALICE = privilege.User("alice", 1001, 100, "/home/alice")
KEYS = [("first", b"s" * 32)]
WHOLE = dict(compatibility.describe_node(), format=3, job_id="12.head", user="alice", uid=1001, name="ckpt.12.head.1",
             engine={"name": "criu", "version": "4"}, root=7, pids=[7], frozen_seconds=0.1, spool=[], bytes=1,
             files=[{"name": "a", "size": 1, "sha256_tree": "0"}], generation=1, created="2026-01-01T00:00:00Z", node_local=[], left=[],
             open_files=[], bound=False, bound_reason="", lost=[])
ELSEWHERE = dict(compatibility.describe_node(), node="node2", engine={"name": "blcr", "version": "0"}, stores=["main"])


@sometimes
@given(near(WHOLE), st.booleans())
def test_manifests_are_right_or_refused(directory, content, sealed):
    if sealed and isinstance(content, dict):
        content = seal.add_seal(KEYS, content)
    (directory / schema.FILE).write_text(json.dumps(content))
    descriptor = os.open(str(directory), os.O_RDONLY)
    try:
        manifest.verify_manifest(descriptor, CALL, ALICE, "/shown", lambda body, shown: seal.check_seal(KEYS, body, shown))
        assert sealed
    except HookError as error:
        assert error.code in (errors.DATA, errors.REFUSED)
        assert "/shown" in str(error)
    finally:
        os.close(descriptor)


def one_changed(whole):
    """What is right but for one field."""
    return st.sampled_from(sorted(whole)).flatmap(lambda name: JSON.map(lambda value: dict(whole, **{name: value})))


@seldom
@given(st.one_of(near(WHOLE), one_changed(WHOLE), one_changed(dict(WHOLE, format=4, compression="zstd", plain_bytes=7, depth=2))),
       st.booleans())
def test_images_are_listed_and_shown_whatever_their_manifests_say(directory, content, sealed):
    """A mistake of the programmer's would be caught, too, and named by its kind; so would an output that grows with what is said."""
    if sealed and isinstance(content, dict):
        content = seal.add_seal(KEYS, content)
    job = directory / "12.head.CK"
    image = job / "ckpt.12.head.1"
    image.mkdir(parents=True, exist_ok=True)
    (image / "a").write_text("x")
    (image / schema.FILE).write_text(json.dumps(content))
    descriptor = os.open(str(job), os.O_RDONLY)
    try:
        entry, = catalog.examine_job_directory(str(job), descriptor, {"engine_timeout": 1}, True, None,
                                               lambda facts, shown: seal.check_seal(KEYS, facts, shown),
                                               lambda described: {"manifest": described})["images"]
        generations.list_images(descriptor, "12.head")
        generations.next_generation(descriptor, "12.head")
    finally:
        os.close(descriptor)
    assert entry["state"] in (catalog.DAMAGED, catalog.REFUSED_HERE)  # its hash is wrong, or it is another user's
    assert "Error: " not in entry["problem"] and len(entry["problem"]) < 3000
    described = stores.describe_image({"id": "main"}, ALICE, "12.head", entry)
    lines = main.align_rows([main.format_row(described)])
    if "manifest" in entry:
        lines += ["%s %s" % (label, value) for label, value in main.describe_manifest(described, entry["manifest"])]
        node_records.find_obstacle(entry["manifest"], ELSEWHERE, "main")
    json.dumps([described] + lines)
