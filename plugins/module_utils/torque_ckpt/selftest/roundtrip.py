"""What all round trips share: starting the workload, watching it, checking its evidence, and their result's shape."""
import os
import stat
import time

from ..system.privilege import User, become_user, reset_signals
from ..system.textfile import read_text
from .workload import STATUS, Evidence

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Iterable, Optional, Sequence
    from ..system.processes import Process


class RoundTripError(Exception):
    """The round trip failed; the text is the cause."""


class Phases:
    """Times of the steps, in the order they were done.

    done  list of {"step": str, "seconds": float, ...}
    """

    def __init__(self, done: "Optional[Iterable[dict]]" = None) -> None:
        self.done = list(done or [])

    def measure(self, step: str, work: "Callable[[], Any]", **facts: "Any") -> "Any":
        """Run work(), note its step with the time it took and the facts, return its result."""
        started = time.monotonic()
        result = work()
        self.done.append(dict(facts, step=step, seconds=round(time.monotonic() - started, 4)))
        return result


def read_evidence(path: str) -> Evidence:
    """Return the Evidence in the output file path, as parse_evidence does."""
    return parse_evidence(read_text(path))


def parse_evidence(text: str) -> Evidence:
    """Return the Evidence in the output so far; a half-written last line is left out unless the program has ended."""
    whole_lines = Evidence(text[:text.rfind("\n") + 1])
    return Evidence(text) if whole_lines.ended else whole_lines


def check_evidence(evidence: Evidence, status: int, subject: str = "the job", output: "str | None" = None, least: int = 0) -> None:
    """Check what the program wrote and how it ended.

    :param evidence: of all it wrote
    :param status: its exit status
    :param subject: whose status it is, for the sentences
    :param output: what its output is called in them; the default is the subject's output
    :param least: the counter of the image that it was restarted from last
    :raises RoundTripError: when it is not what an undisturbed program would have left
    """
    output = output or subject + "'s output"
    if evidence.problems:
        raise RoundTripError("%s is not whole: %s" % (output, "; ".join(evidence.problems)))
    if not evidence.ended:
        raise RoundTripError("%s has no end; its last counter is %d" % (output, evidence.counter))
    if evidence.counter < least:  # the progress was that of an older process, which a hold had not ended
        raise RoundTripError("%s ended at %d, but its last image was written at %d: it is not from that image"
                             % (subject, evidence.counter, least))
    if status != STATUS:
        raise RoundTripError("%s's exit status is %d, expected %d" % (subject, status, STATUS))


def build_result(level: str, nodes: "list[str]", passed: "bool | None", cause: str, **facts: "Any") -> dict:
    """Return the record of one round trip, as validation_report takes it.

    :param level: "L1", "L2" or "L3"
    :param nodes: the nodes it touched, in order
    :param passed: None when it was not run
    :param cause: why it failed or was not run, empty when it passed
    """
    return dict(facts, level=level, nodes=nodes, passed=passed, cause=cause)


def _describe_thread(pid: int, thread: str) -> str:
    """Describe where a thread waits: its state, the kernel's function, and which signals (mask) it blocks, if any."""
    path = "/proc/%d/task/%s/" % (pid, thread)
    fields = dict(line.split(":", 1) for line in read_text(path + "status").splitlines() if ":" in line)
    if not fields:
        return "over"
    function, blocked = read_text(path + "wchan").strip("0"), fields["SigBlk"].strip().lstrip("0")
    return fields["State"].split()[0] + (" in " + function if function else "") + (" without signals " + blocked if blocked else "")


def describe_processes(processes: "list[Process]") -> str:
    """Describe where processes wait, for a sentence about ones that make no progress."""
    sentences = []
    for process in processes:
        try:
            threads = sorted(os.listdir("/proc/%d/task" % process.pid), key=int)
        except OSError:
            continue  # it has just ended
        states = ", ".join(_describe_thread(process.pid, name) for name in threads)
        sentences.append("process %d (%s) is %s" % (process.pid, process.name, states))
    return "; ".join(sentences) or "there is no process of it"


def start_process(program: str, arguments: "list[str]", environment: "dict[str, str]", directory: str, stdio: "Sequence[int | str]",
                  user: "Optional[User]" = None, umask: int = 0o022, leaked: "Sequence[int]" = ()) -> int:
    """Start a program as the leader of a new session; return its pid.

    :param stdio: three descriptors, or paths of files that are created as the user
    :param user: None for root
    :param leaked: descriptor numbers to occupy with a pipe, as pbs_mom does
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        spare = [os.dup(given) if isinstance(given, int) else None for given in stdio]
        for target, descriptor in enumerate(spare):
            if descriptor is not None:
                os.dup2(descriptor, target)
        os.closerange(3, 256)
        if leaked:
            reader, writer = os.pipe()
            for target in leaked:
                os.dup2(writer if target % 2 else reader, target)
            os.closerange(3, min(leaked))
        reset_signals()
        if user is not None:
            become_user(user)
        os.umask(umask)
        for target, given in enumerate(stdio):
            if not isinstance(given, int):  # not before: root follows no link in a user's directory
                descriptor = os.open(given, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
                os.dup2(descriptor, target)
                os.close(descriptor)
        os.chdir(directory)
        os.execve(program, [program] + arguments, environment)
    except Exception as error:  # pylint: disable=broad-except
        os.write(2, ("cannot start %s: %s\n" % (program, error)).encode())
    finally:
        os._exit(127)


def get_exit_status(status: int) -> int:
    """Return a wait status as TORQUE's Exit_status: 256 + signal for a killed job."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 256 + os.WTERMSIG(status)


def measure_image(path: str) -> int:
    """Return the size (bytes) of an image, a file or a directory of files."""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    return sum(os.lstat(os.path.join(path, name)).st_size for name in os.listdir(path))
