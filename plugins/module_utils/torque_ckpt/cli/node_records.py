"""The nodes of the cluster, as the role checkpoint_hooks has noted them, and which of them can restart an image.

nodes.json, beside the hooks' configuration, names them: {"nodes": [str, ...]}; nodes/NAME.json is the record of one, whose fields are those
of compatibility.RECORD.
"""
import json
import os

from ..image import compatibility

KINDS = compatibility.RECORD_TYPES


def _read(path):
    try:
        with open(path) as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def nodes(config_path):
    """Return [(name, record or None), ...] of all nodes that are noted beside the configuration (path, str), in the inventory's order."""
    top = os.path.dirname(config_path)
    listed = _read(os.path.join(top, "nodes.json"))
    names = listed.get("nodes", []) if isinstance(listed, dict) else []
    found = []
    for name in names:
        record = _read(os.path.join(top, "nodes", os.path.basename(str(name)) + ".json"))
        good = isinstance(record, dict) and all(isinstance(record.get(key), kind) for key, kind in KINDS.items())
        found.append((str(name), record if good else None))
    return found


def why_not(found, record, store_id):
    """Return why an image cannot be restarted on a node (str), empty when it can.

    :param found: the image's manifest (dict)
    :param record: the node's (dict), None when there is none
    :param store_id: id of the store that the image is in (str)
    """
    if record is None:
        return "nothing is known of it; run site.yml on it"
    if found.get("bound") and found["node"] != record["node"]:
        return "the image restarts on %s only: it needs files that were too large to travel" % found["node"]
    if store_id not in record["stores"]:
        return "it does not have the store %s" % store_id
    if record["engine"].get("name") != found["engine"]["name"]:
        return "its engine is %s, the image was made by %s" % (record["engine"].get("name"), found["engine"]["name"])
    program = found.get("compression")
    if program and program not in record.get("compressors", [program]):
        return "it does not have the program %s, by which the image is compressed" % program
    lacking = compatibility.lacks(found, record)
    return "the image " + lacking if lacking else ""
