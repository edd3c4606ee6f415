"""make scale: what stands in for ssh gives recorded answers and no others, and where the figures go."""
import json
import os
import subprocess
import sys

import pytest
import yaml
from paths import TOP

sys.path.insert(0, str(TOP / "tests/scale"))

import scale  # noqa: E402
import tables  # noqa: E402

SENT = b"import this\nmodule_fqn='m',\nparams='{\"host\": \"%s\", \"depth\": %d}',\nzip_data='%d',\n"


@pytest.fixture
def ask(tmp_path):
    """Return a function that asks a host for a module; `real` is an ssh that says what it was given, and its own name."""
    real = tmp_path / "ssh"
    real.write_text("#!/bin/sh\ncat > /dev/null; echo node1 and node2 of $4; echo node1 >&2; exit 3\n")
    real.chmod(0o755)
    (tmp_path / "tape").mkdir()

    def run(host, depth=1, command="python3", record=False):
        variables = dict(os.environ, SCALE_TAPE=str(tmp_path / "tape"), **{"SCALE_RECORD": str(real)} if record else {})
        done = subprocess.run([str(scale.STUB), "-o", "HostKeyAlias=" + host, host, command], check=False, env=variables,
                              input=SENT % (host.encode(), depth, os.getpid()), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout.decode(), done.stderr.decode()
    run.tape = tmp_path / "tape"
    return run


def test_answer_is_that_of_the_real_host(ask):
    assert ask("node1", record=True) == (3, "node1 and node2 of python3\n", "node1\n")
    assert ask("node0007") == (3, "node0007 and node2 of python3\n", "node0007\n")
    assert scale.count_calls(ask.tape) == {"node1": 1, "node0007": 1}
    assert scale.count_calls(ask.tape) == {}


@pytest.mark.parametrize("other", [{"depth": 2}, {"command": "python3 -c pass"}])
def test_what_was_not_recorded_is_no_answer(ask, other):
    ask("node1", record=True)
    assert ask("node0007", **other) == (255, "", "not on the tape")
    assert (ask.tape / "unknown").read_text().startswith("node0007: python3")


def test_simulated_site():
    real = {"all": {"hosts": {name: {"ansible_host": "10.0.0.1", "ansible_port": 22} for name in ("head", "node1")}, "vars": {"a": 1},
                    "children": {"torque_mom": {"hosts": {"node1": {}}}, "torque_server": {"hosts": {"head": {}}}}}}
    site = scale.build_inventory(real, 2)["all"]
    assert sorted(site["hosts"]) == ["head", "node0001", "node0002"]
    assert sorted(site["children"]["torque_mom"]["hosts"]) == ["node0001", "node0002"]
    assert {entry["ansible_host"] for entry in site["hosts"].values()} == {"192.0.2.1"}
    recorded = scale.build_inventory(real, None)["all"]
    assert recorded["hosts"]["node1"]["ansible_host"] == "10.0.0.1"
    assert {entry["ansible_ssh_executable"] for entry in recorded["hosts"].values()} == {str(scale.STUB)}


@pytest.mark.parametrize("recap", ["node2 : ok=2 changed=0 unreachable=0 failed=0", "", "node1 : ok=2 changed=1 unreachable=0 failed=0",
                                   "node1 : ok=2 changed=0 unreachable=1 failed=0"])
def test_node_that_was_changed_or_lost_fails_the_run(recap):
    with pytest.raises(scale.Failed):
        scale.check_recap(recap, ["node1"], False)


def test_report_that_lacks_a_node_fails_the_run(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"results": [{"level": "L0", "nodes": ["a"], "passed": True}]}))
    scale.check_report(tmp_path, ["a"])
    with pytest.raises(scale.Failed):
        scale.check_report(tmp_path, ["a", "b"])


def test_rows():
    text = "before\n%s\n%s\nafter\n" % tables.mark(scale.target("site"))
    for row in (["500", "20", "9 s"], ["50", "20", "1 s"], ["500", "5", "8 s"], ["500", "20", "7 s"]):
        text = scale.merge(text, "site", row)
    begin, end = tables.mark(scale.target("site"))
    assert text.splitlines()[4:-2] == ["| 50 | 20 | 1 s |", "| 500 | 5 | 8 s |", "| 500 | 20 | 7 s |"]
    assert text.startswith("before\n%s\n| nodes |" % begin) and text.endswith("%s\nafter\n" % end)


@pytest.mark.parametrize("path", sorted(TOP.glob("playbooks/*.yml")) + [TOP / "playbooks/parts/commands.yml"], ids=lambda path: path.stem)
def test_no_play_gathers_facts(path):
    """So that a fact cache would stay empty, as the document says."""
    plays = [play for play in yaml.safe_load(path.read_text()) if "hosts" in play]
    assert [play["name"] for play in plays if play.get("gather_facts") is not False] == []
