import ctypes
import grp
import os
import pwd
import signal
import time

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.system import command, privilege, processes

CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_NET_BIND_SERVICE = 5, 6, 7, 10


def capabilities(text):
    """Return the capability sets (dict of int) in the text of a /proc/PID/status."""
    return {line[3:6]: int(line.split()[1], 16) for line in text.splitlines() if line.startswith("Cap")}


def status_text():
    with open("/proc/self/status") as stream:
        return stream.read()


# Accounts

def test_account_has_what_the_database_has():
    entry = pwd.getpwnam("nobody")
    assert privilege.find_user("nobody") == privilege.User("nobody", entry.pw_uid, entry.pw_gid, entry.pw_dir)


def test_account_with_a_group():
    group = next(entry for entry in grp.getgrall() if entry.gr_gid != pwd.getpwnam("nobody").pw_gid)
    user = privilege.find_user("nobody", group.gr_name)
    assert (user.uid, user.gid) == (pwd.getpwnam("nobody").pw_uid, group.gr_gid)


def test_account_that_is_not_known():
    with pytest.raises(HookError) as caught:
        privilege.find_user("no_such_user_here")
    assert str(caught.value) == "user no_such_user_here is not known on this node; compare the account database with the other nodes"
    assert caught.value.code == errors.NO_USER


def test_group_that_is_not_known():
    with pytest.raises(HookError) as caught:
        privilege.find_user("nobody", "no_such_group_here")
    assert str(caught.value) == "group no_such_group_here is not known on this node; compare the group database with the other nodes"
    assert caught.value.code == errors.NO_USER


@pytest.mark.parametrize("group", [None, "root"])
def test_root_has_no_checkpoints(group):
    with pytest.raises(HookError) as caught:
        privilege.find_user(pwd.getpwuid(0).pw_name, group and grp.getgrgid(0).gr_name)
    assert str(caught.value) == ("jobs of root are not checkpointed: an image would run with root's rights when it is restarted; submit "
                                 "the job as another user")
    assert caught.value.code == errors.NO_USER


# Work as the user

@pytest.mark.parametrize("result", [None, True, 0, 1.5, "text", "\u00fc\udcff\n", [1, [2]], {"a": {"b": None}}])
def test_as_user_returns_what_work_returns(somebody, result):
    assert privilege.as_user(somebody, lambda: result) == result


def test_as_user_returns_more_than_a_pipe_holds(somebody):
    text = "x" * 300000
    assert privilege.as_user(somebody, lambda: text) == text


def test_as_user_works_in_a_child_of_its_own(somebody):
    seen = []
    pid, parent = privilege.as_user(somebody, lambda: seen.append(1) or [os.getpid(), os.getppid()])
    assert parent == os.getpid() != pid
    assert seen == []
    assert processes.read_process(pid) is None


def test_as_user_is_the_user_in_everything(somebody):
    def work():
        mask = os.umask(0)
        return [list(os.getresuid()), list(os.getresgid()), mask]
    before = (os.getresuid(), os.getresgid(), os.getgroups())
    assert privilege.as_user(somebody, work) == [[somebody.uid] * 3, [somebody.gid] * 3, 0o077]
    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before


def test_as_user_raises_the_works_own_sentence(somebody):
    def work():
        raise HookError(errors.DATA, "image \u00fc is damaged\nby \"you\"")
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, work)
    assert str(caught.value) == "image \u00fc is damaged\nby \"you\""
    assert caught.value.sentence == str(caught.value)
    assert caught.value.code == errors.DATA


def test_as_user_names_an_unexpected_error(somebody):
    def work():
        raise ValueError("too bad")
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, work)
    assert str(caught.value) == "ValueError: too bad"
    assert caught.value.code == errors.SYSTEM


@pytest.mark.parametrize("end, status", [
    (lambda: os.kill(os.getpid(), signal.SIGKILL), 9), (lambda: os._exit(3), 3 << 8), (lambda: os._exit(0), 0)])
def test_as_user_when_the_child_dies(somebody, end, status):
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, end)
    assert str(caught.value) == ("the part of the hook that runs as %s died with wait status %d; see in journalctl -k whether memory was "
                                 "short, and try again" % (somebody.name, status))
    assert caught.value.code == errors.SYSTEM


def test_as_user_asks_root(somebody):
    asked = []

    def answer(question):
        asked.append((os.getpid(), question))
        if question == "no":
            raise HookError(errors.REFUSED, "not to you")
        return [os.geteuid(), question]

    def work():
        answers = [privilege.ask_root({"a": "line\nbreak"}), privilege.ask_root("x" * 200000)]
        try:
            privilege.ask_root("no")
        except HookError as error:
            answers.append([error.code, str(error)])
        return answers
    assert privilege.as_user(somebody, work, answer=answer) == [
        [os.geteuid(), {"a": "line\nbreak"}], [os.geteuid(), "x" * 200000], [errors.REFUSED, "not to you"]]
    assert asked == [(os.getpid(), question) for question in ({"a": "line\nbreak"}, "x" * 200000, "no")]


def test_as_user_that_dies_after_a_question(somebody):
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: privilege.ask_root(1) and os._exit(3), answer=lambda _question: True)
    assert str(caught.value) == ("the part of the hook that runs as %s died with wait status 768; see in journalctl -k whether memory was "
                                 "short, and try again" % somebody.name)


def test_as_user_leaves_no_descriptor_and_no_child(somebody):
    before = os.listdir("/proc/self/fd")
    children = processes.list_children(os.getpid())
    privilege.as_user(somebody, lambda: None)
    with pytest.raises(HookError):
        privilege.as_user(somebody, lambda: os._exit(1))
    assert os.listdir("/proc/self/fd") == before
    assert processes.list_children(os.getpid()) == children


def test_an_ordinary_user_cannot_become_another(somebody):
    other = privilege.User("alice", somebody.uid + 1, somebody.gid, "/")
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: privilege.become_user(other))
    assert str(caught.value) == "cannot become user alice without root's rights; start the hook as root"
    assert caught.value.code == errors.SYSTEM


@pytest.mark.root
def test_as_user_has_the_users_groups_and_none_of_roots(in_child, somebody):
    def work():
        os.setgroups([0, 12345])
        return privilege.as_user(somebody, lambda: [os.getgroups(), os.getgrouplist(somebody.name, somebody.gid)])
    groups, wanted = in_child(work).result
    assert sorted(groups) == sorted(wanted)
    assert 0 not in groups and 12345 not in groups


@pytest.mark.root
def test_as_user_has_no_capabilities(somebody):
    masks = capabilities(privilege.as_user(somebody, status_text))
    assert [masks[name] for name in ("Inh", "Prm", "Eff", "Amb")] == [0, 0, 0, 0]


@pytest.mark.root
@pytest.mark.parametrize("granted", [(CAP_KILL,), (CAP_NET_BIND_SERVICE, CAP_KILL)])
def test_as_user_has_exactly_the_capabilities_it_was_given_and_so_has_its_program(somebody, granted):
    mask = sum(1 << capability for capability in granted)
    own, program = privilege.as_user(somebody, lambda: [status_text(), command.run(["/bin/cat", "/proc/self/status"], 10)[1]], granted)
    for masks in (capabilities(own), capabilities(program)):
        assert [masks[name] for name in ("Inh", "Prm", "Eff", "Amb")] == [mask] * 4
    assert "Uid:\t%s\n" % "\t".join([str(somebody.uid)] * 4) in program


@pytest.mark.root
@pytest.mark.skipif(not capabilities(status_text())["Prm"] >> privilege.CAP_CHECKPOINT_RESTORE & 1,
                    reason="needs root: with CAP_CHECKPOINT_RESTORE (kernel 5.9)")
def test_as_user_with_a_capability_of_the_upper_word(somebody):
    masks = capabilities(privilege.as_user(somebody, status_text, (privilege.CAP_CHECKPOINT_RESTORE, CAP_KILL)))
    assert [masks[name] for name in ("Inh", "Prm", "Eff", "Amb")] == [1 << privilege.CAP_CHECKPOINT_RESTORE | 1 << CAP_KILL] * 4


@pytest.mark.root
def test_as_user_with_a_capability_that_there_is_not(somebody):
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: None, (63,))
    assert str(caught.value) == ("cannot become user %s with the engine's capabilities: Invalid argument; give the container or service "
                                 "that this runs in the capabilities for it" % somebody.name)
    assert caught.value.code == errors.SYSTEM


def keep_only(*granted):
    """Give up all other capabilities, though this process stays root's."""
    mask = sum(1 << capability for capability in granted)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)) == 0


@pytest.mark.root
def test_root_that_may_not_change_users(in_child, somebody):
    def work():
        keep_only()
        try:
            privilege.as_user(somebody, lambda: None)
        except HookError as error:
            return [error.code, str(error)]
    assert in_child(work).result == [errors.SYSTEM, "cannot become user nobody: Operation not permitted; give the container or service "
                                                    "that this runs in the capabilities for it"]


@pytest.mark.root
def test_root_that_does_not_have_the_capability(in_child, somebody):
    def work():
        keep_only(CAP_SETGID, CAP_SETUID)
        try:
            privilege.as_user(somebody, lambda: None, (CAP_KILL,))
        except HookError as error:
            return [error.code, str(error)]
    assert in_child(work).result == [errors.SYSTEM, "cannot become user nobody with the engine's capabilities: Operation not permitted; "
                                                    "give the container or service that this runs in the capabilities for it"]


@pytest.mark.root
def test_a_given_capability_does_not_bring_root_back(somebody):
    def work():
        for change in (os.setuid, os.setgid):
            try:
                change(0)
                return "became root"
            except PermissionError:
                pass
        return "refused"
    assert privilege.as_user(somebody, work, (CAP_KILL,)) == "refused"


# Processes

def orphan():
    """Make an orphan; return the pid (int) of the parent it was given."""
    reader, writer = os.pipe()
    go, gone = os.pipe()
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            os.close(gone)
            os.read(go, 1)  # until the parent and its copy of the other end are gone
            os.write(writer, b"%d" % os.getppid())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(gone)
    return int(os.read(reader, 20))


def test_orphans_become_the_subreapers_children(in_child):
    def work():
        before = orphan() == os.getpid()
        privilege.become_subreaper()
        return [before, orphan() == os.getpid()]
    assert in_child(work).result == [False, True]


def test_reset_signals_gives_what_a_shell_expects(in_child):
    def work():
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
        privilege.reset_signals()
        return [signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL, signal.getsignal(signal.SIGXFSZ) == signal.SIG_DFL,
                len(signal.pthread_sigmask(signal.SIG_BLOCK, []))]
    assert in_child(work).result == [True, True, 0]


def test_as_user_with_a_result_that_fits_not_into_json(somebody):
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: {"a": object()})
    assert caught.value.code == errors.SYSTEM


# A user who keeps root waiting

@pytest.fixture
def hurried(monkeypatch):
    """Nobody waits long."""
    monkeypatch.setattr(privilege.progress, "PAUSE", 0.05)
    monkeypatch.setattr(privilege.progress, "STOPPED", 0.5)
    monkeypatch.setattr(privilege, "_ENDING", 0.5)


def given_up(somebody, work, why, **limits):
    """Have a work given up; nothing of it is left."""
    children, descriptors = processes.list_children(os.getpid()), os.listdir("/proc/self/fd")
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, work, **limits)
    assert (caught.value.code, str(caught.value)) == (
        errors.TEMPORARY, "the part of the hook that runs as %s %s and was killed; try again" % (somebody.name, why))
    assert (processes.list_children(os.getpid()), os.listdir("/proc/self/fd")) == (children, descriptors)


def stop_oneself():
    os.kill(os.getpid(), signal.SIGSTOP)


def test_part_that_its_user_stops(somebody, hurried):
    given_up(somebody, stop_oneself, "was stopped for 0 seconds")


def test_part_that_its_user_stops_before_it_reads_a_long_answer(somebody, hurried):
    """More than a pipe holds, so that root would wait for a reader."""
    def work():
        privilege._parent["questions"].write('{"question": 1, "phases": %s}\n' % privilege.json.dumps(privilege.phases.dump()))
        privilege._parent["questions"].flush()
        stop_oneself()
    given_up(somebody, work, "was stopped for 0 seconds", answer=lambda _question: "x" * 300000)


def test_part_that_its_user_stops_again_and_again(somebody, hurried):
    """Each time it goes on for a moment."""
    def work():
        mine = os.getpid()
        if os.fork() == 0:
            for _turn in range(600):
                os.kill(mine, signal.SIGSTOP)
                time.sleep(0.2)
                os.kill(mine, signal.SIGCONT)
                time.sleep(0.01)
            os._exit(0)
        while True:
            sum(range(1000))
    given_up(somebody, work, "was stopped for 0 seconds")


def test_part_whose_program_its_user_stops(somebody, hurried):
    given_up(somebody, lambda: os.waitpid(os.fork() or stop_oneself(), 0), "was stopped for 0 seconds")


def test_part_that_waits_for_what_never_comes(somebody, hurried):
    given_up(somebody, signal.pause, "did nothing for 0 seconds", patience=0.3)


def test_part_that_is_always_busy(somebody, hurried):
    def work():
        while True:
            sum(range(1000))
    given_up(somebody, work, "took longer than 1 seconds", patience=60, deadline=1)


def test_part_that_gets_on_may_take_its_time(somebody, hurried):
    """A processor's time, or that of a child, or bytes: each counts."""
    def busy():
        late = time.monotonic() + 0.8
        while time.monotonic() < late:
            sum(range(100000))

    def moving():
        for _turn in range(8):
            time.sleep(0.1)
            os.write(os.open("/dev/null", os.O_WRONLY), b"x")

    def with_child():
        pid = os.fork()
        if pid == 0:
            busy()
            os._exit(0)
        os.waitpid(pid, 0)
    for work in (busy, moving, with_child):
        assert privilege.as_user(somebody, lambda work=work: work() or "done", patience=0.4) == "done"


def test_part_that_is_stopped_with_its_last_breath(somebody, hurried, monkeypatch):
    """It has said all; it must not keep the job's lock."""
    monkeypatch.setattr(privilege.os, "_exit", lambda _status: stop_oneself())
    children = processes.list_children(os.getpid())
    assert privilege.as_user(somebody, lambda: "said") == "said"
    assert processes.list_children(os.getpid()) == children


# When memory runs out

@pytest.mark.root
def test_what_becomes_a_user_is_not_spared(tmp_path, monkeypatch, somebody):
    """In a container root may not set the real one."""
    score = tmp_path / "oom_score_adj"
    score.write_text("0")
    monkeypatch.setattr(privilege, "_OOM_SCORE", str(score))
    privilege.avoid_oom_kill()
    assert score.read_text() == "-1000"
    assert privilege.as_user(somebody, lambda: "done") == "done"
    assert int(score.read_text()[0]) == 0
    score.write_text("500")
    privilege.as_user(somebody, lambda: None)
    assert score.read_text() == "500"


@pytest.mark.root
def test_root_is_spared_as_far_as_the_kernel_lets_it(in_child, somebody):
    def work():
        def score():
            with open("/proc/self/oom_score_adj") as stream:
                return int(stream.read())
        before = score()
        privilege.avoid_oom_kill()
        return [before, score(), privilege.as_user(somebody, score)]
    before, roots, users = in_child(work).result
    may = capabilities(status_text())["Eff"] >> 24 & 1  # CAP_SYS_RESOURCE
    assert (roots, users) == ((-1000, 0) if may else (before, before))


# A child that stays what we are

@pytest.mark.parametrize("result", [None, "x" * 300000, {"a": [1]}])
def test_apart_returns_what_work_returns(result):
    children, descriptors = processes.list_children(os.getpid()), os.listdir("/proc/self/fd")
    assert privilege.run_in_child(lambda: result) == result
    assert (processes.list_children(os.getpid()), os.listdir("/proc/self/fd")) == (children, descriptors)


def test_apart_raises_what_work_raises():
    def work():
        raise HookError(errors.CONFIG, "no key")
    with pytest.raises(HookError) as caught:
        privilege.run_in_child(work)
    assert (caught.value.code, str(caught.value)) == (errors.CONFIG, "no key")


def test_apart_that_dies():
    with pytest.raises(HookError) as caught:
        privilege.run_in_child(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert (caught.value.code, str(caught.value)) == (errors.SYSTEM, "a part of the hook died with wait status 9; see in journalctl -k "
                                                                     "whether memory was short, and try again")
