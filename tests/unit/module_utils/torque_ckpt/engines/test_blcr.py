"""The engine BLCR against a double of its commands. What they really do is seen in `make blcr-vm`."""
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from paths import TOP

from torque_ckpt import errors
from torque_ckpt.engines import blcr, registry
from torque_ckpt.errors import HookError
from torque_ckpt.job import records, suspension
from torque_ckpt.job.records import Records
from torque_ckpt.system import privilege, processes

DOUBLE = TOP / "tests/unit/helpers/blcr_double.py"


@pytest.fixture
def commands(tmp_path):
    """The directory (pathlib.Path) with the double; fails(command, status, text) makes it fail."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("cr_run", "cr_checkpoint", "cr_restart"):
        (directory / name).write_text("#!%s\n" % sys.executable + DOUBLE.read_text())
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture
def fails(commands):
    def fail(name, status, text):
        (commands / "fails").write_text("%s\n%d\n%s" % (name, status, text))
    return fail


@pytest.fixture
def engine(commands):
    return blcr.Blcr(str(commands), [], ["--no-restore-pid"], 20)


@pytest.fixture
def image(tmp_path):
    directory = tmp_path / "image"
    directory.mkdir()
    return directory


@pytest.fixture
def job():
    """A job of three processes (subprocess.Popen)."""
    started = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & sleep 600 & wait"])
    while len(processes.list_tree(started.pid)) < 3:
        pass
    yield started
    for pid in processes.list_tree(started.pid):
        os.kill(pid, signal.SIGKILL)
    started.wait()


def states(job):
    return [processes.read_process(pid).state for pid in processes.list_tree(job.pid)]


def failure(work, *arguments, **named):
    with pytest.raises(HookError) as caught:
        work(*arguments, **named)
    return caught.value.code, str(caught.value)


# What is there

def test_get_gives_the_configured_blcr(commands):
    engine = registry.load_engine({"engine": "blcr", "engine_timeout": 5, "engine_options": {
        "path": str(commands), "dump_options": ["--save-exe"], "restore_options": ["--relocate", "/a=/b"]}})
    assert (engine.name, engine.path, engine.dump_options, engine.restore_options, engine.timeout) == (
        "blcr", str(commands), ["--save-exe"], ["--relocate", "/a=/b"], 5)
    assert engine.keeps_ids and not engine.dump_capabilities and not engine.restore_capabilities


@pytest.mark.parametrize("name", ["cr_run", "cr_checkpoint", "cr_restart"])
def test_command_that_is_not_there(commands, name):
    (commands / name).unlink()
    assert failure(blcr.Blcr, str(commands)) == (errors.CONFIG, "%s is not in %s on this node; run the role blcr" % (name, commands))


def test_version_is_what_it_says(engine):
    assert engine.read_version() == "0.8.6_b4"


def test_jobs_are_started_under_cr_run(engine, commands):
    assert engine.build_command(["/bin/sh", "-c", "x"]) == [str(commands / "cr_run"), "--", "/bin/sh", "-c", "x"]
    assert subprocess.check_output(engine.build_command(["/bin/echo", "--", "a b"])) == b"-- a b\n"


@pytest.mark.parametrize("output, wanted", [
    ("", "it printed nothing"), ("Restart failed: Input/output error\n", "Restart failed: Input/output error"),
    ("- found pid 12 in use\nRestart failed: Device or resource busy\n", "found pid 12 in use"),
    ("- vfs_write returned -28\n- more\nCheckpoint failed: No space left on device.\n", "vfs_write returned -28"),
])
def test_reason_is_the_kernels_first_or_the_last_line(output, wanted):
    assert blcr.find_reason(output) == wanted


# Dump

@pytest.mark.parametrize("stop, wanted", [(True, "T"), (False, "S")])
def test_dump_leaves_the_job_as_it_is_told(engine, image, job, wait_until, stop, wanted):
    engine.dump(job.pid, str(image), stop)
    wait_until(lambda: states(job) == [wanted] * 3)
    assert sorted(os.listdir(str(image))) == ["context", "context.json"]
    assert oct((image / "context").stat().st_mode & 0o777) == "0o600"
    directory = os.open(str(image), os.O_RDONLY)
    assert engine.list_process_ids(directory) == sorted(processes.list_tree(job.pid))
    os.close(directory)
    mapped = json.loads((image / "context.json").read_text())["mapped"]
    shell = os.path.realpath("/bin/sh")
    assert mapped[shell][0] == os.path.getsize(shell)
    assert all(os.path.isfile(path) for path in mapped)


def test_memory_goes_elsewhere(engine, image, job, tmp_path):
    (tmp_path / "store").mkdir()
    engine.dump(job.pid, str(image), False, memory=str(tmp_path / "store"))
    assert os.listdir(str(image)) == ["context.json"]
    assert os.listdir(str(tmp_path / "store")) == ["context"]


def test_what_the_user_had_suspended_stays_so(engine, image, job, wait_until):
    suspended = processes.list_tree(job.pid)[1]
    os.kill(suspended, signal.SIGSTOP)
    wait_until(lambda: states(job) == ["S", "T", "S"])
    engine.dump(job.pid, str(image), False)
    wait_until(lambda: states(job) == ["S", "T", "S"])
    assert json.loads((image / "context.json").read_text())["suspended"] == [suspended]


def test_witness_sees_the_job_stand_still(engine, image, job, program, tmp_path, wait_until):
    seen = tmp_path / "seen"
    engine.dump(job.pid, str(image), False, program("cut -d ' ' -f 3 /proc/%d/stat > %s\n" % (job.pid, seen)))
    assert seen.read_text() == "T\n"
    wait_until(lambda: states(job) == ["S"] * 3)


def test_witness_that_fails(engine, image, job, program, wait_until):
    path = program("echo no >&2\nexit 3\n")
    assert failure(engine.dump, job.pid, str(image), True, path) == (
        errors.ENGINE, "%s failed with status 3: no; the job keeps running" % path)
    wait_until(lambda: states(job) == ["S"] * 3)


@pytest.mark.parametrize("status, text, code, sentence", [
    (38, "Checkpoint failed: support missing from kernel\n", errors.CONFIG,
     "BLCR's kernel modules are not loaded on this node (cr_checkpoint: Checkpoint failed: support missing from kernel); the job keeps "
     "running; run the role blcr"),
    (255, "Failed cr_init(): -1\n", errors.CONFIG,
     "BLCR's kernel modules are not loaded on this node (cr_checkpoint: Failed cr_init(): -1); the job keeps running; run the role blcr"),
    (52, "Checkpoint failed: support missing from application\n", errors.ENGINE,
     "a process of the job was not started under cr_run, or is linked statically, so that BLCR cannot checkpoint it (cr_checkpoint: "
     "Checkpoint failed: support missing from application); the job keeps running; submit it with qsub -c enabled, and link its "
     "programs dynamically"),
    (3, "Checkpoint failed: no processes checkpointed\n", errors.ENGINE,
     "cr_checkpoint failed with status 3: Checkpoint failed: no processes checkpointed; the job keeps running; see whether torque-ckpt "
     "selftest passes on this node (as root)"),
    (28, "- vfs_write returned -28\nCheckpoint failed: No space left on device\n", errors.CANNOT_WRITE,
     "there is no space for the image: No space left on device (cr_checkpoint: vfs_write returned -28); the job keeps running; free some "
     "space in the store"),
    (22, "- vfs_write returned -28\nCheckpoint failed: Invalid argument\n", errors.CANNOT_WRITE,
     "there is no space for the image: No space left on device (cr_checkpoint: vfs_write returned -28); the job keeps running; free some "
     "space in the store"),
    (122, "- vfs_write returned -122\nCheckpoint failed: Disk quota exceeded\n", errors.CANNOT_WRITE,
     "there is no space for the image: Disk quota exceeded (cr_checkpoint: vfs_write returned -122); the job keeps running; free some "
     "space in the store"),
    (1, "Checkpoint failed: Operation not permitted\n", errors.ENGINE,
     "cr_checkpoint failed with status 1: Checkpoint failed: Operation not permitted; the job keeps running; see whether torque-ckpt "
     "selftest passes on this node (as root)"),
    (31, "- Too many links\nCheckpoint failed: Too many links\n", errors.ENGINE,
     "cr_checkpoint failed with status 31: Too many links; the job keeps running; see whether torque-ckpt selftest passes on this node (as "
     "root)"),
    (22, "- invalid file descriptor\nCheckpoint failed: Invalid argument\n", errors.ENGINE,
     "cr_checkpoint failed with status 22: invalid file descriptor; the job keeps running; see whether torque-ckpt selftest passes on this "
     "node (as root)"),
])
def test_checkpoint_that_fails(engine, image, job, fails, wait_until, status, text, code, sentence):
    fails("cr_checkpoint", status, text)
    assert failure(engine.dump, job.pid, str(image), True) == (code, sentence)
    wait_until(lambda: states(job) == ["S"] * 3)


@pytest.fixture
def forbidden(monkeypatch, tmp_path):
    """BLCR is there, but not for this user, of which its own words say nothing: the sentence, less its end."""
    control = tmp_path / "ctrl"
    control.touch()
    monkeypatch.setattr(blcr, "_CONTROL", str(control))
    monkeypatch.setattr(blcr.os, "access", lambda path, mode: path != str(control))
    return "user %d may not use BLCR on this node: %s is for its group only (blcr_ctrl_group); make the user a member of it; " % (
        os.getuid(), control)


def test_user_who_may_not_checkpoint(engine, image, job, fails, forbidden, wait_until):
    fails("cr_checkpoint", 52, "Checkpoint failed: support missing from application\n")
    assert failure(engine.dump, job.pid, str(image), True) == (errors.REFUSED, forbidden + "the job keeps running")
    wait_until(lambda: states(job) == ["S"] * 3)


def test_checkpoint_that_takes_too_long(commands, image, job, wait_until):
    """It may have stopped some of the job by then."""
    (commands / "cr_checkpoint").write_text("#!/bin/sh\nkill -STOP %d\nexec sleep 60\n" % job.pid)
    assert failure(blcr.Blcr(str(commands), timeout=1).dump, job.pid, str(image), True) == (
        errors.ENGINE, "%s took longer than 1 seconds and was killed; allow it more time (checkpoint_hooks_engine_timeout)"
                       % (commands / "cr_checkpoint"))
    wait_until(lambda: states(job) == ["S"] * 3)


@pytest.mark.parametrize("name", ["context", "context.json"])
def test_image_that_cannot_be_written(engine, image, job, wait_until, name):
    (image / name).symlink_to("/dev/full")
    assert failure(engine.dump, job.pid, str(image), False) == (
        errors.CANNOT_WRITE, "cannot write %s of the image: File exists; the job keeps running; see to the space, the quota and the rights "
                             "in the store" % name)
    wait_until(lambda: states(job) == ["S"] * 3)


def test_checkpoint_as_it_is_called(commands, image, job):
    (commands / "cr_checkpoint").write_text("#!/bin/sh\necho \"$@\"\nexit 1\n")
    engine = blcr.Blcr(str(commands), ["--save-private", "--save-exe"])
    arguments = failure(engine.dump, job.pid, str(image), False)[1].split("1: ")[1].partition("; ")[0].split()
    assert arguments.pop(arguments.index("-F") + 1).isdigit()
    assert arguments == ["--tree", str(job.pid), "--stop", "--nosync", "-F", "--save-private", "--save-exe"]


LOSER = """
import ctypes, mmap, os, signal, socket, subprocess, sys
pair = socket.socketpair()
timer = ctypes.c_void_p()
assert ctypes.CDLL("librt.so.1").timer_create(0, None, ctypes.byref(timer)) == 0
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(0, 4096, 0o600)
libc.shmat(segment, None, 0)
libc.shmctl(segment, 0, None)
if os.fork() == 0:
    os._exit(0)
print("ready", flush=True)
signal.pause()
"""


def test_what_does_not_come_back_is_named(engine, image):
    """A child has the sockets of its parent; they count once."""
    job = subprocess.Popen([sys.executable, "-c", LOSER], stdout=subprocess.PIPE)
    try:
        assert job.stdout.readline() == b"ready\n"
        engine.dump(job.pid, str(image), True)
        directory = os.open(str(image), os.O_RDONLY)
        timers = ["1 POSIX timer"] if os.path.exists("/proc/self/timers") else []
        assert engine.list_lost_resources(directory) == ["2 sockets"] + timers + ["1 System V shared memory segment", "1 zombie"]
        os.close(directory)
    finally:
        job.kill()
        job.wait()


def test_nothing_is_lost_of_a_plain_job(engine, image, job):
    engine.dump(job.pid, str(image), True)
    directory = os.open(str(image), os.O_RDONLY)
    assert engine.list_lost_resources(directory) == []
    os.close(directory)


# Restore

@pytest.fixture
def dumped_image(engine, image):
    """An image of a job of one process that is gone."""
    job = subprocess.Popen(["/bin/sleep", "600"])
    engine.dump(job.pid, str(image), True)
    job.kill()
    job.wait()
    return image


def command_of(pid):
    with open("/proc/%d/cmdline" % pid) as stream:
        return stream.read().split("\0")[0]


def restored(in_child, wait_until, engine, image, action_script=None):
    """Restore in a child that adopts the tree; return how many processes came, and the state of the one that runs what it ran."""
    def work():
        privilege.become_subreaper()
        privilege.as_user(privilege.User("me", os.geteuid(), os.getegid(), "/"), lambda: engine.restore(str(image), action_script))
        pids = processes.list_children(os.getpid())
        wait_until(lambda: command_of(pids[0]) == "/bin/sleep")  # the double starts it anew
        answer = [len(pids), processes.read_process(pids[0]).state]
        os.kill(pids[0], signal.SIGKILL)
        return answer
    return in_child(work).result


@pytest.mark.root
def test_tree_comes_back_as_an_orphan_that_runs(engine, dumped_image, in_child, wait_until):
    count, state = restored(in_child, wait_until, engine, dumped_image)
    assert count == 1 and state in "SR"


@pytest.mark.root
def test_witness_sees_the_tree_stand_still(engine, dumped_image, in_child, wait_until, program, tmp_path):
    """The program's parent is the user's part of the hook, whose parent has adopted the tree. The part itself may run or sleep."""
    seen = tmp_path / "seen"
    path = program("read -r pid name state hook rest < /proc/$PPID/stat\n"
                   "for pid in $(cat /proc/$hook/task/$hook/children); do\n"
                   "    test $pid = $PPID || cut -d ' ' -f 3 /proc/$pid/stat\n"
                   "done > %s\n" % seen)
    assert restored(in_child, wait_until, engine, dumped_image, path)[0] == 1
    assert seen.read_text() == "T\n"


@pytest.mark.parametrize("status, text, code, sentence", [
    (16, "- found pid 4711 in use\nRestart failed: Device or resource busy\n", errors.TEMPORARY,
     "a process id of the image is in use on this node (cr_restart: found pid 4711 in use); try again later or on another node"),
    (12, "Restart failed: Cannot allocate memory\n", errors.TEMPORARY,
     "there is not enough memory on this node (cr_restart: Restart failed: Cannot allocate memory); try again later or on another node"),
    (38, "Restart failed: support missing from kernel\n", errors.CONFIG,
     "BLCR's kernel modules are not loaded on this node (cr_restart: Restart failed: support missing from kernel); run the role blcr; "
     "image kept"),
    (255, "Failed cr_init(): -1\n", errors.CONFIG,
     "BLCR's kernel modules are not loaded on this node (cr_restart: Failed cr_init(): -1); run the role blcr; image kept"),
    (5, "Restart failed: Input/output error\n", errors.ENGINE,
     "cr_restart failed with status 5: Restart failed: Input/output error; the image is kept; restart the job on another node, or see "
     "whether torque-ckpt selftest passes on this node (as root)"),
    (2, "- Failed to open file /data/x\nRestart failed: No such file or directory\n", errors.ENGINE,
     "cr_restart failed with status 2: Failed to open file /data/x; the image is kept; restart the job on another node, or see whether "
     "torque-ckpt selftest passes on this node (as root)"),
    (0, "", errors.ENGINE, "cr_restart failed with status 0: it printed nothing; the image is kept; restart the job on another node, or "
                           "see whether torque-ckpt selftest passes on this node (as root)"),
])
def test_restart_that_fails(engine, dumped_image, fails, status, text, code, sentence):
    fails("cr_restart", status, text)
    assert failure(engine.restore, str(dumped_image)) == (code, sentence)


def test_user_who_may_not_restart(engine, dumped_image, fails, forbidden):
    fails("cr_restart", 255, "Failed cr_init(): -1\n")
    assert failure(engine.restore, str(dumped_image)) == (errors.REFUSED, forbidden + "image kept")


def test_id_in_use_is_looked_for_by_blcr_too(commands, dumped_image):
    about = json.loads((dumped_image / "context").read_text())
    (dumped_image / "context").write_text(json.dumps(dict(about, pids=[os.getpid()])))
    assert failure(blcr.Blcr(str(commands)).restore, str(dumped_image)) == (
        errors.TEMPORARY, "a process id of the image is in use on this node (cr_restart: found pid %d in use); try again later or on "
        "another node" % os.getpid())


def test_context_that_is_none(engine, dumped_image):
    (dumped_image / "context").write_text("nonsense")
    assert failure(engine.restore, str(dumped_image)) == (
        errors.ENGINE, "cr_restart failed with status 22: file header has invalid signature; the image is kept; restart the job on another "
                       "node, or see whether torque-ckpt selftest passes on this node (as root)")


def test_library_that_is_another_here(engine, dumped_image, tmp_path):
    """BLCR would map it, and the program would crash."""
    library = tmp_path / "libx.so"
    shutil.copy(os.path.realpath("/bin/sleep"), str(library))
    about = json.loads((dumped_image / "context.json").read_text())
    about["mapped"][str(library)] = blcr._describe_file(str(library))
    (dumped_image / "context.json").write_text(json.dumps(about))
    engine._check_mapped(about["mapped"])
    library.write_bytes(library.read_bytes()[:-1] + b"x")
    sentence = ("%s, which the job has mapped, is not on this node as it was where the image was written; give the nodes the same programs "
                "and libraries (no prelink), or restart the job elsewhere; image kept" % library)
    assert failure(engine.restore, str(dumped_image)) == (errors.REFUSED, sentence)
    library.unlink()
    assert failure(engine.restore, str(dumped_image)) == (errors.REFUSED, sentence)
    blcr.Blcr(engine.path, ["--save-private"])._check_mapped(about["mapped"])


def test_nothing_of_the_image_is_memory_alone(engine):
    assert not engine.is_memory("context") and not engine.is_memory("context.json")


# The checkpoint hook with it

@pytest.fixture
def blcr_site(site, open_directory):
    """The Site with BLCR as its engine, and the directory of its commands (str)."""
    directory = os.path.join(open_directory, "bin")
    os.mkdir(directory)
    for name in ("cr_run", "cr_checkpoint", "cr_restart"):
        path = os.path.join(directory, name)
        with open(path, "w") as stream:
            stream.write("#!/usr/bin/python3\n" + DOUBLE.read_text())
        os.chmod(path, 0o755)
    site.commands = directory
    site.configure(engine="blcr", engine_options={"path": directory})
    return site


def checkpoint(hook, site, session, signal_number):
    return hook("checkpoint", site.arguments(session=str(session)) + [signal_number, "-"], site.config)


def record(site):
    return Records(site.run_directory, "12.head").read(records.HOLDING)


@pytest.mark.root
def test_hook_ends_a_held_job(hook, blcr_site, start_job):
    started = start_job(user=blcr_site.user)
    leader, job = started.leader, started.pids[0]
    assert checkpoint(hook, blcr_site, leader, "15") == (0, "", "")
    assert getattr(processes.read_process(job), "state", "Z") in "ZX"
    files = blcr_site.content()
    assert "ckpt.12.head.2/context" in files
    manifest = json.loads(files["ckpt.12.head.2/manifest.json"].decode())
    assert (manifest["engine"], manifest["pids"], manifest["lost"]) == ({"name": "blcr", "version": "0.8.6_b4"}, [job], [])
    assert record(blcr_site) is None


@pytest.mark.root
def test_hook_leaves_a_job_going(hook, blcr_site, start_job, state_of, wait_until):
    started = start_job(user=blcr_site.user)
    leader, job = started.leader, started.pids[0]
    assert checkpoint(hook, blcr_site, leader, "0") == (0, "", "")
    wait_until(lambda: state_of(job) == "S")
    assert "ckpt.12.head.2/context" in blcr_site.content()
    assert record(blcr_site) is None


@pytest.mark.root
@pytest.mark.parametrize("signal_number", ["15", "0"])
def test_checkpoint_that_fails_after_it_has_stopped_the_job(hook, blcr_site, start_job, state_of, wait_until, signal_number):
    started = start_job(user=blcr_site.user)
    leader, job = started.leader, started.pids[0]
    with open(os.path.join(blcr_site.commands, "cr_checkpoint"), "w") as stream:
        stream.write("#!/bin/sh\nkill -STOP %d\necho '- vfs_write returned -28' >&2\nexit 28\n" % job)
    assert checkpoint(hook, blcr_site, leader, signal_number) == (
        errors.CANNOT_WRITE, "", "there is no space for the image: No space left on device (cr_checkpoint: vfs_write returned -28); the "
        "job keeps running; free some space in the store\n")
    wait_until(lambda: state_of(job) == "S")
    assert blcr_site.content() == {}
    assert record(blcr_site) is None


@pytest.mark.root
@pytest.mark.parametrize("signal_number", ["15", "0"])
def test_kernel_that_stops_the_job_when_everybody_has_given_up(hook, blcr_site, start_job, state_of, wait_until, signal_number):
    """The record stays, by which the job's leader, or here the test, sets it going again."""
    started = start_job(user=blcr_site.user)
    leader, job = started.leader, started.pids[0]
    blcr_site.configure(engine="blcr", engine_options={"path": blcr_site.commands}, engine_timeout=1)
    path = os.path.join(blcr_site.commands, "cr_checkpoint")
    with open(path, "w") as stream:
        stream.write("#!/bin/sh\n[ $1 != --version ] || exec echo version 0.8.6_b4\nexec sleep 60\n")
    assert checkpoint(hook, blcr_site, leader, signal_number) == (
        errors.ENGINE, "", "%s took longer than 1 seconds and was killed; allow it more time (checkpoint_hooks_engine_timeout)\n" % path)
    assert state_of(job) == "S"
    os.kill(job, signal.SIGSTOP)
    assert record(blcr_site) is not None
    suspension.resume_abandoned_job(Records(blcr_site.run_directory, "12.head"), job)
    wait_until(lambda: state_of(job) == "S")


@pytest.mark.root
@pytest.mark.parametrize("signal_number", ["15", "0"])
def test_hook_that_is_killed_while_the_job_stands_still(hook, blcr_site, start_job, state_of, wait_until, signal_number):
    started = start_job(user=blcr_site.user)
    leader, job = started.leader, started.pids[0]
    with open(os.path.join(blcr_site.commands, "cr_checkpoint"), "w") as stream:
        stream.write("#!/bin/sh\n[ $1 != --version ] || exec echo version 0.8.6_b4\nkill -STOP %d\n" % job
                     + "kill -KILL $PPID\nsleep 0.3\n")
    assert checkpoint(hook, blcr_site, leader, signal_number).code == errors.SYSTEM
    wait_until(lambda: state_of(job) == "S")
    assert record(blcr_site) is None
