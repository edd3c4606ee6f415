"""The one exception that a hook turns into its sentence and exit code."""
import os

CAUSES: "dict[int, str]" = {}
"""What kind of failure an exit code of a hook means, in one word: the label "cause" of the metrics."""

MEANINGS: "dict[int, str]" = {}
"""What an exit code of torque-ckpt means, in sentences: for its manual page and the documentation."""


def _register_code(code: int, cause: str, meaning: str = "") -> int:
    CAUSES[code] = cause
    if meaning:
        MEANINGS[code] = meaning
    return code


# sysexits(3): the exit code tells pbs_mom's log what kind of failure it was.
# 64 the arguments are not pbs_mom's
USAGE = _register_code(os.EX_USAGE, "arguments", "The arguments are not understood.")
# 65 the image is not whole
DATA = _register_code(os.EX_DATAERR, "image_damaged", "verify: an image is not whole.")
# 66 the image is missing or unreadable
NO_INPUT = _register_code(os.EX_NOINPUT, "image_missing", "There is no such job or image, or it cannot be read.")
# 67 no such user or group on this node
NO_USER = _register_code(os.EX_NOUSER, "account")
# 69 the job's processes are not here; or pbs_server does not answer
GONE = NO_SERVER = _register_code(os.EX_UNAVAILABLE, "job_not_here",
                                  "prune, node-down: pbs_server does not answer; prune has done nothing, and node-down only what it "
                                  "reported. check: the job or process is not on this host.")
# 70 the engine failed
ENGINE = _register_code(os.EX_SOFTWARE, "engine")
# 71 the operating system refused
SYSTEM = _register_code(os.EX_OSERR, "system", "The operating system refused something; prune: something was not removed; node-down: a job "
                        "was not queued again.")
# 73 the image cannot be stored
CANNOT_WRITE = _register_code(os.EX_CANTCREAT, "store")
# 75 may work later or on another node
TEMPORARY = _register_code(os.EX_TEMPFAIL, "temporary", "prune, node-down: another one is at work; try again later. node-down: too many "
                           "nodes are down.")
# 77 not this user's, not in a store of ours
REFUSED = _register_code(os.EX_NOPERM, "refused", "Only root may do that; verify: the image is of another format, or root's hooks of this "
                         "site did not make it.")
# 78 this node's hooks are set up wrongly
CONFIG = _register_code(os.EX_CONFIG, "configuration", "This host is not set up for it (configuration, store not mounted; verify: root has "
                        "no key).")


CARRYING = "connections"
"""The cause (HookError) of a checkpoint that failed because the kernel still carried bytes between the job's processes."""

STORE_CURE = "see to the space, the quota and the rights in the store"
"""What to do if an image cannot be written."""

COPY_CURE = "see to the rights on it, and to the space and the quota in the store"
"""What to do if a file of the job cannot be copied into an image."""

RETURN_CURE = "see to that file system, or restart the job on another node"
"""What to do if a file of the job cannot be put back."""

PRIVATE_CURE = "free some space there, or name another disk of this node in checkpoint_hooks_private_directory"
"""What to do if nothing can be written into a private directory."""

ENGINE_CURE = "see whether torque-ckpt selftest passes on this node (as root)"
"""What to do if an engine failed, and its words are all that is known of it."""

RESTORE_CURE = "restart the job on another node, or " + ENGINE_CURE
"""The same for a restore."""

TIME_CURE = "allow it more time (checkpoint_hooks_engine_timeout)"
"""What to do if an engine or a compressor is too slow."""

DEATH_CURE = "see in journalctl -k whether memory was short, and try again"
"""What to do if a part of a hook was killed."""


class HookError(Exception):
    """A failure that ends the hook.

    :param code: exit code, one of the constants above
    :param sentence: what failed, why, and what to do next
    :param cause: what kind of failure it is, where its code means several (see CAUSES)
    """

    reported = False
    """Whether it has been logged and counted."""

    def __init__(self, code: int, sentence: str, cause: str = "") -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.cause = cause

    @property
    def reason(self) -> str:
        """What failed and why, without what to do: for a sentence that has its own advice."""
        return self.sentence.partition("; ")[0]


LONGEST = 100
"""So much of a text that a job chose is in a sentence at most (characters)."""


def quote_text(text: str) -> str:
    """Return a text that a job chose, quoted for a sentence: on one line, in ASCII, and cut."""
    quoted = quote_name(text[:LONGEST + 1])  # what is longer is not read
    return quoted if len(quoted) <= LONGEST else quoted[:LONGEST] + "..."


def quote_name(name: str) -> str:
    """Return a file's name, quoted for a sentence: on one line, in ASCII."""
    return ascii(name)[1:-1]


def is_temporary(code: int) -> bool:
    """Whether another node or another hour may fix a failure with this code."""
    return code in (TEMPORARY, CONFIG)
