"""Whether pbs_server will hear of a hold, on a pbs_mom without the patch hold-told.

There pbs_mom tells pbs_server once that a job was held, when the checkpoint hook has ended. Is the server away at that
moment, the held job is over for it, and its image unknown. So the hook asks before it ends the job; that leaves the moment
between the two.
"""
import os
import time

from ..errors import HookError, NO_SERVER
from ..system.command import run
from ..torque import contract
from . import failed_restart

PATIENCE = 60
"""How long a job stands still for a pbs_server that does not answer (seconds)."""

PAUSE = 2
"""How long to wait before asking again (seconds)."""


class Unheard(HookError):
    """pbs_server does not answer, so the job must not end."""


def _answer(found):
    """Return what pbs_server said against a question (str), None when it answered."""
    try:
        status, said = run([os.path.join(found, "qstat"), "-B"], PATIENCE)
    except HookError as error:
        return error.sentence
    return None if status == 0 else " ".join(said.split())


def _wait(found, seconds):
    """Ask until pbs_server answers, or so long; return what the last answer was (str), None for a good one."""
    deadline = time.monotonic() + seconds
    said = _answer(found)
    while said is not None and time.monotonic() < deadline:
        time.sleep(PAUSE)
        said = _answer(found)
    return said


def commands():
    """Return the directory of TORQUE's commands (str) where pbs_mom is one that tells once and they work on this node, else None.

    To be asked when the hold begins: the server that sent it is there, so what does not work then is the commands (no trqauthd, say).
    """
    found = None if contract.REPEATED in os.environ else failed_restart.find_commands()
    return found if found and _answer(found) is None else None


def insist(found):
    """Make sure, before a held job is ended, that pbs_server will hear of it.

    :param found: what commands() returned
    :raises Unheard: NO_SERVER
    """
    said = _wait(found, PATIENCE) if found else None
    if said is not None:
        raise Unheard(NO_SERVER, "pbs_server does not answer (%s), and this pbs_mom would tell it only once that the job is held; the "
                      "image is kept; the job runs on; hold it again when pbs_server answers" % said)


def wait(found, seconds):
    """Wait, while the job runs, for a pbs_server that takes the hold away again: that, too, pbs_mom asks for once.

    :param found: what commands() returned
    :param seconds: how long at most (int)
    """
    _wait(found, seconds)
