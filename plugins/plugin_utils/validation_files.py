# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of a validation's report, on the controller, which has Jinja and the collection's own files."""
from __future__ import annotations

import errno
import json
import os

from ansible_collections.ckpt.torque.plugins.module_utils.report import history, outcomes, report
from ansible_collections.ckpt.torque.plugins.module_utils.report import images as stored
from ansible_collections.ckpt.torque.plugins.module_utils.report import results as formats
from ansible_collections.ckpt.torque.plugins.plugin_utils import validation_page

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Sequence

RETURNED = ("passed", "verdict", "levels", "failures")
NOTES = ("invocation", "changed", "state", "failed")
"""What registering a result added."""


class ReportError(Exception):
    """Why there is no report, in a sentence."""


def build_document(results: "list[dict]", nodes: "list[dict]", created: str, version: str, images: "Sequence[dict]" = ()) -> dict:
    """Return the document of results.json (formats.DOCUMENT).

    :param results: of round trips
    :param nodes: what is known of the nodes (formats.NODE)
    :param created: the time, in UTC
    :param version: of the collection
    :param images: of the stores (formats.STORED)
    :raises ReportError: if it is not that
    """
    for what, entries, fields in (("result", results, formats.RESULT), ("node", nodes, formats.NODE), ("store", images, formats.STORED)):
        for number, entry in enumerate(entries, 1):
            fault = formats.find_fault(entry, fields)
            if fault:
                raise ReportError("%s %d cannot be reported (%s); pass what the round-trip modules, validation_nodes and "
                                  "validation_images returned; nothing was written" % (what, number, fault))
    judged = outcomes.judge_nodes(results, nodes)
    return dict(report.summary(results), schema=formats.SCHEMA, created=created, collection=version, nodes=judged,
                verdict=outcomes.describe_verdict(results, judged),
                results=[{key: value for key, value in result.items() if key not in NOTES} for result in results], images=list(images))


def write_report(document: dict, directory: str, suite: str, check: bool) -> "dict[str, Any]":
    """Write the files; return what the module returns.

    :param document: what build_document returned
    :param directory: where they go; created if it is missing
    :param suite: name of the JUnit file's test suite
    :param check: whether nothing is written
    :raises ReportError: if they cannot be written; then the files of before are there as they were
    """
    run = history.build_run(document)
    names = ("results.json", "junit.xml", "report.txt", "report.html")
    past = os.path.join(directory, history.FILE)
    table = "\n".join([report.table(document["results"])] + stored.describe_stores(document["images"]))
    try:
        if not check:
            os.makedirs(directory, exist_ok=True)
            for path in [os.path.join(directory, name) for name in names + (history.FILE,)]:
                if os.path.isdir(path):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        runs, broken, whole = _read_history(past)
        if not check:
            contents = dict(zip(names, (
                json.dumps(document, indent=2, sort_keys=True) + "\n", report.junit(document["results"], suite),
                "%s\n%s\n%s\n" % (document["created"], document["verdict"], table),
                validation_page.render_page(document, runs + [run], len(broken)))))
            for name, content in contents.items():
                with open(os.path.join(directory, name + ".new"), "w", encoding="utf-8", errors="replace") as stream:
                    stream.write(content)
            with open(past, "a", encoding="utf-8", errors="replace") as stream:
                stream.write(("" if whole else "\n") + history.format_line(run))
            for name in names:
                os.rename(os.path.join(directory, name + ".new"), os.path.join(directory, name))
    except OSError as error:
        raise ReportError("cannot write the report to %s: %s; name another directory" % (directory, error.strerror))
    return dict({key: document[key] for key in RETURNED}, changed=not check, table=document["verdict"] + "\n" + table,
                files=[os.path.join(directory, name) for name in sorted(names)],
                warnings=["%s: %s; it was left out" % (past, sentence) for sentence in broken])


def _read_history(path: str) -> "tuple[list[dict], list[str], bool]":
    """Return what history.read_runs does, and whether the file's last line has an end."""
    if not os.path.exists(path):
        return [], [], True
    with open(path, "rb") as stream:
        runs, broken = history.read_runs(stream)
        size = stream.tell()
        stream.seek(max(0, size - 1))
        return runs, broken, stream.read(1) in (b"", b"\n")
