"""TCP sockets of a process tree as our own: what /proc does not say of them, and what an engine leaves them in. As root."""
import contextlib
import select
import socket
import struct

from ..errors import HookError, REFUSED, TEMPORARY, quote_text
from ..system import processes
from ..system.addresses import format_end
from ..system.tcp_repair import REPAIR
from .connections import find_sharers, list_sockets

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Container, Iterator

_SO_PEERNAME, _SO_PROTOCOL, _SO_DOMAIN = 28, 38, 39
_TCP_CLOSE = 7
_ABORT = struct.pack("ii", 1, 0)
"""SO_LINGER: the last close ends a connection at once."""


def _share_connections(sockets: "dict[str, tuple[processes.Process, int]]") -> "Iterator[tuple[str, socket.socket]]":
    """Yield those of sockets (from list_sockets) that are of TCP as our own, each after its inode, as far as that is possible.

    They are to be closed.
    """
    for inode, (process, number) in sockets.items():
        try:
            shared = socket.socket(fileno=processes.share_descriptor(processes.get_mark(process), number))
        except OSError:
            continue  # it is gone, we have too many, or the kernel cannot
        if shared.getsockopt(socket.SOL_SOCKET, _SO_PROTOCOL) == socket.IPPROTO_TCP:
            family = shared.getsockopt(socket.SOL_SOCKET, _SO_DOMAIN)
            yield inode, socket.socket(family, socket.SOCK_STREAM, fileno=shared.detach())  # Python 3.6 takes each for one of IPv4
        else:
            shared.close()


def _find_former_ends(shared: socket.socket) -> "tuple[str, str] | None":
    """Return both ends of the connection that a TCP socket had, its own first, if both sides have closed it, or one has reset it.

    /proc/net/tcp lists no such socket.
    """
    wide = shared.family == socket.AF_INET6
    try:
        peer = shared.getsockopt(socket.SOL_SOCKET, _SO_PEERNAME, 28 if wide else 16)
    except OSError:
        return None
    if shared.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_CLOSE:
        return None
    name, port = shared.getsockname()[:2]
    own = socket.inet_pton(shared.family, name.partition("%")[0])
    return format_end(own, port), format_end(peer[8:24] if wide else peer[4:8], struct.unpack_from(">H", peer, 2)[0])


def _has_error(shared: socket.socket) -> bool:
    """Whether the next one who uses a socket is told of an error. This does not tell."""
    poll = select.poll()
    poll.register(shared, 0)
    return any(events & select.POLLERR for _number, events in poll.poll(0))


def has_closed(pids: "list[int]", sockets: "dict[str, tuple[processes.Process, int]]") -> bool:
    """Return whether a tree has sockets whose TCP connections were closed. As root.

    :param pids: its processes, the root first
    :param sockets: theirs, from list_sockets()
    :raises HookError: TEMPORARY when one was reset and no process has noticed: it would then look as if it had been closed; REFUSED when
        a process that is not of the tree has it open, too: it could use it while it is in repair mode
    """
    closed: "dict[str, str]" = {}
    for inode, shared in _share_connections(sockets):
        with shared:
            ends = _find_former_ends(shared)
            if ends:
                process, _number = sockets[inode]
                closed[inode] = "process %d (%s) has a TCP connection from %s to %s" % ((process.pid, quote_text(process.name)) + ends)
            if ends and _has_error(shared):
                raise HookError(TEMPORARY, "%s that was reset, and no process has noticed that yet; the job keeps running; try again when "
                                "one has read from it, or all that have it open have closed it" % closed[inode])
    for inode, sharer in find_sharers(pids, set(closed)).items():
        raise HookError(REFUSED, "%s that was closed, and shares it with process %d (%s), which is not of the job; the job keeps running; "
                        "checkpoint the job when that process has closed it" % (closed[inode], sharer.pid, quote_text(sharer.name)))
    return bool(closed)


def end_repair(uid: int, sockets: "Container[str]") -> None:
    """Have none of the sockets in repair mode, which is how an engine that was killed leaves the TCP connections of a job. As root.

    Nothing is sent or received in that mode, and it is a right that otherwise only CAP_NET_ADMIN gives.

    :param uid: the job's owner's, any of whose processes may have them open
    :param sockets: their inodes, of before the engine started; those of other jobs may be in the work of another engine
    """
    owned = (process for process in map(processes.read_process, processes.list_pids()) if process and process.uid == uid)
    held = list_sockets(owned)
    for _inode, connection in _share_connections({inode: held[inode] for inode in held if inode in sockets}):
        with connection, contextlib.suppress(OSError):
            if connection.getsockopt(socket.IPPROTO_TCP, REPAIR):
                connection.setsockopt(socket.IPPROTO_TCP, REPAIR, 0)


@contextlib.contextmanager
def drop_silently(root: processes.Process) -> "Iterator[None]":
    """Have the TCP connections of a tree that ends in the body vanish from the kernel. As root.

    Otherwise their ports stay in use for a minute (TIME_WAIT), in which the job could not be restored on this node. If it cannot be done,
    that is all.
    """
    shared = list(_share_connections(list_sockets(processes.list_family(root))))
    try:
        yield
    finally:
        for _inode, connection in shared:
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
