# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Results of round trips as a text table, JUnit XML and a JSON document: pure functions.

A result is what roundtrip.build_result returns: level, nodes, passed (True, False or
None for "not run"), cause, and whatever evidence the level has.
"""
import re
from xml.etree import ElementTree

from ..torque_ckpt.units import format_bytes
from .results import LEVELS, PROOFS

MEANING = {"L0": "preflight", "L1": "engine", "L2": "hooks", "L3": "job"}


def verdict(result: dict) -> str:
    """Return "passed", "FAILED" or "not run" for a result."""
    return {True: "passed", False: "FAILED", None: "not run"}[result["passed"]]


def image(result: dict) -> str:
    """Return an image's size and what compressed it, e.g. "2.1 MiB zstd"."""
    size = "-" if result.get("image_bytes") is None else format_bytes(result["image_bytes"])
    return " ".join(filter(None, [size, result.get("compression")]))


def counters(result: dict) -> str:
    """Return the counter before and after each move, e.g. "57 > 131"."""
    values = result.get("counters") or [result.get("counter_before"), result.get("counter_after")]
    return " > ".join(str(value) for value in values if value is not None) or "-"


def seconds(result: dict) -> float:
    """Return the sum of the phases' times (seconds)."""
    return sum(phase["seconds"] for phase in result.get("phases") or [])


def engine(result: dict) -> str:
    """Return the engine's name and version."""
    return " ".join(result.get("engine", {}).get(key, "") for key in ("name", "version")).strip() or "-"


def name(result: dict) -> str:
    """Return the path of the nodes, e.g. "node1 > node2"."""
    return " > ".join(result["nodes"]) or "-"


def cause(result: dict) -> str:
    """Return the cause without the node's name at its start, if that is the only node."""
    first, _colon, rest = result["cause"].partition(": ")
    return rest if result["nodes"] == [first] else result["cause"]


def kind(result: dict) -> str:
    """Return the case, with a space before it; empty for the usual one."""
    return " " + result["case"] if result.get("case", "continue") != "continue" else ""


def table(results: "list[dict]") -> str:
    """Return the results as an aligned text table, causes below."""
    head = ("LEVEL", "RESULT", "NODES", "ENGINE", "COUNTER", "EXIT", "IMAGE", "SECONDS")
    rows = [head]
    for result in results:
        status = result.get("exit_status")
        rows.append((result["level"] + " " + MEANING[result["level"]] + kind(result), verdict(result), name(result), engine(result),
                     counters(result), "-" if status is None else str(status), image(result), "%.2f" % seconds(result)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines += ["%s%s %s: %s: %s" % (result["level"], kind(result), verdict(result), name(result), cause(result))
              for result in results if result["cause"]]
    return "\n".join(lines)


def summary(results: "list[dict]") -> dict:
    """Return {"passed": bool, "levels": {level: "passed" | "FAILED" | "not run"}, "failures": [str]}."""
    levels = {}
    for level in LEVELS:
        outcomes = [result["passed"] for result in results if result["level"] == level]
        levels[level] = "FAILED" if False in outcomes else "passed" if outcomes and None not in outcomes else "not run"
    failures = ["%s%s (%s): %s" % (result["level"], kind(result), name(result), cause(result))
                for result in results if result["passed"] is False]
    return {"passed": bool(results) and not failures and any(result["passed"] for result in results if result["level"] in PROOFS),
            "levels": levels, "failures": failures}


def junit(results: "list[dict]", suite: str) -> str:
    """Return the results as JUnit XML; suite names the test suite."""
    root = ElementTree.Element("testsuite", {
        "name": make_printable(suite), "tests": str(len(results)), "errors": "0",
        "failures": str(sum(result["passed"] is False for result in results)),
        "skipped": str(sum(result["passed"] is None for result in results)),
        "time": "%.3f" % sum(map(seconds, results)),
    })
    for result in results:
        case = ElementTree.SubElement(root, "testcase", {
            "classname": make_printable("%s.%s" % (suite, result["level"])), "name": make_printable(name(result) + kind(result)),
            "time": "%.3f" % seconds(result)})
        if result["passed"] is False:
            ElementTree.SubElement(case, "failure", {"message": make_printable(result["cause"])})
        elif result["passed"] is None:
            ElementTree.SubElement(case, "skipped", {"message": make_printable(result["cause"])})
        ElementTree.SubElement(case, "system-out").text = make_printable(table([result]))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def make_printable(text: str) -> str:
    """Return text without the characters that XML cannot hold."""
    return re.sub("[^\\t\\n\\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
