"""engine_roundtrip: what is said when the engine cannot do it, and that nothing is left behind.

The engines that fail are a few lines of shell; the tree, its user and its end are real.
"""

import os
import re

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest import engine_roundtrip, roundtrip
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system import privilege
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.waiting import wait_until

NODE = os.uname().nodename


def effective(capability):
    """Whether this process has a capability (int)."""
    with open("/proc/self/status") as stream:
        return bool(int(re.search(r"^CapEff:\s*(\w+)$", stream.read(), re.MULTILINE).group(1), 16) >> capability & 1)


needs_capabilities = pytest.mark.skipif(
    not (effective(privilege.CAP_CHECKPOINT_RESTORE) and effective(privilege.CAP_SYS_PTRACE)),
    reason="needs root with CAP_CHECKPOINT_RESTORE and CAP_SYS_PTRACE: an engine gets them")


@pytest.fixture
def trip(module, public_directory, everyones_python, processes_naming):
    """Call the module: trip(criu_path, **arguments) returns its answer; nothing may be left behind then."""
    images = public_directory / "images"
    images.mkdir()

    def call(criu_path, check=False, caller=None, **changed):
        arguments = dict({"engine": "criu", "engine_options": {"path": str(criu_path)}, "directory": str(images), "timeout": 10}, **changed)
        answer = module("engine_roundtrip", arguments, check=check, python=everyones_python, user=caller)
        assert os.listdir(images) == []
        assert wait_until(lambda: not processes_naming(images), 10)
        return answer

    return call


def engine(program, path, dump="exit 0", restore="exit 0"):
    """Write an engine that answers as told; return its path (str)."""
    return program(path, """\
#!/bin/sh
case $1 in
--version) echo 'Version: 9.9'; echo 'GitID: v9.9';;
dump) %s;;
restore) %s;;
esac
""" % (dump, restore))


def record(answer):
    """Return the answer without what differs from run to run or is none of the result."""
    return {key: value for key, value in answer.items() if key not in ("phases", "counter_before")}


def steps(answer):
    return [phase["step"] for phase in answer["phases"]]


def failure(cause, **facts):
    return dict(facts, changed=False, level="L1", nodes=[NODE], passed=False, cause=cause)


@pytest.mark.parametrize("arguments", [{}, {"user": "no_such_user"}], ids=["good", "unknown user"])
def test_check_mode_starts_nothing(trip, public_directory, program, arguments):
    path = program(public_directory / "criu", "#!/bin/sh\ntouch \"$0.called\"\n")
    answer = trip(path, check=True, **arguments)
    assert record(answer) == dict(failure("check mode: no process is started"), passed=None)
    assert answer["phases"] == []
    assert sorted(os.listdir(public_directory)) == ["criu", "images"]


@pytest.mark.root
def test_ordinary_user_is_refused(trip, public_directory, nobody):
    os.chown(public_directory / "images", nobody.pw_uid, nobody.pw_gid)
    answer = trip(public_directory / "criu", caller=nobody)
    assert answer["failed"] is True
    assert answer["msg"] == "%s: engine_roundtrip must run as root to become user nobody; use become" % NODE


def test_unknown_engine(trip, public_directory):
    answer = trip(public_directory / "criu", engine="dmtcp")
    assert answer["failed"] is True
    assert answer["msg"] == "%s: value of engine must be one of: criu, blcr, got: dmtcp" % NODE


@pytest.mark.root
@pytest.mark.parametrize("options, why", [
    ({"path": "criu"}, "names 'criu', which is not an absolute path"), ({"stall": 90}, "sets engine_options.stall to more than 60 seconds"),
    ({"way": "/x"}, "has unknown settings: engine_options.way"),
])
def test_options_that_are_none(trip, public_directory, options, why):
    answer = trip(public_directory / "criu", engine_options=options)
    assert (answer["failed"], answer["msg"]) == (True, "%s: the configuration of criu %s; correct engine_options" % (NODE, why))


@pytest.mark.root
@pytest.mark.parametrize("user, cause", [
    ("no_such_user", "user no_such_user is not known on this node; compare the account database with the other nodes"),
    ("root", "jobs of root are not checkpointed: an image would run with root's rights when it is restarted; "
             "submit the job as another user"),
])
def test_user_who_will_not_do(trip, public_directory, program, user, cause):
    answer = trip(engine(program, public_directory / "criu"), user=user)
    assert record(answer) == failure(cause)
    assert answer["phases"] == []


@pytest.mark.root
@pytest.mark.parametrize("mode", [None, 0o644], ids=["missing", "not executable"])
def test_criu_is_not_there(trip, public_directory, program, mode):
    if mode is not None:
        os.chmod(engine(program, public_directory / "criu"), mode)
    answer = trip(public_directory / "criu")
    assert record(answer) == failure("criu is not at %s/criu on this node; run the role criu" % public_directory)
    assert answer["phases"] == []


@pytest.mark.root
@pytest.mark.parametrize("text, cause", [
    ("echo 'Error (criu/crtools.c:1): no such option'; exit 1", "--version failed: no such option"),
    ("echo some words", "--version failed: some words"),
    ("exit 0", "--version failed: it printed nothing"),
], ids=["error", "other words", "silent"])
def test_criu_that_has_no_version(trip, public_directory, program, text, cause):
    path = program(public_directory / "criu", "#!/bin/sh\n%s\n" % text)
    answer = trip(path)
    assert record(answer) == failure("%s %s" % (path, cause))
    assert answer["phases"] == []


@pytest.mark.root
def test_criu_that_cannot_be_started(trip, public_directory, program):
    path = program(public_directory / "criu", "#!/nonexistent/sh\n")
    assert record(trip(path)) == failure("cannot start %s: No such file or directory; run the engine's role on this node" % path)


@needs_capabilities
def test_dump_that_fails(trip, public_directory, program, nobody):
    """Done as the user, in the directory that is the user's, with the tree stopped."""
    path = engine(program, public_directory / "criu",
                  dump="touch \"$5/probe\" && echo \"Error (criu/cr-dump.c:1): uid $(id -u) $6\"; exit 3")
    answer = trip(path)
    assert record(answer) == failure("criu dump failed with status 3: uid %d --leave-stopped" % nobody.pw_uid,
                                     engine={"name": "criu", "version": "9.9"})
    assert steps(answer) == ["start"]
    assert "counter_before" not in answer


@needs_capabilities
def test_dump_that_hangs(trip, public_directory, program):
    path = engine(program, public_directory / "criu", dump="exec sleep 600")
    answer = trip(path, timeout=1)
    assert answer["cause"] == "%s took longer than 1 seconds and was killed" % path
    assert (answer["passed"], steps(answer)) == (False, ["start"])


@needs_capabilities
def test_restore_that_fails(trip, public_directory, program, nobody):
    path = engine(program, public_directory / "criu", dump="head -c 5000 /dev/zero > \"$5/pages\"",
                  restore="echo \"Error (criu/cr-restore.c:1): uid $(id -u) has $(ls $4)\"; exit 4")
    answer = trip(path)
    assert record(answer) == failure("criu restore failed with status 4: uid %d has pages" % nobody.pw_uid,
                                     engine={"name": "criu", "version": "9.9"}, image_bytes=5000)
    assert steps(answer) == ["start", "dump"]
    assert answer["counter_before"] >= 5


@needs_capabilities
@pytest.mark.parametrize("words, count", [("Can't fork for 5: File exists", 3), ("Can't fork for 5: Cannot allocate memory", 1)])
def test_round_trip_that_may_pass_another_time_is_done_again(trip, public_directory, program, words, count):
    calls = public_directory / "calls"
    calls.touch()
    calls.chmod(0o666)
    trip(engine(program, public_directory / "criu", restore="echo x >> %s; echo \"Error (criu/x.c:1): %s\"; exit 1" % (calls, words)))
    assert calls.read_text() == "x\n" * count


@needs_capabilities
def test_process_id_in_use(trip, public_directory, program):
    path = engine(program, public_directory / "criu", restore="echo \"Error (criu/x.c:1): Can't fork for 5: File exists\"; exit 1")
    assert trip(path)["cause"] == ("a process id of the image is in use on this node (criu: Can't fork for 5: File exists); "
                                   "try again later or on another node")


@needs_capabilities
def test_restore_that_brings_nothing_back(trip, public_directory, program):
    """An exit status of 0 proves nothing; the output does."""
    answer = trip(engine(program, public_directory / "criu", dump="kill -STOP $3"), timeout=1)
    assert answer["passed"] is False
    last = r"%d %d %d [0-9a-f]{16}\\n" % ((answer["counter_before"],) * 3)
    assert re.fullmatch("the tree made no progress after the restore: its output is '.*%s'; there is no process of it; check the kernel, "
                        "SELinux and the engine's version" % last, answer["cause"])
    assert steps(answer) == ["start", "dump"]
    assert (answer["image_bytes"], "exit_status" in answer) == (0, False)


@pytest.mark.root
def test_directory_that_is_missing(module, public_directory, program, everyones_python):
    answer = module("engine_roundtrip", {"engine": "criu", "engine_options": {"path": engine(program, public_directory / "criu")},
                                         "directory": str(public_directory / "nothing")},
                    python=everyones_python)
    assert str(public_directory / "nothing") in (answer.get("msg") or answer["cause"])


def test_output_that_is_empty(public_directory, program, nobody):
    settings = {"engine": "criu", "engine_options": {"path": engine(program, public_directory / "criu"), "stall": 1}, "engine_timeout": 1}
    engine_trip = engine_roundtrip.EngineRoundTrip(settings, privilege.find_user("nobody"), str(public_directory), 0)
    with pytest.raises(roundtrip.RoundTripError) as caught:
        engine_trip._await_progress(5, "before the dump", "look at it")
    assert str(caught.value) == "the tree made no progress before the dump: its output is empty; there is no process of it; look at it"
