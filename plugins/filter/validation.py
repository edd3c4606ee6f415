# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the playbook validate.yml tries: the classes of nodes, the path of each job, and what its report is about."""
from __future__ import annotations

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.engines import registry

LOST = "the host could not be reached or the module failed; see the output of ansible-playbook"
NOT_TRIED = "level L2 failed; fix that first"
DISABLED = "not proven: torque_enabled is false, so that no job was submitted"
LIMITED = "--limit leaves out the server %s"


def validation_stores(hostvars, nodes):
    """Return the store of each node: {node: "path id"}.

    :param hostvars: the variables of each host (mapping of mappings)
    :param nodes: names of the compute nodes (list of str)
    """
    return {node: "%s %s" % (hostvars[node].get("checkpoint_store_path", "/shared/ckpt"),
                             hostvars[node].get("checkpoint_store_id", "default")) for node in nodes}


def validation_classes(hostvars, nodes):
    """Return the classes of nodes between which jobs move (list of lists of str).

    A class has one store and one engine, and its nodes are alike for that engine. A node without a result of level L1 is in none.

    :param hostvars: the variables of each host (mapping of mappings), among them __validate_engine and __validate_node_engine
    :param nodes: names of the compute nodes (list of str)
    """
    stores, classes = validation_stores(hostvars, nodes), []
    for node in nodes:
        if "level" not in hostvars[node].get("__validate_engine", {}):
            continue
        info = hostvars[node]["__validate_node_engine"]
        for members in classes:
            if stores[members[0]] == stores[node] and _are_alike(hostvars[members[0]]["__validate_node_engine"], info):
                members.append(node)
                break
        else:
            classes.append([node])
    return classes


def _are_alike(one, other):
    """Return whether the engine of two nodes restarts images of either on the other (bool), by what engine_info returned (dicts)."""
    return one["engine"] == other["engine"] and not registry.find_entry(one["engine"]).load().find_difference(one["node"], other["node"])


def validation_paths(classes):
    """Return a path for each class (list of lists of str): twice over its first two nodes, there and back and there again."""
    return [nodes[:2] * 2 for nodes in classes]


def validation_trips(paths, classes, refusals=True):
    """Return the trips of level L2 (list of lists of dicts with node and steps).

    One trip for each path; then, for each two classes, one of a job that a node of the other class must refuse.

    :param paths: names of nodes in the order in which a job visits them (list of lists of str)
    :param classes: what validation_classes returned (list of lists of str)
    :param refusals: whether to try what must be refused (bool)
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


def validation_jobs(paths, cases):
    """Return the jobs of level L3 (list of dicts with path and case): each case on each path.

    :param paths: names of nodes (list of lists of str); without any each case is planned once, with an empty path
    :param cases: names of cases (list of str)
    """
    return [{"path": path, "case": case} for path in paths or [[]] for case in cases]


def validation_results(hostvars, hosts, hooks, server, planned, enabled=True, limited=False):
    """Return the results that the report is about (list of dict), with one for whatever has none of its own.

    :param hostvars: the variables of each host (mapping of mappings): __validate_engine, __validate_astray, on the server __validate_jobs
    :param hosts: names of the compute nodes of this run (list of str)
    :param hooks: results of level L2 (list of dict)
    :param server: name of the server's host (str); empty when there is none
    :param planned: number of jobs that were planned (int)
    :param enabled: whether level L3 was wanted (bool)
    :param limited: whether --limit leaves out the server (bool)
    """
    results = [_given(hostvars[host].get("__validate_engine", {}), "L1", host) for host in hosts]
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


def _given(result, level, host):
    """Return a result as it is, or that of a host that could not be reached or whose module failed (dict)."""
    return result if "level" in result else {"level": level, "passed": False, "cause": LOST, "nodes": [host]}


def _not_run(cause):
    return {"level": "L3", "passed": None, "nodes": [], "cause": cause}


class FilterModule:

    def filters(self):
        return {function.__name__: function for function in (
            validation_stores, validation_classes, validation_paths, validation_trips, validation_jobs, validation_results)}
