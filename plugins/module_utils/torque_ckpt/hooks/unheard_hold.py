"""Whether pbs_server will learn of a hold, on a pbs_mom without the patch hold-told.

There pbs_mom reports to pbs_server only once that a job was held, when the checkpoint hook has ended. If the server does not
answer at that moment, it takes the held job for finished and does not know its image. So the hook sends a request before it ends
the job; that leaves the moment between the two. Only where the commands have never answered and do not work now, for another
reason than that the server cannot be reached, it ends the job without an answer: no job could be held there else.
"""
import os
import time

from ..errors import HookError, NO_SERVER
from ..system import rootfiles
from ..torque import contract
from ..torque.commands import PATIENCE, Commands, is_away
from . import caller

PAUSE = 2
"""How long to wait before asking again (seconds)."""


ANSWERED = "server_answered"
"""The file in state_directory that notes that TORQUE's commands have answered on this node."""


class Unheard(HookError):
    """pbs_server does not answer, so the job must not end."""

    def __init__(self, sentence: str) -> None:
        super().__init__(NO_SERVER, sentence, "no_server")


def ask_server(commands: Commands) -> "str | None":
    """Return what pbs_server answered against a question, None when it answered it."""
    try:
        status, output, error = commands.run("qstat", "-B")
    except HookError as failure:
        return failure.reason
    return None if status == 0 else " ".join((output + error).split())


def _wait_for_answer(commands: Commands, seconds: int) -> "str | None":
    """Ask until pbs_server answers, or so long; return what the last answer was, None for a good one."""
    deadline = time.monotonic() + seconds
    fault = ask_server(commands)
    while fault is not None and time.monotonic() < deadline:
        time.sleep(PAUSE)
        fault = ask_server(commands)
    return fault


def find_commands(settings: dict) -> "Commands | None":
    """Return TORQUE's commands where pbs_mom reports only once, else None; also None where they do not work, as without trqauthd.

    To be called when the hold begins. Where the commands have answered before, a failure means that pbs_server is away.

    :param settings: from config.load_settings
    """
    directory = None if contract.REPEATED in os.environ else caller.find_commands()
    if directory is None:
        return None
    commands = Commands(directory, "the job keeps running")
    if os.path.exists(os.path.join(settings["state_directory"], ANSWERED)):
        return commands
    fault = ask_server(commands)
    if fault is None:
        _note_answer(settings)
    return commands if fault is None or is_away(fault) else None


def _note_answer(settings: dict) -> None:
    """Note that TORQUE's commands have answered on this node."""
    try:
        directory = rootfiles.open_directory(settings["state_directory"])
        try:
            rootfiles.replace_file(directory, ANSWERED, "", 0o600)
        finally:
            os.close(directory)
    except OSError:
        pass  # no space, say: the next hold notes it


def check_server(commands: "Commands | None") -> None:
    """Check, before a held job is ended, that pbs_server will learn of it.

    :param commands: what find_commands() returned
    :raises Unheard: NO_SERVER
    """
    fault = _wait_for_answer(commands, PATIENCE) if commands else None
    if fault is not None:
        raise Unheard("pbs_server does not answer (%s), and this pbs_mom would report it only once that the job is held; the "
                      "image is kept; the job keeps running; hold it again when pbs_server answers" % fault)


def wait_for_server(commands: "Commands | None", seconds: int) -> None:
    """Wait, while the job runs, for a pbs_server that takes the hold away again: that, too, pbs_mom asks for once.

    :param commands: what find_commands() returned
    :param seconds: how long at most
    """
    if commands:
        _wait_for_answer(commands, seconds)
