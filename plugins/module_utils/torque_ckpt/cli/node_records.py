"""The nodes of the cluster, as the role checkpoint_hooks has noted them, and which of them can restart an image.

nodes.json, beside the hooks' configuration, names them: {"nodes": [str, ...]}; nodes/NAME.json is the record of one, whose fields are those
of compatibility.RECORD.
"""
import collections
import json
import os

from ..image import compatibility

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any


def _read_json(path: str) -> "Any":
    """Return what a file of JSON holds, None when it cannot be read."""
    try:
        with open(path) as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def read_records(config_path: str) -> "list[tuple[str, dict | None]]":
    """Return [(name, record or None), ...] of all nodes that are listed beside the configuration, in the inventory's order."""
    directory = os.path.dirname(config_path)
    listed = _read_json(os.path.join(directory, "nodes.json"))
    names = listed.get("nodes", []) if isinstance(listed, dict) else []
    records = []
    for name in names:
        record = _read_json(os.path.join(directory, "nodes", os.path.basename(str(name)) + ".json"))
        is_valid = isinstance(record, dict) and all(isinstance(record.get(key), kind) for key, kind in compatibility.RECORD_TYPES.items())
        records.append((str(name), record if is_valid else None))
    return records


def find_obstacle(manifest: dict, record: "dict | None", store_id: str) -> str:
    """Return why an image cannot be restarted on a node, empty when it can.

    :param manifest: the image's
    :param record: the node's, None when there is none
    :param store_id: id of the store that the image is in
    """
    if record is None:
        return "nothing is known of it; run site.yml on it"
    if manifest.get("bound") and manifest["node"] != record["node"]:
        return "the image restarts on %s only: it needs files that were too large to travel" % manifest["node"]
    if store_id not in record["stores"]:
        return "it does not have the store %s" % store_id
    if record["engine"].get("name") != manifest["engine"]["name"]:
        return "its engine is %s, the image was written by %s" % (record["engine"].get("name"), manifest["engine"]["name"])
    program = manifest.get("compression")
    if program and program not in record.get("compressors", [program]):
        return "it does not have the program %s, by which the image is compressed" % program
    difference = compatibility.find_incompatibility(manifest, record)
    return "the image " + difference if difference else ""


def count_nodes(records: "list[tuple[str, dict | None]]", store: dict, manifest: dict) -> dict:
    """Return on how many nodes an image can be restarted (nodes), and what most of the others lack (why), empty if it can on all.

    :param records: from read_records
    :param store: the image's
    :param manifest: the image's
    """
    obstacles = collections.Counter(find_obstacle(manifest, record, store["id"]) for _name, record in records)
    fits = obstacles.pop("", 0)
    if not records:
        return {"nodes": 0, "why": "no node is noted on this host; run site.yml on it"}
    return {"nodes": fits, "why": max(obstacles, key=lambda reason: obstacles[reason]) if obstacles else ""}
