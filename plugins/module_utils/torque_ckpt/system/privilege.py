"""Becoming the job's owner: drop first, then open.

The capabilities that an engine needs are kept through the change of user as
ambient ones, so that the whole work on an image (open, verify, restore) can
be done by one process that is the user's in everything else.
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
from ..errors import HookError, NO_USER, SYSTEM, TEMPORARY
from . import processes, progress

User = namedtuple("User", "name uid gid home")

CAP_SETPCAP, CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE = 8, 19, 40

_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_CHILD_SUBREAPER, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 1, 8, 36, 47, 2
_CAPABILITY_VERSION_3 = 0x20080522


def account(user, group=None):
    """Return the User for a job's user and group names (str; group may be None: the user's own).

    :raises HookError: NO_USER when this node does not know one of them
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
        raise HookError(NO_USER, "jobs of root are not checkpointed: an image would run with root's rights when it is restarted")
    return User(user, entry.pw_uid, gid, entry.pw_dir)


def _prctl(*arguments):
    import ctypes  # only where it is needed: it costs a few milliseconds
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*[ctypes.c_ulong(value) for value in arguments + (0,) * (5 - len(arguments))]) != 0:
        number = ctypes.get_errno()
        raise HookError(SYSTEM, "prctl(%d) failed: %s" % (arguments[0], os.strerror(number)))


def become_subreaper():
    """Let orphaned descendants become this process's children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _keep(capabilities):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    mask = sum(1 << capability for capability in capabilities)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    low, high = mask & 0xffffffff, mask >> 32
    data = (ctypes.c_uint32 * 6)(low, low, low, high, high, high)  # effective, permitted, inheritable
    if libc.capset(header, data) != 0:
        raise HookError(SYSTEM, "capset failed: %s" % os.strerror(ctypes.get_errno()))
    for capability in capabilities:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability)


_SCORE = "/proc/self/oom_score_adj"


def be_spared():
    """Have the kernel end other processes when memory runs out: with a hook of root's its job would end. Not what becomes a user's."""
    try:
        with open(_SCORE, "w") as stream:
            stream.write("-1000")
    except OSError:
        pass  # root of a container may not


def _be_spared_no_more():
    """As root still: so the user cannot go back to it."""
    try:
        with open(_SCORE, "r+") as stream:
            if int(stream.read()) < 0:
                stream.seek(0)
                stream.write("0")
    except OSError as error:
        raise HookError(SYSTEM, "cannot write %s: %s" % (_SCORE, error.strerror))


def become(user, capabilities=()):
    """Turn this process into the user's for good; keep only these capabilities (ints), across exec too.

    :raises HookError: SYSTEM when the kernel refuses
    """
    try:
        if os.geteuid() == 0:
            _be_spared_no_more()
            if capabilities:
                _prctl(_PR_SET_KEEPCAPS, 1)
            os.initgroups(user.name, user.gid)
            os.setresgid(user.gid, user.gid, user.gid)
            os.setresuid(user.uid, user.uid, user.uid)
            if capabilities:
                _keep(capabilities)
    except OSError as error:
        raise HookError(SYSTEM, "cannot become user %s: %s" % (user.name, error.strerror))
    if os.geteuid() != user.uid:
        raise HookError(SYSTEM, "cannot become user %s: the hook must be started as root" % user.name)
    os.umask(0o077)


def drop_capabilities():
    """Have none from now on, whatever is executed."""
    _keep(())


def die_with_parent():
    """Be killed when the parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def reset_signals():
    """Give a child the signal dispositions and mask that a shell expects."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these at its start
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


_parent = {}
"""In a child of as_user: the files "questions" and "answers" (pipes)."""


def ask(question):
    """In the work of as_user: have its answer function, which runs as root, answer a question; return the answer.

    :param question: must fit into JSON, as the answer does
    :raises HookError: the one that the answer function raised
    """
    try:
        _parent["questions"].write(json.dumps({"question": question, "phases": phases.dump()}) + "\n")
        _parent["questions"].flush()
        heard = _parent["answers"].readline()
    except BrokenPipeError:
        heard = ""
    if not heard:
        raise HookError(SYSTEM, "the part of the hook that runs as root has ended")
    return _unpack(json.loads(heard))


def _pack(work):
    """Return what became of work() as a dict that fits into JSON."""
    try:
        return {"result": work()}
    except HookError as error:
        return {"code": error.code, "sentence": error.sentence}
    except Exception as error:  # pylint: disable=broad-except
        return {"code": SYSTEM, "sentence": "%s: %s" % (type(error).__name__, error)}


def _unpack(found):
    if "sentence" in found:
        raise HookError(found["code"], found["sentence"])
    return found["result"]


def apart(work):
    """Run work() in a child that is what we are; return what it returns (must fit into JSON). Nothing else of it is in our memory.

    :raises HookError: the one that work raised, or SYSTEM when the child died
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as said:
                said.write(json.dumps(_pack(work)))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as heard:
        text = heard.read()
    status = os.waitpid(pid, 0)[1]
    if not text.endswith("}"):
        raise HookError(SYSTEM, "a part of the hook died with wait status %d" % status)
    return _unpack(json.loads(text))


PATIENCE = 3600
"""How long a part of a hook that is the user's may wait for a file system that does not answer (seconds)."""

_ENDING = 5
"""How long a killed part may take to end (seconds); one that hangs in a file system does not."""


class _Part:
    """A child that has become a user, as root sees it: its user may stop it at any time, and must not keep root waiting.

    :param pid: the child (int)
    :param reader, writer: descriptors of the pipes from it and to it (int); closed by end()
    :param user: User; patience, deadline: see as_user
    """

    def __init__(self, pid, reader, writer, user, patience, deadline):
        self._pid, self._reader, self._writer, self._user = pid, reader, writer, user
        self._watch = progress.Watch(pid, patience)
        self._late = deadline and time.monotonic() + deadline
        self._deadline = deadline
        os.set_blocking(writer, False)

    def _wait(self, reading, writing):
        """Wait until a descriptor can be used.

        :raises HookError: TEMPORARY when the child was given up
        """
        while True:
            ready = any(select.select(reading, writing, [], progress.PAUSE)[:2])
            if self._late and time.monotonic() > self._late:
                fault = "took longer than %d seconds" % self._deadline
            elif ready:
                return
            else:
                fault = self._watch.fault()
            if fault:
                self._kill()
                raise HookError(TEMPORARY, "the part of the hook that runs as %s %s and was killed; try again" % (self._user.name, fault))

    def _kill(self):
        """Kill the child and what it has started."""
        for member in reversed(processes.list_family(processes.read_process(self._pid))):
            processes.send_signal(processes.get_mark(member), signal.SIGKILL)

    def lines(self):
        """Yield each line (bytes) that it says."""
        kept = []
        while True:
            self._wait([self._reader], [])
            chunk = os.read(self._reader, 1 << 16)
            *ended, rest = chunk.split(b"\n")
            for line in ended:
                yield b"".join(kept) + line
                kept = []
            kept.append(rest)
            if not chunk:
                yield b"".join(kept)
                return

    def tell(self, text):
        """Write bytes to it; whether it reads them is for lines() to find out."""
        try:
            while text:
                self._wait([], [self._writer])
                text = text[os.write(self._writer, text):]
        except BrokenPipeError:
            pass

    def end(self):
        """Close the pipes; return the child's wait status (int), None when not even SIGKILL ends it."""
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
                self._kill()  # it was stopped with its last breath
        return None


def as_user(user, work, capabilities=(), answer=None, patience=PATIENCE, deadline=None):
    """Run work() in a child that is the user's; return what it returns.

    Its user can stop the child or have it wait: it is killed, with all that it has started, when it was stopped for progress.STOPPED
    seconds.

    :param work: callable without arguments; its result must fit into JSON
    :param answer: called here with what work passes to ask(), for what only root can know
    :param patience: for how long it may neither use a processor nor read or write (seconds); then it is killed, too
    :param deadline: how long it may take in all (seconds), None for as long as it gets on; then it is killed, too
    :raises HookError: the one that work raised, TEMPORARY when the child was killed here, or SYSTEM when it died
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited as ignored, it would take the child's status away
    from_child, to_parent = os.pipe()
    from_parent, to_child = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(from_child)
            os.close(to_child)
            with os.fdopen(to_parent, "w") as said, os.fdopen(from_parent) as heard:
                _parent.update(questions=said, answers=heard)

                def become_and_work():
                    become(user, capabilities)
                    return work()
                said.write(json.dumps(dict(_pack(become_and_work), phases=phases.dump())))
            status = 0
        finally:
            os._exit(status)
    os.close(to_parent)
    os.close(from_parent)
    part, found, status = _Part(pid, from_child, to_child, user, patience, deadline), {}, None
    try:
        for line in part.lines():
            try:
                found = json.loads(line.decode("ascii"))
            except ValueError:  # it was killed while it spoke
                break
            if "question" in found:
                phases.load(found["phases"])
                part.tell((json.dumps(_pack(lambda asked=found["question"]: answer(asked))) + "\n").encode("ascii"))
    finally:
        status = part.end()
    if "result" not in found and "sentence" not in found:
        raise HookError(SYSTEM, "the part of the hook that runs as %s died with wait status %s" % (user.name, status))
    phases.load(found["phases"])
    return _unpack(found)
