"""A job that a checkpoint hook has stopped runs on when that hook fails, also when nobody was left to see to it.

For a hold the tree stands still from the image until it is killed. Root's
record says so, and who stopped it; should the hook be killed with all its
parts, the job's leader or the next hook finds the record of a dead hook.
"""
import contextlib
import os
import signal
import time

from ..errors import HookError, SYSTEM
from ..system import privilege, processes
from .records import HOLDING

PAUSE = 2
"""How often a leader looks whether its stopped job was left behind (seconds)."""


def begin(records, suspended):
    """Note that this hook is about to stop the job.

    :param suspended: what its user had stopped before (pids); stays so
    :raises HookError: SYSTEM
    """
    try:
        records.write(HOLDING, {"hook": processes.get_mark(), "suspended": suspended})
    except OSError as error:
        raise HookError(SYSTEM, "cannot write %s: %s; the job runs on"
                        % (records.path(HOLDING), error.strerror))


def end(records):
    """Remove the note."""
    records.drop(HOLDING)


def wait_for_engine(timeout):
    """As a child subreaper: wait until an engine has ended whose caller was killed; it would stop the job once more.

    :param timeout: how long it may take until it is killed (seconds)
    """
    late = time.monotonic() + timeout
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > late:
                processes.signal_processes(processes.list_family(processes.read_process(os.getpid()))[1:], signal.SIGKILL)
            time.sleep(0.01)


@contextlib.contextmanager
def guarded(records, root, engine, timeout):
    """Give what the job's user had stopped (pids) to a body in which an engine stops the job; whatever fails there sets it going again.

    To be used by a child subreaper. Root's record stays until end(): that of an engine which was too slow for good if it may stop the
    job later still.

    :param root: its root Process
    :param engine: engines.base.Engine
    :param timeout: how long it may take (seconds)
    """
    suspended, started = processes.list_stopped(root.pid), time.monotonic()  # by qsig -s suspend, say
    try:
        begin(records, suspended)
        yield suspended
    except BaseException:
        wait_for_engine(timeout)
        processes.resume_tree(root, suspended)
        if not (engine.stops_late and time.monotonic() - started > timeout):
            end(records)
        raise


@contextlib.contextmanager
def resumed_on_failure(root, suspended):
    """As the user: resume the job under root (Process) when the body of the with statement fails.

    :param suspended: what its user had stopped before (pids); stays so
    """
    try:
        yield
    except BaseException:
        processes.resume_tree(root, suspended)
        raise


def kill(root, user):
    """Kill the stopped tree under root (Process) of a job's owner (privilege.User), children first. As root.

    Where a parent dies first the kernel sets its stopped children going (SIGHUP, SIGCONT), and who ignores SIGHUP does things that
    are not in the image.
    """
    def work():
        processes.signal_processes(reversed(processes.list_owned(root)), signal.SIGKILL)
    if processes.has_pidfds():
        work()
    else:  # a number may be another process's at the very moment; the user can harm nobody but himself
        privilege.as_user(user, work)


def heal(records, root, healed=None):
    """Set a job going again that a dead hook has left stopped.

    :param root: pid of its root process (int)
    :param healed: what an earlier call returned; that hook's work is not looked at again
    :returns: the dead hook ([pid, start]) or what was given
    """
    note = records.read(HOLDING)
    process = processes.read_process(root)
    if not note or note["hook"] == healed or processes.find_marked(note["hook"]) or process is None:
        return healed
    processes.resume_tree(process, note["suspended"])
    return note["hook"]
