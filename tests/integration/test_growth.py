"""A node leaves a cluster at work and comes back, as docs/operate.md says it: no job is lost, and jobs move to the node that is new."""
import json
import pathlib

import pytest
from jobs import BIN, Jobs, await_nodes

pytestmark = pytest.mark.usefixtures("torque")


@pytest.fixture
def smaller(cluster, tmp_path):
    """An inventory without node2; afterwards the cluster has both nodes."""
    inventory = json.loads(pathlib.Path(cluster.inventory).read_text())
    del inventory["all"]["children"]["torque_mom"]["hosts"]["node2"]
    path = tmp_path / "smaller.json"
    path.write_text(json.dumps(inventory))
    yield str(path)
    cluster.nodes["node2"].ask("systemctl enable --now pbs_mom")
    assert cluster.playbook("site").code == 0
    await_nodes(cluster.nodes["head"])


def listed(head):
    return head.ask("%s/pbsnodes -l all | cut -d' ' -f1" % BIN).split()


def noted(head):
    """The nodes of which torque-ckpt says whether an image could restart there."""
    return sorted(json.loads(head.ask("cat /etc/ckpt-torque/nodes.json"))["nodes"])


def test_node_leaves_and_comes_back(cluster, smaller, node2):
    head = cluster.nodes["head"]
    with Jobs(cluster) as qsub:
        head.ask("%s/pbsnodes -o node1" % BIN)
        job = qsub.counts("-l", "nodes=1")
        head.ask("%s/pbsnodes -c node1" % BIN)
        await_nodes(head)
        assert job.facts()["exec_host"].startswith("node2/")

        # A node with a job is not taken away.
        done = cluster.playbook("site", inventory=smaller, torque_server_purge=["nodes"])
        assert done.code != 0 and "node2" in done.out and job.id in done.out, done.out
        assert listed(head) == ["node1", "node2"]

        done = cluster.playbook("drain", drain_nodes="node2", drain_reason="goes", drain_wait=True)
        assert done.code == 0, done.out
        job.wait("R")
        assert job.facts()["exec_host"].startswith("node1/")
        node2.ask("systemctl disable --now pbs_mom")
        done = cluster.playbook("site", inventory=smaller, torque_server_purge=["nodes"])
        assert done.code == 0, done.out
        assert (listed(head), noted(head)) == (["node1"], ["node1"])
        job.progress("node1")

        node2.ask("systemctl enable --now pbs_mom")
        done = cluster.playbook("site", "--limit", "head,node2")
        assert done.code == 0, done.out
        await_nodes(head)
        assert (listed(head), noted(head)) == (["node1", "node2"], ["node1", "node2"])
        job.hold()
        job.release("node2")
        job.finish()
