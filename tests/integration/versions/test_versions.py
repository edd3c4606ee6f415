"""A cluster changes to another version of TORQUE while jobs run, wait and are held, and a node goes back: `make versions`."""
import concurrent.futures
import os

import pytest
from cluster import GROUP, Cluster, hosts
from jobs import BIN, COUNTS, Jobs, await_nodes

OLD = {"torque_version": os.environ.get("OLD_VERSION", "4.2.10"), "torque_source": os.environ.get("OLD_SOURCE", "")}
LOST = ("cannot be taken over by TORQUE %s, since another version has written %s: pbs_server would not start, or lose jobs, and pbs_mom "
        "would leave them running on their own; let them end, or delete them, before TORQUE is changed")

NODES = ["--limit", "node1,node2"]
SLOW = "/run/systemd/system/pbs_mom.service.d"


@pytest.fixture(scope="module")
def cluster():
    """The cluster with the older version."""
    keep = os.environ.get("CKPT_TORQUE_KEEP")
    if not keep:
        hosts("down", GROUP)
    cluster = Cluster()
    done = cluster.playbook("site", **OLD)
    assert done.code == 0, done.out
    await_nodes(cluster.nodes["head"])
    yield cluster
    if not keep:
        hosts("down", GROUP)


@pytest.fixture(scope="module")
def qsub(cluster):
    with Jobs(cluster) as jobs:
        yield jobs


def read_version(node):
    return node.ask("readlink /opt/torque/current").partition("-")[0]


def said(done):
    """The output of a playbook as one line, without the quotes of JSON."""
    return " ".join(done.out.replace('\\"', '"').split())


def test_array_is_refused(cluster, qsub):
    """pbs_server would not start with it: nothing is changed, the array runs as if nothing had been."""
    cluster.nodes["head"].ask("%s/qmgr -c 'set server keep_completed = 1'" % BIN)  # one that has ended counts until it is forgotten
    array = qsub(COUNTS, "-t 0-1", "-h", output=False)
    processes = {name: node.ask("pgrep -ox pbs_server || pgrep -ox pbs_mom") for name, node in cluster.nodes.items()}
    done = cluster.playbook("plan")
    assert done.code == 0 and "head: %s %s" % (array.id, LOST % (cluster.version, "it")) in said(done), done.out
    for playbook in ("site", "update"):
        done = cluster.playbook(playbook)
        assert done.code == 2, done.out
        assert "head: %s %s; nothing was changed." % (array.id, LOST % (cluster.version, "it")) in said(done), done.out
    assert {read_version(node) for node in cluster.nodes.values()} == {OLD["torque_version"]}
    assert {name: node.ask("pgrep -ox pbs_server || pgrep -ox pbs_mom") for name, node in cluster.nodes.items()} == processes
    array.root("qdel %s" % array.id)
    cluster.nodes["head"].ask("for _ in $(seq 300); do [ -e /var/spool/torque/server_priv/arrays/*.AR ] || exit 0; sleep 0.2; done; exit 1")


def test_jobs_are_taken_along(cluster, qsub, node1, node2):
    """A job that is held, one that waits, and two that run through the restart of their pbs_mom."""
    held, waiting, running, plain = [qsub(COUNTS, *options) for options in (
        ["-c", "enabled"], ["-h"], ["-c", "enabled"], ["-l", "nodes=node2"])]
    for job in (held, running, plain):
        job.reach("up")
    held.hold()
    done = cluster.playbook("update", update_jobs="leave")
    assert done.code == 0, done.out
    assert {read_version(node) for node in cluster.nodes.values()} == {cluster.version}
    assert [job.facts()["job_state"] for job in (held, waiting, running, plain)] == ["H", "H", "R", "R"]
    await_nodes(cluster.nodes["head"])
    held.release("node2")
    held.progress("node2")
    plain.sign("go")
    held.finish()
    plain.ended("0")  # TORQUE does not learn the status of a job that outlives this restart of pbs_mom
    assert plain.counted() > 0
    waiting.user("%s/qrls %s" % (BIN, waiting.id))
    waiting.root("qrun %s || true" % waiting.id)
    waiting.reach("up")
    running.checkpoint()
    running.hold()
    running.release("node2")
    for job in (waiting, running):
        job.finish()


def test_node_with_a_job_does_not_go_back(cluster, qsub, node2):
    """An older pbs_mom cannot read the job: it would run on, and nobody would know it."""
    job = qsub(COUNTS, "-l", "nodes=node2")
    job.reach("up")
    done = cluster.playbook("rollback", rollback_nodes="node2", update_jobs="leave")
    assert done.code != 0
    assert "%s %s" % (job.id, LOST % (OLD["torque_version"], "it")) in said(done), done.out
    assert read_version(node2) == cluster.version
    assert "offline" in cluster.nodes["head"].ask("%s/pbsnodes node2" % BIN)
    job.finish()
    done = cluster.playbook("rollback", rollback_nodes="node2")
    assert done.code == 0, done.out
    assert read_version(node2) == OLD["torque_version"]
    done = cluster.playbook("update")
    assert done.code == 0, done.out
    assert read_version(node2) == cluster.version


def test_server_does_not_go_back(cluster, qsub):
    """Its database has what the older pbs_server does not know, and switches that it would take for off."""
    job = qsub(COUNTS, "-h")
    head = cluster.nodes["head"]
    read = "pgrep -ox pbs_server; %s/qmgr -c 'print server'" % BIN
    before = head.ask(read)
    done = cluster.playbook("site", **OLD)
    assert done.code == 2, done.out
    assert ("head: the server's database was written by another version, and TORQUE %s would take each switch in it for off (scheduling, "
            "queues that are enabled and started); keep that version, or take /var/spool/torque/server_priv away, with which queues and "
            "jobs go; nothing was changed." % OLD["torque_version"]) in said(done), done.out
    assert head.ask(read) == before
    assert job.facts()["job_state"] == "H"
    job.root("qdel " + job.id)


def test_job_that_starts_before_the_restart_is_kept(cluster, qsub, node1, node2):
    """The nodes get the older TORQUE at once, but the pbs_mom of node2 is restarted after that of node1, which is slow."""
    node1.ask("mkdir -p {0} && printf '[Service]\nExecStartPre=sleep 30\n' > {0}/slow.conf && systemctl daemon-reload".format(SLOW))
    with concurrent.futures.ThreadPoolExecutor() as threads:
        site = threads.submit(cluster.playbook, "site", *NODES, **OLD)
        node2.ask("for _ in $(seq 500); do case $(readlink /opt/torque/current) in %s-*) exit 0;; esac; sleep 0.2; done; exit 1"
                  % OLD["torque_version"])
        job = qsub(COUNTS, "-l", "nodes=node2")
        job.reach("up")
        done = site.result()
    assert done.code == 2, done.out
    assert "node2: %s %s; pbs_mom was not restarted." % (job.id, LOST % (OLD["torque_version"], "it")) in said(done), done.out
    job.finish()
    node1.ask("rm -r %s && systemctl daemon-reload" % SLOW)
    done = cluster.playbook("site", *NODES, **OLD)
    assert done.code == 0, done.out
    assert {read_version(node) for node in (node1, node2)} == {OLD["torque_version"]}
    await_nodes(cluster.nodes["head"])
