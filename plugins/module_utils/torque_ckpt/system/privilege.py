"""Becoming the job's owner: drop privileges first, then open files.

The capabilities that an engine needs are kept through the change of user as
ambient ones, so that one process, which is the user's in everything else, can
do all the work on an image (open, verify, restore).
"""
import os
import pwd
import grp
import json
import select
import signal
import time
from collections import namedtuple

from .. import phases
from ..errors import HookError, DEATH_CURE, NO_USER, SYSTEM, TEMPORARY
from . import processes, progress

MYPY = False  # true for the type checker alone
if MYPY:
    from types import ModuleType
    from typing import Any, Callable, Iterator, Sequence, TextIO

User = namedtuple("User", "name uid gid home")

CAP_SETPCAP, CAP_NET_ADMIN, CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE = 8, 12, 19, 40

_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_CHILD_SUBREAPER, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 1, 8, 36, 47, 2
_CAPABILITY_VERSION_3 = 0x20080522


def find_user(user: str, group: "str | None" = None) -> User:
    """Return the User for a job's user and group names (None: the user's own group).

    :raises HookError: NO_USER if this node does not know one of them
    """
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise HookError(NO_USER, "user %s is not known on this node; compare the account database with the other nodes" % user)
    gid = entry.pw_gid
    if group is not None:
        try:
            gid = grp.getgrnam(group).gr_gid
        except KeyError:
            raise HookError(NO_USER, "group %s is not known on this node; compare the group database with the other nodes" % group)
    if entry.pw_uid == 0:
        raise HookError(NO_USER, "jobs of root are not checkpointed: an image would run with root's rights when it is restarted; "
                        "submit the job as another user")
    return User(user, entry.pw_uid, gid, entry.pw_dir)


def _prctl(*arguments: int) -> None:
    """See prctl(2).

    :raises OSError: if the kernel refuses
    """
    import ctypes  # only where it is needed: it takes a few milliseconds
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*[ctypes.c_ulong(value) for value in arguments + (0,) * (5 - len(arguments))]) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def load_modules() -> "ModuleType":
    """Load what become_subreaper() and drop_capabilities() need, before privileges are dropped: a user may not read root's interpreter."""
    import ctypes
    return ctypes


def become_subreaper() -> None:
    """Let orphaned descendants become this process's children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _keep_capabilities(capabilities: "Sequence[int]") -> None:
    """Have these capabilities alone, also across exec.

    :raises OSError: if the kernel refuses
    """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    mask = sum(1 << capability for capability in capabilities)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    low, high = mask & 0xffffffff, mask >> 32
    data = (ctypes.c_uint32 * 6)(low, low, low, high, high, high)  # effective, permitted, inheritable
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for capability in capabilities:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability)


_OOM_SCORE = "/proc/self/oom_score_adj"


def avoid_oom_kill() -> None:
    """Have the kernel kill other processes when memory runs out: a killed hook ends its job. A process that becomes a user's loses this."""
    try:
        with open(_OOM_SCORE, "w") as stream:
            stream.write("-1000")
    except OSError:
        pass  # root of a container may not


def _allow_oom_kill() -> None:
    """Undo avoid_oom_kill() while still root, so that the user cannot have it back."""
    try:
        with open(_OOM_SCORE, "r+") as stream:
            if int(stream.read()) < 0:
                stream.seek(0)
                stream.write("0")
    except OSError as error:
        raise HookError(SYSTEM, "cannot write %s: %s; mount /proc on this node so that root can write to it" % (_OOM_SCORE, error.strerror))


def become_user(user: User, capabilities: "Sequence[int]" = ()) -> None:
    """Make this process the user's for good; keep only these capabilities, also across exec.

    :raises HookError: SYSTEM if the kernel refuses
    """
    try:
        if os.geteuid() == 0:
            _allow_oom_kill()
            if capabilities:
                _prctl(_PR_SET_KEEPCAPS, 1)
            os.initgroups(user.name, user.gid)
            os.setresgid(user.gid, user.gid, user.gid)
            os.setresuid(user.uid, user.uid, user.uid)
            if capabilities:
                _keep_capabilities(capabilities)
    except OSError as error:
        raise HookError(SYSTEM, "cannot become user %s%s: %s; give the container or service that this runs in the capabilities for it"
                        % (user.name, " with the engine's capabilities" if capabilities else "", error.strerror))
    if os.geteuid() != user.uid:
        raise HookError(SYSTEM, "cannot become user %s without root's rights; start the hook as root" % user.name)
    os.umask(0o077)


def drop_capabilities() -> None:
    """Have no capabilities from now on, whatever is executed."""
    _keep_capabilities(())


def die_with_parent() -> None:
    """Have this process killed when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def reset_signals() -> None:
    """Give a child the signal dispositions and mask that a shell expects."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these from its start
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


_parent: "dict[str, TextIO]" = {}
"""In a child of as_user: the files "questions" and "answers" (pipes)."""


def ask_root(question: "Any") -> "Any":
    """In the work of as_user: send a question to its answer function, which runs as root; return the answer.

    :param question: must fit into JSON, as the answer does
    :raises HookError: the error that the answer function raised
    """
    try:
        _parent["questions"].write(json.dumps({"question": question, "phases": phases.dump()}) + "\n")
        _parent["questions"].flush()
        reply = _parent["answers"].readline()
    except BrokenPipeError:
        reply = ""
    if not reply:
        raise HookError(SYSTEM, "the part of the hook that runs as root has ended")
    return _unpack_outcome(json.loads(reply))


def _pack_outcome(work: "Callable[[], Any]") -> dict:
    """Return the result of work(), or its error, as a dict that fits into JSON."""
    try:
        return {"result": work()}
    except HookError as error:
        return {"code": error.code, "sentence": error.sentence, "cause": error.cause}
    except Exception as error:  # pylint: disable=broad-except
        return {"code": SYSTEM, "sentence": "%s: %s" % (type(error).__name__, error), "cause": ""}


def _unpack_outcome(outcome: dict) -> "Any":
    if "sentence" in outcome:
        raise HookError(outcome["code"], outcome["sentence"], outcome["cause"])
    return outcome["result"]


def run_in_child(work: "Callable[[], Any]") -> "Any":
    """Run work() in a child with this process's rights; return its result (must fit into JSON). Nothing else of it is in our memory.

    :raises HookError: the error that work raised, or SYSTEM if the child died
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as stream:
                stream.write(json.dumps(_pack_outcome(work)))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    status = os.waitpid(pid, 0)[1]
    if not text.endswith("}"):
        raise HookError(SYSTEM, "a part of the hook died with wait status %d; %s" % (status, DEATH_CURE))
    return _unpack_outcome(json.loads(text))


PATIENCE = 3600
"""How long a part of a hook that runs as the user may wait for a file system that does not respond (seconds)."""

_ENDING = 5
"""How long a killed part may take to end (seconds); one that hangs in a file system does not end."""


class _Part:
    """A child that has become a user, seen from root: its user may stop it at any time, and must not keep root waiting.

    :param pid: the child
    :param reader, writer: descriptors of the pipes from it and to it; closed by end()
    :param patience, deadline: see as_user
    """

    def __init__(self, pid: int, reader: int, writer: int, user: User, patience: "float | None", deadline: "float | None") -> None:
        self._pid, self._reader, self._writer, self._user = pid, reader, writer, user
        self._watch = progress.Watch(pid, patience)
        self._started, self._deadline = time.monotonic(), deadline
        os.set_blocking(writer, False)

    def _wait(self, reading: "list[int]", writing: "list[int]") -> None:
        """Wait until a descriptor can be used.

        :raises HookError: TEMPORARY if the child was killed
        """
        while True:
            ready = any(select.select(reading, writing, [], progress.PAUSE)[:2])
            if self._deadline and time.monotonic() > self._started + self._deadline:
                fault: "str | None" = "took longer than %d seconds" % self._deadline
            elif ready:
                return
            else:
                fault = self._watch.find_fault()
            if fault:
                self._kill()
                raise HookError(TEMPORARY, "the part of the hook that runs as %s %s and was killed; try again" % (self._user.name, fault))

    def _kill(self) -> None:
        """Kill the child and what it has started."""
        child = processes.read_process(self._pid)
        for process in reversed(processes.list_family(child) if child else []):
            processes.send_signal(processes.get_mark(process), signal.SIGKILL)

    def read_lines(self) -> "Iterator[bytes]":
        """Yield each line that it writes."""
        pieces: "list[bytes]" = []
        while True:
            self._wait([self._reader], [])
            chunk = os.read(self._reader, 1 << 16)
            *ended, rest = chunk.split(b"\n")
            for line in ended:
                yield b"".join(pieces) + line
                pieces = []
            pieces.append(rest)
            if not chunk:
                yield b"".join(pieces)
                return

    def write_bytes(self, text: bytes) -> None:
        """Write bytes to it; read_lines() finds out whether it reads them."""
        try:
            while text:
                self._wait([], [self._writer])
                text = text[os.write(self._writer, text):]
        except BrokenPipeError:
            pass

    def end(self) -> "int | None":
        """Close the pipes; return the child's wait status, None when not even SIGKILL ends it."""
        os.close(self._reader)
        os.close(self._writer)
        for last in (False, True):
            late = time.monotonic() + _ENDING
            while time.monotonic() < late:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                if pid:
                    return status
                time.sleep(0.001)
            if not last:
                self._kill()  # it was stopped just before its end
        return None


def as_user(user: User, work: "Callable[[], Any]", capabilities: "Sequence[int]" = (), answer: "Callable[[Any], Any] | None" = None,
            patience: "float | None" = PATIENCE, deadline: "float | None" = None) -> "Any":
    """Run work() in a child that is the user's; return its result.

    Its user can stop the child or make it wait: it is killed, with all that it has started, when it has been stopped for progress.STOPPED
    seconds.

    :param work: its result must fit into JSON
    :param answer: called here with the question that work passes to ask_root(), for what only root can know
    :param patience: how long it may neither use a processor nor read or write (seconds); then it is killed, too
    :param deadline: how long it may take in all (seconds), None for as long as it makes progress; then it is killed, too
    :raises HookError: the error that work raised, TEMPORARY if the child was killed here, or SYSTEM if it died
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited as ignored, it would take the child's status away
    from_child, to_parent = os.pipe()
    from_parent, to_child = os.pipe()
    pid = os.fork()
    if pid == 0:
        exit_status = 1
        try:
            os.close(from_child)
            os.close(to_child)
            with os.fdopen(to_parent, "w") as questions, os.fdopen(from_parent) as answers:
                _parent.update(questions=questions, answers=answers)

                def become_and_work() -> "Any":
                    become_user(user, capabilities)
                    return work()
                questions.write(json.dumps(dict(_pack_outcome(become_and_work), phases=phases.dump())))
            exit_status = 0
        finally:
            os._exit(exit_status)
    os.close(to_parent)
    os.close(from_parent)
    part = _Part(pid, from_child, to_child, user, patience, deadline)
    message: dict = {}
    try:
        for line in part.read_lines():
            try:
                message = json.loads(line.decode("ascii"))
            except ValueError:  # it was killed while it wrote
                break
            if "question" in message:
                phases.load(message["phases"])
                outcome = _pack_outcome(lambda asked=message["question"]: answer(asked))  # type: ignore[misc]  # work that asks has one
                part.write_bytes((json.dumps(outcome) + "\n").encode("ascii"))
    finally:
        status = part.end()
    if "result" not in message and "sentence" not in message:
        raise HookError(SYSTEM, "the part of the hook that runs as %s died with wait status %s; %s" % (user.name, status, DEATH_CURE))
    phases.load(message["phases"])
    return _unpack_outcome(message)
