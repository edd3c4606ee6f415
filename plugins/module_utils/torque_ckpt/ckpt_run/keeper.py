"""ckpt-run with a program that is kept, and is in the image: it runs the method's commands before and after a checkpoint."""
import contextlib
import os
import signal
import time

from ..job import supervisor
from ..nested import channel, methods
from .program import MORE_PROCESSES, PAUSE, PROGRAM, Request, collect, describe, kill_tree, send_signal, start, start_at_last

EVENT = "CKPT_RUN_EVENT"
"""Variable of the command after a checkpoint: "continue", or "restart" if the job was restored."""


class Keeper:
    """Runs one program that is in the image, and the method's commands before and after.

    :param command: it and its arguments
    """

    def __init__(self, command: "list[str]", method: methods.Method) -> None:
        self._command, self._method = command, method
        self._name = os.path.basename(command[0])
        self._program = 0  # its pid
        self._request: "Request | None" = None
        self._after: "tuple[int, float] | None" = None  # pid of the command after a checkpoint, and until when it may run
        self._watched = supervisor.WATCHED | {channel.BELL}

    def run(self) -> int:
        """Start the program, forward signals, handle requests; return its wait status."""
        self._program = start_at_last(methods.format_command(self._method.start, self._command))
        while True:
            ended = collect()
            if self._program in ended:
                return ended[self._program]
            self._note_commands(ended)
            for new in Request.read_all(self._method):
                self._handle(new)
            self._do_what_is_due()
            info = signal.sigtimedwait(self._watched, PAUSE) if self._request else signal.sigwaitinfo(self._watched)
            if info is not None and info.si_signo in supervisor.FORWARDED and not supervisor.is_from_mom(info.si_pid):
                send_signal(self._program, info.si_signo)

    def _handle(self, request: Request) -> None:
        older = self._request
        if self._after or older and not older.answered:
            request.answer(reason=("the command after a checkpoint of %s still runs" if self._after else "a checkpoint of %s is under way")
                           % self._name, advice="try again")
            return
        self._request = request
        if older or not self._method.before:  # the command after the older one has not run yet
            request.answer(kept=True)
            return
        channel.answer({"id": request.id, "seconds": self._method.seconds})
        try:
            request.command = self._start(self._method.before)
        except OSError as error:
            self._refuse(request, "cannot be started (%s)" % error.strerror, MORE_PROCESSES)

    def _start(self, command: str, **variables: str) -> int:
        return start(["/bin/sh", "-c", command], **{PROGRAM: self._program}, **variables)

    def _note_commands(self, ended: "dict[int, int]") -> None:
        """Note which commands have ended (wait statuses by pid)."""
        request = self._request
        if request and not request.answered and request.command in ended:
            status = ended[request.command]
            if status:
                self._refuse(request, "ended " + describe(status), "look into its output")
            else:
                request.answer(kept=True)
        if self._after and self._after[0] in ended:
            status = ended[self._after[0]]
            if status:
                with contextlib.suppress(OSError):  # a full disk must not end the program's parent
                    os.write(2, os.fsencode("ckpt-run: the command after a checkpoint of %s ended %s\n" % (self._name, describe(status))))
            self._request = self._after = None

    def _refuse(self, request: Request, reason: str, advice: str) -> None:
        request.answer(reason="the command before a checkpoint of %s %s" % (self._name, reason), advice=advice)
        self._continue(request)

    def _continue(self, request: Request) -> None:
        """Run the command after a checkpoint; if there can be no process for it, that is due again."""
        if not self._method.after:
            self._request = None
            return
        with contextlib.suppress(OSError):
            pid = self._start(self._method.after, **{EVENT: "restart" if request.is_restored() else "continue"})
            self._after = pid, time.monotonic() + self._method.seconds

    def _do_what_is_due(self) -> None:
        """End a command that takes too long; go on when the hook is gone."""
        request, now = self._request, time.monotonic()
        if self._after:
            if now > self._after[1]:
                kill_tree(self._after[0])
        elif request and not request.answered:
            if now > request.deadline and request.command:
                kill_tree(request.command)
                self._refuse(request, "took longer than %d seconds and was killed" % self._method.seconds,
                             "allow it more time by ckpt-run --seconds")
        elif request and not request.is_open():
            self._continue(request)
