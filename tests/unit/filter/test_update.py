"""The filters of update.yml."""

import pytest
from ansible_collections.ckpt.torque.plugins.filter import update

READY = {"reached": True, "why": [], "restarts": False}
OLD = {"reached": True, "why": ["the hooks differ from the collection's (checkpoint)"], "restarts": False}
PBSNODES = """\
node1
     state = free
     np = 2
     ntype = cluster

node2
     state = offline
     np = 2
     note = ckpt-torque: update: level L1: criu dump failed

node3
     state = offline,job-exclusive
     np = 2
     note = ckpt-torque: updates of the firmware
     jobs = 0/12.head
"""


@pytest.mark.parametrize("nodes, server, jobs, faults", [
    ([], "head", "migrate", []),
    ("node1, node2", "head", "wait", []),
    (["node1", "node9"], "", "leave", [
        "update_nodes has node9, but the group torque_mom does not; correct the name, or add the node to the inventory"]),
    ([], "", "migrate", ["the inventory has no group torque_server; put the host that runs pbs_server into it, where nodes are drained, or "
                         "set update_jobs to leave, and no node is drained"]),
])
def test_faults(nodes, server, jobs, faults):
    assert update.update_faults(nodes, ["node1", "node2"], server, jobs, ["head", "node1", "node2"]) == faults


def test_node_that_is_left_out():
    assert update.update_faults("node1,node2", ["node1", "node2"], "head", "wait", ["head", "node2"], "rollback_nodes") == [
        "--limit leaves out node1, which rollback_nodes names; run without --limit: no other node is touched"]


def test_server_that_is_left_out():
    """A rollback changes nothing there; nodes are drained from it all the same."""
    members, hosts = ["node1", "node2"], ["node1"]
    assert update.update_faults("node1", members, "head", "wait", hosts) == [
        "--limit leaves out head, the server, which changes before the nodes; run without --limit, and name the nodes in update_nodes"]
    assert update.update_faults("node1", members, "head", "wait", hosts, "rollback_nodes") == []
    assert update.update_faults("node1", members, "", "leave", hosts) == []


def test_tags_that_leave_out_the_nodes():
    assert update.update_faults([], ["node1"], "head", "wait", ["head", "node1"], tags=["hooks"]) == [
        "--tags leaves out the tasks that update nodes; run without --tags, or ckpt.torque.site with them"]


@pytest.mark.parametrize("plans, nodes, due", [
    ({"node1": READY, "node2": READY, "node3": READY}, [], ["node2"]),
    ({"node1": OLD, "node2": READY, "node3": OLD}, [], ["node1", "node2", "node3"]),
    ({"node1": OLD, "node2": READY, "node3": OLD}, "node3,node2", ["node2", "node3"]),
    ({"node1": dict(READY, restarts=True), "node2": dict(OLD, reached=False)}, [], ["node1"]),
    ({"node1": None, "node2": None}, [], []),
])
def test_due(plans, nodes, due):
    """node2 was left by an earlier run; what others drained is none of ours."""
    hostvars = {name: {"__plan_node": plan} if plan else {} for name, plan in plans.items()}
    assert update.update_due(hostvars, list(plans), PBSNODES, "update", nodes) == due


def test_server_that_is_a_node_comes_first():
    hostvars = {name: {"__plan_node": OLD} for name in ("node1", "head", "node2")}
    assert update.update_due(hostvars, list(hostvars), "", "update", server="head") == ["head", "node1", "node2"]


def test_lines():
    hostvars = {"node1": {"__plan_node": OLD, "__update_end": "done"}, "node2": {"__plan_node": READY, "__update_end": "done"},
                "node3": {"__plan_node": OLD, "__update_end": "left",
                          "__update_left": "node node3 still has jobs after 60 seconds: 12.head"},
                "node4": {"__plan_node": READY}, "node5": {}, "node6": {"__plan_node": {"reached": False, "why": ["no route"]}},
                "node7": {"__plan_node": OLD}, "node8": {"__plan_node": OLD, "__update_end": "failed"},
                "node9": {"__plan_node": OLD, "__update_end": "lost"}, "node10": {"__plan_node": OLD}}
    due = ["node1", "node2", "node3", "node8", "node9", "node10"]
    assert update.update_lines(hostvars, list(hostvars), due) == [
        "node1: updated: the hooks differ from the collection's (checkpoint)", "node2: updated",
        "node3: not updated: node node3 still has jobs after 60 seconds: 12.head", "node4: ready", "node5: not reached",
        "node6: not reached: no route", "node7: left as it is: the hooks differ from the collection's (checkpoint)",
        "node8: not updated: see the output of ansible-playbook", "node9: not updated: not reached during the update",
        "node10: not updated: too many nodes failed before"]
    assert update.update_open(hostvars, due) == [
        "not updated, as their jobs did not end in time: node3", "failed: node8", "not reached during the update: node9",
        "not begun, as too many nodes failed: node10"]
    assert update.update_open(hostvars, ["node1", "node3", "node9"], "rollback") == [
        "not rolled back, as their jobs did not end in time: node3", "not reached during the rollback: node9"]
    assert update.update_left(hostvars, list(hostvars), ["login1", "login2"]) == ["not reached: node5, node6", "not set up: login1, login2"]
    assert update.update_left(hostvars, ["node1", "node4"], []) == []


@pytest.mark.parametrize("serial, sizes", [
    ([1, "10%"], [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]), (5, [5, 5, 5, 5, 1]), ("5", [5, 5, 5, 5, 1]), ("1%", [1] * 21),
    ([1, 3, "100%"], [1, 3, 17]), (0, [21]), ([30], [21])])
def test_batches(serial, sizes):
    """As many nodes as Ansible takes for the keyword serial."""
    nodes = ["node%d" % number for number in range(21)]
    batches = update.update_batches(nodes, serial)
    assert [batch.pop() for batch in batches] == ["update_batch_%d" % (number + 1) for number in range(len(sizes))]
    assert list(map(len, batches)) == sizes and sum(batches, []) == nodes
    assert update.update_batches(nodes, serial, watched=False) == batches
    assert update.update_batches([], serial) == []


@pytest.mark.parametrize("ends, percentage, exceeded", [
    (["done", "left"], 0, False), (["done", "failed"], 0, True), (["done", "lost"], "50", False), (["failed", "lost"], 50, True),
    (["failed", "lost"], 100, False)])
def test_share_of_failures(ends, percentage, exceeded):
    hostvars = {"node%d" % number: {"__update_end": end} for number, end in enumerate(ends)}
    batch = list(hostvars) + ["update_batch_1"]
    assert update.update_exceeded(hostvars, batch, list(hostvars), percentage) is exceeded


def test_nodes_without_an_end_are_lost():
    hostvars = {"node1": {"__update_end": "failed"}, "node2": {}, "update_batch_1": {}, "node3": {}}
    assert update.update_lost(hostvars, ["node1", "node2", "update_batch_1"], ["node1", "node2", "node3"]) == ["node2"]
