"""Timers of timerfd in CRIU's images.

The kernel starts a timer with an interval again when its process has read that it expired. What it says of one that has expired and was
not read is that no time is left, which is also what it says of one that does not run; so CRIU restores a timer that expires never again,
and a program that waits for it waits for ever. Here such a timer gets its interval as the time that is left.

An entry of the image of open files has the timer (images/timerfd.proto of CRIU; read of version 4.2). One that was set to a point of time
is started by CRIU in any case.
"""
from .criu_wire import BYTES, get_number, get_only_value, replace_values

MYPY = False  # true for the type checker alone
if MYPY:
    from .criu_files import OpenFiles

_TIMER = 12
_SET, _SECONDS, _NANOSECONDS, _EACH_SECONDS, _EACH_NANOSECONDS = 6, 7, 8, 9, 10
"""How it was set; the time that is left; its interval."""
_ABSOLUTE = 1
"""The bit that says that it was set to a point of time."""


def _start(entry: bytes) -> bytes:
    """Return the entry of an open file; that of a timer that would stand still with its interval as the time that is left."""
    timer = get_only_value(entry, _TIMER, BYTES)
    if timer is None or get_number(timer, _SET) & _ABSOLUTE or get_number(timer, _SECONDS) or get_number(timer, _NANOSECONDS):
        return entry
    left = {_SECONDS: get_number(timer, _EACH_SECONDS), _NANOSECONDS: get_number(timer, _EACH_NANOSECONDS)}
    return replace_values(entry, {_TIMER: replace_values(timer, left)})


def start_expired(files: "OpenFiles") -> None:
    """Have timers that had expired when the image was written expire again after it is restored.

    :raises Unreadable: when the image is not as CRIU writes it
    """
    files.change(_start)
