"""Three real hosts with the collection's own site.yml applied, and a job on one of them."""
import fcntl
import itertools
import os

import pytest

pytest.register_assert_rewrite("harm", "jobs", "proofs", "refusals", "storms")  # so that their assertions show the values

import refusals  # noqa: E402
from cluster import FAULTS, FIGURES, GROUP, TOP, Cluster, Job, hosts  # noqa: E402


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
