# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The page of a validation's report: what its template shows, computed here, so that the template only lays it out."""
from __future__ import annotations

import collections
import statistics

from ansible_collections.ckpt.torque.plugins.module_utils.report import history, outcomes, report
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.units import format_bytes
from ansible_collections.ckpt.torque.plugins.plugin_utils import pages

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterator

TRIPS = 20
"""How many trips have a chart."""
TRIED = ("L2", "L3")
"""The levels at which a job moves."""
KINDS = {"freeze": "freeze", "write": "write, hash, publish", "queue": "queue", "restore": "restore", "other": "other"}
QUESTIONS = {
    "L0": "Is the node as a restart needs it, by looking only?",
    "L1": "Can this node freeze and revive a process tree?",
    "L2": "Do the hooks move a job from node to node?",
    "L3": "Does a job of qsub survive qhold, qrls and a move?",
}
WORDS = {"passed": "passed", "failed": "failed", "class": "by class", "unproven": "not proven", "absent": "not in this run"}


def render_page(document: dict, runs: "list[dict]", broken: int) -> str:
    """Return the page as HTML.

    :param document: of results.json
    :param runs: entries of the history, oldest first; the last is that of this run
    :param broken: how many lines of the history were left out
    """
    results = document["results"]
    failed = [result for result in results if result["passed"] is False]
    unproven = [result for result in results if result["passed"] is None]
    strips = _list_strips(document["nodes"], runs)
    state = "failed" if failed else "passed" if document["passed"] else "unproven"
    return pages.render(
        "report.html.j2", title="Validation of checkpoint and restart", created=document["created"], collection=document["collection"],
        verdict=document["verdict"], state_of_all=state, words=WORDS, document=document, meaning=report.MEANING, levels=report.MEANING,
        broken=broken, questions=QUESTIONS, kinds=KINDS,
        by_class=sum("class" in (node["L2"], node["L3"]) for node in document["nodes"]),
        failures=[dict(group, nodes=outcomes.name_nodes(group["nodes"]), count=len(group["nodes"]), all_nodes=group["nodes"])
                  for group in outcomes.group_results(failed)],
        unproven=[dict(group, nodes=outcomes.name_nodes(group["nodes"])) for group in outcomes.group_results(unproven)],
        changes=_find_changes(document, runs), classes=list(_list_classes(document["nodes"])), engine_times=_measure_engines(document),
        trips=_draw_trips(results), trips_left=max(0, len(_list_trips(results)) - TRIPS),
        runs=[dict(run, counts=collections.Counter(node["outcome"] for node in run["nodes"].values())) for run in reversed(runs)],
        strips=strips, steady=len(document["nodes"]) - len(strips))


def _find_changes(document: dict, runs: "list[dict]") -> "list[dict]":
    """Return what has changed since nodes passed last: sentence (str), nodes (str)."""
    changes = collections.defaultdict(list)
    for node in document["nodes"]:
        sentence = history.describe_change(runs, node["name"]) if node["outcome"] == "failed" else ""
        if sentence:
            changes[sentence].append(node["name"])
    return [{"sentence": sentence, "nodes": outcomes.name_nodes(names)} for sentence, names in changes.items()]


def _list_classes(nodes: "list[dict]") -> "Iterator[dict]":
    """Yield the classes: title, facts (str), counts (dict of outcomes), blocks (lists of nodes)."""
    classes: "dict[int | None, list[dict]]" = {}
    for node in sorted(nodes, key=lambda node: node.get("class", len(nodes) + 1)):
        classes.setdefault(node.get("class"), []).append(node)
    for number, members in classes.items():
        lacks = sorted({node["lacks"] for node in members if "lacks" in node})
        facts = {kind: sorted({node.get(kind) or "-" for node in members}) for kind in ("engine", "kernel", "libc", "store")}
        yield {"title": "Class %d" % number if number is not None else "Nodes without a class",
               "facts": "; ".join(["%s %s" % (kind, ", ".join(values[:3]) + (" and others" if len(values) > 3 else ""))
                                   for kind, values in facts.items() if values != ["-"]] + lacks),
               "count": len(members), "counts": collections.Counter(node["outcome"] for node in members),
               "blocks": pages.cut_blocks(members)}


def _measure_engines(document: dict) -> "list[dict]":
    """Return for each step of level L1 the least, the middle and the greatest time (seconds), and their places in a chart (0 to 100)."""
    times = collections.defaultdict(list)
    for result in document["results"]:
        if result["level"] == "L1" and result["passed"]:
            for phase in result.get("phases") or []:
                if phase.get("step") in ("dump", "restore"):
                    times[phase["step"]].append((phase["seconds"], report.name(result)))
    most = max((seconds for entries in times.values() for seconds, _node in entries), default=0) or 1
    names = {"dump": ("freeze and write", "freeze"), "restore": ("restore", "restore")}
    rows = []
    for step, entries in times.items():
        seconds = [entry[0] for entry in entries]
        values = {"least": min(seconds), "middle": statistics.median(seconds), "most": max(seconds)}
        rows.append(dict(values, step=names[step][0], kind=names[step][1], slowest=max(entries)[1], count=len(entries),
                         places={name: round(100 * value / most, 2) for name, value in values.items()}))
    return rows


def _split_phase(phase: dict) -> "list[tuple[str, float]]":
    """Return the parts of a step: kind and seconds."""
    step, seconds = phase.get("step", ""), phase["seconds"]
    if step in ("continue", "hold"):
        frozen = min(seconds, phase.get("engine_seconds") or 0)
        return [("freeze", frozen), ("write", seconds - frozen)]
    if step in ("restart", "release"):
        queued = min(seconds, phase.get("running_seconds") or 0)
        return [("queue", queued), ("restore", seconds - queued)]
    return [("other", seconds)]


def _list_trips(results: "list[dict]") -> "list[dict]":
    """Return the results of levels L2 and L3 that have steps."""
    return [result for result in results if result["level"] in TRIED and result.get("phases")]


def _draw_trips(results: "list[dict]") -> "list[dict]":
    """Return the first trips of levels L2 and L3: title, totals, and rows of steps with the places of their parts in a chart (0 to 100)."""
    trips = []
    for result in _list_trips(results)[:TRIPS]:
        phases, start, rows = result["phases"], 0.0, []
        total = report.seconds(result) or 1
        sums: "collections.defaultdict[str, float]" = collections.defaultdict(float)
        for phase in phases:
            parts, where = [], start
            for kind, seconds in _split_phase(phase):
                if seconds:
                    parts.append({"kind": kind, "x": round(100 * where / total, 2), "width": max(0.3, round(100 * seconds / total, 2))})
                    sums[kind] += seconds
                where += seconds
            start += phase["seconds"]
            rows.append({"step": phase.get("step", "-"), "node": phase.get("node", "-"), "seconds": phase["seconds"], "parts": parts,
                         "frozen": phase.get("engine_seconds"), "queued": phase.get("running_seconds")})
        size, writes = result.get("image_bytes"), [phase["seconds"] for phase in phases if phase.get("step") in ("continue", "hold")]
        trips.append({"title": "%s %s%s: %s" % (result["level"], report.MEANING[result["level"]], report.kind(result), report.name(result)),
                      "total": report.seconds(result), "rows": rows, "sums": dict(sums), "image": report.image(result),
                      "throughput": format_bytes(int(size / writes[-1])) + "/s" if size and writes and writes[-1] else "",
                      "rates": [format_bytes(result[key]) + "/s" for key in ("image_bytes_per_second", "store_bytes_per_second")
                                if key in result]})
    return trips


def _list_strips(nodes: "list[dict]", runs: "list[dict]") -> "list[dict]":
    """Return the nodes that failed in a run, or whose result changed: name, states of the runs, and these in words."""
    strips = []
    for node in nodes:
        states = [run["nodes"].get(node["name"], {"outcome": "absent"})["outcome"] for run in runs]
        if "failed" in states or len(set(states) - {"absent"}) > 1:
            counts = collections.Counter(states)
            strips.append({"name": node["name"], "states": states,
                           "words": ", ".join("%s in %d" % (WORDS[state], counts[state]) for state in pages.SIGNS if counts[state])})
    return strips
