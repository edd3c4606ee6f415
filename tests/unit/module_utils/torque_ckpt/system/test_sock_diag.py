"""The kernel's list of sockets, and who is connected to an engine's."""
import os
import signal
import socket

import pytest

from torque_ckpt.system import privilege, sock_diag

pytestmark = pytest.mark.root

NAME = b"\0/crtools-pr-"


@pytest.fixture
def listening():
    """A socket as CRIU makes it: its address (bytes), and the listener."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        address = NAME + b"%d-unit" % os.getpid()
        listener.bind(address)
        listener.listen(1)
        yield address, listener


def connect(address, user=None):
    """Have a process connect to an address; return its pid."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if user:
                privilege.become_user(user)
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.connect(address)
            os.write(writer, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 1) == b"x"
    os.close(reader)
    return pid


@pytest.mark.parametrize("who", ["stranger", "owner"])
def test_another_user_is_seen(listening, somebody, who):
    address, listener = listening
    assert sock_diag.find_stranger(NAME) is None
    pid = connect(address, somebody if who == "stranger" else None)
    try:
        accepted = listener.accept()[0]
        assert sock_diag.find_stranger(NAME) == (somebody.uid if who == "stranger" else None)
        accepted.close()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert sock_diag.find_stranger(NAME) is None


def test_other_users_engines_are_not_ours(listening, somebody, in_child):
    address, listener = listening
    pid = connect(address, somebody)
    try:
        accepted = listener.accept()[0]  # noqa: F841 stays open

        def work():
            os.setresuid(somebody.uid + 1, somebody.uid + 1, somebody.uid + 1)
            return sock_diag.find_stranger(NAME)
        assert in_child(work).result is None
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_kernel_that_does_not_tell(listening, monkeypatch):
    monkeypatch.setattr(sock_diag, "_SOCK_DIAG", 31)
    assert sock_diag.find_stranger(NAME) is None


def test_nothing_is_left_open(listening):
    before = os.listdir("/proc/self/fd")
    sock_diag.find_stranger(NAME)
    assert os.listdir("/proc/self/fd") == before
