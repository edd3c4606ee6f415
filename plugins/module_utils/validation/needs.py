# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the nodes of a job's path have the commands that its program needs."""

import os
import shlex

from ..torque.commands import Commands, wait_for_state
from ..torque_ckpt.selftest.roundtrip import RoundTripError
from ..torque_ckpt.system.waiting import wait_until
from .case import NotPossibleError
from .free_nodes import check_room

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


def probe_node(trip: "JobRoundTrip", node: str) -> None:
    """Have a job see whether a node has the commands that the trip's case needs.

    :raises NotPossibleError: when it has not
    """
    names = trip.case.program.needs
    report, script = "missing." + node, "probe." + node
    check_room(trip.read_node, [node], trip.timeout)
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
