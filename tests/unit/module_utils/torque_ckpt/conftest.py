"""What the hooks' unit tests share. Processes, directories and signals are real."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import namedtuple

import pytest
from paths import MODULE_UTILS, ACTION_SCRIPT
from torque_ckpt.image import manifest, seal
from torque_ckpt.job import supervisor
from torque_ckpt.store import location
from torque_ckpt.store.draft import Draft
from torque_ckpt.system import privilege, processes, progress
from torque_ckpt.torque import contract
from waiting import LIMIT, wait_until

Ended = namedtuple("Ended", "status result stderr")
"""A child that ended: its wait status (int), what its work returned, what it wrote to stderr (str)."""

Answer = namedtuple("Answer", "code stdout stderr")
"""A hook that ended: its exit code (negative for a signal), and what it wrote (str)."""

Job = namedtuple("Job", "leader pids")
"""A job on this machine: its session leader (pid) and the leader's children (list of pid)."""


def _reap(pid):
    deadline = time.time() + LIMIT
    while time.time() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("process %d did not end within %d seconds" % (pid, LIMIT))


@pytest.fixture(name="wait_until")
def _wait_until():
    return wait_until


@pytest.fixture
def in_child():
    """Return a function that runs work() in a forked session leader and returns how it Ended."""
    def run(work):
        with tempfile.TemporaryFile("w+") as results, tempfile.TemporaryFile("w+") as errors:
            pid = os.fork()
            if pid == 0:
                try:
                    os.setsid()
                    os.dup2(errors.fileno(), 2)
                    sys.stderr = os.fdopen(2, "w")
                    json.dump(work(), results)
                    results.flush()
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    sys.stderr.flush()
                finally:
                    os._exit(99)
            try:
                status = _reap(pid)
            finally:
                try:
                    os.killpg(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            results.seek(0)
            errors.seek(0)
            text, words = results.read(), errors.read()
            assert status != 99 << 8, words
            return Ended(status, json.loads(text) if text else None, words)
    return run


@pytest.fixture
def keep():
    """Return a function that runs work() in a forked child, which then stays; returns its pid. The children end with the test."""
    started = []

    def start(work):
        ready, ready_in = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(ready)
                opened = work()  # noqa: F841 what it returns stays open
                os.write(ready_in, b"x")
                os.close(ready_in)
                signal.pause()
            finally:
                os._exit(0)
        os.close(ready_in)
        started.append(pid)
        assert os.read(ready, 1) == b"x"
        os.close(ready)
        return pid

    yield start
    for pid in started:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.fixture
def free_pid():
    """A process id (int) that nothing has."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


@pytest.fixture
def open_directory():
    """A directory (str) that every user can reach, unlike tmp_path."""
    path = tempfile.mkdtemp(prefix="ckpt-torque-unit-")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def somebody():
    """An account (User) that the tests can become: nobody, or who runs them when that is not root."""
    if os.geteuid() == 0:
        return privilege.find_user("nobody")
    return privilege.User("somebody", os.geteuid(), os.getegid(), "/")


def _lead(job_id, programs, user, output, ready, life):
    """Be a session leader with the programs (copies of the shell) as children, as the run hook starts them."""
    os.setsid()
    os.environ.pop("PBS_JOBID", None)
    if job_id is not None:
        os.environ["PBS_JOBID"] = job_id
    if user is not None:
        privilege.become_user(user)
    if output is not None:
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 1)
        os.write(1, b"line 1\n")
    supervisor.block_signals()
    for number, program in enumerate(programs):
        if os.fork() == 0:
            os.setpgid(0, 0)
            privilege.reset_signals()
            os.dup2(life, 0)
            os.dup2(ready, 1)
            os.execv(program, ["sh", "-c", 'echo "$0 $$"; read line', str(number)])
    os.close(ready)
    os.read(life, 1)


@pytest.fixture
def start_job():
    """Return a function that starts a Job; its processes end with the test."""
    started, descriptors = [], []

    def start(job_id="12.head", programs=("/bin/sh",), user=None, output=None):
        ready, ready_in = os.pipe()
        life, life_in = os.pipe()
        leader = os.fork()
        if leader == 0:
            try:
                os.close(life_in)
                _lead(job_id, programs, user, output, ready_in, life)
            finally:
                os._exit(1)
        os.close(ready_in)
        os.close(life)
        descriptors.append(life_in)
        with os.fdopen(ready) as stream:
            lines = [stream.readline().split() for _program in programs]
        pids = [int(pid) for _number, pid in sorted(lines)]
        started.append(Job(leader, pids))
        wait_until(lambda: all(processes.read_process(pid).state == "S" for pid in pids))
        return started[-1]

    yield start
    for job in started:
        for pid in job.pids + [job.leader]:  # the leader reaps none of them, so no number is another process's by now
            os.kill(pid, signal.SIGKILL)
        os.waitpid(job.leader, 0)
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.fixture(scope="session")
def installed():
    """The hooks' code in a directory (str) of its own, as it is installed: the hooks refuse code that is another user's."""
    path = tempfile.mkdtemp(prefix="ckpt-torque-code-")
    os.chmod(path, 0o755)
    shutil.copytree(os.path.join(str(MODULE_UTILS), "torque_ckpt"), os.path.join(path, "torque_ckpt"))
    shutil.copy(str(ACTION_SCRIPT), path)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def hook(installed):
    """Return a function that calls a hook as a program, with pbs_mom's environment, and returns its Answer."""
    def call(name, arguments, config="/nonexistent/hooks.json", leader=True, variables=(), before="pass", **options):
        environment = dict({"PATH": "/bin:/usr/bin"}, **dict(variables))
        if "LD_LIBRARY_PATH" in os.environ:  # some interpreters need it
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        code = "import os, sys; sys.path.insert(0, %r); %s; from torque_ckpt.hooks.%s import main; " \
               "code = main([%r] + sys.argv[1:], %r); sys.stdout.flush(); os._exit(code)"
        code %= (installed, before, name, os.path.join(installed, name), config)
        process = subprocess.Popen([sys.executable, "-IS", "-c", code] + arguments,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   universal_newlines=True, start_new_session=leader, env=environment, **options)
        try:
            stdout, stderr = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
        return Answer(process.returncode, stdout, stderr)
    return call


@pytest.fixture
def program(open_directory):
    """Return a function that writes an executable shell script and returns its path (str)."""
    def write(text, name="criu"):
        path = os.path.join(open_directory, name)
        with open(path, "w") as stream:
            stream.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path
    return write


class Site:
    """A node with a store, a configuration and an account, for hooks that are called by root.

    config     str: path of the configuration
    store      str: path of the store
    directory  str: where the images of job 12.head live; the user's own
    key        str: path of the file with the key
    """

    def __init__(self, path, user):
        self.user = user
        self.config = os.path.join(path, "hooks.json")
        self.store = os.path.join(path, "store")
        self.directory = os.path.join(self.store, "12.head.CK")
        self.run_directory = os.path.join(path, "run")
        self.state_directory = os.path.join(path, "state")
        os.mkdir(self.state_directory)
        self.criu = os.path.join(path, "criu")
        os.makedirs(self.directory)
        os.chmod(self.store, 0o755)
        os.chown(self.directory, user.uid, user.gid)
        with open(os.path.join(self.store, location.MARKER), "w") as stream:
            stream.write("main\n")
        self.key = os.path.join(path, "manifest.key")
        with open(self.key, "w") as stream:
            json.dump({"keys": [{"id": "first", "secret": "17" * 32}]}, stream)
        os.chmod(self.key, 0o600)
        self.configure()

    def configure(self, **settings):
        """Write the configuration."""
        values = {"stores": [{"path": self.store, "id": "main"}], "engine_options": {"path": self.criu}, "engine_timeout": LIMIT,
                  "run_directory": self.run_directory, "key_path": self.key, "restart_backoff": 0, "reserve": 0,
                  "state_directory": self.state_directory}
        with open(self.config, "w") as stream:
            json.dump(dict(values, **settings), stream)
        os.chmod(self.config, 0o644)

    def arguments(self, session="-", name="ckpt.12.head.2", user=None, directory=None):
        """Return what pbs_mom passes to restart (list of str)."""
        return [session, "12.head", user or self.user.name, "-", directory or self.directory, name]

    def publish(self, name, root, pids, engine="criu", output=None, generation=1, incarnation="", held=False):
        """Make an image as the checkpoint hook does it; its one file is pages.img, and stdout with output's (path, bytes)."""
        call = contract.parse_restart(self.arguments(name=name))

        def work():
            directory = location.open_job_directory({"path": self.store, "id": "main"}, self.directory)
            draft = Draft(directory, name)
            os.write(os.open("pages.img", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=draft.descriptor), b"memory")
            saved = []
            if output is not None:
                os.write(os.open("stdout", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=draft.descriptor), output[1])
                saved = [{"name": "stdout", "path": output[0], "mode": 0o600}]
            facts = {"engine": {"name": engine, "version": "1"}, "root": root, "pids": pids, "frozen_seconds": 0.5, "spool": saved,
                     "generation": generation, "incarnation": incarnation, "held": held}
            manifest.write_manifest(draft.descriptor, call, self.user, facts, seal.ask_to_seal)
            draft.publish()
        privilege.as_user(self.user, work, answer=seal.build_answer(seal.load_keys(self.key), call, self.user))

    def content(self):
        """Return all that is in the job's directory: paths and bytes (dict); what a hook takes away or renames meanwhile may be missing."""
        contents = {}
        for parent, directories, files in os.walk(self.directory):
            for name in directories:
                contents[os.path.relpath(os.path.join(parent, name), self.directory)] = None
            for name in files:
                with contextlib.suppress(FileNotFoundError), open(os.path.join(parent, name), "rb") as stream:
                    contents[os.path.relpath(os.path.join(parent, name), self.directory)] = stream.read()
        return contents


@pytest.fixture
def mom(open_directory):
    """The home (str) of a pbs_mom: mom_priv, where it starts the root hooks, and spool beside it."""
    home = os.path.join(os.path.realpath(open_directory), "mom")
    os.makedirs(os.path.join(home, "mom_priv"))
    os.mkdir(os.path.join(home, "spool"))
    os.chmod(os.path.join(home, "spool"), 0o1777)
    return home


@pytest.fixture
def site(open_directory, program):
    """A Site whose criu fails; for root with the capabilities that CRIU is given."""
    wanted = (1 << privilege.CAP_SYS_PTRACE) | (1 << privilege.CAP_CHECKPOINT_RESTORE) | (1 << privilege.CAP_SETPCAP)
    with open("/proc/self/status") as stream:
        mine = next(int(line.split()[1], 16) for line in stream if line.startswith("CapEff:"))
    if mine & wanted != wanted:
        pytest.skip("needs root with CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE and CAP_SETPCAP")
    program('echo "(00.000100) Error (criu/cr.c:7): it would not" >&2\nexit 1\n')
    return Site(open_directory, privilege.find_user("nobody"))


@pytest.fixture
def state_of():
    """Return a function that tells a process's state (str) by its pid: "S" also of one that is seen as it runs or waits for a disk."""
    def tell(pid):
        state = processes.read_process(pid).state
        return "S" if state in "RD" else state

    return tell


@pytest.fixture
def hurried(monkeypatch):
    """What does not get on is given up soon."""
    monkeypatch.setattr(progress, "PAUSE", 0.05)
    monkeypatch.setattr(progress, "STOPPED", 0.3)
