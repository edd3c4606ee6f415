"""mom_priv/config: what is written is what pbs_mom reads, and what it would not go by is said. Recorded: TORQUE 6.1.3."""

import collections
import os
import re
import stat

import pytest
from paths import DATA

from ansible_collections.ckpt.torque.plugins.module_utils.torque import mom_config
from ansible_collections.ckpt.torque.plugins.module_utils.torque.mom_config import ConfigError, Fault

HERE = DATA / "mom_config"

FIRST = "# Written by ckpt.torque.mom_config; changes made here are lost.\n"

Status = collections.namedtuple("Status", "st_mode st_uid")


def status_of(path):
    """A node where every program is root's and every directory is there."""
    return Status(stat.S_IFDIR | 0o755 if path.startswith("/tmp") else stat.S_IFREG | 0o755, 0)


# render

def test_render():
    directives = collections.OrderedDict([
        ("pbsserver", ["head", "other:15001"]), ("checkpoint_script", "/hooks/checkpoint"), ("checkpoint_interval", 180),
        ("remote_checkpoint_dirs", ["/shared/ckpt", "/scratch/ckpt//", "*"]),
        ("usecp", ["*:/home /home", {"host": "*.cluster", "from": "/data/", "to": "/srv/data/"}]), ("cputmult", 1.5), ("tmpdir", None),
        ("spool_as_final_name", True), ("ignmem", False), ("loglevel", 0), ("nospool_dir_list", ["/home", "$WORKDIR"]),
        ("$varattr", [" 60 /bin/room\t1 "]), ("Restricted", "*.cluster"), ("pbsclient", []),
    ])
    assert mom_config.render(directives, ["size[fs=/scratch]", " gpus 2 "]) == FIRST + (
        "$pbsserver head\n$pbsserver other:15001\n$checkpoint_script /hooks/checkpoint\n$checkpoint_interval 180\n"
        "$remote_checkpoint_dirs /shared/ckpt/\n$remote_checkpoint_dirs /scratch/ckpt/\n$remote_checkpoint_dirs *\n"
        "$usecp *:/home /home\n$usecp *.cluster:/data/ /srv/data/\n$cputmult 1.5\n"
        "$spool_as_final_name true\n$ignmem false\n$loglevel 0\n$nospool_dir_list /home $WORKDIR\n"
        "$varattr 60 /bin/room\t1\n$restricted *.cluster\nsize[fs=/scratch]\ngpus 2\n")


def test_render_nothing():
    assert mom_config.render({}) == mom_config.render({"nospool_dir_list": [], "usecp": [], "tmpdir": None}) == FIRST


@pytest.mark.parametrize("version, written", [
    (None, "/shared/ckpt/"), ("2.4.8", "/shared/ckpt"), ("2.5.2", "/shared/ckpt"), ("2.5.3", "/shared/ckpt/"), ("6.1.3", "/shared/ckpt/")])
def test_slash_by_version(version, written):
    text = mom_config.render({"remote_checkpoint_dirs": ["/shared/ckpt"]}, version=version)
    assert text == FIRST + "$remote_checkpoint_dirs %s\n" % written


@pytest.mark.parametrize("name, value, message", [
    ("mom_host", "", "mom_host has an empty value"),
    ("mom_host", " ", "mom_host has an empty value"),
    ("restricted", ["a", ""], "restricted has an empty value"),
    ("preexec", "a#b", "preexec 'a#b' holds a '#', where pbs_mom begins a comment, or a line break"),
    ("preexec", "a\n$tmpdir /x", "preexec 'a\n$tmpdir /x' holds a '#', where pbs_mom begins a comment, or a line break"),
    ("preexec", "a\rb", "preexec 'a\rb' holds a '#', where pbs_mom begins a comment, or a line break"),
    ("usecp", [{"host": "*", "from": "/a"}], "usecp takes HOST:/FROM /TO or host, from and to, not {'host': '*', 'from': '/a'}"),
    ("usecp", [["*:/a /a"]], "usecp takes HOST:/FROM /TO or host, from and to, not ['*:/a /a']"),
    ("preexec", {"a": 1}, "preexec takes a value or a list of values, not {'a': 1}"),
    ("preexec", {"host": "a"}, "preexec takes a value or a list of values, not {'host': 'a'}"),
    ("preexec", {"from": 1, "host": 2, "to": 3}, "preexec takes a value or a list of values, not {'from': 1, 'host': 2, 'to': 3}"),
    ("preexec", [["a"]], "preexec takes a value or a list of values, not ['a']"),
])
def test_render_refuses(name, value, message):
    with pytest.raises(ConfigError) as caught:
        mom_config.render({name: value})
    assert str(caught.value) == message


def test_resources_are_lines():
    with pytest.raises(ConfigError) as caught:
        mom_config.render({}, ["a\nb"])
    assert str(caught.value) == "resources 'a\nb' holds a '#', where pbs_mom begins a comment, or a line break"


# entries

@pytest.mark.parametrize("line, entries", [
    ("$loglevel 7", [(1, "$loglevel", "7")]),
    ("  $LogLevel\t7  # why", [(1, "$loglevel", "7")]),
    ("# $loglevel 7", []), (" # why", []), ("", []), (" \t", []),
    ("$loglevel", [(1, "$loglevel", "")]),
    ("$log-level 7", [(1, "$log", "-level 7")]),
    ("$ usecp x", [(1, "$", "usecp x")]),
    ("Size[fs=/x]", [(1, "Size", "[fs=/x]")]),
    ("-x", [(1, "", "-x")]),
])
def test_entries(line, entries):
    assert mom_config.entries(line) == entries


# faults: recorded

TEXT = (HERE / "by_hand.config").read_text()

EXPECTED = [
    (4, "$checkpoint_script /nonexistent/checkpoint cannot be used: No such file or directory; pbs_mom would ignore the line and continue "
        "without it"),
    (5, "$restart_script /etc/passwd cannot be executed by root, and pbs_mom would not use it"),
    (7, "$bogus is no directive of pbs_mom, which ignores the line"),
    (8, "$remote_checkpoint_dir is no directive of pbs_mom, which ignores the line; perhaps $remote_checkpoint_dirs was meant"),
    (9, "$ is no directive of pbs_mom, which ignores the line"),
    (10, "$usecp /home /home is not of the form HOST:/FROM /TO"),
    (11, "$usecp *:/home is not of the form HOST:/FROM /TO"),
    (13, "loglevel lacks its $"),
    (14, "$tmpdir tmp is not an absolute path without blanks"),
    (15, "$rcpcmd scp -rpB is not an absolute path"),
    (16, "$xauthpath xauth is not an absolute path"),
    (17, "$ideal_load -1 is not a number"),
    (18, "$max_load high is not a number"),
    (19, "$cputmult 0 is not a number above 0"),
    (20, "$wallmult none is not a number above 0"),
    (21, "$prologalarm 0 is not a whole number above 0"),
    (22, "$check_poll_time 0 is not a whole number above 0"),
    (23, "$status_update_time 0 is not a whole number above 0"),
    (24, "$jobstartblocktime soon is not a whole number"),
    (25, "$log_file_roll_depth 0 is not a whole number above 0"),
    (26, "$log_keep_days -1 is not a whole number"),
    (27, "$logevent all is not a number"),
    (28, "$job_oom_score_adjust 5000 is not a number from -1000 to 1000"),
    (29, "$varattr 60 is not seconds and a command"),
    (30, "$node_check_script /nonexistent/check cannot be used: No such file or directory; pbs_mom would ignore the line and continue "
         "without it"),
    (31, "$node_check_on_job_start maybe is not true or false"),
    (32, "$max_physical_memory much is not a size such as 64gb"),
    (33, "$presetup_prologue prologue is not an absolute path"),
    (34, "$job_starter /nonexistent/starter cannot be used: No such file or directory; pbs_mom would ignore the line and continue "
         "without it"),
    (35, "$pbsclient has no value"),
    (39, "$loglevel 6 stands in line 2 already, and pbs_mom takes the last one"),
]


def test_faults_of_a_file_by_hand():
    assert mom_config.faults(TEXT, "6.1.3") == EXPECTED


def test_faults_are_those_that_pbs_mom_logged():
    """Each complaint in the recorded log is a fault; pbs_mom names the line of a value it refuses, and an unknown directive by name."""
    log = (HERE / "by_hand.log").read_text()
    faults = mom_config.faults(TEXT, "6.1.3")
    refused = {int(number) for number in re.findall(r"config\[(\d+)\] special command", log)}
    unknown = ["$%s is no directive" % name for name in re.findall(r"special command name (\w*) not found", log)]
    assert (len(refused), len(unknown)) == (25, 3)
    assert refused - {fault.line for fault in faults} == set()
    assert [name for name in unknown if not any(fault.text.startswith(name) for fault in faults)] == []
    static = re.findall(r"config\[(\d+)\] add name (\w+)", log)
    assert static == [(str(number), name) for number, name, _value in mom_config.entries(TEXT) if not name.startswith("$")]
    beyond = {fault.line for fault in faults} - refused - {7, 8, 9}
    assert beyond == {13, 18, 39}  # pbs_mom takes these for something else, and says nothing


# faults: one by one

@pytest.mark.parametrize("line", [
    "$loglevel 7", "$logevent 0x1ff", "$logevent 511", "$ignmem yes", "$ignmem T", "$ignmem 0", "$ignmem OFF", "$cputmult 0.5",
    "$cputmult .5", "$cputmult 2", "$max_load 0", "$ideal_load 1.5", "$job_oom_score_adjust -1000", "$job_oom_score_adjust 0",
    "$node_check_interval 10", "$node_check_interval 10,jobstart,jobend", "$varattr 60 /bin/x y", "$usecp *.a.b:/home/ /home/",
    "$usecp *:/ /", "$usecp h:/a\t/b", "$max_physical_memory 64GB", "$max_swap_memory 1024", "$job_output_file_umask 022",
    "$job_output_file_umask userdefault", "$rcpcmd /usr/bin/scp -rpB", "$tmpdir /tmp", "$checkpoint_script /hook", "$job_starter /hook",
    "$remote_checkpoint_dirs *", "$remote_checkpoint_dirs /a/,/b/ /c:/d", "$remote_checkpoint_dirs /a,", "$mom_host node1", "size[fs=/x]",
    "gpus 2", "$preexec a b c", "$apbasil_protocol 1.2", "# " + "x" * 116, "$preexec " + "x" * 109, "$preexec " + "\u00fc" * 54,
    "a" * 49 + " 1", "$pbsserver a\n$pbsserver b\n$pbsserver c\n$pbsserver d",
    "\n".join("$remote_checkpoint_dirs /d%d/" % number for number in range(32)),
])
def test_no_faults(line):
    assert mom_config.faults(line, read_status=status_of) == []


NOT_PLAIN = ", which is no plain absolute path of a directory; blank, comma and colon part paths"


@pytest.mark.parametrize("line, text", [
    ("$loglevel -1", "$loglevel -1 is not a whole number"),
    ("$loglevel 7 8", "$loglevel 7 8 is not a whole number"),
    ("$loglevel=7", "$loglevel =7 is not a whole number"),
    ("$ignmem 2", "$ignmem 2 is not true or false"),
    ("$checkpoint_interval 0", "$checkpoint_interval 0 is not a whole number above 0"),
    ("$cputmult 0.0", "$cputmult 0.0 is not a number above 0"),
    ("$cputmult 1e-05", "$cputmult 1e-05 is not a number above 0"),
    ("$job_oom_score_adjust 1001", "$job_oom_score_adjust 1001 is not a number from -1000 to 1000"),
    ("$job_output_file_umask 088", "$job_output_file_umask 088 is not an octal umask or userdefault"),
    ("$node_check_interval often", "$node_check_interval often is not a number, with jobstart or jobend after a comma"),
    ("$mom_host a b", "$mom_host a b is not one name"),
    ("$checkpoint_script hook", "$checkpoint_script hook is not an absolute path without blanks"),
    ("$checkpoint_script /hook arg", "$checkpoint_script /hook arg is not an absolute path without blanks"),
    ("$usecp :/a /a", "$usecp :/a /a is not of the form HOST:/FROM /TO"),
    ("$usecp *:/a /b c", "$usecp *:/a /b c is not of the form HOST:/FROM /TO"),
    ("$usecp *:a /b", "$usecp *:a /b is not of the form HOST:/FROM /TO"),
    ("$usecp *:/a/ /b",
     "$usecp *:/a/ /b has a / at the end of one path only, and pbs_mom replaces one by the other letter by letter"),
    ("$usecp *:/a /b/",
     "$usecp *:/a /b/ has a / at the end of one path only, and pbs_mom replaces one by the other letter by letter"),
    ("$remote_checkpoint_dirs ckpt", "$remote_checkpoint_dirs ckpt names ckpt" + NOT_PLAIN),
    ("$remote_checkpoint_dirs /", "$remote_checkpoint_dirs / names /" + NOT_PLAIN),
    ("$remote_checkpoint_dirs /a/../b", "$remote_checkpoint_dirs /a/../b names /a/../b" + NOT_PLAIN),
    ("$remote_checkpoint_dirs /a//b/", "$remote_checkpoint_dirs /a//b/ names /a//b/" + NOT_PLAIN),
    ("$remote_checkpoint_dirs /a /a/", "$remote_checkpoint_dirs /a /a/ names /a/ again"),
    ("gpus", "gpus has no value"),
    ("usecp *:/a /a", "usecp lacks its $"),
    ("- x", "'- x' is neither a directive nor a resource"),
    ("a" * 50 + " 1", "the name %s... is longer than the 49 characters pbs_mom has room for" % ("a" * 49)),
    ("$" + "a" * 50 + " 1", "the name %s... is longer than the 49 characters pbs_mom has room for" % ("a" * 49)),
    ("$preexec " + "x" * 110, "it has 119 bytes, of which pbs_mom reads 118 and takes the rest for another line"),
    ("$preexec " + "\u00fc" * 55, "it has 119 bytes, of which pbs_mom reads 118 and takes the rest for another line"),
    ("# " + "x" * 117, "it has 119 bytes, of which pbs_mom reads 118 and takes the rest for another line"),
])
def test_fault(line, text):
    assert mom_config.faults("# first\n" + line + "\n", read_status=status_of) == [Fault(2, text)]


def test_directories_named_again_in_another_line():
    assert mom_config.faults("$remote_checkpoint_dirs /a/\n$remote_checkpoint_dirs /b/ /A/\n$remote_checkpoint_dirs /a\n") == [
        Fault(3, "$remote_checkpoint_dirs /a names /a again")]


def test_33_directories():
    text = "# first\n" + "".join("$remote_checkpoint_dirs /d%d/\n" % number for number in range(33))
    assert mom_config.faults(text) == [Fault(2, "$remote_checkpoint_dirs has 33 entries, and pbs_mom has room for 32")]


def test_33_directories_in_few_lines():
    text = "".join("$remote_checkpoint_dirs %s\n" % ",".join("/%d%s" % (line, letter) for letter in "abcdefghijk") for line in range(3))
    assert mom_config.faults(text) == [Fault(1, "$remote_checkpoint_dirs has 33 entries, and pbs_mom has room for 32")]


def test_5_servers():
    assert mom_config.faults("$pbsserver a\n" * 4 + "$pbsserver b\n") == [Fault(1, "$pbsserver has 5 entries, and pbs_mom has room for 4")]


@pytest.mark.parametrize("version, line, text", [
    ("2.5.3", "$job_starter /hook", "$job_starter is not known to TORQUE 2.5.3, which ignores the line; it came with 2.5.12"),
    ("6.1.0", "$get_cray_taskstats 1", "$get_cray_taskstats is not known to TORQUE 6.1.0, which ignores the line; it came with 6.1.2"),
    ("2.5.3", "$kill_delay 2", "$kill_delay is not known to TORQUE 2.5.3, which ignores the line; it went with 2.5.3"),
    ("6.1.3", "$rpp_throttle 2", "$rpp_throttle is not known to TORQUE 6.1.3, which ignores the line; it went with 4.2.0"),
])
def test_directive_of_another_version(version, line, text):
    assert mom_config.faults(line, version, status_of) == [Fault(1, text)]


@pytest.mark.parametrize("version, line", [
    ("2.5.12", "$job_starter /hook"), (None, "$job_starter /hook"), ("2.4.8", "$kill_delay 2"), (None, "$kill_delay 2"),
    ("4.1.7", "$rpp_throttle 2"), ("2.4.8", "$usecp *:/a /a"), ("6.1.3.h5", "$node_check_on_job_end 1")])
def test_directive_of_this_version(version, line):
    assert mom_config.faults(line, version, status_of) == []


def test_directives_of_a_changed_mom():
    assert mom_config.faults("$own x y\n$own\n$other 1\n", allowed=["own"]) == [
        Fault(3, "$other is no directive of pbs_mom, which ignores the line")]


def test_tables_agree():
    assert set(mom_config.DIRECTIVES.values()) == set(mom_config.KINDS)
    for names in (mom_config.SINCE, mom_config.UNTIL, mom_config.REPEATED, mom_config.RELOADED, mom_config.LIMITS):
        assert set(names) - set(mom_config.DIRECTIVES) == set()
    assert not mom_config.RELOADED & mom_config.REPEATED
    assert len(mom_config.DIRECTIVES) == 88


# programs

@pytest.mark.parametrize("name", ["checkpoint_script", "checkpoint_run_exe"])
@pytest.mark.parametrize("status, text", [
    (Status(stat.S_IFREG | 0o755, 0), ""),
    (Status(stat.S_IFREG | 0o644, 0), "cannot be executed by %s, and pbs_mom would not use it"),
    (Status(stat.S_IFDIR | 0o755, 0), "cannot be executed by %s, and pbs_mom would not use it"),
    (Status(stat.S_IFREG | 0o755, 1000), "belongs to user 1000, who could change what root runs; it must be root's"),
    (Status(stat.S_IFREG | 0o775, 0), "has mode 0775: others could change what runs; take their right to write"),
    (Status(stat.S_IFREG | 0o757, 0), "has mode 0757: others could change what runs; take their right to write"),
    (None, ""),
])
def test_program(name, status, text):
    who = "root" if name == "checkpoint_script" else "every user"
    assert mom_config.value_fault(name, "/hook", lambda path: status) == (text % who if "%" in text else text)


@pytest.mark.parametrize("name, mode, text", [
    ("checkpoint_script", 0o700, ""), ("restart_script", 0o500, ""), ("restart_script", 0o055, "root"),
    ("checkpoint_run_exe", 0o700, "every user"), ("checkpoint_run_exe", 0o711, ""), ("job_starter", 0o750, "every user"),
])
def test_who_executes(name, mode, text):
    fault = mom_config.value_fault(name, "/hook", lambda path: Status(stat.S_IFREG | mode, 0))
    assert fault == (text and "cannot be executed by %s, and pbs_mom would not use it" % text)


def test_programs_of_this_machine(tmp_path):
    hook = tmp_path / "hook"
    (tmp_path / "link").symlink_to(hook)
    text = "$checkpoint_script %s/link\n" % tmp_path
    assert mom_config.faults(text)[0].text.startswith("$checkpoint_script %s/link cannot be used: No such file or directory;" % tmp_path)
    hook.write_text("")
    hook.chmod(0o775)
    owner = "belongs to user %d, who could change what root runs; it must be root's" % os.getuid()
    mode = "has mode 0775: others could change what runs; take their right to write"
    assert mom_config.faults(text) == [Fault(1, "$checkpoint_script %s/link %s" % (tmp_path, owner if os.getuid() else mode))]


def test_temporary_directory(tmp_path):
    (tmp_path / "file").write_text("")
    for name, text in (("missing", "cannot be used: No such file or directory; pbs_mom would not start"), ("file", "is no directory")):
        path = tmp_path / name
        assert mom_config.faults("$tmpdir %s" % path) == [Fault(1, "$tmpdir %s %s" % (path, text))]
    assert mom_config.faults("$tmpdir %s" % tmp_path) == []


# traps

@pytest.mark.parametrize("version, traps", [
    (None, ["/a also stands for every path that begins so, such as /a-old; write /a/"]),
    ("2.5.3", ["/a also stands for every path that begins so, such as /a-old; write /a/"]),
    ("2.5.2", []),
])
def test_traps(version, traps):
    assert mom_config.traps("$remote_checkpoint_dirs /a,/b/ *\n", version) == traps


# write

@pytest.mark.root
def test_write_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done, fsync, rename = [], os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda number: done.append(os.fstat(number).st_size) or fsync(number))
    monkeypatch.setattr(os, "rename", lambda old, new: done.append(os.path.basename(new)) or rename(old, new))
    path = tmp_path / "config"
    mom_config.write_config(str(path), "# \udcff\n$loglevel 3\n")
    assert path.read_bytes() == b"# \xff\n$loglevel 3\n"
    status = path.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o644, 0, 0)
    assert done == [status.st_size, "config"]


# changes, restart_needed

def test_changes():
    before = "$loglevel 3\n$usecp *:/a /a\n$usecp *:/b /b\n$remote_checkpoint_dirs /a,/b\n$tmpdir /tmp\ngpus 2\n# x\n"
    after = "$LogLevel  3\n$usecp *:/b /b\n$usecp *:/a /a\n$remote_checkpoint_dirs /a\n$remote_checkpoint_dirs /b\n$ignmem 1\ngpus 3\n"
    assert mom_config.changes(before, after) == ["$ignmem", "$tmpdir", "$usecp", "gpus"]
    assert mom_config.changes(before, before + "\n") == []
    assert mom_config.changes("$preexec a b", "$preexec a,b") == ["$preexec"]


@pytest.mark.parametrize("before, after, needed", [
    ("$loglevel 3", "# other\n$loglevel 3", False),
    ("$loglevel 3", "$loglevel 4", False),
    ("", "$loglevel 4\n$checkpoint_script /x", False),
    ("$loglevel 3", "", True),
    ("$loglevel 3", "$loglevel 4\n$usecp *:/a /a", True),
    ("$remote_checkpoint_dirs /a", "$remote_checkpoint_dirs /b", True),
    ("$pbsserver a", "$pbsserver b", True),
    ("gpus 2", "gpus 3", False),
    ("gpus 2", "", False),
    ("$own 2", "$own 3", True),
])
def test_restart_needed(before, after, needed):
    for version in ("2.4.8", "2.5.13", "4.2.10"):
        assert mom_config.restart_needed(before, after, version) is needed
    for version in ("5.0", "6.1.3", None):
        assert mom_config.restart_needed(before, after, version) is (mom_config.changes(before, after) != [])
