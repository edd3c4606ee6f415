"""commands: what "qstat -f" says of a job, and waiting for a state, with TORQUE's commands played."""

import os
import signal
import sys

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque import commands
from ansible_collections.ckpt.torque.plugins.module_utils.torque.commands import CommandError, Commands, JobError
from recorded import calls


# run

@pytest.mark.parametrize("version, name, text", [
    ("6.1.3", "set-stops", "Undefined attribute nosuch"),
    ("6.1.3", "set-syntax", "Syntax error - cannot locate attribute; set server nosuch = 1"),
    ("6.1.3", "set-refused", "Unauthorized Request MSG=error in permissions (PERM_OPorMGR)"),
    ("2.5.13", "set-refused", "Unauthorized Request"),
    ("2.5.13", "set-bad-acl", "Bad ACL entry in host list MSG=First bad host: nosuchhost"),
    ("4.2.10", "create-unresolvable-node", "Unknown node"),
    ("4.2.10", "delete-busy-queue", "Cannot delete busy queue"),
    ("2.5.13", "no-server", "Cannot connect to default server host 'head' - check pbs_server daemon; "
                            "cannot connect to server (errno=111) Connection refused"),
    ("6.1.3", "no-trqauthd", "socket_connect_unix failed: 15137; "
                             "cannot connect to server (errno=15137) could not connect to trqauthd"),
    ("6.1.3", "pbsnodes-unknown", "Unknown node MSG=cannot locate specified node"),
    ("6.1.3", "drift-mend", ""),
])
def test_join_complaint(version, name, text):
    assert commands.join_complaint(calls(version)[name].error) == text


def test_run():
    script = "import os, sys; print(sys.stdin.read() + os.environ['LC_ALL']); sys.stderr.write('e'); sys.exit(3)"
    assert commands.run([sys.executable, "-c", script], "h\u00e9\n") == (3, "h\u00e9\nC" + os.linesep, "e")


def test_run_what_is_not_there(tmp_path):
    with pytest.raises(CommandError) as caught:
        commands.run([str(tmp_path / "qmgr")])
    assert str(caught.value) == (
        "cannot start %s/qmgr: No such file or directory; install TORQUE's commands on this host" % tmp_path)


LONG = "600.%d" % os.getpid()
"""How long something sleeps (seconds); another run of the tests at the same time has another number."""


def test_run_what_hangs():
    with pytest.raises(CommandError) as caught:
        commands.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=1)
    assert str(caught.value) == "%s got no answer within 1 seconds and was killed; look at the log of pbs_server" % sys.executable


@pytest.mark.root
def test_run_as_another_user(nobody, tmp_path, monkeypatch):
    """Nothing of root's environment arrives, and root's directory may be closed to the user."""
    monkeypatch.setenv("SECRET", "root's")
    monkeypatch.chdir(tmp_path)
    status, output, error = commands.run(["/bin/sh", "-c", "id -un; pwd; env"], user="nobody")
    lines = output.splitlines()
    assert (status, error, lines[:2]) == (0, "", ["nobody", "/"])
    environment = dict(line.split("=", 1) for line in lines[2:])
    assert {name: value for name, value in environment.items() if name not in ("PWD", "OLDPWD", "_", "SHLVL")} == {
        "HOME": nobody.pw_dir, "LC_ALL": "C", "LOGNAME": "nobody", "PATH": commands.USER_PATH, "USER": "nobody"}


@pytest.mark.root
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_run_what_hangs_leaves_nothing(user, processes_naming):
    """What it has started is ended as well."""
    with pytest.raises(CommandError):
        commands.run(["/bin/sh", "-c", "sleep %s & wait" % LONG], timeout=1, user=user)
    assert processes_naming(LONG) == []


def test_run_that_is_interrupted(processes_naming):
    """As by the signal that pbs_node waits for."""
    class Interruption(Exception):
        pass

    def interrupt(number, _frame):
        raise Interruption(number)

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(Interruption):
            commands.run(["/bin/sh", "-c", "sleep %s & wait" % LONG])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert processes_naming(LONG) == []


def test_find_command():
    asked = []

    def find(name, opt_dirs):
        asked.append((name, opt_dirs))

    assert commands.find_command("qmgr", "/x/qmgr", find) == "/x/qmgr"
    assert asked == []
    with pytest.raises(CommandError) as caught:
        commands.find_command("qmgr", None, find)
    assert str(caught.value) == ("qmgr is neither in /opt/torque/current/bin nor in PATH; run the role torque_client or set qmgr_path")
    assert asked == [("qmgr", ["/opt/torque/current/bin"])]


# commands

class Server:
    """A runner that gives these answers (status, stdout, stderr), the last one for ever.

    asked  what was run, as (command, user)
    """

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, command, text="", timeout=60, user="root"):
        assert (text, timeout) == ("", 60)
        self.asked.append((command, user))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def failure(work, *arguments, **more):
    """Return the sentence of the JobError that work raises."""
    with pytest.raises(JobError) as caught:
        work(*arguments, **more)
    return str(caught.value)


def test_command():
    server = Server((0, "12.head\n", "a warning"))
    assert Commands("/opt/bin", run=server)("alice", "qsub", "-N", "a b") == "12.head\n"
    assert server.asked == [(["/opt/bin/qsub", "-N", "a b"], "alice")]


@pytest.mark.parametrize("answer, cause", [
    ((170, "", "qhold: no \n connection\n"), "qhold -h u 12.head exited 170: qhold: no connection"),
    ((1, "said\n", ""), "qhold -h u 12.head exited 1: said"),
    ((1, "said\n", "complained\n"), "qhold -h u 12.head exited 1: complained"),
    ((-9, "", ""), "qhold -h u 12.head exited -9: it printed nothing"),
])
def test_command_that_fails(answer, cause):
    assert failure(Commands("/opt/bin", run=Server(answer)), "alice", "qhold", "-h", "u", "12.head") == cause


def test_job():
    server = Server((0, "Job Id: 16.head\n    job_state = H\n    exec_host = node1/0\n\t-3\n", ""))
    assert Commands("/opt/bin", run=server).read_job("16.head") == {"job_state": "H", "exec_host": "node1/0-3"}
    assert server.asked == [(["/opt/bin/qstat", "-f", "16.head"], "root")]


@pytest.mark.parametrize("words", ["qstat: Unknown Job Id Error 16.head\n", "qstat: Unknown Job Id 16.head\n"], ids=["6.1.3", "2.5.13"])
def test_job_that_the_server_does_not_know(words):
    assert Commands("/opt/bin", run=Server((153, "", words))).read_job("16.head") == {}


def test_job_when_the_server_does_not_answer():
    server = Server((171, "", "qstat: cannot connect to server head \n (errno=111)\n"))
    assert failure(Commands("/opt/bin", run=server).read_job, "16.head") == \
        "qstat -f 16.head exited 171: qstat: cannot connect to server head (errno=111)"


@pytest.mark.parametrize("answer, version", [
    ((0, "Version: 6.1.3.h5\nCommit: 1\n", ""), "6.1.3.h5"), ((0, "", "version: 2.5.13\n"), "2.5.13"), ((1, "", ""), None),
])
def test_version(answer, version):
    server = Server(answer)
    assert Commands("/opt/bin", run=server).read_version() == version
    assert server.asked == [(["/opt/bin/qstat", "--version"], "root")]


def test_states():
    """Each is noted once, when it was first seen; a job that is gone has none."""
    times = iter(range(100, 200))
    shown = [{"job_state": "Q"}, {"job_state": "R", "substate": "42", "exec_host": "node1/0"},
             {"job_state": "R", "substate": "42", "exec_host": "node1/0", "comment": "new"},
             {"job_state": "R", "substate": "42", "exec_host": "node2/0"}, {"job_state": "R", "substate": "58", "exec_host": "node2/0"}]
    server = Server(*([answer_of(**entry) for entry in shown] + [GONE, answer_of(**shown[-1]), answer_of(job_state="C", substate="odd")]))
    commands = Commands("/opt/bin", run=server, clock=lambda: float(next(times)))
    for _number in range(8):
        commands.read_job("12.head")
    assert [(entry["state"], entry["substate"], entry["node"]) for entry in commands.states] == [
        ("Q", None, ""), ("R", 42, "node1"), ("R", 42, "node2"), ("R", 58, "node2"), ("C", None, "")]
    assert [entry["seconds"] for entry in commands.states] == [0.0, 1.0, 2.0, 3.0, 4.0]


# waiting

def answer_of(**attributes):
    return 0, "Job Id: 12.head\n" + "".join("    %s = %s\n" % item for item in sorted(attributes.items())), ""


GONE = (153, "", "qstat: Unknown Job Id Error 12.head\n")


class Clock:
    """Time that only sleeping passes. slept: each pause, in seconds."""

    def __init__(self):
        self.slept = []

    def __call__(self):
        return 1000 + sum(self.slept)

    def sleep(self, pause):
        self.slept.append(pause)


def wait(server, states, timeout=1):
    """Wait with a clock of our own; return the attributes and how often it slept."""
    clock = Clock()
    return commands.wait_for_state(Commands("/bin", run=server), "12.head", states, timeout, clock, clock.sleep), len(clock.slept)


def test_state_that_is_there():
    assert wait(Server(answer_of(job_state="H", comment="done")), "H", 0) == ({"job_state": "H", "comment": "done"}, 0)


def test_state_that_comes():
    server = Server(answer_of(job_state="Q"), answer_of(job_state="R"), answer_of(job_state="E"), answer_of(job_state="C", exit_status="7"))
    assert wait(server, "C") == ({"job_state": "C", "exit_status": "7"}, 3)
    assert server.asked == [(["/bin/qstat", "-f", "12.head"], "root")] * 4


def test_one_of_several_states():
    assert wait(Server(answer_of(job_state="Q"), answer_of(job_state="H")), "RH") == ({"job_state": "H"}, 1)


def test_server_that_keeps_no_completed_jobs():
    assert wait(Server(answer_of(job_state="R"), GONE), "C") == ({}, 1)


@pytest.mark.parametrize("answer, cause", [
    (answer_of(job_state="C", exit_status="271", comment="killed"),
     "job 12.head ended (exit status 271) instead of coming to state R or H: killed"),
    (answer_of(job_state="C"), "job 12.head ended (exit status unknown) instead of coming to state R or H: no comment"),
    (GONE, "job 12.head ended (exit status unknown) instead of coming to state R or H: no comment"),
], ids=["told", "silent", "gone"])
def test_job_that_ends_instead(answer, cause):
    server = Server(answer_of(job_state="Q"), answer)
    assert failure(wait, server, "RH") == cause
    assert len(server.asked) == 2


@pytest.mark.parametrize("attributes, cause", [
    ({"job_state": "Q", "comment": "no node"}, "job 12.head is in state Q, not R or H, after 1 seconds; its comment: no node"),
    ({"job_state": "W"}, "job 12.head is in state W, not R or H, after 1 seconds; its comment: none"),
    ({"queue": "batch"}, "job 12.head is in state ?, not R or H, after 1 seconds; its comment: none"),
], ids=["comment", "none", "no state"])
def test_state_that_does_not_come(attributes, cause):
    server = Server(answer_of(**attributes))
    assert failure(wait, server, "RH") == cause
    assert 10 <= len(server.asked) <= 12


def test_server_that_stops_answering():
    assert failure(wait, Server(answer_of(job_state="Q"), (171, "", "gone")), "R") == "qstat -f 12.head exited 171: gone"
