# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the nodes of a job's path have room for it."""

from ..torque.commands import CommandError
from ..torque_ckpt.system.waiting import wait_until
from .case import NotPossibleError

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable
    from ..torque.nodes import Node

PAUSE = 0.1
"""Between two looks at the nodes, in seconds."""

BUSY = {"job-exclusive": "has no free slot", "busy": "has too much load for another job", "offline": "is offline"}
"""States of a node on which no job starts, though nothing is wrong with it, and the words for them."""

PATIENCE = 10
"""How long a slot that the job has just left may take to be free, in seconds."""


def find_busy_node(read_node: "Callable[[str], Node | None]", nodes: "list[str]") -> str:
    """Return which of the nodes takes no job now and why, empty if all of them do; what pbsnodes does not tell is no reason."""
    for node in nodes:
        try:
            known = read_node(node)
        except CommandError:
            continue
        for state in known.states if known else ():
            if state in BUSY:
                return "%s %s" % (node, BUSY[state])
    return ""


def check_room(read_node: "Callable[[str], Node | None]", nodes: "list[str]", timeout: int) -> None:
    """Check that the nodes of a job take it: on a site with jobs that is nobody's fault.

    :raises NotPossibleError: when one of them does not
    """
    busy = [""]

    def have_room() -> bool:
        busy[0] = find_busy_node(read_node, nodes)
        return not busy[0]

    if not wait_until(have_room, min(PATIENCE, timeout), PAUSE):
        raise NotPossibleError(busy[0])
