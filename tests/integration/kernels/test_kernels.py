"""A node of a cluster gets a newer kernel while jobs are held, and jobs move between the two kernels: `make kernels`."""
import json
import socket
import time

import pytest
from cluster import FIGURES, GROUP, STORE, hosts
from jobs import Jobs, await_nodes
from trips import Trip
from virtual import PROGRAM, SECONDS, build, machines, shared_store


@pytest.fixture(scope="module")
def cluster():
    """Two machines with one kernel, set up by site.yml; node1 is the server, too."""
    with machines() as cluster:
        build("node1", "criu")
        if cluster.torque:
            build("node1", "torque_build")
        with shared_store(cluster):
            run(cluster, "site")
            yield cluster


def run(cluster, name, **settings):
    done = cluster.playbook(name, **settings)
    assert done.code == 0, done.out


def read_kernels(cluster):
    return [cluster.nodes[name].ask("uname -r") for name in ("node1", "node2")]


def boot_update(cluster, monkeypatch):
    """Turn node2 off, and on with the other kernel, which a machine without a boot loader cannot choose by itself."""
    node = cluster.nodes["node2"]
    known = json.loads(open(cluster.inventory, encoding="utf-8").read())["all"]["hosts"]["node2"]
    node.run("systemctl poweroff")
    node.disconnect()
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection((known["ansible_host"], known["ansible_port"]), 5).close()
        except OSError:  # nobody listens for the guest any more
            break
        assert time.monotonic() < deadline, "node2 is not off after %d seconds" % SECONDS
        time.sleep(1)
    monkeypatch.setenv("CKPT_TORQUE_GUEST_BOOT", "update")
    hosts("up", GROUP, program=PROGRAM)


def update(cluster, monkeypatch):
    """Give node2 the newer kernel as docs/operate.md says: drain, boot, site.yml, release. Return both kernels (str, str)."""
    run(cluster, "drain", drain_nodes="node2", drain_reason="kernel")
    boot_update(cluster, monkeypatch)
    older, newer = read_kernels(cluster)
    assert older != newer
    run(cluster, "site")
    assert newer in cluster.nodes["node1"].ask("cat /etc/ckpt-torque/nodes/node2.json")  # what the run has changed
    run(cluster, "drain", drain_nodes="node2", drain_reason="kernel", drain_state="released")
    return older, newer


def move_by_hooks(trip, state):
    """Have the hooks restart the program that they hold on node2, on node1 and on node2 again."""
    for name, last in (("node2", ["continue", "hold"]), ("node1", ["continue", "hold"]), ("node2", ["finish"])):
        result = trip(name, ["restart"] + last, state)
        assert result["passed"], result["cause"]
        state = result["state"]


def move(job, *nodes):
    """Have a held job continue on one node after the other, and end."""
    for name in nodes:
        job.release(name)
        job.progress(name)
        if name != nodes[-1]:
            job.hold()
    job.finish(SECONDS)


def prove(cluster, directory):
    """See that the levels pass on both nodes, with jobs that move from each to the other."""
    run(cluster, "validate", validate_directory=str(directory), validate_timeout=SECONDS, validate_work_path=STORE + "/alice")
    report = json.loads((directory / "results.json").read_text())
    levels = ["L1", "L2"] + ["L3"] * cluster.torque
    assert {node["name"]: [node[level] for level in levels] for node in report["nodes"]} == {
        name: ["passed"] * len(levels) for name in ("node1", "node2")}


def test_one_kernel(cluster, tmp_path):
    older, also = read_kernels(cluster)
    assert older == also
    prove(cluster, tmp_path)
    FIGURES.append("L1 to L%d passed between two nodes with kernel %s" % (3 if cluster.torque else 2, older))


def test_held_jobs_go_on_with_the_newer_kernel_and_come_back(cluster, monkeypatch, tmp_path):
    """docs/operate.md, "Change the engine or the kernel of nodes": jobs that were held before continue, and jobs move either way."""
    trip = Trip(cluster, store_path=STORE)
    with Jobs(cluster) as qsub:
        try:
            held = trip("node2", ["run", "hold"])
            assert held["passed"], held["cause"]
            jobs = [qsub.counts("-l", "nodes=" + name) for name in ("node2", "node1") if cluster.torque]
            for job in jobs:
                job.hold()
            older, newer = update(cluster, monkeypatch)
            move_by_hooks(trip, held["state"])
            await_nodes(cluster.nodes["head"])
            for job, nodes in zip(jobs, (["node2", "node1"], ["node2", "node1", "node2"])):
                move(job, *nodes)
        finally:
            trip.clean()
    prove(cluster, tmp_path)
    FIGURES.append("jobs held on kernel %s continued on %s, and jobs of that on the first" % (older, newer))
