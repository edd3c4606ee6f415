"""Role criu on a node with InfiniBand and MPI, on hosts of their own: no package of a node is touched for it."""
import json
import os
import pathlib
import re
import subprocess
import tarfile

import pytest
from cluster import GROUP, Cluster, hosts
from refusals import refusal

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


def test_program_that_was_removed_is_put_back(fresh):
    cluster, node = fresh
    node.ask("rm " + PROGRAM)
    done = cluster.role("node2", "criu")
    assert passed(done), done.out
    assert "Version: 4.2.1" in node.ask(PROGRAM + " --version")


def test_removal_waits_for_a_checkpoint(fresh):
    cluster, node = fresh
    pid = node.ask("setsid sh -c '%s service --address /run/criu.socket > /dev/null 2>&1 & echo $!'" % PROGRAM)
    try:
        done = cluster.role("node2", "criu", criu_state="absent")
        refusal(done, "node2: CRIU cannot be removed, a checkpoint or restart uses it (process %s); run this again when that has ended; "
                "nothing was changed." % pid)
        assert "Version: 4.2.1" in node.ask(PROGRAM + " --version")
    finally:
        node.ask("kill %s; while [ -e /proc/%s ]; do sleep 0.1; done; rm -f /run/criu.socket" % (pid, pid))


def test_removal(fresh):
    cluster, node = fresh
    before = node.ask(LOOK)
    done = cluster.role("node2", "criu", criu_state="absent")
    assert done.code == 0 and '"changed": true' in done.out, done.out
    assert node.ask("ls -d /opt/criu 2> /dev/null; true") == ""
    assert node.ask(LOOK) == before
    done = cluster.role("node2", "criu", criu_state="absent")
    assert done.code == 0 and '"changed": true' not in done.out, done.out
    assert passed(cluster.role("node2", "criu"))


FOO = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
RELEASED = "29ec0ee09e296479fe7048c80980e8ef1d0684d0b0204c2b101dfea19f6725b9"
NOWHERE = "http://127.0.0.1:9/criu.tar.gz"
CORRECT = "; correct criu_source or criu_version; nothing was built."


@pytest.mark.parametrize("name, variables, sentence", [
    ("foo", {}, "criu_source {0}/foo has checksum %s, but a released one has %s; fetch the file again, or set criu_source_checksum if "
     "this is the file that you want; nothing was built." % (FOO, RELEASED)),
    ("foo", {"criu_source_checksum": "sha256:1234"}, "criu_source {0}/foo has checksum %s, but criu_source_checksum is 1234; fetch the "
     "file again, or correct the checksum; nothing was built." % FOO),
    ("foo", {"criu_version": "9.9"}, "criu_source {0}/foo cannot be unpacked (tar: This does not look like a tar archive)" + CORRECT),
    ("other.tar.gz", {"criu_version": "9.9"}, "criu_source {0}/other.tar.gz is no CRIU" + CORRECT),
    ("real", {"criu_version": "9.9"}, "criu_source {0}/real is CRIU 4.2.1, but criu_version is 9.9" + CORRECT),
    ("none", {}, "criu_source {0}/none is not a file on the controller; put the tarball there or name a URL; nothing was built."),
    ("", {"criu_source": NOWHERE}, "node2: criu_source %s is an address, what comes from there restores jobs, and criu_source_checksum "
     "is not set; download it once, check it, and set criu_source_checksum to what sha256sum prints; nothing was changed." % NOWHERE),
    ("", {"criu_source": NOWHERE, "criu_source_checksum": "sha256:" + 64 * "0"}, "criu_source %s cannot be downloaded (Request failed: "
     "<urlopen error [Errno 111] Connection refused>); correct criu_source or criu_source_checksum, or put the tarball on the controller "
     "and name its path in criu_source; nothing was built." % NOWHERE),
])
def test_source_that_cannot_be_built(fresh, tmp_path, name, variables, sentence):
    cluster, node = fresh
    (tmp_path / "foo").write_text("foo")
    (tmp_path / "real").symlink_to(json.loads(pathlib.Path(cluster.inventory).read_text())["all"]["vars"]["criu_source"])
    with tarfile.open(str(tmp_path / "other.tar.gz"), "w:gz") as archive:
        archive.add(__file__, "other/README")
    look = "ls -l /opt/criu 2> /dev/null; ls -d /opt/another /var/tmp/criu-build.* 2> /dev/null; true"
    before = node.ask(look)
    done = cluster.role("node2", "criu", **dict({"criu_source": str(tmp_path / name), "criu_install_method": "artifact",
                                                 "criu_cache": str(tmp_path / "cache"), "criu_prefix": "/opt/another"}, **variables))
    refusal(done, sentence.format(tmp_path))
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    assert node.ask(look) == before


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
