# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the playbook validate.yml tries: the classes of nodes, the path of each job, and what its report is about."""
from __future__ import annotations

import re

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.engines import registry
from ansible_collections.ckpt.torque.plugins.module_utils.validation import preflight

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Mapping

LOST = "the host could not be reached or the module failed; see the output of ansible-playbook"
NOT_TRIED = "level L2 failed; fix that first"
DISABLED = "not proven: torque_enabled is false, so that no job was submitted"
LIMITED = "--limit leaves out the server %s"


def validation_stores(hostvars: "Mapping[str, Mapping]", nodes: "list[str]") -> "dict[str, str]":
    """Return the store of each node, "path id".

    :param hostvars: the variables of each host
    :param nodes: names of the compute nodes
    """
    return {node: "%s %s" % (hostvars[node].get("checkpoint_store_path", "/shared/ckpt"),
                             hostvars[node].get("checkpoint_store_id", "default")) for node in nodes}


def validation_classes(hostvars: "Mapping[str, Mapping]", nodes: "list[str]") -> "list[list[str]]":
    """Return the classes of nodes between which jobs move.

    A class has one store and one engine, and its nodes are alike for that engine. A node without a result of level L1 is in none.

    :param hostvars: the variables of each host, among them __validate_engine and __validate_node_engine
    :param nodes: names of the compute nodes
    """
    return _group_nodes(hostvars, [node for node in nodes if "level" in hostvars[node].get("__validate_engine", {})])


def _group_nodes(hostvars: "Mapping[str, Mapping]", nodes: "list[str]") -> "list[list[str]]":
    stores = validation_stores(hostvars, nodes)
    classes: "list[list[str]]" = []
    for node in nodes:
        info = hostvars[node]["__validate_node_engine"]
        for members in classes:
            if stores[members[0]] == stores[node] and _are_alike(hostvars[members[0]]["__validate_node_engine"], info):
                members.append(node)
                break
        else:
            classes.append([node])
    return classes


def validation_preflight(hostvars: "Mapping[str, Mapping]", hosts: "list[str]", clock_seconds: "float | str" = 60) -> "list[dict]":
    """Return the results of level L0: one for each fault of a node, or one for a node without any.

    :param hostvars: the variables of each host, among them __validate_node_engine and __validate_preflight
    :param hosts: names of the compute nodes of this run
    :param clock_seconds: by how many seconds clocks may differ
    """
    known = {host: {"engine": hostvars[host]["__validate_node_engine"], "state": hostvars[host]["__validate_preflight"]} for host in hosts
             if "engine" in hostvars[host].get("__validate_node_engine", {}) and "hooks" in hostvars[host].get("__validate_preflight", {})}
    faults = preflight.find_faults(known, _group_nodes(hostvars, list(known)), float(clock_seconds))
    results = []
    for host in hosts:
        sentences = faults[host] if host in faults else _list_errors(hostvars[host])
        if sentences is None:
            results.append({"level": "L0", "nodes": [host], "passed": None, "cause": LOST})
        else:
            results += [{"level": "L0", "nodes": [host], "passed": not sentence, "cause": sentence and "%s: %s" % (host, sentence)}
                        for sentence in sentences or [""]]
    return results


def _list_errors(variables: "Mapping") -> "list[str] | None":
    """Return with what engine_info or preflight_info failed on a host, None if they were not run."""
    errors = [variables.get(name, {}).get("msg") for name in ("__validate_node_engine", "__validate_preflight")]
    sentences = [re.sub(r"^(Task failed: )?([^ :]+: )?", "", error) for error in errors if error]
    return sentences or None


def _are_alike(one: dict, other: dict) -> bool:
    """Return whether the engine of two nodes restarts images of either on the other, by what engine_info returned."""
    entry = registry.find_entry(one["engine"])
    return one["engine"] == other["engine"] and entry is not None and not entry.load().find_difference(one["node"], other["node"])


def validation_nodes(hostvars: "Mapping[str, Mapping]", hosts: "list[str]", classes: "list[list[str]]") -> "list[dict]":
    """Return what a report tells of the compute nodes: name, class (a number from 1), store, kernel.

    :param hostvars: the variables of each host
    :param hosts: names of the compute nodes of this run
    :param classes: what validation_classes returned
    """
    numbers = {node: number for number, members in enumerate(classes, 1) for node in members}
    stores, nodes = validation_stores(hostvars, hosts), []
    for host in hosts:
        node = {"name": host, "store": stores[host], "kernel": hostvars[host].get("__validate_node_engine", {}).get("kernel", "")}
        nodes.append(dict(node, **{"class": numbers[host]} if host in numbers else {}))
    return nodes


def validation_paths(classes: "list[list[str]]") -> "list[list[str]]":
    """Return a path for each class: twice over its first two nodes, back and forth."""
    return [nodes[:2] * 2 for nodes in classes]


def validation_trips(paths: "list[list[str]]", classes: "list[list[str]]", refusals: bool = True) -> "list[list[dict]]":
    """Return the trips of level L2 (lists of dicts with node and steps).

    One trip for each path; then, for each two classes, one of a job that a node of the other class must refuse.

    :param paths: names of nodes in the order in which a job visits them
    :param classes: what validation_classes returned
    :param refusals: whether to try what must be refused
    """
    trips = []
    for path in paths:
        last = len(path) - 1
        trips.append([{"node": node, "steps": (["restart"] if number else ["run", "continue"]) + ["finish" if number == last else "hold"]}
                      for number, node in enumerate(path)])
    for nodes in classes if refusals else ():
        trips += [[{"node": nodes[0], "steps": ["run", "hold"]}, {"node": others[0], "steps": ["refused"]},
                   {"node": nodes[0], "steps": ["restart", "finish"]}] for others in classes if others != nodes]
    return trips


def validation_jobs(paths: "list[list[str]]", cases: "list[str]") -> "list[dict]":
    """Return the jobs of level L3 (path and case): each case on each path.

    :param paths: names of nodes; without any path each case is planned once, with an empty one
    :param cases: names of cases
    """
    return [{"path": path, "case": case} for path in paths or [[]] for case in cases]


def validation_results(hostvars: "Mapping[str, Mapping]", hosts: "list[str]", hooks: "list[dict]", server: str, planned: int,
                       enabled: bool = True, limited: bool = False, looked: "list[dict] | None" = None) -> "list[dict]":
    """Return the results that the report is about, with one for whatever has none of its own.

    :param hostvars: the variables of each host: __validate_engine, __validate_astray, on the server __validate_jobs
    :param hosts: names of the compute nodes of this run
    :param hooks: results of level L2
    :param server: name of the server's host; empty when there is none
    :param planned: number of jobs that were planned
    :param enabled: whether level L3 was wanted
    :param limited: whether --limit leaves out the server
    :param looked: results of level L0
    """
    results = (looked or []) + [dict(_given(hostvars[host].get("__validate_engine", {}), "L1", host), nodes=[host]) for host in hosts]
    results += [hostvars[host]["__validate_astray"] for host in hosts if "__validate_astray" in hostvars[host]]
    results += hooks
    if not enabled:
        results.append(_not_run(DISABLED))
    elif server and limited:
        results.append(_not_run(LIMITED % server))
    elif server:
        jobs = list(hostvars[server].get("__validate_jobs", []))
        for job in jobs + ([{}] if len(jobs) < planned else []):
            skipped = "level" not in job and job.get("skipped")
            results.append(_not_run(NOT_TRIED) if skipped else _given(job, "L3", server))
    return results


def validation_steps(phases: "list[dict]") -> "list[str]":
    """Return a line for each step of a job, for the terminal.

    :param phases: of job_roundtrip: "step", "node", "seconds", "counter", and "engine_seconds" where the engine was used
    """
    return ["%-14s %-12s %8.2f s, engine %s s, counter %d" % (
        phase["step"], phase["node"], phase["seconds"],
        "%.3f" % phase["engine_seconds"] if phase.get("engine_seconds") is not None else "-", phase["counter"]) for phase in phases]


def _given(result: dict, level: str, host: str) -> dict:
    """Return a result as it is, or that of a host that could not be reached or whose module failed."""
    return result if "level" in result else {"level": level, "passed": False, "cause": LOST, "nodes": [host]}


def _not_run(cause: str) -> dict:
    return {"level": "L3", "passed": None, "nodes": [], "cause": cause}


class FilterModule:

    def filters(self) -> "dict[str, Callable]":
        return {function.__name__: function for function in (
            validation_stores, validation_classes, validation_nodes, validation_paths, validation_trips, validation_jobs,
            validation_preflight, validation_results, validation_steps)}
