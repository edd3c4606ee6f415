"""What an engine is, and how its program is called."""
import errno
import os
import select
import signal
import time

from ..errors import HookError, CONFIG, ENGINE
from ..privilege import reset_signals


class Engine(object):
    """One checkpoint engine. The methods run as the job's owner, with the capabilities the engine asks for."""

    name = None
    """str: how configuration and manifest call it."""
    capabilities = ()
    """Capabilities (ints) that dump and restore need."""

    def version(self):
        """Return the engine's version (str)."""
        raise NotImplementedError

    def dump(self, root, directory, stop):
        """Write the tree under root (pid) into directory (path, str).

        :param stop: leave the tree stopped (True) or running (False)
        :raises HookError: ENGINE; the tree runs on then
        """
        raise NotImplementedError

    def restore(self, directory):
        """Bring the tree in directory (path, str) back; its root becomes an orphan of this process.

        :raises HookError: ENGINE or TEMPORARY; nothing of the tree is left then
        """
        raise NotImplementedError


def call(arguments, timeout):
    """Run a program; return (exit status, its output as str, last 64 kB).

    subprocess is not used: importing it costs as much as the whole dump of a small job.

    :param arguments: list of str, the program by absolute path
    :param timeout: seconds until it is killed (float)
    :raises HookError: CONFIG when it cannot be started, ENGINE when it took too long
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            reset_signals()
            os.execv(arguments[0], arguments)
        except OSError as error:
            os.write(2, ("cannot start %s: %s" % (arguments[0], error.strerror)).encode())
        finally:
            os._exit(127)
    os.close(writer)
    kept, deadline = b"", time.time() + timeout
    try:
        while True:
            ready = select.select([reader], [], [], max(0, deadline - time.time()))[0]
            if not ready:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise HookError(ENGINE, "%s took longer than %d seconds and was killed" % (arguments[0], timeout))
            chunk = os.read(reader, 65536)
            if not chunk:
                break
            kept = (kept + chunk)[-65536:]
    except OSError as error:
        if error.errno != errno.EINTR:
            raise
    finally:
        os.close(reader)
    status = os.waitpid(pid, 0)[1]
    text = kept.decode("utf-8", "replace")
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 127 and text.startswith("cannot start"):
        raise HookError(CONFIG, text + "; run the engine's role on this node")
    return (os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)), text
