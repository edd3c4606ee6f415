"""What drain.yml makes of drain_nodes."""
import pytest
from ansible_collections.ckpt.torque.plugins.filter import drain

MEMBERS = ["node1", "node2"]


@pytest.mark.parametrize("nodes, names", [
    ("node1", ["node1"]), ("node1, node2,node1,", ["node1", "node2"]), (["node2", "node1"], ["node2", "node1"]), ("", []), ([], []),
    (" , ", []), (17, ["17"]), ({"a": 1}, ["{'a': 1}"])])
def test_names(nodes, names):
    assert drain.drain_names(nodes) == names


@pytest.mark.parametrize("names, server, hosts, faults", [
    (["node1"], "head", ["head", "node1"], []),
    ([], "head", ["head"], ["drain_nodes names no node; name compute nodes of the group torque_mom, as in -e drain_nodes=node17,node18"]),
    (["node1", "nod2", "head"], "head", ["head"],
     ["drain_nodes has nod2, head, but the group torque_mom does not; correct the name, or add the node to the inventory"]),
    (["node1"], "head", ["node1"],
     ["--limit leaves out head, where the jobs are moved; run without --limit: only the nodes in drain_nodes are drained"]),
    (["node1"], "", ["node1"],
     ["the inventory has no group torque_server; put the host that runs pbs_server into it, where the jobs are moved"]),
])
def test_faults(names, server, hosts, faults):
    assert drain.drain_faults(names, MEMBERS, server, hosts) == faults
