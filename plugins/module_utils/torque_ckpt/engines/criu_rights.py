"""Reads from CRIU's images which rights they would give to processes.

CRIU gives each restored thread what its core image names, as far as CRIU itself may, and CRIU has capabilities that the job's
owner does not have. So an image is read first, strictly: what is not as CRIU writes it is refused.

A core image has one entry (images/core.proto and images/creds.proto of CRIU; read of version 4.2).
"""
from .criu_wire import BYTES, COMMON, FIRST, NUMBER, Unreadable, get_only_value, parse_fields

LARGEST = 1 << 20
"""How long a core image may be (bytes); those of CRIU 4.2.1 have about 1 KiB, and the state of the widest registers adds some."""

_CORE = 0x55053847
_TASK, _THREAD, _STATE, _CREDENTIALS = 3, 5, 1, 10
_DEAD, _ZOMBIE = 2, 6
_UIDS, _GIDS = {1: "uid", 3: "euid", 5: "suid", 7: "fsuid"}, {2: "gid", 4: "egid", 6: "sgid", 8: "fsgid"}
_SETS = {9: "inheritable", 10: "permitted", 11: "effective", 19: "ambient"}
_GROUPS = 14


def _get_entry(data: bytes) -> bytes:
    """Return the one entry of a core image."""
    if len(data) < FIRST.size:
        raise Unreadable("it has %d bytes" % len(data))
    common, core, length = FIRST.unpack_from(data)
    if (common, core) != (COMMON, _CORE) or length != len(data) - FIRST.size:
        raise Unreadable("it is not one entry of a core image")
    return data[FIRST.size:]


def find_excess(data: bytes, uid: int, gids: "set[int]") -> str:
    """Return what a core image would give to its thread beyond what the job's owner has, empty if nothing.

    :param uid: the owner's
    :param gids: those of the owner's groups
    :raises Unreadable: when the image is not as CRIU writes it
    """
    entry = _get_entry(data)
    task, thread = get_only_value(entry, _TASK, BYTES), get_only_value(entry, _THREAD, BYTES)
    credentials = get_only_value(thread, _CREDENTIALS, BYTES) if thread is not None else None
    if credentials is None:
        # Such a process ends before it does anything; another one would keep CRIU's own rights.
        if thread is None and task is not None and get_only_value(task, _STATE, NUMBER) in (_DEAD, _ZOMBIE):
            return ""
        raise Unreadable("it has no credentials")
    sets: "dict[int, list[int]]" = {}
    seen = set()
    for field, kind, value in parse_fields(credentials):
        if field not in _UIDS and field not in _GIDS and field not in _SETS and field != _GROUPS:
            continue
        if kind != NUMBER:
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
