"""How programs are asked for restart files: what a method may be, and the file with those of the site."""
import json
import os
import subprocess

import pytest
from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.nested import methods

NOTHING = "own has neither a signal nor a checkpoint command, which end the program, nor a command before or after a checkpoint"


@pytest.mark.parametrize("value", list(methods.KNOWN.values()) + [
    {}, {"before": "close"}, {"after": "open", "seconds": 5}, {"signal": "USR1", "seconds": 1},
    {"checkpoint": "stop $CKPT_RUN_PID", "restart": "{command} again", "file": "state"}])
def test_right_methods(value):
    assert methods.find_fault("own", value) == ""


@pytest.mark.parametrize("value, fault", [
    ({"file": "state"}, "own has a file or a restart command, but neither a signal nor a checkpoint command, which end the program"),
    ({"restart": "x"}, "own has a file or a restart command, but neither a signal nor a checkpoint command, which end the program"),
    ({"signal": "TERM", "after": "x"}, "own has a command before or after a checkpoint, which is for programs that stay, and ends the "
     "program by a signal or a checkpoint command"),
    ({"signal": "TERM", "checkpoint": "true"}, "own must have either a signal or a checkpoint command"),
    ({"signal": "SIGTERM"}, "own names the signal 'SIGTERM', which this system does not know"),
    ({"signal": 15}, "own sets signal to 15; it must be text without NUL"),
    ({"signal": "TERM", "seconds": 0}, "own sets seconds to less than 1"),
    ({"signal": "TERM", "seconds": True}, "own sets seconds to True; it must be a whole number"),
    ({"signal": "TERM", "file": "a\0b"}, "own sets file to 'a\\x00b'; it must be text without NUL"),
    ({"signal": "TERM", "restart": ""}, "own has no restart command"),
    ({"signal": "TERM", "start": ""}, "own has no start command"),
    ({"signal": "TERM", "sign": "x", "later": 1}, "own has unknown parts: later, sign"),
])
def test_wrong_methods(value, fault):
    assert methods.find_fault("own", value) == fault


@pytest.mark.parametrize("value, fault", [
    ({"before": "close"}, ""), ({"signal": "USR1"}, ""), ({"seconds": 0}, "own sets seconds to less than 1"),
    ({}, NOTHING), ({"seconds": 5}, NOTHING)])
def test_methods_of_a_site_do_something(value, fault):
    assert methods.find_site_fault("own", value) == fault


def test_defaults():
    assert methods.build_method({"signal": "USR1"}) == ("{command}", "USR1", "", "{command}", "", "", "", 600)


@pytest.mark.parametrize("text, wanted", [
    ("{command}", ["sim", "a b"]), ("{command} -cpi run=1", ["sim", "a b", "-cpi", "run=1"]), ("ls {command}", ["ls", "sim", "a b"]),
    ("/opt/sim --resume", ["/opt/sim", "--resume"])] + [(text, ["/bin/sh", "-c", wanted]) for text, wanted in [
        ("exec {command} $AGAIN", "exec sim 'a b' $AGAIN"), ("exec {command} again", "exec sim 'a b' again"),
        ("cd x && {command}", "cd x && sim 'a b'"), ("A=/b {command}", "A=/b sim 'a b'"), ("{command} *.cpt", "sim 'a b' *.cpt"),
        ("unknown-program", "unknown-program"), ("{command} 'a'", "sim 'a b' 'a'"), ("{command}\nx;", "sim 'a b'\nx;"), (" ", " ")]])
def test_command(text, wanted):
    """A shell only where one is needed: it would have the signal."""
    assert methods.format_command(text, ["sim", "a b"]) == wanted


@pytest.fixture
def ompi(tmp_path):
    """Run a command of the method ompi, with tools that only print what they were called with; return what it printed, and its status."""
    name = "ompi-7.head-8/snapshot-of-$2"
    tools = {"ompi-checkpoint": "mkdir -p {0}; echo $FINISHED > {0}/global_snapshot_meta.data; echo Snapshot Ref.: '  2' snapshot-of-$2; "
                                "exit $FAILS".format(name),
             "ps": "wc -c < slept", "sleep": "printf x >> slept",
             "ompi-restart": 'echo "$@" "$OMPI_MCA_snapc_base_global_snapshot_ref" $OMPI_MCA_snapc_base_global_snapshot_dir'}
    for name, text in tools.items():
        (tmp_path / name).write_text("#!/bin/sh\n%s\n" % text)
        (tmp_path / name).chmod(0o755)

    (tmp_path / "slept").write_text("x")

    def run(part, fails=0, finished="# Finished Seq: 2"):
        command = methods.format_command(methods.KNOWN["ompi"][part], ["ompi-restart", "x y"])
        path = "%s:%s" % (tmp_path, os.environ["PATH"])
        variables = dict(os.environ, PATH=path, PBS_JOBID="7.head", CKPT_RUN_PARENT="8", CKPT_RUN_PID="-",
                         FAILS=str(fails), FINISHED=finished)
        done = subprocess.run(command, check=False, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, universal_newlines=True)
        return done.stdout.split(), done.returncode
    return run


def test_ompi_continues_from_the_newest_snapshot(ompi, tmp_path):
    words, status = ompi("start")
    first = words.pop(2)
    assert (words, status) == (["x", "y", "%s/ompi-7.head-8" % tmp_path], 0)
    assert ompi("checkpoint") == ([], 0)
    words, status = ompi("restart")
    assert (words[:3], words[4:], status) == (["--seq", "2", "snapshot-of--"], ["%s/ompi-7.head-8" % tmp_path], 0)
    assert words[3] != first


def test_ompi_waits_until_mpirun_has_run_for_ten_seconds(ompi, tmp_path):
    ompi("start")
    assert ompi("checkpoint") == ([], 0)
    assert (tmp_path / "slept").read_text() == "x" * 10


@pytest.mark.parametrize("failure, wanted", [({"fails": 255}, 255), ({"finished": "# Seq: 2"}, 1), ({"finished": "# Finished Seq: 20"}, 1)])
def test_ompi_knows_no_snapshot_that_failed(ompi, tmp_path, failure, wanted):
    ompi("start")
    assert ompi("checkpoint", **failure) == ([], wanted)
    assert not (tmp_path / "ompi-7.head-8/newest").exists()
    words, status = ompi("restart")
    assert words == [] and status != 0


@pytest.fixture
def write(tmp_path):
    """Write the methods' file; return the path of the hooks' configuration beside it."""
    def write(text, mode=0o644):
        (tmp_path / "methods.json").write_text(text)
        (tmp_path / "methods.json").chmod(mode)
        return str(tmp_path / "hooks.json")
    return write


def test_methods_of_the_site_come_beside_the_known_ones(write):
    own = {"own": {"signal": "USR1"}, "gromacs": {"checkpoint": "x"}}
    assert methods.load_methods(write(json.dumps({"methods": own})), os.geteuid()) == dict(methods.KNOWN, **own)


@pytest.mark.parametrize("text, mode, why", [
    ("", 0o644, "holds no methods"), ("[]", 0o644, "holds no methods"), ("{}", 0o644, "holds no methods"),
    ('{"methods": []}', 0o644, "holds no methods"), ('{"methods": {"own": 7}}', 0o644, "holds no methods"),
    ('{"methods": {"own": {"seconds": 0}}}', 0o644, "is wrong: own sets seconds to less than 1"),
    ('{"methods": {"own": {}}}', 0o644, "is wrong: " + NOTHING),
    ('{"methods": {}}', 0o666, "must be root's and writable by nobody else"),
])
def test_wrong_file(write, tmp_path, text, mode, why):
    with pytest.raises(HookError) as caught:
        methods.load_methods(write(text, mode), os.geteuid())
    assert (caught.value.code, caught.value.sentence) == (
        errors.CONFIG, "%s/methods.json %s; have the administrator run the role checkpoint_hooks on this host" % (tmp_path, why))


def test_no_file(tmp_path):
    with pytest.raises(HookError) as caught:
        methods.load_methods(str(tmp_path / "hooks.json"), os.geteuid())
    assert "methods.json cannot be read (No such file or directory); have" in caught.value.sentence
