"""A ring of three real nodes: each of them is once source and once target of a move, also if one of them is lost on the way."""
import json
import pathlib

import pytest
from cluster import HOOKS, STORE

PATH = ["node1", "node2", "head", "node1"]
LOST = "the host could not be reached or the module failed; see the output of ansible-playbook"


@pytest.fixture(scope="module")
def three(cluster, tmp_path_factory):
    """The head as a third node, without TORQUE; returns the inventory."""
    inventory = json.loads(pathlib.Path(cluster.inventory).read_text())
    inventory["all"]["children"]["torque_mom"]["hosts"] = {name: {} for name in PATH[:3]}
    path = tmp_path_factory.mktemp("three") / "inventory.json"
    path.write_text(json.dumps(inventory))
    done = cluster.playbook("site", "--limit", "head", inventory=str(path), torque_enabled=False)
    assert done.code == 0, done.out
    return str(path)


def validate(cluster, inventory, tmp_path, **variables):
    done = cluster.playbook("validate", inventory=inventory, torque_enabled=False, validate_directory=str(tmp_path), validate_timeout=20,
                            **variables)
    report = json.loads((tmp_path / "results.json").read_text())
    assert cluster.nodes["head"].ask("ls -d %s/*.CK %s/alice/* 2> /dev/null || true" % (STORE, STORE)) == ""
    for node in cluster.nodes.values():
        assert node.run("pgrep -u alice").out == ""
    return done, report


def moves(report):
    return [(result["passed"], result["nodes"], result["cause"]) for result in report["results"] if result["level"] == "L2"]


def test_ring(cluster, three, tmp_path):
    done, report = validate(cluster, three, tmp_path)
    assert done.code == 0, done.out
    assert moves(report) == [(True, PATH, "")]
    steps = [(phase["node"], phase["step"]) for result in report["results"] if result["level"] == "L2" for phase in result["phases"]]
    assert steps == [("node1", "run"), ("node1", "continue"), ("node1", "hold"), ("node2", "restart"), ("node2", "hold"),
                     ("head", "restart"), ("head", "hold"), ("node1", "restart"), ("node1", "finish")]
    assert [node["L2"] for node in report["nodes"]] == ["passed"] * 3
    assert report["verdict"] == "3 of 3 nodes passed L1 (engine) and L2 (hooks); not proven: L3 (job)."


def test_sample(cluster, three, tmp_path):
    """The first and the last node; the one between them is not green."""
    done, report = validate(cluster, three, tmp_path, validate_sample="2")
    assert done.code == 0, done.out
    assert moves(report) == [(True, ["node1", "head"] * 2, ""), (None, ["node2"], "not proven: left out by validate_sample")]
    assert {node["name"]: node["L2"] for node in report["nodes"]} == {"node1": "passed", "node2": "unproven", "head": "passed"}


def test_node_that_dies_on_the_way(cluster, three, node2, tmp_path):
    """Its connection is lost while it has the job: the report names it, and what the job left is removed by another node."""
    node2.ask("cd %s && cp -p restart restart.good && printf '#!/bin/sh\\npkill -KILL sshd\\nexit 1\\n' > restart" % HOOKS)
    try:
        done, report = validate(cluster, three, tmp_path)
    finally:
        node2.disconnect()
        node2.ask("cd %s && mv restart.good restart" % HOOKS)
    assert done.code != 0 and "UNREACHABLE" in done.out, done.out
    assert moves(report) == [(False, ["node1", "node2"], "node2: " + LOST),
                             (None, ["head"], "not proven: the job failed before it came to this node")]
    assert {node["name"]: node["L2"] for node in report["nodes"]} == {"node1": "unproven", "node2": "failed", "head": "unproven"}
