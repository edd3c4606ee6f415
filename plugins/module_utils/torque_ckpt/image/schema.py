"""What manifest.json holds: formats, fields and their kinds."""
import os

from ..engines import registry
from ..system import mounts, strict_json
from ..system.strict_json import FLAG, NAME, SECONDS, number, text

FILE = "manifest.json"
FORMAT, COMPRESSED = 3, 4
"""Format 3 is sealed, hashes in chunks (digest.py) and knows the node (compatibility.py). Those before it could be written by anybody.
Format 4 is the same with compressed files (compression.py); what has none stays 3, for hooks that know no compression."""
READ = (FORMAT, COMPRESSED)
"""Formats that are restarted."""
KNOWN = (1, 2) + READ
"""Formats whose images are ours to list and to remove."""

DEFAULTS = {"carried": [], "left": [], "open_files": [], "bound": False, "bound_reason": "", "lost": [], "incarnation": ""}
"""What the manifest says where the facts say nothing."""

NOT_LISTED = {FILE}.union(*(engine.notes for engine in registry.ENGINES))
"""Files of an image that its manifest does not list."""

OUTPUT = ("stdout", "stderr")
"""What the copies of the job's output are called in an image."""

MOST = 100
"""How many fields a manifest may have."""

_FIELDS = {
    "job_id": text(NAME), "user": text(NAME), "uid": number(0, 2 ** 32 - 1), "name": text(NAME), "created": text(NAME), "bytes": number(),
    "generation?": number(), "depth?": number(), "incarnation?": text(NAME), "held?": FLAG,
    "frozen_seconds": SECONDS, "root": number(1, 2 ** 22), "pids": [number(1, 2 ** 22)],
    "engine": {"name": text(NAME), "version?": text()}, "lost?": [text()],
    "node": text(NAME), "kernel": text(NAME), "kernel_version": text(NAME), "arch": text(NAME), "libc": text(NAME), "cpu": [text(NAME)],
    "files": [{"name": text(NAME), "size": number(), "sha256_tree": text(NAME),
               "plain?": {"program": text(NAME), "name": text(NAME), "size": number(), "sha256_tree": text(NAME)}}],
    "spool": [{"name": text(NAME), "path": text(), "mode": number(0, 0o7777)}],
}
_FIELDS_COMPRESSED = dict(_FIELDS, compression=text(NAME), plain_bytes=number())
"""What a manifest says (strict_json.check), beside what check() looks at by itself. Further fields, as newer hooks may write them, are left
alone."""


def list_names(entry):
    """Return all names (list of (path, directory)) of an entry of "carried"."""
    return [(entry["path"], entry["beneath"])] + [tuple(link) for link in entry.get("links", [])]


def _check_carried(found):
    """Raise KeyError, TypeError or ValueError when a manifest (dict) says nonsense about what is carried."""
    named = {"name": str, "state": str}
    wanted = {"file": dict(named, size=int, mtime_ns=int), "fifo": {"state": str}, "directory": {}, "tree": named}
    for entry in found["carried"]:
        if not all(isinstance(entry[key], kind) for key, kind in dict(wanted[entry["kind"]], mode=int, gid=int).items()):
            raise TypeError("carried")
        if "/" in entry.get("name", ""):
            raise ValueError(entry["name"])
        for path, place in list_names(entry):
            if os.path.normpath(path) != path or not os.path.isabs(path) or not (mounts.is_beneath(path, place) or path == place):
                raise ValueError(path)
    for entry in found["left"]:
        if not all(isinstance(entry[key], str) for key in ("node", "path", "state")):
            raise TypeError("left")
    if not isinstance(found["bound"], bool) or not isinstance(found["bound_reason"], str):
        raise TypeError("bound")


def _check_open_files(found):
    """Raise KeyError or TypeError when a manifest (dict) says nonsense about open files."""
    kinds = {"path": str, "size": int, "writable": bool, "append": bool, "inode": int}
    for entry in found["open_files"]:
        if not all(isinstance(entry[key], kind) for key, kind in kinds.items()):
            raise TypeError("open_files")
        if "filesystem" in entry and not (isinstance(entry["filesystem"], str) and isinstance(entry["mtime_ns"], int)):
            raise TypeError("open_files")


def check(found):
    """Raise KeyError, TypeError, ValueError or AttributeError when a manifest (dict) lacks a field or has one of another kind."""
    strict_json.check(found, _FIELDS_COMPRESSED if found["format"] == COMPRESSED else _FIELDS)
    for entry in found["files"]:
        names = [entry["name"]] + ([entry["plain"]["name"]] if "plain" in entry else [])
        if any("/" in name or name in NOT_LISTED for name in names):
            raise strict_json.Wrong("files has %s" % ascii(entry["name"]))
    for entry in found["spool"]:
        if entry["name"] not in OUTPUT:
            raise strict_json.Wrong("spool has %s" % ascii(entry["name"]))
    _check_carried(found)
    _check_open_files(found)
