"""The two pipes between a checkpoint hook and ckpt-run: requests one way, answers the other, each a line of JSON.

ckpt-run holds both ends of both pipes, so that they are in the job's image as any pipe is. The hook opens them by /proc, as the job's
owner, and rings by SIGURG, which harms no process that is not ckpt-run. Neither side trusts the other for more than it needs.
"""
import fcntl
import json
import os
import signal
import stat

from ..system import processes

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Iterator

ENDS, KEEPS = NAMES = ("ckpt-run", "ckpt-run-keep")
"""The name of its process: whether its program ends for a checkpoint, or is kept in the image."""
BELL = signal.SIGURG
_REQUEST_READER, _REQUEST_WRITER, _ANSWER_READER, _ANSWER_WRITER = _DESCRIPTORS = range(100, 104)
_LONGEST = 4096
"""A line has at most so many bytes; so many a pipe takes at once."""


def _parse_lines(text: bytes) -> "Iterator[dict]":
    for line in text.splitlines():
        try:
            message = json.loads(line.decode("utf-8"))
        except ValueError:
            continue
        if isinstance(message, dict):
            yield message


def _read_all(descriptor: int) -> bytes:
    """Return what is in a pipe that does not block."""
    text = b""
    try:
        while len(text) < 1 << 20:
            part = os.read(descriptor, _LONGEST)
            if not part:
                break
            text += part
    except BlockingIOError:
        pass
    return text


def _write(descriptor: int, message: "dict[str, Any]") -> bool:
    """Write a message as a whole; return whether there was space for it."""
    line = json.dumps(message).encode() + b"\n"
    try:
        return len(line) <= _LONGEST and os.write(descriptor, line) == len(line)
    except OSError:
        return False


def set_name(name: str) -> None:
    """As ckpt-run: become known by one of NAMES."""
    with open("/proc/self/comm", "w") as stream:
        stream.write(name)


def create() -> None:
    """As ckpt-run: create the pipes.

    :raises OSError: if the descriptors cannot be had
    """
    for wanted in (_DESCRIPTORS[:2], _DESCRIPTORS[2:]):
        for end, descriptor in zip(os.pipe(), wanted):
            os.dup2(end, descriptor, inheritable=False)
            os.close(end)
            fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_NONBLOCK)


def read_requests() -> "list[dict]":
    """As ckpt-run: return the requests that have come."""
    return list(_parse_lines(_read_all(_REQUEST_READER)))


def answer(message: "dict[str, Any]") -> None:
    """As ckpt-run: answer a request. If nobody has read former answers, they are dropped."""
    if not _write(_ANSWER_WRITER, message):
        _read_all(_ANSWER_READER)
        _write(_ANSWER_WRITER, message)


class Line:
    """The hook's ends of the pipes of one ckpt-run. As the job's owner.

    :param process: processes.Process of ckpt-run
    :raises OSError: if it has no such pipes
    """

    def __init__(self, process: processes.Process) -> None:
        self.process = process
        self._writer = self._open(_REQUEST_WRITER, os.O_WRONLY)
        try:
            self._reader = self._open(_ANSWER_READER, os.O_RDONLY)
        except OSError:
            os.close(self._writer)
            raise
        _read_all(self._reader)  # what nobody waits for any more

    def _open(self, number: int, mode: int) -> int:
        descriptor = os.open("/proc/%d/fd/%d" % (self.process.pid, number), mode | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("descriptor %d of process %d is no pipe" % (number, self.process.pid))
        return descriptor

    def ask(self, message: "dict[str, Any]") -> bool:
        """Send a request; return whether there was space for it."""
        sent = _write(self._writer, message)
        processes.send_signal(processes.get_mark(self.process), BELL)
        return sent

    def read_answers(self) -> "list[dict]":
        """Return the answers that have come."""
        return list(_parse_lines(_read_all(self._reader)))

    def close(self) -> None:
        """Close both ends, which must not be open when the job's image is written."""
        os.close(self._writer)
        os.close(self._reader)
