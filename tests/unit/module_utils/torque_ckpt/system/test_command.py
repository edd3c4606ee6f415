import os
import signal
import time

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.job import supervisor
from torque_ckpt.system import command, processes


@pytest.mark.parametrize("text, wanted", [
    ("exit 0", (0, "")), ("exit 7", (7, "")), ("echo out; echo err >&2; exit 1", (1, "out\nerr\n")), ("exit 127", (127, "")),
    ("echo not found; exit 127", (127, "not found\n")),
    ("echo cannot start it; exit 1", (1, "cannot start it\n")), ("kill -9 $$", (-9, "")), ("echo dying; kill -TERM $$", (-15, "dying\n")),
    ('echo "$@"', (0, "a b  $c ;d\n")), ("printf '\\377'", (0, "\ufffd")),
])
def test_run_returns_status_and_output(program, text, wanted):
    assert command.run([program(text), "a b", " $c", ";d"], 10) == wanted


def test_run_gives_the_program_no_input_of_the_hooks_own(in_child, program):
    path = program('read line; echo "$? [$line]"\n')

    def work():
        reader, writer = os.pipe()
        os.write(writer, b"secret\n")
        os.dup2(reader, 0)
        return command.run([path], 10)
    assert in_child(work).result == [0, "1 []\n"]


def test_run_gives_the_program_the_descriptors_named_and_no_others(in_child, program):
    """What BLCR restores has them, too."""
    path = program('for one in /proc/$$/fd/*; do echo "${one##*/} $(readlink $one)"; done\n')

    def work():
        opened = [os.open(name, os.O_RDONLY) for name in ("/", "/dev/zero", "/usr")]
        for descriptor in opened:
            os.set_inheritable(descriptor, True)
        return [opened[1], command.run([path], 10, inherited=[opened[1]])[1].splitlines()]
    named, lines = in_child(work).result
    targets = dict(line.split(" ", 1) for line in lines)
    assert targets[str(named)] == "/dev/zero"
    assert "/" not in targets.values() and "/usr" not in targets.values()


def test_run_keeps_the_end_of_a_long_output(program):
    status, output = command.run([program("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")], 20)
    assert status == 0
    assert len(output) == 65536
    assert output.endswith("line 19998\nline 19999\n")


def test_run_gives_the_program_the_signals_a_shell_expects(in_child):
    def work():
        supervisor.block_signals()
        return command.run(["/bin/cat", "/proc/self/status"], 10)[1]
    text = in_child(work).result
    fields = dict(line.split(":\t", 1) for line in text.splitlines())
    assert int(fields["SigBlk"], 16) == 0
    assert int(fields["SigIgn"], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0


@pytest.mark.parametrize("text", ["exec sleep 60", "trap '' TERM INT HUP; while :; do echo on; sleep 0.01; done"])
def test_run_kills_a_program_that_takes_too_long(program, text):
    before = processes.list_children(os.getpid())
    path = program(text)
    with pytest.raises(HookError) as caught:
        command.run([path], 0.3)
    assert str(caught.value) == "%s took longer than 0 seconds and was killed; allow it more time (checkpoint_hooks_engine_timeout)" % path
    assert caught.value.code == errors.ENGINE
    assert processes.list_children(os.getpid()) == before


@pytest.mark.parametrize("make, why", [
    (lambda path: None, "No such file or directory"),
    (lambda path: path.mkdir(), "Permission denied"),
    (lambda path: path.write_text("#!/bin/sh\n"), "Permission denied"),
    (lambda path: path.write_text("#!/nonexistent/sh\n") and path.chmod(0o755), "No such file or directory"),
    (lambda path: path.write_bytes(b"\0\0\0\0") and path.chmod(0o755), "Exec format error"),
])
def test_run_of_what_cannot_be_started(tmp_path, make, why):
    path = tmp_path / "criu"
    make(path)
    with pytest.raises(HookError) as caught:
        command.run([str(path)], 10)
    assert str(caught.value) == "cannot start %s: %s; run the engine's role on this node" % (path, why)
    assert caught.value.code == errors.CONFIG


def test_run_leaves_no_descriptor_and_no_child(program):
    path = program("exec sleep ${1:-0}\n")
    before, children = sorted(os.listdir("/proc/self/fd")), processes.list_children(os.getpid())
    command.run([path], 10)
    with pytest.raises(HookError):
        command.run([path, "60"], 0.1)
    with pytest.raises(HookError):
        command.run([path + ".none"], 10)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert processes.list_children(os.getpid()) == children


def test_what_speaks_through_the_output_of_a_killed_program_lives_on(program):
    """CRIU's parasite in a process of the job does, when CRIU is killed; SIGPIPE would end the job."""
    path = program("setsid sh -c 'sleep 1; echo trimmed message; touch \"${0%/*}/lives\"' \"$0\" & exec sleep 60\n")
    with pytest.raises(HookError):
        command.run([path], 0.3)
    deadline = time.monotonic() + 10
    while not os.path.exists(os.path.dirname(path) + "/lives"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_program_that_its_user_stops(program, hurried):
    path = program("kill -STOP $$\n")
    with pytest.raises(HookError) as caught:
        command.run([path], 60)
    assert (caught.value.code, str(caught.value)) == (errors.TEMPORARY, "%s was stopped for 0 seconds and was killed; try again" % path)


def test_output_that_does_not_end_with_the_program(program):
    """CRIU gives its output to whom it takes for the job: he may write for ever."""
    path = program("(trap '' PIPE; while echo nonsense; do :; done) &\necho $! > \"${0%/*}/writer\"; exit 3\n")
    started = time.monotonic()
    assert command.run([path], 20)[0] == 3
    assert time.monotonic() - started < 10
    with open(os.path.join(os.path.dirname(path), "writer")) as stream:
        writer = int(stream.read())
    deadline = time.monotonic() + 10
    while processes.read_process(writer) and time.monotonic() < deadline:  # it has no reader any more
        time.sleep(0.01)
    assert processes.read_process(writer) is None


def test_run_kills_a_program_that_closed_its_output(program):
    path = program("exec >&- 2>&-\nexec sleep 60\n")
    with pytest.raises(HookError) as caught:
        command.run([path], 1)
    assert str(caught.value) == "%s took longer than 1 seconds and was killed; allow it more time (checkpoint_hooks_engine_timeout)" % path


def test_run_kills_the_programs_children_too(program, tmp_path, wait_until):
    note = tmp_path / "pid"
    path = program("sleep 60 &\necho $! > %s.new; mv %s.new %s\nsleep 60\n" % (note, note, note))
    with pytest.raises(HookError):
        command.run([path], 1)
    assert wait_until(lambda: getattr(processes.read_process(int(note.read_text())), "state", "X") in "ZX")


def test_run_does_not_wait_for_what_the_program_leaves(program, tmp_path):
    """A daemon that keeps the output open."""
    path = program("sleep 60 & echo $!\n")
    status, output = command.run([path], 30)
    os.kill(int(output), signal.SIGKILL)
    assert status == 0


def test_work_is_done_while_the_program_runs(program, tmp_path):
    go_on = tmp_path / "go on"
    path = program('while [ ! -e "%s" ]; do sleep 0.01; done\necho "it went on"\n' % go_on)
    assert command.run([path], 20, lambda: go_on.write_text("")) == (0, "it went on\n")


@pytest.mark.parametrize("status", [0, 3])
def test_work_that_fails_meanwhile(program, status):
    """The program has ended when it is said, and its own failure comes first."""
    def fail():
        raise HookError(errors.CONFIG, "no version")
    path = program("sleep 0.2\nexit %d\n" % status)
    if status:
        assert command.run([path], 20, fail) == (3, "")
        return
    with pytest.raises(HookError) as caught:
        command.run([path], 20, fail)
    assert str(caught.value) == "no version"
