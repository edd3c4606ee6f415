import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.job import identity, records
from torque_ckpt.job.records import Records
from torque_ckpt.system import privilege, processes
from torque_ckpt.torque import contract

DECLARE = pathlib.Path(__file__).resolve().parents[4] / "integration/attacks/declare.py"


def call_of(session_id, job_id="12.head", user="alice"):
    return contract.Call(session_id, job_id, user, None, "/shared/ckpt/12.head.CK", "ckpt.12.head.1", 15, None)


@pytest.mark.parametrize("job_id", ["12.head", "12[3].head", ""])
def test_job_of_reads_the_environment_a_program_was_started_with(start_job, job_id):
    assert identity.read_job_id(start_job(job_id).pids[0]) == job_id


def test_job_of_takes_only_the_very_variable(monkeypatch, start_job):
    for name in ("MY_PBS_JOBID", "PBS_JOBID_OLD", "PBS_JOBI"):
        monkeypatch.setenv(name, "13.head")
    assert identity.read_job_id(start_job(None).pids[0]) is None
    assert identity.read_job_id(start_job("12.head").pids[0]) == "12.head"


def test_job_of_with_bytes_that_are_no_text(start_job):
    assert identity.read_job_id(start_job("12.he\udcffad").pids[0]) == "12.he\ufffdad"


def test_job_of_a_process_that_replaces_its_program():
    """In the midst of an execve a process has no environment."""
    program = "n=$1; [ $n = 0 ] && exec sleep 60; exec /bin/sh -c \"$2\" sh $((n - 1)) \"$2\""
    process = subprocess.Popen(["/bin/sh", "-c", program, "sh", "3000", program], env={"PBS_JOBID": "12.head", "PATH": "/usr/bin:/bin"})
    try:
        job_ids = []
        while processes.read_process(process.pid).name != "sleep":
            job_ids.append(identity.read_job_id(process.pid))
        assert set(job_ids) == {"12.head"} and len(job_ids) > 1000
    finally:
        process.kill()
        process.wait()


def test_job_of_a_process_without_environment():
    process = subprocess.Popen(["/usr/bin/sleep", "60"], env={})
    try:
        assert identity.read_job_id(process.pid) is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("before", [0, 1000, 256 << 10])
def test_environment_that_is_long(before):
    """The kernel takes no single text over 128 KiB."""
    filler = {"X%d" % number: "x" * min(before - 1, 100000) for number in range(0, before, 100000)}
    process = subprocess.Popen(["/usr/bin/sleep", "60"], env=dict(filler, PBS_JOBID="12.head"))
    try:
        while processes.read_process(process.pid).name != "sleep":
            pass
        if before < 200000:
            assert identity.read_job_id(process.pid) == "12.head"
            return
        with pytest.raises(HookError) as caught:
            identity.read_job_id(process.pid)
        assert (caught.value.code, str(caught.value)) == (
            errors.REFUSED, "process %d was started with more than 256 KiB of environment, and PBS_JOBID is not in the first of them; "
            "start the job with a smaller one; it was left alone" % process.pid)
    finally:
        process.kill()
        process.wait()


def test_environment_that_a_process_declares(in_child):
    """Gigabytes that are not there."""
    process = subprocess.Popen([sys.executable, str(DECLARE)], stdout=subprocess.PIPE, env={"PBS_JOBID": "12.head"})
    try:
        assert process.stdout.readline() == b"declared\n"

        def work():
            import resource
            limit = 200 << 20
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            try:
                return identity.read_job_id(process.pid)
            except HookError as error:
                return error.code
        assert in_child(work).result == errors.REFUSED
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("lines, nodes", [
    (None, []),
    ("", []),
    ("node1\nnode1\n", ["node1"]),
    ("node2\nnode1\nnode2\n", ["node1", "node2"]),
])
def test_nodes_of_a_job(tmp_path, lines, nodes):
    if lines is not None:
        (tmp_path / "nodes").write_text(lines)
    process = subprocess.Popen(["sleep", "60"], env={"PBS_NODEFILE": str(tmp_path / "nodes")})
    try:
        assert identity.list_nodes(process.pid) == nodes
    finally:
        process.kill()
        process.wait()


def test_nodes_of_a_process_without_a_list_or_with_a_pipe(free_pid, tmp_path):
    assert identity.list_nodes(free_pid) == []
    os.mkfifo(str(tmp_path / "pipe"))
    process = subprocess.Popen(["sleep", "60"], env={"PBS_NODEFILE": str(tmp_path / "pipe")})
    try:
        assert identity.list_nodes(process.pid) == []
    finally:
        process.kill()
        process.wait()


def test_job_of_nobody(free_pid):
    assert identity.read_job_id(free_pid) is None


@pytest.mark.root
def test_job_of_a_process_that_may_not_be_looked_into(in_child, start_job, somebody):
    pid = start_job().pids[0]

    def work():
        privilege.become_user(somebody)
        return identity.read_job_id(pid)
    assert in_child(work).result is None


def test_record_of_a_restarted_job(start_job, tmp_path):
    job = start_job()
    leader, root = processes.read_process(job.leader), processes.read_process(job.pids[0])
    identity.write_record(Records(str(tmp_path), "12.head"), leader, root)
    assert Records(str(tmp_path), "12.head").read(records.JOB) == {
        "leader": [leader.pid, leader.start], "root": [root.pid, root.start], "output": [], "left": [], "incarnation": None}
    identity.write_record(Records(str(tmp_path), "12.head"), root, leader, ["/spool/12.head.OU"], incarnation={"id": "a"})
    assert Records(str(tmp_path), "12.head").read(records.JOB) == {
        "leader": [root.pid, root.start], "root": [leader.pid, leader.start], "output": ["/spool/12.head.OU"], "left": [],
        "incarnation": {"id": "a"}}


def test_recorded_output(start_job, tmp_path):
    job = start_job()
    leader, root = processes.read_process(job.leader), processes.read_process(job.pids[0])
    assert identity.read_recorded(Records(str(tmp_path), "12.head"), root, "output") == []
    identity.write_record(Records(str(tmp_path), "12.head"), leader, root, ["/spool/12.head.OU"])
    assert identity.read_recorded(Records(str(tmp_path), "12.head"), root, "output") == ["/spool/12.head.OU"]
    assert identity.read_recorded(Records(str(tmp_path), "13.head"), root, "output") == []


def test_recorded_output_of_an_earlier_run_does_not_count(start_job, tmp_path):
    me = processes.read_process(os.getpid())
    identity.write_record(Records(str(tmp_path), "12.head"), me, me._replace(start=me.start - 1), ["/spool/12.head.OU"])
    assert identity.read_recorded(Records(str(tmp_path), "12.head"), me, "output") == []


def test_record_of_hooks_that_knew_no_output(tmp_path):
    me = processes.read_process(os.getpid())
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "12.head.json").write_text(json.dumps({"leader": [1, 1], "root": [me.pid, me.start]}))
    assert identity.read_recorded(Records(str(tmp_path), "12.head"), me, "output") == []


# The root process, as root_of finds and proves it

GONE = ("job 12.head has no running process started by the run or restart hook on this node (session %s); "
        "was $checkpoint_run_exe set when it started?")


def test_root_is_the_leaders_child(start_job, tmp_path):
    job = start_job()
    root = identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(job.leader), os.getuid())
    assert root == processes.read_process(job.pids[0])
    assert (root.pid, root.ppid, root.name) == (job.pids[0], job.leader, "sh")


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
    root = identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(job.leader), os.getuid())
    assert (root.pid, root.name) == (job.pids[1 - position], "sh")


def gone(run_directory, session_id, uid=None):
    with pytest.raises(HookError) as caught:
        identity.find_root_process(Records(str(run_directory), "12.head"), call_of(session_id), os.getuid() if uid is None else uid)
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
        assert len(processes.list_children(middle)) == 1
        try:
            identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(middle), os.getuid())
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
    assert identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(job.leader), os.getuid()).pid == job.pids[0]


@pytest.mark.parametrize("job_id, shown", [("13.head", "13.head"), ("12.head2", "12.head2"), ("", "not set"), (None, "not set"),
                                           ("\x1b]2;owned\x07", "\\x1b]2;owned\\x07"), ("x" * 1000, "x" * 100 + "...")])
def test_refused_when_it_is_another_job(start_job, tmp_path, job_id, shown):
    job = start_job(job_id)
    with pytest.raises(HookError) as caught:
        identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(job.leader), os.getuid())
    assert str(caught.value) == ("process %d is not job 12.head of alice (its uid is %d, its PBS_JOBID is %s); it was left alone; see "
                                 "whether the job runs on this node, with PBS_JOBID in its environment" % (job.pids[0], os.getuid(), shown))
    assert caught.value.code == errors.REFUSED


def test_refused_when_it_is_another_users(start_job, tmp_path):
    job = start_job()
    with pytest.raises(HookError) as caught:
        identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(job.leader), os.getuid() + 1)
    assert str(caught.value) == ("process %d is not job 12.head of alice (its uid is %d, its PBS_JOBID is 12.head); it was left alone; see "
                                 "whether the job runs on this node, with PBS_JOBID in its environment" % (job.pids[0], os.getuid()))
    assert caught.value.code == errors.REFUSED


def test_the_record_counts_more_than_the_session(start_job, tmp_path):
    restarted, elsewhere = start_job(), start_job()
    identity.write_record(Records(str(tmp_path), "12.head"), *map(processes.read_process, (restarted.leader, restarted.pids[0])))
    for session_id in (elsewhere.leader, None, 1):
        assert identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(session_id), os.getuid()).pid == restarted.pids[0]


def test_the_record_of_another_job_does_not_count(start_job, tmp_path):
    other, mine = start_job("13.head"), start_job()
    identity.write_record(Records(str(tmp_path), "13.head"), processes.read_process(other.leader), processes.read_process(other.pids[0]))
    assert identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(mine.leader), os.getuid()).pid == mine.pids[0]


@pytest.mark.parametrize("which", ["leader", "root"])
def test_a_record_whose_number_is_another_process_by_now_does_not_count(start_job, tmp_path, which):
    old, new = start_job(), start_job()
    was = {"leader": processes.read_process(old.leader), "root": processes.read_process(old.pids[0])}
    was[which] = was[which]._replace(start=was[which].start - 1)
    identity.write_record(Records(str(tmp_path), "12.head"), was["leader"], was["root"])
    assert identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(new.leader), os.getuid()).pid == new.pids[0]
    gone(tmp_path, None)


@pytest.mark.parametrize("which", ["leader", "root"])
def test_a_record_of_processes_that_ended_does_not_count(start_job, tmp_path, free_pid, which):
    job = start_job()
    was = {"leader": processes.read_process(job.leader), "root": processes.read_process(job.pids[0])}
    was[which] = was[which]._replace(pid=free_pid)
    identity.write_record(Records(str(tmp_path), "12.head"), was["leader"], was["root"])
    gone(tmp_path, None)


def test_a_recorded_root_is_proven_like_any_other(start_job, tmp_path):
    job = start_job("13.head")
    identity.write_record(Records(str(tmp_path), "12.head"), processes.read_process(job.leader), processes.read_process(job.pids[0]))
    with pytest.raises(HookError) as caught:
        identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(None), os.getuid())
    assert str(caught.value) == ("process %d is not job 12.head of alice (its uid is %d, its PBS_JOBID is 13.head); it was left alone; see "
                                 "whether the job runs on this node, with PBS_JOBID in its environment" % (job.pids[0], os.getuid()))
    assert caught.value.code == errors.REFUSED


def may_trace():
    """Whether this process has CAP_SYS_PTRACE, without which even root does not see another user's environment."""
    with open("/proc/self/status") as stream:
        return any(line.startswith("CapEff:") and int(line.split()[1], 16) >> 19 & 1 for line in stream)


@pytest.mark.root
@pytest.mark.skipif(not may_trace(), reason="needs root: with CAP_SYS_PTRACE")
def test_root_of_a_job_of_another_user(start_job, somebody, tmp_path):
    job = start_job(user=somebody)
    root = identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(job.leader), somebody.uid)
    assert (root.pid, root.uid) == (job.pids[0], somebody.uid)
    with pytest.raises(HookError) as caught:
        identity.find_root_process(Records(str(tmp_path), "12.head"), call_of(job.leader), 0)
    assert str(caught.value) == ("process %d is not job 12.head of alice (its uid is %d, its PBS_JOBID is 12.head); it was left alone; see "
                                 "whether the job runs on this node, with PBS_JOBID in its environment" % (job.pids[0], somebody.uid))


def test_shell_as_leader_is_not_the_run_hook(tmp_path, wait_until):
    """A job that was started before $checkpoint_run_exe was set: its script's child is not the job."""
    leader = subprocess.Popen(["/bin/sh", "-c", "sleep 60; exit 0"], env={"PBS_JOBID": "12.head", "PATH": "/bin:/usr/bin"},
                              start_new_session=True)
    try:
        wait_until(lambda: [pid for pid in processes.list_children(leader.pid) if processes.read_process(pid).name == "sleep"])
        with pytest.raises(HookError) as caught:
            call = contract.Call(leader.pid, "12.head", "alice", None, "/s/12.head.CK", "c", 15, None)
            identity.find_root_process(Records(str(tmp_path), "12.head"), call, os.getuid())
        assert caught.value.code == errors.GONE
    finally:
        os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()


# Signals
