"""What manifest.json holds: its formats, and a row of FIELDS for each field. docs/reference/manifest.md is generated from it."""
import os

from ..engines import registry
from ..system import mounts, strict_json
from ..system.strict_json import FLAG, NAME, SECONDS, number, text

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Iterable, Optional

FILE = "manifest.json"
FORMAT, COMPRESSED = 3, 4
"""Format 3 is sealed, hashes in chunks (digest.py) and knows the node (compatibility.py). Those before it could be written by anybody.
Format 4 is the same with compressed files (compression.py); what has none stays 3, for hooks that know no compression."""
READ = (FORMAT, COMPRESSED)
"""Formats that are restarted."""
KNOWN = (1, 2) + READ
"""Formats whose images are ours to list and to remove."""

NOT_LISTED = {FILE}.union(*(engine.notes for engine in registry.ENGINES))
"""Files of an image that its manifest does not list."""

OUTPUT = ("stdout", "stderr")
"""The names of the copies of the job's output in an image."""

CARRIED = (REGULAR, FIFO, DIRECTORY, TREE) = ("file", "fifo", "directory", "tree")
"""Kinds of entries of "node_local"."""

MOST = 100
"""How many fields a manifest may have."""

TEXT = "a text", lambda value: isinstance(value, str)
INTEGER = "a whole number", lambda value: isinstance(value, int)


class Field:
    """One field of a manifest, or of an entry in it.

    :param name: its key
    :param kind: what it is (strict_json's kinds, with their limits), or None for an object with fields of its own
    :param help: what it means
    :param fields: those of the object
    :param many: whether it is a list of these
    :param since: the first format that has it
    :param optional: whether it may be missing
    :param default: its value if the hook gives none, or None
    :param only: the kinds of entries that have it, or none for all
    :param check: a further check, called with this field and a value; raises KeyError, TypeError or ValueError
    :param strict: whether strict_json compares the kind, with its sentences; otherwise by check or, of a seal, by seal.py
    """

    def __init__(self, name: str, kind: "Optional[tuple[str, Callable[[Any], bool]]]", help: str,  # pylint: disable=redefined-builtin
                 fields: "tuple[Field, ...]" = (), many: bool = False, since: int = FORMAT, optional: bool = False,
                 default: "Any" = None, only: "tuple[str, ...]" = (), check: "Optional[Callable[[Field, Any], None]]" = None,
                 strict: bool = True) -> None:
        self.name, self.kind, self.help, self.fields, self.many = name, kind, help, fields, many
        self.since, self.optional, self.default, self.only = since, optional, default, only
        self.check, self.strict = check, strict

    def get_kind(self) -> "Any":
        """Return the kind that strict_json compares a value with."""
        kind = _get_kinds(self.fields) if self.fields else self.kind
        return [kind] if self.many else kind

    def is_needed(self, entry: dict) -> bool:
        """Whether an entry of a list must have it."""
        return not self.optional and (not self.only or entry["kind"] in self.only)

    def accepts(self, value: "Any") -> bool:
        """Whether a value is of its kind; False if this is an object, which has fields instead."""
        return self.kind is not None and self.kind[1](value)


def _get_kinds(fields: "Iterable[Field]") -> "dict[str, Any]":
    return {field.name + ("?" if field.optional else ""): field.get_kind() for field in fields if field.strict}


# -- further checks --------------------------------------------------------------------------------------------------

def _check_value(field: Field, value: "Any") -> None:
    if not field.accepts(value):
        raise TypeError(field.name)


def _check_entries(field: Field, entries: "list[dict]") -> None:
    for entry in entries:
        if not all(inner.accepts(entry[inner.name]) for inner in field.fields if inner.is_needed(entry)):
            raise TypeError(field.name)


def _check_files(_field: Field, entries: "list[dict]") -> None:
    for entry in entries:
        names = [entry["name"]] + ([entry["plain"]["name"]] if "plain" in entry else [])
        if any("/" in name or name in NOT_LISTED for name in names):
            raise strict_json.Wrong("files has %s" % ascii(entry["name"]))


def _check_output(_field: Field, entries: "list[dict]") -> None:
    for entry in entries:
        if entry["name"] not in OUTPUT:
            raise strict_json.Wrong("spool has %s" % ascii(entry["name"]))


def list_names(entry: dict) -> "list[tuple[str, str]]":
    """Return all names ((path, directory)) of an entry of "node_local"."""
    return [(entry["path"], entry["beneath"])] + list(map(tuple, entry.get("links", [])))


def _check_carried(field: Field, entries: "list[dict]") -> None:
    for entry in entries:
        if entry["kind"] not in CARRIED:
            raise KeyError(entry["kind"])
    _check_entries(field, entries)
    for entry in entries:
        if "/" in entry.get("name", ""):
            raise ValueError(entry["name"])
        for path, directory in list_names(entry):
            if os.path.normpath(path) != path or not os.path.isabs(path) or not (mounts.is_beneath(path, directory) or path == directory):
                raise ValueError(path)


def _check_open_files(field: Field, entries: "list[dict]") -> None:
    _check_entries(field, entries)
    for entry in entries:
        if "filesystem" in entry and not (isinstance(entry["filesystem"], str) and isinstance(entry["mtime_ns"], int)):
            raise TypeError(field.name)


# -- the table -------------------------------------------------------------------------------------------------------

FIELDS = (
    Field("format", number(), "The format, %s." % " or ".join(map(str, READ))),
    Field("job_id", text(NAME), "The job, as TORQUE names it."),
    Field("user", text(NAME), "The job's owner."),
    Field("uid", number(0, 2 ** 32 - 1), "The owner's uid."),
    Field("name", text(NAME), "The image's name, that of its directory."),
    Field("created", text(NAME), "When the manifest was written, in UTC."),
    Field("bytes", number(), "The size of all files of the image."),
    Field("generation", number(), "Its number among the job's images.", optional=True),
    Field("depth", number(), "How many generations the job wants to keep, if TORQUE named a number.", optional=True),
    Field("incarnation", text(NAME), "The id of the run of the job in which it was written (store/incarnation.py).", optional=True,
          default=""),
    Field("held", FLAG, "Whether the job was held, so that it has not run since.", optional=True),
    Field("connected", FLAG, "Whether it has TCP connections between processes of the job.", optional=True),
    Field("frozen_seconds", SECONDS, "How long the engine held the job."),
    Field("root", number(1, 2 ** 22), "The process id of the job's root process."),
    Field("pids", number(1, 2 ** 22), "The ids of all processes and threads in the image.", many=True),
    Field("engine", None, "The engine that wrote it.", (
        Field("name", text(NAME), "Its name in the registry of engines."),
        Field("version", text(), "Its version.", optional=True))),
    Field("lost", text(), "What processes had and will not have after a restart.", many=True, optional=True, default=[]),
    Field("affinity", None, "The threads that were bound to some of the job's CPUs (job/affinity.py).", (
        Field("thread", number(1, 2 ** 22), "The thread's id."),
        Field("cpus", number(), "The CPUs on which it may run.", many=True)), many=True, optional=True, default=[]),
    Field("node", text(NAME), "The node's name; of an image, the node on which it was written."),
    Field("kernel", text(NAME), "The node's kernel, by its release."),
    Field("kernel_version", text(NAME), "The build of that kernel."),
    Field("arch", text(NAME), "The node's architecture."),
    Field("libc", text(NAME), "The node's C library."),
    Field("cpu", text(NAME), "The features of the node's CPU that programs may rely on.", many=True),
    Field("files", None, "The files of the image.", (
        Field("name", text(NAME), "The file's name."),
        Field("size", number(), "Its size in bytes."),
        Field("sha256_tree", text(NAME), "Its hash, of chunks (image/digest.py)."),
        Field("plain", None, "What it is when it has been decompressed; missing if it is not compressed.", (
            Field("program", text(NAME), "The program that compressed it."),
            Field("name", text(NAME), "The file's name."),
            Field("size", number(), "Its size in bytes."),
            Field("sha256_tree", text(NAME), "Its hash.")), since=COMPRESSED, optional=True),
    ), many=True, check=_check_files),
    Field("spool", None, "The job's output, copied into the image.", (
        Field("name", text(NAME), "Which: %s." % " or ".join(OUTPUT)),
        Field("path", text(), "The file on the node."),
        Field("mode", number(0, 0o7777), "Its mode.")), many=True, check=_check_output),
    Field("node_local", None, "What travels with the image, of the node's own file systems (files/capture.py).", (
        Field("kind", TEXT, "One of %s." % ", ".join(CARRIED)),
        Field("name", TEXT, "The file in the image.", only=(REGULAR, TREE)),
        Field("state", TEXT, "State of the file, by which a change is detected.", only=(REGULAR, FIFO, TREE)),
        Field("size", INTEGER, "Its size in bytes.", only=(REGULAR,)),
        Field("mtime_ns", INTEGER, "Its time of change, in nanoseconds.", only=(REGULAR,)),
        Field("mode", INTEGER, "Its mode."),
        Field("gid", INTEGER, "Its group."),
        Field("path", TEXT, "Where it is on the node, by absolute path."),
        Field("beneath", TEXT, "The directory of checkpoint_hooks_node_local_directories that it is in, or the tree itself."),
        Field("links", TEXT, "Its other names, each with its directory.", many=True, optional=True, only=(REGULAR, FIFO)),
        Field("opened", TEXT, "For what the job had it open: read, write or append.", optional=True, only=(REGULAR, FIFO)),
    ), many=True, default=[], check=_check_carried, strict=False),
    Field("left", None, "What the job left on nodes that it has run on.", (
        Field("node", TEXT, "The node."), Field("path", TEXT, "Where it is there."),
        Field("state", TEXT, "State of the file, by which a change is detected."),
    ), many=True, default=[], check=_check_entries, strict=False),
    Field("bound", FLAG, "Whether the image restarts on its own node only.", default=False, check=_check_value, strict=False),
    Field("bound_reason", TEXT, "Why, or empty.", default="", check=_check_value, strict=False),
    Field("open_files", None, "The files that the job had open and that do not travel (files/consistency.py).", (
        Field("path", TEXT, "The file."),
        Field("size", INTEGER, "Its size in bytes."),
        Field("writable", FLAG, "Whether it was open for writing."),
        Field("append", FLAG, "Whether it was open for appending only."),
        Field("inode", INTEGER, "Its inode's number."),
        Field("filesystem", TEXT, "Name of its file system, the same on all nodes; empty if its times mean nothing.", optional=True),
        Field("mtime_ns", INTEGER, "Its time of change, in nanoseconds; there when filesystem is.", optional=True),
        Field("ctime_ns", INTEGER, "The same of its inode.", optional=True),
    ), many=True, default=[], check=_check_open_files, strict=False),
    Field("compression", text(NAME), "The program that compressed files.", since=COMPRESSED),
    Field("plain_bytes", number(), "The size of all files when they have been decompressed.", since=COMPRESSED),
    Field("key", text(NAME), "The id of the key that seals the manifest.", optional=True, strict=False),
    Field("mac", text(NAME), "The seal: HMAC-SHA256 of everything else, by that key (image/seal.py).", optional=True, strict=False),
)
"""The fields of a manifest. Further fields, which newer hooks may write, are ignored."""

DEFAULTS = {field.name: field.default for field in FIELDS if field.default is not None}
"""The values of fields that the facts do not have."""

_KINDS = {version: _get_kinds(field for field in FIELDS if field.since <= version) for version in READ}


def check_fields(manifest: dict, *names: str) -> None:
    """Check these fields of a manifest with their own checks (FIELDS).

    :raises KeyError, TypeError, ValueError: if one is missing or invalid
    """
    for field in FIELDS:
        if field.check is not None and field.name in names:
            field.check(field, manifest[field.name])


def check_manifest(manifest: dict) -> None:
    """Raise KeyError, TypeError, ValueError or AttributeError if a manifest lacks a field or has one of another kind."""
    strict_json.check_kind(manifest, _KINDS[manifest["format"]])
    check_fields(manifest, *[field.name for field in FIELDS])
