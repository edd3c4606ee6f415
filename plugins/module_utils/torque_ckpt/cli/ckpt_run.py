"""ckpt-run: start a program that takes part in a checkpoint of its job.

One that writes restart files of its own can have anything open. By the method, it is asked to write them and to end. Then the image is
written, with ckpt-run but without the program. ckpt-run starts the program again by the method's restart command when the hook that asked
is gone: at once if the job continues, or after the restart of a job that was held, on whatever node that is.

Another one is kept, and is in the image: ckpt-run runs one command before that, and another one when the hook is gone.
"""
import argparse
import contextlib
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
"""Variable of the method's commands: the program's pid."""
EVENT = "CKPT_RUN_EVENT"
"""Variable of the command after a checkpoint: "continue", or "restart" if the job was restored."""
PARENT = "CKPT_RUN_PARENT"
"""Variable of the program: ckpt-run's own pid."""
_MORE_PROCESSES = "end other processes, or raise their limit (ulimit -u)"
"""What to do if no process can be started."""
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
        self.own = processes.get_mark()
        self.command: "int | None" = None  # pid of the command that the method has for now
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

    def is_restored(self) -> bool:
        """Whether we were restored from an image since: then we have started later than we had, or on another node."""
        return self.boot != processes.read_boot_id() or self.own != processes.get_mark()

    def answer(self, **facts: "Any") -> None:
        """Answer for good, once."""
        if not self.answered:
            channel.answer(dict(facts, id=self.id))
        self.answered = True


def _start(arguments: "list[str]", **variables: "int | str") -> int:
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
            program = self._start_program(arguments)
            if methods.keeps_program(self._method):
                return Keeper(program, self._name, self._method).supervise()
            status = self._supervise(program)
            request = self._request
            if request is None or not self._has_written(request, status):
                return status
            self._end_remainder()
            request.answer(ended=True)
            self._wait_for_hook(request)
            arguments = methods.format_restart(self._method, self._command)

    @staticmethod
    def _start_program(arguments: "list[str]") -> int:
        """Start the program as soon as the user may have another process: it may have been ended for a checkpoint."""
        while True:
            try:
                return _start(arguments, **{PARENT: os.getpid()})
            except OSError:
                time.sleep(_PAUSE)

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
            return
        try:
            request.command = _start(["/bin/sh", "-c", self._method.checkpoint], **{PROGRAM: program})
        except OSError as error:
            request.answer(reason="the checkpoint command of %s cannot be started (%s)" % (self._name, error.strerror),
                           advice=_MORE_PROCESSES)
            self._request = None

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


class Keeper:
    """Keeps a program (pid) that is in the image, and runs the method's commands before and after.

    :param name: the program's
    """

    def __init__(self, program: int, name: str, method: methods.Method) -> None:
        self._program, self._name, self._method = program, name, method
        self._request: "_Request | None" = None
        self._after: "tuple[int, float] | None" = None  # pid of the command after a checkpoint, and until when it may run
        self._watched = supervisor.WATCHED | {channel.BELL}

    def supervise(self) -> int:
        """Wait for the program, forward signals, handle requests; return its wait status."""
        while True:
            ended = _collect()
            if self._program in ended:
                return ended[self._program]
            self._note_commands(ended)
            for new in _Request.read_all(self._method):
                self._handle(new)
            self._do_what_is_due()
            info = signal.sigtimedwait(self._watched, _PAUSE) if self._request else signal.sigwaitinfo(self._watched)
            if info is not None and info.si_signo in supervisor.FORWARDED and not supervisor.is_from_mom(info.si_pid):
                _kill(self._program, info.si_signo)

    def _handle(self, request: _Request) -> None:
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
            self._refuse(request, "cannot be started (%s)" % error.strerror, _MORE_PROCESSES)

    def _start(self, command: str, **variables: str) -> int:
        return _start(["/bin/sh", "-c", command], **{PROGRAM: self._program}, **variables)

    def _note_commands(self, ended: "dict[int, int]") -> None:
        """Note which commands have ended (wait statuses by pid)."""
        request = self._request
        if request and not request.answered and request.command in ended:
            status = ended[request.command]
            if status:
                self._refuse(request, "ended " + _describe(status), "look into its output")
            else:
                request.answer(kept=True)
        if self._after and self._after[0] in ended:
            status = ended[self._after[0]]
            if status:
                with contextlib.suppress(OSError):  # a full disk must not end the program's parent
                    os.write(2, os.fsencode("ckpt-run: the command after a checkpoint of %s ended %s\n" % (self._name, _describe(status))))
            self._request = self._after = None

    def _refuse(self, request: _Request, reason: str, advice: str) -> None:
        request.answer(reason="the command before a checkpoint of %s %s" % (self._name, reason), advice=advice)
        self._continue(request)

    def _continue(self, request: _Request) -> None:
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
                _kill_tree(self._after[0])
        elif request and not request.answered:
            if now > request.deadline and request.command:
                _kill_tree(request.command)
                self._refuse(request, "took longer than %d seconds and was killed" % self._method.seconds,
                             "allow it more time by ckpt-run --seconds")
        elif request and not request.is_open():
            self._continue(request)


def _kill_tree(pid: int) -> None:
    """Kill a child of ours that was not waited for, and what it has started."""
    child = processes.read_process(pid)
    processes.signal_processes(processes.list_family(child) if child else [], signal.SIGKILL)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _parse(argv: "list[str]") -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ckpt-run", usage="ckpt-run [option ...] -- PROGRAM [ARGUMENT ...]",
        description="Run a program that writes restart files of its own, so that its job can be checkpointed; or one that is to be "
                    "prepared for the job's checkpoints, and is in their images.")
    parser.add_argument("--method", metavar="NAME", help="how it is asked for them and continues (default: rerun, which sends SIGTERM and "
                        "starts the same command again; keep with --before or --after); ckpt-run --list shows all")
    parser.add_argument("--list", action="store_true", help="print the methods of this node, and exit")
    parser.add_argument("--signal", metavar="NAME", help="send this signal, for instance TERM, to have it write its files and end")
    parser.add_argument("--checkpoint", metavar="COMMAND", help="run this shell command instead; $%s is the program's process id" % PROGRAM)
    parser.add_argument("--restart", metavar="COMMAND", help="continue by this shell command; {command} stands for the program with its "
                        "arguments. With variables, quotes and the like, begin what is to be asked for checkpoints with exec")
    parser.add_argument("--file", metavar="PATH", help="what it has written when it ends; otherwise it ended by itself")
    parser.add_argument("--before", metavar="COMMAND", help="keep the program, and run this shell command before a checkpoint")
    parser.add_argument("--after", metavar="COMMAND", help="run this shell command when it continues after that; $%s is continue, or "
                        "restart if the job was restored" % EVENT)
    parser.add_argument("--seconds", metavar="NUMBER", type=int, help="how long it, or each of these two commands, may take (default: 600)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="PROGRAM", help="the program and its arguments, after --")
    return parser.parse_args(argv)


def choose_method(arguments: argparse.Namespace, known: "dict[str, dict]") -> methods.Method:
    """Return the Method of a command line.

    :param known: the methods of this node, by name
    :raises HookError: USAGE
    """
    if arguments.method is None:
        arguments.method = "keep" if arguments.before or arguments.after else "rerun"
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
            method = methods.build_method(value)
            parts = dict(method._asdict(), **{"restart": ""} if methods.keeps_program(method) else {}).items()
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
    channel.set_name(channel.KEEPS if methods.keeps_program(method) else channel.ENDS)
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
