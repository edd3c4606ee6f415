"""Virtual machines as a cluster: what is built for them elsewhere, and a store that two of them share."""
import contextlib
import os

import pytest
from cluster import GROUP, STORE, Cluster, hosts

PROGRAM = "guests.py"
SECONDS = 240
"""What a job may take in an emulated machine, and beside other work."""


@contextlib.contextmanager
def machines():
    """The group's machines, new ones and removed afterwards without CKPT_TORQUE_KEEP; jobs.py submits at node1, the server."""
    keep = os.environ.get("CKPT_TORQUE_KEEP")
    if not keep:
        hosts("down", GROUP, program=PROGRAM)
    guests = Cluster(GROUP, PROGRAM)
    guests.nodes["head"] = guests.nodes["node1"]
    try:
        yield guests
    finally:
        if not keep:
            hosts("down", GROUP, program=PROGRAM)


def build(host, role):
    """Have what a role builds built for the guests, in a container of their release: an emulated compiler takes hours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CKPT_TORQUE_SUITE", os.environ.get("CKPT_TORQUE_GUEST_SUITE", "trixie"))
        patch.delenv("CKPT_TORQUE_MEMBERS", raising=False)
        done = Cluster(GROUP + "builder").role(host, role)
    hosts("down", GROUP + "builder")
    assert done.code == 0, done.out


@contextlib.contextmanager
def shared_store(guests):
    """node2 has the store of node1, by NFS, after a boot, too."""
    for name, package, command in (("node1", "nfs-kernel-server", "exportfs"), ("node2", "nfs-common", "mount.nfs4")):
        done = guests.nodes[name].run("command -v %s || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq %s; }"
                                      % (command, package), 1200)
        assert done.code == 0, done.err
    guests.nodes["node1"].ask("mkdir -p /etc/exports.d {0} && cd /etc/exports.d && "
                              "echo '{0} *(rw,no_root_squash,no_subtree_check,fsid=1)' > ckpt.exports && exportfs -r".format(STORE))
    guests.nodes["node2"].ask("mkdir -p {0} && echo 'node1:{0} {0} nfs4 defaults 0 0' >> /etc/fstab && mount {0}".format(STORE))
    try:
        yield
    finally:
        guests.nodes["node2"].ask("umount -l {0}; sed -i '/^node1:/d' /etc/fstab".format(STORE))
        guests.nodes["node1"].ask("rm /etc/exports.d/ckpt.exports; exportfs -r")
