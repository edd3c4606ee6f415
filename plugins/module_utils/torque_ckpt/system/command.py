"""Running a program: bounded in time, in a process group of its own, with none of our descriptors."""
import os
import select
import signal
import time

from ..errors import HookError, CONFIG, ENGINE, TEMPORARY
from . import processes, progress
from .privilege import reset_signals


def _pipe():
    """Return (reader, writer) of a pipe that is never without a reader as long as somebody has the writer.

    CRIU has the job's own processes speak through it. When CRIU is killed, they may do so once more, and without a reader SIGPIPE would
    end them. What does not fit in is not waited for.
    """
    reader, only = os.pipe()
    try:
        return reader, os.open("/proc/self/fd/%d" % only, os.O_RDWR | os.O_NONBLOCK)
    finally:
        os.close(only)


_AFTER_END = 16
"""So many more pieces (64 KiB) of output are read when the program has ended: a pipe holds one, but others may go on writing."""


def listen(pid, reader, timeout, watch=None):
    """Wait for a child that leads a process group; kill its group when the time is over, or when watch says that it does not get on.

    :param pid: the child (int)
    :param reader: descriptor of what it writes; closed here (int)
    :param timeout: seconds (float)
    :param watch: progress.Watch, or None
    :returns: (wait status or None when it was killed, its output's last 64 kB as bytes)
    """
    kept, deadline, ended, status = b"", time.monotonic() + timeout, 0, None
    open_end, left = True, _AFTER_END
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while True:
            # What the program leaves running may keep the other end open, so the program's end is looked for, too.
            ready = open_end and select.select([stream], [], [], 0 if ended else 0.05)[0]
            if ready:
                chunk = stream.read(65536)
                kept = (kept + chunk)[-65536:]
                open_end = bool(chunk)
            if ended:
                left -= 1
                if not ready or not left:
                    return status, kept
                continue
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended and (time.monotonic() > deadline or watch and watch.fault()):
                try:
                    os.killpg(pid, signal.SIGKILL)
                except ProcessLookupError:
                    os.kill(pid, signal.SIGKILL)  # it has not become a leader yet
                os.waitpid(pid, 0)
                return None, kept
            if not ended and not open_end:
                time.sleep(0.001)


def _close_all_but(kept):
    """Close every descriptor from 3 on but those kept (ints), which the program is to inherit."""
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number not in kept:
            try:
                os.close(number)
            except OSError:
                pass  # the one by which they were listed
    for number in kept:
        os.set_inheritable(number, True)


def run(arguments, timeout, meanwhile=None, kept=None, streams=None, confine=None, stall=None, look=None):
    """Run a program; return (exit status, its output as str, last 64 kB).

    subprocess is not used: importing it costs as much as the whole dump of a small job.

    :param arguments: list of str, the program by absolute path
    :param timeout: seconds until it is killed (float)
    :param meanwhile: called while it works, or None; a HookError or OSError that it raises is raised when the program has ended well
    :param kept: the descriptors that it is to have (list of int), or None for all that are inheritable
    :param streams: descriptors of its stdin and stdout; else these are /dev/null and, as stderr is, its output
    :param confine: called in the program's process before it starts, or None
    :param stall: for how long it may do nothing (seconds), or None for as long as timeout
    :param look: called now and then for a reason to kill it (str) or None; or None
    :raises HookError: CONFIG when it cannot be started, ENGINE when it took too long, TEMPORARY when it was killed for another reason
    """
    reader, writer = _pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)  # a time-out ends the program's children too
            null = os.open(os.devnull, os.O_RDWR)
            source, target = streams or (null, writer)
            os.dup2(source, 0)
            os.dup2(target, 1)
            os.dup2(writer, 2)
            if kept is not None:
                _close_all_but(kept)
            reset_signals()
            if confine:
                confine()
            os.execv(arguments[0], arguments)
        except Exception as error:  # pylint: disable=broad-except
            os.write(2, ("cannot start %s: %s" % (arguments[0], getattr(error, "strerror", None) or error)).encode())
        finally:
            os._exit(127)
    os.close(writer)
    failure = None
    try:
        if meanwhile:
            meanwhile()
    except (HookError, OSError) as error:
        failure = error
    # It may wait for another child (frozen.Worker), or longer for an NFS server that is started again: nobody else makes it wait so.
    watch = progress.Watch(pid, stall, lambda: processes.list_tree(os.getpid())[1:], look, store=True)
    status, kept = listen(pid, reader, timeout, watch)
    if status is None and watch.fault():
        raise HookError(TEMPORARY, "%s %s and was killed" % (arguments[0], watch.fault()))
    if status is None:
        raise HookError(ENGINE, "%s took longer than %d seconds and was killed" % (arguments[0], timeout))
    text = kept.decode("utf-8", "replace")
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 127 and text.startswith("cannot start"):
        raise HookError(CONFIG, text + "; run the engine's role on this node")
    if failure and status == 0:
        raise failure
    return (os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)), text
