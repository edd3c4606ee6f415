# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which images in a store can be restarted, by what "torque-ckpt list --nodes --json" printed: pure functions."""

import json

from ..torque_ckpt.units import format_bytes
from . import report

UNFINISHED = ("writing", "leftover")
"""States of what is no image yet, or no more."""


def summarize_images(store: str, text: str) -> dict:
    """Return what a report has of a store (results.STORED).

    :param store: its path and id
    :param text: what torque-ckpt printed
    """
    summary = {"store": store, "images": 0, "bytes": 0, "everywhere": 0, "somewhere": 0, "nowhere": 0, "faults": [],
               "problems": []}  # type: dict
    try:
        answer = json.loads(text)
        images, summary["problems"] = answer["images"], answer["problems"]
    except (ValueError, KeyError, TypeError):
        return dict(summary, problems=["torque-ckpt printed no list of images: %s" % (text.strip()[:200] or "nothing")])
    for image in images:
        if image["state"] in UNFINISHED:
            continue
        summary["images"] += 1
        summary["bytes"] += image["bytes"]
        why = image["problem"] or image.get("why", "")
        where = "nowhere" if image["problem"] or not image.get("nodes") else "somewhere" if why else "everywhere"
        summary[where] += 1
        if where == "nowhere":
            summary["faults"].append({"job": image["job"], "owner": image["owner"], "image": image["image"], "why": why})
    return summary


def describe_stores(stores: "list[dict]") -> "list[str]":
    """Return lines for a terminal.

    :param stores: of summarize_images
    """
    lines = []
    for store in stores:
        counts = "no images" if not store["images"] else "%d %s, %s; can be restarted on every node: %d, on some: %d, on none: %d" % (
            store["images"], "image" if store["images"] == 1 else "images", format_bytes(store["bytes"]),
            store["everywhere"], store["somewhere"], store["nowhere"])
        lines.append("store %s: %s" % (store["store"], counts))
        lines += ["image %s of job %s (%s) can be restarted on no node: %s" % (fault["image"], fault["job"], fault["owner"], fault["why"])
                  for fault in store["faults"]]
        lines += ["store %s: %s" % (store["store"], problem) for problem in store["problems"]]
    return list(map(report.make_printable, lines))
