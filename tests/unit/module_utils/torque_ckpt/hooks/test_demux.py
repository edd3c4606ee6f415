import os
import socket
import subprocess
import sys

import pytest
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt import errors
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.errors import HookError
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.hooks import demux

LISTEN = """\
import socket, sys
with open("/proc/self/comm", "w") as stream:
    stream.write(sys.argv[1])
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(5)
print(listener.getsockname()[1], flush=True)
connections = [listener.accept()[0] for _number in range(%d)]
print("accepted", flush=True)
for connection in connections:
    while connection.recv(10):
        pass
    connection.close()
input()
"""
"""Accepts so many connections, reads each to its end, and stays."""


@pytest.fixture
def start():
    """start(accepted, name="pbs_demux"): a child of that name that takes so many connections; returns its port and the Popen."""
    running = []

    def start(accepted, name="pbs_demux"):
        process = subprocess.Popen([sys.executable, "-c", LISTEN % accepted, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        running.append(process)
        return int(process.stdout.readline()), process
    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_no_demux(start):
    port, _process = start(0, "other")
    with socket.create_connection(("127.0.0.1", port)):
        demux.wait_for_output(os.getpid())


def test_all_is_read(start):
    port, process = start(2)
    for _number in range(2):
        socket.create_connection(("127.0.0.1", port)).close()
    demux.wait_for_output(os.getpid())
    assert process.stdout.readline() == b"accepted\n"


@pytest.mark.parametrize("accepted, source", [(1, "127.0.0.1"), (0, "a new connection")])
def test_process_that_still_prints(start, monkeypatch, accepted, source):
    monkeypatch.setattr(demux, "_SECONDS", 0)
    port, process = start(accepted)
    with socket.create_connection(("127.0.0.1", port)):
        if accepted:
            process.stdout.readline()
        with pytest.raises(HookError) as caught:
            demux.wait_for_output(os.getpid())
    assert caught.value.code == errors.REFUSED
    assert str(caught.value) == (
        "processes of the job that are in no image still print by pbs_demux (process %d; from %s), though ckpt-run's program has ended; "
        "the job keeps running; have ckpt-run start a program that ends when it has ended on all nodes" % (process.pid, source))
