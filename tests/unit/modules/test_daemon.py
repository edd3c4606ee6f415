"""daemon: processes that execute themselves anew at a signal. The rest of the module is shown with a real systemd."""
import subprocess
import sys

import pytest

from ansible_collections.ckpt.torque.plugins.modules import daemon

ANEW = """
import os, signal, sys
def renew(*_arguments):
    {0}
signal.signal(signal.SIGWINCH, renew)
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def start():
    """Return a function that starts a daemon which does this at the signal (str); it returns its process."""
    processes = []

    def start(what):
        processes.append(subprocess.Popen([sys.executable, "-c", ANEW.format(what)], stdout=subprocess.PIPE))
        assert processes[-1].stdout.readline() == b"ready\n"
        return processes[-1]
    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("what, wanted", [
    ("os.execve(sys.executable, [sys.executable, '-c', 'import signal; signal.pause()'], {'RENEWED': '1'})", True), ("pass", False),
    ("os._exit(0)", False)])
def test_daemon_that_is_to_execute_itself_anew(start, monkeypatch, what, wanted):
    monkeypatch.setattr(daemon, "PATIENCE", 60.0 if wanted else 1.0)
    process = start(what)
    pid = str(process.pid)
    assert daemon.renew(pid, "SIGWINCH") is wanted
    assert (daemon.read_process(pid, "environ") == "RENEWED=1\0") is wanted


def test_daemon_that_is_gone(start):
    process = start("pass")
    process.kill()
    process.wait()
    assert daemon.renew(str(process.pid), "SIGWINCH") is False
    assert daemon.read_process(str(process.pid), "environ") == ""
