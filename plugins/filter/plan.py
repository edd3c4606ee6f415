# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the playbook plan.yml reports of each node."""
from __future__ import annotations

import os
import re

from ansible_collections.ckpt.torque.plugins.plugin_utils import pages
from ansible_collections.ckpt.torque.plugins.plugin_utils.plan_page import render_page

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Mapping

RESTARTS = ("pbs_mom is restarted on %s, %s of them at a time; jobs keep running, and without the patch exit-status TORQUE reports exit "
            "status 0 for those that run now")
WHO = "^(Task failed|[^ :]+): "
"""What stands before the sentence in the error of a module or role."""

LOST = {"reached": False, "why": ["it was not checked; see the output of ansible-playbook"], "restarts": False, "warnings": []}


def plan_node(engine: dict, health: "dict | None" = None, hooks: "dict | None" = None, torque: "dict | None" = None,
              mom: "dict | None" = None, config: "dict | None" = None, daemon: "dict | None" = None, engine_plan: "dict | None" = None,
              fault: "str | None" = None) -> dict:
    """Return what a node needs before it can checkpoint and restart.

    reached (bool); why (list of str), empty when the node is ready; restarts (bool), whether site.yml restarts pbs_mom; warnings (list of
    str). The parameters are registered results, of check mode where the task would change something; what was not run is empty.

    :param engine: of engine_info
    :param health: of the hooks' program health
    :param hooks: of the role checkpoint_hooks, checkpoint_hooks_installed
    :param torque: of the role torque_build, torque_build_artifact
    :param mom: of the role torque_mom, torque_mom_written
    :param config: of the role torque_mom, torque_mom_config
    :param daemon: of the role torque_mom, torque_mom_daemon
    :param engine_plan: what the engine's role reports in ENGINE_plan: faults, sentences on what the engine lacks, and warnings
    :param fault: the error with which the roles ended; None when they did not fail
    """
    health, hooks, torque, mom = health or {}, hooks or {}, torque or {}, mom or {}
    config, daemon, engine_plan = config or {}, daemon or {}, engine_plan or {}
    if "engine" not in engine:
        why = [re.sub(WHO, "", engine["msg"])]
    else:
        why = [] if fault is None else [re.sub(WHO, "", fault)]
        why += engine_plan.get("faults", []) + _hooks_faults(hooks, health) + _torque_faults(torque) + _mom_faults(mom, config, daemon)
        why += [fault for fault in _health_faults(health) if fault not in why]
    action = daemon.get("action", "")
    restarts = bool(torque.get("current")) and action != "start" and (
        _is_replaced(torque) or bool(mom.get("changed")) or bool(config.get("restart_required")) or action in ("restart", "renew"))
    return {"reached": not engine.get("unreachable", False), "why": why, "restarts": restarts, "warnings": engine_plan.get("warnings", [])}


def _hooks_faults(hooks: dict, health: dict) -> "list[str]":
    names = [os.path.basename(path) for path in list(hooks.get("written", [])) + list(hooks.get("removed", []))]
    if "checkpoint" in names and health.get("rc", 0) == 2:
        return ["the hooks are not installed"]
    return ["the hooks differ from the collection's (%s)" % (", ".join(names) or "owners or modes")] if hooks.get("changed") else []


def _is_replaced(torque: dict) -> bool:
    """Return whether the artifact in use is not the one that is wanted."""
    return torque.get("current", "") != torque.get("key", "")


def _torque_faults(torque: dict) -> "list[str]":
    if not torque.get("installed", True):
        return ["TORQUE %s is not installed" % torque["key"]]
    return ["TORQUE %s is not the one in use" % torque["key"]] if _is_replaced(torque) else []


def _mom_faults(mom: dict, config: dict, daemon: dict) -> "list[str]":
    faults = ["the unit of pbs_mom differs"] if mom.get("changed") else []
    if mom.get("missing") and not faults:  # a new unit comes with them
        faults.append("directories of pbs_mom are missing: %s" % ", ".join(mom["missing"]))
    if config.get("changed_directives"):
        faults.append("mom_priv/config differs in %s" % ", ".join(config["changed_directives"]))
    if daemon.get("action", "") == "start":
        faults.append("pbs_mom does not run")
    elif daemon.get("newer"):
        faults.append("pbs_mom was started before a change of %s" % ", ".join(daemon["newer"]))
    return faults


def _health_faults(health: dict) -> "list[str]":
    error = re.sub("^ERROR ckpt.torque: ", "", health.get("stdout", ""))
    return [error] if error else []


def plan_nodes(hostvars: "Mapping[str, Mapping]", hosts: "list[str]") -> "dict[str, dict]":
    """Return what plan_node returned for each host; for a host without, that it was not checked.

    :param hostvars: the variables of each host, among them __plan_node
    :param hosts: names of the compute nodes of this run
    """
    return {host: hostvars[host].get("__plan_node", LOST) for host in hosts}


def plan_summary(nodes: "dict[str, dict]", servers: "list[str] | tuple[()]" = ()) -> "dict[str, list[str]]":
    """Return the names of hosts by what is to be done: needed, restarts, not_reached.

    :param nodes: what plan_nodes returned
    :param servers: names of servers that were not reached
    """
    return {"needed": [name for name, node in nodes.items() if node["reached"] and node["why"]],
            "restarts": [name for name, node in nodes.items() if node["restarts"]],
            "not_reached": [name for name, node in nodes.items() if not node["reached"]] + [name for name in servers if name not in nodes]}


def plan_lines(nodes: "dict[str, dict]", serial: "str | int", servers: "list[str] | tuple[()]" = ()) -> "list[str]":
    """Return what plan.yml prints.

    :param nodes: what plan_nodes returned
    :param serial: on how many nodes at a time site.yml restarts pbs_mom
    :param servers: names of servers that were not reached
    """
    lines, summary = [], plan_summary(nodes, servers)
    for name, node in nodes.items():
        sentences = (node["why"] or ["ready"]) + node["warnings"]
        lines.append("%s: %s%s" % (name, "" if node["reached"] else "not reached: ", "; ".join(sentences)))
    lines.append("needed: %s" % (",".join(summary["needed"]) or "nothing"))
    if summary["restarts"]:
        lines.append(RESTARTS % (",".join(summary["restarts"]), serial))
    if summary["not_reached"]:
        lines.append("not reached: %s" % ",".join(summary["not_reached"]))
    return lines


def plan_page(nodes: "dict[str, dict]", serial: "str | int") -> str:
    """Return the page of the report as HTML.

    :param nodes: what plan_nodes returned
    :param serial: on how many nodes at a time site.yml restarts pbs_mom
    """
    restarts = RESTARTS % ("these nodes", serial) if any(node["restarts"] for node in nodes.values()) else ""
    return render_page(nodes, restarts, pages.read_clock(), pages.read_version())


class FilterModule:

    def filters(self) -> "dict[str, Callable]":
        return {function.__name__: function for function in (plan_node, plan_nodes, plan_summary, plan_lines, plan_page)}
