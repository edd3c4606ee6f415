"""What is read on a node, against what the node's own tools say."""
import json
import os
import pwd
import re
import shutil
import subprocess

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.image import compatibility
from ansible_collections.ckpt.torque.plugins.module_utils.validation import node_state


def test_build_ids_are_those_that_file_prints():
    with open("/proc/self/maps") as stream:
        paths = node_state.list_mapped_files(stream.read())
    programs = [path for path in paths if os.path.exists(path) and re.search(r"\.so[.0-9]*$", path)]
    assert len(programs) > 3
    for path in programs:
        with open(path, "rb") as stream:
            assert bytes.fromhex(node_state.read_build_id(path)) in stream.read(1 << 16)
    assert {len(node_state.read_build_id(path)) for path in programs if "libc." in path} == {40}


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 58, b"\x7fELF\x02\x01" + b"\0" * 200, b"#!/bin/sh\n"])
def test_other_files_have_no_build_id(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert node_state.read_build_id(str(tmp_path / "file")) == ""


def test_mapped_files():
    text = ("7f0 r-xp 00000000 fe:00 1  /usr/lib/libc.so.6\n7f1 rw-p 0 00:00 0 \n7f2 r--p 0 fe:00 2   /a name with blanks\n"
            "7f3 rw-p 0 00:00 0  [stack]\n7f4 r--p 0 fe:00 1 /usr/lib/libc.so.6\n")
    assert node_state.list_mapped_files(text) == ["/a name with blanks", "/usr/lib/libc.so.6"]


def test_files_that_are_there(tmp_path):
    (tmp_path / "here").write_bytes(b"12345")
    assert node_state.describe_files([str(tmp_path / "here"), str(tmp_path / "gone")]) == {
        str(tmp_path / "here"): {"bytes": 5, "build_id": ""}}


def test_stores(tmp_path):
    config = tmp_path / "hooks.json"
    config.write_text(json.dumps({"engine": "criu", "stores": [{"path": str(tmp_path), "id": "default"}], "reserve": 4096}))
    store, = node_state.read_stores(str(config))
    assert (store["path"], store["reserve"]) == (str(tmp_path), 4096)
    assert abs(store["free"] - shutil.disk_usage(tmp_path).free) < 1 << 30
    config.write_text("no JSON")
    assert node_state.read_stores(str(config)) == []
    assert node_state.read_stores(str(tmp_path / "none.json")) == []


def test_hooks(tmp_path):
    (tmp_path / "torque_ckpt/__pycache__").mkdir(parents=True)
    (tmp_path / "torque_ckpt/units.py").write_text("x\n")
    (tmp_path / "torque_ckpt/__pycache__/units.pyc").write_text("compiled")
    (tmp_path / "checkpoint").write_text("")
    done = subprocess.run(["sha256sum", str(tmp_path / "torque_ckpt/units.py")], stdout=subprocess.PIPE, check=True)
    assert node_state.hash_hooks(str(tmp_path)) == {
        "checkpoint": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "torque_ckpt/units.py": done.stdout.decode().split()[0]}
    assert node_state.hash_hooks(str(tmp_path / "gone")) == {}


def test_directives(tmp_path):
    path = tmp_path / "config"
    assert node_state.read_directives(str(path)) is None
    path.write_text("$pbsserver head\n$usecp  *:/b   /b # ours\n$usecp *:/a /a\n# $restart_script /no\n  $checkpoint_script /c\n")
    assert node_state.read_directives(str(path)) == {"usecp": ["*:/a /a", "*:/b /b"], "checkpoint_script": ["/c"]}


def test_users():
    root = pwd.getpwnam("root")
    assert node_state.read_user("root") == {"name": "root", "uid": root.pw_uid, "gid": root.pw_gid}
    assert node_state.read_user("nobody-at-all") == {"name": "nobody-at-all", "uid": None, "gid": None}


@pytest.fixture
def record(tmp_path):
    """Write a record of this node with these changes; return the path of the configuration beside it."""
    node = compatibility.describe_node()

    def write(text=None, **changes):
        (tmp_path / "nodes").mkdir()
        known = dict(node, engine={"name": "criu", "version": "4.2.1"}, stores=["default"], **changes)
        (tmp_path / "nodes" / (node["node"] + ".json")).write_text(text if text is not None else json.dumps(known))
        return str(tmp_path / "hooks.json")
    return write


def fault(config_path):
    return node_state.find_record_fault(config_path, compatibility.describe_node()).replace(os.path.dirname(config_path), "")


def test_record_that_is_right_or_missing(record, tmp_path):
    assert fault(str(tmp_path / "hooks.json")) == ""
    assert fault(record()) == ""


@pytest.mark.parametrize("changes, sentence", [
    ({"arch": "vax"}, "says that it is vax, it is " + os.uname().machine),
    ({"cpu": compatibility.read_cpu_features() + ["abacus"]}, "says that its CPU has abacus, which it lacks"),
    ({"cpu": compatibility.read_cpu_features()[1:]}, "says that its CPU lacks %s, which it has" % compatibility.read_cpu_features()[0]),
    ({"cpu": compatibility.read_cpu_features()[1:] + ["abacus"]},
     "says that its CPU lacks %s, which it has and has abacus, which it lacks" % compatibility.read_cpu_features()[0]),
    ({"text": "{"}, "is not the record of a node"),
    ({"text": "[]"}, "is not the record of a node"),
    ({"stores": "default"}, "is not the record of a node"),
])
def test_record_that_is_wrong(record, changes, sentence):
    known = {"stores": changes.pop("stores")} if "stores" in changes else {}
    path = record(**changes) if not known else record(json.dumps(dict(
        compatibility.describe_node(), engine={"name": "criu", "version": ""}, **known)))
    assert fault(path) == "/nodes/%s.json %s" % (os.uname().nodename, sentence)


@pytest.mark.parametrize("changes, odd", [
    ({}, []), ({"checkpoint": "exit 1"}, ["checkpoint"]), ({"run": None}, ["run"]), ({"copy": ""}, ["copy"]),
    (dict.fromkeys(node_state.PROGRAMS), list(node_state.PROGRAMS)),
    ({"restart": "from torque_ckpt.hooks.checkpoint import main"}, ["restart"]),
])
def test_programs_of_the_hooks(tmp_path, changes, odd):
    for name in node_state.PROGRAMS:
        text = changes.get(name, "from torque_ckpt.hooks.%s import main" % name)
        if text is not None:
            (tmp_path / name).write_text(text)
    assert node_state.find_odd_programs(str(tmp_path)) == odd
