"""Work of the hook's that must be done while the job stands still.

The engine has a program that it runs at that moment. To start Python there would cost more than all the work, so a
child of the hook's is there before: the program only wakes it, and the job stays frozen until it answers.
"""
import json
import os
import select
import signal

from .errors import HookError, CANNOT_WRITE, SYSTEM

_PIPES = ("witness-call", "witness-answer")
"""Named pipes beside the engine's files: the engine gives its program nothing else to find the hook by."""

_CALLED, _OVER = b"c", b"o"  # what comes through the first one


def program(hook):
    """Return the program (path, str) that the engine is given; it is beside the hook (path, str)."""
    return os.path.join(os.path.dirname(hook), "witness")


class Witness(object):
    """A child that does the work when the engine calls.

    :param work: generator function: up to its first value the job stands still, the second value is the result (must fit into JSON)
    :param directory: where the engine's files are (descriptor)
    :raises HookError: CANNOT_WRITE when there can be no pipes in it
    """

    def __init__(self, work, directory):
        self._directory = directory
        try:
            for name in _PIPES:
                os.mkfifo(name, 0o600, dir_fd=directory)
            # Opened for both directions, neither side waits for the other to open it.
            self._call, answer = [os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory) for name in _PIPES]
        except OSError as error:
            raise HookError(CANNOT_WRITE, "cannot make a named pipe beside the image: %s" % error.strerror)
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

    def _wait_and_work(self, work, stream, answer, life):
        ready = select.select([self._call, life], [], [])[0]
        if self._call not in ready or os.read(self._call, 1) != _CALLED:
            return  # the hook was killed, or the engine is done and has not called
        try:
            steps = work()
            next(steps)
            os.write(answer, b"y\n")
            json.dump({"result": next(steps)}, stream)
            return
        except HookError as error:
            json.dump({"code": error.code, "sentence": error.sentence}, stream)
        except Exception as error:  # pylint: disable=broad-except
            json.dump({"code": SYSTEM, "sentence": "%s: %s" % (type(error).__name__, error)}, stream)
        stream.flush()  # before the engine fails, which has the hook look for the reason
        os.write(answer, b"n\n")

    def _end(self):
        """Return what the child said (dict), or None; it has ended then."""
        os.write(self._call, _OVER)
        with os.fdopen(self._result) as stream:
            text = stream.read()
        os.waitpid(self._pid, 0)
        for descriptor in (self._call, self._life):
            os.close(descriptor)
        for name in _PIPES:
            os.unlink(name, dir_fd=self._directory)
        return json.loads(text) if text.endswith("}") else None

    def result(self):
        """Return the work's result; the engine has ended.

        :raises HookError: what the work raised, or SYSTEM when it was not called or died
        """
        said = self._end()
        if said is None:
            raise HookError(SYSTEM, "the engine did not call the hook while the job stood still, or the part of the hook it called died")
        if "sentence" in said:
            raise HookError(said["code"], said["sentence"])
        return said["result"]

    def fault(self):
        """Return the HookError by which the work made the engine fail, or None when it was not the work."""
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        os.kill(self._pid, signal.SIGKILL)  # it may be at work for nothing
        said = self._end()
        if said and "sentence" in said:
            return HookError(said["code"], said["sentence"])
        if ended and ended.si_code != os.CLD_EXITED:
            return HookError(SYSTEM, "the part of the hook that looks after the job's files was killed (signal %d)" % ended.si_status)
        return None
