"""Reads from CRIU's images which rights they would give to processes.

CRIU gives each restored thread what its core image names, as far as CRIU itself may, and CRIU has capabilities that the job's
owner does not have. So an image is read first, strictly: what is not as CRIU writes it is refused.

A core image is two magic numbers, the length of an entry, and the entry, in the wire format of Protocol Buffers (images/core.proto
and images/creds.proto of CRIU; read of version 4.2).
"""
import struct

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Iterator

LARGEST = 1 << 20
"""How long a core image may be (bytes); those of CRIU 4.2.1 have about 1 KiB, and the state of the widest registers adds some."""

_HEADER = struct.Struct("<III")
_COMMON, _CORE = 0x54564319, 0x55053847
_TASK, _THREAD, _STATE, _CREDENTIALS = 3, 5, 1, 10
_DEAD, _ZOMBIE = 2, 6
_UIDS, _GIDS = {1: "uid", 3: "euid", 5: "suid", 7: "fsuid"}, {2: "gid", 4: "egid", 6: "sgid", 8: "fsgid"}
_SETS = {9: "inheritable", 10: "permitted", 11: "effective", 19: "ambient"}
_GROUPS = 14
_NUMBER, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Unreadable(ValueError):
    """The image is not as CRIU writes it; the text says why."""


def _parse_number(data: bytes, position: int) -> "tuple[int, int]":
    """Return (value, position after it) of a number in data."""
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise Unreadable("a number in it does not end")
        byte = data[position]
        value |= (byte & 0x7f) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _parse_fields(data: bytes) -> "Iterator[tuple[int, int, Any]]":
    """Yield (field's number, its kind, its value as int or bytes) of a message."""
    position = 0
    while position < len(data):
        key, position = _parse_number(data, position)
        field, kind = key >> 3, key & 7
        if not 0 < field < 1 << 29:
            raise Unreadable("it has a field %d" % field)
        if kind == _NUMBER:
            value: "int | bytes"
            value, position = _parse_number(data, position)
        elif kind in (_FIXED64, _BYTES, _FIXED32):
            length = {_FIXED64: 8, _FIXED32: 4}.get(kind)
            if length is None:
                length, position = _parse_number(data, position)
            value, position = data[position:position + length], position + length
            if position > len(data):
                raise Unreadable("a field in it does not end")
        else:
            raise Unreadable("it has a field of kind %d" % kind)
        yield field, kind, value


def _get_only_value(data: bytes, field: int, wanted: int) -> "Any":
    """Return the value of a field that a message has once, int or bytes by the wanted kind; None for one that it has not."""
    values = [(kind, value) for number, kind, value in _parse_fields(data) if number == field]
    if len(values) > 1 or (values and values[0][0] != wanted):
        raise Unreadable("field %d is there %d times or of another kind" % (field, len(values)))
    return values[0][1] if values else None


def _get_entry(data: bytes) -> bytes:
    """Return the one entry of a core image."""
    if len(data) < _HEADER.size:
        raise Unreadable("it has %d bytes" % len(data))
    common, core, length = _HEADER.unpack_from(data)
    if (common, core) != (_COMMON, _CORE) or length != len(data) - _HEADER.size:
        raise Unreadable("it is not one entry of a core image")
    return data[_HEADER.size:]


def find_excess(data: bytes, uid: int, gids: "set[int]") -> str:
    """Return what a core image would give to its thread beyond what the job's owner has, empty if nothing.

    :param uid: the owner's
    :param gids: those of the owner's groups
    :raises Unreadable: when the image is not as CRIU writes it
    """
    if len(data) > LARGEST:
        raise Unreadable("it has more than %d bytes" % LARGEST)
    entry = _get_entry(data)
    task, thread = _get_only_value(entry, _TASK, _BYTES), _get_only_value(entry, _THREAD, _BYTES)
    credentials = _get_only_value(thread, _CREDENTIALS, _BYTES) if thread is not None else None
    if credentials is None:
        # Such a process ends before it does anything; another one would keep CRIU's own rights.
        if thread is None and task is not None and _get_only_value(task, _STATE, _NUMBER) in (_DEAD, _ZOMBIE):
            return ""
        raise Unreadable("it has no credentials")
    sets: "dict[int, list[int]]" = {}
    seen = set()
    for field, kind, value in _parse_fields(credentials):
        if field not in _UIDS and field not in _GIDS and field not in _SETS and field != _GROUPS:
            continue
        if kind != _NUMBER:
            raise Unreadable("its credentials have a field of another kind")
        if field in _SETS:
            words = sets.setdefault(field, [])
            words.append(value)
        elif field in _UIDS and value != uid:
            return "%s %d" % (_UIDS[field], value)
        elif field not in _UIDS and value not in gids:
            return "%s %d" % (_GIDS.get(field, "group"), value)
        seen.add(field)
    if not seen.issuperset(_UIDS) or not seen.issuperset(_GIDS):
        raise Unreadable("its credentials lack a field")
    for field, words in sorted(sets.items()):
        if any(words):
            return "%s capabilities 0x%s" % (_SETS[field], "".join("%08x" % word for word in reversed(words)).lstrip("0"))
    return ""
