# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a case of the round trip of level L3 is; the cases themselves are in cases.py, which knows the round trip."""

import collections

from ..torque_ckpt.selftest.roundtrip import RoundTripError
from . import programs

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Optional, Sequence

Step = collections.namedtuple("Step", "name work")
"""A step of a case: its name in the result's phases (str), and what is called with the JobRoundTrip."""


class Case:
    """What happens to a job beside the moves of its path.

    :param description: of the module's documentation
    :param qsub_words: further words for "qsub -c"; {work} in them is the job's directory
    :param before_submit: steps before the job is submitted, on each node of the path; their work is called with its name, too
    :param on_first_node: steps after the job was submitted
    :param on_each_node: steps after each start of the job
    :param first_hold: what holds the job for the first time, called with the JobRoundTrip; None: as any other time
    :param first_release: what releases the job for the first time, called with the JobRoundTrip and the node; None: as any other time
    :param after_hold: steps after the first hold
    :param before_release: steps before the first release; their work is called with the next node's name, too
    :param after_end: steps after the job has ended
    :param least_nodes: how many nodes the path must have
    :param needs_store: whether this host must see the store of the nodes
    :param program: what the job runs
    :param on_all_nodes: whether the job has all nodes of the path at a time
    :param leaves_node: whether the path must lead to another node first
    :param moves: whether the job leaves its first node
    :param array: whether the job is the only one of an array
    :param disturbs_others: whether no other job may be tried at the same time
    :param crashes: whether the job's node crashes
    :param fills_store: whether the store of the job's node has no free space for a while
    """

    def __init__(self, description: str, qsub_words: "Sequence[str]" = (), before_submit: "Sequence[Step]" = (),
                 on_first_node: "Sequence[Step]" = (), on_each_node: "Sequence[Step]" = (), after_hold: "Sequence[Step]" = (),
                 before_release: "Sequence[Step]" = (), after_end: "Sequence[Step]" = (), least_nodes: int = 1, needs_store: bool = False,
                 program: programs.Program = programs.COUNTER, on_all_nodes: bool = False,
                 leaves_node: bool = False, moves: bool = True, array: bool = False, disturbs_others: bool = False, crashes: bool = False,
                 fills_store: bool = False, first_hold: "Optional[Callable[..., None]]" = None,
                 first_release: "Optional[Callable[..., None]]" = None) -> None:
        self.description = description
        self.qsub_words = qsub_words
        self.before_submit = before_submit
        self.on_first_node, self.on_each_node = on_first_node, on_each_node
        self.after_hold, self.before_release, self.after_end = after_hold, before_release, after_end
        self.least_nodes = least_nodes
        self.needs_store = needs_store
        self.program = program
        self.on_all_nodes = on_all_nodes
        self.leaves_node = leaves_node
        self.moves = moves
        self.array = array
        self.disturbs_others = disturbs_others
        self.crashes = crashes
        self.fills_store = fills_store
        self.first_hold, self.first_release = first_hold, first_release


class NotPossibleError(RoundTripError):
    """A node does not have what the case needs, so nothing can be proven there; the text is the reason."""
