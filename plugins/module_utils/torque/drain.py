# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Moving all jobs off nodes that are offline."""

from ..torque_ckpt.system.waiting import wait_until
from .job_attributes import find_obstacle, has_our_hold, is_pinned
from .nodes import Interrupted, NodeError
from .outcomes import build_outcome

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterable
    from .commands import Commands
    from .migration import Migration
    from .nodes import Node, Pbsnodes


def read_nodes(pbsnodes: "Iterable[Pbsnodes]") -> "dict[str, Node]":
    """Return the nodes by their names."""
    return {each.name: each.read() for each in pbsnodes}


def check_offline(nodes: "dict[str, Node]") -> None:
    """Check that nothing new starts on the nodes.

    :raises NodeError: when it may
    """
    free = sorted(name for name, node in nodes.items() if not node.offline)
    if free:
        raise NodeError("%s: not offline, so that jobs would come back; drain it first (ckpt.torque.pbs_node); no job was held"
                        % ", ".join(free))


def predict_outcomes(commands: "Commands", nodes: "dict[str, Node]", held: "dict[str, str]") -> "list[dict]":
    """Return what would become of the jobs on nodes, and of those that an earlier run held."""
    outcomes = []
    for job_id, node in held.items():
        job = commands.read_job(job_id)
        if has_our_hold(job):
            outcomes.append(build_outcome(job_id, node, job, "held", "an earlier drain held it"))
    for name, node_state in nodes.items():
        for job_id in node_state.jobs:
            job = commands.read_job(job_id)
            if job_id in held or job.get("job_state", "C") in "CH" or any(outcome["job"] == job_id for outcome in outcomes):
                continue
            obstacle, request = find_obstacle(job), job.get("Resource_List.nodes", "")
            if obstacle:
                outcomes.append(build_outcome(job_id, name, job, "stays", obstacle))
            elif is_pinned(request, name):
                outcomes.append(build_outcome(job_id, name, job, "queued", "its resource list names %s, for which it would wait" % name))
            else:
                outcomes.append(build_outcome(job_id, name, job, "moved"))
    return outcomes


def empty_nodes(pbsnodes: "list[Pbsnodes]", migration: "Migration", move: bool = True) -> "dict[str, Node]":
    """Move the jobs off nodes that are offline; return the nodes after it.

    :param move: whether to hold jobs; otherwise those of an earlier run are released only
    :raises NodeError: when one is not offline, or on a signal
    """
    nodes = read_nodes(pbsnodes)
    check_offline(nodes)
    while True:  # a job that the scheduler started just before the node was offline may come up later
        new = [(job_id, name) for name, node in nodes.items() for job_id in node.jobs if move and job_id not in migration.outcomes]
        if not new and not migration.list_leftovers():
            return nodes
        migration.move_jobs(new)
        nodes = read_nodes(pbsnodes)


def await_empty_nodes(pbsnodes: "list[Pbsnodes]", migration: "Migration", timeout: int, poll: int) -> "dict[str, Node]":
    """Wait until no job is left on nodes or the time is over; return the nodes after it.

    The outcome of a job that has left by then says so.
    """
    seen: "dict[str, Node]" = {}

    def are_empty() -> bool:
        try:
            seen.update(read_nodes(pbsnodes))
        except Interrupted:
            raise
        except NodeError:
            if not seen:
                raise
        for outcome in migration.outcomes.values():
            if outcome["action"] == "stays" and outcome["node"] in seen and outcome["job"] not in seen[outcome["node"]].jobs:
                outcome.update(action="left", reason="", seconds=round(migration.clock() - migration.started, 1))
        return not any(node.jobs for node in seen.values())

    wait_until(are_empty, timeout, poll, migration.clock, migration.sleep)
    return seen
