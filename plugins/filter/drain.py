# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the playbook drain.yml makes of its variables."""
from __future__ import annotations

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable

EXAMPLE = "-e drain_nodes=node17,node18"


def drain_names(nodes: object) -> "list[str]":
    """Return the names in drain_nodes, each once: a list, or a text with commas as it is given with -e."""
    names = nodes.split(",") if isinstance(nodes, str) else nodes if isinstance(nodes, list) else [nodes]
    return list(dict.fromkeys(name for name in (str(name).strip() for name in names) if name))


def drain_faults(names: "list[str]", members: "list[str]", server: str, hosts: "list[str]") -> "list[str]":
    """Return what is wrong with the nodes to drain, one sentence each.

    :param names: of drain_names
    :param members: the hosts of the group torque_mom
    :param server: the host on which the jobs are moved, empty when there is none
    :param hosts: the hosts of the play
    """
    faults = []
    unknown = [name for name in names if name not in members]
    if not names:
        faults.append("drain_nodes names no node; name compute nodes of the group torque_mom, as in %s" % EXAMPLE)
    if unknown:
        faults.append("drain_nodes has %s, but the group torque_mom does not; correct the name, or add the node to the inventory"
                      % ", ".join(unknown))
    if not server:
        faults.append("the inventory has no group torque_server; put the host that runs pbs_server into it, where the jobs are moved")
    elif server not in hosts:
        faults.append("--limit leaves out %s, where the jobs are moved; run without --limit: only the nodes in drain_nodes are drained"
                      % server)
    return faults


class FilterModule:

    def filters(self) -> "dict[str, Callable]":
        return {function.__name__: function for function in (drain_names, drain_faults)}
