"""update.yml on a real TORQUE: nodes are changed, and no job is lost, whatever is wrong with a node."""
import json
import pathlib
import re

import pytest
from cluster import HOOKS
from jobs import BIN, COUNTS, Jobs, await_nodes

pytestmark = pytest.mark.usefixtures("torque")


@pytest.fixture
def start(cluster):
    """Start a job on node1 that could run on any node: start(*options) returns the Qjob."""
    head = cluster.nodes["head"]
    with Jobs(cluster) as jobs:
        def begin(*options, script=COUNTS):
            head.ask("%s/pbsnodes -o node2" % BIN)
            job = jobs(script, "-l", "nodes=1", *options)
            job.reach("up")
            head.ask("%s/pbsnodes -c node2" % BIN)
            await_nodes(head)
            return job

        yield begin
    head.ask("%s/pbsnodes -c -N n node1 node2" % BIN)
    await_nodes(head)


def update(cluster, *arguments, **variables):
    """Run the playbook; return its Result and the lines that it reports, if it comes to that."""
    done = cluster.playbook("update", *arguments, **variables)
    lists = re.findall(r"TASK \[Show what became of the nodes\].*?\"msg\": (\[.*?\n    \])", done.out, re.DOTALL)
    return done, json.loads(lists[-1]) if lists else []


def drift(*nodes):
    """Change a byte of a hook; update.yml has to bring it back."""
    for node in nodes:
        node.ask("echo >> %s/health" % HOOKS)


def is_good(node, other):
    return node.ask("sha256sum %s/health | cut -c1-64" % HOOKS) == other.ask("sha256sum %s/health | cut -c1-64" % HOOKS)


def note(cluster, node):
    found = re.search("note = (.*)", cluster.nodes["head"].ask("%s/pbsnodes %s" % (BIN, node)))
    return found.group(1).strip() if found else ""


DIFFERS = "the hooks differ from the collection's (health)"


def test_nothing_is_to_be_done(cluster):
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: ready", "node2: ready"]), done.out
    assert "Drain the node" not in done.out
    assert [done.changed(name) for name in ("head", "node1", "node2")] == [0, 0, 0]


def test_job_leaves_the_node_before_it_is_changed(cluster, start, node1, node2):
    job = start("-c", "enabled")
    drift(node1)
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: updated: " + DIFFERS, "node2: ready"]), done.out
    assert job.facts()["exec_host"].split("/")[0] == "node2"
    assert (is_good(node1, node2), note(cluster, "node1")) == (True, "")
    await_nodes(cluster.nodes["head"])
    job.finish()


def test_job_that_does_not_end_in_time_keeps_its_node_as_it_is(cluster, start, node1, node2):
    job = start()
    drift(node1)
    done, lines = update(cluster, update_jobs="wait", update_wait_timeout=2)
    assert done.code != 0
    assert lines == ["node1: not updated: node node1 still has jobs after 2 seconds: %s; end or hold them, or wait longer" % job.id,
                     "node2: ready"]
    assert "not updated, as their jobs did not end in time: node1; run this playbook again later" in done.out
    assert (is_good(node1, node2), note(cluster, "node1")) == (False, "")
    done, lines = update(cluster, update_jobs="leave")
    assert (done.code, lines[0]) == (0, "node1: updated: " + DIFFERS), done.out
    assert job.facts()["exec_host"].split("/")[0] == "node1"
    assert is_good(node1, node2)
    job.finish()


def test_node_that_fails_stays_drained_and_the_next_run_continues(cluster, node1, node2):
    """The user has no directory in the store, so that no round trip of level L2 is possible."""
    drift(node1, node2)
    done, _lines = update(cluster, validate_user="nobody")
    assert done.code != 0
    assert "node1 was not updated and stays drained: level L2: node1: run: there is no directory" in done.out.replace("\n", " ")
    assert note(cluster, "node1").startswith("ckpt-torque: update: level L2: node1: run: there is no directory")
    assert "offline" in cluster.nodes["head"].ask("%s/pbsnodes node1" % BIN)
    assert note(cluster, "node2") == "" and "TASK [Drain the node]" in done.out
    assert node2.run("tail -c 2 %s/health | od -An -c | tr -d ' '" % HOOKS).out.strip() == "\\n\\n", "node2 was changed after node1 failed"
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: updated", "node2: updated: " + DIFFERS]), done.out
    assert note(cluster, "node1") == note(cluster, "node2") == ""
    await_nodes(cluster.nodes["head"])


def test_node_that_others_drained_stays_drained(cluster, node1, node2):
    head = cluster.nodes["head"]
    head.ask("%s/pbsnodes -o -N 'disk broken' node1" % BIN)
    drift(node1)
    try:
        done, lines = update(cluster)
        assert (done.code, lines[0]) == (0, "node1: updated: " + DIFFERS), done.out
        assert (is_good(node1, node2), note(cluster, "node1")) == (True, "disk broken")
        assert "offline" in head.ask("%s/pbsnodes node1" % BIN)
    finally:
        head.ask("%s/pbsnodes -c -N n node1" % BIN)
        await_nodes(head)


def test_only_the_nodes_that_are_named(cluster, node1, node2):
    drift(node1, node2)
    done, lines = update(cluster, update_nodes="node2")
    assert (done.code, lines) == (0, ["node1: left as it is: " + DIFFERS, "node2: updated: " + DIFFERS]), done.out
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: updated: " + DIFFERS, "node2: ready"]), done.out


def test_node_that_is_down(cluster, node1, node2, tmp_path):
    """The others are updated, and the run fails by its name."""
    inventory = json.loads(pathlib.Path(cluster.inventory).read_text())
    inventory["all"]["hosts"]["node2"]["ansible_port"] = 1
    (tmp_path / "inventory.json").write_text(json.dumps(inventory))
    drift(node1)
    done, lines = update(cluster, inventory=str(tmp_path / "inventory.json"))
    assert done.code != 0
    assert lines[0] == "node1: updated: " + DIFFERS
    assert lines[1].startswith("node2: not reached: "), lines
    assert "not reached: node2; run this playbook again later" in done.out
    assert (is_good(node1, node2), note(cluster, "node1")) == (True, "")
