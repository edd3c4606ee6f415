"""ckpt-run with a program that ends for a checkpoint and is started again when the hook is gone."""
import os
import signal
import stat
import time

from ..job import supervisor
from ..nested import channel, methods
from ..system import processes
from .program import MORE_PROCESSES, PAUSE, PROGRAM, Request, collect, describe, send_signal, start, start_at_last

_GRACE = 5
"""How long (seconds) what a program has left behind may take to end after SIGTERM, and a program whose checkpoint command has failed."""
_HARMLESS = {signal.SIGWINCH, signal.SIGTSTP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF}
"""What asks nobody to end: it does not end ckpt-run while there is no program to send it to."""


def _get_signal(status: int) -> int:
    """Return the signal that ended a process with this wait status, also if a shell says so by its exit status; 0 for none."""
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else max(0, os.WEXITSTATUS(status) - 128)


def _find_start_of_input() -> "int | None":
    """Return where each start of the program is to begin to read its standard input; None if that is no file, or also its parent's."""
    try:
        own, parent = os.fstat(0), os.stat("/proc/%d/fd/0" % os.getppid())
        shared = (own.st_dev, own.st_ino) == (parent.st_dev, parent.st_ino)  # a shell may read its commands from there
        return os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(own.st_mode) and not shared else None
    except OSError:
        return None


def _read_file(path: str) -> "tuple | None":
    """Return what tells a file from an earlier version of it, its time (nanoseconds) first; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # NFS shows its time only to who opens it
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


class Runner:
    """Runs one program.

    :param command: it and its arguments
    :param name: the method
    """

    def __init__(self, command: "list[str]", name: str, method: methods.Method) -> None:
        self._command, self._method_name, self._method = command, name, method
        self._name = os.path.basename(command[0])
        self._file = os.path.expandvars(method.file)
        self._signal = getattr(signal, "SIG" + method.signal) if method.signal else 0
        self._watched = supervisor.WATCHED | {channel.BELL}
        self._request: "Request | None" = None
        self._first: "tuple[float, tuple | None]" = (0, None)  # when the program was asked first since its start, and its file at that time
        self._handling: "list[list[int]]" = []  # marks of what handles the method's signal, which the program has not done

    def run(self) -> int:
        """Run the program until it has ended by itself; return its wait status."""
        arguments, start_of_input = methods.format_command(self._method.start, self._command), _find_start_of_input()
        while True:
            self._request, self._first, self._handling = None, (0, None), []
            status = self._supervise(start_at_last(arguments))
            request = self._request
            if request is None:
                return status
            self._await_command(request)  # which may be what writes the file
            written = self._has_written(request, status)
            if not written and not self._is_by_our_signal(request, status):
                return status
            self._end_remainder()
            request.answer(**{"reason": request.failure} if request.failure else {"ended": True})
            self._wait_for_hook(request)
            if written:  # else the signal came before the program had a handler: it starts as this time
                arguments = methods.format_command(self._method.restart, self._command)
            if start_of_input is not None:
                os.lseek(0, start_of_input, os.SEEK_SET)

    def _supervise(self, program: int) -> int:
        """Wait for the program (pid), forward signals, handle requests; return its wait status."""
        status: "int | None" = None
        while True:
            ended = collect()
            if program in ended:
                status = ended[program]
                self._pass_on(status)
            self._note_command(ended, status is not None)
            if status is not None and not any(map(processes.is_alive, self._handling)):
                return status
            running = program if status is None else None
            for new in Request.read_all(self._method):
                self._handle(new, running)
            self._wait(running)

    def _wait(self, program: "int | None") -> None:
        """Wait for what happens next; forward a signal, and answer a request whose time is over."""
        request = self._request if self._request is not None and not self._request.answered else None
        limit = max(0, request.deadline - time.monotonic()) if request is not None else None
        if self._handling:  # they may be children of others
            limit = PAUSE if limit is None else min(limit, PAUSE)
        info = signal.sigwaitinfo(self._watched) if limit is None else signal.sigtimedwait(self._watched, limit)
        if info is not None and info.si_signo in supervisor.FORWARDED and not supervisor.is_from_mom(info.si_pid):
            self._send(program, info.si_signo)
        if request is not None and time.monotonic() >= request.deadline:
            request.answer(reason="%s, asked by the method %s, did not end within %d seconds"
                           % (self._name, self._method_name, self._method.seconds),
                           advice="look into its output, or allow it more time by ckpt-run --seconds")

    def _send(self, program: "int | None", number: int) -> None:
        """Send a signal to the program (pid), or if that has ended (None) to what handles the method's signal in its place."""
        if program is not None:
            send_signal(program, number)
        for mark in self._handling:
            processes.send_signal(mark, number)

    def _is_by_signal(self, status: int) -> bool:
        """Whether a program with this wait status was ended by the method's signal."""
        return bool(self._signal) and _get_signal(status) == self._signal

    def _is_by_our_signal(self, request: Request, status: int) -> bool:
        """Whether it was that of this request, and not, say, the one by which qdel ends the job long after."""
        return self._is_by_signal(status) and time.monotonic() <= request.until

    def _pass_on(self, status: int) -> None:
        """Send the method's signal to what handles it, if that has ended the program: a script that had started the real one, say."""
        if self._request is not None and self._is_by_our_signal(self._request, status):
            family = processes.list_family(processes.read_self())[1:]
            self._handling = [processes.get_mark(process) for process in family if processes.catches(process, self._signal)]
            self._send(None, self._signal)

    def _handle(self, request: Request, program: "int | None") -> None:
        """Handle a request while the program (pid) runs, or what handles the signal in its place."""
        if self._request is not None and not self._request.answered:
            request.answer(reason="a checkpoint of %s is under way" % self._name, advice="try again")
            return
        channel.answer({"id": request.id, "seconds": self._method.seconds})
        if self._request is None:
            self._first = (time.time(), _read_file(self._file))
        self._request = request
        if self._signal:
            self._send(program, self._signal)
            return
        try:
            request.command = start(["/bin/sh", "-c", self._method.checkpoint], **{PROGRAM: program or 0})
        except OSError as error:
            request.answer(reason="the checkpoint command of %s cannot be started (%s)" % (self._name, error.strerror),
                           advice=MORE_PROCESSES)
            self._request = None

    def _note_command(self, ended: "dict[int, int]", program_ended: bool) -> None:
        """Answer the request if its checkpoint command is among those that have ended (pid and wait status), and failed."""
        request = self._request
        if request is None or request.command not in ended:
            return
        status, request.command = ended[request.command], None
        if status:
            request.failure = "the checkpoint command of %s ended %s" % (self._name, describe(status))
            if not program_ended:  # which may be about to end all the same
                request.until = time.monotonic() + _GRACE
                request.answer(reason=request.failure)

    def _await_command(self, request: Request) -> None:
        """Wait until the checkpoint command has ended, too."""
        while request.command is not None and time.monotonic() < request.deadline:
            self._heed(signal.sigtimedwait(self._watched, PAUSE))
            self._note_command(collect(), True)
        if request.command is not None:
            request.failure = "the checkpoint command of %s did not end within %d seconds" % (self._name, self._method.seconds)

    def _has_written(self, request: Request, status: int) -> bool:
        """Whether the program that has ended is to be continued: it ended because of the request, also if that was late."""
        if not self._file:
            return time.monotonic() <= request.until or self._is_by_signal(status)
        now, (moment, before) = _read_file(self._file), self._first
        # By the file server's clock it may seem older than the request; the moment is for file systems with coarse times.
        written = now is not None and (now != before or now[0] >= (moment - 1) * 10**9)
        if not written:
            request.answer(reason="%s ended %s and has not written %s" % (self._name, describe(status), self._file))
        return written

    @staticmethod
    def _end_remainder() -> None:
        """End what the program has left behind: it would be in the image."""
        own = processes.read_self()
        deadline = time.monotonic() + _GRACE
        number = signal.SIGTERM
        while processes.list_children(own.pid):
            processes.signal_processes(processes.list_family(own)[1:], number)
            while processes.list_children(own.pid) and time.monotonic() < deadline:
                time.sleep(0.01)
                collect()
            number = signal.SIGKILL
            deadline = time.monotonic() + _GRACE

    def _wait_for_hook(self, request: Request) -> None:
        """Wait until no hook is at work on the job. A signal that ends programs ends this one, as there is no program to send it to."""
        while request.is_open():
            self._heed(signal.sigtimedwait(self._watched, PAUSE))
            for request in Request.read_all(self._method):
                request.answer(ended=True)

    @staticmethod
    def _heed(info: "signal.struct_siginfo | None") -> None:
        """End by a signal that asks to end: there is no program to send it to."""
        if info is not None and info.si_signo in supervisor.FORWARDED - _HARMLESS:
            supervisor.end_as(info.si_signo)
