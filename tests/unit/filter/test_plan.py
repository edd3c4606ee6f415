"""The verdict of plan.yml on a node, and what it prints."""
import re

import pytest
from ansible_collections.ckpt.torque.plugins.filter import plan

CHOSEN = {"engine": "criu"}
IN_USE = {"installed": True, "key": "6.1.3-x", "current": "6.1.3-x"}
READY = {"health": {"rc": 0, "stdout": ""}, "hooks": {"changed": False, "written": [], "removed": []}, "torque": IN_USE,
         "mom": {"changed": False}, "config": {"changed_directives": [], "restart_required": False}, "daemon": {"action": "", "newer": []}}
LACKING = {"faults": ["kernel 3.10.0-514 has no modules of BLCR"], "warnings": []}


@pytest.mark.parametrize("results, why", [
    ({}, []),
    ({"fault": "Task failed: checkpoint_hooks_keys must hold a key"}, ["checkpoint_hooks_keys must hold a key"]),
    ({"fault": "node1: no key"}, ["no key"]),
    ({"hooks": {"changed": True, "written": ["/usr/lib/ckpt-torque/checkpoint"], "removed": []}, "health": {"rc": 2}},
     ["the hooks are not installed"]),
    ({"hooks": {"changed": True, "written": ["/etc/ckpt-torque/hooks.json"], "removed": ["/usr/lib/ckpt-torque/old"]}},
     ["the hooks differ from the collection's (hooks.json, old)"]),
    ({"hooks": {"changed": True}}, ["the hooks differ from the collection's (owners or modes)"]),
    ({"torque": {"installed": False, "key": "6.1.3-x", "current": "6.1.3-y"}}, ["TORQUE 6.1.3-x is not installed"]),
    ({"torque": {"installed": True, "key": "6.1.3-x", "current": "6.1.3-y"}}, ["TORQUE 6.1.3-x is not the one in use"]),
    ({"torque": {"skipped": True, "changed": False}}, []),
    ({"mom": {"changed": True, "missing": ["/var/spool/torque/aux"]}}, ["the unit of pbs_mom differs"]),
    ({"mom": {"changed": False, "missing": ["/var/spool/torque", "/var/spool/torque/aux"]}},
     ["directories of pbs_mom are missing: /var/spool/torque, /var/spool/torque/aux"]),
    ({"config": {"changed_directives": ["$loglevel", "$usecp"]}}, ["mom_priv/config differs in $loglevel, $usecp"]),
    ({"daemon": {"action": "start", "newer": ["/a"]}}, ["pbs_mom does not run"]),
    ({"daemon": {"action": "restart", "newer": ["/opt/torque/current", "/x/config"]}},
     ["pbs_mom was started before a change of /opt/torque/current, /x/config"]),
    ({"health": {"rc": 1, "stdout": "ERROR ckpt.torque: the store is not mounted"}}, ["the store is not mounted"]),
    ({"engine_plan": LACKING}, LACKING["faults"]),
    ({"engine_plan": LACKING, "health": {"stdout": "ERROR ckpt.torque: " + LACKING["faults"][0]}}, LACKING["faults"]),
    ({"mom": {"changed": True}, "daemon": {"action": "start"}, "fault": "x", "engine_plan": LACKING},
     ["x"] + LACKING["faults"] + ["the unit of pbs_mom differs", "pbs_mom does not run"]),
])
def test_why(results, why):
    assert plan.plan_node(CHOSEN, **dict(READY, **results))["why"] == why


@pytest.mark.parametrize("engine, node", [
    ({"msg": "Task failed: no route to host", "unreachable": True}, {"reached": False, "why": ["no route to host"]}),
    ({"msg": "node1: no engine for this kernel", "failed": True}, {"reached": True, "why": ["no engine for this kernel"]}),
])
def test_node_without_an_engine(engine, node):
    assert plan.plan_node(engine) == dict(node, restarts=False, warnings=[])


@pytest.mark.parametrize("results, restarts", [
    ({}, False),
    ({"torque": dict(IN_USE, key="6.1.3-z")}, True),
    ({"mom": {"changed": True}}, True),
    ({"config": {"changed_directives": ["$loglevel"], "restart_required": True}}, True),
    ({"config": {"changed_directives": ["$loglevel"], "restart_required": False}}, False),
    ({"daemon": {"action": "restart", "newer": ["/a"]}}, True),
    ({"daemon": {"action": "start"}, "mom": {"changed": True}}, False),
    ({"torque": {"installed": False, "key": "6.1.3-z", "current": ""}, "mom": {"changed": True}}, False),
])
def test_restarts(results, restarts):
    assert plan.plan_node(CHOSEN, **dict(READY, **results))["restarts"] is restarts


def test_warnings_are_no_need():
    node = plan.plan_node(CHOSEN, **dict(READY, engine_plan={"faults": [], "warnings": ["cannot after the next boot"]}))
    assert (node["why"], node["warnings"]) == ([], ["cannot after the next boot"])


NODES = {"a": {"reached": True, "why": [], "restarts": False, "warnings": []},
         "b": {"reached": True, "why": ["x", "y"], "restarts": True, "warnings": ["cannot after the next boot"]},
         "c": {"reached": False, "why": ["no route"], "restarts": False, "warnings": []}}


def test_nodes_that_were_not_looked_at():
    assert plan.plan_nodes({"a": {"__plan_node": NODES["a"]}, "d": {}}, "ad") == {"a": NODES["a"], "d": plan.LOST}


def test_summary():
    assert plan.plan_summary(NODES) == {"needed": ["b"], "restarts": ["b"], "not_reached": ["c"]}
    assert plan.plan_summary(NODES, ["c", "head"])["not_reached"] == ["c", "head"]


def test_lines():
    assert plan.plan_lines(NODES, "10%") == [
        "a: ready",
        "b: x; y; cannot after the next boot",
        "c: not reached: no route",
        "needed: b",
        "pbs_mom is restarted on b, 10% of them at a time; jobs keep running, and without the patch exit-status TORQUE reports exit status "
        "0 for those that run now",
        "not reached: c"]
    assert plan.plan_lines({"a": dict(NODES["a"], warnings=["w"])}, 1) == ["a: ready; w", "needed: nothing"]
    assert plan.plan_lines({"a": NODES["a"]}, 1, ["head"]) == ["a: ready", "needed: nothing", "not reached: head"]


FINE = {"reached": True, "why": [], "restarts": False, "warnings": []}


def test_page():
    lacks = ["the hooks are not installed"]
    nodes = {"node1": dict(FINE, restarts=True, why=lacks), "node2": dict(FINE, why=lacks),
             "node3": dict(FINE, warnings=["cannot after the next boot"]), "node4": plan.LOST}
    page = plan.plan_page(nodes, "10%")
    assert "<strong>2 of 4 nodes need something: node1, node2; not reached: node4.</strong>" in page
    cards = re.findall(r'<article class="card (\w*)">\n<h3>(.*)</h3>\n<p>(.*)</p>', page)
    assert cards == [
        ("failure", "node4", "it was not checked; see the output of ansible-playbook"), ("open", "node1, node2", lacks[0]),
        ("", "node3", "cannot after the next boot"),
        ("open", "node1", "pbs_mom is restarted on these nodes, 10% of them at a time; jobs keep running, and without the patch "
                          "exit-status TORQUE reports exit status 0 for those that run now")]
    assert "--limit &#39;node1,node2&#39;" in page or "--limit 'node1,node2'" in page


@pytest.mark.parametrize("nodes, verdict", [
    ({"node1": FINE}, "1 of 1 node is ready."), ({"node1": FINE, "node2": FINE}, "2 of 2 nodes are ready."),
    ({"node1": FINE, "node2": plan.LOST}, "1 of 2 nodes is ready; not reached: node2."),
    ({"node1": dict(FINE, why=["x"]), "node2": FINE}, "1 of 2 nodes needs something: node1.")])
def test_verdict_of_the_page(nodes, verdict):
    page = plan.plan_page(nodes, "10%")
    assert "<title>%s</title>" % verdict in page
    assert ("Run this" in page) is ("need" in verdict)
