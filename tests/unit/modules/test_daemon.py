"""daemon: processes that execute themselves anew at a signal. The rest of the module is shown with a real systemd."""
import os
import subprocess
import sys
import threading
import time

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


@pytest.mark.parametrize("what, failure", [
    ("os.execve(sys.executable, [sys.executable, '-c', 'import signal; signal.pause()'], {'RENEWED': '1'})", ""),
    ("pass", "did not execute itself anew within 1 seconds after SIGWINCH")])
def test_daemon_that_is_to_execute_itself_anew(start, monkeypatch, what, failure):
    monkeypatch.setattr(daemon, "PATIENCE", 1.0 if failure else 60.0)
    process = start(what)
    pid = str(process.pid)
    assert daemon.renew(pid, "SIGWINCH") == failure
    assert (daemon.read_process(pid, "environ") == "RENEWED=1\0") is (failure == "")


def test_daemon_that_ends_at_the_signal(start):
    process = start("os._exit(0)")
    reaper = threading.Thread(target=process.wait)
    reaper.start()
    assert daemon.renew(str(process.pid), "SIGWINCH") == "ended at SIGWINCH"
    reaper.join()


def test_file_that_is_written_while_a_daemon_reads_is_read_again(tmp_path):
    """The moment that counts is the one before it was asked to."""
    marker, config = str(tmp_path / "reloaded"), str(tmp_path / "config")
    asked = time.time() - 5
    open(config, "w").close()
    daemon.mark_read(marker, asked)
    assert daemon.daemon.find_newer([config], os.stat(marker).st_mtime) == [config]


def test_daemon_that_is_gone(start):
    process = start("pass")
    process.kill()
    process.wait()
    assert daemon.renew(str(process.pid), "SIGWINCH") == "could not be sent SIGWINCH: No such process"
    assert daemon.read_process(str(process.pid), "environ") == ""
