import ctypes
import json
import os
import signal
import subprocess
import sys

import pytest

from torque_ckpt import contract, errors, identity, privilege, records
from torque_ckpt.errors import HookError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a process of another user")

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


def call_of(session_id, job_id="12.head", user="alice"):
    return contract.Call(session_id, job_id, user, None, "/shared/ckpt/12.head.CK", "ckpt.12.head.1", 15, None)


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
    me, leader, shell = (identity.process(pid) for pid in (os.getpid(), job.leader, job.pids[0]))
    assert (me.pid, me.ppid, me.session, me.uid) == (os.getpid(), os.getppid(), os.getsid(0), os.getuid())
    assert (leader.pid, leader.ppid, leader.session) == (job.leader, os.getpid(), job.leader)
    assert (shell.pid, shell.ppid, shell.session, shell.uid, shell.name) == (job.pids[0], job.leader, job.leader, os.getuid(), "sh")
    assert 0 < me.start <= leader.start <= shell.start <= ticks() + 1


@pytest.mark.parametrize("name", [b"a b", b"a) R 1 1 (b", b")", b"((", b"1 2 3", b"a\nb"])
def test_process_with_a_misleading_name(in_child, name):
    def work():
        before = identity.process(os.getpid())
        with open("/proc/self/comm", "wb") as stream:
            stream.write(name)
        after = identity.process(os.getpid())
        return [after.name, after._replace(name=before.name, state=before.state) == before]
    assert in_child(work).result == [name.decode(), True]


def test_process_with_a_name_that_is_no_text(in_child):
    def work():
        with open("/proc/self/comm", "wb") as stream:
            stream.write(b"a\xffb")
        return identity.process(os.getpid()).name
    assert in_child(work).result == "a\ufffdb"


def test_there_is_no_process(free_pid):
    assert identity.process(free_pid) is None


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
        privilege.become(somebody)
        libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
        return [os.stat("/proc/%d/environ" % os.getpid()).st_uid, identity.process(os.getpid()).uid]
    assert in_child(work).result == [0, somebody.uid]


def test_children_of_the_leader_are_its_own_only(start_job):
    one, other = start_job(programs=["/bin/sh"] * 3), start_job()
    assert sorted(identity.children(one.leader)) == sorted(one.pids)
    assert identity.children(other.leader) == other.pids
    assert identity.children(other.pids[0]) == []


def test_children_of_a_thread_that_is_not_the_first(threaded):
    assert identity.children(threaded.pid) == [threaded.child]


def test_children_of_nobody(free_pid):
    assert identity.children(free_pid) == []


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
        return [pids, identity.tree(os.getpid()), identity.tree(pids[2])]
    pids, found, branch = in_child(work).result
    assert len(pids) == 4
    assert found == pids
    assert branch == pids[2:]


def test_tree_of_two_branches_has_all(start_job):
    job = start_job(programs=["/bin/sh"] * 3)
    found = identity.tree(job.leader)
    assert found[0] == job.leader
    assert sorted(found[1:]) == sorted(job.pids)


@pytest.mark.parametrize("job_id", ["12.head", "12[3].head", ""])
def test_job_of_reads_the_environment_a_program_was_started_with(start_job, job_id):
    assert identity.job_of(start_job(job_id).pids[0]) == job_id


def test_job_of_takes_only_the_very_variable(monkeypatch, start_job):
    for name in ("MY_PBS_JOBID", "PBS_JOBID_OLD", "PBS_JOBI"):
        monkeypatch.setenv(name, "13.head")
    assert identity.job_of(start_job(None).pids[0]) is None
    assert identity.job_of(start_job("12.head").pids[0]) == "12.head"


def test_job_of_with_bytes_that_are_no_text(start_job):
    assert identity.job_of(start_job("12.he\udcffad").pids[0]) == "12.he\ufffdad"


def test_job_of_a_process_that_replaces_its_program():
    """In the midst of an execve a process has no environment."""
    program = "n=$1; [ $n = 0 ] && exec sleep 60; exec /bin/sh -c \"$2\" sh $((n - 1)) \"$2\""
    process = subprocess.Popen(["/bin/sh", "-c", program, "sh", "3000", program], env={"PBS_JOBID": "12.head", "PATH": "/usr/bin:/bin"})
    try:
        found = []
        while identity.process(process.pid).name != "sleep":
            found.append(identity.job_of(process.pid))
        assert set(found) == {"12.head"} and len(found) > 1000
    finally:
        process.kill()
        process.wait()


def test_job_of_a_process_without_environment():
    process = subprocess.Popen(["/usr/bin/sleep", "60"], env={})
    try:
        assert identity.job_of(process.pid) is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("before", [0, 1000, 256 << 10])
def test_environment_that_is_long(before):
    """The kernel takes no single text over 128 KiB."""
    filler = {"X%d" % number: "x" * min(before - 1, 100000) for number in range(0, before, 100000)}
    process = subprocess.Popen(["/usr/bin/sleep", "60"], env=dict(filler, PBS_JOBID="12.head"))
    try:
        while identity.process(process.pid).name != "sleep":
            pass
        if before < 200000:
            assert identity.job_of(process.pid) == "12.head"
            return
        with pytest.raises(HookError) as caught:
            identity.job_of(process.pid)
        assert (caught.value.code, str(caught.value)) == (
            errors.REFUSED, "process %d was started with more than 256 KiB of environment, and PBS_JOBID is not in the first of them; "
            "start the job with a smaller one; it was left alone" % process.pid)
    finally:
        process.kill()
        process.wait()


DECLARED = """
import ctypes, mmap, os, signal, struct
size = 1 << 30
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
found = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)  # MAP_NORESERVE
with open("/proc/self/stat") as stream:
    fields = [0, 0, 0] + stream.read().rpartition(")")[2].split()  # as proc(5) counts them
values = [int(fields[number]) for number in (26, 27, 45, 46, 47)] + [libc.sbrk(0)] + [int(fields[number]) for number in (28, 48, 49)]
ours = ctypes.create_string_buffer(struct.pack("12QIi", *values + [found, found + size, 0, 0, -1]))
assert libc.prctl(35, 14, ours, ctypes.c_ulong(len(ours) - 1), 0) == 0, os.strerror(ctypes.get_errno())  # PR_SET_MM, PR_SET_MM_MAP
print("declared", flush=True)
signal.pause()
"""


def test_environment_that_a_process_declares(in_child):
    """A gigabyte that is not there."""
    process = subprocess.Popen([sys.executable, "-c", DECLARED], stdout=subprocess.PIPE, env={"PBS_JOBID": "12.head"})
    try:
        assert process.stdout.readline() == b"declared\n"

        def work():
            import resource
            limit = 200 << 20
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            try:
                return identity.job_of(process.pid)
            except HookError as error:
                return error.code
        assert in_child(work).result == errors.REFUSED
    finally:
        process.kill()
        process.wait()


def test_job_of_nobody(free_pid):
    assert identity.job_of(free_pid) is None


@needs_root
def test_job_of_a_process_that_may_not_be_looked_into(in_child, start_job, somebody):
    pid = start_job().pids[0]

    def work():
        privilege.become(somebody)
        return identity.job_of(pid)
    assert in_child(work).result is None


def test_record_of_a_restarted_job(start_job, tmp_path):
    job = start_job()
    leader, root = identity.process(job.leader), identity.process(job.pids[0])
    identity.write_record(str(tmp_path), "12.head", leader, root)
    assert records.read(str(tmp_path), "12.head", records.JOB) == {
        "leader": [leader.pid, leader.start], "root": [root.pid, root.start], "output": [], "left": [], "incarnation": None}
    identity.write_record(str(tmp_path), "12.head", root, leader, ["/spool/12.head.OU"], incarnation={"id": "a"})
    assert records.read(str(tmp_path), "12.head", records.JOB) == {
        "leader": [root.pid, root.start], "root": [leader.pid, leader.start], "output": ["/spool/12.head.OU"], "left": [],
        "incarnation": {"id": "a"}}


def test_mark(start_job, free_pid):
    found = identity.process(start_job().pids[0])
    assert identity.mark(found) == [found.pid, found.start]
    assert identity.mark() == identity.mark(identity.process(os.getpid()))
    assert identity.marked([found.pid, found.start]).pid == found.pid
    assert identity.marked([found.pid, found.start + 1]) is None
    assert identity.marked([free_pid, 1]) is None


def test_recorded_output(start_job, tmp_path):
    job = start_job()
    leader, root = identity.process(job.leader), identity.process(job.pids[0])
    assert identity.recorded_of(str(tmp_path), "12.head", root, "output") == []
    identity.write_record(str(tmp_path), "12.head", leader, root, ["/spool/12.head.OU"])
    assert identity.recorded_of(str(tmp_path), "12.head", root, "output") == ["/spool/12.head.OU"]
    assert identity.recorded_of(str(tmp_path), "13.head", root, "output") == []


def test_recorded_output_of_an_earlier_run_does_not_count(start_job, tmp_path):
    me = identity.process(os.getpid())
    identity.write_record(str(tmp_path), "12.head", me, me._replace(start=me.start - 1), ["/spool/12.head.OU"])
    assert identity.recorded_of(str(tmp_path), "12.head", me, "output") == []


def test_record_of_hooks_that_knew_no_output(tmp_path):
    me = identity.process(os.getpid())
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "12.head.json").write_text(json.dumps({"leader": [1, 1], "root": [me.pid, me.start]}))
    assert identity.recorded_of(str(tmp_path), "12.head", me, "output") == []


# The root process, as root_of finds and proves it

GONE = ("job 12.head has no running process started by the run or restart hook on this node (session %s); "
        "was $checkpoint_run_exe set when it started?")


def test_root_is_the_leaders_child(start_job, tmp_path):
    job = start_job()
    found = identity.root_of(str(tmp_path), call_of(job.leader), os.getuid())
    assert found == identity.process(job.pids[0])
    assert (found.pid, found.ppid, found.name) == (job.pids[0], job.leader, "sh")


@pytest.fixture
def demux(tmp_path):
    """A shell (path, str) that the process table calls pbs_demux."""
    (tmp_path / "pbs_demux").symlink_to("/bin/sh")
    return str(tmp_path / "pbs_demux")


@pytest.mark.parametrize("position", [0, 1])
def test_root_is_never_the_demux_beside_it(start_job, demux, tmp_path, position):
    programs = ["/bin/sh"]
    programs.insert(position, demux)
    job = start_job(programs=programs)
    found = identity.root_of(str(tmp_path), call_of(job.leader), os.getuid())
    assert (found.pid, found.name) == (job.pids[1 - position], "sh")


def gone(run_directory, session_id, uid=None):
    with pytest.raises(HookError) as caught:
        identity.root_of(str(run_directory), call_of(session_id), os.getuid() if uid is None else uid)
    assert str(caught.value) == GONE % session_id
    assert caught.value.code == errors.GONE


def test_gone_when_there_is_only_the_demux(start_job, demux, tmp_path):
    gone(tmp_path, start_job(programs=[demux]).leader)


def test_gone_when_the_leader_has_no_child(start_job, tmp_path):
    gone(tmp_path, start_job(programs=[]).leader)


def test_gone_when_it_is_not_clear_which_child(start_job, tmp_path):
    gone(tmp_path, start_job(programs=["/bin/sh"] * 2).leader)


def test_gone_when_there_is_no_such_process(free_pid, tmp_path):
    gone(tmp_path, free_pid)


@pytest.mark.parametrize("session_id", [None, 0])
def test_gone_without_a_session(tmp_path, session_id):
    gone(tmp_path, session_id)


def test_gone_when_the_hint_is_no_session_leader(in_child, tmp_path):
    def work():
        reader, writer = os.pipe()
        middle = os.fork()
        if middle == 0:
            if os.fork() == 0:
                os.write(writer, b"x")
            signal.pause()
        os.read(reader, 1)
        assert len(identity.children(middle)) == 1
        try:
            identity.root_of(str(tmp_path), call_of(middle), os.getuid())
        except HookError as error:
            return [error.code, str(error) == GONE % middle]
    assert in_child(work).result == [errors.GONE, True]


def test_gone_when_the_root_is_a_zombie(start_job, state_of, tmp_path, wait_until):
    job = start_job()
    os.kill(job.pids[0], signal.SIGKILL)
    wait_until(lambda: state_of(job.pids[0]) == "Z")
    gone(tmp_path, job.leader)


def test_a_stopped_root_is_not_gone(start_job, state_of, tmp_path, wait_until):
    job = start_job()
    os.kill(job.pids[0], signal.SIGSTOP)
    wait_until(lambda: state_of(job.pids[0]) == "T")
    assert identity.root_of(str(tmp_path), call_of(job.leader), os.getuid()).pid == job.pids[0]


@pytest.mark.parametrize("job_id, shown", [("13.head", "13.head"), ("12.head2", "12.head2"), ("", "not set"), (None, "not set"),
                                           ("\x1b]2;owned\x07", "\\x1b]2;owned\\x07"), ("x" * 1000, "x" * 100 + "...")])
def test_refused_when_it_is_another_job(start_job, tmp_path, job_id, shown):
    job = start_job(job_id)
    with pytest.raises(HookError) as caught:
        identity.root_of(str(tmp_path), call_of(job.leader), os.getuid())
    assert str(caught.value) == "process %d is not job 12.head of alice (its uid is %d, its PBS_JOBID is %s); it was left alone" % (
        job.pids[0], os.getuid(), shown)
    assert caught.value.code == errors.REFUSED


def test_refused_when_it_is_another_users(start_job, tmp_path):
    job = start_job()
    with pytest.raises(HookError) as caught:
        identity.root_of(str(tmp_path), call_of(job.leader), os.getuid() + 1)
    assert str(caught.value) == "process %d is not job 12.head of alice (its uid is %d, its PBS_JOBID is 12.head); it was left alone" % (
        job.pids[0], os.getuid())
    assert caught.value.code == errors.REFUSED


def test_the_record_counts_more_than_the_session(start_job, tmp_path):
    restarted, elsewhere = start_job(), start_job()
    identity.write_record(str(tmp_path), "12.head", identity.process(restarted.leader), identity.process(restarted.pids[0]))
    for session_id in (elsewhere.leader, None, 1):
        assert identity.root_of(str(tmp_path), call_of(session_id), os.getuid()).pid == restarted.pids[0]


def test_the_record_of_another_job_does_not_count(start_job, tmp_path):
    other, mine = start_job("13.head"), start_job()
    identity.write_record(str(tmp_path), "13.head", identity.process(other.leader), identity.process(other.pids[0]))
    assert identity.root_of(str(tmp_path), call_of(mine.leader), os.getuid()).pid == mine.pids[0]


@pytest.mark.parametrize("which", ["leader", "root"])
def test_a_record_whose_number_is_another_process_by_now_does_not_count(start_job, tmp_path, which):
    old, new = start_job(), start_job()
    was = {"leader": identity.process(old.leader), "root": identity.process(old.pids[0])}
    was[which] = was[which]._replace(start=was[which].start - 1)
    identity.write_record(str(tmp_path), "12.head", was["leader"], was["root"])
    assert identity.root_of(str(tmp_path), call_of(new.leader), os.getuid()).pid == new.pids[0]
    gone(tmp_path, None)


@pytest.mark.parametrize("which", ["leader", "root"])
def test_a_record_of_processes_that_ended_does_not_count(start_job, tmp_path, free_pid, which):
    job = start_job()
    was = {"leader": identity.process(job.leader), "root": identity.process(job.pids[0])}
    was[which] = was[which]._replace(pid=free_pid)
    identity.write_record(str(tmp_path), "12.head", was["leader"], was["root"])
    gone(tmp_path, None)


def test_a_recorded_root_is_proven_like_any_other(start_job, tmp_path):
    job = start_job("13.head")
    identity.write_record(str(tmp_path), "12.head", identity.process(job.leader), identity.process(job.pids[0]))
    with pytest.raises(HookError) as caught:
        identity.root_of(str(tmp_path), call_of(None), os.getuid())
    assert str(caught.value) == "process %d is not job 12.head of alice (its uid is %d, its PBS_JOBID is 13.head); it was left alone" % (
        job.pids[0], os.getuid())
    assert caught.value.code == errors.REFUSED


def may_trace():
    """Whether this process has CAP_SYS_PTRACE, without which even root does not see another user's environment."""
    with open("/proc/self/status") as stream:
        return any(line.startswith("CapEff:") and int(line.split()[1], 16) >> 19 & 1 for line in stream)


@needs_root
@pytest.mark.skipif(not may_trace(), reason="needs root: with CAP_SYS_PTRACE")
def test_root_of_a_job_of_another_user(start_job, somebody, tmp_path):
    job = start_job(user=somebody)
    found = identity.root_of(str(tmp_path), call_of(job.leader), somebody.uid)
    assert (found.pid, found.uid) == (job.pids[0], somebody.uid)
    with pytest.raises(HookError) as caught:
        identity.root_of(str(tmp_path), call_of(job.leader), 0)
    assert str(caught.value) == "process %d is not job 12.head of alice (its uid is %d, its PBS_JOBID is 12.head); it was left alone" % (
        job.pids[0], somebody.uid)


def test_shell_as_leader_is_not_the_run_hook(tmp_path, wait_until):
    """A job that was started before $checkpoint_run_exe was set: its script's child is not the job."""
    leader = subprocess.Popen(["/bin/sh", "-c", "sleep 60; exit 0"], env={"PBS_JOBID": "12.head", "PATH": "/bin:/usr/bin"},
                              start_new_session=True)
    try:
        wait_until(lambda: [pid for pid in identity.children(leader.pid) if identity.process(pid).name == "sleep"])
        with pytest.raises(HookError) as caught:
            call = contract.Call(leader.pid, "12.head", "alice", None, "/s/12.head.CK", "c", 15, None)
            identity.root_of(str(tmp_path), call, os.getuid())
        assert caught.value.code == errors.GONE
    finally:
        os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()


def test_children_in_spite_of_a_thread_that_just_ended(start_job, monkeypatch):
    job, real = start_job(), os.listdir
    monkeypatch.setattr(identity.os, "listdir", lambda path: ["4194304"] + real(path))
    assert identity.children(job.leader) == job.pids


# Signals

REUSED = """
import os, signal, sys
sys.path.insert(0, {hooks!r})
from torque_ckpt import identity

def sleeper():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid

def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

if {plain!r}:
    identity._handle = lambda pid: None
before = sleeper()
mark = identity.mark(identity.process(before))
for _turn in range(5):  # a tick of the clock later, so that the start time differs
    signal.sigtimedwait([], 0.02)
end(before)
with open("/proc/sys/kernel/ns_last_pid", "w") as stream:
    stream.write(str(before - 1))
victim = sleeper()
assert victim == before, (victim, before)
identity.send(mark, signal.SIGKILL)
signal.sigtimedwait([], 0.05)
print(identity.process(victim).state)
identity.send(identity.mark(identity.process(victim)), signal.SIGKILL)
print(os.waitpid(victim, 0)[1])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a pid namespace, in which numbers are chosen")
@pytest.mark.parametrize("plain", [False, True])
def test_signal_does_not_reach_who_has_the_number_by_now(plain):
    """With the kernel's handles, and on a kernel that has none."""
    hooks = os.path.dirname(os.path.dirname(os.path.abspath(identity.__file__)))
    done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", REUSED.format(hooks=hooks, plain=plain)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "S\n9\n", "")


def test_signal_by_the_systems_own_calls(start_job, monkeypatch, wait_until, state_of):
    """Python before 3.9 knows no such calls."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.delattr(signal, "pidfd_send_signal", raising=False)
    pid = start_job().pids[0]
    pair = identity.mark(identity.process(pid))
    identity.send(pair, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T")
    identity.send([pid, pair[1] + 1], signal.SIGCONT)
    assert state_of(pid) == "T"


def test_signal_to_nobody(free_pid):
    identity.send([free_pid, 1], signal.SIGKILL)


@pytest.mark.skipif(not identity.has_handles(), reason="the kernel has no handles of processes (before 5.3)")
def test_signal_leaves_no_descriptor(start_job):
    pair = identity.mark(identity.process(start_job().pids[0]))
    before = os.listdir("/proc/self/fd")
    identity.send(pair, signal.SIGCONT)
    assert identity.has_handles() and os.listdir("/proc/self/fd") == before


def test_family_is_the_tree(start_job):
    job = start_job(programs=["/bin/sh"] * 2)
    found = identity.family(identity.process(job.leader))
    assert [member.pid for member in found] == identity.tree(job.leader)
    assert [member.ppid for member in found[1:]] == [job.leader] * 2


def test_family_of_a_process_that_has_gone(start_job):
    """Who has its number by now has children of its own."""
    leader = identity.process(start_job().leader)
    gone = leader._replace(start=leader.start - 1)
    assert identity.family(gone) == [gone]
