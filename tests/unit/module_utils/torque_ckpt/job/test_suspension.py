import json
import os
import signal
import time

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.job import supervisor, suspension
from torque_ckpt.job.records import Records
from torque_ckpt.system import processes


@pytest.fixture
def run(tmp_path):
    return str(tmp_path / "run")


def left_behind(run, pid, suspended=()):
    """A record of a hook that is dead."""
    suspension.write_note(Records(run, "12.head"), list(suspended))
    path = run + "/jobs/12.head.holding"
    with open(path) as stream:
        note = json.load(stream)
    with open(path, "w") as stream:
        json.dump(dict(note, hook=[pid, 1]), stream)


def test_job_that_a_dead_hook_left_stopped_goes_on(run, start_job, wait_until, state_of, free_pid):
    pids = start_job(programs=["/bin/sh"] * 2).pids
    processes.signal_processes(map(processes.read_process, pids), signal.SIGSTOP)
    wait_until(lambda: [state_of(pid) for pid in pids] == ["T", "T"])
    left_behind(run, free_pid, pids[1:])
    parent = processes.read_process(pids[0]).ppid
    assert suspension.resume_abandoned_job(Records(run, "12.head"), parent) == [free_pid, 1]
    wait_until(lambda: [state_of(pid) for pid in pids] == ["S", "T"])


def test_it_is_set_going_only_once(run, start_job, wait_until, state_of, free_pid):
    """What its user suspends afterwards stays so."""
    pid = start_job().pids[0]
    left_behind(run, free_pid)
    healed = suspension.resume_abandoned_job(Records(run, "12.head"), pid)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T")
    assert suspension.resume_abandoned_job(Records(run, "12.head"), pid, healed) == healed
    assert state_of(pid) == "T"


def test_job_of_a_hook_that_lives_is_left_alone(run, start_job, wait_until, state_of):
    pid = start_job().pids[0]
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T")
    suspension.write_note(Records(run, "12.head"), [])
    assert suspension.resume_abandoned_job(Records(run, "12.head"), pid) is None
    assert state_of(pid) == "T"


@pytest.mark.parametrize("content", [None, "", "{"])
def test_no_record(run, content):
    os.makedirs(run + "/jobs")
    if content is not None:
        with open(run + "/jobs/12.head.holding", "w") as stream:
            stream.write(content)
    assert suspension.resume_abandoned_job(Records(run, "12.head"), os.getpid(), "before") == "before"


def test_tree_is_killed_children_first(start_job, monkeypatch, somebody):
    """The kernel sets the stopped children of a parent that dies going; the one that ignores SIGHUP would do things that no image has."""
    job = start_job(programs=["/bin/sh"] * 2)
    sent = []
    monkeypatch.setattr(processes, "send_signal", lambda pair, number: sent.append((pair[0], number)))
    monkeypatch.setattr(processes, "has_pidfds", lambda: True)
    suspension.kill_tree(processes.read_process(job.leader), somebody)
    assert sorted(sent[:2]) == [(pid, signal.SIGKILL) for pid in sorted(job.pids)]
    assert sent[2:] == [(job.leader, signal.SIGKILL)]


@pytest.mark.root
@pytest.mark.parametrize("handles", [True, False])
def test_kill_ends_the_job_and_not_who_has_its_number_by_now(start_job, monkeypatch, somebody, wait_until, state_of, handles):
    """With the kernel's handles, and without them, as the user."""
    monkeypatch.setattr(processes, "has_pidfds", lambda: handles)
    if not handles:
        monkeypatch.setattr(processes, "_open_pidfd", lambda pid: None)
    process = processes.read_process(start_job(user=somebody).pids[0])
    suspension.kill_tree(process._replace(start=process.start - 1), somebody)  # its number is another process's by now
    assert state_of(process.pid) == "S"
    suspension.kill_tree(process, somebody)
    wait_until(lambda: state_of(process.pid) == "Z")


@pytest.mark.root
def test_go_on_wakes_only_what_is_the_jobs(start_job, somebody, wait_until, state_of):
    mine = start_job(user=somebody)
    process = processes.read_process(mine.pids[0])
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T")
    processes.resume_tree(process._replace(start=process.start - 1), [])
    assert state_of(process.pid) == "T"
    processes.resume_tree(process, [])
    wait_until(lambda: state_of(process.pid) == "S")


def test_record_ends(run):
    suspension.write_note(Records(run, "12.head"), [])
    suspension.remove_note(Records(run, "12.head"))
    suspension.remove_note(Records(run, "12.head"))
    assert os.listdir(run + "/jobs") == []


def test_record_that_cannot_be_written(tmp_path):
    (tmp_path / "run" / "jobs" / "12.head.holding.new").mkdir(parents=True)
    with pytest.raises(HookError) as caught:
        suspension.write_note(Records(str(tmp_path / "run"), "12.head"), [])
    assert (caught.value.code, str(caught.value)) == (
        errors.SYSTEM, "cannot write %s/run/jobs/12.head.holding: Is a directory; the job keeps running; see to that file system"
                       % tmp_path)


def test_leader_sets_its_job_going(run, in_child, free_pid, monkeypatch):
    monkeypatch.setattr(suspension, "PAUSE", 0.05)
    os.makedirs(run + "/jobs")

    def work():
        supervisor.block_signals()
        root = os.fork()
        if root == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(7)
        watcher = os.fork()
        if watcher == 0:  # the record comes when the leader already waits
            time.sleep(0.2)
            left_behind(run, free_pid)
            os._exit(0)
        return supervisor.supervise_job(root, Records(run, "12.head"))
    assert in_child(work).result == 7 << 8
