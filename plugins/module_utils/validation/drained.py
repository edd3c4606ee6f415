# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A job of a round trip of level L3 leaves its first node as it does when that is drained."""

import os

from ..torque import nodes
from ..torque.job_attributes import HOLD
from ..torque_ckpt.selftest.roundtrip import RoundTripError
from .case import NotPossibleError
from .job import hold_job

MYPY = False  # true for the type checker alone
if MYPY:
    from .job import JobRoundTrip

REASON = "validate"
"""The reason in the node's note: a round trip that is killed leaves the node to be released with drain_reason=validate."""


def hold_job_of_drained_node(trip: "JobRoundTrip") -> None:
    """Mark the job's node offline, until it is released elsewhere; hold the job by an operator's hold."""
    name, mark = trip.path[0], nodes.build_note(trip.path[0], REASON)
    pbsnodes = nodes.Pbsnodes(os.path.join(trip.commands.directory, "pbsnodes"), name, trip.commands.run)

    def release_node() -> None:
        try:
            if nodes.is_ours(pbsnodes.read().note, mark):
                pbsnodes.clear()
        except nodes.NodeError as error:
            raise RoundTripError(str(error))

    try:
        act, held_by = nodes.choose_act(name, pbsnodes.read(), mark, True)
        if held_by or act is None:
            raise NotPossibleError("%s is offline already" % name)
        trip.undo.callback(release_node)
        pbsnodes.mark(mark)
    except nodes.NodeError as error:
        raise NotPossibleError(str(error))
    hold_job(trip, "root", "-h", HOLD)


def release_job_of_drained_node(trip: "JobRoundTrip", node: str) -> None:
    """Take the operator's hold off, and see the job continue elsewhere; then take the node into use again."""
    trip.release_job(node, "root", "-h", HOLD)
    states = trip.read_node(trip.path[0])
    if states is None or not states.offline:
        raise RoundTripError("%s was taken into use while the job left it" % trip.path[0])
    trip.undo.close()
