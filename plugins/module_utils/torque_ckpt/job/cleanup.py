"""Nothing is left of a restart whose hook was killed.

The engine restores the job's processes before root's record of them is
written. If a hook is killed in between, pbs_mom ends only the processes of its
session; the others would keep running, and run twice after the next restart.
A process of root's outside of that session ends them.
"""
import contextlib
import os
import select
import signal
import time

from ..errors import HookError
from ..system import processes
from . import identity

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterator

_PAUSE = 0.1
"""How soon it sees that the hook has ended, and how long it waits between two searches for what is left (seconds)."""

_SEARCHES = 600
"""How often it searches at most: a process that waits for a file system cannot be ended."""


def _is_restored(member: processes.Process, uid: int, job_id: str, session: int, since: int) -> bool:
    """Whether a process came back with the hook: it is its user's, of this session or this job, and started since then (clock ticks)."""
    if member.uid != uid or member.start < since or member.state in "ZX":
        return False
    try:
        return member.session == session or identity.read_job_id(member.pid) == job_id
    except HookError:  # its environment is too long to be read
        return False


def _end_restored_processes(uid: int, job_id: str, session: int, since: int) -> None:
    """End what came back, until two searches find nothing."""
    empty = 0
    for _attempt in range(_SEARCHES):
        members = [member for member in map(processes.read_process, processes.list_pids())
                   if member and _is_restored(member, uid, job_id, session, since)]
        for member in members:
            processes.send_signal(processes.get_mark(member), signal.SIGKILL)
        empty = 0 if members else empty + 1
        if empty == 2:
            return
        time.sleep(_PAUSE)


def _watch_hook(reader: int, hook: "list[int]", job_id: str, uid: int) -> None:
    """Wait for a byte from the hook; end what it restored if it ends without one."""
    _pid, since = processes.get_mark()
    while True:
        is_alive = processes.is_alive(hook)
        if select.select([reader], [], [], _PAUSE)[0]:
            if os.read(reader, 1):
                return
            is_alive = False
        if not is_alive:
            _end_restored_processes(uid, job_id, hook[0], since)
            return


@contextlib.contextmanager
def guard_restart(job_id: str, uid: int) -> "Iterator[None]":
    """Have the processes that the body of the with statement restores ended if this process is killed in it. To be used by root.

    :param job_id: the job's
    :param uid: its owner's
    """
    hook = processes.get_mark()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(writer)
            if os.fork() == 0:  # the child of another: the hook takes each child of its own for the job's
                os.setsid()
                _watch_hook(reader, hook, job_id, uid)
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
