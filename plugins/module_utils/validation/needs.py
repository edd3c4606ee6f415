# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the nodes of a job's path have room for it, and the commands that its program needs."""

import os
import shlex

from ..torque.commands import CommandError, Commands, wait_for_state
from ..torque_ckpt.selftest.roundtrip import RoundTripError
from ..torque_ckpt.system.waiting import wait_until

MYPY = False  # true for the type checker alone
if MYPY:
    from .job import JobRoundTrip

SCRIPT = """\
#!/bin/bash
for name in {names}; do command -v $name > /dev/null || echo $name; done > {report}.new
mv {report}.new {report}
"""
"""The script of a job that reports which commands its node does not have."""

PAUSE = 0.1
"""Between two looks at its report, in seconds."""


BUSY = {"job-exclusive": "has no free slot", "busy": "has too much load for another job", "offline": "is offline"}
"""States of a node on which no job starts, though nothing is wrong with it, and the words for them."""

PATIENCE = 10
"""How long a slot that the job has just left may take to be free, in seconds."""


class NotPossibleError(RoundTripError):
    """A node does not have what the case needs, so nothing can be proven there; the text is the reason."""


def find_busy_node(trip: "JobRoundTrip", nodes: "list[str]") -> str:
    """Return which of the nodes takes no job now and why, empty if all of them do; what pbsnodes does not tell is no reason."""
    for node in nodes:
        try:
            known = trip.read_node(node)
        except CommandError:
            continue
        for state in known.states if known else ():
            if state in BUSY:
                return "%s %s" % (node, BUSY[state])
    return ""


def check_room(trip: "JobRoundTrip", nodes: "list[str]") -> None:
    """Check that the nodes of a job take it: on a site with jobs that is nobody's fault.

    :raises NotPossibleError: when one of them does not
    """
    busy = [""]

    def have_room() -> bool:
        busy[0] = find_busy_node(trip, nodes)
        return not busy[0]

    if not wait_until(have_room, min(PATIENCE, trip.timeout), PAUSE):
        raise NotPossibleError(busy[0])


def probe_node(trip: "JobRoundTrip", node: str) -> None:
    """Have a job see whether a node has the commands that the trip's case needs.

    :raises NotPossibleError: when it has not
    """
    names = trip.case.program.needs
    report, script = "missing." + node, "probe." + node
    check_room(trip, [node])
    report_path, script_path = os.path.join(trip.work, report), os.path.join(trip.work, script)
    trip.create_directory()
    trip.write_file(script, SCRIPT.format(names=" ".join(names), report=shlex.quote(report_path)))
    trip.job_id = trip.commands(trip.user.name, "qsub", "-N", "probe", "-l", "nodes=" + node, "-o", script_path + ".out",
                                "-e", script_path + ".err", *trip.qsub_options + [script_path]).strip()
    own = Commands(trip.commands.directory, trip.commands.timeout, trip.commands.run)  # the states of the result are the other job's
    wait_for_state(own, trip.job_id, "C", trip.timeout)
    trip.job_id = ""
    if not wait_until(lambda: trip.as_user(lambda: os.path.exists(report_path)), trip.timeout, PAUSE):
        raise RoundTripError("the job that looks for %s has left no report" % ", ".join(names))
    missing = trip.read_file(report).split()
    if missing:
        raise NotPossibleError("%s has no %s" % (node, ", ".join(missing)))
