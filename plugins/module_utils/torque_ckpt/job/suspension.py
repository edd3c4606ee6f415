"""A job that a checkpoint hook has stopped continues when that hook fails, even if all of the hook was killed.

For a hold the tree is stopped from the image until it is killed. Root's
record names the hook that stopped it; should that be killed with all its
parts, the job's leader or the next hook finds the record of a dead hook.
"""
import contextlib
import os
import signal
import time

from ..errors import HookError, SYSTEM
from ..system import privilege, processes
from .records import HOLDING

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Iterator
    from .records import Records

PAUSE = 2
"""How often a leader checks whether its stopped job was left behind (seconds)."""


def write_note(records: "Records", suspended: "list[int]") -> None:
    """Write the note that this hook is about to stop the job.

    :param suspended: what its user had stopped before (pids); stays so
    :raises HookError: SYSTEM
    """
    try:
        records.write(HOLDING, {"hook": processes.get_mark(), "suspended": suspended})
    except OSError as error:
        raise HookError(SYSTEM, "cannot write %s: %s; the job keeps running; see to that file system"
                        % (records.get_path(HOLDING), error.strerror))


def remove_note(records: "Records") -> None:
    """Remove the note."""
    records.drop(HOLDING)


def wait_for_engine(timeout: float) -> None:
    """As a child subreaper: wait until an engine has ended whose caller was killed; it would stop the job once more.

    :param timeout: how long it may take until it is killed (seconds)
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > deadline:
                processes.signal_processes(processes.list_family(processes.read_self())[1:], signal.SIGKILL)
            time.sleep(0.01)


@contextlib.contextmanager
def guard_job(records: "Records", root: processes.Process, engine: "Any", timeout: float,
              before_resume: "Callable[[], None]") -> "Iterator[list[int]]":
    """Give what the job's user had stopped (pids) to a body in which an engine stops the job; whatever fails there resumes it.

    To be used by a child subreaper. Root's record stays until remove_note(): that of an engine which was too slow stays for good if the
    engine may still stop the job later.

    :param root: its root process
    :param engine: engines.base.Engine
    :param timeout: how long it may take (seconds)
    :param before_resume: called after a failure, before the job is resumed
    """
    suspended, started = processes.list_stopped(root.pid), time.monotonic()  # by qsig -s suspend, say
    try:
        write_note(records, suspended)
        yield suspended
    except BaseException:
        wait_for_engine(timeout)
        before_resume()
        processes.resume_tree(root, suspended)
        if not (engine.stops_late and time.monotonic() - started > timeout):
            remove_note(records)
        raise


@contextlib.contextmanager
def resume_on_failure(root: processes.Process, suspended: "list[int]") -> "Iterator[None]":
    """As the user: resume the job under root when the body of the with statement fails.

    :param suspended: what its user had stopped before (pids); stays so
    """
    try:
        yield
    except BaseException:
        processes.resume_tree(root, suspended)
        raise


def kill_tree(root: processes.Process, user: privilege.User) -> None:
    """Kill the stopped tree under root of a job's owner, children first. As root.

    If a parent dies first, the kernel resumes its stopped children (SIGHUP, SIGCONT), and one that ignores SIGHUP does things that
    are not in the image.
    """
    def kill_processes() -> None:
        processes.signal_processes(reversed(processes.list_owned(root)), signal.SIGKILL)
    if processes.has_pidfds():
        kill_processes()
    else:  # a pid may be another process's at that very moment; the user can harm nobody but himself
        privilege.as_user(user, kill_processes)


def resume_abandoned_job(records: "Records", root: int, handled: "list[int] | None" = None) -> "list[int] | None":
    """Resume a job that a dead hook has left stopped.

    :param root: pid of its root process
    :param handled: what an earlier call returned; that hook's note is not handled again
    :returns: the dead hook ([pid, start]) or what was given
    """
    note = records.read(HOLDING)
    process = processes.read_process(root)
    if not note or note["hook"] == handled or processes.is_alive(note["hook"]) or process is None:
        return handled
    processes.resume_tree(process, note["suspended"])
    return note["hook"]
