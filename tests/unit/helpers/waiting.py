"""Waiting for what should happen soon."""
import time

LIMIT = 30
"""Seconds after which something that should have happened is taken for hung."""


def wait_until(condition):
    """Wait until condition() is true; return its value."""
    deadline = time.time() + LIMIT
    while time.time() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.002)
    raise AssertionError("this did not happen within %d seconds" % LIMIT)
