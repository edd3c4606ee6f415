# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which nodes update.yml and rollback.yml change, how many at a time, and what is reported of them."""
from __future__ import annotations

from ansible_collections.ckpt.torque.plugins.filter.drain import drain_names
from ansible_collections.ckpt.torque.plugins.module_utils.torque import nodes as torque_nodes

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Mapping


def update_faults(nodes: object, members: "list[str]", server: str, jobs: str, hosts: "list[str]",
                  variable: str = "update_nodes", tags: "list[str] | tuple[str]" = ("all",)) -> "list[str]":
    """Return what is wrong with the settings of update.yml or rollback.yml, one sentence each.

    :param nodes: update_nodes or rollback_nodes, which must not be empty
    :param members: the hosts of the group torque_mom
    :param server: the host on which nodes are drained, empty if there is none
    :param jobs: update_jobs
    :param hosts: the hosts of the play
    :param variable: the name of that with the nodes
    :param tags: of --tags; all without it
    """
    unknown = [name for name in drain_names(nodes) if name not in members]
    faults = ["%s has %s, but the group torque_mom does not; correct the name, or add the node to the inventory"
              % (variable, ", ".join(unknown))] if unknown else []
    left_out = [name for name in drain_names(nodes) if name in members and name not in hosts]
    if left_out:
        faults.append("--limit leaves out %s, which %s names; run without --limit: no other node is touched"
                      % (", ".join(left_out), variable))
    if variable == "update_nodes" and server and server not in hosts:
        faults.append("--limit leaves out %s, the server, which changes before the nodes; run without --limit, and name the nodes in "
                      "update_nodes" % server)
    if list(tags) != ["all"]:
        faults.append("--tags leaves out the tasks that update nodes; run without --tags, or ckpt.torque.site with them")
    if variable == "rollback_nodes" and not drain_names(nodes):
        faults.append("rollback_nodes names no node; name those to roll back, such as -e rollback_nodes=node1,node2")
    if not server and jobs != "leave":
        faults.append("the inventory has no group torque_server; put the host that runs pbs_server into it, where nodes are drained, or "
                      "set update_jobs to leave, and no node is drained")
    return faults


def update_due(hostvars: "Mapping[str, Mapping]", hosts: "list[str]", pbsnodes: str, reason: str, nodes: object = "",
               server: str = "") -> "list[str]":
    """Return the nodes to update: those that need it, and those that an earlier run left drained.

    A server that is a compute node comes first: its torque-ckpt looks at the images of all nodes.

    :param hostvars: the variables of each host, among them __plan_node
    :param hosts: the hosts of this run
    :param pbsnodes: what pbsnodes printed of all nodes
    :param reason: with which nodes are drained
    :param nodes: update_nodes; empty: all
    :param server: the host on which nodes are drained, empty if there is none
    """
    named = drain_names(nodes)
    marked = [name for name, node in torque_nodes.parse_nodes(pbsnodes).items()
              if torque_nodes.is_ours(node.note, torque_nodes.PREFIX + reason)]
    due = []
    for host in hosts:
        plan = hostvars[host].get("__plan_node", {})
        if plan.get("reached") and (plan["why"] or plan["restarts"] or host in marked) and (not named or host in named):
            due.append(host)
    return sorted(due, key=lambda host: host != server)


def update_batches(nodes: "list[str]", serial: object, watched: bool = True) -> "list[list[str]]":
    """Return the nodes in batches, each with the name of a watch host behind them, which is no node.

    :param nodes: names of the nodes
    :param serial: how many at a time, as Ansible's serial takes it: numbers or shares
    :param watched: whether there are watch hosts
    """
    steps, rest, batches = list(serial) if isinstance(serial, list) else [serial], list(nodes), []  # type: ignore[var-annotated]
    while rest:
        size = _count_hosts(str(steps[min(len(batches), len(steps) - 1)]), len(nodes))
        size = size if size > 0 else len(rest)
        batches.append(rest[:size] + (["update_batch_%d" % (len(batches) + 1)] if watched else []))
        rest = rest[size:]
    return batches


def _count_hosts(share: str, total: int) -> int:
    return int(int(share[:-1]) / 100 * total) or 1 if share.endswith("%") else int(share)


def update_lost(hostvars: "Mapping[str, Mapping]", batch: "list[str]", due: "list[str]") -> "list[str]":
    """Return the nodes of a batch, which has come to its end, that have ended in no way: Ansible has given them up as unreachable.

    :param hostvars: the variables of each host, among them __update_end
    :param batch: of update_batches
    :param due: names of the nodes of all batches
    """
    return [host for host in batch if host in due and "__update_end" not in hostvars[host]]


def update_exceeded(hostvars: "Mapping[str, Mapping]", batch: "list[str]", due: "list[str]", percentage: "str | float") -> bool:
    """Return whether more than this share of the nodes of a batch has failed or was lost.

    :param hostvars: the variables of each host, among them __update_end
    :param batch: of update_batches
    :param due: names of the nodes of all batches
    :param percentage: update_max_fail_percentage
    """
    ends = [hostvars[host].get("__update_end") for host in batch if host in due]
    return 100 * sum(end in ("failed", "lost") for end in ends) > float(percentage) * len(ends)


def update_lines(hostvars: "Mapping[str, Mapping]", hosts: "list[str]", due: "list[str]") -> "list[str]":
    """Return a line for each node.

    :param hostvars: the variables of each host, among them __plan_node, __update_end and __update_left
    :param hosts: the compute nodes of this run
    :param due: of update_due
    """
    lines = []
    for host in hosts:
        values = hostvars[host]
        plan = values.get("__plan_node", {"reached": False, "why": []})
        why, end = "; ".join(plan["why"]), values.get("__update_end")
        if not plan["reached"]:
            outcome = "not reached" + (": " + why if why else "")
        elif host not in due:
            outcome = "left as it is: " + why if why else "ready"
        elif end == "done":
            outcome = "updated" + (": " + why if why else "")
        else:
            outcome = "not updated: " + {"left": str(values.get("__update_left")), "lost": "not reached during the update",
                                         None: "too many nodes failed before"}.get(end, "see the output of ansible-playbook")
        lines.append("%s: %s" % (host, outcome))
    return lines


def update_open(hostvars: "Mapping[str, Mapping]", due: "list[str]", change: str = "update") -> "list[str]":
    """Return what is left to do on the nodes that were to be changed, a sentence for each reason.

    :param hostvars: the variables of each host, among them __update_end
    :param due: names of the nodes
    :param change: update or rollback
    """
    reasons = {"left": "not %s, as their jobs did not end in time" % ("updated" if change == "update" else "rolled back"),
               "failed": "failed", "lost": "not reached during the " + change, None: "not begun, as too many nodes failed"}
    nodes = {end: [host for host in due if hostvars[host].get("__update_end") == end] for end in reasons}
    return ["%s: %s" % (reason, ", ".join(nodes[end])) for end, reason in reasons.items() if nodes[end]]


def update_left(hostvars: "Mapping[str, Mapping]", hosts: "list[str]", absent: "list[str]") -> "list[str]":
    """Return which hosts a further run has to set up that this one could not, a sentence for each reason.

    :param hostvars: the variables of each host, among them __plan_node
    :param hosts: the compute nodes of this run
    :param absent: its other hosts that have failed or were not reached
    """
    lost = [host for host in hosts if not hostvars[host].get("__plan_node", {}).get("reached")]
    return (["not reached: " + ", ".join(lost)] if lost else []) + (["not set up: " + ", ".join(absent)] if absent else [])


class FilterModule:

    def filters(self) -> "dict[str, Callable]":
        return {function.__name__: function for function in (
            update_faults, update_due, update_batches, update_lost, update_exceeded, update_lines, update_open, update_left)}
