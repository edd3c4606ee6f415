"""Three real hosts with the collection's own site.yml applied, and a job on one of them."""
import fcntl
import itertools
import json
import os

import pytest

pytest.register_assert_rewrite("harm", "jobs", "proofs", "refusals", "storms")  # so that their assertions show the values

import refusals  # noqa: E402
from attackers import OWNER  # noqa: E402
from cluster import CONFIG, FAULTS, FIGURES, GROUP, TOP, Cluster, Job, hosts  # noqa: E402
from jobs import BIN  # noqa: E402
from power import free, start  # noqa: E402


def pytest_terminal_summary(terminalreporter):
    if FAULTS:
        terminalreporter.write_line("faults: " + ", ".join("%d %s" % (count, what) for what, count in FAULTS.items()))
    for figure in FIGURES:
        terminalreporter.write_line("figure: " + figure)


@pytest.fixture(scope="session")
def cluster():
    keep = os.environ.get("CKPT_TORQUE_KEEP")  # for work on the tests: start from the hosts that are there, leave them up
    if not keep:
        hosts("down", GROUP)
    cluster = Cluster()
    with open(TOP / ".cache/build.lock", "w") as lock:  # of two groups at once one builds, the other takes it from the cache
        fcntl.flock(lock, fcntl.LOCK_EX)
        for host, role in (("node1", "criu"),) + (("head", "torque_build"),) * cluster.torque:
            done = cluster.role(host, role)
            assert done.code == 0, done.out
    done = cluster.playbook("site")
    assert done.code == 0, done.out
    yield cluster
    if not keep:
        hosts("down", GROUP)


@pytest.fixture
def torque(cluster):
    """Skip the test where there is no TORQUE."""
    if not cluster.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")


@pytest.fixture
def untouched(cluster, torque):
    """Hosts are after the test as they were before."""
    before = refusals.state(cluster)
    yield
    assert refusals.state(cluster) == before


@pytest.fixture
def node1(cluster):
    return cluster.nodes["node1"]


@pytest.fixture
def node2(cluster):
    return cluster.nodes["node2"]


@pytest.fixture
def owner_program(node1, node2):
    """The nodes have a program with which a job's owner attacks (attackers.py)."""
    for node in (node1, node2):
        node.ask("install -d -m 1777 /tmp/rights && cat > /tmp/rights/owner.py <<'X'\n%sX" % OWNER.read_text())
    yield
    for node in (node1, node2):
        node.run("rm -rf /tmp/rights")


NUMBERS = itertools.count(1000)


@pytest.fixture
def job(cluster):
    """Return a function that starts a Job on a Node; what it started is removed after the test."""
    jobs = []

    def make(node, script="python3 job.py; exit $?", variables=""):
        jobs.append(Job(node, next(NUMBERS)))
        return jobs[-1].start(script, variables)

    yield make
    for entry in jobs:
        entry.clean([cluster.nodes["node1"], cluster.nodes["node2"]])


@pytest.fixture
def policy(cluster, torque):
    """Have torque-ckpt node-down restart jobs at once, and pbs_server notice soon that a node is away."""
    head, nodes = cluster.nodes["head"], [cluster.nodes["node1"], cluster.nodes["node2"]]
    settings = dict(json.loads(head.ask("cat " + CONFIG)), node_down_action="restart", node_down_seconds=1)
    head.ask("rm -f /var/lib/ckpt-torque/node_down.json; cp -p {0} {0}.good; cat > {0} <<'X'\n{1}\nX".format(CONFIG, json.dumps(settings)))
    for node in nodes:
        node.ask("cd /var/spool/torque/mom_priv && cp -p config config.good && echo '$status_update_time 3' >> config && "
                 "systemctl restart pbs_mom")
    # The rate counts from the next look on, and the first one comes soon after a start.
    head.ask("%s/qmgr -c 'set server node_check_rate = 10' && systemctl restart pbs_server && systemctl start pbs_sched" % BIN)
    for node in nodes:
        free(cluster, node.name)
    yield
    start(cluster)
    head.ask("systemctl reset-failed; mv {0}.good {0}; {1}/qmgr -c 'set server node_check_rate = 150'".format(CONFIG, BIN))
    for node in nodes:
        node.ask("cd /var/spool/torque/mom_priv && mv config.good config && systemctl restart pbs_mom")
