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
import stat
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
"""Variable of the program and of the method's commands: ckpt-run's own pid."""
_MORE_PROCESSES = "end other processes, or raise their limit (ulimit -u)"
"""What to do if no process can be started."""
_PAUSE = 0.2
"""How often ckpt-run looks whether the hook is gone (seconds)."""
_GRACE = 5
"""How long (seconds) what a program has left behind may take to end after SIGTERM, and a program whose checkpoint command has failed."""
_HARMLESS = {signal.SIGWINCH, signal.SIGTSTP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF}
"""What asks nobody to end: it does not end ckpt-run while there is no program to send it to."""


class _Request:
    """A request for a checkpoint.

    :param message: from the hook: "id" (str), "hook" ([pid, start]), "boot" (str), "seconds" (int: how long the hook may take)
    """

    def __init__(self, message: dict, method: methods.Method) -> None:
        self.id, self.hook, self.boot = str(message["id"]), [int(number) for number in message["hook"]], str(message["boot"])
        now = time.monotonic()
        self.deadline = now + method.seconds
        self.until = self.deadline + method.seconds  # an end of the program counts as one for this request
        self.latest = now + method.seconds + int(message["seconds"])
        self.own = processes.get_mark()
        self.command: "int | None" = None  # pid of the command that the method has for now
        self.failure = ""  # of that command
        self.answered = False

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
        """Whether the hook that asked is still at work."""
        return self.boot == processes.read_boot_id() and time.monotonic() <= self.latest and processes.is_alive(self.hook)

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
        self._request: "_Request | None" = None
        self._first: "tuple[float, tuple | None]" = (0, None)  # when the program was asked first since its start, and its file at that time
        self._handling: "list[list[int]]" = []  # marks of what handles the method's signal, which the program has not done

    def run(self) -> int:
        """Run the program until it has ended by itself; return its wait status."""
        arguments, start_of_input = methods.format_command(self._method.start, self._command), _find_start_of_input()
        while True:
            self._request, self._first, self._handling = None, (0, None), []
            program = self._start_program(arguments)
            if methods.keeps_program(self._method):
                return Keeper(program, self._name, self._method).supervise()
            status = self._supervise(program)
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

    @staticmethod
    def _start_program(arguments: "list[str]") -> int:
        """Start the program as soon as the user may have another process: it may have been ended for a checkpoint."""
        while True:
            try:
                return _start(arguments)
            except OSError:
                time.sleep(_PAUSE)

    def _supervise(self, program: int) -> int:
        """Wait for the program (pid), forward signals, handle requests; return its wait status."""
        status: "int | None" = None
        while True:
            ended = _collect()
            if program in ended:
                status = ended[program]
                self._pass_on(status)
            self._note_command(ended, status is not None)
            if status is not None and not any(map(processes.is_alive, self._handling)):
                return status
            running = program if status is None else None
            for new in _Request.read_all(self._method):
                self._handle(new, running)
            self._wait(running)

    def _wait(self, program: "int | None") -> None:
        """Wait for what happens next; forward a signal, and answer a request whose time is over."""
        request = self._request if self._request is not None and not self._request.answered else None
        limit = max(0, request.deadline - time.monotonic()) if request is not None else None
        if self._handling:  # they may be children of others
            limit = _PAUSE if limit is None else min(limit, _PAUSE)
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
            _kill(program, number)
        for mark in self._handling:
            processes.send_signal(mark, number)

    def _is_by_signal(self, status: int) -> bool:
        """Whether a program with this wait status was ended by the method's signal."""
        return bool(self._signal) and _get_signal(status) == self._signal

    def _is_by_our_signal(self, request: _Request, status: int) -> bool:
        """Whether it was that of this request, and not, say, the one by which qdel ends the job long after."""
        return self._is_by_signal(status) and time.monotonic() <= request.until

    def _pass_on(self, status: int) -> None:
        """Send the method's signal to what handles it, if that has ended the program: a script that had started the real one, say."""
        if self._request is not None and self._is_by_our_signal(self._request, status):
            family = processes.list_family(processes.read_self())[1:]
            self._handling = [processes.get_mark(process) for process in family if processes.catches(process, self._signal)]
            self._send(None, self._signal)

    def _handle(self, request: _Request, program: "int | None") -> None:
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
            request.command = _start(["/bin/sh", "-c", self._method.checkpoint], **{PROGRAM: program or 0})
        except OSError as error:
            request.answer(reason="the checkpoint command of %s cannot be started (%s)" % (self._name, error.strerror),
                           advice=_MORE_PROCESSES)
            self._request = None

    def _note_command(self, ended: "dict[int, int]", program_ended: bool) -> None:
        """Answer the request if its checkpoint command is among those that have ended (pid and wait status), and failed."""
        request = self._request
        if request is None or request.command not in ended:
            return
        status, request.command = ended[request.command], None
        if status:
            request.failure = "the checkpoint command of %s ended %s" % (self._name, _describe(status))
            if not program_ended:  # which may be about to end all the same
                request.until = time.monotonic() + _GRACE
                request.answer(reason=request.failure)

    def _await_command(self, request: _Request) -> None:
        """Wait until the checkpoint command has ended, too."""
        while request.command is not None and time.monotonic() < request.deadline:
            self._heed(signal.sigtimedwait(self._watched, _PAUSE))
            self._note_command(_collect(), True)
        if request.command is not None:
            request.failure = "the checkpoint command of %s did not end within %d seconds" % (self._name, self._method.seconds)

    def _has_written(self, request: _Request, status: int) -> bool:
        """Whether the program that has ended is to be continued: it ended because of the request, also if that was late."""
        if not self._file:
            return time.monotonic() <= request.until or self._is_by_signal(status)
        now, (moment, before) = _read_file(self._file), self._first
        # By the file server's clock it may seem older than the request; the moment is for file systems with coarse times.
        written = now is not None and (now != before or now[0] >= (moment - 1) * 10**9)
        if not written:
            request.answer(reason="%s ended %s and has not written %s" % (self._name, _describe(status), self._file))
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
                _collect()
            number = signal.SIGKILL
            deadline = time.monotonic() + _GRACE

    def _wait_for_hook(self, request: _Request) -> None:
        """Wait until no hook is at work on the job. A signal that ends programs ends this one, as there is no program to send it to."""
        while request.is_open():
            self._heed(signal.sigtimedwait(self._watched, _PAUSE))
            for request in _Request.read_all(self._method):
                request.answer(ended=True)

    @staticmethod
    def _heed(info: "signal.struct_siginfo | None") -> None:
        """End by a signal that asks to end: there is no program to send it to."""
        if info is not None and info.si_signo in supervisor.FORWARDED - _HARMLESS:
            supervisor.end_as(info.si_signo)


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
    parser.add_argument("--start", metavar="COMMAND", help="start it by this shell command; {command} stands for the program with its arguments")
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
    os.environ[PARENT] = str(os.getpid())
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
