import json
import os
import signal
import stat
import subprocess

import pytest
from paths import WITNESS

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.job import frozen
from torque_ckpt.system import privilege, processes


ME = privilege.User("me", os.getuid(), os.getgid(), "/")


def make(run_directory):
    return frozen.way(os.path.join(os.path.dirname(WITNESS), "checkpoint"), run_directory, "12.head", ME, "the job runs on")


@pytest.fixture
def run_directory(tmp_path):
    return str(tmp_path / "run")


@pytest.fixture
def way(run_directory):
    with make(run_directory) as found:
        yield found
    assert os.listdir(os.path.join(run_directory, "jobs")) == []


def call(way, stage="post-dump"):
    """What the engine does at a stage; return the program's exit status."""
    return subprocess.run([way.program], env=dict(os.environ, CRTOOLS_SCRIPT_ACTION=stage),
                          stdin=subprocess.DEVNULL, timeout=20, check=False).returncode


def test_work_is_done_while_the_engine_waits(way, tmp_path):
    def work():
        (tmp_path / "seen").write_text("frozen")
        yield
        return {"said": "x" * 300000}  # more than a pipe holds
    watching = frozen.Witness(work, way)
    assert call(way, "pre-dump") == 0
    assert not (tmp_path / "seen").exists()
    assert call(way) == 0
    assert (tmp_path / "seen").read_text() == "frozen"
    assert watching.result() == {"said": "x" * 300000}


def test_rest_of_the_work_is_done_when_the_engine_has_gone_on(way, tmp_path):
    def work():
        yield
        while not (tmp_path / "thawed").exists():
            pass
        return "done"
    watching = frozen.Witness(work, way)
    assert call(way, "post-restore") == 0
    (tmp_path / "thawed").write_text("")
    assert watching.result() == "done"


@pytest.mark.parametrize("error, code, sentence", [
    (HookError(errors.CANNOT_WRITE, "no room; the job runs on"), errors.CANNOT_WRITE, "no room; the job runs on"),
    (KeyError("x"), errors.SYSTEM, "KeyError: 'x'"),
])
def test_work_that_fails_while_the_job_stands_still(way, error, code, sentence):
    """The engine fails by it, and the reason is the work's."""
    def fail():
        raise error

    def work():
        fail()
        yield
    watching = frozen.Witness(work, way)
    assert call(way) == 1
    found = watching.fault()
    assert (found.code, found.sentence) == (code, sentence)


def test_work_that_fails_afterwards(way):
    def work():
        yield
        raise HookError(errors.CANNOT_WRITE, "no room; the job runs on")
    watching = frozen.Witness(work, way)
    assert call(way) == 0
    with pytest.raises(HookError) as caught:
        watching.result()
    assert str(caught.value) == "no room; the job runs on"


def test_engine_that_fails_by_itself(way):
    assert frozen.Witness(lambda: iter(()), way).fault() is None


def test_engine_that_does_not_call(way):
    with pytest.raises(HookError) as caught:
        frozen.Witness(lambda: iter(()), way).result()
    assert (caught.value.code, str(caught.value)) == (
        errors.SYSTEM, "the engine did not call the hook while the job stood still, or the part of the hook it called died")


def test_pipes_that_a_killed_hook_left(run_directory):
    with make(run_directory), make(run_directory) as second:
        assert [stat.filemode(os.stat(path).st_mode) for path in second.pipes] == ["prw-------"] * 2


def test_no_pipes(run_directory):
    os.makedirs(os.path.join(run_directory, "jobs", "12.head.answer"))
    os.chmod(run_directory, 0o755)
    with pytest.raises(HookError) as caught, make(run_directory):
        raise AssertionError
    assert (caught.value.code, str(caught.value)) == (
        errors.SYSTEM, "cannot make the named pipe %s/jobs/12.head.answer: File exists; the job runs on" % run_directory)


def test_result_is_plain_json(way):
    def work():
        yield
        return {"path": "\udcff"}
    watching = frozen.Witness(work, way)
    call(way)
    assert watching.result() == json.loads('{"path": "\\udcff"}')


def test_hook_that_was_killed(way, in_child, wait_until):
    """Nothing of it stays, and the engine does not wait for it: the job runs on."""
    ended = in_child(lambda: frozen.Witness(lambda: iter(()), way)._pid)
    wait_until(lambda: processes.read_process(ended.result) is None or processes.read_process(ended.result).state == "Z")
    assert call(way) == 1


@pytest.mark.parametrize("at_work", [False, True])
def test_child_alone_that_was_killed(way, at_work):
    """The engine does not wait for it: the job runs on, and the reason is said."""
    def work():
        os.kill(os.getpid(), signal.SIGKILL)
        yield
    watching = frozen.Witness(work, way)
    if not at_work:
        os.kill(watching._pid, signal.SIGKILL)
    assert call(way) == 1
    found = watching.fault()
    assert (found.code, found.sentence) == (
        errors.SYSTEM, "the part of the hook that looks after the job's files was killed (signal 9)")
