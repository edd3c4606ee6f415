import os
import signal
import subprocess
import time

import pytest

from torque_ckpt.job import cleanup
from torque_ckpt.system import processes


@pytest.fixture
def asleep():
    """Start a process in a session of its own, of a job or of none; return its pid."""
    children = []

    def start(job=None):
        children.append(subprocess.Popen(["sleep", "600"], start_new_session=True, env={"PBS_JOBID": job} if job else {}))
        return children[-1].pid
    yield start
    for child in children:
        child.kill()
        child.wait()


def hook(asleep, end, job="12.head"):
    """Have a hook of a job start processes and end; return their pids, of the job and not of it, and its wait status."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        with cleanup.guard_restart(job, os.getuid()):
            member = os.fork()
            if member == 0:
                signal.pause()  # in the hook's session, and it says nothing of a job
            os.write(writer, b"%d %d %d %d" % (member, asleep(job), asleep("13.head"), asleep()))
            end()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    pids = [int(word) for word in os.read(reader, 100).split()]
    os.close(reader)
    os.close(writer)
    return pids, status


def lives(pid):
    process = processes.read_process(pid)
    return process is not None and process.state not in "ZX"


def test_hook_that_is_killed(asleep, wait_until):
    """What it has brought back of its job ends, and nobody else: not what the job had before, neither."""
    before = asleep("12.head")
    time.sleep(0.05)  # a process's start is known to a hundredth of a second
    (member, mine, another, none), status = hook(asleep, lambda: os.kill(os.getpid(), signal.SIGKILL))
    try:
        assert os.WTERMSIG(status) == signal.SIGKILL
        wait_until(lambda: not lives(member) and not lives(mine))
        assert lives(before) and lives(another) and lives(none)
    finally:
        for pid in (another, none):
            os.kill(pid, signal.SIGKILL)


def test_hook_that_comes_through(asleep):
    pids, status = hook(asleep, lambda: None, "14.head")  # the other job's are still being looked for
    try:
        assert status == 0
        time.sleep(5 * cleanup._PAUSE)
        assert [lives(pid) for pid in pids] == [True] * 4
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_hook_takes_no_child_of_it_for_the_jobs(in_child):
    def work():
        with cleanup.guard_restart("15.head", os.getuid()):
            return processes.list_children(os.getpid())
    assert in_child(work).result == []
