"""What pbs_mom is told when it asks whether this node can checkpoint jobs."""
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from paths import TOP
from waiting import LIMIT

from torque_ckpt import errors
from torque_ckpt.engines import blcr, criu
from torque_ckpt.hooks import health
from torque_ckpt.image import compressors, seal
from torque_ckpt.store import location

DOUBLE = TOP / "tests/unit/helpers/blcr_double.py"
ENGINES = ("criu", "blcr")

pytestmark = pytest.mark.root


class Healthy:
    """A node that can checkpoint jobs; set() changes its configuration."""

    def __init__(self, top, engine, program):
        self.top, self.program = top, program
        self.config, self.store, self.key = (os.path.join(top, name) for name in ("hooks.json", "store", "key"))
        self.marker = os.path.join(self.store, location.MARKER)
        os.mkdir(self.store)
        with open(self.marker, "w") as stream:
            stream.write("main\n")
        with open(self.key, "w") as stream:
            json.dump({"keys": [{"id": "first", "secret": "17" * 32}]}, stream)
        os.chmod(self.key, 0o600)
        self.criu = program("echo 'Version: 9.9'\n")
        self.commands = os.path.join(top, "bin")
        os.mkdir(self.commands)
        for name in ("cr_run", "cr_checkpoint", "cr_restart"):
            with open(os.path.join(self.commands, name), "w") as stream:
                stream.write("#!%s\n" % sys.executable + DOUBLE.read_text())
            os.chmod(os.path.join(self.commands, name), 0o755)
        self.run_directory = os.path.join(top, "run")
        self.set(engine=engine)

    def set(self, **settings):
        values = {"stores": [{"path": self.store, "id": "main"}], "key_path": self.key, "run_directory": self.run_directory,
                  "engine_options": {"path": {"criu": self.criu, "blcr": self.commands}.get(settings.get("engine", "criu"), "/none")}}
        with open(self.config, "w") as stream:
            json.dump(dict(values, **settings), stream)
        os.chmod(self.config, 0o644)


@pytest.fixture
def node(open_directory, program):
    return Healthy(open_directory, "criu", program)


@pytest.fixture
def loaded(open_directory, monkeypatch):
    """BLCR's modules are loaded on this machine."""
    control = os.path.join(open_directory, "ctrl")
    open(control, "w").close()
    monkeypatch.setattr(blcr, "_CONTROL", control)
    return control


@pytest.mark.parametrize("engine", ENGINES)
def test_node_that_can(node, loaded, engine):
    node.set(engine=engine)
    assert health.find_complaint(node.config) == ""
    assert health.find_complaint(node.config) == ""


def test_program_of_the_site_that_is_gone(node):
    node.set(post_program="/nonexistent/post")
    assert health.find_complaint(node.config) == (
        "/nonexistent/post, the checkpoint_hooks_post_program, cannot be run: No such file or directory; install it on this node; nothing "
        "was done")


# The engine

def test_criu_that_is_gone(node):
    os.rename(node.criu, node.criu + ".away")
    assert health.find_complaint(node.config) == "criu is not at %s on this node; run the role criu" % node.criu


def test_criu_that_does_not_start(node):
    node.program("echo 'criu: error while loading shared libraries: libnet.so.9: cannot open shared object file' >&2; exit 127\n")
    assert health.find_complaint(node.config) == (
        "%s --version failed: criu: error while loading shared libraries: libnet.so.9: cannot open shared object file; "
        "run the role criu" % node.criu)


def test_kernel_that_is_too_old_for_criu(node, monkeypatch):
    monkeypatch.setattr(criu, "_read_last_capability", lambda: 39)
    assert health.find_complaint(node.config) == (
        "CRIU cannot run as an ordinary user on this node's kernel %s: it needs 5.9 or newer; boot a newer kernel" % os.uname().release)


def test_memory_that_criu_restores_in_is_refused(node):
    """By a prctl that cannot be taken back (PR_SET_MDWE), so in a process of its own; SELinux's refusal is seen in the scenario selinux."""
    program = ("import ctypes, sys; from torque_ckpt.hooks import health; "
               "print('unknown' if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) else health.find_complaint(sys.argv[1]))")
    complaint = subprocess.check_output([sys.executable, "-c", program, node.config], universal_newlines=True,
                                        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    if complaint == "unknown\n":
        pytest.skip("this kernel has no PR_SET_MDWE (6.3 and newer have)")
    assert complaint == ("SELinux refuses memory that is writable and executable on this node, so that CRIU can restore no job; allow it: "
                         "setsebool -P allow_execmem on, or where the policy has deny_execmem: setsebool -P deny_execmem off\n")


def test_command_of_blcr_that_is_gone(node, loaded):
    node.set(engine="blcr")
    os.unlink(os.path.join(node.commands, "cr_restart"))
    assert health.find_complaint(node.config) == "cr_restart is not in %s on this node; run the role blcr" % node.commands


def test_kernel_without_blcrs_modules(node, loaded):
    """After an upgrade, say."""
    node.set(engine="blcr")
    os.unlink(loaded)
    assert health.find_complaint(node.config) == (
        "BLCR's kernel modules are not loaded on this node (kernel %s; there is no %s); run the role blcr" % (os.uname().release, loaded))


def test_engine_that_these_hooks_do_not_know(node):
    node.set(engine="dmtcp")
    assert health.find_complaint(node.config) == (
        "engine 'dmtcp' is not known to these hooks (known: blcr, criu); set checkpoint_hooks_engine")


# Configuration, code, key

def test_configuration_that_is_gone(node):
    os.unlink(node.config)
    assert health.find_complaint(node.config) == (
        "configuration %s cannot be read (No such file or directory); run the role checkpoint_hooks on this node" % node.config)


def test_key_that_others_can_read(node):
    os.chmod(node.key, 0o644)
    assert health.find_complaint(node.config) == (
        "key file %s must be root's and readable by nobody else; run the role checkpoint_hooks on this node" % node.key)


def test_code_that_others_could_change(node, hook):
    os.chmod(os.path.dirname(node.config), 0o777)
    answer = hook("health", [], node.config)
    assert (answer.code, answer.stdout) == (errors.CONFIG, (
        "ERROR ckpt.torque: %s must be root's and writable by nobody else, or others could change the hooks; run the role checkpoint_hooks "
        "on this node; nothing was done") % os.path.dirname(node.config))


def test_records_that_others_could_change(node):
    os.mkdir(node.run_directory)
    os.chmod(node.run_directory, 0o777)
    assert health.find_complaint(node.config) == (
        "%s must be a directory of root's that nobody else can write to, because the hooks trust the records in it; remove it, the next "
        "hook creates it again; nothing was done" % node.run_directory)


def test_fault_of_the_hooks_own(node, monkeypatch):
    def fault(_path):
        raise ZeroDivisionError("division\nby zero")
    monkeypatch.setattr(seal, "load_keys", fault)
    assert health.find_complaint(node.config) == "unexpected ZeroDivisionError: division by zero"


# The store

def test_store_that_is_not_mounted(node):
    os.unlink(node.marker)
    assert health.find_complaint(node.config) == "store %s is not usable on this node: %s: No such file or directory; is it mounted?" % (
        node.store, node.marker)


def test_every_store_is_looked_at(node):
    shutil.copytree(node.store, node.store + "2")
    node.set(stores=[{"path": node.store, "id": "main"}, {"path": node.store + "2", "id": "second"}])
    assert health.find_complaint(node.config) == ("store %s2 is another one than configured: its id is 'main', expected second; mount the "
                                                  "one that is configured" % node.store)


def hang(node):
    """Nothing answers whoever opens the marker."""
    os.unlink(node.marker)
    os.mkfifo(node.marker)


def slow(what, patience):
    return "looking at %s took longer than %d seconds or was killed; see whether its file system answers" % (what, patience)


def test_store_that_does_not_answer(node):
    hang(node)
    before = time.monotonic()
    assert health.find_complaint(node.config, 1) == slow("store " + node.store, 1)
    assert 1 <= time.monotonic() - before < LIMIT


def test_configuration_that_does_not_answer(node):
    os.unlink(node.config)
    os.mkfifo(node.config)
    assert health.find_complaint(node.config, 1) == slow("the files of the hooks and of the engine", 1)


def test_look_that_cannot_be_ended_holds_up_the_next_one(node):
    """So that there is one process that hangs for good, and not one more every few minutes."""
    assert health.find_complaint(node.config) == ""
    with open(os.path.join(node.run_directory, "health.lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert health.find_complaint(node.config, 1) == slow("store " + node.store, 1)
    assert health.find_complaint(node.config) == ""


# What pbs_mom reads

def test_nothing_is_said_of_a_node_that_can(node, hook):
    assert hook("health", [], node.config) == (0, "", "")


def test_one_line_is_said_of_a_node_that_cannot(node, hook):
    os.unlink(node.criu)
    sentence = "ERROR ckpt.torque: criu is not at %s on this node; run the role criu" % node.criu
    assert hook("health", [], node.config) == (errors.CONFIG, sentence, "")


def test_pbs_mom_need_not_wait_for_what_hangs(node, hook):
    """It reads until nobody has its pipe any more."""
    hang(node)
    before = time.monotonic()
    assert hook("health", [], node.config).stdout == "ERROR ckpt.torque: " + slow("store " + node.store, health.PATIENCE)
    assert time.monotonic() - before < LIMIT - 5


def test_program_that_compresses_is_not_there(node, monkeypatch):
    monkeypatch.setattr(compressors, "DIRECTORIES", ("/nonexistent", "/also"))
    node.set(compression="auto")
    assert health.find_complaint(node.config) == ""
    node.set(compression="lz4")
    assert health.find_complaint(node.config) == (
        "lz4, by which checkpoint_hooks_compression has images compressed, is not in /nonexistent or /also on this node; run the role "
        "checkpoint_hooks on it")


def test_memory_that_killed_hooks_left_is_removed(node, free_pid):
    """No hook may come for long, and it is decompressed memory of jobs."""
    left = os.path.join(node.top, "state", "private", "%d.7" % free_pid)
    os.makedirs(left, 0o700)
    os.chmod(os.path.dirname(left), 0o700)
    open(os.path.join(left, "pages-1.img"), "w").close()
    node.set(state_directory=os.path.join(node.top, "state"))
    assert health.find_complaint(node.config) == ""
    assert os.listdir(os.path.dirname(left)) == []
