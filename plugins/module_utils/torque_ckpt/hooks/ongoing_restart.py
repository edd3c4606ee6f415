"""Waits for a restart of the same job: pbs_mom takes a job for running as soon as it has started the restart hook.

A checkpoint that is asked for before the job is back would find no process of it; a hold would be refused and forgotten.
"""
import os
import time

from .. import phases
from ..job import identity, lock
from ..job.records import FAILED
from ..system import processes

MYPY = False  # true for the type checker alone
if MYPY:
    from ..job.records import Records
    from .preflight import Job

PATIENCE = 2
"""How long a hook that pbs_mom has just started may go unseen: it has no name before its execve (seconds)."""

_PAUSE = 0.05

_PROGRAM = "restart"


def find_restart_hook(program: str, job_id: str) -> "processes.Process | None":
    """Return the Process of a restart hook of this job on this node, or None. One of another user's is none.

    :param program: its path
    """
    program_bytes, job_id_bytes = os.fsencode(program), os.fsencode(job_id)
    for pid in processes.list_pids():
        arguments = processes.read_arguments(pid)
        if program_bytes in arguments and arguments[arguments.index(program_bytes) + 2:][:1] == [job_id_bytes]:
            process = processes.read_process(pid)
            if process and process.uid == os.getuid() and process.state not in "ZX":
                return process
    return None


def read_note(records: "Records") -> "dict | None":
    """Return the note ("hook", "name") that a restart hook left whose restart has failed and who still waits, or None."""
    note = records.read(FAILED)
    return note if note and processes.find_marked(note["hook"]) else None


def _is_back(job: "Job") -> bool:
    """Whether the job's root process can be found, or its restart has failed and waits for this hook."""
    root = identity.find_candidate(job.records, job.call.session_id)
    return bool(root and identity.read_job_id(root.pid) == job.call.job_id or read_note(job.records))


def _wait_for_restart(job: "Job") -> None:
    program = os.path.join(os.path.dirname(job.hook), _PROGRAM)
    hook, started = None, time.monotonic()
    while not _is_back(job):
        if hook is None or not processes.is_alive(processes.get_mark(hook)):  # to look at all processes each time would cost a busy node
            hook = find_restart_hook(program, job.call.job_id)
        waited = time.monotonic() - started
        if hook is None and waited > PATIENCE:
            return
        if hook is not None and waited > job.settings["lock_timeout"]:
            raise lock.build_error("a restart (process %d)" % hook.pid, job.call.job_id, job.settings["lock_timeout"], "nothing was done")
        time.sleep(_PAUSE)


def wait_until_back(job: "Job") -> None:
    """Wait until the job is back, or no restart hook is at work on it. Not to be called with the job's lock: that hook needs it.

    :raises HookError: TEMPORARY when that takes longer than the setting lock_timeout
    """
    if not _is_back(job):  # a call that does not wait has no such phase
        with phases.measure("wait"):
            _wait_for_restart(job)
