"""The unix sockets of this node and who is connected to whom, from the kernel (sock_diag(7)): /proc does not show it."""
import _socket  # what socket wraps, whose import takes milliseconds in each hook
import contextlib
import os
import struct

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG; without a name in Python 3.6
_BY_FAMILY, _REQUEST_DUMP = 20, 0x301
_ERROR, _DONE = 2, 3
NAME, PEER, UID = 0, 2, 7  # include/uapi/linux/unix_diag.h
_SHOW = 1 | 4 | 64  # UDIAG_SHOW_NAME, _PEER, _UID
_HEADER, _REQUEST, _MESSAGE, _ATTRIBUTE = "=IHHII", "=BBHIIIII", "=BBBBIII", "=HH"


def _parse_messages(data: bytes) -> "list[tuple[int, int, dict[int, bytes]]]":
    """Return an answer's messages: type, inode and attributes."""
    messages, start = [], 0
    while start + 16 <= len(data):
        length, kind = struct.unpack_from(_HEADER, data, start)[:2]
        attributes: "dict[int, bytes]" = {}
        inode = 0
        if kind == _BY_FAMILY:
            inode = struct.unpack_from(_MESSAGE, data, start + 16)[4]
            position = start + 32
            while position + 4 <= start + length:
                size, name = struct.unpack_from(_ATTRIBUTE, data, position)
                attributes[name] = data[position + 4:position + size]
                position += max(4, (size + 3) & ~3)
        messages.append((kind, inode, attributes))
        start += max(16, (length + 3) & ~3)
    return messages


def list_unix_sockets() -> "dict[int, dict[int, bytes]]":
    """Return the attributes of this network namespace's unix sockets, by inode; {} if the kernel does not answer."""
    sockets: "dict[int, dict[int, bytes]]" = {}
    try:
        with contextlib.closing(_socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, _SOCK_DIAG)) as netlink:
            netlink.settimeout(1)
            netlink.send(struct.pack(_HEADER, 40, _BY_FAMILY, _REQUEST_DUMP, 1, 0)
                         + struct.pack(_REQUEST, _socket.AF_UNIX, 0, 0, 0xffffffff, 0, _SHOW, 0xffffffff, 0xffffffff))
            while True:
                for kind, inode, attributes in _parse_messages(netlink.recv(1 << 18)):
                    if kind in (_DONE, _ERROR):
                        return sockets
                    sockets[inode] = attributes
    except OSError:
        return {}


def unpack_number(text: "bytes | None") -> "int | None":
    return struct.unpack("=I", text)[0] if text and len(text) == 4 else None


def find_stranger(name: bytes) -> "int | None":
    """Return the uid of another user who is connected to a socket of this user's whose name begins so; or None."""
    sockets = list_unix_sockets()
    for own_socket in sockets.values():
        if own_socket.get(NAME, b"").startswith(name) and unpack_number(own_socket.get(UID)) == os.geteuid():
            peer = unpack_number(own_socket.get(PEER))
            uid = unpack_number(sockets[peer].get(UID)) if peer in sockets else None
            if uid not in (None, os.geteuid()):
                return uid
    return None
