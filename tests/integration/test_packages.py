"""Role criu on a node with MPI: packages that a cluster needs are not removed for ours. On hosts of their own, since those of the
other tests have the newer CRIU already."""
import os
import re

import pytest
from cluster import GROUP, Cluster, hosts

PACKAGES = "openmpi-bin ibverbs-providers"
LOOK = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'; find /etc/apt -type f | sort"


@pytest.fixture(scope="module")
def fresh():
    """A node (name, Node) with MPI and no CRIU, and its cluster."""
    group = GROUP + "packages"
    cluster = Cluster(group)
    node = cluster.nodes["node2"]
    node.ask("apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install " + PACKAGES)
    yield cluster, node
    if not os.environ.get("CKPT_TORQUE_KEEP"):
        hosts("down", group)


def test_engine_that_would_remove_others(fresh):
    """The newer CRIU comes with a libnl that MPI's libraries cannot be installed beside."""
    cluster, node = fresh
    installed = set(node.ask("dpkg-query -W -f '${Package}\\n'").split())
    done = cluster.role("node2", "criu")
    assert installed <= set(node.ask("dpkg-query -W -f '${Package}\\n'").split())
    before = node.ask(LOOK)
    assert "libibverbs1" in before and "ckpt-torque" not in before
    if done.code == 0:
        pytest.skip("the packaged CRIU works on kernel %s, so that no newer one is asked for" % node.ask("uname -r"))
    refusal = re.search(r'"msg": "node2: to install criu=4\.2\.\*, apt would remove ([a-z0-9., +-]+); compile CRIU into a directory of '
                        r'its own and name the program in criu_path, which needs none of these packages, or boot a kernel that the '
                        r'packaged CRIU knows; nothing was installed or removed"', done.out)
    assert refusal, done.out
    assert set(PACKAGES.split()) | {"libibverbs1"} <= set(refusal.group(1).split(", "))
    again = cluster.role("node2", "criu")
    assert refusal.group(0) in again.out
    assert node.ask(LOOK) == before


@pytest.mark.parametrize("name, sentence", [
    ("nosuch-package", "apt cannot install nosuch-package: E: Unable to locate package nosuch-package; correct its sources or the list of "
     "packages"),
    ("base-files=1.*", "apt cannot install base-files=1.*: E: Version '1.*' for 'base-files' was not found; correct its sources or the "
     "list of packages"),
])
def test_package_that_cannot_be_had(fresh, name, sentence):
    cluster, node = fresh
    before = node.ask(LOOK)
    done = cluster.module("node2", "packages", name=[name])
    assert '"msg": "node2: %s"' % sentence in done.out, done.out
    assert node.ask(LOOK) == before


def test_package_that_is_there_costs_no_package_manager(fresh):
    cluster, node = fresh
    node.ask("mv /usr/bin/apt-get /usr/bin/apt-get.away; ln -s /bin/false /usr/bin/apt-get")
    try:
        done = cluster.module("node2", "packages", name=["ibverbs-providers", "libc6=2.*"])
        assert '"changed": false' in done.out and '"missing": []' in done.out, done.out
    finally:
        node.ask("mv /usr/bin/apt-get.away /usr/bin/apt-get")
