import ctypes
import os
import signal
import subprocess
import sys

import pytest

import torque_ckpt
from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.system import privilege, processes

NEW_MOUNTS = 0x20000
"""CLONE_NEWNS"""
THREADS = """
import os, sys, threading
def work():
    pid = os.fork()
    if pid == 0:
        sys.stdin.read()
        os._exit(0)
    print(pid)
    sys.stdout.flush()
    finish.wait()
finish = threading.Event()
threading.Thread(target=work).start()
sys.stdin.read()
finish.set()
"""


def ticks():
    with open("/proc/uptime") as stream:
        return float(stream.read().split()[0]) * os.sysconf("SC_CLK_TCK")


@pytest.fixture
def threaded():
    """A process (Popen) with two threads, of which not the first has a child; .child is its pid."""
    process = subprocess.Popen([sys.executable, "-IS", "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.child = int(process.stdout.readline())
    yield process
    process.stdout.close()
    process.stdin.close()
    process.wait()


def test_process_tells_what_the_kernel_knows(start_job):
    job = start_job()
    me, leader, shell = (processes.read_process(pid) for pid in (os.getpid(), job.leader, job.pids[0]))
    assert (me.pid, me.ppid, me.session, me.uid) == (os.getpid(), os.getppid(), os.getsid(0), os.getuid())
    assert (leader.pid, leader.ppid, leader.session) == (job.leader, os.getpid(), job.leader)
    assert (shell.pid, shell.ppid, shell.session, shell.uid, shell.name) == (job.pids[0], job.leader, job.leader, os.getuid(), "sh")
    assert 0 < me.start <= leader.start <= shell.start <= ticks() + 1


@pytest.mark.parametrize("name", [b"a b", b"a) R 1 1 (b", b")", b"((", b"1 2 3", b"a\nb"])
def test_process_with_a_misleading_name(in_child, name):
    def work():
        before = processes.read_process(os.getpid())
        with open("/proc/self/comm", "wb") as stream:
            stream.write(name)
        after = processes.read_process(os.getpid())
        return [after.name, after._replace(name=before.name, state=before.state) == before]
    assert in_child(work).result == [name.decode(), True]


def test_process_with_a_name_that_is_no_text(in_child):
    def work():
        with open("/proc/self/comm", "wb") as stream:
            stream.write(b"a\xffb")
        return processes.read_process(os.getpid()).name
    assert in_child(work).result == "a\ufffdb"


@pytest.mark.root
def test_process_that_proc_hides_may_be_alive(in_child, somebody, free_pid):
    """Where /proc is mounted with hidepid a user sees nobody else's: a job's leader must not take root's hook for dead."""
    mark = processes.get_mark()

    def work():
        assert ctypes.CDLL(None).unshare(NEW_MOUNTS) == 0
        subprocess.check_call(["mount", "--make-rprivate", "/"])
        subprocess.check_call(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"])
        os.setgroups([])
        os.setgid(somebody.gid)
        os.setuid(somebody.uid)
        return [processes.read_process(mark[0]), processes.is_alive(mark), processes.is_alive([free_pid, 1])]
    assert in_child(work).result == [None, True, False]


@pytest.mark.parametrize("pid", [1 << 22, 1 << 31, 1 << 100])
def test_mark_that_somebody_made_up(pid):
    assert not processes.is_alive([pid, 1])


def test_there_is_no_process(free_pid):
    assert processes.read_process(free_pid) is None


def test_process_that_is_stopped_and_then_a_zombie(start_job, state_of, wait_until):
    pid = start_job().pids[0]
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: state_of(pid) == "Z")


def test_uid_of_a_process_that_is_not_dumpable(in_child, somebody):
    """Its files in /proc are root's, but it is not."""
    libc = ctypes.CDLL(None)

    def work():
        privilege.become_user(somebody)
        libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
        return [os.stat("/proc/%d/environ" % os.getpid()).st_uid, processes.read_process(os.getpid()).uid]
    assert in_child(work).result == [0, somebody.uid]


def test_children_of_the_leader_are_its_own_only(start_job):
    one, other = start_job(programs=["/bin/sh"] * 3), start_job()
    assert sorted(processes.list_children(one.leader)) == sorted(one.pids)
    assert processes.list_children(other.leader) == other.pids
    assert processes.list_children(other.pids[0]) == []


def test_children_of_a_thread_that_is_not_the_first(threaded):
    assert processes.list_children(threaded.pid) == [threaded.child]


def test_children_of_nobody(free_pid):
    assert processes.list_children(free_pid) == []


def test_tree_has_all_descendants_parents_first(in_child):
    def work():
        reader, writer = os.pipe()
        pids = [os.getpid()]
        if os.fork() == 0:
            if os.fork() == 0:
                if os.fork() == 0:
                    os.write(writer, b"x")
                os.read(reader, 0)
            signal.pause()
        os.read(reader, 1)
        for _generation in range(3):
            with open("/proc/%d/task/%d/children" % (pids[-1], pids[-1])) as stream:
                pids.extend(int(pid) for pid in stream.read().split())
        return [pids, processes.list_tree(os.getpid()), processes.list_tree(pids[2])]
    pids, tree, branch = in_child(work).result
    assert len(pids) == 4
    assert tree == pids
    assert branch == pids[2:]


def test_tree_of_two_branches_has_all(start_job):
    job = start_job(programs=["/bin/sh"] * 3)
    tree = processes.list_tree(job.leader)
    assert tree[0] == job.leader
    assert sorted(tree[1:]) == sorted(job.pids)


def test_mark(start_job, free_pid):
    process = processes.read_process(start_job().pids[0])
    assert processes.get_mark(process) == [process.pid, process.start]
    assert processes.get_mark() == processes.get_mark(processes.read_process(os.getpid()))
    assert processes.find_marked([process.pid, process.start]).pid == process.pid
    assert processes.find_marked([process.pid, process.start + 1]) is None
    assert processes.find_marked([free_pid, 1]) is None


def test_children_in_spite_of_a_thread_that_just_ended(start_job, monkeypatch):
    job, real = start_job(), os.listdir
    monkeypatch.setattr(processes.os, "listdir", lambda path: ["4194304"] + real(path))
    assert processes.list_children(job.leader) == job.pids


REUSED = """
import os, signal, sys
sys.path.insert(0, {hooks!r})
from torque_ckpt.system import processes

def sleeper():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid

def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

if {plain!r}:
    processes._open_pidfd = lambda pid: None
before = sleeper()
mark = processes.get_mark(processes.read_process(before))
for _turn in range(5):  # a tick of the clock later, so that the start time differs
    signal.sigtimedwait([], 0.02)
end(before)
with open("/proc/sys/kernel/ns_last_pid", "w") as stream:
    stream.write(str(before - 1))
victim = sleeper()
assert victim == before, (victim, before)
processes.send_signal(mark, signal.SIGKILL)
signal.sigtimedwait([], 0.05)
print(processes.read_process(victim).state)
processes.send_signal(processes.get_mark(processes.read_process(victim)), signal.SIGKILL)
print(os.waitpid(victim, 0)[1])
"""


@pytest.mark.root
@pytest.mark.parametrize("plain", [False, True])
def test_signal_does_not_reach_who_has_the_number_by_now(plain):
    """With the kernel's handles, and on a kernel that has none."""
    hooks = os.path.dirname(os.path.dirname(os.path.abspath(torque_ckpt.__file__)))
    done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", REUSED.format(hooks=hooks, plain=plain)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "S\n9\n", "")


def test_signal_by_the_systems_own_calls(start_job, monkeypatch, wait_until, state_of):
    """Python before 3.9 knows no such calls."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.delattr(signal, "pidfd_send_signal", raising=False)
    pid = start_job().pids[0]
    pair = processes.get_mark(processes.read_process(pid))
    processes.send_signal(pair, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T")
    processes.send_signal([pid, pair[1] + 1], signal.SIGCONT)
    assert state_of(pid) == "T"


def test_signal_to_nobody(free_pid):
    processes.send_signal([free_pid, 1], signal.SIGKILL)


@pytest.mark.skipif(not processes.has_pidfds(), reason="the kernel has no handles of processes (before 5.3)")
def test_signal_leaves_no_descriptor(start_job):
    pair = processes.get_mark(processes.read_process(start_job().pids[0]))
    before = os.listdir("/proc/self/fd")
    processes.send_signal(pair, signal.SIGCONT)
    assert processes.has_pidfds() and os.listdir("/proc/self/fd") == before


def test_family_is_the_tree(start_job):
    job = start_job(programs=["/bin/sh"] * 2)
    family = processes.list_family(processes.read_process(job.leader))
    assert [member.pid for member in family] == processes.list_tree(job.leader)
    assert [member.ppid for member in family[1:]] == [job.leader] * 2


def test_family_of_a_process_that_has_gone(start_job):
    """Who has its number by now has children of its own."""
    leader = processes.read_process(start_job().leader)
    gone = leader._replace(start=leader.start - 1)
    assert processes.list_family(gone) == [gone]


def test_this_process(monkeypatch):
    assert processes.read_self().pid == os.getpid()
    monkeypatch.setattr(processes, "read_process", lambda _pid: None)
    with pytest.raises(HookError) as caught:
        processes.get_mark()
    assert (caught.value.code, str(caught.value)) == (
        errors.SYSTEM, "this process cannot be read in /proc; mount /proc on this node and try again")


def test_alive():
    process = subprocess.Popen(["sleep", "60"])
    mark = processes.get_mark(processes.read_process(process.pid))
    assert processes.is_alive(mark)
    assert not processes.is_alive([mark[0], mark[1] - 1])
    process.kill()
    assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_alive(mark)  # it has ended, and nobody has waited for it
    process.wait()
    assert not processes.is_alive(mark)


def test_stopped_by_a_debugger():
    """It is the debugger that continues it."""
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).ptrace(0, 0, 0, 0)  # PTRACE_TRACEME
        os.kill(os.getpid(), signal.SIGUSR1)
        os._exit(0)
    try:
        os.waitpid(pid, 0)
        assert processes.list_stopped(pid) == [pid]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
