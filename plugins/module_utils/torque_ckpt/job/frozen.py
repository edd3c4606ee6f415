"""Work of the hook that must be done while the job is frozen.

The engine runs a program at that moment, the action script. To start Python there would cost more than all the work, so a
child of the hook waits already: the program only wakes it, and the job stays frozen until it answers.

Such work is an object with two methods: while_frozen(), and after_thaw(), which returns the result.
"""
import contextlib
import json
import os
import select
import signal
from collections import namedtuple

from ..errors import HookError, DEATH_CURE, SYSTEM
from .records import ANSWER, CALL

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Iterator, TextIO
    from ..system.privilege import User
    from .records import Records

VARIABLE = "CKPT_TORQUE_CHANNEL"
"""By it the program finds the pipes: of the hook's descriptors the engine leaves it none."""

_KINDS = (CALL, ANSWER)
_PF_EXITING = 4  # include/linux/sched.h
_CALLED, _OVER = b"c", b"o"  # what comes through the first one


class Channel(namedtuple("Channel", "program stem")):
    """How the engine reaches the hook: the program that it is given (path, str), and what the pipes' paths begin with (str)."""

    @property
    def pipes(self) -> "list[str]":
        """The pipes' paths: that of the call, that of the answer."""
        return ["%s.%s" % (self.stem, kind) for kind in _KINDS]


@contextlib.contextmanager
def open_channel(hook: str, records: "Records", user: "User", consequence: str) -> "Iterator[Channel]":
    """Give a Channel to the body of the with statement. To be used by root, who has the job's lock.

    :param hook: the hook's path; the action script is beside it
    :param records: those of the job; the pipes lie beside them, since a store's file system may know no named pipes
    :param user: whose part of the hook and engine use it
    :param consequence: what becomes of the job if there can be none, the end of the sentence
    :raises HookError: SYSTEM then
    """
    channel = Channel(os.path.join(os.path.dirname(hook), "action-script"), records.stem)
    records.make_directory()
    try:
        for kind, path in zip(_KINDS, channel.pipes):
            records.drop(kind)  # a hook that was killed left it
            try:
                os.mkfifo(path, 0o600)
                os.chown(path, user.uid, user.gid)
            except OSError as error:
                raise HookError(SYSTEM, "cannot create the named pipe %s: %s; see to that file system; %s"
                                % (path, error.strerror, consequence))
        yield channel
    finally:
        for kind in _KINDS:
            records.drop(kind)


def _is_ending(pid: int) -> bool:
    """Whether a child that was not waited for is dead or dying."""
    with open("/proc/%d/stat" % pid, "rb") as stream:
        text = stream.read()
    return bool(int(text[text.rindex(b")") + 2:].split()[6]) & _PF_EXITING)


class Worker:
    """A child that does the work when the engine calls. As the user; the engine has to be started by this process.

    :param work: see above; its result must fit into JSON
    """

    def __init__(self, work: "Any", channel: Channel) -> None:
        # Opened for both directions, neither side waits for the other to open it.
        self._call, answer = [os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC) for path in channel.pipes]
        os.environ[VARIABLE] = channel.stem
        self._result, result = os.pipe()
        life, self._life = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._result)
                os.close(self._life)
                with os.fdopen(result, "w") as stream:
                    self._wait_and_work(work, stream, answer, life)
            finally:
                os._exit(0)
        for descriptor in (answer, result, life):  # of the answer's pipe the child alone has the end: where it dies, the program sees it
            os.close(descriptor)

    def _wait_and_work(self, work: "Any", stream: "TextIO", answer: int, life: int) -> None:
        ready = select.select([self._call, life], [], [])[0]
        if self._call not in ready or os.read(self._call, 1) != _CALLED:
            return  # the hook was killed, or the engine has ended without a call
        try:
            work.while_frozen()
            os.write(answer, b"y\n")
            json.dump({"result": work.after_thaw()}, stream)
            return
        except HookError as error:
            json.dump({"code": error.code, "sentence": error.sentence}, stream)
        except Exception as error:  # pylint: disable=broad-except
            json.dump({"code": SYSTEM, "sentence": "%s: %s" % (type(error).__name__, error)}, stream)
        stream.flush()  # before the engine fails, after which the hook reads the reason
        os.write(answer, b"n\n")

    def _read_report(self) -> "dict[str, Any] | None":
        """Return the child's report, or None if it wrote no whole one; it has ended then."""
        os.write(self._call, _OVER)
        with os.fdopen(self._result) as stream:
            text = stream.read()
        os.waitpid(self._pid, 0)
        for descriptor in (self._call, self._life):
            os.close(descriptor)
        return json.loads(text) if text.endswith("}") else None

    def read_result(self) -> "Any":
        """Return the work's result; the engine has ended.

        :raises HookError: what the work raised, or SYSTEM when it was not called or died
        """
        report = self._read_report()
        if report is None:
            raise HookError(SYSTEM, "the engine did not call the hook while the job stood still, or the part of the hook it called died; %s"
                            % DEATH_CURE)
        if "sentence" in report:
            raise HookError(report["code"], report["sentence"])
        return report["result"]

    def find_fault(self) -> "HookError | None":
        """Return the HookError by which the work made the engine fail, or None when it was not the work."""
        # The engine may have seen the pipe's end before the child's own is to be seen.
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | (0 if _is_ending(self._pid) else os.WNOHANG))
        os.kill(self._pid, signal.SIGKILL)  # it may be at work for nothing
        report = self._read_report()
        if report and "sentence" in report:
            return HookError(report["code"], report["sentence"])
        if ended and ended.si_code != os.CLD_EXITED:
            return HookError(SYSTEM, "the part of the hook that looks after the job's files was killed (signal %d); %s"
                             % (ended.si_status, DEATH_CURE))
        return None
