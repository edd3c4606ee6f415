"""The proof of level L1: the engine freezes and revives a small tree of an ordinary user on this node."""
import os
import shutil
import signal
import sys
import tempfile

from ..engines import registry
from ..errors import ENGINE, TEMPORARY, HookError
from ..system import privilege, processes
from ..system.textfile import read_text
from ..system.waiting import wait_until
from . import roundtrip, workload

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any

_ATTEMPTS = 3


def reap_children() -> bool:
    """Collect every child that has ended; killed ones would keep their process ids. Returns True."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    return True


class NoDirectory(Exception):
    """There is no directory for the image; the text says why and what to do."""


class EngineRoundTrip:
    """One round trip; its results are in .facts."""

    def __init__(self, settings: dict, user: privilege.User, directory: str, timeout: int) -> None:
        self.engine = registry.load_engine(settings)
        self.user = user
        self.image = os.path.join(directory, "image")
        self.output = os.path.join(directory, "output")
        self.stop_file = os.path.join(directory, "stop")
        self.program = os.path.join(directory, "program.py")
        self.timeout = timeout
        self.phases = roundtrip.Phases()
        self.facts: "dict[str, Any]" = {"phases": self.phases.done}
        self.root = 0  # the pid; 0 before start()

    def start(self) -> None:
        """Start the tree as the user and wait until it works."""
        with open(self.program, "w") as stream:
            stream.write(workload.PROGRAM)
        os.chmod(self.program, 0o644)
        os.mkdir(self.image)
        descriptors = [os.open(os.devnull, os.O_RDONLY), os.open(self.output, os.O_CREAT | os.O_WRONLY, 0o600)]
        for path in (self.image, self.output):
            os.chown(path, self.user.uid, self.user.gid)
        command = self.engine.build_command([sys.executable, self.program, self.stop_file, "0.002", str(workload.STATUS)])
        self.root = roundtrip.start_process(command[0], command[1:], {"PATH": "/bin:/usr/bin"}, "/",
                                            [descriptors[0], descriptors[1], descriptors[1]], self.user)
        for descriptor in descriptors:
            os.close(descriptor)
        self._await_progress(5, "before the dump", "see whether %s can run %s on this node" % (self.user.name, sys.executable))

    def dump(self) -> None:
        """Freeze the tree into the image, then kill it."""
        tree = processes.list_tree(self.root)
        privilege.as_user(self.user, lambda: self.engine.dump(self.root, self.image, stop=True), self.engine.dump_capabilities)
        self.facts["counter_before"] = roundtrip.read_evidence(self.output).counter
        self.facts["image_bytes"] = roundtrip.measure_image(self.image)
        for pid in reversed(tree):
            os.kill(pid, signal.SIGKILL)
        if not wait_until(lambda: reap_children() and not [pid for pid in tree if processes.read_process(pid)], self.timeout):
            raise roundtrip.RoundTripError("killed processes did not go away within %d seconds; see what they wait for (state D of ps)"
                                           % self.timeout)

    def restore(self) -> None:
        """Restore the tree and wait until it works again."""
        privilege.as_user(self.user, lambda: self.engine.restore(self.image), self.engine.restore_capabilities)
        self._await_progress(self.facts["counter_before"] + 5, "after the restore", "check the kernel, SELinux and the engine's version")

    def finish(self) -> None:
        """Let the tree end by itself and check its output."""
        open(self.stop_file, "w").close()
        statuses: "list[int]" = []

        def has_ended() -> bool:
            pid, status = os.waitpid(self.root, os.WNOHANG)
            if pid:
                statuses.append(roundtrip.get_exit_status(status))
            return bool(pid)

        if not wait_until(has_ended, self.timeout):
            raise roundtrip.RoundTripError("the restored tree did not end within %d seconds" % self.timeout)
        evidence = roundtrip.read_evidence(self.output)
        self.facts.update(exit_status=statuses[0], counter_after=evidence.counter)
        roundtrip.check_evidence(evidence, statuses[0], "the tree")

    def kill_tree(self) -> None:
        """Leave no process behind."""
        for process in self.list_processes():
            if process.uid == self.user.uid and process.state not in "ZX":
                os.kill(process.pid, signal.SIGKILL)

    def list_processes(self) -> "list[processes.Process]":
        """Return the processes of the tree."""
        return [process for process in map(processes.read_process, processes.list_tree(self.root) if self.root else []) if process]

    def _await_progress(self, counter: int, when: str, advice: str) -> None:
        if not wait_until(lambda: roundtrip.read_evidence(self.output).counter >= counter, self.timeout):
            raise roundtrip.RoundTripError("the tree made no progress %s: its output is %s; %s; %s" % (
                when, ascii(read_text(self.output)[-200:]) if read_text(self.output) else "empty",
                roundtrip.describe_processes(self.list_processes()), advice))


def try_round_trip(trip: EngineRoundTrip) -> "tuple[str, bool]":
    """Do the round trip; return its cause of failure, empty when it passed, and whether another one may pass."""
    try:
        trip.facts["engine"] = {"name": trip.engine.name, "version": trip.engine.read_version()}
        for step in ("start", "dump", "restore", "finish"):
            trip.phases.measure(step, getattr(trip, step))
        return "", False
    except HookError as error:
        # What to do about an engine that failed with a job is this very round trip.
        return error.reason if error.code == ENGINE else error.sentence, error.code == TEMPORARY
    except (roundtrip.RoundTripError, OSError) as error:
        return str(error), False
    finally:
        trip.kill_tree()


def run_round_trip(settings: dict, user: str, directory: str, timeout: int) -> dict:
    """Do a round trip, as root; return its result, from roundtrip.build_result, with engine, counters, size, exit status, phases.

    One that fails for a passing reason, as when another process of the node has taken a process id meanwhile, is done again, twice at most.

    :param settings: the engine's settings, as from config.load_settings
    :param user: the ordinary user's name
    :param directory: where a temporary directory for the image is created
    :param timeout: how long each step may take (seconds)
    :raises NoDirectory: when that cannot be created
    """
    privilege.become_subreaper()  # the restored tree becomes ours
    for _attempt in range(_ATTEMPTS):
        result, is_temporary = _run_once(settings, user, directory, timeout)
        if not is_temporary:
            break
    return result


def _run_once(settings: dict, user: str, directory: str, timeout: int) -> "tuple[dict, bool]":
    """Return the result of one round trip, and whether another one may pass."""
    facts: "dict[str, Any]" = {"phases": []}
    is_temporary = False
    try:
        path = tempfile.mkdtemp(prefix="ckpt-torque-", dir=directory)
        os.chmod(path, 0o755)
    except OSError as error:
        raise NoDirectory("cannot create a temporary directory in %s: %s; name another directory" % (directory, error.strerror))
    try:
        trip = EngineRoundTrip(settings, privilege.find_user(user), path, timeout)
        facts = trip.facts
        cause, is_temporary = try_round_trip(trip)
    except HookError as error:
        cause = str(error)
    finally:
        shutil.rmtree(path)
    return roundtrip.build_result("L1", [os.uname().nodename], not cause, cause, **facts), is_temporary
