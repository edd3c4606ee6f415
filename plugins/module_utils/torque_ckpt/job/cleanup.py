"""Nothing is left of a restart whose hook was killed.

The engine brings the job's processes back before root's record of them is
written. Of a hook that is killed in between, pbs_mom ends the processes of its
session alone; the others would run on, and a second time after the next restart.
A process of root's outside of that session sees to it that they do not.
"""
import contextlib
import os
import select
import signal
import time

from ..errors import HookError
from ..system import processes
from . import identity

_PAUSE = 0.1
"""How soon it sees that the hook is gone, and how long it waits between two looks for what is left (seconds)."""

_LOOKS = 600
"""How often it looks at most: a process that waits for a file system cannot be ended."""


def _came_back(member, uid, job_id, session, since):
    """Whether a Process came back with the hook: it is its user's, of this session or this job, and started since then (clock ticks)."""
    if member.uid != uid or member.start < since or member.state in "ZX":
        return False
    try:
        return member.session == session or identity.read_job_id(member.pid) == job_id
    except HookError:  # its environment is too long to look at
        return False


def _end(uid, job_id, session, since):
    """End what came back, until two looks find nothing."""
    empty = 0
    for _look in range(_LOOKS):
        found = [member for member in map(processes.read_process, map(int, filter(str.isdigit, os.listdir("/proc"))))
                 if member and _came_back(member, uid, job_id, session, since)]
        for member in found:
            processes.send_signal(processes.get_mark(member), signal.SIGKILL)
        empty = 0 if found else empty + 1
        if empty == 2:
            return
        time.sleep(_PAUSE)


def _is_there(hook):
    found = processes.find_marked(hook)
    return found is not None and found.state not in "ZX"


def _watch(reader, hook, job_id, uid):
    """Wait for a word of the hook's; end what it brought back when it ends without one."""
    since = processes.read_process(os.getpid()).start
    while True:
        there = _is_there(hook)
        if select.select([reader], [], [], _PAUSE)[0]:
            if os.read(reader, 1):
                return
            there = False
        if not there:
            _end(uid, job_id, hook[0], since)
            return


@contextlib.contextmanager
def if_killed(job_id, uid):
    """Have what the body of the with statement brings back ended if this process is killed in it. To be used by root.

    :param job_id: the job's (str)
    :param uid: its owner's (int)
    """
    hook = processes.get_mark()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(writer)
            if os.fork() == 0:  # the child of another: the hook takes each child of its own for the job's
                os.setsid()
                _watch(reader, hook, job_id, uid)
        finally:
            os._exit(0)
    os.close(reader)
    os.waitpid(pid, 0)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # somebody has ended it
            os.write(writer, b".")
        os.close(writer)
