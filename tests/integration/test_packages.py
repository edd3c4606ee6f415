"""Role criu on a node with InfiniBand and MPI, on hosts of their own: no package of a node is touched for it."""
import json
import os
import pathlib
import re
import subprocess

import pytest
from cluster import GROUP, Cluster, hosts

PACKAGES = "openmpi-bin ibverbs-providers rdma-core"
LOOK = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'; find /etc/apt -type f -exec sha256sum {} + | sort"
PROGRAM = "/opt/criu/current/sbin/criu"


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


def passed(done):
    return done.code == 0 and '"passed": true' in done.out


def test_node_without_criu_gets_the_artifact_and_keeps_its_packages(fresh):
    cluster, node = fresh
    before = node.ask(LOOK)
    assert "libibverbs1" in before and "openmpi-bin" in before
    done = cluster.role("node2", "criu")
    assert passed(done), done.out
    assert node.ask(LOOK) == before
    assert node.ask("readlink /opt/criu/current").startswith("4.2.1-debian13-x86_64-")
    libraries = node.ask("ldd %s | grep -v /opt/criu/" % PROGRAM)
    assert not {line.split()[0].rpartition("/")[2] for line in libraries.splitlines()} - {
        "linux-vdso.so.1", "libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, libraries
    again = cluster.role("node2", "criu")
    assert passed(again) and '"changed": true' not in again.out, again.out


def test_criu_of_the_node_is_taken_if_it_passes(fresh):
    """And the artifact as soon as it does not."""
    cluster, node = fresh
    node.ask("mv /opt/criu /opt/ours; mkdir /opt/criu; cp -a /opt/ours/4.2.1* /opt/criu")  # where its libraries are
    node.ask("printf '#!/bin/sh\nexec /opt/ours/current/sbin/criu \"$@\"\n' > /usr/sbin/criu; chmod 755 /usr/sbin/criu")
    try:
        done = cluster.role("node2", "criu")
        assert passed(done), done.out
        assert node.ask("readlink /opt/criu/current; readlink -f " + PROGRAM).split() == ["present", "/usr/sbin/criu"]
        node.ask("printf '#!/bin/sh\nexit 1\n' > /usr/sbin/criu")
        done = cluster.role("node2", "criu")
        assert passed(done), done.out
        assert node.ask("readlink /opt/criu/current").startswith("4.2.1-debian13-x86_64-")
    finally:
        node.ask("rm -rf /opt/ours /usr/sbin/criu")


def test_packages_of_the_distribution(fresh):
    """Debian 13's own CRIU fails on kernels from 6.16 on, which is reported."""
    cluster, node = fresh
    kernel = tuple(map(int, node.ask("uname -r").split(".")[:2]))
    done = cluster.role("node2", "criu", criu_install_method="package")
    assert node.ask("readlink -f " + PROGRAM) == "/usr/sbin/criu"
    if kernel < (6, 16):
        assert passed(done), done.out
    else:
        assert "failed the round trip of level L1" in done.out
        assert "set criu_install_method to artifact or boot a kernel this CRIU knows." in done.out
    node.ask("apt-get -qq purge -y criu > /dev/null; apt-get -qq autoremove -y > /dev/null")
    done = cluster.role("node2", "criu", criu_install_method="present")
    assert "criu is not at %s on this node; run the role criu" % PROGRAM in done.out


def test_package_of_the_artifact(fresh, tmp_path):
    """For a site that installs by a repository of its own."""
    cluster, node = fresh
    node.ask("rm -rf /opt/criu")
    source = json.loads(pathlib.Path(cluster.inventory).read_text())["all"]["vars"]["criu_source"]
    done = cluster.role("node2", "criu", criu_install_method="artifact", criu_package_formats=["deb"])
    assert passed(done), done.out
    key = node.ask("readlink /opt/criu/current")
    package = pathlib.Path(source).parents[1] / ("artifacts/criu-%s.deb" % key)
    with open(package, "rb") as stream:
        subprocess.run(node.command + ["cat > /tmp/criu.deb"], stdin=stream, check=True)
    node.ask("rm -rf /opt/criu; dpkg -i /tmp/criu.deb")
    assert "Version: 4.2.1" in node.ask("/opt/criu/%s/sbin/criu --version" % key)
    node.ask("dpkg -P $(dpkg-deb -f /tmp/criu.deb Package); rm /tmp/criu.deb")


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


OTHER_SUITE = """\
echo "deb $(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1) forky main" > /etc/apt/sources.list.d/forky.list
printf 'Package: *\nPin: release n=forky\nPin-Priority: -1\n\nPackage: libnl-3-200\nPin: release n=forky\nPin-Priority: 990\n' \
  > /etc/apt/preferences.d/forky
apt-get -q update
"""


def test_package_that_would_remove_others(fresh):
    """The libnl of another suite, beside which InfiniBand's libraries cannot be installed."""
    cluster, node = fresh
    node.ask(OTHER_SUITE)
    try:
        before = node.ask(LOOK)
        done = cluster.module("node2", "packages", name=["libnl-3-200=3.12*"])
        refusal = re.search(r'"msg": "node2: to install libnl-3-200=3\.12\*, apt would remove ([a-z0-9., +-]+); install these packages in '
                            r'versions that go together, or do without those that would go, and run this again; nothing was installed or '
                            r'removed"', done.out)
        assert refusal, done.out
        assert set(PACKAGES.split()) - {"rdma-core"} | {"libibverbs1"} <= set(refusal.group(1).split(", "))
        assert node.ask(LOOK) == before
    finally:
        node.ask("rm /etc/apt/sources.list.d/forky.list /etc/apt/preferences.d/forky; apt-get -q update")


def test_package_that_is_there_costs_no_package_manager(fresh):
    cluster, node = fresh
    node.ask("mv /usr/bin/apt-get /usr/bin/apt-get.away; ln -s /bin/false /usr/bin/apt-get")
    try:
        done = cluster.module("node2", "packages", name=["ibverbs-providers", "libc6=2.*"])
        assert '"changed": false' in done.out and '"missing": []' in done.out, done.out
    finally:
        node.ask("mv /usr/bin/apt-get.away /usr/bin/apt-get")
