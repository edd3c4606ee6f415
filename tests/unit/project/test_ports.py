"""What keeps TORQUE's daemons from their ports is said by name, with real sockets."""
import os
import pathlib
import socket
import subprocess
import sys

import pytest

SCRIPT = str(pathlib.Path(__file__).resolve().parents[3] / "roles/torque_build/files/ports.sh")

pytestmark = pytest.mark.root


def result_of(*arguments, before=()):
    """Return the script's exit status and what it said."""
    done = subprocess.run([*before, "sh", SCRIPT, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, check=False)
    return done.returncode, done.stdout


def listener(family=socket.AF_INET, address=""):
    """Return a socket that listens on a port of its own."""
    server = socket.socket(family, socket.SOCK_STREAM)
    server.bind((address, 0))
    server.listen()
    return server


def taken(port, daemon="pbs_mom"):
    return 69, "port %d, which %s needs, is taken by %s (process %d); stop that program\n" % (
        port, daemon, os.path.realpath(sys.executable), os.getpid())


@pytest.mark.parametrize("family, address", [(socket.AF_INET, ""), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")],
                         ids=["every address", "one address", "IPv6"])
def test_port_that_is_taken(family, address):
    with listener(family, address) as server:
        port = server.getsockname()[1]
        assert result_of("pbs_mom", port) == taken(port)
    assert result_of("pbs_mom", port) == (0, "")


def test_second_of_two_ports():
    with listener() as server:
        port = server.getsockname()[1]
        assert result_of("pbs_server", 1, "pbs_sched", port) == taken(port, "pbs_sched")


def test_connection_takes_no_port():
    """A client's, or one that a server which is gone had accepted."""
    with listener() as server, socket.create_connection(server.getsockname()) as client:
        assert result_of("pbs_mom", client.getsockname()[1]) == (0, "")


def test_root_without_the_capability():
    code, words = result_of("pbs_mom", 1, before=("setpriv", "--bounding-set=-net_bind_service"))
    assert (code, words) == (69, "root may not use ports below 1024 here (CAP_NET_BIND_SERVICE is missing), and TORQUE proves by them that "
                             "it is root; give that capability back\n")
