"""Who is connected to the sockets by which CRIU talks to a job's processes: everybody on the node can be (sock_diag(7))."""
import os
import socket
import struct

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG; without a name in Python 3.6
_BY_FAMILY, _REQUEST_DUMP = 20, 0x301
_ERROR, _DONE = 2, 3
_NAME, _PEER, _UID = 0, 2, 7  # include/uapi/linux/unix_diag.h
_SHOW = 1 | 4 | 64  # UDIAG_SHOW_NAME, _PEER, _UID
_HEADER, _ASKED, _SAID, _ATTRIBUTE = "=IHHII", "=BBHIIIII", "=BBBBIII", "=HH"
_TRANSPORT = b"\0/crtools-pr-"


def _parsed(data):
    """Return an answer's messages: type (int), inode (int) and attributes (dict of bytes)."""
    found, place = [], 0
    while place + 16 <= len(data):
        length, kind = struct.unpack_from(_HEADER, data, place)[:2]
        attributes, inode = {}, 0
        if kind == _BY_FAMILY:
            inode = struct.unpack_from(_SAID, data, place + 16)[4]
            at = place + 32
            while at + 4 <= place + length:
                size, name = struct.unpack_from(_ATTRIBUTE, data, at)
                attributes[name] = data[at + 4:at + size]
                at += max(4, (size + 3) & ~3)
        found.append((kind, inode, attributes))
        place += max(16, (length + 3) & ~3)
    return found


def _sockets():
    """Return the attributes (dict of dict) of this network namespace's unix sockets, by inode; {} where the kernel does not tell."""
    found = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as asking:
            asking.settimeout(1)
            asking.send(struct.pack(_HEADER, 40, _BY_FAMILY, _REQUEST_DUMP, 1, 0)
                        + struct.pack(_ASKED, socket.AF_UNIX, 0, 0, 0xffffffff, 0, _SHOW, 0xffffffff, 0xffffffff))
            while True:
                for kind, inode, attributes in _parsed(asking.recv(1 << 18)):
                    if kind in (_DONE, _ERROR):
                        return found
                    found[inode] = attributes
    except OSError:
        return {}


def _number(text):
    return struct.unpack("=I", text)[0] if text and len(text) == 4 else None


def stranger():
    """Return the uid (int) of another user who is connected to a socket of a CRIU of this user's, in the place of the job; or None."""
    found = _sockets()
    for socket_ in found.values():
        if socket_.get(_NAME, b"").startswith(_TRANSPORT) and _number(socket_.get(_UID)) == os.geteuid():
            uid = _number(found.get(_number(socket_.get(_PEER)), {}).get(_UID))
            if uid not in (None, os.geteuid()):
                return uid
    return None
