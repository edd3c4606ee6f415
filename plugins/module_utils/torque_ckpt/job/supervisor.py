"""Living as the session leader of a job: what run and restart have in common.

The leader stays outside the image. It waits for the job's root process,
hands on signals and ends as the root process ended.
"""
import os
import resource
import signal

from ..system import processes
from ..torque import names
from . import suspension

# What a job's leader may be sent and should hand on. STOP, KILL and CONT act by themselves;
# TTIN, TTOU and CHLD concern the leader alone.
_HANDED_ON = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM,
              signal.SIGALRM, signal.SIGXCPU, signal.SIGVTALRM, signal.SIGPROF, signal.SIGWINCH, signal.SIGTSTP}
_WATCHED = _HANDED_ON | {signal.SIGCHLD}


def block_signals():
    """Hold signals back until supervise() looks at them. Call before the first child is made."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, the kernel would throw the job's status away
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)


def _from_mom(sender, parent):
    """Whether the process sender (pid) is pbs_mom, which signals every process of the session itself."""
    if sender == parent:
        return True
    try:
        with open("/proc/%d/comm" % sender, "rb") as stream:
            return stream.read().strip() == names.MOM.encode()
    except OSError:
        return False


def _next_signal(root, records, healed):
    """Wait for a signal; return it (siginfo), and what suspension.heal says.

    While the job stands still, look whether a hook that is dead has left it so.
    """
    while getattr(processes.read_process(root), "state", "") == "T":
        found = signal.sigtimedwait(_WATCHED, suspension.PAUSE)
        if found is not None:
            return found, healed
        healed = suspension.heal(records, root, healed)
    return signal.sigwaitinfo(_WATCHED), healed


def supervise(root, records):
    """Wait for the child root (pid), hand on signals meanwhile; return its wait status (int).

    :param records: records.Records of the job
    """
    parent, healed = os.getppid(), None
    while True:
        while True:  # SIGCHLD may stand for several children, or have come before we looked
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 0
            if pid == 0:
                break
            if pid == root:
                return status
        found, healed = _next_signal(root, records, healed)
        # A second delivery would run the job's handler twice.
        if found.si_signo in _HANDED_ON and not _from_mom(found.si_pid, parent):
            try:
                os.kill(root, found.si_signo)
            except ProcessLookupError:
                pass


def end_as(status):
    """End this process the way wait status (int) says the job ended, so that pbs_mom sees the job's own end."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))
