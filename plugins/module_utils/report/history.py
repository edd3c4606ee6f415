# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The history of a site's validations: a line of JSON for each run, and what has changed since a node passed last."""

import collections
import json

from ..torque_ckpt.system import strict_json
from . import results

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import BinaryIO

FILE = "history.jsonl"
RUNS = 20
"""How many runs are compared."""
LARGEST = 16 << 20
"""How much of the file's end is read, in bytes: hundreds of runs of 500 nodes."""
_KEPT = ("L0", "L1", "L2", "L3", "outcome", "engine", "kernel")


def build_run(document: dict) -> dict:
    """Return the entry of a run, by the document of results.json."""
    torque = [result["torque"] for result in document["results"] if "torque" in result]
    return {"schema": results.SCHEMA, "time": document["created"], "passed": document["passed"], "verdict": document["verdict"][:1000],
            "collection": document["collection"], "torque": torque[0] if torque else "",
            "nodes": collections.OrderedDict((node["name"], {key: node.get(key, "") for key in _KEPT}) for node in document["nodes"])}


def format_line(run: dict) -> str:
    """Return the line of an entry, with its end."""
    return json.dumps(run, sort_keys=True, separators=(",", ":")) + "\n"


def read_runs(stream: "BinaryIO") -> "tuple[list[dict], list[str]]":
    """Return the last entries of a file, oldest first, and a sentence for each line that is left out.

    :param stream: can be sought; its position is at the end afterwards
    """
    start = max(0, stream.seek(0, 2) - LARGEST)
    stream.seek(start)
    lines = stream.read().split(b"\n")
    if start:
        lines = lines[1:]  # the rest of one whose start was not read
    runs, broken = collections.deque(maxlen=RUNS), []  # type: ignore[var-annotated]
    for number, line in enumerate(lines, 1):
        if line:
            try:
                run = strict_json.parse_json(line)
                fault = find_fault(run)
            except strict_json.Wrong as error:
                fault = str(error)
            if fault:
                broken.append("line %d%s: %s" % (number, " of those read" if start else "", fault))
            else:
                runs.append(run)
    return list(runs), broken


def find_fault(run: "object") -> str:
    """Return why this is not an entry, empty if it is one."""
    fault = results.find_fault(run, results.RUN)
    if fault or not isinstance(run, dict):
        return fault
    if run["schema"] != results.SCHEMA:
        return "schema is %d, not %d" % (run["schema"], results.SCHEMA)
    return next(filter(None, (results.find_fault(node, results.RUN_NODE, "a node") for node in run["nodes"].values())), "")


def _describe(run: dict, name: str) -> "list[tuple[str, str]]":
    """Return what a node ran with: pairs of what and its version."""
    node = run["nodes"][name]
    return [("collection", run["collection"]), ("TORQUE", run["torque"]), ("engine", node["engine"]), ("kernel", node["kernel"])]


def describe_change(runs: "list[dict]", name: str) -> str:
    """Return since when a node does not pass and what has changed, empty if it passes or has never passed.

    :param runs: entries, oldest first; the last is that of today
    """
    own = [run for run in runs if name in run["nodes"]]
    passed = [number for number, run in enumerate(own)  # a site without level L3 has no other outcome than "unproven"
              if run["nodes"][name]["L1"] == "passed" and run["nodes"][name]["outcome"] != "failed"]
    later = [run for run in own[passed[-1] + 1:] if run["nodes"][name]["outcome"] == "failed"] if passed else []
    if not later or own[-1]["nodes"][name]["outcome"] != "failed":
        return ""
    before, first = own[passed[-1]], later[0]
    changes = ["%s %s -> %s" % (what, old or "unknown", new or "unknown")
               for (what, old), (_what, new) in zip(_describe(before, name), _describe(first, name)) if old != new and new not in ("", "-")]
    return "stopped passing since %s; passed last %s; what changed: %s" % (
        first["time"], before["time"], ", ".join(changes) or "nothing that is recorded")
