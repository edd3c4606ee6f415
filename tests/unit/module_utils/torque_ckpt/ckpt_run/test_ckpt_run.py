"""ckpt-run with real programs, asked for checkpoints as the checkpoint hook asks."""
import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from torque_ckpt import errors
from torque_ckpt.ckpt_run.keeper import Keeper
from torque_ckpt.ckpt_run.program import Request, start_at_last
from torque_ckpt.ckpt_run.runner import Runner
from torque_ckpt.errors import HookError
from torque_ckpt.nested import channel, methods, request
from torque_ckpt.system import processes
from torque_ckpt.system.waiting import wait_until

COUNTS = """\
trap 'echo $n > state; exit 3' TERM
trap 'exit 4' USR2
n=$(cat state 2> /dev/null || echo 0)
while [ $n -lt 150 ]; do n=$((n + 1)); echo $n; [ -e fast ] || { sleep 0.02 & wait $!; }; done
exit 7
"""
"""Counts on stdout, for three seconds or until a file lets it hurry; SIGTERM makes it write how far it has come, and end."""
CODE = "import sys; sys.path.insert(0, %r); from torque_ckpt.ckpt_run.main import main; sys.exit(main(['ckpt-run'] + sys.argv[1:], %r))"
LIMIT = 30


class Run:
    """ckpt-run as a program, in a directory of its own."""

    def __init__(self, directory, installed, arguments, environment=None):
        self.directory = directory
        self.out = directory / "out"
        with open(self.out, "ab") as out, open(directory / "err", "ab") as err:
            self.process = subprocess.Popen([sys.executable, "-IS", "-c", CODE % (installed, str(directory / "hooks.json"))] + arguments,
                                            stdout=out, stderr=err, cwd=str(directory), env=dict(os.environ, **environment or {}))

    def lines(self):
        return self.out.read_text().splitlines()

    def await_lines(self, count):
        assert wait_until(lambda: len(self.lines()) >= count, LIMIT), self.errors()

    def runners(self):
        assert wait_until(lambda: request.find_runners([self.process.pid]), LIMIT), self.errors()
        return request.find_runners([self.process.pid])

    def ask(self, hook=None, limit=LIMIT):
        request.ask_runners(self.runners(), hook or processes.get_mark(), limit)

    def programs(self):
        return sorted(request.list_programs(self.runners()))

    def errors(self):
        return (self.directory / "err").read_text()

    def finish(self, hurry=True):
        """Return the exit status; without hurry the program takes its time, which is then longer than it had to end for a checkpoint."""
        if hurry:
            (self.directory / "fast").touch()
        return self.process.wait(LIMIT)


@pytest.fixture
def run(tmp_path, installed):
    """Return a function that starts ckpt-run with these arguments."""
    (tmp_path / "methods.json").write_text(json.dumps({"methods": {"own": {"signal": "USR2", "seconds": 1}}}))
    os.chmod(str(tmp_path / "methods.json"), 0o644)
    started = []

    def start(*arguments, text=COUNTS, **environment):
        (tmp_path / "program.sh").write_text(text)
        started.append(Run(tmp_path, installed, list(arguments), environment))
        return started[-1]

    yield start
    for entry in started:
        for pid in reversed(processes.list_tree(entry.process.pid)):
            if entry.process.poll() is None or pid != entry.process.pid:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        entry.process.wait()


@pytest.fixture
def other_hook():
    """A process that asked for a checkpoint, and is gone when it is killed."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    yield process
    process.kill()
    process.wait()


def gone(process):
    process.kill()
    process.wait()


PROGRAM = ["--", "sh", "program.sh"]
pytestmark = pytest.mark.root  # the file of methods is root's


@pytest.mark.parametrize("text, status", [("exit 7", 7), ("kill -KILL $$", -9), ("exit 0", 0)])
def test_ends_as_the_program_ends(run, text, status):
    running = run(*PROGRAM, text=text)
    assert (running.finish(), running.errors()) == (status, "")


def test_program_ends_for_a_checkpoint_and_continues_when_the_hook_is_gone(run, other_hook):
    running = run(*PROGRAM)
    running.await_lines(10)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    assert running.programs() == []
    before = running.lines()
    time.sleep(0.5)
    assert running.lines() == before
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_five_checkpoints(run):
    running = run(*PROGRAM)
    for count in range(20, 120, 20):
        hook = subprocess.Popen(["/bin/sleep", "600"])
        running.await_lines(count)
        running.ask([hook.pid, processes.read_process(hook.pid).start])
        gone(hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_hook_of_another_boot_is_gone(run, monkeypatch):
    """As after a restart on another node, where some process may have its pid and even its start time."""
    running = run(*PROGRAM)
    running.await_lines(5)
    monkeypatch.setattr(processes, "read_boot_id", lambda: "another")
    running.ask()
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_second_hook_while_the_program_has_ended_takes_over(run, other_hook):
    running = run(*PROGRAM)
    running.await_lines(5)
    first = subprocess.Popen(["/bin/sleep", "600"])
    running.ask([first.pid, processes.read_process(first.pid).start])
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    gone(first)
    time.sleep(0.5)
    assert running.programs() == []
    gone(other_hook)
    assert running.finish() == 7


def test_restart_command(run):
    running = run("--signal", "TERM", "--restart", "echo again; {command}", *PROGRAM)
    running.await_lines(5)
    hook = subprocess.Popen(["/bin/sleep", "600"])
    running.ask([hook.pid, processes.read_process(hook.pid).start])
    gone(hook)
    assert running.finish() == 7
    lines = running.lines()
    assert lines.count("again") == 1
    assert [line for line in lines if line != "again"] == [str(number) for number in range(1, 151)]


def test_start_command(run, other_hook):
    """It starts the program once; what continues it is another one."""
    running = run("--start", "echo begins; exec {command}", *PROGRAM)
    running.await_lines(5)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == ["begins"] + [str(number) for number in range(1, 151)]


def test_file_that_the_checkpoint_command_writes_when_the_program_has_ended(run, other_hook, tmp_path):
    """Its name has variables of the job, and the pid of ckpt-run."""
    running = run("--checkpoint", "kill -TERM $CKPT_RUN_PID; sleep 2; touch state.$JOB.$CKPT_RUN_PARENT",
                  "--file", "state.$JOB.$CKPT_RUN_PARENT", *PROGRAM, JOB="12[1]")
    running.await_lines(5)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    assert (tmp_path / ("state.12[1].%d" % running.process.pid)).exists()
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_checkpoint_command_gets_the_programs_pid(run):
    running = run("--checkpoint", "kill -TERM $CKPT_RUN_PID", *PROGRAM)
    running.await_lines(5)
    hook = subprocess.Popen(["/bin/sleep", "600"])
    running.ask([hook.pid, processes.read_process(hook.pid).start])
    gone(hook)
    assert running.finish() == 7


def refusal(running, *hook, **options):
    with pytest.raises(HookError) as caught:
        running.ask(*hook, **options)
    assert caught.value.code == errors.TEMPORARY
    return caught.value.sentence


def test_checkpoint_command_that_fails_leaves_the_program_running(run):
    running = run("--checkpoint", "exit 5", *PROGRAM, text=COUNTS.replace("sleep 0.02", "sleep 0.06"))
    running.await_lines(5)
    assert refusal(running) == ("ckpt-run (process %d): the checkpoint command of sh ended with status 5; the job keeps running; look "
                                "into its output" % running.process.pid)
    assert running.finish(hurry=False) == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_program_that_does_not_end_keeps_running(run):
    running = run("--signal", "TERM", "--seconds", "1", *PROGRAM, text="trap '' TERM; " + COUNTS.partition("\n")[2])
    running.await_lines(5)
    assert refusal(running) == ("ckpt-run (process %d): sh, asked by the method rerun, did not end within 1 seconds; the job keeps "
                                "running; look into its output, or allow it more time by ckpt-run --seconds" % running.process.pid)
    assert running.finish(hurry=False) == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


LATE = COUNTS.replace("trap 'echo", "trap 'trap \"\" TERM; sleep 1.5; echo")


@pytest.mark.parametrize("options, text", [(["--file", "state"], LATE), ([], LATE.replace("exit 3", "exit 143")),
                                           ([], LATE.replace("exit 3", "trap - TERM; kill -TERM $$"))])
def test_program_that_ends_late_is_continued(run, other_hook, options, text):
    """Nobody waits for it any more, and its work is not lost."""
    running = run("--signal", "TERM", "--seconds", "1", *options, *PROGRAM, text=text)
    running.await_lines(5)
    assert "did not end within 1 seconds" in refusal(running, [other_hook.pid, processes.read_process(other_hook.pid).start])
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_program_that_ends_late_but_soon_is_continued(run, other_hook):
    """Within the method's time again."""
    running = run("--signal", "TERM", "--seconds", "6", *PROGRAM, text=LATE.replace("sleep 1.5", "sleep 7"))
    running.await_lines(5)
    assert "did not end within 6 seconds" in refusal(running, [other_hook.pid, processes.read_process(other_hook.pid).start])
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_program_that_ends_long_after_that_has_ended_by_itself(run):
    running = run("--signal", "TERM", "--seconds", "1", *PROGRAM, text=LATE.replace("sleep 1.5", "sleep 4"))
    running.await_lines(5)
    assert "did not end within 1 seconds" in refusal(running)
    assert running.finish() == 3


def test_late_answer_is_no_answer_to_the_next_request(run, other_hook):
    running = run("--signal", "TERM", "--seconds", "2", "--file", "state", *PROGRAM, text=LATE.replace("sleep 1.5", "sleep 3"))
    running.await_lines(5)
    assert "did not end within 2 seconds" in refusal(running)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    assert running.programs() == []
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_program_that_ends_by_itself_is_not_continued(run):
    """Without its file: it would begin anew."""
    running = run("--signal", "USR2", "--file", "state", *PROGRAM)
    running.await_lines(5)
    assert refusal(running) == ("ckpt-run (process %d): sh ended with status 4 and has not written state; the job keeps running; look into "
                                "its output" % running.process.pid)
    assert running.finish() == 4


def test_file_of_an_earlier_checkpoint_does_not_count(run, tmp_path):
    (tmp_path / "state").write_text("3\n")
    os.utime(str(tmp_path / "state"), (1, 1))
    running = run("--signal", "USR2", "--file", "state", *PROGRAM)
    running.await_lines(2)
    assert "has not written state" in refusal(running)
    assert running.finish() == 4


SAVES = """\
import os, signal, sys, time
def save(*_arguments):
    signal.signal(NUMBER, signal.SIG_IGN)
    time.sleep(SECONDS)
    open("state", "w").write(str(counter))
    os._exit(0)
signal.signal(NUMBER, save)
counter = int(open("state").read()) if os.path.exists("state") else 0
while counter < 150:
    counter += 1
    os.write(1, b"%d\\n" % counter)
    os.path.exists("fast") or time.sleep(0.02)
os._exit(7)
"""
"""Counts as COUNTS does; takes SECONDS to write how far it has come, and ignores NUMBER meanwhile."""


def saves(number, seconds):
    return "cat > saves.py <<'X'\n%sX\n%s saves.py\nexit $?" % (
        SAVES.replace("NUMBER", "signal.SIG" + number).replace("SECONDS", str(seconds)), sys.executable)


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("number, seconds", [("USR1", 0.5), ("TERM", 7)])
def test_script_that_starts_the_real_program(run, other_hook, shell, number, seconds):
    """The signal ends the script; the program gets it, too, and the time that the method allows."""
    running = run("--signal", number, "--", shell, "program.sh", text=saves(number, seconds))
    running.await_lines(5)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    assert running.programs() == []
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def refusal_of(running, hook):
    """As refusal(), of a hook (Popen) that ends then."""
    sentence = refusal(running, [hook.pid, processes.read_process(hook.pid).start])
    gone(hook)
    return sentence


def test_script_that_starts_a_program_that_does_not_end(run, other_hook):
    """It keeps running, and its work is not lost when it ends."""
    running = run("--signal", "USR1", "--seconds", "1", *PROGRAM, text=saves("USR1", 3))
    running.await_lines(5)
    assert "sh, asked by the method rerun, did not end within 1 seconds" in refusal_of(running, other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


READS = """\
read first && read second || { echo nothing to read; exit 1; }
trap 'exit 0' TERM
echo $first $second
[ ! -e over ] || exit 7
sleep 600 & wait $!
"""


@pytest.mark.parametrize("own", [True, False])
def test_standard_input_is_read_from_its_start_again(tmp_path, installed, own):
    """If it is a file, and not that from which the shell reads its commands."""
    (tmp_path / "reads.sh").write_text(READS)
    (tmp_path / "input").write_text("1\n2\n3\n")
    (tmp_path / "methods.json").write_text('{"methods": {}}')
    os.chmod(str(tmp_path / "methods.json"), 0o644)
    command = [sys.executable, "-IS", "-c", CODE % (installed, str(tmp_path / "hooks.json")), "--", "sh", "reads.sh"]
    with open(str(tmp_path / "input")) as stream, open(str(tmp_path / "out"), "w") as out:
        process = subprocess.Popen(command if own else ["sh", "-c", '"$@"; exit $?', "sh"] + command, stdin=stream, stdout=out,
                                   stderr=subprocess.STDOUT, cwd=str(tmp_path))
    try:
        assert wait_until(lambda: (tmp_path / "out").read_text() == "1 2\n", LIMIT), (tmp_path / "out").read_text()
        (tmp_path / "over").touch()
        hook = subprocess.Popen(["/bin/sleep", "600"])
        request.ask_runners(request.find_runners(processes.list_tree(process.pid)),
                            [hook.pid, processes.read_process(hook.pid).start], LIMIT)
        gone(hook)
        assert process.wait(LIMIT) == (7 if own else 1)
        assert (tmp_path / "out").read_text() == "1 2\n" + ("1 2\n" if own else "nothing to read\n")
    finally:
        process.kill()
        process.wait()


def test_file_whose_time_is_that_of_a_server_whose_clock_is_late(run, other_hook):
    running = run("--signal", "TERM", "--file", "state", *PROGRAM,
                  text=COUNTS.replace("> state;", "> state; touch -d \"1 hour ago\" state;"))
    running.await_lines(5)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_file_that_was_written_for_the_request_before(run, other_hook):
    """It was late, and the next one finds the program still ending."""
    text = COUNTS.replace("'echo $n > state; exit 3'",
                          "'trap \"\" TERM; echo $n > state; touch -d \"1 hour ago\" state; sleep 3; exit 3'")
    running = run("--signal", "TERM", "--seconds", "2", "--file", "state", *PROGRAM, text=text)
    running.await_lines(5)
    assert "did not end within 2 seconds" in refusal(running)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_signal_that_comes_before_the_program_handles_it(run, other_hook):
    """It has ended the program; that starts again, as it was started."""
    running = run("--signal", "USR1", "--file", "state", *PROGRAM,
                  text="[ -e again ] && again=yes; touch again; echo starts; [ $again ] || sleep 600; " + COUNTS)
    running.await_lines(1)
    assert refusal_of(running, other_hook) == (
        "ckpt-run (process %d): sh ended by signal 10 and has not written state; the job keeps running; look into its output"
        % running.process.pid)
    assert running.finish() == 7
    assert running.lines() == ["starts", "starts"] + [str(number) for number in range(1, 151)]


@pytest.mark.parametrize("options", [[], ["--file", "state"]])
def test_checkpoint_command_that_fails_though_the_program_ends(run, other_hook, options):
    """As one that loses its connection to the program: the checkpoint has failed, and the program continues."""
    running = run("--checkpoint", "kill -TERM $CKPT_RUN_PID; exit 5", *options, *PROGRAM,
                  text=COUNTS.replace("trap 'echo", "trap 'trap \"\" TERM; sleep 0.5; echo"))
    running.await_lines(5)
    assert "the checkpoint command of sh ended with status 5" in refusal_of(running, other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


@pytest.mark.parametrize("status, sentence", [(0, ""), (5, "the checkpoint command of sh ended with status 5")])
def test_checkpoint_command_that_ends_after_the_program(run, other_hook, tmp_path, status, sentence):
    running = run("--checkpoint", "kill -TERM $CKPT_RUN_PID; sleep 2; cp state kept; exit %d" % status, *PROGRAM)
    running.await_lines(5)
    mark = [other_hook.pid, processes.read_process(other_hook.pid).start]
    if sentence:
        assert sentence in refusal(running, mark)
    else:
        running.ask(mark)
    assert (tmp_path / "kept").exists()
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_checkpoint_command_that_does_not_end(run, other_hook):
    running = run("--checkpoint", "kill -TERM $CKPT_RUN_PID; exec sleep 600", "--seconds", "2", *PROGRAM)
    running.await_lines(5)
    assert "the checkpoint command of sh did not end within 2 seconds" in refusal_of(running, other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGALRM, signal.SIGWINCH])
def test_signal_that_asks_nobody_to_end(run, other_hook, number):
    """While the program has ended."""
    running = run(*PROGRAM)
    running.await_lines(5)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    running.process.send_signal(number)
    time.sleep(0.5)
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_what_the_program_has_left_ends_for_a_checkpoint(run, other_hook):
    running = run(*PROGRAM, text="(trap '' TERM; exec sleep 600) & setsid sleep 600 & " + COUNTS)
    running.await_lines(5)
    assert len(running.programs()) >= 3
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    assert running.programs() == []


def test_stopped_ckpt_run_does_not_answer(run, other_hook, monkeypatch):
    monkeypatch.setattr(request, "_PATIENCE", 0.5)
    running = run(*PROGRAM)
    running.await_lines(2)
    running.process.send_signal(signal.SIGSTOP)
    sentence = refusal(running, [other_hook.pid, processes.read_process(other_hook.pid).start])
    gone(other_hook)
    running.process.send_signal(signal.SIGCONT)
    assert sentence == "ckpt-run (process %d): does not answer; the job keeps running; see whether it or its program is stopped" % (
        running.process.pid)
    assert running.finish() == 7  # it obeys late, and the hook is gone
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_ckpt_run_that_is_killed(run, monkeypatch):
    running = run("--signal", "USR1", *PROGRAM, text="trap '' USR1; " + COUNTS)
    running.await_lines(2)
    runners = running.runners()
    monkeypatch.setattr(channel.Line, "ask", lambda line, message: os.kill(line.process.pid, signal.SIGKILL))
    with pytest.raises(HookError) as caught:
        request.ask_runners(runners, processes.get_mark(), LIMIT)
    assert caught.value.sentence == "ckpt-run (process %d): has ended meanwhile; the job keeps running; try again" % running.process.pid


def test_signals_reach_the_program(run):
    running = run(*PROGRAM)
    running.await_lines(2)
    running.process.send_signal(signal.SIGUSR2)
    assert running.finish(hurry=False) == 4


def test_signal_while_the_program_has_ended_ends_ckpt_run(run, other_hook):
    running = run(*PROGRAM)
    running.await_lines(2)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    running.process.send_signal(signal.SIGTERM)
    assert running.finish() == -signal.SIGTERM


def test_noise_in_the_pipes_does_nothing(run, other_hook):
    running = run(*PROGRAM)
    running.await_lines(2)
    line = channel.Line(running.runners()[0])
    for noise in (b"\n", b"{}\n", b"[1]\n", b"\xff\xff\n", b'{"id": 1, "hook": "x", "boot": 2, "seconds": []}\n'):
        os.write(line._writer, noise)
    processes.send_signal(processes.get_mark(line.process), channel.BELL)
    line.close()
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    gone(other_hook)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


NOTES = ["--before", "echo before $CKPT_RUN_PID >> notes", "--after", "echo after $CKPT_RUN_EVENT $CKPT_RUN_PID >> notes"]


def notes(running):
    path = running.directory / "notes"
    return path.read_text().splitlines() if path.exists() else []


def await_notes(running, *wanted):
    program = "%d" % processes.list_children(running.process.pid)[0]
    assert wait_until(lambda: notes(running) == [line + " " + program for line in wanted], LIMIT), notes(running)


def test_program_that_is_kept_is_prepared_and_told_when_it_continues(run, other_hook):
    running = run(*NOTES, *PROGRAM)
    running.await_lines(5)
    program = processes.list_children(running.process.pid)[0]
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    await_notes(running, "before")
    time.sleep(0.5)
    assert processes.list_children(running.process.pid)[0] == program
    assert running.programs() == []  # that end
    await_notes(running, "before")
    gone(other_hook)
    await_notes(running, "before", "after continue")
    assert wait_until(lambda: processes.list_children(running.process.pid) == [program], LIMIT)  # the command has ended, too
    running.ask()
    await_notes(running, "before", "after continue", "before")
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_program_that_is_kept_learns_that_it_was_restored(run, monkeypatch):
    """As after a restart on another node; on the same one ckpt-run has started later than it had."""
    running = run(*NOTES, *PROGRAM)
    running.await_lines(5)
    monkeypatch.setattr(processes, "read_boot_id", lambda: "another")
    running.ask()
    await_notes(running, "before", "after restart")
    assert running.finish() == 7


def test_program_that_is_kept_without_commands(run, other_hook):
    running = run("--method", "keep", *PROGRAM)
    running.await_lines(5)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    gone(other_hook)
    running.ask()
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


@pytest.mark.parametrize("command, how", [
    ("exit 5", "ended with status 5; the job keeps running; look into its output"),
    ("sleep 47114 & sleep 47114",
     "took longer than 1 seconds and was killed; the job keeps running; allow it more time by ckpt-run --seconds")])
def test_command_before_a_checkpoint_that_fails(run, command, how):
    running = run("--before", command, *NOTES[2:], "--seconds", "1", *PROGRAM)
    running.await_lines(5)
    assert refusal(running) == "ckpt-run (process %d): the command before a checkpoint of sh %s" % (running.process.pid, how)
    await_notes(running, "after continue")
    assert wait_until(lambda: not [pid for pid in processes.list_pids() if b"47114" in processes.read_arguments(pid)], LIMIT)
    assert running.finish() == 7
    assert running.lines() == [str(number) for number in range(1, 151)]


def test_command_after_a_checkpoint_that_fails(run):
    running = run("--after", "exit 5", *PROGRAM)
    running.await_lines(5)
    hook = subprocess.Popen(["/bin/sleep", "600"])
    running.ask([hook.pid, processes.read_process(hook.pid).start])
    gone(hook)
    assert wait_until(lambda: running.errors() == "ckpt-run: the command after a checkpoint of sh ended with status 5\n", LIMIT)
    assert running.finish() == 7


def test_command_after_a_checkpoint_that_fails_when_the_disk_is_full(run, tmp_path):
    (tmp_path / "err").symlink_to("/dev/full")
    running = run("--after", "echo > after; exit 5", *PROGRAM)
    running.await_lines(5)
    hook = subprocess.Popen(["/bin/sleep", "600"])
    running.ask([hook.pid, processes.read_process(hook.pid).start])
    gone(hook)
    assert wait_until((tmp_path / "after").exists, LIMIT)
    assert running.finish() == 7


def test_checkpoint_command_for_which_there_can_be_no_process(monkeypatch):
    """The checkpoint is refused, and an end of the program is its own."""
    def fail():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    answers, method = [], methods.build_method({"checkpoint": "true"})
    monkeypatch.setattr(channel, "answer", answers.append)
    monkeypatch.setattr(os, "fork", fail)
    runner = Runner(["sh"], "own", method)
    runner._handle(Request({"id": "1", "hook": [0, 0], "boot": "another", "seconds": 5}, method), 7)
    assert answers == [{"id": "1", "seconds": 600}, {
        "id": "1", "reason": "the checkpoint command of sh cannot be started (Resource temporarily unavailable)",
        "advice": "end other processes, or raise their limit (ulimit -u)"}]
    assert runner._request is None


def test_program_starts_when_there_can_be_a_process(monkeypatch):
    tries = [BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), BlockingIOError(errno.EAGAIN, "again"), 7]

    def fork():
        outcome = tries.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome
    monkeypatch.setattr(os, "fork", fork)
    assert start_at_last(["sh"]) == 7
    assert tries == []


def test_command_for_which_there_can_be_no_process(monkeypatch):
    """The checkpoint is refused, and the command after it is due until it has run."""
    def fail():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    answers, method = [], methods.build_method({"before": "true", "after": "true"})
    monkeypatch.setattr(channel, "answer", answers.append)
    monkeypatch.setattr(os, "fork", fail)
    keeper = Keeper(["sh"], method)
    keeper._handle(Request({"id": "1", "hook": [0, 0], "boot": "another", "seconds": 5}, method))
    assert answers == [{"id": "1", "seconds": 600}, {
        "id": "1", "reason": "the command before a checkpoint of sh cannot be started (Resource temporarily unavailable)",
        "advice": "end other processes, or raise their limit (ulimit -u)"}]
    keeper._do_what_is_due()
    assert keeper._request and not keeper._after
    monkeypatch.setattr(os, "fork", lambda: 8)
    keeper._do_what_is_due()
    assert keeper._after[0] == 8


def test_request_while_the_command_after_a_checkpoint_runs(run, other_hook):
    running = run("--after", "sleep 600", "--seconds", "1", *PROGRAM)
    running.await_lines(2)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    gone(other_hook)
    assert wait_until(lambda: len(processes.list_children(running.process.pid)) == 2, LIMIT)
    assert refusal(running) == ("ckpt-run (process %d): the command after a checkpoint of sh still runs; the job keeps running; try again"
                                % running.process.pid)
    sentence = "ckpt-run: the command after a checkpoint of sh ended by signal 9\n"  # it is too slow
    assert wait_until(lambda: running.errors() == sentence, LIMIT)
    assert running.finish() == 7


def test_second_hook_while_the_program_is_prepared_takes_over(run, other_hook):
    running = run(*NOTES, *PROGRAM)
    running.await_lines(5)
    first = subprocess.Popen(["/bin/sleep", "600"])
    running.ask([first.pid, processes.read_process(first.pid).start])
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    gone(first)
    time.sleep(0.5)
    await_notes(running, "before")
    gone(other_hook)
    await_notes(running, "before", "after continue")
    assert running.finish() == 7


def test_program_that_is_kept_and_ends_by_itself(run, other_hook):
    running = run(*NOTES, *PROGRAM)
    running.await_lines(5)
    running.ask([other_hook.pid, processes.read_process(other_hook.pid).start])
    running.process.send_signal(signal.SIGUSR2)
    assert running.finish(hurry=False) == 4


def test_programs_that_are_kept_are_prepared_before_the_others_are_looked_at(run, other_hook):
    kept, order = run(*NOTES, *PROGRAM), []
    kept.await_lines(2)
    hook = [other_hook.pid, processes.read_process(other_hook.pid).start]
    request.prepare_programs(kept.runners(), hook, LIMIT, lambda: order.extend(notes(kept)))
    assert len(order) == 1 and order[0].startswith("before ")


@pytest.mark.parametrize("arguments, code, sentence", [
    ([], errors.USAGE, "name the program after --; see ckpt-run --help"),
    (["--method", "x", "--", "true"], errors.USAGE, "there is no method 'x'; take one of dmtcp, gromacs, keep, lammps, ompi, own, rerun"),
    (["--signal", "X", "--", "true"], errors.USAGE,
     "the command line names the signal 'X', which this system does not know; see ckpt-run --help"),
    (["--signal", "TERM", "--checkpoint", "x", "--", "true"], errors.USAGE,
     "the command line must have either a signal or a checkpoint command; see ckpt-run --help"),
    (["--method", "gromacs", "--before", "x", "--", "true"], errors.USAGE,
     "the command line has a command before or after a checkpoint, which is for programs that stay, and ends the program by a signal or a "
     "checkpoint command; see ckpt-run --help"),
    (["--before", "x", "--file", "state", "--", "true"], errors.USAGE,
     "the command line has a file or a restart command, but neither a signal nor a checkpoint command, which end the program; see ckpt-run "
     "--help"),
])
def test_wrong_command_line(run, arguments, code, sentence):
    running = run(*arguments)
    assert (running.finish(), running.errors()) == (code, "ckpt-run: %s; nothing was started\n" % sentence)


def test_program_that_is_not_there(run):
    running = run("--", "/nonexistent/program")
    assert (running.finish(), running.errors()) == (127, "ckpt-run: cannot start /nonexistent/program: No such file or directory\n")


def test_ckpt_run_under_ckpt_run(run):
    running = run(*PROGRAM, CKPT_RUN_PARENT="7")
    assert (running.finish(), running.errors()) == (errors.USAGE, (
        "ckpt-run: ckpt-run was started by a program that ckpt-run started (CKPT_RUN_PARENT=7); start programs by one ckpt-run only; "
        "nothing was started\n"))


def test_list(run):
    running = run("--list")
    assert running.finish() == 0
    lines = running.lines()
    assert lines.pop(0).startswith('dmtcp: start=mkdir -p "dmtcp-$PBS_JOBID-$CKPT_RUN_PARENT" && exec env DMTCP_CHECKPOINT_DIR=')
    assert lines.pop(3).startswith('ompi: start=mkdir -p "ompi-$PBS_JOBID-$CKPT_RUN_PARENT" && exec env -u OMPI_MCA_pml ')
    assert lines == ["gromacs: start={command}, signal=TERM, restart={command} -cpi, seconds=600", "keep: start={command}, seconds=600",
                     "lammps: start=rm -f lammps.leave && exec {command}, checkpoint=touch lammps.leave, restart=rm -f lammps.leave && "
                     "exec {command} -var continue yes, file=lammps.restart, seconds=600",
                     "own: start={command}, signal=USR2, restart={command}, seconds=1",
                     "rerun: start={command}, signal=TERM, restart={command}, seconds=600"]
