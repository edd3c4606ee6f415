"""The one exception that a hook turns into its sentence and exit code."""
import os

CAUSES = {}
"""What kind of failure an exit code (int) means, in one word (str): the label "cause" of the metrics."""


def _register_code(code, cause):
    CAUSES[code] = cause
    return code


# sysexits(3): the exit code tells pbs_mom's log what kind of failure it was.
USAGE = _register_code(os.EX_USAGE, "arguments")         # 64 the arguments are not pbs_mom's
DATA = _register_code(os.EX_DATAERR, "image_damaged")    # 65 the image is not whole
NO_INPUT = _register_code(os.EX_NOINPUT, "image_missing")  # 66 the image is missing or unreadable
NO_USER = _register_code(os.EX_NOUSER, "account")        # 67 no such user or group on this node
GONE = _register_code(os.EX_UNAVAILABLE, "job_not_here")  # 69 the job's processes are not here
NO_SERVER = os.EX_UNAVAILABLE                   # 69 pbs_server does not answer (torque-ckpt, which counts no failures)
ENGINE = _register_code(os.EX_SOFTWARE, "engine")        # 70 the engine failed
SYSTEM = _register_code(os.EX_OSERR, "system")           # 71 the operating system refused
CANNOT_WRITE = _register_code(os.EX_CANTCREAT, "store")  # 73 the image cannot be stored
TEMPORARY = _register_code(os.EX_TEMPFAIL, "temporary")  # 75 may work later or on another node
REFUSED = _register_code(os.EX_NOPERM, "refused")        # 77 not this user's, not in a store of ours
CONFIG = _register_code(os.EX_CONFIG, "configuration")   # 78 this node's hooks are set up wrongly


class HookError(Exception):
    """A failure that ends the hook.

    :param code: exit code, one of the constants above (int)
    :param sentence: what failed, why, and what to do next (str)
    """

    reported = False
    """bool: whether it has been logged and counted."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


LONGEST = 100
"""So much of a text that a job chose is in a sentence at most (characters)."""


def quote_text(text):
    """Return a text that a job chose (str), quoted for a sentence: on one line, in ASCII, and cut."""
    quoted = quote_name(text[:LONGEST + 1])  # what is longer is not read
    return quoted if len(quoted) <= LONGEST else quoted[:LONGEST] + "..."


def quote_name(name):
    """Return a file's name (str), quoted for a sentence: on one line, in ASCII."""
    return ascii(name)[1:-1]


def is_temporary(code):
    """Whether another node or another hour may fix a failure with this code (int)."""
    return code in (TEMPORARY, CONFIG)
