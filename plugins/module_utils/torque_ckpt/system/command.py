"""Running a program: bounded in time, in a process group of its own, with none of our descriptors."""
import functools
import os
import select
import signal
import time

from ..errors import HookError, CONFIG, ENGINE, TEMPORARY, TIME_CURE
from . import processes, progress
from .privilege import reset_signals

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Optional


def _pipe() -> "tuple[int, int]":
    """Return (reader, writer) of a pipe that has a reader as long as a process has the writer.

    CRIU lets the job's own processes write to it. If CRIU is killed, they may write once more, and without a reader SIGPIPE would
    end them. A write that does not fit does not wait.
    """
    reader, writer = os.pipe()
    try:
        return reader, os.open("/proc/self/fd/%d" % writer, os.O_RDWR | os.O_NONBLOCK)
    finally:
        os.close(writer)


_AFTER_END = 16
"""How many more pieces (64 KiB) of output are read after the program has ended: a pipe holds one, but others may continue to write."""


_NOT_STARTED = "not started: "
"""What a child that could not become the program has printed before the reason."""


def wait_for_child(pid: int, reader: int, timeout: float, watch: "progress.Watch | None" = None,
                   before_kill: "Optional[Callable[[], object]]" = None) -> "tuple[int | None, bytes]":
    """Wait for a child that leads a process group; kill its group when the time is over, or when watch finds a fault.

    :param pid: the child
    :param reader: descriptor of what it writes; closed here
    :param timeout: seconds
    :param before_kill: called before that, or None
    :returns: (wait status, or None if it was killed, its output's last 64 kB)
    """
    output, deadline, ended, status = b"", time.monotonic() + timeout, 0, None
    open_end, remaining = True, _AFTER_END
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while True:
            # Processes that the program leaves running may keep the other end open, so the program's end is waited for, too.
            ready = open_end and select.select([stream], [], [], 0 if ended else 0.05)[0]
            if ready:
                chunk = stream.read(65536)
                output = (output + chunk)[-65536:]
                open_end = bool(chunk)
            if ended:
                remaining -= 1
                if not ready or not remaining:
                    return status, output
                continue
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended and (time.monotonic() > deadline or watch and watch.find_fault()):
                if before_kill:
                    before_kill()
                try:
                    os.killpg(pid, signal.SIGKILL)
                except ProcessLookupError:
                    os.kill(pid, signal.SIGKILL)  # it has not become a leader yet
                os.waitpid(pid, 0)
                return None, output
            if not ended and not open_end:
                time.sleep(0.001)


def _close_all_but(inherited: "list[int]") -> None:
    """Close every descriptor from 3 on except inherited, which the program is to have."""
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number not in inherited:
            try:
                os.close(number)
            except OSError:
                pass  # the one of the listing
    for number in inherited:
        os.set_inheritable(number, True)


def run(arguments: "list[str]", timeout: float, meanwhile: "Optional[Callable[[], object]]" = None, inherited: "list[int] | None" = None,
        streams: "tuple[int, int] | None" = None, confine: "Optional[Callable[[], object]]" = None, stall: "float | None" = None,
        find_reason: "Optional[Callable[[int], str | None]]" = None, session: bool = False,
        before_kill: "Optional[Callable[[], object]]" = None) -> "tuple[int, str]":
    """Run a program; return (exit status, its output, last 64 kB).

    subprocess is not used: importing it takes as long as the whole dump of a small job.

    :param arguments: the program by absolute path, and its arguments
    :param timeout: seconds until it is killed
    :param meanwhile: called while it works, or None; a HookError or OSError that it raises is raised when the program has ended well
    :param inherited: the descriptors that it is to have, or None for all that are inheritable
    :param streams: descriptors of its stdin and stdout; else these are /dev/null and, as stderr is, its output
    :param confine: called in the program's process before it starts, or None
    :param stall: how long it may do nothing (seconds), or None for as long as timeout
    :param find_reason: called now and then with the program's process id for a reason to kill it, which may be None; or None
    :param session: whether it leads a session, too, not only a process group
    :param before_kill: called before it is killed, or None
    :raises HookError: CONFIG if it cannot be started, ENGINE if it took too long, TEMPORARY if it was killed for another reason; with what
        to do if it is an engine's
    """
    reader, writer = _pipe()
    pid = os.fork()
    if pid == 0:
        try:
            (os.setsid if session else os.setpgrp)()  # a time-out ends the program's children too
            null = os.open(os.devnull, os.O_RDWR)
            source, target = streams or (null, writer)
            os.dup2(source, 0)
            os.dup2(target, 1)
            os.dup2(writer, 2)
            if inherited is not None:
                _close_all_but(inherited)
            reset_signals()
            if confine:
                confine()
            os.execv(arguments[0], arguments)
        except Exception as error:  # pylint: disable=broad-except
            os.write(2, (_NOT_STARTED + (getattr(error, "strerror", None) or str(error))).encode())
        finally:
            os._exit(127)
    os.close(writer)
    failure = None
    try:
        if meanwhile:
            meanwhile()
    except (HookError, OSError) as error:
        failure = error
    # It may wait for another child (frozen.Worker), or longer for an NFS server that restarts: nobody else makes it wait so long.
    find_own_reason = find_reason and functools.partial(find_reason, pid)
    watch = progress.Watch(pid, stall, lambda: processes.list_tree(os.getpid())[1:], find_own_reason, store=True)
    status, output = wait_for_child(pid, reader, timeout, watch, before_kill)
    if status is None and watch.find_fault():
        raise HookError(TEMPORARY, "%s %s and was killed; try again" % (arguments[0], watch.find_fault()))
    if status is None:
        raise HookError(ENGINE, "%s took longer than %d seconds and was killed; %s" % (arguments[0], timeout, TIME_CURE))
    text = output.decode("utf-8", "replace")
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 127 and text.startswith(_NOT_STARTED):
        reason = text[len(_NOT_STARTED):]
        raise HookError(CONFIG, "cannot start %s: %s; run the engine's role on this node" % (arguments[0], reason))
    if failure and status == 0:
        raise failure
    return (os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)), text
