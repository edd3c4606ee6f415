"""The one exception that a hook turns into its sentence and exit code."""
import os

# sysexits(3): the exit code tells pbs_mom's log what kind of failure it was.
USAGE = os.EX_USAGE              # 64 the arguments are not pbs_mom's
DATA = os.EX_DATAERR             # 65 the image is not whole
NO_INPUT = os.EX_NOINPUT         # 66 the image is missing or unreadable
NO_USER = os.EX_NOUSER           # 67 no such user or group on this node
GONE = os.EX_UNAVAILABLE         # 69 the job's processes are not here
NO_SERVER = os.EX_UNAVAILABLE    # 69 pbs_server does not answer (torque-ckpt)
ENGINE = os.EX_SOFTWARE          # 70 the engine failed
SYSTEM = os.EX_OSERR             # 71 the operating system refused
CANNOT_WRITE = os.EX_CANTCREAT   # 73 the image cannot be stored
TEMPORARY = os.EX_TEMPFAIL       # 75 may work later or on another node
REFUSED = os.EX_NOPERM           # 77 not this user's, not in a store of ours
CONFIG = os.EX_CONFIG            # 78 this node's hooks are set up wrongly


class HookError(Exception):
    """A failure that ends the hook.

    :param code: exit code, one of the constants above (int)
    :param sentence: what failed, why, and what to do next (str)
    """

    told = False
    """bool: whether it has been logged and counted."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


LONGEST = 100
"""So much of a text that a job chose is in a sentence at most (characters)."""


def shown(text):
    """Return a text that a job chose (str) as a sentence may hold it: on one line, in ASCII, and cut."""
    found = plain(text[:LONGEST + 1])  # what is longer is not looked at
    return found if len(found) <= LONGEST else found[:LONGEST] + "..."


def plain(name):
    """Return a file's name (str) as a sentence may hold it: on one line, in ASCII."""
    return ascii(name)[1:-1]


def is_temporary(code):
    """Whether another node or another hour may mend a failure with this code (int)."""
    return code in (TEMPORARY, CONFIG)
