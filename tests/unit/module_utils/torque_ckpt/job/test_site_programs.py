import os
import time

import pytest
from torque_ckpt import config, errors
from torque_ckpt.errors import HookError
from torque_ckpt.job import site_programs
from torque_ckpt.system import processes

END = "; the job keeps running; try again, or ask the administrator about checkpoint_hooks_pre_program"


@pytest.fixture
def run(somebody, program):
    """Return a function that runs a shell script as the site's program before a checkpoint, and returns its path."""
    def start(text, seconds=20):
        path = program(text, "pre")
        settings = dict(config.DEFAULTS, pre_program=path, program_seconds=seconds)
        site_programs.SitePrograms(settings, somebody, "12.head").run(site_programs.PRE, "hold", "ckpt.12.head.1", "the job keeps running")
        return path
    return start


@pytest.fixture
def note(open_directory):
    """A file (str) that everybody may write."""
    path = os.path.join(open_directory, "note")
    open(path, "w").close()
    os.chmod(path, 0o666)
    return path


def read(path):
    with open(path) as stream:
        return stream.read()


def refusal(run, *arguments):
    with pytest.raises(HookError) as caught:
        run(*arguments)
    assert caught.value.code == errors.TEMPORARY
    return caught.value.sentence


def test_program_that_is_not_set(somebody):
    programs = site_programs.SitePrograms(config.DEFAULTS, somebody, "12.head")
    assert (programs.has(site_programs.PRE), programs.get_patience(site_programs.PRE)) == (False, 0)


def test_what_a_program_gets(run, note, somebody):
    left = "_|PWD|OLDPWD|SHLVL|LINES|COLUMNS"  # the shell's, and the terminal's, which Python's readline sets
    run("exec > %s; env | grep -vE '^(%s)=' | sort; id -u; pwd; umask; ls /proc/self/fd; grep CapEff /proc/self/status"
        % (note, left))
    assert read(note).splitlines() == [
        "CKPT_EVENT=hold", "CKPT_NAME=ckpt.12.head.1", "HOME=" + somebody.home, "LC_ALL=C", "LOGNAME=" + somebody.name,
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "PBS_JOBID=12.head", "USER=" + somebody.name, str(somebody.uid), "/", "0077",
        "0", "1", "2", "3", "CapEff:\t0000000000000000"]


def test_program_leads_a_session_and_a_group(run, note):
    run("set -- $(cut -d ' ' -f 5,6 /proc/$$/stat); echo $1 $2 $$ > " + note)
    group, session, pid = map(int, read(note).split())
    assert group == session == pid


@pytest.mark.parametrize("text, how", [
    ("exit 3", "ended with status 3"),
    ("echo out; echo first >&2; echo no licence >&2; echo >&2; exit 1", "ended with status 1 (no licence)"),
    ("printf '\\033[2J' >&2; exit 1", "ended with status 1 (\\x1b[2J)"),
    ("kill -TERM $$", "was ended by signal 15"),
    ("exit 127", "ended with status 127"),
])
def test_program_that_fails(run, open_directory, text, how):
    assert refusal(run, text) == "%s/pre %s%s" % (open_directory, how, END)


@pytest.mark.parametrize("text", ["sleep 47113", "trap '' TERM; setsid sleep 47113 & sleep 47113"])
def test_program_that_is_too_slow_is_killed_with_what_it_has_started(run, open_directory, note, wait_until, text):
    started = time.monotonic()
    sentence = "%s/pre took longer than 1 seconds and was killed%s" % (open_directory, END)
    assert refusal(run, "echo $$ > %s; %s" % (note, text), 1) == sentence
    assert time.monotonic() - started < 10
    assert wait_until(lambda: not [pid for pid in processes.list_pids() if b"47113" in processes.read_arguments(pid)])


def test_what_a_program_leaves_running_ends_with_it(run, note, wait_until):
    run("setsid sleep 60 > /dev/null 2>&1 & echo $! > %s" % note)
    assert wait_until(lambda: processes.read_process(int(read(note))) is None)


def test_program_that_cannot_be_started(somebody, open_directory):
    path = os.path.join(open_directory, "pre")
    with open(path, "w") as stream:
        stream.write("#!/nonexistent/sh\n")
    os.chmod(path, 0o755)
    programs = site_programs.SitePrograms(dict(config.DEFAULTS, pre_program=path), somebody, "12.head")
    with pytest.raises(HookError) as caught:
        programs.run(site_programs.PRE, "hold", "ckpt.12.head.1", "the job keeps running")
    assert (caught.value.code, caught.value.sentence) == (errors.TEMPORARY, "cannot start %s: No such file or directory%s" % (path, END))
