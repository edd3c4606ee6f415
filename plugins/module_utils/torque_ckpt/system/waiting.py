"""Waiting for a condition, on the monotonic clock."""
import time


def wait_until(predicate, seconds, step=0.002, clock=time.monotonic, sleep=time.sleep):
    """Call predicate until its result is true or the time is over; return the last result.

    :param seconds: how long (float); it is called once even with 0
    :param step: pause between two calls, in seconds (float)
    """
    deadline = clock() + seconds
    while True:
        value = predicate()
        if value or clock() >= deadline:
            return value
        sleep(step)
