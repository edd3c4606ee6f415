"""The arguments pbs_mom passes. No other file knows a position.

checkpoint  session_id job_id user group directory name signal depth
restart     session_id job_id user group directory name
run         shell [argument ...]
copy        -rpB source target, as of scp; one of the two is user@host:path

pbs_mom writes an empty value as "-". It builds the checkpoint line in a
1024-byte buffer, so a line that is too long arrives with fewer arguments.
"""
import os
import re
from collections import namedtuple

from ..errors import HookError, USAGE
from . import names

Call = namedtuple("Call", "session_id job_id user group directory name signal depth")
"""What one call asks for.

session_id  int or None: the job's *first* session; a hint, never a proof
job_id      str, e.g. "12.head" or "12[3].head"
user, group str; group may be None
directory   str, absolute: where this job's images live (<dir>/<job_id>.CK)
name        str: this image's name in it
signal      int: 0 continue, 15 hold (None for restart)
depth       int or None: generations to keep (None for restart)
"""

Copy = namedtuple("Copy", "out back account source target directory name")
"""What pbs_mom wants copied.

out, back  bool: whether the target, or the source, is on another host
account    str, "user@host"
source, target  str: as they were given
directory, name str: of the image: 12.head.CK and ckpt.12.head.1290000000
"""

CONTINUE, HOLD = 0, 15

REPEATED = "PBS_HOLD_REPEATED"
"""Variable of the checkpoint hook: this pbs_mom (patch hold-told) reports a hold to pbs_server until that answers."""

STATUS = "PBS_RESTART_STATUS"
"""Variable of the restart hook: the file in which a pbs_mom with the patch restart-status looks, when the hook has ended,
for what became of the restart. "Temporary ..." queues the job again, any other line holds it; it becomes the job's comment."""

COMMENT = "PBS_RESTART_COMMENT"
"""Variable of the restart hook: the file whose line that pbs_mom sends as the comment of the restarted job."""

_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?")
_NUMBER = re.compile(r"[0-9]{1,10}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\[\]-]*")
_REMOTE = re.compile(r"([^@:/]+)@([^:/]+):(/.*)")
_IMAGE = re.compile(r"(?:.*/)?([A-Za-z0-9_.\[\]-]+\.CK)/+(ckpt\.[A-Za-z0-9_.\[\]-]+)")
_DIRECTORY = re.compile(r"(/[A-Za-z0-9_.,:@+=\[\]-]+)+")


def _quote(value: str) -> str:
    return ascii(value if len(value) <= 80 else value[:77] + "...")


def _refuse(hook: str, argument: str, value: str, expected: str) -> None:
    raise HookError(USAGE, "%s: %s %s is not %s; nothing was done" % (hook, argument, _quote(value), expected))


def _check_directory(hook: str, value: str) -> None:
    """Check the directory, the one argument that users and queues choose."""
    if len(value) > 4095 or not _DIRECTORY.fullmatch(value) or {".", ".."}.intersection(value.split("/")):
        raise HookError(USAGE, "%s: directory %s is not an absolute path of plain characters without . and ..; nothing was done; give the "
                        "job or its queue another checkpoint directory" % (hook, _quote(value)))


def _parse_number(hook: str, argument: str, value: str, expected: str) -> "int | None":
    if value == "-":
        return None
    return int(_check_match(hook, argument, value, _NUMBER, expected))


def _check_match(hook: str, argument: str, value: str, pattern: "re.Pattern[str]", expected: str) -> str:
    if len(value) > 255 or not pattern.fullmatch(value):
        _refuse(hook, argument, value, expected)
    return value


def _parse_common(hook: str, argv: "list[str]") -> dict:
    session, job, user, group, directory, name = argv
    _check_directory(hook, directory)
    return {
        "session_id": _parse_number(hook, "session id", session, "a process id"),
        "job_id": _check_match(hook, "job id", job, names.JOB_ID_PATTERN, "a TORQUE job id"),
        "user": _check_match(hook, "user", user, _ACCOUNT, "an account name"),
        "group": None if group == "-" else _check_match(hook, "group", group, _ACCOUNT, "a group name"),
        "directory": directory,
        "name": _check_match(hook, "image name", name, _NAME, "a plain file name"),
    }


def _check_count(hook: str, argv: "list[str]", expected: int, meaning: str) -> None:
    if len(argv) > expected:
        raise HookError(USAGE, "%s: expected %d arguments (%s), got %d: pbs_mom's shell splits names at a space; give the user a group, "
                        "and the job a checkpoint directory, without spaces; nothing was done" % (hook, expected, meaning, len(argv)))
    if len(argv) < expected:
        raise HookError(USAGE, "%s: expected %d arguments (%s), got %d; pbs_mom cuts lines over 1024 bytes, "
                        "so look for an overlong checkpoint directory; nothing was done" % (hook, expected, meaning, len(argv)))


def parse_checkpoint(argv: "list[str]") -> Call:
    """Read the checkpoint hook's arguments (without the program) into a Call."""
    _check_count("checkpoint", argv, 8, "session_id job_id user group directory name signal depth")
    values = _parse_common("checkpoint", argv[:6])
    signal = _parse_number("checkpoint", "signal", argv[6], "0 (continue) or 15 (hold)")
    if signal not in (CONTINUE, HOLD):
        _refuse("checkpoint", "signal", argv[6], "0 (continue) or 15 (hold)")
    return Call(signal=signal, depth=_parse_number("checkpoint", "depth", argv[7], "a number"), **values)


def parse_restart(argv: "list[str]") -> Call:
    """Read the restart hook's arguments (without the program) into a Call."""
    _check_count("restart", argv, 6, "session_id job_id user group directory name")
    return Call(signal=None, depth=None, **_parse_common("restart", argv))


def find_job_id(argv: "list[str]") -> "str | None":
    """Return the job id in a root hook's arguments (with the program), as it is, or None: for the report of a call that may be wrong
    in everything."""
    return argv[2] if len(argv) > 2 else None


def parse_copy(argv: "list[str]") -> "Copy | None":
    """Read the copy hook's arguments (with the program) into a Copy; None when no image is to be copied."""
    source, target = argv[-2:] if len(argv) > 2 else ("", "")
    to_host, from_host = _REMOTE.fullmatch(target), _REMOTE.fullmatch(source)
    remote = to_host or from_host
    image = _IMAGE.fullmatch(remote.group(3)) if remote else None
    if not (remote and image):
        return None
    return Copy(bool(to_host), bool(from_host), "%s@%s" % remote.group(1, 2), source, target, *image.groups())


def parse_run(argv: "list[str]") -> "list[str]":
    """Return the command that the run hook starts: the shell and its arguments."""
    if not argv:
        raise HookError(USAGE, "run: expected a shell and its arguments, got none; the job was not started")
    if not os.path.isabs(argv[0]):
        _refuse("run", "shell", argv[0], "an absolute path")
    return list(argv)
