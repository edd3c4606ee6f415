"""Reads from CRIU's images which rights they would give to processes, and with whom these would be connected.

CRIU gives each restored thread what its core image names, as far as CRIU itself may, and CRIU has capabilities that the job's
owner does not have. So an image is read first, strictly: what is not as CRIU writes it is refused.

A core image is two magic numbers, the length of an entry, and the entry, in the wire format of Protocol Buffers (images/core.proto
and images/creds.proto of CRIU; read of version 4.2). The image of open files has many entries (images/fdinfo.proto, sk-inet.proto).
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


# -- connections ---------------------------------------------------------------------------------------------------------

LARGEST_FILES = 64 << 20
"""How long the image of open files may be (bytes); an entry has about 100."""

_FILES = 0x56303138
_FILE_HEADER, _LENGTH = struct.Struct("<II"), struct.Struct("<I")
_INET = 4
_FAMILY, _TYPE, _STATE_OF_SOCKET, _SOURCE_PORT, _TARGET_PORT, _SOURCE, _TARGET = 3, 4, 6, 7, 8, 11, 12
_STREAM, _CLOSED, _LISTENING = 1, 7, 10
_HALF_CLOSED = (5, 8, 9, 11)
"""FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING."""
LARGEST_STREAM = 4096
"""How much of the image of a connection is read (bytes): an entry of about 100, then what waited in the connection."""
_TCP_STREAM, _UNSENT = 0x51465506, 12


def _list_entries(data: bytes) -> "Iterator[bytes]":
    """Yield the entries of the image of open files."""
    if len(data) < _FILE_HEADER.size or _FILE_HEADER.unpack_from(data) != (_COMMON, _FILES):
        raise Unreadable("it is not the image of open files")
    position = _FILE_HEADER.size
    while position < len(data):
        if position + _LENGTH.size > len(data):
            raise Unreadable("an entry in it does not end")
        start, length = position + _LENGTH.size, _LENGTH.unpack_from(data, position)[0]
        position = start + length
        if position > len(data):
            raise Unreadable("an entry in it does not end")
        yield data[start:position]


def _get_address(data: bytes, field: int) -> bytes:
    """Return an address, 4 or 16 bytes, of the entry of a socket."""
    words = []
    for number, kind, value in _parse_fields(data):
        if number == field:
            if kind != _NUMBER or value >= 1 << 32:
                raise Unreadable("an address in it is of another kind")
            words.append(_LENGTH.pack(value))
    address = b"".join(words)
    if len(address) not in (4, 16):
        raise Unreadable("an address in it has %d bytes" % len(address))
    mapped = address[:12] == b"\0" * 10 + b"\xff\xff"
    return address[12:] if mapped else address


def _is_loopback(address: bytes) -> bool:
    return address[:1] == b"\x7f" if len(address) == 4 else address == b"\0" * 15 + b"\1"


def find_closed_connection(data: bytes) -> str:
    """Return which TCP connection in the image of open files was closed, by one side or both, and is open in a process; empty if none.

    CRIU needs a raw socket to restore it, to which the job's owner has no right.

    :raises Unreadable: when the image is not as CRIU writes it
    """
    if len(data) > LARGEST_FILES:
        raise Unreadable("it has more than %d bytes" % LARGEST_FILES)
    for entry in _list_entries(data):
        socket = _get_only_value(entry, _INET, _BYTES)
        if socket is None or _get_only_value(socket, _TYPE, _NUMBER) != _STREAM:
            continue
        state, *ports = (_get_only_value(socket, field, _NUMBER) for field in (_STATE_OF_SOCKET, _SOURCE_PORT, _TARGET_PORT))
        if state in _HALF_CLOSED:
            return "that between the ports %s and %s is half-closed" % tuple(ports)
        if state == _CLOSED and ports[1]:
            return "that between the ports %s and %s was closed, and a process still has it open" % tuple(ports)
    return ""


def count_unsent_bytes(data: bytes) -> int:
    """Return how much a TCP connection had not sent yet.

    CRIU sends it when it restores the connection, and fails if it has not restored the other end yet.

    :param data: the begin of the image of a connection, LARGEST_STREAM bytes of it
    :raises Unreadable: when the image is not as CRIU writes it
    """
    if len(data) < _HEADER.size:
        raise Unreadable("it has %d bytes" % len(data))
    common, stream, length = _HEADER.unpack_from(data)
    if (common, stream) != (_COMMON, _TCP_STREAM) or length > len(data) - _HEADER.size:
        raise Unreadable("it is not the image of a connection")
    return _get_only_value(data[_HEADER.size:_HEADER.size + length], _UNSENT, _NUMBER) or 0


def find_foreign_connection(data: bytes) -> str:
    """Return which TCP connection in the image of open files is not between two sockets of it on the loopback interface; empty if none.

    :raises Unreadable: when the image is not as CRIU writes it
    """
    if len(data) > LARGEST_FILES:
        raise Unreadable("it has more than %d bytes" % LARGEST_FILES)
    ends = set()
    for entry in _list_entries(data):
        socket = _get_only_value(entry, _INET, _BYTES)
        if socket is None or _get_only_value(socket, _TYPE, _NUMBER) != _STREAM:
            continue
        if _get_only_value(socket, _STATE_OF_SOCKET, _NUMBER) in (_CLOSED, _LISTENING):
            continue
        ports = [_get_only_value(socket, field, _NUMBER) for field in (_SOURCE_PORT, _TARGET_PORT)]
        ends.add((_get_address(socket, _SOURCE), ports[0], _get_address(socket, _TARGET), ports[1]))
    for source, source_port, target, target_port in sorted(ends, key=repr):
        if not _is_loopback(source) or not _is_loopback(target) or (target, target_port, source, source_port) not in ends:
            return "a TCP connection between the ports %s and %s" % (source_port, target_port)
    return ""
