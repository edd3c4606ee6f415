"""What ckpt-run knows of its program: the requests for its checkpoint, and its processes."""
import os
import signal
import time

from ..nested import channel, methods
from ..system import privilege, processes

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Iterator

PROGRAM = "CKPT_RUN_PID"
"""Variable of the method's commands: the program's pid."""
MORE_PROCESSES = "end other processes, or raise their limit (ulimit -u)"
"""What to do if no process can be started."""
PAUSE = 0.2
"""How often ckpt-run looks whether the hook is gone (seconds)."""


class Request:
    """A request for a checkpoint.

    :param message: from the hook: "id" (str), "hook" ([pid, start]), "boot" (str), "seconds" (int: how long the hook may take)
    """

    def __init__(self, message: dict, method: methods.Method) -> None:
        self.id, self.hook, self.boot = str(message["id"]), [int(number) for number in message["hook"]], str(message["boot"])
        now = time.monotonic()
        self.deadline = now + method.seconds
        self.until = self.deadline + method.seconds  # an end of the program counts as one for this request
        self.latest = now + method.seconds + int(message["seconds"])
        self.own = processes.get_mark()
        self.command: "int | None" = None  # pid of the command that the method has for now
        self.failure = ""  # of that command
        self.answered = False

    @staticmethod
    def read_all(method: methods.Method) -> "Iterator[Request]":
        """Yield the requests that have come. What is none is left out: every process of the user can write one."""
        for message in channel.read_requests():
            try:
                request = Request(message, method)
            except (KeyError, TypeError, ValueError):
                continue
            yield request

    def is_open(self) -> bool:
        """Whether the hook that asked is still at work."""
        return self.boot == processes.read_boot_id() and time.monotonic() <= self.latest and processes.is_alive(self.hook)

    def is_restored(self) -> bool:
        """Whether we were restored from an image since: then we have started later than we had, or on another node."""
        return self.boot != processes.read_boot_id() or self.own != processes.get_mark()

    def answer(self, **facts: "Any") -> None:
        """Answer for good, once."""
        if not self.answered:
            channel.answer(dict(facts, id=self.id))
        self.answered = True


def start(arguments: "list[str]", **variables: "int | str") -> int:
    """Start a program with our standard streams and these variables more; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.environ.update({name: str(value) for name, value in variables.items()})
        privilege.reset_signals()
        os.execvp(arguments[0], arguments)
    except OSError as error:
        os.write(2, ("ckpt-run: cannot start %s: %s\n" % (arguments[0], error.strerror)).encode("utf-8", "surrogateescape"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    finally:
        os._exit(126)


def start_at_last(arguments: "list[str]") -> int:
    """Start a program as soon as the user may have another process; return its pid."""
    while True:
        try:
            return start(arguments)
        except OSError:
            time.sleep(PAUSE)


def describe(status: int) -> str:
    """Return how a process with this wait status ended, the end of a sentence."""
    return "by signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "with status %d" % os.WEXITSTATUS(status)


def collect() -> "dict[int, int]":
    """Return the wait statuses of the children that have ended since, by pid."""
    ended: "dict[int, int]" = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a child of ours, if it is there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_tree(pid: int) -> None:
    """Kill a child of ours that was not waited for, and what it has started."""
    child = processes.read_process(pid)
    processes.signal_processes(processes.list_family(child) if child else [], signal.SIGKILL)
