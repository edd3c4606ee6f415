"""ckpt-run: start a program that writes restart files of its own, so that its job can be checkpointed whatever the program has open.

A checkpoint of the job asks for the program's own: by the method, the program is asked to write its restart files and to end. Then the
image is written, with ckpt-run but without the program. ckpt-run starts the program again by the method's restart command when the hook
that asked is gone: at once if the job continues, or after the restart of a job that was held, on whatever node that is.
"""
import argparse
import os
import signal
import sys
import time

from ..errors import HookError, USAGE
from ..job import supervisor
from ..nested import channel, methods
from ..system import privilege, processes

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Iterator

PROGRAM = "CKPT_RUN_PID"
"""Variable of the checkpoint command: the program's pid."""
PARENT = "CKPT_RUN_PARENT"
"""Variable of the program: ckpt-run's own pid."""
_PAUSE = 0.2
"""How often ckpt-run looks whether the hook is gone (seconds)."""
_GRACE = 5
"""How long what a program has left behind may take to end after SIGTERM (seconds)."""


class _Request:
    """A request for a checkpoint.

    :param message: from the hook: "id" (str), "hook" ([pid, start]), "boot" (str), "seconds" (int: how long the hook may take)
    """

    def __init__(self, message: dict, method: methods.Method) -> None:
        self.id, self.hook, self.boot = str(message["id"]), [int(number) for number in message["hook"]], str(message["boot"])
        self.moment, now = time.time(), time.monotonic()
        self.deadline = now + method.seconds
        self.latest = now + method.seconds + int(message["seconds"])
        self.command: "int | None" = None  # pid of the checkpoint command
        self.answered = self.late = False

    @staticmethod
    def read_all(method: methods.Method) -> "Iterator[_Request]":
        """Yield the requests that have come. What is none is left out: every process of the user can write one."""
        for message in channel.read_requests():
            try:
                request = _Request(message, method)
            except (KeyError, TypeError, ValueError):
                continue
            yield request

    def is_open(self) -> bool:
        """Whether the hook that asked is still at work. The hook is root's: where /proc hides it, its pid has to do."""
        if self.boot != processes.read_boot_id() or time.monotonic() > self.latest:
            return False
        process = processes.read_process(self.hook[0])
        if process is not None:
            return process.start == self.hook[1] and process.state not in "ZX"
        try:
            os.kill(self.hook[0], 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True

    def answer(self, **facts: "Any") -> None:
        """Answer for good, once."""
        if not self.answered:
            channel.answer(dict(facts, id=self.id))
        self.answered = True


def _start(arguments: "list[str]", **variables: int) -> int:
    """Start a program with our standard streams and these variables more; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.environ.update({name: str(value) for name, value in variables.items()})
        privilege.reset_signals()
        os.execvp(arguments[0], arguments)
    except OSError as error:
        os.write(2, ("ckpt-run: cannot start %s: %s\n" % (arguments[0], error.strerror)).encode("utf-8", "surrogateescape"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    finally:
        os._exit(126)


def _get_signal(status: int) -> int:
    """Return the signal that ended a process with this wait status, also if a shell says so by its exit status; 0 for none."""
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else max(0, os.WEXITSTATUS(status) - 128)


def _describe(status: int) -> str:
    return "by signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "with status %d" % os.WEXITSTATUS(status)


def _collect() -> "dict[int, int]":
    """Return the wait statuses of the children that have ended since, by pid."""
    ended: "dict[int, int]" = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


class Runner:
    """Runs one program.

    :param command: it and its arguments
    :param name: the method
    """

    def __init__(self, command: "list[str]", name: str, method: methods.Method) -> None:
        self._command, self._method_name, self._method = command, name, method
        self._name = os.path.basename(command[0])
        self._watched = supervisor.WATCHED | {channel.BELL}
        self._request: "_Request | None" = None

    def run(self) -> int:
        """Run the program until it has ended by itself; return its wait status."""
        arguments = self._command
        while True:
            self._request = None
            status = self._supervise(_start(arguments, **{PARENT: os.getpid()}))
            request = self._request
            if request is None or not self._has_written(request, status):
                return status
            self._end_remainder()
            request.answer(ended=True)
            self._wait_for_hook(request)
            arguments = methods.format_restart(self._method, self._command)

    def _supervise(self, program: int) -> int:
        """Wait for the program (pid), forward signals, handle requests; return its wait status."""
        while True:
            ended = _collect()
            if program in ended:
                return ended[program]
            self._note_command(ended)
            for new in _Request.read_all(self._method):
                self._handle(new, program)
            request = self._request
            waiting = request is not None and not request.answered
            info = signal.sigtimedwait(self._watched, max(0, request.deadline - time.monotonic())) if request is not None and waiting \
                else signal.sigwaitinfo(self._watched)
            if info is None and request is not None:
                request.late = True
                request.answer(reason="%s, asked by the method %s, did not end within %d seconds"
                               % (self._name, self._method_name, self._method.seconds),
                               advice="look into its output, or allow it more time by ckpt-run --seconds")
            elif info is not None and info.si_signo in supervisor.FORWARDED and not supervisor.is_from_mom(info.si_pid):
                _kill(program, info.si_signo)

    def _handle(self, request: _Request, program: int) -> None:
        """Handle a request while the program runs."""
        if self._request is not None and not self._request.answered:
            request.answer(reason="a checkpoint of %s is under way" % self._name, advice="try again")
            return
        channel.answer({"id": request.id, "seconds": self._method.seconds})
        self._request = request
        if self._method.signal:
            _kill(program, getattr(signal, "SIG" + self._method.signal))
        else:
            request.command = _start(["/bin/sh", "-c", self._method.checkpoint], **{PROGRAM: program})

    def _note_command(self, ended: "dict[int, int]") -> None:
        """Answer the request if its checkpoint command is among those that have ended (pid and wait status), and failed."""
        request = self._request
        if request is not None and request.command is not None and ended.get(request.command):
            request.answer(reason="the checkpoint command of %s ended %s" % (self._name, _describe(ended[request.command])))
            self._request = None  # an end from now on is the program's own

    def _has_written(self, request: _Request, status: int) -> bool:
        """Whether the program that has ended is to be continued: it ended because of the request, also if that was late."""
        if self._method.file:
            try:
                written = os.stat(self._method.file).st_mtime >= request.moment - 1  # file systems are coarse
            except OSError:
                written = False
            if not written:
                request.answer(reason="%s ended %s and has not written %s" % (self._name, _describe(status), self._method.file))
            return written
        return not request.late or bool(self._method.signal) and _get_signal(status) == getattr(signal, "SIG" + self._method.signal)

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
                _collect()
            number = signal.SIGKILL
            deadline = time.monotonic() + _GRACE

    def _wait_for_hook(self, request: _Request) -> None:
        """Wait until no hook is at work on the job. A signal that ends programs ends this one, as there is no program to send it to."""
        while request.is_open():
            info = signal.sigtimedwait(self._watched, _PAUSE)
            if info is not None and info.si_signo in supervisor.FORWARDED and info.si_signo not in (signal.SIGWINCH, signal.SIGTSTP):
                supervisor.end_as(info.si_signo)
            for request in _Request.read_all(self._method):
                request.answer(ended=True)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _parse(argv: "list[str]") -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ckpt-run", usage="ckpt-run [option ...] -- PROGRAM [ARGUMENT ...]",
        description="Run a program that writes restart files of its own, so that its job can be checkpointed.")
    parser.add_argument("--method", metavar="NAME", default="rerun", help="how it is asked for them and continues (default: rerun, which "
                        "sends SIGTERM and starts the same command again); ckpt-run --list shows all")
    parser.add_argument("--list", action="store_true", help="print the methods of this node, and exit")
    parser.add_argument("--signal", metavar="NAME", help="send this signal, for instance TERM, to have it write its files and end")
    parser.add_argument("--checkpoint", metavar="COMMAND", help="run this shell command instead; $%s is the program's process id" % PROGRAM)
    parser.add_argument("--restart", metavar="COMMAND", help="continue by this shell command; {command} stands for the program with its "
                        "arguments")
    parser.add_argument("--file", metavar="PATH", help="what it has written when it ends; otherwise it ended by itself")
    parser.add_argument("--seconds", metavar="NUMBER", type=int, help="how long it may take to end (default: 600)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="PROGRAM", help="the program and its arguments, after --")
    return parser.parse_args(argv)


def choose_method(arguments: argparse.Namespace, known: "dict[str, dict]") -> methods.Method:
    """Return the Method of a command line.

    :param known: the methods of this node, by name
    :raises HookError: USAGE
    """
    if arguments.method not in known:
        raise HookError(USAGE, "there is no method %s; take one of %s" % (ascii(arguments.method), ", ".join(sorted(known))))
    given = {part: getattr(arguments, part) for part in methods.Method._fields if getattr(arguments, part) is not None}
    value = dict(known[arguments.method], **given)
    if "signal" in given and "checkpoint" not in given:
        value.pop("checkpoint", None)
    elif "checkpoint" in given and "signal" not in given:
        value.pop("signal", None)
    fault = methods.find_fault("the command line", value)
    if fault:
        raise HookError(USAGE, fault + "; see ckpt-run --help")
    return methods.build_method(value)


def _run(argv: "list[str]", config_path: str) -> int:
    arguments = _parse(argv)
    known = methods.load_methods(config_path)
    if arguments.list:
        for name, value in sorted(known.items()):
            parts = methods.build_method(value)._asdict().items()
            sys.stdout.write("%s: %s\n" % (name, ", ".join("%s=%s" % part for part in parts if part[1])))
        return 0
    command = arguments.command[arguments.command[:1] == ["--"]:]
    if not command:
        raise HookError(USAGE, "name the program after --; see ckpt-run --help")
    method = choose_method(arguments, known)
    if PARENT in os.environ:
        raise HookError(USAGE, "ckpt-run was started by a program that ckpt-run started (%s=%s); start programs by one ckpt-run only"
                        % (PARENT, os.environ[PARENT]))
    try:
        channel.create()
    except OSError as error:
        raise HookError(USAGE, "cannot open descriptors 100 to 103 (%s); raise the limit of open files (ulimit -n)" % error.strerror)
    channel.set_name()
    privilege.become_subreaper()
    supervisor.block_signals({channel.BELL})
    sys.stdout.flush()
    supervisor.end_as(Runner(command, arguments.method, method).run())


def main(argv: "list[str]", config_path: str) -> int:
    """Run the program that argv names, end as it ends; return the exit code if it could not be started.

    :param argv: as from the command line
    :param config_path: the hooks' configuration
    """
    try:
        return _run(argv[1:], config_path)
    except HookError as error:
        sys.stderr.write("ckpt-run: %s; nothing was started\n" % error.sentence)
        return error.code
