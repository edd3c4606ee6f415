"""mom_config and mom_config_info: mom_priv/config is written whole, what pbs_mom must do to go by it, and one written by hand."""

import json
import os
import pathlib
import stat

import pytest
from paths import DATA

pytestmark = pytest.mark.root

HERE = DATA / "mom_config"

FIRST = "# Written by ckpt.torque.mom_config; changes made here are lost.\n"


@pytest.fixture
def mom(module, tmp_path, program):
    """The module for a MOM's home: mom(**arguments) returns its answer, mom.ask(**arguments) that of mom_config_info."""
    (tmp_path / "mom_priv").mkdir()
    for name in ("run", "checkpoint", "restart"):
        program(tmp_path / name, "#!/bin/sh\n")

    def call(check=False, diff=False, **arguments):
        return module("mom_config", dict({"path": str(call.path)}, **arguments), check=check, diff=diff)

    def ask(check=False, **arguments):
        return module("mom_config_info", dict({"path": str(call.path)}, **arguments), check=check)
    call.ask = ask
    call.path = tmp_path / "mom_priv" / "config"
    call.hooks = {"checkpoint_run_exe": str(tmp_path / "run"), "checkpoint_script": str(tmp_path / "checkpoint"),
                  "restart_script": str(tmp_path / "restart")}
    return call


def everything(root):
    """Return what is in a directory: {name: (content, mode, owner, time of change)}."""
    entries = {}
    for path in sorted(pathlib.Path(root).rglob("*")):
        status = path.lstat()
        entries[str(path)] = (stat.S_ISREG(status.st_mode) and path.read_bytes(), status.st_mode, status.st_uid, status.st_ctime_ns)
    return entries


def facts(path):
    status = os.lstat(str(path))
    return oct(status.st_mode), status.st_uid, status.st_gid


def test_whole(mom, tmp_path):
    arguments = dict(
        mom.hooks, version="6.1.3", pbsserver=["head"], checkpoint_interval=180, remote_checkpoint_dirs=["/shared/ckpt"], loglevel=3,
        usecp=["*:/data /srv/data", {"host": "*", "from": "/home/", "to": "/home/"}], tmpdir=str(tmp_path), logevent=511, log_keep_days=30,
        spool_as_final_name=True, job_starter=mom.hooks["checkpoint_run_exe"], cputmult=1.5, wallmult=2, ideal_load=0.5, max_load=4,
        ignwalltime=True, ignmem=False, ignvmem=True, igncput=False, resources=["gpus 2"],
        directives={"down_on_error": True, "varattr": ["60 /bin/a", "70 /bin/b"], "own": "x"}, allowed=["OWN"])
    text = FIRST + """\
$pbsserver head
$checkpoint_run_exe {0}/run
$checkpoint_script {0}/checkpoint
$restart_script {0}/restart
$checkpoint_interval 180
$remote_checkpoint_dirs /shared/ckpt/
$usecp *:/data /srv/data
$usecp *:/home/ /home/
$tmpdir {0}
$spool_as_final_name true
$job_starter {0}/run
$loglevel 3
$logevent 511
$log_keep_days 30
$cputmult 1.5
$wallmult 2.0
$ideal_load 0.5
$max_load 4.0
$ignwalltime true
$ignmem false
$ignvmem true
$igncput false
$down_on_error true
$varattr 60 /bin/a
$varattr 70 /bin/b
$own x
gpus 2
""".format(tmp_path)
    before = everything(tmp_path)
    planned = mom(check=True, diff=True, **arguments)
    assert everything(tmp_path) == before
    answer = mom(diff=True, **arguments)
    assert planned == answer
    assert answer["changed"] is True
    assert mom.path.read_text() == text
    assert facts(mom.path) == ("0o100644", 0, 0)
    assert os.listdir(str(mom.path.parent)) == ["config"]
    assert answer["diff"] == {"before_header": str(mom.path), "after_header": str(mom.path), "before": "", "after": text}
    assert (answer["restart_required"], answer["reload_sufficient"]) == (True, False)

    before = everything(tmp_path)
    second = mom(diff=True, **arguments)
    assert everything(tmp_path) == before
    assert second == {"changed": False, "changed_directives": [], "restart_required": False, "reload_sufficient": False,
                      "former_written": mom.path.lstat().st_mtime,
                      "diff": {"before_header": str(mom.path), "after_header": str(mom.path), "before": text, "after": text}}
    assert mom.ask(version="6.1.3", allowed=["own"])["traps"] == []


@pytest.mark.parametrize("version, before, after, names, restart, reload_", [
    ("4.2.10", {"loglevel": 3}, {"loglevel": 4}, ["$loglevel"], False, True),
    ("4.2.10", {"loglevel": 3}, {}, ["$loglevel"], True, False),
    ("4.2.10", {"usecp": ["*:/a /a"]}, {"usecp": ["*:/b /b"], "loglevel": 1}, ["$loglevel", "$usecp"], True, False),
    ("6.1.3", {"loglevel": 3}, {"loglevel": 4}, ["$loglevel"], True, False),
    (None, {"loglevel": 3}, {"loglevel": 4}, ["$loglevel"], True, False),
    ("4.2.10", {"resources": ["a 1"]}, {"resources": ["b 1"]}, ["a", "b"], False, True),
])
def test_what_pbs_mom_must_do(mom, version, before, after, names, restart, reload_):
    mom(version=version, **before)
    written = mom.path.lstat().st_mtime
    answer = mom(version=version, **after)
    assert (answer["changed_directives"], answer["restart_required"], answer["reload_sufficient"]) == (names, restart, reload_)
    assert answer["former_written"] == written
    assert os.listdir(str(mom.path.parent)) == ["config"]


def test_first_file_needs_a_restart(mom):
    answer = mom(version="4.2.10", loglevel=3)  # nobody knows what a pbs_mom that runs without has read
    assert (answer["restart_required"], answer["reload_sufficient"], "former_written" in answer) == (True, False, False)


@pytest.mark.parametrize("spoil", ["mode", "owner", "group", "comment", "link"])
def test_what_pbs_mom_does_not_see(mom, spoil):
    mom(loglevel=3)
    text = mom.path.read_text()
    if spoil == "mode":
        mom.path.chmod(0o666)
    elif spoil == "comment":
        mom.path.write_text("# other\n" + text)
    elif spoil == "link":
        mom.path.rename(mom.path.parent / "other")
        mom.path.symlink_to("other")
    else:
        os.chown(str(mom.path), *((1, 0) if spoil == "owner" else (0, 1)))
    for check in (True, False):
        answer = mom(loglevel=3, check=check)
        assert (answer["changed"], answer["restart_required"], answer["reload_sufficient"]) == (True, False, False)
    assert (mom.path.read_text(), facts(mom.path)) == (text, ("0o100644", 0, 0))
    assert mom(loglevel=3)["changed"] is False


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_mode_does_not_depend_on_the_umask(module, mom, umask):
    module("mom_config", {"path": str(mom.path)}, umask=umask)
    assert facts(mom.path) == ("0o100644", 0, 0)


def test_backup(mom):
    assert "backup_file" not in mom(loglevel=3, backup=True)
    mom.path.write_bytes(b"$loglevel 4 # \xff\n")
    assert "backup_file" not in mom(loglevel=3, backup=True, check=True)
    answer = mom(loglevel=3, backup=True, diff=True)
    assert pathlib.Path(answer["backup_file"]).read_bytes() == b"$loglevel 4 # \xff\n"
    assert pathlib.Path(answer["backup_file"]).parent == mom.path.parent
    assert answer["diff"]["before"] == "$loglevel 4 # \ufffd\n"
    assert "backup_file" not in mom(loglevel=3, backup=True)


# bad data

def refused(mom, message, **arguments):
    """Whether the module refuses arguments with a message, in check mode too, and changes nothing."""
    mom.path.write_text("$loglevel 1\n")
    before = everything(mom.path.parent)
    for check in (True, False):
        answer = mom(check=check, **arguments)
        assert (answer.get("failed"), answer["msg"]) == (True, message)
    assert everything(mom.path.parent) == before
    return answer


GO_BY = "pbs_mom would not go by this configuration: %s; correct it; nothing was changed"


@pytest.mark.parametrize("arguments, reason", [
    ({"directives": {"bogus": 1}}, "$bogus is no directive of pbs_mom, which ignores the line"),
    ({"directives": {"remote_checkpoint_dir": "/a"}},
     "$remote_checkpoint_dir is no directive of pbs_mom, which ignores the line; perhaps $remote_checkpoint_dirs was meant"),
    ({"loglevel": -1, "checkpoint_interval": 0},
     "$checkpoint_interval 0 is not a whole number above 0; $loglevel -1 is not a whole number"),
    ({"remote_checkpoint_dirs": ["/d%d" % number for number in range(33)]},
     "$remote_checkpoint_dirs has 33 entries, and pbs_mom has room for 32"),
    ({"remote_checkpoint_dirs": ["/a", "/a/"]}, "$remote_checkpoint_dirs /a/ names /a/ again"),
    ({"pbsserver": list("abcde")}, "$pbsserver has 5 entries, and pbs_mom has room for 4"),
    ({"usecp": ["/home /home"]}, "$usecp /home /home is not of the form HOST:/FROM /TO"),
    ({"tmpdir": "/dev/null"}, "$tmpdir /dev/null is no directory"),
    ({"checkpoint_script": "/dev/null"}, "$checkpoint_script /dev/null cannot be executed by root, and pbs_mom would not use it"),
    ({"directives": {"preexec": "x" * 110}}, "it has 119 bytes, of which pbs_mom reads 118 and takes the rest for another line"),
    ({"resources": ["loglevel 7"]}, "loglevel lacks its $"),
    ({"version": "2.5.3", "job_starter": "/bin/sh"},
     "$job_starter is not known to TORQUE 2.5.3, which ignores the line; it came with 2.5.12"),
])
def test_data_that_pbs_mom_would_not_go_by(mom, arguments, reason):
    answer = refused(mom, GO_BY % reason, **arguments)
    assert "; ".join(answer["faults"]) == reason


@pytest.mark.parametrize("arguments, reason", [
    ({"loglevel": 3, "directives": {"$LogLevel": 4}}, "loglevel is an option and in directives too"),
    ({"usecp": [{"host": "*"}]}, "usecp takes HOST:/FROM /TO or host, from and to, not {'host': '*'}"),
    ({"directives": {"preexec": "a#b"}}, "preexec 'a#b' holds a '#', where pbs_mom begins a comment, or a line break"),
    ({"version": "newest"}, "'newest' is not a version; name one such as 6.1.3 or 6.1.3.h5"),
])
def test_data_that_cannot_be_written(mom, arguments, reason):
    answer = refused(mom, "cannot write %s: %s; correct it; nothing was changed" % (mom.path, reason), **arguments)
    assert answer["faults"] == [reason]


def test_option_without_a_value_may_be_a_directive(mom):
    assert mom(directives={"loglevel": 4, "usecp": "*:/a /a"})["changed"] is True
    assert mom.path.read_text() == FIRST + "$usecp *:/a /a\n$loglevel 4\n"


def test_missing_hook(mom, tmp_path):
    """A plan cannot know whether an earlier task would have installed it; pbs_mom would continue without it."""
    missing = str(tmp_path / "missing")
    planned = mom(check=True, checkpoint_script=missing)
    assert planned["changed"] is True
    assert "%s is not there yet" % missing in json.dumps(planned["warnings"])  # ansible-core 2.19 wraps it
    answer = mom(checkpoint_script=missing)
    assert answer["failed"] is True
    assert answer["msg"] == GO_BY % (
        "$checkpoint_script %s cannot be used: No such file or directory; pbs_mom would ignore the line and continue without it" % missing)
    assert not mom.path.exists()


@pytest.mark.parametrize("name, spoil, reason", [
    ("checkpoint_script", lambda path: os.chmod(path, 0o644), "cannot be executed by root, and pbs_mom would not use it"),
    ("restart_script", lambda path: os.chown(path, 1, 0), "belongs to user 1, who could change what root runs; it must be root's"),
    ("restart_script", lambda path: os.chmod(path, 0o775), "has mode 0775: others could change what runs; take their right to write"),
    ("checkpoint_run_exe", lambda path: os.chmod(path, 0o700), "cannot be executed by every user, and pbs_mom would not use it"),
])
def test_hooks(mom, name, spoil, reason):
    spoil(mom.hooks[name])
    refused(mom, GO_BY % "$%s %s %s" % (name, mom.hooks[name], reason), **mom.hooks)


def test_no_mom(mom, tmp_path):
    path = tmp_path / "other" / "config"
    assert mom(path=str(path), check=True)["changed"] is True
    answer = mom(path=str(path))
    assert answer["failed"] is True
    assert answer["faults"] == []
    assert answer["msg"] == "there is no directory %s; install TORQUE's MOM first or correct path; nothing was changed" % path.parent


def test_path_that_is_a_directory(mom):
    mom.path.mkdir()
    answer = mom()
    assert answer["failed"] is True
    assert answer["faults"] == []
    assert answer["msg"] == "cannot read %s: Is a directory; correct path and become root; nothing was changed" % mom.path


def test_ordinary_user(module, public_directory, nobody, everyones_python):
    path = public_directory / "config"
    answer = module("mom_config", {"path": str(path)}, python=everyones_python, user=nobody)
    assert answer["failed"] is True
    assert answer["msg"] == "cannot write %s: Permission denied; become root, or free some space; nothing was changed" % path
    assert os.listdir(str(public_directory)) == []


# a file by hand

def test_file_without_faults(mom):
    mom.path.write_text("$loglevel 7 # all\n$remote_checkpoint_dirs /shared/ckpt\ngpus 2\n")
    before = everything(mom.path.parent)
    for check in (True, False):
        answer = mom.ask(check=check)
        assert answer == {"changed": False, "directives": {"loglevel": ["7"], "remote_checkpoint_dirs": ["/shared/ckpt"]}, "resources": [
            "gpus 2"], "faults": [], "traps": [
            "/shared/ckpt also stands for every path that begins so, such as /shared/ckpt-old; write /shared/ckpt/"]}
    assert everything(mom.path.parent) == before


def test_malformed(mom):
    mom.path.write_text("$loglevel 7\nusecp *:/home /home\n\n$bogus 1\n$checkpoint_script /nonexistent\n")
    before = everything(mom.path.parent)
    for check in (True, False):
        assert mom.ask(check=check)["faults"] == [
            "line 2: usecp lacks its $",
            "line 4: $bogus is no directive of pbs_mom, which ignores the line",
            "line 5: $checkpoint_script /nonexistent cannot be used: No such file or directory; pbs_mom would ignore the line and continue "
            "without it"]
    assert everything(mom.path.parent) == before


def test_recorded_file(mom):
    mom.path.write_text((HERE / "by_hand.config").read_text())
    assert len(mom.ask(version="6.1.3")["faults"]) == 31
    mom.path.write_text("$own 1\n")
    assert len(mom.ask()["faults"]) == 1
    assert mom.ask(allowed=["OWN"])["faults"] == []


def test_bytes_that_are_no_text(mom):
    mom.path.write_bytes(b"$bogus\xff 1\n")
    assert mom.ask()["faults"] == ["line 1: $bogus is no directive of pbs_mom, which ignores the line"]
    mom.path.write_bytes(b"$loglevel \xff\n")
    assert mom.ask()["faults"] == ["line 1: $loglevel \ufffd is not a whole number"]


@pytest.mark.parametrize("mode, owner, faults", [
    (0o664, 0, ["it belongs to user 0 with mode 0664, and pbs_mom takes only what is root's and writable by nobody else"]),
    (0o646, 0, ["it belongs to user 0 with mode 0646, and pbs_mom takes only what is root's and writable by nobody else"]),
    (0o644, 11, ["it belongs to user 11 with mode 0644, and pbs_mom takes only what is root's and writable by nobody else"]),
    (0o600, 10, []),
    (0o755, 10, []),
])
def test_file_that_pbs_mom_refuses(mom, mode, owner, faults):
    mom.path.write_text("$loglevel 7\n")
    os.chown(str(mom.path), owner, 0)
    mom.path.chmod(mode)
    assert mom.ask()["faults"] == faults


def test_nothing_to_check(mom):
    answer = mom.ask()
    assert answer["failed"] is True
    assert answer["msg"] == "there is no file %s; correct path or write it with mom_config" % mom.path


def test_version_that_is_none(mom):
    mom.path.write_text("$loglevel 7\n")
    answer = mom.ask(version="six")
    assert answer["failed"] is True
    assert answer["msg"].startswith("cannot check %s: " % mom.path)
