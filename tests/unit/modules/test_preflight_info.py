"""preflight_info on this node, and its action plugin's clock."""
import os
import time

import pytest

from ansible_collections.ckpt.torque.plugins.action import preflight_info as action
from ansible_collections.ckpt.torque.plugins.module_utils.validation import node_state


def ask(module, tmp_path, **params):
    return module("preflight_info", dict({"hooks_directory": str(tmp_path / "hooks"), "hooks_config_path": str(tmp_path / "hooks.json"),
                                          "service": "no-such-service"}, **params))


def test_a_node_without_anything(module, tmp_path):
    before = time.time()
    answer = ask(module, tmp_path)
    assert before <= answer.pop("clock") <= time.time()
    libraries = answer.pop("libraries")
    assert any("libc" in path and entry["build_id"] and entry["bytes"] == os.path.getsize(path) for path, entry in libraries.items())
    assert any(os.path.basename(path) == "bash" for path in libraries)
    assert answer == {"changed": False, "hooks_directory": str(tmp_path / "hooks"), "hooks": {}, "changed_hooks": [],
                      "odd_programs": ["run", "checkpoint", "restart", "copy", "health"], "complaint": "", "stores": [], "config_path": "",
                      "directives": None, "service": {"name": "no-such-service", "wanted": False, "running": False}, "user": None,
                      "record_fault": ""}


@pytest.mark.parametrize("script, complaint", [
    ("exit 0", ""),
    ("echo 'ERROR ckpt.torque: store /s is not mounted'; exit 4", "store /s is not mounted"),
    ("echo broken >&2; exit 3", "{path} ended with status 3: broken"),
])
def test_health(module, tmp_path, script, complaint):
    path = tmp_path / "hooks/health"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n%s\n" % script)
    path.chmod(0o755)
    answer = ask(module, tmp_path)
    assert (answer["complaint"], list(answer["hooks"])) == (complaint.format(path=path), ["health"])


def test_what_is_named(module, tmp_path):
    (tmp_path / "config").write_text("$usecp *:/s /s\n")
    answer = ask(module, tmp_path, mom_config_path=str(tmp_path / "config"), user="root")
    assert (answer["config_path"], answer["directives"]) == (str(tmp_path / "config"), {"usecp": ["*:/s /s"]})
    assert answer["service"]["wanted"] is os.path.isdir("/run/systemd/system")
    assert answer["user"] == {"name": "root", "uid": 0, "gid": 0}


def test_shell_that_fails(module, tmp_path):
    answer = ask(module, tmp_path, shell="/bin/false")
    assert answer["failed"]
    assert answer["msg"] == ("%s: preflight_info: /bin/false -c ended with status 1: it says nothing; name a shell of this node"
                             % os.uname().nodename)


@pytest.mark.parametrize("asked, clock, answered, offset", [
    (100.0, 101.0, 102.0, 0.0), (100.0, 100.0, 100.0, 0.0), (100.0, 110.0, 102.0, 8.0), (100.0, 90.0, 130.0, -10.0)])
def test_offset_of_a_clock(asked, clock, answered, offset):
    assert action.compute_offset(asked, clock, answered) == offset


def test_files_of_the_package():
    """One that was changed, one that is missing and one that nobody knows are named; programs are not of the package."""
    right = {"torque_ckpt/" + path: digest for path, digest in node_state.hash_hooks(os.path.join(action.PACKAGE, "torque_ckpt")).items()}
    assert len(right) > 50
    assert action.find_changed(dict(right, checkpoint="any")) == []
    wrong = dict(right, **{"torque_ckpt/units.py": "other", "torque_ckpt/extra.py": "more"})
    del wrong["torque_ckpt/hooks/run.py"]
    assert action.find_changed(wrong) == ["torque_ckpt/extra.py", "torque_ckpt/hooks/run.py", "torque_ckpt/units.py"]
