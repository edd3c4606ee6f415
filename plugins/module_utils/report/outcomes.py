# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What results of round trips mean for each node, and for all of them in one sentence: pure functions."""

import collections
import re

from . import report
from .results import LEVELS, PROOFS

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Iterable

NAMED = 10
"""How many nodes a sentence names."""

VERBS = ("add|allow|become|boot|build|change|check|checkpoint|choose|clear|close|compare|configure|copy|correct|create|cut|do|drain|end"
         "|fix|free|give|have|hold|increase|install|leave|let|load|look|make|mount|move|name|pass|put|raise|remove|rename|restart|run|see"
         "|set|start|stop|submit|take|try|turn|unmount|unpack|update|upgrade|use|wait|write")
"""How what to do about a failure begins, after a semicolon. A test reads all sentences and finds a verb that is missing here."""
_ADVICE = re.compile(r"; ((?:if [^;]*, )?(?:%s)\b.*)$" % VERBS, re.DOTALL)
_CURES = {
    "L0": "compare the node with the others of its class",
    "L1": ("run \"torque-ckpt selftest\" as root on the node, which repeats this round trip; "
           "check its kernel, SELinux and the engine's version"),
    "L2": "compare the user's account, the store and the installed programs of these nodes",
    "L3": "check TORQUE: the queue's checkpoint_dir, name resolution, ports and patches",
}
"""For a cause that has no advice of its own."""


def find_nodes(results: "list[dict]", nodes: "list[dict]") -> "list[dict]":
    """Return the nodes that a report is about: those given, or else those of the results of levels L0 and L1."""
    names = [name for result in results if result["level"] in ("L0", "L1") for name in result["nodes"]]
    return nodes or [{"name": name} for name in collections.OrderedDict.fromkeys(names)]


def _build_resolver(nodes: "list[dict]") -> "Callable[[str], str]":
    """Return a function that returns the inventory's name of a node by its host name, which may be shorter or longer."""
    known = {node["name"].split(".")[0]: node["name"] for node in nodes}
    known.update({node["name"]: node["name"] for node in nodes})
    return lambda name: known.get(name) or known.get(name.split(".")[0], "")


def find_blamed(result: dict) -> "list[str]":
    """Return the nodes at which a result failed: the one that its cause begins with, or else all of it."""
    first = result["cause"].partition(": ")[0]
    return [first] if first in result["nodes"] else list(collections.OrderedDict.fromkeys(result["nodes"]))


def judge_nodes(results: "list[dict]", nodes: "list[dict]") -> "list[dict]":
    """Return the nodes (results.JUDGED).

    :param results: of round trips
    :param nodes: what is known of the nodes (results.NODE), or none
    """
    nodes = find_nodes(results, nodes)
    resolve = _build_resolver(nodes)
    seen = collections.defaultdict(set)  # type: collections.defaultdict[tuple[str, str], set[str]]
    engines = {}
    for result in results:
        blamed = set(map(resolve, find_blamed(result))) if result["passed"] is False else set()
        for name in set(map(resolve, result["nodes"])):
            if result["passed"] is not True:
                seen[name, result["level"]].add("failed" if name in blamed else "unproven")
            elif result.get("case") != "refused":  # that a node refuses jobs is no proof that it takes others
                seen[name, result["level"]].add("passed")
            if result["level"] == "L1":
                engines[name] = report.engine(result)
    classes = collections.defaultdict(set)  # type: collections.defaultdict[tuple[int, str], set[str]]
    for node in nodes:
        for level in PROOFS[1:]:
            if "class" in node:
                classes[node["class"], level] |= seen[node["name"], level]
    judged = []
    for node in nodes:
        levels = {}  # type: dict[str, str]
        for level in LEVELS:
            states = seen[node["name"], level]
            tried_elsewhere = "class" in node and level in PROOFS[1:] and not states and levels["L1"] == "passed"
            others = classes[node["class"], level] if tried_elsewhere else set()
            levels[level] = ("failed" if "failed" in states else "passed" if "passed" in states
                             else "class" if "passed" in others and "failed" not in others else "unproven")
        proofs = [levels[level] for level in PROOFS]
        outcome = "failed" if "failed" in levels.values() else "unproven" if "unproven" in proofs else "passed"
        judged.append(dict(node, outcome=outcome, engine=engines.get(node["name"], "-"), **levels))
    return judged


def name_nodes(names: "list[str]") -> str:
    """Return the names for a sentence: some of them, and how many others there are."""
    others = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (" and %d others" % others if others > 0 else "")


def _count(number: int, total: int) -> str:
    return "%d of %d %s" % (number, total, "node" if total == 1 else "nodes")


def describe_verdict(results: "list[dict]", nodes: "list[dict]") -> str:
    """Return the result in one sentence.

    :param results: of round trips
    :param nodes: what judge_nodes returned
    """
    total = len(nodes)
    failed = [node["name"] for node in nodes if node["outcome"] == "failed"]
    if failed and not any(node[level] == "failed" for node in nodes for level in PROOFS):
        return "%s failed the preflight, L0: %s." % (_count(len(failed), total), name_nodes(failed))
    if failed:
        return "%s cannot checkpoint and restart jobs: %s." % (_count(len(failed), total), name_nodes(failed))
    lost = [result for result in results if result["passed"] is False]
    if lost:
        return "A round trip failed: %s: %s." % (report.name(lost[0]), report.cause(lost[0]).rstrip("."))
    if not any(result["passed"] for result in results if result["level"] in PROOFS):
        causes = [result["cause"] for result in results if result["cause"]]
        return "Nothing was proven: %s." % (re.sub("^not proven: ", "", causes[0]).rstrip(".") if causes else "no round trip was run")
    unproven = [level for level in PROOFS if all(node[level] == "unproven" for node in nodes)]
    fine = [node for node in nodes if all(node[level] != "unproven" for level in PROOFS if level not in unproven)]
    missing = [node["name"] for node in nodes if node not in fine] if len(fine) < total else []
    if unproven:
        proven = [level for level in PROOFS if level not in unproven]
        sentence = "%s passed %s; not proven: %s" % (
            _count(len(fine), total), " and ".join("%s (%s)" % (level, report.MEANING[level]) for level in proven),
            ", ".join("%s (%s)" % (level, report.MEANING[level]) for level in unproven))
    else:
        sentence = "%s can checkpoint and restart jobs" % _count(len(fine), total)
    return sentence + ("; not proven for %s." % name_nodes(missing) if missing else ".")


def split_cause(cause: str, level: str) -> "tuple[str, str]":
    """Return what failed and what to do about it."""
    advice = _ADVICE.search(cause)
    return (cause[:advice.start()], advice.group(1)) if advice else (cause, _CURES[level])


def group_results(results: "Iterable[dict]") -> "list[dict]":
    """Return results with the same cause as one: level, case, text, its parts cause and cure (str), nodes (list of str: paths of nodes)."""
    groups = collections.OrderedDict()  # type: collections.OrderedDict[tuple[str, str, str], list[str]]
    for result in results:
        groups.setdefault((result["level"], report.kind(result).strip(), report.cause(result)), []).append(report.name(result))
    return [dict(zip(("cause", "cure"), split_cause(cause, level)), level=level, case=case, text=cause, nodes=names)
            for (level, case, cause), names in groups.items()]
