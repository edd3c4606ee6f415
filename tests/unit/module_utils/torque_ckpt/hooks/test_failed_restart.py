import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.hooks import caller, failed_restart, ongoing_restart, preflight
from torque_ckpt.image import schema, seal
from torque_ckpt.job.records import FAILED, Records
from torque_ckpt.system import environment, processes
from torque_ckpt.telemetry import syslog
from torque_ckpt.telemetry.report import Report
from torque_ckpt.torque import contract
from torque_ckpt.torque.server import Server

RESTART = "import sys; sys.path.insert(0, sys.argv.pop(1)); from torque_ckpt.hooks import restart, failed_restart; " \
    "failed_restart.PAUSE = 0.05; %s; sys.exit(restart.main(sys.argv, sys.argv.pop(1)))"


@pytest.fixture
def torque(open_directory):
    """A TORQUE (str, its prefix) whose pbs_mom is a shell and whose commands note their arguments in the file "called"."""
    prefix = os.path.join(os.path.realpath(open_directory), "torque")
    os.makedirs(prefix + "/sbin")
    os.makedirs(prefix + "/bin")
    shutil.copy(os.path.realpath("/bin/sh"), prefix + "/sbin/pbs_mom")
    command(prefix, "qhold")
    command(prefix, "qalter")
    command(prefix, "qrls")
    command(prefix, "qstat", "grep -q -- ended %s/called && echo '    job_state = H' || echo '    job_state = R'" % prefix)
    open(prefix + "/called", "w").close()
    return prefix


def command(prefix, name, text="exit 0"):
    path = prefix + "/bin/" + name
    with open(path + ".new", "w") as stream:
        stream.write('#!/bin/sh\n[ %s = qstat ] || echo "%s $*" >> %s/called\n%s\n' % (name, name, prefix, text))
    os.chmod(path + ".new", 0o755)
    os.rename(path + ".new", path)  # the hook may be calling it; half of it would be another answer


def called(prefix):
    with open(prefix + "/called") as stream:
        return stream.read().splitlines()


@pytest.fixture
def mom(torque, site, installed):
    """A pbs_mom without the patch that has called the restart hook for the image ckpt.12.head.1."""
    started = []

    def start(trouble="0"):
        variables = {"PATH": "/bin:/usr/bin"}
        if "LD_LIBRARY_PATH" in os.environ:
            variables["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        line = [sys.executable, "-IS", "-c", RESTART % trouble, installed, site.config] + site.arguments(name="ckpt.12.head.1")
        process = subprocess.Popen([torque + "/sbin/pbs_mom", "-c", 'setsid "$@" & wait $!; echo "ended $?" >> %s/called' % torque, "mom"]
                                   + line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=variables)
        started.append(process)
        return process
    yield start
    for process in started:
        for pid in processes.list_tree(process.pid)[::-1]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()
        process.stdout.close()


class Outcomes:
    """The outcomes (list of str) that the restart hook logs.

    :param path: of a file that holds them
    """

    def __init__(self, path):
        self.path = path
        self.note = "failed_restart.syslog.log_event = lambda *_hook, **facts: facts.get('outcome') and print(facts['outcome'], " \
            "file=open(%r, 'a'))" % path

    def __call__(self):
        if not os.path.exists(self.path):
            return []
        with open(self.path) as stream:
            return stream.read().splitlines()


@pytest.fixture
def outcomes(tmp_path):
    return Outcomes(str(tmp_path / "outcomes"))


def damage(site):
    with open(site.directory + "/ckpt.12.head.1/pages.img", "wb") as stream:
        stream.write(b"MEMORY")


def checkpoint(hook, site, number="15", name="ckpt.12.head.2"):
    return hook("checkpoint", site.arguments(name=name) + [number, "-"], site.config)


@pytest.mark.root
def test_the_job_is_held_with_its_image_and_the_reason(hook, site, torque, mom, free_pid, wait_until):
    output = os.path.dirname(torque) + "/12.head.OU"
    with open(output, "w"):
        os.chown(output, site.user.uid, -1)
    site.publish("ckpt.12.head.1", free_pid, [free_pid], output=(output, b"line 1\n"))
    damage(site)
    mom()
    wait_until(lambda: called(torque) == ["qhold 12.head"])
    before = site.content()
    session = ongoing_restart.read_note(Records(site.run_directory, "12.head"))["hook"][0]
    assert checkpoint(hook, site) == (0, "", "")
    for process in filter(None, [processes.read_process(int(pid)) for pid in os.listdir("/proc") if pid.isdigit()]):
        if process.session == session:  # as pbs_mom does
            with contextlib.suppress(ProcessLookupError):  # some end by themselves
                os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: len(called(torque)) == 3)
    assert called(torque)[1:] == [
        "ended 137", 'qalter -W comment="Permanent failure of the restart: image %s/ckpt.12.head.1 is damaged: pages.img has another '
        'content than was written; take an older image" 12.head' % site.directory]
    after = site.content()
    assert json.loads(after["ckpt.12.head.2/" + schema.FILE].decode())["name"] == "ckpt.12.head.2"
    for entry in ("pages.img", "stdout"):
        assert after["ckpt.12.head.1/" + entry] == after["ckpt.12.head.2/" + entry] == before["ckpt.12.head.1/" + entry]
    with open(output) as stream:
        assert stream.read() == "line 1\n"
    assert os.listdir(site.run_directory + "/jobs") == []


@pytest.mark.root
@pytest.mark.parametrize("gone", ["", "/ckpt.12.head.1", "/ckpt.12.head.1/" + schema.FILE])
def test_the_job_is_held_when_its_image_is_gone(hook, site, torque, mom, free_pid, wait_until, gone):
    """It continues from the newest whole one, or from this one when it is back."""
    site.publish("ckpt.12.head.1", free_pid, [free_pid])
    os.rename(site.directory + gone, site.store + "/away")
    mom()
    wait_until(lambda: called(torque) == ["qhold 12.head"])
    assert checkpoint(hook, site) == (0, "", "")
    wait_until(lambda: len(called(torque)) == 3)
    assert called(torque)[1] == "ended 137" and called(torque)[2].startswith('qalter -W comment="Permanent failure of the restart: ')
    assert not os.path.exists(site.directory + "/ckpt.12.head.2")


@pytest.mark.root
def test_a_temporary_failure_queues_the_job_again(hook, site, torque, mom, start_job, wait_until):
    pid = start_job().pids[0]
    site.publish("ckpt.12.head.1", pid, [pid])
    mom()
    wait_until(lambda: called(torque) == ["qhold 12.head"])
    assert checkpoint(hook, site, name="ckpt.12.head.1") == (0, "", "")  # in the same second as the image
    wait_until(lambda: len(called(torque)) == 4)
    assert called(torque)[2].startswith('qalter -W comment="Temporary failure of the restart: process id %d ' % pid)
    assert called(torque)[3] == "qrls 12.head"
    assert os.listdir(site.directory) == ["ckpt.12.head.1"]


@pytest.mark.root
def test_a_command_that_cannot_be_started_once_is_called_again(hook, site, torque, mom, start_job, wait_until):
    pid = start_job().pids[0]
    site.publish("ckpt.12.head.1", pid, [pid])
    os.chmod(torque + "/bin/qrls", 0o600)
    mom()
    wait_until(lambda: called(torque) == ["qhold 12.head"])
    assert checkpoint(hook, site, name="ckpt.12.head.1") == (0, "", "")
    wait_until(lambda: len(called(torque)) == 4)  # after "ended 137": the qalter of two tries
    os.chmod(torque + "/bin/qrls", 0o755)
    wait_until(lambda: called(torque)[-1] == "qrls 12.head")
    assert called(torque)[-2].startswith('qalter -W comment="Temporary failure of the restart: process id %d ' % pid)


def test_a_later_hold_is_left_alone(torque, monkeypatch):
    """The command that seemed to fail may have released the job; that it is held again, its user wants."""
    monkeypatch.setattr(failed_restart, "PAUSE", 0.05)
    os.chmod(torque + "/bin/qrls", 0o600)
    states = "echo >> {0}/asked; echo \"    job_state = $(echo H R H C | cut -d' ' -f $(wc -l < {0}/asked))\"".format(torque)
    command(torque, "qstat", states)
    failed_restart.comment_held_job(Server(torque + "/bin", "nothing was done"), "12.head", "why", True)
    assert called(torque) == ['qalter -W comment="why" 12.head']


@pytest.mark.root
def test_a_job_that_may_not_be_held_ends(site, torque, mom, free_pid, wait_until, outcomes):
    site.publish("ckpt.12.head.1", free_pid, [free_pid])
    damage(site)
    command(torque, "qhold", "echo Unauthorized Request >&2; exit 159")
    mom(outcomes.note)
    wait_until(lambda: called(torque) == ["qhold 12.head", "qhold 12.head", "ended %d" % errors.DATA])
    assert outcomes() == ["failed", "refused", "refused", "not kept"]
    assert os.listdir(site.run_directory + "/jobs") == []


@pytest.mark.root
def test_a_job_whose_restart_fails_for_a_reason_that_nobody_foresaw_is_held(hook, site, torque, mom, free_pid, wait_until):
    site.publish("ckpt.12.head.1", free_pid, [free_pid])
    mom("restart.digest.load_modules = lambda: {}['x']")
    wait_until(lambda: called(torque) == ["qhold 12.head"])
    assert checkpoint(hook, site) == (0, "", "")
    wait_until(lambda: len(called(torque)) == 3)
    assert re.fullmatch(r'qalter -W comment="Permanent failure of the restart: unexpected KeyError: \'x\' \(line 1 of <string>\)" 12.head',
                        called(torque)[2]), called(torque)


@pytest.mark.root
def test_the_hook_waits_for_a_server_that_is_away(site, torque, mom, free_pid, wait_until):
    """It may be restarted at that very moment; the job must not end for it."""
    site.publish("ckpt.12.head.1", free_pid, [free_pid])
    damage(site)
    command(torque, "qhold", "echo Connection refused >&2; exit 111")
    command(torque, "qstat", "exit 111")
    mom()
    wait_until(lambda: len(called(torque)) > 5)
    assert set(called(torque)) == {"qhold 12.head"}
    assert ongoing_restart.read_note(Records(site.run_directory, "12.head")) is not None
    command(torque, "qhold")
    command(torque, "qstat", "echo '    job_state = H'")
    wait_until(lambda: any(line.startswith("qalter -W comment=") for line in called(torque)))


@pytest.mark.root
def test_the_note_is_written_when_there_is_room_again(site, torque, mom, free_pid, wait_until, outcomes):
    """What the hook cannot do on its node is no refusal of the server, which answers all the time."""
    site.publish("ckpt.12.head.1", free_pid, [free_pid])
    damage(site)
    os.makedirs(site.run_directory + "/jobs/12.head.failed.new")
    mom(outcomes.note)
    wait_until(lambda: len(outcomes()) > 4)
    assert set(outcomes()) == {"failed", "waiting"} and called(torque) == []
    os.rmdir(site.run_directory + "/jobs/12.head.failed.new")
    wait_until(lambda: called(torque) == ["qhold 12.head"])


@pytest.mark.root
def test_a_periodic_checkpoint_meanwhile_is_refused(hook, site, torque, mom, free_pid, wait_until):
    site.publish("ckpt.12.head.1", free_pid, [free_pid])
    damage(site)
    mom()
    wait_until(lambda: called(torque) == ["qhold 12.head"])
    before = site.content()
    assert checkpoint(hook, site, "0") == (
        errors.GONE, "", "job 12.head does not run: its restart failed and it is about to be held; wait until it is, its comment says why "
                         "then; nothing was done\n")
    assert site.content() == before
    assert called(torque) == ["qhold 12.head"]


@pytest.mark.root
def test_a_job_that_is_deleted_meanwhile_ends(site, torque, mom, free_pid, wait_until):
    site.publish("ckpt.12.head.1", free_pid, [free_pid])
    damage(site)
    process = mom()
    wait_until(lambda: called(torque) == ["qhold 12.head"])
    with open(site.run_directory + "/jobs/12.head.failed") as stream:
        hook = json.load(stream)["hook"][0]
    assert processes.read_process(hook).ppid == process.pid
    os.kill(hook, signal.SIGTERM)
    wait_until(lambda: "ended 143" in called(torque))
    assert ongoing_restart.read_note(Records(site.run_directory, "12.head")) is None


@pytest.mark.root
def test_the_hook_waits_for_a_store_that_is_away(site, torque, mom, free_pid, wait_until, outcomes):
    site.publish("ckpt.12.head.1", free_pid, [free_pid])
    damage(site)
    os.rename(site.store, site.store + ".away")
    mom(outcomes.note)
    wait_until(lambda: len(outcomes()) > 4)
    assert set(outcomes()) == {"waiting"} and called(torque) == []
    os.rename(site.store + ".away", site.store)
    wait_until(lambda: called(torque) == ["qhold 12.head"])


# The parts

def test_no_fallback_below_something_else_than_pbs_mom(monkeypatch):
    monkeypatch.delenv(contract.STATUS, raising=False)
    assert failed_restart.find_commands() is None


def test_what_the_owner_wrote_is_not_the_state_of_the_job(torque):
    """An attribute of his that reads like one of TORQUE's."""
    command(torque, "qstat", "state=$(grep -q seen {0}/called && echo H || echo R); echo seen $state >> {0}/called\n"
                             "echo \"    job_state = $state\n    Variable_List = A=job_state = H,B=job_state = C\"".format(torque))
    failed_restart.comment_held_job(Server(torque + "/bin", "nothing was done"), "12.head", "why", False)
    assert called(torque) == ["seen R", "seen H", 'qalter -W comment="why" 12.head']


def test_no_fallback_below_a_pbs_mom_with_the_patch(monkeypatch, torque):
    monkeypatch.setattr(caller.os, "readlink", lambda _path: torque + "/sbin/pbs_mom")
    monkeypatch.delenv(contract.STATUS, raising=False)
    assert failed_restart.find_commands() is not None
    monkeypatch.setenv(contract.STATUS, "/x")
    assert failed_restart.find_commands() is None
    monkeypatch.delenv(contract.STATUS)
    os.unlink(torque + "/bin/qhold")
    assert failed_restart.find_commands() is None


def test_waiting_ends_with_success_or_below_a_pbs_mom_with_the_patch(monkeypatch):
    answers = [HookError(errors.CONFIG, "no"), HookError(errors.CONFIG, "no"), "yes"]

    def check():
        answer = answers.pop(0)
        if isinstance(answer, HookError):
            raise answer
        return answer
    monkeypatch.setattr(failed_restart, "PAUSE", 0)
    monkeypatch.setattr(syslog, "log_event", lambda *_hook, **_facts: None)
    monkeypatch.setattr(failed_restart, "find_commands", lambda: Server("/bin", ""))
    assert failed_restart.wait_until_ready(check) == "yes"
    monkeypatch.setattr(failed_restart, "find_commands", lambda: None)
    answers.append(HookError(errors.CONFIG, "no"))
    with pytest.raises(HookError):
        failed_restart.wait_until_ready(check)


@pytest.mark.parametrize("content", ["", "{"])
def test_note_that_is_damaged(tmp_path, content):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "12.head.failed").write_text(content)
    assert ongoing_restart.read_note(Records(str(tmp_path), "12.head")) is None
    Records(str(tmp_path), "12.head").drop(FAILED)
    Records(str(tmp_path), "12.head").drop(FAILED)
    assert list((tmp_path / "jobs").iterdir()) == []


def test_note_of_a_hook_that_has_ended(tmp_path):
    me = processes.read_process(os.getpid())
    (tmp_path / "jobs").mkdir()
    for begun, alive in ((me.start, True), (me.start + 1, False)):
        (tmp_path / "jobs" / "12.head.failed").write_text(json.dumps({"hook": [me.pid, begun], "name": "ckpt.12.head.1"}))
        assert (ongoing_restart.read_note(Records(str(tmp_path), "12.head")) is not None) == alive


@pytest.mark.root
def test_name_that_is_taken(site, free_pid, monkeypatch):
    monkeypatch.setattr(environment, "check_code", lambda config_path: None)  # this process has the checkout's, which may be another user's
    for name in ("ckpt.12.head.1", "ckpt.12.head.2"):
        site.publish(name, free_pid, [free_pid])
    before = site.content()
    call = contract.parse_checkpoint(site.arguments(name="ckpt.12.head.2") + ["15", "-"])
    job = preflight.prepare_job(call, site.config, "checkpoint", Report("checkpoint"))
    with pytest.raises(HookError) as caught:
        failed_restart.take_over_job(job, {"hook": [free_pid, 1], "name": "ckpt.12.head.1"}, seal.build_answer(job.keys, call, job.user))
    assert str(caught.value) == ("cannot publish image ckpt.12.head.2: what has its name is not an older image; it is kept; move it away, "
                                 "or try again a second later")
    assert site.content() == before
