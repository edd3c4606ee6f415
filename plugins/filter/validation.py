# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the playbook validate.yml tries: the classes of nodes, the path of each job, and what its report is about."""
from __future__ import annotations

import re

from ansible.errors import AnsibleFilterError
from ansible_collections.ckpt.torque.plugins.module_utils.report import images, preflight
from ansible_collections.ckpt.torque.plugins.module_utils.report.results import LEVELS
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.image import compatibility
from ansible_collections.ckpt.torque.plugins.module_utils.validation import walk
from ansible_collections.ckpt.torque.plugins.module_utils.validation.cases import CASES
from ansible_collections.ckpt.torque.plugins.module_utils.validation.walk import LEFT_OUT, LOST

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Mapping, Sequence

CRASH = "node_crash"
NOT_TRIED = "level L2 failed; fix that first"
DISABLED = "not proven: torque_enabled is false, so that no job was submitted"
LIMITED = "--limit leaves out the server %s"
LOWER = "not proven: validate_level is %s"


def validation_stores(hostvars: "Mapping[str, Mapping]", nodes: "list[str]") -> "dict[str, str]":
    """Return the store of each node, "path id".

    :param hostvars: the variables of each host
    :param nodes: names of the compute nodes
    """
    return {node: "%s %s" % (values.get("checkpoint_store_path", "/shared/ckpt"), values.get("checkpoint_store_id", "default"))
            for node, values in ((node, hostvars[node]) for node in nodes)}


def validation_sharers(hostvars: "Mapping[str, Mapping]", hosts: "list[str]", shared: bool = True, alone: bool = True) -> "dict[str, str]":
    """Return for each host the first of those that have the same store.

    :param hostvars: the variables of each host
    :param hosts: names of compute nodes
    :param shared: whether nodes share stores at all
    :param alone: whether hosts that share their store with no other are among them
    """
    stores = validation_stores(hostvars, hosts) if shared else {host: host for host in hosts}
    members: "dict[str, list[str]]" = {}
    for host, store in stores.items():
        members.setdefault(store, []).append(host)
    return {host: members[store][0] for host, store in stores.items() if alone or len(members[store]) > 1}


def validation_classes(hostvars: "Mapping[str, Mapping]", nodes: "list[str]") -> "list[list[str]]":
    """Return the classes of nodes between which jobs move.

    A class has one store, one engine, one kind of CPU and one C library, and its nodes are alike for that engine. A node without a result
    of level L1 is in none.

    :param hostvars: the variables of each host, among them __validate_engine and __validate_node_engine
    :param nodes: names of the compute nodes
    """
    infos = _read_infos(hostvars, nodes)
    return _group_nodes(validation_stores(hostvars, list(infos)), infos)


def _read_infos(hostvars: "Mapping[str, Mapping]", nodes: "list[str]") -> "dict[str, dict]":
    """Return what engine_info returned of each node that has a result of level L1."""
    infos = {}
    for node in nodes:
        values = hostvars[node]  # Ansible computes all of them each time
        if "level" in values.get("__validate_engine", {}):
            infos[node] = values["__validate_node_engine"]
    return infos


def _group_nodes(stores: "dict[str, str]", infos: "dict[str, dict]") -> "list[list[str]]":
    """Return the classes of nodes, by their stores and by what engine_info returned of each."""
    classes: "list[list[str]]" = []
    for node in infos:
        for members in classes:
            if stores[members[0]] == stores[node] and _are_alike(infos[members[0]], infos[node]):
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
    known = {}
    for host in hosts:
        values = hostvars[host]
        engine, state = values.get("__validate_node_engine", {}), values.get("__validate_preflight", {})
        if "engine" in engine and "hooks" in state:
            known[host] = {"engine": engine, "state": state}
    classes = _group_nodes(validation_stores(hostvars, list(known)), {host: facts["engine"] for host, facts in known.items()})
    faults = preflight.find_faults(known, classes, float(clock_seconds))
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
    """Return with what engine_info or preflight_info failed on a host, None if they were not run or the host did not answer."""
    results = [variables.get(name, {}) for name in ("__validate_node_engine", "__validate_preflight")]
    errors = [result["msg"] for result in results if result.get("msg") and not result.get("unreachable")]
    return [re.sub(r"^(Task failed: )?([^ :]+: )?", "", error) for error in errors] or None


def _are_alike(one: dict, other: dict) -> bool:
    """Return whether each of two nodes restarts images of the other, by what engine_info returned.

    The hooks do not compare C libraries, but no engine maps another one than the job had.
    """
    return one["node"]["libc"] == other["node"]["libc"] and not _refuses(one, other) and not _refuses(other, one)


def _refuses(node: dict, origin: dict) -> bool:
    """Return whether a node refuses images of another one, by what engine_info returned of both."""
    image = dict(origin["node"], engine={"name": origin["engine"]})
    return node["engine"] != origin["engine"] or bool(compatibility.find_incompatibility(image, node["node"]))


def _list_refusals(hostvars: "Mapping[str, Mapping]", classes: "list[list[str]]") -> "list[tuple[str, str]]":
    """Return pairs of nodes, the first ones of their classes, of which the second must refuse a job of the first.

    A newer CPU takes jobs of an older one, and not the other way round.
    """
    firsts = [members[0] for members in classes] if len(classes) > 1 else []
    stores, infos = validation_stores(hostvars, firsts), _read_infos(hostvars, firsts)
    return [(own, other) for own in firsts for other in firsts
            if own != other and (stores[own] != stores[other] or _refuses(infos[other], infos[own]))]


def validation_nodes(hostvars: "Mapping[str, Mapping]", hosts: "list[str]", classes: "list[list[str]]") -> "list[dict]":
    """Return what a report tells of the compute nodes: name, class (a number from 1), store, kernel, libc, and lacks.

    lacks names what CPUs of other classes have and this node's has not, if there is anything.

    :param hostvars: the variables of each host
    :param hosts: names of the compute nodes of this run
    :param classes: what validation_classes returned
    """
    numbers = {node: number for number, members in enumerate(classes, 1) for node in members}
    infos = {host: hostvars[host].get("__validate_node_engine", {}) for host in hosts}
    known = {feature for host in numbers if host in infos for feature in infos[host].get("node", {}).get("cpu", [])}
    stores, nodes = validation_stores(hostvars, hosts), []
    for host, info in infos.items():
        node = {"name": host, "store": stores[host], "kernel": info.get("kernel", "")}
        if host in numbers:
            node.update({"class": numbers[host]}, **{"libc": info["node"]["libc"]} if info.get("node", {}).get("libc") else {})
            lacks = sorted(known.difference(info.get("node", {}).get("cpu", [])))
            node.update({"lacks": "CPU without " + " ".join(lacks)} if lacks else {})
        nodes.append(node)
    return nodes


def validation_images(hostvars: "Mapping[str, Mapping]", hosts: "list[str]") -> "list[dict]":
    """Return what a report has of the images in each store.

    :param hostvars: the variables of each host, among them __validate_images of those that listed their store
    :param hosts: names of the compute nodes of this run
    """
    listed = {host: hostvars[host].get("__validate_images", {}) for host in hosts}
    known = {host: result["stdout"] for host, result in listed.items() if "stdout" in result}
    stores = validation_stores(hostvars, list(known))
    shared = len(set(stores.values())) == len(stores)
    return [images.summarize_images(stores[host] if shared else "%s: %s" % (host, stores[host]), text) for host, text in known.items()]


def validation_plan(hostvars: "Mapping[str, Mapping]", nodes: "list[str]", hosts: "list[str]", cases: "list[str]",
                    path: "list[str] | None" = None, ring: "int | str" = walk.RING, sample: "int | str | None" = None,
                    crash_node: str = "", level: str = "L3") -> dict:
    """Return what is to be tried: classes, paths, left_out (names of nodes), trips and turns of level L2, jobs of level L3.

    :param hostvars: the variables of each host
    :param nodes: names of the compute nodes
    :param hosts: names of the compute nodes of this run
    :param cases: names of the cases of level L3, each for each path, or for the first one if it disturbs other jobs
    :param path: the only path, if there is one; then no other class has to refuse its job
    :param ring: how many nodes a ring has
    :param sample: how many nodes of each class are visited at most; None: all
    :param crash_node: name of the node that is to crash, after all else; empty: none
    :param level: the highest level that is tried; below L2 no node is visited, and none is left out
    """
    if crash_node and crash_node not in hosts:
        raise AnsibleFilterError("validate_crash_node names %s, which is no compute node of this run; no job was submitted" % crash_node)
    classes = validation_classes(hostvars, nodes)
    if level < "L2":
        return {"classes": classes, "paths": [], "trips": [], "turns": [], "left_out": [], "jobs": []}
    most = None if sample is None else int(sample)
    visited = classes if path else [walk.sample_nodes(members, most) for members in classes]
    paths = [path] if path else [ring_path for members in visited for ring_path in walk.cut_rings(members, int(ring))]
    trips = walk.plan_trips(paths, [] if path else _list_refusals(hostvars, visited))
    jobs = [{"path": each, "case": case} for number, each in enumerate(paths or [[]]) for case in cases
            if number == 0 or not CASES[case].disturbs_others]
    jobs += [{"path": [crash_node], "case": CRASH}] if crash_node else []
    return {"classes": classes, "paths": paths, "trips": trips, "turns": walk.plan_turns(trips, hosts),
            "left_out": [node for members, some in zip(classes, visited) for node in members if node not in some],
            "jobs": [dict(job, number=str(number)) for number, job in enumerate(jobs)]}


def validation_leg(plan: dict, turn: int, host: str, hostvars: "Mapping[str, Mapping]") -> dict:
    """Return what a host does in a turn of level L2: node, steps, state and key; empty if nothing.

    :param plan: what validation_plan returned
    :param turn: its number, from 0
    :param host: the host's name
    :param hostvars: the variables of each host, among them __validate_walked
    """
    leg = plan["turns"][turn].get(host)
    before = leg["before"][:1] if leg else []
    return walk.find_leg(leg, {name: hostvars[name].get("__validate_walked", {}) for name in before})


def validation_moves(hostvars: "Mapping[str, Mapping]", plan: dict, hosts: "list[str]") -> dict:
    """Return what became of level L2: results, failed_at (names of nodes), and remains (states of jobs by the host that can remove them).

    :param hostvars: the variables of each host, among them __validate_walked
    :param plan: what validation_plan returned
    :param hosts: names of the hosts that can still do something
    """
    walked = {name: hostvars[name].get("__validate_walked", {}) for name in sorted(set().union(*plan["turns"]))}
    judged = walk.judge_trips(plan["trips"], plan["turns"], walked)
    return {"results": walk.list_moves(plan["paths"], judged) + walk.list_not_proven("L2", plan["left_out"], LEFT_OUT),
            "failed_at": [trip["failed_at"] for trip in judged if trip["failed_at"]],
            "remains": walk.find_remains(plan["trips"], judged, plan["classes"], hosts)}


def validation_rounds(plan: dict, moves: dict, hosts: "list[str]") -> "list[dict[str, dict]]":
    """Return the rounds of level L3: the jobs that run at the same time (path, case, number), each by the host that submits it.

    :param plan: what validation_plan returned
    :param moves: what validation_moves returned
    :param hosts: names of the hosts that can submit jobs
    """
    return walk.assign_jobs([job for job in plan["jobs"] if _is_tried(job, moves)], hosts)


def validation_late(job: dict, budget: "int | str") -> dict:
    """Return the result of a job that was not submitted, because the time was over.

    :param job: of validation_rounds
    :param budget: in seconds
    """
    return walk.describe_late_job(job, int(budget))


def validation_results(hostvars: "Mapping[str, Mapping]", hosts: "list[str]", plan: dict, moves: dict, server: str,
                       enabled: bool = True, limited: bool = False, looked: "list[dict] | None" = None, level: str = "L3") -> "list[dict]":
    """Return the results that the report is about, with one for whatever has none of its own.

    :param hostvars: the variables of each host: __validate_engine, __validate_astray, __validate_jobs
    :param hosts: names of the compute nodes of this run
    :param plan: what validation_plan returned
    :param moves: what validation_moves returned
    :param server: name of the server's host; empty when there is none
    :param enabled: whether level L3 was wanted
    :param limited: whether --limit leaves out the server
    :param looked: results of level L0
    :param level: the highest level that was to be tried
    """
    results = list(looked or [])
    lower = [dict(_not_run(LOWER % level), level=name) for name in LEVELS if name > level]
    if level == "L0":
        return results + lower
    known = [hostvars[host] for host in hosts]
    results += [dict(_given(values.get("__validate_engine", {}), "L1", host), nodes=[host]) for host, values in zip(hosts, known)]
    results += [values["__validate_astray"] for values in known if "__validate_astray" in values]
    results += moves["results"]
    if lower:
        return results + lower
    if not enabled:
        results.append(_not_run(DISABLED))
    elif server and limited:
        results.append(_not_run(LIMITED % server))
    elif server:
        done = {number: result for values in known for number, result in values.get("__validate_jobs", {}).items()}
        results += walk.list_jobs([job for job in plan["jobs"] if _is_tried(job, moves)], done, server)
        for job in plan["jobs"]:
            result = _not_run(NOT_TRIED, job["path"])
            if not _is_tried(job, moves) and result not in results:
                results.append(result)
        results += walk.list_not_proven("L3", plan["left_out"], LEFT_OUT)
    return results


def validation_steps(phases: "list[dict]") -> "list[str]":
    """Return a line for each step of a job, for the terminal.

    :param phases: of job_roundtrip: "step", "node", "seconds", "counter", and "engine_seconds" where the engine was used
    """
    return ["%-14s %-12s %8.2f s, engine %s s, counter %d" % (
        phase["step"], phase["node"], phase["seconds"],
        "%.3f" % phase["engine_seconds"] if phase.get("engine_seconds") is not None else "-", phase["counter"]) for phase in phases]


def _is_tried(job: dict, moves: dict) -> bool:
    """Return whether a job is submitted: its path has nodes, and level L2 failed at none of them."""
    return bool(job["path"]) and not set(job["path"]) & set(moves["failed_at"])


def _given(result: dict, level: str, host: str) -> dict:
    """Return a result as it is, or that of a host that could not be reached or whose module failed."""
    return result if "level" in result else {"level": level, "passed": False, "cause": LOST, "nodes": [host]}


def _not_run(cause: str, nodes: "Sequence[str]" = ()) -> dict:
    return {"level": "L3", "passed": None, "nodes": list(nodes), "cause": cause}


class FilterModule:

    def filters(self) -> "dict[str, Callable]":
        return {function.__name__: function for function in (
            validation_sharers, validation_classes, validation_nodes, validation_images, validation_preflight, validation_plan,
            validation_leg, validation_moves, validation_rounds, validation_late, validation_results, validation_steps)}
