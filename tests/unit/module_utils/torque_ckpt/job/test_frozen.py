import json
import os
import signal
import stat
import subprocess

import pytest
from paths import ACTION_SCRIPT

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.job import frozen
from torque_ckpt.job.records import Records
from torque_ckpt.system import privilege, processes


ME = privilege.User("me", os.getuid(), os.getgid(), "/")


def make(run_directory):
    hook = os.path.join(os.path.dirname(ACTION_SCRIPT), "checkpoint")
    return frozen.open_channel(hook, Records(run_directory, "12.head"), ME, "the job keeps running")


class Work:
    """What the hook has to do; two functions without arguments."""

    def __init__(self, while_frozen=lambda: None, after_thaw=lambda: None):
        self.while_frozen, self.after_thaw = while_frozen, after_thaw


def fails(error):
    """Return a function that raises an error."""
    def fail():
        raise error
    return fail


@pytest.fixture
def run_directory(tmp_path):
    return str(tmp_path / "run")


@pytest.fixture
def channel(run_directory):
    with make(run_directory) as channel:
        yield channel
    assert os.listdir(os.path.join(run_directory, "jobs")) == []


def call(channel, stage="post-dump"):
    """What the engine does at a stage; return the program's exit status."""
    return subprocess.run([channel.program], env=dict(os.environ, CRTOOLS_SCRIPT_ACTION=stage),
                          stdin=subprocess.DEVNULL, timeout=20, check=False).returncode


def test_work_is_done_while_the_engine_waits(channel, tmp_path):
    result = {"said": "x" * 300000}  # more than a pipe holds
    worker = frozen.Worker(Work(lambda: (tmp_path / "seen").write_text("frozen"), lambda: result), channel)
    assert call(channel, "pre-dump") == 0
    assert not (tmp_path / "seen").exists()
    assert call(channel) == 0
    assert (tmp_path / "seen").read_text() == "frozen"
    assert worker.read_result() == result


def test_rest_of_the_work_is_done_when_the_engine_has_gone_on(channel, tmp_path):
    def wait():
        while not (tmp_path / "thawed").exists():
            pass
        return "done"
    worker = frozen.Worker(Work(after_thaw=wait), channel)
    assert call(channel, "post-restore") == 0
    (tmp_path / "thawed").write_text("")
    assert worker.read_result() == "done"


@pytest.mark.parametrize("error, code, sentence", [
    (HookError(errors.CANNOT_WRITE, "no room; the job keeps running"), errors.CANNOT_WRITE, "no room; the job keeps running"),
    (KeyError("x"), errors.SYSTEM, "KeyError: 'x'"),
])
def test_work_that_fails_while_the_job_stands_still(channel, error, code, sentence):
    """The engine fails by it, and the reason is the work's."""
    worker = frozen.Worker(Work(fails(error)), channel)
    assert call(channel) == 1
    fault = worker.find_fault()
    assert (fault.code, fault.sentence) == (code, sentence)


def test_work_that_fails_afterwards(channel):
    worker = frozen.Worker(Work(after_thaw=fails(HookError(errors.CANNOT_WRITE, "no room; the job keeps running"))), channel)
    assert call(channel) == 0
    with pytest.raises(HookError) as caught:
        worker.read_result()
    assert str(caught.value) == "no room; the job keeps running"


def test_engine_that_fails_by_itself(channel):
    assert frozen.Worker(Work(), channel).find_fault() is None


def test_engine_that_does_not_call(channel):
    with pytest.raises(HookError) as caught:
        frozen.Worker(Work(), channel).read_result()
    assert (caught.value.code, str(caught.value)) == (
        errors.SYSTEM, "the engine did not call the hook while the job stood still, or the part of the hook it called died; see in "
                       "journalctl -k whether memory was short, and try again")


def test_pipes_that_a_killed_hook_left(run_directory):
    with make(run_directory), make(run_directory) as second:
        assert [stat.filemode(os.stat(path).st_mode) for path in second.pipes] == ["prw-------"] * 2


def test_no_pipes(run_directory):
    os.makedirs(os.path.join(run_directory, "jobs", "12.head.answer"))
    os.chmod(run_directory, 0o755)
    with pytest.raises(HookError) as caught, make(run_directory):
        raise AssertionError
    assert (caught.value.code, str(caught.value)) == (
        errors.SYSTEM, "cannot create the named pipe %s/jobs/12.head.answer: File exists; see to that file system; the job keeps running"
                       % run_directory)


def test_result_is_plain_json(channel):
    worker = frozen.Worker(Work(after_thaw=lambda: {"path": "\udcff"}), channel)
    call(channel)
    assert worker.read_result() == json.loads('{"path": "\\udcff"}')


def test_hook_that_was_killed(channel, in_child, wait_until):
    """Nothing of it stays, and the engine does not wait for it: the job keeps running."""
    ended = in_child(lambda: frozen.Worker(Work(), channel)._pid)
    wait_until(lambda: processes.read_process(ended.result) is None or processes.read_process(ended.result).state == "Z")
    assert call(channel) == 1


@pytest.mark.parametrize("at_work", [False, True])
def test_child_alone_that_was_killed(channel, at_work):
    """The engine does not wait for it: the job keeps running, and the reason is said."""
    worker = frozen.Worker(Work(lambda: os.kill(os.getpid(), signal.SIGKILL)), channel)
    if not at_work:
        os.kill(worker._pid, signal.SIGKILL)
    assert call(channel) == 1
    fault = worker.find_fault()
    assert (fault.code, fault.sentence) == (
        errors.SYSTEM, "the part of the hook that looks after the job's files was killed (signal 9); see in journalctl -k whether memory "
                       "was short, and try again")
