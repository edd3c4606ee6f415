# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the round-trip modules share: their result's shape and watching the workload."""

import time

from .workload import Evidence


class TrialError(Exception):
    """The round trip failed; the text is the cause."""


class Phases(object):
    """Times of the steps, in the order they were done.

    done  list of {"step": str, "seconds": float, ...}
    """

    def __init__(self, done=None):
        self.done = list(done or [])

    def measure(self, step, work, **facts):
        """Run work(), note its step with the time it took and the facts, return its result."""
        started = time.time()
        result = work()
        self.done.append(dict(facts, step=step, seconds=round(time.time() - started, 4)))
        return result


def read(path):
    """Return a file's text (str), empty when it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def evidence(path):
    """Return the Evidence in the output file path; a half-written last line is left out unless the program has ended."""
    text = read(path)
    found = Evidence(text[:text.rfind("\n") + 1])
    return Evidence(text) if found.ended else found


def result(level, nodes, passed, cause, **facts):
    """Return the record (dict) of one round trip, as validation_report takes it.

    :param level: "L1", "L2" or "L3"
    :param nodes: the nodes it touched, in order (list of str)
    :param passed: bool, or None when it was not run
    :param cause: why it failed or was not run (str, empty when it passed)
    """
    return dict(facts, level=level, nodes=nodes, passed=passed, cause=cause)
