"""$node_check_script: whether this node can checkpoint jobs, in one line for pbs_mom, which asks at its start and every few minutes.

A line that begins with ERROR marks the node down and is its message, until a later call prints nothing. pbs_mom does nothing
else meanwhile, so a child does the checks, and is given up when a file system does not answer it.
"""
import fcntl
import os
import select
import signal
import sys
import time

from .. import config
from ..engines import registry
from ..errors import HookError, CONFIG
from ..image import compressors, seal
from ..store import location
from ..system import environment, private_dir, rootfiles

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable

PATIENCE = 10
"""How long the child may take (seconds)."""

_DONE = "."


def _check_node(config_path: str, report_step: "Callable[[str], None]") -> None:
    """Check that the hooks can do their work here; report_step is called with what is checked next."""
    environment.check_code(config_path)
    settings = config.load_settings(config_path)
    environment.check_programs(settings, config.PROGRAMS)
    seal.load_keys(settings["key_path"])
    engine = registry.load_engine(settings)
    engine.read_version()
    engine.check_node()
    compressors.choose_program(settings["compression"])
    rootfiles.create_directory(settings["run_directory"])
    private_dir.remove_abandoned(settings["private_directory"] or settings["state_directory"])  # no hook may come for long
    # Not even SIGKILL ends a process that hangs in a file system: it keeps the lock, and later ones, which wait for it, can be ended.
    lock = os.open(os.path.join(settings["run_directory"], "health.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    for store in settings["stores"]:
        report_step("store " + store["path"])
        fcntl.flock(lock, fcntl.LOCK_EX)
        location.check_mounted(store)


def _report_check(config_path: str, writer: int) -> None:
    """As the child: write what is checked, one a line, and at last _DONE and the sentence, if there is one."""
    def report_step(step: str) -> None:
        os.write(writer, (step + "\n").encode("utf-8", "backslashreplace"))
    try:
        _check_node(config_path, report_step)
        sentence = ""
    except HookError as error:
        sentence = error.sentence
    except Exception as error:  # pylint: disable=broad-except
        sentence = "unexpected %s: %s" % (type(error).__name__, error)
    report_step(_DONE + " ".join(sentence.split()))


def find_complaint(config_path: str, patience: int = PATIENCE) -> str:
    """Return why this node cannot checkpoint jobs, empty when it can.

    :param config_path: the hooks' configuration
    :param patience: how long the checks may take (seconds)
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):  # pbs_mom waits for whoever has its pipe
                os.dup2(null, descriptor)
            _report_check(config_path, writer)
        finally:
            os._exit(0)
    os.close(writer)
    report, deadline, more = b"the files of the hooks and of the engine\n", time.monotonic() + patience, True
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while more and select.select([stream], [], [], max(0, deadline - time.monotonic()))[0]:
            chunk = stream.read(65536)
            report, more = report + chunk, bool(chunk)
    if more:
        os.kill(pid, signal.SIGKILL)
    else:
        os.waitpid(pid, 0)
    step = report.decode("utf-8").splitlines()[-1]
    if step.startswith(_DONE):
        return step[len(_DONE):]
    return "looking at %s took longer than %d seconds or was killed; see whether its file system answers" % (step, patience)


def main(_argv: "list[str]", config_path: str) -> int:
    """Print "ERROR ckpt.torque: " and why this node cannot checkpoint jobs, or nothing; return the exit code."""
    environment.isolate_hook()
    complaint = find_complaint(config_path)
    if complaint:
        # TORQUE 2.x would show the end of the line in the middle of the node's attributes.
        sys.stdout.write("ERROR ckpt.torque: " + complaint + ("\n" if os.isatty(1) else ""))
        sys.stdout.flush()
    return CONFIG if complaint else 0
