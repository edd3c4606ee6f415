"""What an engine is, and how its program is called."""
import os
import select
import signal
import time

from .. import processes, progress
from ..errors import HookError, CONFIG, ENGINE, TEMPORARY
from ..privilege import reset_signals


class Engine(object):
    """One checkpoint engine. The methods run as the job's owner, with the capabilities the engine asks for."""

    name = None
    """str: how configuration and manifest call it."""
    dump_capabilities = ()
    """Capabilities (ints) that dump needs."""
    restore_capabilities = ()
    """Capabilities (ints) that restore needs. An image says what the engine does with them, so as few as can be."""

    stops = False
    """bool: whether a job that is to go on is stopped by signals for its image, so that somebody has to set it going again."""
    stops_late = False
    """bool: whether it may stop the job still when its program was killed, because the kernel goes on with what it was told."""
    keeps_ids = True
    """bool: whether what is restored has the process ids that it had."""

    def version(self):
        """Return the engine's version (str)."""
        raise NotImplementedError

    def check(self):
        """Prove that this node's kernel can do what the engine needs. Cheap: pbs_mom asks every few minutes.

        :raises HookError: CONFIG when it cannot
        """
        raise NotImplementedError

    def command(self, arguments):
        """Return with what (list of str) a program is started, so that the engine can dump it; arguments: list of str."""
        return arguments

    def dump(self, root, directory, stop, witness=None, meanwhile=None, memory=None):
        """Write the tree under root (pid) into directory (path, str).

        :param stop: leave the tree stopped (True) or running (False)
        :param memory: where what holds memory goes (path, str), or None for directory: it is as large as the job. What is more than was
            to be expected may be in directory all the same
        :param witness: program (path, str) to run when the image is written and the tree stands still, or None; if it fails, so does this
        :param meanwhile: called while the engine works, or None; what it raises this raises when the engine has ended well
        :raises HookError: ENGINE; the tree runs on then
        """
        raise NotImplementedError

    def process_ids(self, directory):
        """Return the ids (sorted list of int) of all processes and threads of the image in directory (descriptor)."""
        raise NotImplementedError

    def excess(self, directory):
        """Return what in an image (descriptor) would give a process more than its owner has, who calls this (str); empty if nothing."""
        return ""

    def lost(self, directory):
        """Return what the processes had and will not have after a restart (list of str) of the image in directory (descriptor)."""
        return []

    def is_memory(self, name):
        """Whether the image's file name (str) holds nothing but memory of the job's processes: it steers the engine in nothing."""
        raise NotImplementedError

    def holds_memory(self, name):
        """Whether memory is in the image's file name (str), beside other things maybe: it is as large as the job, and worth compressing."""
        return self.is_memory(name)

    def restore(self, directory, witness=None):
        """Bring the tree in directory (path, str) back; its root becomes an orphan of this process.

        :param witness: program (path, str) to run when the tree is there and stands still, or None; if it fails, so does this
        :raises HookError: ENGINE or TEMPORARY; nothing of the tree is left then
        """
        raise NotImplementedError


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


def call(arguments, timeout, meanwhile=None, kept=None, streams=None, confine=None, stall=None, look=None):
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
    # It may wait for another child, the witness, and longer for an NFS server that is started again: nobody else makes it wait that way.
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
