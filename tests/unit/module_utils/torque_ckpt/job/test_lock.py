import fcntl
import json
import os
import re
import signal

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.job import lock
from torque_ckpt.job.records import Records
from torque_ckpt.system import privilege

SENTENCE = (r"a checkpoint \(process %d, since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\) is at work on job 12\.head; waited %d seconds; "
            r"try again when it has ended; the job keeps running")


@pytest.fixture
def run_directory(tmp_path):
    return str(tmp_path / "run")


def path(run_directory):
    return os.path.join(run_directory, "jobs", "12.head.lock")


def hold(run_directory, timeout=0, what="checkpoint", job_id="12.head"):
    return lock.hold_lock(Records(run_directory, job_id), what, timeout, "the job keeps running")


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


@pytest.fixture
def holder(run_directory):
    """A process (pid) that has the lock; it ends with the test."""
    ready, ready_in = os.pipe()
    pid = os.fork()
    if pid == 0:
        with hold(run_directory):
            os.write(ready_in, b"x")
            signal.pause()
        os._exit(0)
    os.read(ready, 1)
    yield pid
    os.close(ready)
    os.close(ready_in)
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except ProcessLookupError:
        pass


def test_lock_says_who_has_it_and_leaves_nothing(run_directory):
    before = descriptors()
    with hold(run_directory):
        with open(path(run_directory)) as stream:
            record = json.load(stream)
        assert (record["what"], record["pid"]) == ("checkpoint", os.getpid())
        assert os.stat(path(run_directory)).st_mode == 0o100600
    assert os.listdir(os.path.join(run_directory, "jobs")) == []
    assert descriptors() == before


def test_second_hook_is_told_who_is_at_work(run_directory, holder):
    before = descriptors()
    with pytest.raises(HookError) as caught, hold(run_directory, 1):
        raise AssertionError("it has the lock")
    assert re.fullmatch(SENTENCE % (holder, 1), str(caught.value))
    assert caught.value.code == errors.TEMPORARY
    assert descriptors() == before


def test_holder_that_has_not_said_who_it_is(run_directory, holder):
    open(path(run_directory), "w").close()
    with pytest.raises(HookError) as caught, hold(run_directory):
        raise AssertionError("it has the lock")
    assert str(caught.value) == (
        "another hook is at work on job 12.head; waited 0 seconds; try again when it has ended; the job keeps running")


def test_second_hook_waits(run_directory, holder):
    waiting = os.fork()
    if waiting == 0:
        try:
            with hold(run_directory, 30, "restart"):
                os._exit(7)
        finally:
            os._exit(1)
    assert os.waitpid(waiting, os.WNOHANG) == (0, 0)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    assert os.waitpid(waiting, 0)[1] == 7 << 8


def test_killed_holder_frees_the_lock(run_directory, holder):
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    assert os.path.exists(path(run_directory))
    with hold(run_directory), open(path(run_directory)) as stream:
        assert json.load(stream)["pid"] == os.getpid()
    assert os.listdir(os.path.join(run_directory, "jobs")) == []


def test_lock_lasts_as_long_as_a_process_of_its_hook(run_directory):
    """The user's part of a hook works on when the hook is killed."""
    ready, ready_in = os.pipe()
    hook = os.fork()
    if hook == 0:
        with hold(run_directory):
            child = os.fork()
            if child:
                os.write(ready_in, b"%d\n" % child)
            signal.pause()
    child = int(os.read(ready, 99))
    os.kill(hook, signal.SIGKILL)
    os.waitpid(hook, 0)
    with pytest.raises(HookError), hold(run_directory):
        raise AssertionError("it has the lock")
    os.kill(child, signal.SIGKILL)
    with hold(run_directory, 30):
        pass
    os.close(ready)
    os.close(ready_in)


def test_job_ids_do_not_meet(run_directory, holder):
    with hold(run_directory, job_id="13.head"):
        pass


def test_failure_of_the_body_frees_the_lock(run_directory):
    with pytest.raises(ValueError), hold(run_directory):
        raise ValueError
    with hold(run_directory):
        pass


def test_many_hooks_one_after_the_other(run_directory, tmp_path):
    """Each adds its line; two at once would see each other's mark."""
    mark = str(tmp_path / "mark")
    children = []
    for _turn in range(8):
        pid = os.fork()
        if pid == 0:
            try:
                for _again in range(5):
                    with hold(run_directory, 30):
                        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                        os.unlink(mark)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 8
    assert os.listdir(os.path.join(run_directory, "jobs")) == []


@pytest.mark.root
def test_user_cannot_take_the_lock(run_directory, open_directory, somebody):
    run_directory = os.path.join(open_directory, "run")

    def work():
        try:
            fcntl.flock(os.open(path(run_directory), os.O_RDONLY), fcntl.LOCK_EX)
        except PermissionError:
            return "refused"

    with hold(run_directory):
        assert privilege.as_user(somebody, work) == "refused"


def test_link_in_the_place_of_the_lock(run_directory, tmp_path):
    with hold(run_directory):
        pass
    os.symlink(str(tmp_path / "precious"), path(run_directory))
    with pytest.raises(HookError) as caught, hold(run_directory):
        raise AssertionError("it has the lock")
    assert str(caught.value) == ("cannot lock %s: Too many levels of symbolic links; see to that file system; the job keeps running"
                                 % path(run_directory))
    assert caught.value.code == errors.SYSTEM
    assert not (tmp_path / "precious").exists()
