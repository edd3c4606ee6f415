# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What became of jobs that were to leave their nodes, in data and in words."""

from ..torque_ckpt.torque.names import get_job_number
from ..torque_ckpt.torque.server import get_owner

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Iterable
    from .nodes import Node


def build_outcome(job_id: str, node: str, job: "dict[str, str]", action: str, reason: str = "", to: str = "",
                  seconds: "float | None" = None) -> dict:
    """Return what became of a job (its attributes) on a node.

    :param action: moved, queued or held (it is off the node), left (by itself), stays, or unreleased (it may still have our hold)
    :param to: the node on which it continues, if moved, or several with plus signs between
    :param seconds: from the request until it was off the node
    """
    return {"job": job_id, "owner": get_owner(job), "node": node, "action": action, "reason": reason,
            "to": to, "seconds": None if seconds is None else round(seconds, 1)}


def describe_outcome(outcome: dict, check: bool = False) -> str:
    """Return a line on what became of a job, in check mode on what would."""
    off = "off %(node)s" % outcome
    if outcome["seconds"] is not None:
        off += " after %(seconds).1f seconds" % outcome
    ends = {"moved": "moved from %(node)s to %(to)s, " + off, "queued": off + ", queued: %(reason)s", "held": off + ", held: %(reason)s",
            "left": off + " by itself", "stays": "stays on %(node)s: %(reason)s", "unreleased": "is still held: %(reason)s"}
    if check:
        ends.update(moved="would be held and released, to start on another node", queued="would be held and released; %(reason)s",
                    held="would be released: %(reason)s")
    return ("%(job)s (%(owner)s): " + ends[outcome["action"]]) % outcome


def describe_node(name: str, node: "Node") -> str:
    """Return a line on a node after its jobs were moved."""
    mark = "offline (%s)" % (node.note or "without a note") if node.offline else "not offline"
    return "%s: %s, %s" % (name, mark, "still on it: %s" % ", ".join(node.jobs) if node.jobs else "no jobs")


def describe_rest(nodes: "dict[str, Node]") -> str:
    """Return a sentence on the nodes after their jobs were moved."""
    busy = ["%s (%s)" % (name, ", ".join(node.jobs)) for name, node in sorted(nodes.items()) if node.jobs]
    return "jobs are still on %s" % ", ".join(busy) if busy else "no job is left on %s" % (", ".join(sorted(nodes)) or "any node")


def build_answer(nodes: "dict[str, Node]", outcomes: "Iterable[dict]", changed: bool, check: bool = False) -> "dict[str, Any]":
    """Return the module's answer."""
    outcomes = sorted(outcomes, key=lambda outcome: (outcome["node"], int(get_job_number(outcome["job"])), outcome["job"]))
    lines = [describe_outcome(outcome, check) for outcome in outcomes] + ([] if check else [
        describe_node(name, node) for name, node in sorted(nodes.items())])
    return {"changed": changed, "jobs": outcomes, "nodes": [dict(node._asdict(), name=name) for name, node in sorted(nodes.items())],
            "lines": lines, "msg": describe_rest(nodes)}
