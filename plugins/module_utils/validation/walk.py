# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The paths of jobs over the nodes of each class, in which turn each node does its step, and what the steps prove: pure functions.

A trip is a list of legs, each of them the steps of one node. All trips are walked at the same time: in a turn each host does the
leg that is its own, so that the number of turns is that of the longest trip's legs, however many nodes there are.
"""

import collections

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterable, Mapping

RING = 10
"""How many nodes a ring has, if nothing else is said."""

LOST = "the host could not be reached or the module failed; see the output of ansible-playbook"
LEFT_OUT = "not proven: left out by validate_sample"
LATE = "not proven: the %d seconds of validate_time_budget were over"
NOT_REACHED = "not proven: the job failed before it came to this node"


def sample_nodes(nodes: "list[str]", most: "int | None") -> "list[str]":
    """Return so many nodes at most, evenly spread, the first and the last among them; None: all."""
    if most is None or len(nodes) <= most:
        return list(nodes)
    return [nodes[number * (len(nodes) - 1) // (most - 1)] for number in range(most)]


def cut_rings(nodes: "list[str]", ring: int) -> "list[list[str]]":
    """Return the paths over the nodes of a class: rings of about the same size, each back to its first node.

    One node or two have a path that comes back to a node where the job was, which is tried on purpose.

    :param nodes: names of one node or more
    :param ring: how many nodes a ring has; one more if a node were left alone otherwise
    """
    if len(nodes) <= 2:
        return [nodes * 2]
    count = min(-(-len(nodes) // ring), len(nodes) // 2)
    bounds = [number * len(nodes) // count for number in range(count + 1)]
    return [nodes[start:end] + [nodes[start]] for start, end in zip(bounds, bounds[1:])]


def plan_trips(paths: "list[list[str]]", refusals: "list[tuple[str, str]]") -> "list[list[dict]]":
    """Return the trips of level L2 (lists of legs: dicts with node and steps).

    One trip for each path; then one of a job that a node of another class must refuse, for each of the pairs.

    :param paths: names of nodes in the order in which a job visits them
    :param refusals: names of two nodes, of which the second must refuse a job of the first
    """
    trips = []
    for path in paths:
        last = len(path) - 1
        trips.append([{"node": node, "steps": (["restart"] if number else ["run", "continue"]) + ["finish" if number == last else "hold"]}
                      for number, node in enumerate(path)])
    return trips + [[{"node": own, "steps": ["run", "hold"]}, {"node": other, "steps": ["refused"]},
                     {"node": own, "steps": ["restart", "finish"]}] for own, other in refusals]


def plan_turns(trips: "list[list[dict]]", hosts: "list[str]") -> "list[dict[str, dict]]":
    """Return the turns: in each of them the leg of each host that has one, by the host's name.

    A leg is node and steps; key, under which its result is kept; before, the host and the key of the leg before, or none.
    No node has two legs in a turn.

    :param trips: what plan_trips returned
    :param hosts: those that can do legs; the first of them does those of other nodes
    """
    turns = []  # type: list[dict[str, dict]]
    busy = collections.defaultdict(set)  # type: collections.defaultdict[int, set[str]]
    for trip, legs in enumerate(trips):
        turn, before = 0, []  # type: int, list[str]
        for number, leg in enumerate(legs):
            host = leg["node"] if leg["node"] in hosts else hosts[0]
            while busy[turn] & {host, leg["node"]}:
                turn += 1
            busy[turn] |= {host, leg["node"]}
            turns += [{} for _turn in range(turn + 1 - len(turns))]
            key = "%d.%d" % (trip, number)
            turns[turn][host] = dict(leg, key=key, before=before)
            before, turn = [host, key], turn + 1
    return turns


def find_leg(leg: "dict | None", walked: "Mapping[str, Mapping[str, dict]]") -> dict:
    """Return a leg with the state that the one before left; empty if there is none to do, because there is no leg or the trip has failed.

    :param leg: of a turn
    :param walked: results by their key, by the host that did the leg
    """
    if not leg or not leg["before"]:
        return dict(leg, state={}) if leg else {}
    host, key = leg["before"]
    result = walked.get(host, {}).get(key, {})
    return {} if result.get("passed", False) is False else dict(leg, state=result["state"])


def judge_trips(trips: "list[list[dict]]", turns: "list[dict[str, dict]]", walked: "Mapping[str, Mapping[str, dict]]") -> "list[dict]":
    """Return what became of each trip: its result; failed_at, the node at which it failed, or empty; reached, names of nodes.

    :param trips: what plan_trips returned
    :param turns: what plan_turns returned
    :param walked: results by their key, by the host that did the leg
    """
    results = {leg["key"]: walked.get(host, {}).get(leg["key"], {}) for turn in turns for host, leg in turn.items()}
    judged = []
    for trip, legs in enumerate(trips):
        last, failed_at, reached = {}, "", []  # type: dict, str, list[str]
        for number, leg in enumerate(legs):
            result = results["%d.%d" % (trip, number)]
            reached.append(leg["node"])
            if "level" not in result:
                result = dict(last, level="L2", passed=False, nodes=last.get("nodes", []) + [leg["node"]],
                              cause="%s: %s" % (leg["node"], LOST))
            last = result
            if result["passed"] is False:
                failed_at = leg["node"]
                break
        judged.append({"result": _add_failed_node(last), "failed_at": failed_at, "reached": reached})
    return judged


def find_remains(trips: "list[list[dict]]", judged: "list[dict]", classes: "list[list[str]]",
                 hosts: "list[str]") -> "dict[str, list[dict]]":
    """Return what failed trips left, the states of their jobs, by the host that can remove it: one that has the store and answers.

    :param trips: what plan_trips returned
    :param judged: what judge_trips returned
    :param classes: names of nodes
    :param hosts: those that can remove it
    """
    silent = {trip["failed_at"] for trip in judged if trip["result"].get("cause", "").endswith(LOST)}
    remains = {}  # type: dict[str, list[dict]]
    for legs, trip in zip(trips, judged):
        state = trip["result"].get("state", {})
        if not trip["failed_at"] or "user" not in state:
            continue
        home = next((nodes for nodes in classes if legs[0]["node"] in nodes), [])
        near = [leg["node"] for leg in legs if leg["node"] in home] + home + [leg["node"] for leg in legs]
        able = [node for node in near if node in hosts and node not in silent]
        if able:
            remains.setdefault(able[0], []).append(state)
    return remains


def list_moves(paths: "list[list[str]]", judged: "list[dict]") -> "list[dict]":
    """Return the results of level L2: those of the trips, and one for each node that the job of its path did not reach.

    :param paths: those of the first trips
    :param judged: what judge_trips returned
    """
    results = [trip["result"] for trip in judged]
    for path, trip in zip(paths, judged):
        if trip["failed_at"]:
            results += list_not_proven("L2", [node for node in path if node not in trip["reached"]], NOT_REACHED)
    return results


def list_not_proven(level: str, nodes: "Iterable[str]", cause: str) -> "list[dict]":
    """Return a result for each node, each node once, that says why a level was not proven there."""
    return [{"level": level, "passed": None, "nodes": [node], "cause": cause} for node in collections.OrderedDict.fromkeys(nodes)]


def assign_jobs(jobs: "list[dict]", hosts: "list[str]") -> "list[dict[str, dict]]":
    """Return rounds of jobs, in each of them one for each host at most, by the host's name.

    The jobs of one case run at the same time, since their paths have no node in common; those of another case come after them.

    :param jobs: what describes a job, among it the case
    :param hosts: those that submit jobs
    """
    rounds = []
    for case in collections.OrderedDict.fromkeys(job["case"] for job in jobs):
        same = [job for job in jobs if job["case"] == case]
        rounds += [dict(zip(hosts, same[start:start + len(hosts)])) for start in range(0, len(same), len(hosts))]
    return rounds


def describe_late_job(job: dict, budget: int) -> dict:
    """Return the result of a job that was not submitted, because the time was over.

    :param job: with path and case
    :param budget: in seconds
    """
    return {"level": "L3", "passed": None, "nodes": job["path"], "case": job["case"], "cause": LATE % budget}


def list_jobs(jobs: "list[dict]", done: "Mapping[str, dict]", server: str) -> "list[dict]":
    """Return the results of level L3: those of the jobs, and one for each node that the job of its path did not reach.

    :param jobs: with number and path
    :param done: results by the number
    :param server: name of the server's host, which is to blame for a job without a result
    """
    results, open_nodes = [], []  # type: list[dict], list[str]
    for job in jobs:
        result = done.get(job["number"], {})
        if "level" not in result:
            result = {"level": "L3", "passed": False, "nodes": [server], "cause": LOST}
        if result["passed"] is False:
            result = _add_failed_node(result, job["path"])
            open_nodes += [node for node in job["path"] if node not in result["nodes"]]
        if result not in results:  # a server that is down loses all jobs
            results.append(result)
    return results + list_not_proven("L3", open_nodes, NOT_REACHED)


def _add_failed_node(result: dict, known: "list[str] | None" = None) -> dict:
    """Return a result with the node that its cause begins with among its nodes: the job may not have come that far.

    :param known: names of nodes; None: the cause begins with one
    """
    first = result.get("cause", "").partition(": ")[0]
    if result.get("passed") is not False or first in result["nodes"] or known is not None and first not in known:
        return result
    return dict(result, nodes=result["nodes"] + [first])
