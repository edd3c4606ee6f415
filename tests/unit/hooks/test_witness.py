import json
import os
import signal
import subprocess

import pytest
from conftest import WITNESS

from torque_ckpt import errors, identity, witness
from torque_ckpt.errors import HookError


@pytest.fixture
def directory(tmp_path):
    descriptor = os.open(str(tmp_path), os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def call(tmp_path, stage="post-dump"):
    """What the engine does at a stage; return the program's exit status."""
    return subprocess.run([WITNESS], env=dict(os.environ, CRTOOLS_SCRIPT_ACTION=stage, CRTOOLS_IMAGE_DIR=str(tmp_path)),
                          stdin=subprocess.DEVNULL, timeout=20, check=False).returncode


def test_work_is_done_while_the_engine_waits(directory, tmp_path):
    def work():
        (tmp_path / "seen").write_text("frozen")
        yield
        yield {"said": "x" * 300000}  # more than a pipe holds
    watching = witness.Witness(work, directory)
    assert call(tmp_path, "pre-dump") == 0
    assert not (tmp_path / "seen").exists()
    assert call(tmp_path) == 0
    assert (tmp_path / "seen").read_text() == "frozen"
    assert watching.result() == {"said": "x" * 300000}
    assert os.listdir(str(tmp_path)) == ["seen"]


def test_rest_of_the_work_is_done_when_the_engine_has_gone_on(directory, tmp_path):
    def work():
        yield
        while not (tmp_path / "thawed").exists():
            pass
        yield "done"
    watching = witness.Witness(work, directory)
    assert call(tmp_path, "post-restore") == 0
    (tmp_path / "thawed").write_text("")
    assert watching.result() == "done"


@pytest.mark.parametrize("error, code, sentence", [
    (HookError(errors.CANNOT_WRITE, "no room; the job runs on"), errors.CANNOT_WRITE, "no room; the job runs on"),
    (KeyError("x"), errors.SYSTEM, "KeyError: 'x'"),
])
def test_work_that_fails_while_the_job_stands_still(directory, tmp_path, error, code, sentence):
    """The engine fails by it, and the reason is the work's."""
    def fail():
        raise error

    def work():
        fail()
        yield
    watching = witness.Witness(work, directory)
    assert call(tmp_path) == 1
    found = watching.fault()
    assert (found.code, found.sentence) == (code, sentence)
    assert os.listdir(str(tmp_path)) == []


def test_work_that_fails_afterwards(directory, tmp_path):
    def work():
        yield
        raise HookError(errors.CANNOT_WRITE, "no room; the job runs on")
    watching = witness.Witness(work, directory)
    assert call(tmp_path) == 0
    with pytest.raises(HookError) as caught:
        watching.result()
    assert str(caught.value) == "no room; the job runs on"


def test_engine_that_fails_by_itself(directory, tmp_path):
    assert witness.Witness(lambda: iter(()), directory).fault() is None
    assert os.listdir(str(tmp_path)) == []


def test_engine_that_does_not_call(directory, tmp_path):
    with pytest.raises(HookError) as caught:
        witness.Witness(lambda: iter(()), directory).result()
    assert (caught.value.code, str(caught.value)) == (
        errors.SYSTEM, "the engine did not call the hook while the job stood still, or the part of the hook it called died")
    assert os.listdir(str(tmp_path)) == []


def test_no_pipes(directory, tmp_path):
    (tmp_path / "witness-call").write_text("in the way")
    with pytest.raises(HookError) as caught:
        witness.Witness(lambda: iter(()), directory)
    assert (caught.value.code, str(caught.value)) == (
        errors.CANNOT_WRITE, "cannot make a named pipe beside the image: File exists")


def test_result_is_plain_json(directory, tmp_path):
    def work():
        yield
        yield {"path": "\udcff"}
    watching = witness.Witness(work, directory)
    call(tmp_path)
    assert watching.result() == json.loads('{"path": "\\udcff"}')


def test_hook_that_was_killed(directory, tmp_path, in_child, wait_until):
    """Nothing of it stays, and the engine does not wait for it: the job runs on."""
    ended = in_child(lambda: witness.Witness(lambda: iter(()), directory)._pid)
    wait_until(lambda: identity.process(ended.result) is None or identity.process(ended.result).state == "Z")
    assert call(tmp_path) == 1


@pytest.mark.parametrize("at_work", [False, True])
def test_child_alone_that_was_killed(directory, tmp_path, at_work):
    """The engine does not wait for it: the job runs on, and the reason is said."""
    def work():
        os.kill(os.getpid(), signal.SIGKILL)
        yield
    watching = witness.Witness(work, directory)
    if not at_work:
        os.kill(watching._pid, signal.SIGKILL)
    assert call(tmp_path) == 1
    found = watching.fault()
    assert (found.code, found.sentence) == (
        errors.SYSTEM, "the part of the hook that looks after the job's files was killed (signal 9)")
    assert os.listdir(str(tmp_path)) == []
