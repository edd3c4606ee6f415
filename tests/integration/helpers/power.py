"""Hosts that are turned off, or lose their power, and boot again."""
import time

from cluster import GROUP, hosts
from jobs import BIN


def crash(cluster, name="node1"):
    """Take a host's power away."""
    hosts("podman", "kill", "ckpt-%s-%s" % (GROUP, name))
    cluster.nodes[name].disconnect()


def shut_down(cluster, name):
    """Turn a host off; systemd stops its services."""
    hosts("podman", "stop", "--time", "60", "ckpt-%s-%s" % (GROUP, name))
    cluster.nodes[name].disconnect()


def start(cluster, name="node1", service="pbs_mom"):
    """Boot a host and wait for a service. The container's /etc/hosts is made anew, without the others' names."""
    hosts("podman", "start", "ckpt-%s-%s" % (GROUP, name))
    names = cluster.nodes["node2" if name == "head" else "head"].ask("grep '# ckpt-torque$' /etc/hosts")
    deadline = time.monotonic() + 90
    while cluster.nodes[name].run("grep -q '# ckpt-torque$' /etc/hosts || echo '%s' >> /etc/hosts; systemctl is-active %s"
                                  % (names, service)).code:
        assert time.monotonic() < deadline, "%s of %s does not start" % (service, name)
        time.sleep(0.2)


def free(cluster, node="node1"):
    """Wait until the server takes a node for free."""
    cluster.nodes["head"].ask("for _ in $(seq 300); do %s/pbsnodes %s | grep -q 'state = free' && exit; sleep 0.2; done; exit 1"
                              % (BIN, node))


def missed(cluster, node="node1"):
    """Wait until the server takes a node for down."""
    cluster.nodes["head"].ask("for _ in $(seq 600); do %s/pbsnodes %s | grep -q 'state = .*down' && exit; sleep 0.2; done; exit 1"
                              % (BIN, node))
