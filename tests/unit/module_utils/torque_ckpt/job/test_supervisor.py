import os
import resource
import signal

import pytest

from torque_ckpt.job import supervisor
from torque_ckpt.job.records import Records

HANDED_ON = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGALRM", "SIGXCPU", "SIGVTALRM", "SIGPROF", "SIGWINCH",
             "SIGTSTP"]


def exited(code):
    return code << 8


def fork(work):
    """Run work() in a child that exits with what it returns (int); return its pid."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return pid


def first_signal():
    """Wait for a signal; return its number (int)."""
    return signal.sigwaitinfo([getattr(signal, name) for name in HANDED_ON]).si_signo


def gone(pid):
    """Wait until somebody has reaped pid; return True."""
    while os.path.exists("/proc/%d" % pid):
        os.sched_yield()
    return True


def become_named(name):
    with open("/proc/self/comm", "w") as stream:
        stream.write(name)


class Scene:
    """Played by one process, pbs_mom's part: a leader whose root process exits with the number of the first signal it gets."""

    def __init__(self, before=lambda: None):
        ready, self._ready = os.pipe()
        go, self._go = os.pipe()
        self.leader = fork(lambda: self._lead(go, before))
        os.read(ready, 1)

    def _lead(self, go, before):
        supervisor.block_signals()
        root = fork(first_signal)
        before()
        os.write(self._ready, b"x")
        os.read(go, 1)
        status = supervisor.supervise_job(root, Records("/nonexistent", "12.head"))
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 99

    def end(self):
        """Let the leader look at what it was sent; return what the root process got (int)."""
        os.write(self._go, b"x")
        return os.WEXITSTATUS(os.waitpid(self.leader, 0)[1])

    def send(self, number, name=None):
        """Send the leader a signal from another process of this name, which stays there meanwhile."""
        ready, sent = os.pipe()
        never, _never = os.pipe()

        def work():
            if name:
                become_named(name)
            os.kill(self.leader, number)
            os.write(sent, b"x")
            os.read(never, 1)
        fork(work)
        os.read(ready, 1)


# Signals

@pytest.mark.parametrize("name", HANDED_ON)
def test_signal_from_anybody_is_handed_on(in_child, name):
    def work():
        scene = Scene()
        scene.send(getattr(signal, name))
        return scene.end()
    assert in_child(work).result == getattr(signal, name)


# The lower number is looked at first: were it handed on, the root process would end with it.

def test_signal_from_pbs_mom_itself_is_not_handed_on(in_child):
    def work():
        scene = Scene()
        os.kill(scene.leader, signal.SIGUSR1)  # this process is the leader's parent
        scene.send(signal.SIGTERM)
        return scene.end()
    assert in_child(work).result == signal.SIGTERM


def test_signal_from_another_process_of_pbs_mom_is_not_handed_on(in_child):
    def work():
        scene = Scene()
        scene.send(signal.SIGUSR1, "pbs_mom")
        scene.send(signal.SIGTERM, "qsig")
        return scene.end()
    assert in_child(work).result == signal.SIGTERM


@pytest.mark.parametrize("name", ["pbs_mom2", "pbs_mo", "pbs_mom x", "PBS_MOM"])
def test_signal_from_a_process_of_a_similar_name_is_handed_on(in_child, name):
    def work():
        scene = Scene()
        scene.send(signal.SIGUSR1, name)
        return scene.end()
    assert in_child(work).result == signal.SIGUSR1


def test_signal_from_the_kernel_is_handed_on(in_child):
    def work():
        return Scene(lambda: signal.setitimer(signal.ITIMER_REAL, 0.001)).end()
    assert in_child(work).result == signal.SIGALRM


def test_end_of_another_child_is_not_handed_on(in_child):
    def work():
        supervisor.block_signals()
        root = fork(lambda: signal.sigwaitinfo([signal.SIGCHLD, signal.SIGWINCH]).si_signo)
        leader, other = os.getpid(), fork(lambda: 0)
        os.waitid(os.P_PID, other, os.WEXITED | os.WNOWAIT)
        fork(lambda: gone(other) and os.kill(leader, signal.SIGWINCH) or 0)
        return supervisor.supervise_job(root, Records("/nonexistent", "12.head"))
    assert in_child(work).result == exited(signal.SIGWINCH)


def test_signal_for_a_root_that_just_ended_is_nobodys(in_child):
    def work():
        supervisor.block_signals()
        root, leader = fork(lambda: 3), os.getpid()
        os.waitid(os.P_PID, root, os.WEXITED | os.WNOWAIT)
        sender = fork(lambda: os.kill(leader, signal.SIGTERM) or 0)
        os.waitid(os.P_PID, sender, os.WEXITED | os.WNOWAIT)
        return supervisor.supervise_job(root, Records("/nonexistent", "12.head"))
    assert in_child(work).result == exited(3)


def test_block_signals_holds_back_what_is_handed_on_and_the_end_of_children(in_child):
    def work():
        supervisor.block_signals()
        return sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    assert in_child(work).result == sorted(int(getattr(signal, name)) for name in HANDED_ON + ["SIGCHLD"])


# The end of the root process

@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
def test_supervise_returns_the_roots_exit(in_child, code):
    def work():
        supervisor.block_signals()
        return supervisor.supervise_job(fork(lambda: code), Records("/nonexistent", "12.head"))
    assert in_child(work).result == exited(code)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1])
def test_supervise_returns_the_roots_death(in_child, number):
    def work():
        supervisor.block_signals()

        def die():
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.kill(os.getpid(), number)
            return 0
        return supervisor.supervise_job(fork(die), Records("/nonexistent", "12.head"))
    assert in_child(work).result == number


def test_supervise_of_a_root_that_ended_before(in_child):
    def work():
        supervisor.block_signals()
        root = fork(lambda: 5)
        os.waitid(os.P_PID, root, os.WEXITED | os.WNOWAIT)
        signal.sigtimedwait([signal.SIGCHLD], 0)  # its signal is gone, too
        return supervisor.supervise_job(root, Records("/nonexistent", "12.head"))
    assert in_child(work).result == exited(5)


def test_supervise_reaps_others_and_goes_on(in_child):
    def work():
        supervisor.block_signals()
        reader, writer = os.pipe()
        others = [fork(lambda: 7) for _number in range(3)]
        root = fork(lambda: len(os.read(reader, 1)))
        fork(lambda: all(gone(pid) for pid in others) and os.write(writer, b"x") and 0)
        return supervisor.supervise_job(root, Records("/nonexistent", "12.head"))
    assert in_child(work).result == exited(1)


def test_supervise_waits_while_the_root_is_stopped(in_child, state_of, wait_until):
    def work():
        supervisor.block_signals()
        root = fork(lambda: os.kill(os.getpid(), signal.SIGSTOP) or 6)
        fork(lambda: wait_until(lambda: state_of(root) == "T") and os.kill(root, signal.SIGCONT) or 0)
        return supervisor.supervise_job(root, Records("/nonexistent", "12.head"))
    assert in_child(work).result == exited(6)


def test_supervise_without_any_child(in_child, free_pid):
    def work():
        supervisor.block_signals()
        return supervisor.supervise_job(free_pid, Records("/nonexistent", "12.head"))
    assert in_child(work).result == 0


# Ending as it ended

@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_end_as_exits_with_the_same_code(in_child, code):
    assert in_child(lambda: supervisor.end_as(exited(code))).status == exited(code)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGPIPE", "SIGXFSZ", "SIGALRM"])
def test_end_as_dies_of_the_same_signal_though_it_is_blocked_or_ignored(in_child, name):
    number = getattr(signal, name)

    def work():
        supervisor.block_signals()
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_IGN)
        supervisor.end_as(number)
    assert in_child(work).status == number


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGQUIT"])
def test_end_as_leaves_no_core_of_its_own(in_child, tmp_path, name):
    number = getattr(signal, name)

    def work():
        os.chdir(str(tmp_path))
        limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
        supervisor.end_as(number | 0x80)  # the job's own core was dumped
    assert in_child(work).status == number
    assert list(tmp_path.iterdir()) == []


def test_both_together_end_as_the_job(in_child):
    def work():
        supervisor.block_signals()

        def die():
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.kill(os.getpid(), signal.SIGTERM)
        supervisor.end_as(supervisor.supervise_job(fork(die), Records("/nonexistent", "12.head")))
    assert in_child(work).status == signal.SIGTERM


def test_signal_from_a_process_whose_name_is_no_text(in_child):
    def work():
        supervisor.block_signals()
        leader = os.getpid()
        root = os.fork()
        if root == 0:
            os._exit(signal.sigwaitinfo([signal.SIGUSR1]).si_signo)
        if os.fork() == 0:
            with open("/proc/self/comm", "wb") as stream:
                stream.write(b"\xff")
            os.kill(leader, signal.SIGUSR1)
            os._exit(0)
        return supervisor.supervise_job(root, Records("/nonexistent", "12.head"))

    assert in_child(work).result == signal.SIGUSR1 << 8


def test_status_is_not_lost_where_sigchld_was_ignored(in_child):
    def work():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        supervisor.block_signals()
        root = os.fork()
        if root == 0:
            os._exit(3)
        return supervisor.supervise_job(root, Records("/nonexistent", "12.head"))

    assert in_child(work).result == 3 << 8
