"""Core images as CRIU writes them."""
import os
import struct


def message(*fields):
    """Return a message (bytes) in the wire format of Protocol Buffers; fields: (number, value), which is an int or bytes."""
    def number(value):
        low, value = value & 0x7f, value >> 7
        return bytes([low | 0x80]) + number(value) if value else bytes([low])
    return b"".join(number(field << 3) + number(value) if isinstance(value, int) else number(field << 3 | 2) + number(len(value)) + value
                    for field, value in fields)


def credentials(user, **change):
    """Return the fields (list) of what CRIU writes of a User's rights; change: some other ids and sets of capabilities, by their names."""
    groups = sorted(set(os.getgrouplist(user.name, user.gid)))
    ids = [(1, "uid", user.uid), (2, "gid", user.gid), (3, "euid", user.uid), (4, "egid", user.gid), (5, "suid", user.uid),
           (6, "sgid", user.gid), (7, "fsuid", user.uid), (8, "fsgid", user.gid)]
    fields = [(field, change.get(name, value)) for field, name, value in ids]
    for field, name in ((9, "inheritable"), (10, "permitted"), (11, "effective"), (12, "bounding"), (19, "ambient")):
        fields += [(field, word) for word in change.get(name, (0xffffffff, 0x1ff) if name == "bounding" else (0, 0))]
    return fields + [(13, 0)] + [(14, group) for group in change.get("groups", groups)]


def core_image(user, **change):
    """Return a core image (bytes) as CRIU writes it, as far as the hooks read it; see credentials()."""
    return framed(message((1, 1), (3, message((1, 1), (2, 0))), (5, message((1, 0), (2, 0), (10, message(*credentials(user, **change)))))))


def framed(entry):
    """Return an image (bytes) of the kind core with this entry (bytes)."""
    return struct.pack("<III", 0x54564319, 0x55053847, len(entry)) + entry
