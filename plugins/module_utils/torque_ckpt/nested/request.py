"""What a checkpoint does about programs that ckpt-run has started: ask it for each, and wait until they have ended or are prepared."""
import os
import time

from ..errors import HookError, TEMPORARY, quote_text
from ..system import processes
from . import channel

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable

_PATIENCE = 15
"""How long ckpt-run may take for its first answer (seconds)."""
_PAUSE = 0.02


def find_runners(pids: "list[int]") -> "list[processes.Process]":
    """Return those of these processes that are called as ckpt-run is."""
    known = filter(None, map(processes.read_process, pids))
    named = [process for process in known if process.name in channel.NAMES and process.state not in "ZX"]
    return [process for process in named if process.ppid not in {other.pid for other in named}]  # a child that is about to be the program


def _ends_program(runner: processes.Process) -> bool:
    return runner.name == channel.ENDS


def any_program_ends(runners: "list[processes.Process]") -> bool:
    """Return whether there is one among these whose program ends for a checkpoint."""
    return any(map(_ends_program, runners))


def list_programs(runners: "list[processes.Process]") -> "set[int]":
    """Return the pids of all that these have started and will end, so that it is in no image."""
    return {pid for runner in filter(_ends_program, runners) for pid in processes.list_tree(runner.pid)[1:]}


def _make_error(runner: processes.Process, reason: str, advice: str) -> HookError:
    return HookError(TEMPORARY, "ckpt-run (process %d): %s; the job keeps running; %s" % (runner.pid, reason, advice))


def _read_answer(line: channel.Line, token: str, until: float, latest: float) -> "tuple[bool, float]":
    """Return whether the program has ended or is prepared, and until when to wait for that.

    :param latest: no answer makes the hook wait longer
    :raises HookError: TEMPORARY if it does not end, or cannot be prepared
    """
    for message in line.read_answers():
        if message.get("id") != token:
            continue  # of an earlier request, late
        if message.get("ended") is True or message.get("kept") is True:
            return True, until
        if isinstance(message.get("reason"), str):
            raise _make_error(line.process, quote_text(message["reason"]), quote_text(str(message.get("advice", "look into its output"))))
        if isinstance(message.get("seconds"), int):
            until = min(time.monotonic() + max(message["seconds"], 0) + _PATIENCE, latest)
    if not processes.is_alive(processes.get_mark(line.process)):
        raise _make_error(line.process, "has ended meanwhile", "try again")
    if time.monotonic() > until:
        raise _make_error(line.process, "does not answer", "see whether it or its program is stopped")
    return False, until


def prepare_programs(runners: "list[processes.Process]", hook: "list[int]", limit: int, check: "Callable[[], None]") -> None:
    """As the job's owner: have these ckpt-run prepare the programs that they keep; if check() finds nothing then, have the others end.

    They continue when the hook is gone, also in an image. The parameters are those of ask_runners().

    :raises HookError: what check raises, or as ask_runners()
    """
    ask_runners([runner for runner in runners if not _ends_program(runner)], hook, limit)
    check()
    ask_runners(list(filter(_ends_program, runners)), hook, limit)


def ask_runners(runners: "list[processes.Process]", hook: "list[int]", limit: int) -> None:
    """As the job's owner: have these ckpt-run end or prepare their programs, and wait until all have.

    :param hook: the mark of the hook (processes.get_mark)
    :param limit: how long it waits, and how long the hook may take after that (seconds)
    :raises HookError: TEMPORARY if one does not answer, or its program does not end or cannot be prepared
    """
    token = os.urandom(8).hex()
    message: "dict[str, Any]" = {"id": token, "hook": hook, "boot": processes.read_boot_id(), "seconds": limit}
    lines: "list[channel.Line]" = []
    try:
        for runner in runners:
            try:
                lines.append(channel.Line(runner))
            except OSError:
                raise _make_error(runner, "has not started its program yet", "try again")
        started = time.monotonic()
        for line in lines:
            line.ask(message)
        waiting = dict.fromkeys(lines, started + _PATIENCE)
        while waiting:
            for line, until in list(waiting.items()):
                ended, waiting[line] = _read_answer(line, token, until, started + limit + _PATIENCE)
                if ended:
                    del waiting[line]
            time.sleep(_PAUSE)
    finally:
        for line in lines:
            line.close()
