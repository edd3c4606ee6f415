"""The session leader of a job: what run and restart have in common.

The leader stays outside the image. It waits for the job's root process,
forwards signals and ends as the root process ended.
"""
import os
import resource
import signal

from ..system import processes
from ..torque import names
from . import suspension

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterable, NoReturn
    from .records import Records

# What a job's leader may be sent and should forward. STOP, KILL and CONT act by themselves;
# TTIN, TTOU and CHLD concern the leader alone.
FORWARDED = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM,
             signal.SIGALRM, signal.SIGXCPU, signal.SIGVTALRM, signal.SIGPROF, signal.SIGWINCH, signal.SIGTSTP}
WATCHED = FORWARDED | {signal.SIGCHLD}


def block_signals(others: "Iterable[signal.Signals]" = ()) -> None:
    """Hold signals back, and these others, until supervise_job() reads them. Call before the first child is created."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, the kernel would throw the job's status away
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED.union(others))


def is_from_mom(sender: int) -> bool:
    """Whether the process sender (pid) is pbs_mom, which signals every process of the session itself."""
    try:
        with open("/proc/%d/comm" % sender, "rb") as stream:
            return stream.read().strip() == names.MOM.encode()
    except OSError:
        return False


def _wait_for_signal(root: int, records: "Records", handled: "list[int] | None") -> "tuple[signal.struct_siginfo, list[int] | None]":
    """Wait for a signal; return it, and what suspension.resume_abandoned_job returned.

    While the job is stopped, check whether a dead hook has left it so.
    """
    while getattr(processes.read_process(root), "state", "") == "T":
        info = signal.sigtimedwait(WATCHED, suspension.PAUSE)
        if info is not None:
            return info, handled
        handled = suspension.resume_abandoned_job(records, root, handled)
    return signal.sigwaitinfo(WATCHED), handled


def supervise_job(root: int, records: "Records") -> int:
    """Wait for the child root (pid), forward signals meanwhile; return its wait status."""
    parent, handled = os.getppid(), None
    while True:
        while True:  # SIGCHLD may stand for several children, or have come before we waited
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 0
            if pid == 0:
                break
            if pid == root:
                return status
        info, handled = _wait_for_signal(root, records, handled)
        # A second delivery would run the job's handler twice.
        if info.si_signo in FORWARDED and info.si_pid != parent and not is_from_mom(info.si_pid):
            try:
                os.kill(root, info.si_signo)
            except ProcessLookupError:
                pass


def end_as(status: int) -> "NoReturn":
    """End this process as the job ended, by its wait status, so that pbs_mom sees the job's own end."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))
