import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest

from torque_ckpt import errors
from torque_ckpt.system import environment
from torque_ckpt.torque import contract

PROGRAMS = ["run", "checkpoint", "restart", "copy", "health", "torque-ckpt", "action-script"]
"""What is installed beside the package."""
ARGUMENTS = ["4711", "12.head", "nobody", "-", "/shared/ckpt/12.head.CK", "ckpt.12.head.1"]


# Whose code it is

@pytest.fixture
def code(open_directory, installed):
    """An installation (str) of its own, with its configuration in etc."""
    path = os.path.join(open_directory, "deep", "ckpt-torque")
    shutil.copytree(installed, path)
    for name in PROGRAMS:
        open(os.path.join(path, name), "a").close()
    os.mkdir(os.path.join(open_directory, "deep", "etc"))
    with open(os.path.join(open_directory, "deep", "etc", "hooks.json"), "w") as stream:
        json.dump({"stores": [{"path": "/nonexistent", "id": "x"}], "restart_backoff": 0, "run_directory": open_directory + "/run"}, stream)
    return path


def ask(code, name="checkpoint", arguments=None):
    """Call a hook of this installation; return its exit code and what it said."""
    config = os.path.join(os.path.dirname(code), "etc", "hooks.json")
    script = "import sys; sys.path.insert(0, %r); from torque_ckpt.hooks.%s import main; sys.exit(main(sys.argv, %r))"
    script %= (code, name, config)
    variables = {"PATH": "/bin:/usr/bin"}
    if "LD_LIBRARY_PATH" in os.environ:
        variables["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    done = subprocess.run([sys.executable, "-IS", "-c", script] + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, env=variables, check=False, start_new_session=True)
    return done.returncode, done.stderr


def refusal(path, end=""):
    return (errors.CONFIG, "%s must be root's and writable by nobody else, or others could change the hooks; run the role checkpoint_hooks "
            "on this node; nothing was done%s\n" % (path, end))


@pytest.mark.root
@pytest.mark.parametrize("path", ["", "/torque_ckpt", "/torque_ckpt/engines", "/torque_ckpt/engines/criu.py", "/torque_ckpt/telemetry",
                                  "/torque_ckpt/telemetry/report.py", "/../etc", "/.."] + ["/" + name for name in PROGRAMS])
@pytest.mark.parametrize("spoil", [lambda path: os.chmod(path, 0o775), lambda path: os.chmod(path, 0o757),
                                   lambda path: os.chown(path, 65534, -1)])
def test_code_that_others_could_change(code, path, spoil):
    spoil(code + path)
    assert ask(code, "checkpoint", ARGUMENTS + ["15", "-"]) == refusal(os.path.normpath(code + path))


@pytest.mark.root
@pytest.mark.parametrize("name, arguments, end", [("restart", ARGUMENTS, " (attempt 1 of 5)"), ("run", ["/bin/true"], "")])
def test_every_hook_looks(code, name, arguments, end):
    os.chmod(code + "/torque_ckpt", 0o777)
    assert ask(code, name, arguments) == refusal(code + "/torque_ckpt", end)


@pytest.mark.root
@pytest.mark.parametrize("path, safe", [("", False), ("/torque_ckpt", False), ("/..", True)])
def test_sticky_directory_is_safe_above_the_code_only(code, path, safe):
    os.chmod(code + path, 0o1777)
    answer = ask(code, "run", ["/bin/true"])
    assert (answer == refusal(os.path.normpath(code + path))) != safe


@pytest.mark.root
def test_link_to_code_in_a_users_directory(code, open_directory):
    theirs = os.path.join(open_directory, "home")
    os.mkdir(theirs)
    os.rename(code, os.path.join(theirs, "ckpt-torque"))
    os.symlink(os.path.join(theirs, "ckpt-torque"), code)
    os.chown(theirs, 65534, -1)
    assert ask(code, "run", ["/bin/true"]) == refusal(theirs)


def test_ones_own_code_is_safe(code):
    assert ask(code, "run", ["/bin/true"]) == (0, "")


# Whose programs the hooks run as jobs' owners

WRONG = ("must be root's and writable by nobody else, because the checkpoint_hooks_pre_program runs as the owner of each job; correct it "
         "with chown root and chmod go-w; nothing was done")


def check(path):
    try:
        environment.check_programs({"pre_program": path, "post_program": ""}, ["pre_program", "post_program"])
    except errors.HookError as error:
        assert error.code == errors.CONFIG
        return error.sentence
    return ""


def test_programs_that_only_root_can_change(program):
    assert check("") == check("/bin/sh") == check(program("exit 0", "pre")) == ""


@pytest.mark.root
@pytest.mark.parametrize("name", ["", "pre"])
@pytest.mark.parametrize("spoil", [lambda path: os.chmod(path, 0o775), lambda path: os.chmod(path, 0o757),
                                   lambda path: os.chown(path, 65534, -1)])
def test_program_that_others_could_change(program, open_directory, name, spoil):
    path = program("exit 0", "pre")
    wrong = os.path.join(open_directory, name).rstrip("/")
    spoil(wrong)
    assert check(path) == "%s %s" % (wrong, WRONG)


@pytest.mark.root
def test_link_to_a_program_in_a_users_directory(program, open_directory):
    theirs = os.path.join(open_directory, "home")
    os.mkdir(theirs)
    os.rename(program("exit 0", "pre"), theirs + "/pre")
    os.symlink(theirs + "/pre", open_directory + "/pre")
    os.chown(theirs, 65534, -1)
    assert check(open_directory + "/pre") == "%s %s" % (theirs, WRONG)


def test_program_that_is_none(open_directory):
    path = os.path.join(open_directory, "pre")
    assert check(path) == ("%s, the checkpoint_hooks_pre_program, cannot be run: No such file or directory; install it on this node; "
                           "nothing was done" % path)
    open(path, "w").close()
    os.chmod(path, 0o644)
    sentence = "%s, the checkpoint_hooks_pre_program, is not an executable file; correct it with chmod 755; nothing was done"
    assert check(path) == sentence % path
    assert check(open_directory) == sentence % open_directory


# What a hook leaves behind

def test_descriptors():
    pid = os.fork()
    if pid == 0:  # not in_child, which hands its result over in a file
        try:
            os.close(1)
            for target in (3, 10, 15, 17, 40):
                os.dup2(0, target)
            environment.close_descriptors()
            descriptors = [name for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)]
            os._exit(0 if (descriptors, os.readlink("/proc/self/fd/1")) == (["0", "1", "2"], os.devnull) else 3)
        finally:
            os._exit(4)
    assert os.waitpid(pid, 0)[1] == 0


def insist_on_core_limit(hard):
    """Skip the test where this root may not have such a hard limit."""
    now = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if now != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or hard > now):
        with open("/proc/self/status") as stream:
            rights = next(int(line.split()[1], 16) for line in stream if line.startswith("CapEff:"))
        if not rights >> 24 & 1:
            pytest.skip("the limit of core dumps is %d here, and may not be raised (CAP_SYS_RESOURCE is missing)" % now)


@pytest.mark.parametrize("hard, soft", [(resource.RLIM_INFINITY, 1), (4096, 1), (0, 0)])
def test_core_dumps(in_child, hard, soft):
    insist_on_core_limit(hard)

    def work():
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        environment.disable_core_dumps()
        return list(resource.getrlimit(resource.RLIMIT_CORE))
    assert in_child(work).result == [soft, hard]


def test_no_core_is_left(in_child, tmp_path):
    with open("/proc/sys/kernel/core_pattern") as stream:
        if stream.read().strip() != "core":
            pytest.skip("core dumps go elsewhere on this machine")
    insist_on_core_limit(resource.RLIM_INFINITY)

    def crash(settled):
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        os.chdir(str(tmp_path))
        if settled:
            environment.disable_core_dumps()
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # ignored in what a shell starts in the background
        os.kill(os.getpid(), signal.SIGQUIT)
    assert os.WCOREDUMP(in_child(lambda: crash(False)).status)
    assert not os.WCOREDUMP(in_child(lambda: crash(True)).status)


def test_environment_and_umask(in_child):
    def work():
        os.environ.update({"LD_PRELOAD": "x", "PBS_SERVER": "y", contract.STATUS: "/status", contract.COMMENT: "/comment"})
        environment.close_descriptors = lambda: None  # the result goes through one
        environment.isolate_hook(contract.STATUS, contract.COMMENT)
        return dict(os.environ), os.umask(0)
    assert in_child(work).result == [dict(environment.ENVIRONMENT, PBS_RESTART_STATUS="/status", PBS_RESTART_COMMENT="/comment"), 0o077]
