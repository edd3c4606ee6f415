"""The form of CRIU's images: magic numbers, then entries in the wire format of Protocol Buffers, each after its length (read of 4.2)."""
import os
import struct

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Iterator

COMMON = 0x54564319
"""The first magic number of each image that the restore needs."""
NUMBER, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Kinds of fields."""
LENGTH = struct.Struct("<I")
"""How the length of an entry is written."""
FIRST = struct.Struct("<III")
"""How an image begins: both magic numbers, and the length of its first entry."""


class Unreadable(ValueError):
    """The image is not as CRIU writes it; the text says why."""


def read_image(directory: int, name: str, most: int) -> bytes:
    """Return the content of the image name in directory (descriptor).

    :param most: how long it may be (bytes)
    :raises Unreadable: when it is longer
    """
    with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory), "rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise Unreadable("it has more than %d bytes" % most)
    return data


def write_image(directory: int, name: str, data: bytes) -> None:
    """Replace the content of the image name in directory (descriptor)."""
    with open(os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory), "wb") as stream:
        stream.write(data)


def parse_number(data: bytes, position: int) -> "tuple[int, int]":
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


def parse_fields(data: bytes) -> "Iterator[tuple[int, int, Any]]":
    """Yield (field's number, its kind, its value as int or bytes) of a message."""
    position = 0
    while position < len(data):
        key, position = parse_number(data, position)
        field, kind = key >> 3, key & 7
        if not 0 < field < 1 << 29:
            raise Unreadable("it has a field %d" % field)
        if kind == NUMBER:
            value: "int | bytes"
            value, position = parse_number(data, position)
        elif kind in (FIXED64, BYTES, FIXED32):
            length = {FIXED64: 8, FIXED32: 4}.get(kind)
            if length is None:
                length, position = parse_number(data, position)
            value, position = data[position:position + length], position + length
            if position > len(data):
                raise Unreadable("a field in it does not end")
        else:
            raise Unreadable("it has a field of kind %d" % kind)
        yield field, kind, value


def get_only_value(data: bytes, field: int, wanted: int) -> "Any":
    """Return the value of a field that a message has once, int or bytes by the wanted kind; None for one that it has not."""
    values = [(kind, value) for number, kind, value in parse_fields(data) if number == field]
    if len(values) > 1 or (values and values[0][0] != wanted):
        raise Unreadable("field %d is there %d times or of another kind" % (field, len(values)))
    return values[0][1] if values else None


def get_number(data: bytes, field: int) -> int:
    """Return the number of a field that a message must have, once.

    :raises Unreadable: when it has not
    """
    value = get_only_value(data, field, NUMBER)
    if value is None:
        raise Unreadable("it has no field %d" % field)
    number: int = value
    return number


def _format_number(value: int) -> bytes:
    """Return a number as parse_number reads it."""
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes(data + bytearray([value]))


def replace_values(data: bytes, values: "dict[int, Any]") -> bytes:
    """Return a message with other values (by field, each of its kind) for those that it has; a field that it has not is not added."""
    parts = []
    for field, kind, value in parse_fields(data):
        parts.append(_format_number(field << 3 | kind))
        new = values.get(field, value)
        if kind == NUMBER:
            parts.append(_format_number(new))
        else:
            parts.append((_format_number(len(new)) if kind == BYTES else b"") + new)
    return b"".join(parts)
