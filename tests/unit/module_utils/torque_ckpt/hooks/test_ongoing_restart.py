import contextlib
import os
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest

from torque_ckpt import errors, phases
from torque_ckpt.errors import HookError
from torque_ckpt.hooks import ongoing_restart
from torque_ckpt.job import identity
from torque_ckpt.job.records import FAILED, Records
from torque_ckpt.system import processes, waiting
from torque_ckpt.torque import contract


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Nothing measured."""
    monkeypatch.setattr(phases, "_spent", {})
    monkeypatch.setattr(phases, "_failed", [])


@pytest.fixture
def begin(tmp_path):
    """begin(arguments) starts a program of the restart hook's name, with the interpreter and options of its first line."""
    program = tmp_path / "restart"
    program.write_text("#!/bin/sh -u\nread -r line\n")  # a process of its own would look like the hook until it is another program
    program.chmod(0o755)
    with contextlib.ExitStack() as stack:
        def start(*arguments, **options):
            process = subprocess.Popen([str(program)] + list(arguments), start_new_session=True, stdin=subprocess.PIPE, **options)
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, 9)
            waiting.wait_until(lambda: str(program).encode() in processes.read_arguments(process.pid), 10)
            return process
        yield start


@pytest.fixture
def job(tmp_path):
    """A checkpoint of job 12.head, whose session is not known."""
    call = contract.Call(None, "12.head", "alice", None, "/shared/ckpt/12.head.CK", "ckpt.12.head.1", 15, None)
    return SimpleNamespace(call=call, hook=str(tmp_path / "checkpoint"), records=Records(str(tmp_path / "run"), "12.head"),
                           settings={"lock_timeout": 120})


def test_restart_hook_of_this_job(tmp_path, begin):
    process = begin("4711", "12.head", "alice", "-", "/shared/ckpt/12.head.CK", "ckpt.12.head.1")
    assert ongoing_restart.find_restart_hook(str(tmp_path / "restart"), "12.head").pid == process.pid
    process.kill()
    assert waiting.wait_until(lambda: processes.read_process(process.pid).state == "Z", 10)
    assert ongoing_restart.find_restart_hook(str(tmp_path / "restart"), "12.head") is None  # not reaped yet


@pytest.mark.parametrize("arguments", [["4711", "13.head"], ["12.head", "4711"], ["4711"], []])
def test_restart_hook_of_another_job(tmp_path, begin, arguments):
    begin(*arguments)
    assert ongoing_restart.find_restart_hook(str(tmp_path / "restart"), "12.head") is None


@pytest.mark.root
def test_restart_hook_that_a_user_plays(tmp_path, somebody):
    program = str(tmp_path / "restart")
    process = subprocess.Popen(["setpriv", "--reuid", str(somebody.uid), "--clear-groups", "/bin/sh", "-c", "sleep 60; :", program, "4711",
                                "12.head"], start_new_session=True)
    try:
        assert waiting.wait_until(lambda: processes.read_arguments(process.pid)[3:6] == [program.encode(), b"4711", b"12.head"], 10)
        assert ongoing_restart.find_restart_hook(program, "12.head") is None
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_no_wait_for_a_job_that_is_there(job, start_job, monkeypatch):
    running = start_job("12.head")
    job.call = job.call._replace(session_id=running.leader)
    monkeypatch.setattr(processes, "list_pids", None)  # not even looked for
    ongoing_restart.wait_until_back(job)
    assert phases.spent() == {}


def test_no_wait_for_a_restart_that_has_failed(job, begin):
    begin("4711", "12.head")
    job.records.write(FAILED, {"hook": processes.get_mark(), "name": "ckpt.12.head.1"})
    job.settings["lock_timeout"] = 0
    ongoing_restart.wait_until_back(job)


def test_wait_until_the_job_is_back(job, begin, start_job):
    """And not for a process that the first session's number belongs to by now."""
    begin("4711", "12.head")
    stranger, restored = start_job("13.head"), start_job("12.head")
    job.call = job.call._replace(session_id=stranger.leader)
    child = subprocess.Popen(["sleep", "1.5"])

    def record():
        child.wait()
        identity.write_record(job.records, processes.read_process(restored.leader), processes.read_process(restored.pids[0]))
    thread = threading.Thread(target=record)
    thread.start()
    ongoing_restart.wait_until_back(job)
    assert child.returncode == 0
    thread.join()
    assert list(phases.spent()) == ["wait"] and phases.spent()["wait"] > 0.5
    assert identity.find_candidate(job.records, stranger.leader).pid == restored.pids[0]


def test_job_that_nothing_brings_back(job, monkeypatch):
    monkeypatch.setattr(ongoing_restart, "PATIENCE", 0.2)
    started = time.monotonic()
    ongoing_restart.wait_until_back(job)
    assert time.monotonic() - started > 0.2


def test_restart_that_takes_too_long(job, begin):
    process = begin("4711", "12.head")
    job.settings["lock_timeout"] = 0.2
    with pytest.raises(HookError) as caught:
        ongoing_restart.wait_until_back(job)
    assert (caught.value.code, str(caught.value)) == (
        errors.TEMPORARY, "a restart (process %d) is at work on job 12.head; waited 0 seconds; try again when it has ended; nothing was "
        "done" % process.pid)
    assert phases.failed() == "wait"


def test_processes_are_searched_once_while_the_hook_lives(job, begin, monkeypatch):
    begin("4711", "12.head")
    searches, list_pids = [], processes.list_pids
    monkeypatch.setattr(processes, "list_pids", lambda: searches.append(1) or list_pids())
    job.settings["lock_timeout"] = 0.3
    with pytest.raises(HookError):
        ongoing_restart.wait_until_back(job)
    assert len(searches) == 1
