"""Waiting for a condition, on the monotonic clock."""
import time

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, TypeVar
    T = TypeVar("T")


def wait_until(predicate: "Callable[[], T]", seconds: float, step: float = 0.002, clock: "Callable[[], float]" = time.monotonic,
               sleep: "Callable[[float], object]" = time.sleep) -> "T":
    """Call predicate until its result is true or the time is over; return the last result.

    :param seconds: how long; it is called once even with 0
    :param step: pause between two calls, in seconds
    """
    deadline = clock() + seconds
    while True:
        value = predicate()
        if value or clock() >= deadline:
            return value
        sleep(step)
