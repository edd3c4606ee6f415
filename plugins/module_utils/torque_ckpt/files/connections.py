"""TCP connections of a process tree, and whose their other ends are, by /proc/net/tcp."""
import contextlib
import os
import select
import socket
import struct
import sys

from ..errors import HookError, TEMPORARY, quote_text
from ..system import processes

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterable, Iterator

_CLOSED, _LISTENING = "07", "0A"
_HALF_CLOSED = ("05", "08", "09", "0B")
"""FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING: one side has said that it sends nothing any more."""
_MAPPED = "0" * 16 + ("FFFF0000" if sys.byteorder == "little" else "0000FFFF")
"""How the address of an IPv4 host begins that an IPv6 socket has."""


def _unmap_address(text: str) -> str:
    """Return an address of /proc/net/tcp6 as the other end has it in /proc/net/tcp, if it is one of IPv4."""
    return text[len(_MAPPED):] if text.startswith(_MAPPED) else text


class Connection:
    """One end of a TCP connection, or a listening socket: a line of /proc/net/tcp.

    local, remote  str: addresses and ports, as the kernel prints them; those of IPv4 in the same form in sockets of IPv4 and of IPv6
    inode          str, "0" if no process has it
    """

    def __init__(self, fields: "list[str]") -> None:
        self.local, self.remote = map(_unmap_address, fields[1:3])
        self.state = fields[3]
        self.uid, self.inode = fields[7], fields[9]
        self.waiting = int(fields[4].partition(":")[2], 16)

    def is_open(self) -> bool:
        """Whether this is an end of a connection."""
        return self.state not in (_CLOSED, _LISTENING)

    def is_half_closed(self) -> bool:
        """Whether one side of the connection was closed, and the other side knows it."""
        return self.state in _HALF_CLOSED


def format_address(text: str) -> str:
    """Return an address of /proc/net/tcp or tcp6 as people write it."""
    digits, port = text.split(":")
    order = -1 if sys.byteorder == "little" else 1  # of each word of 32 bits
    data = b"".join(bytes.fromhex(digits[start:start + 8])[::order] for start in range(0, len(digits), 8))
    if data[:12] == b"\0" * 10 + b"\xff\xff":
        data = data[12:]
    if len(data) == 4:
        return "%s:%d" % (".".join(map(str, data)), int(port, 16))
    return "[%s]:%d" % (_compress_address(["%x" % (data[place] << 8 | data[place + 1]) for place in range(0, 16, 2)]), int(port, 16))


def _compress_address(groups: "list[str]") -> str:
    """Return an IPv6 address with "::" for its first longest row of zeros."""
    for length in range(len(groups), 1, -1):
        for start in range(len(groups) - length + 1):
            if groups[start:start + length] == ["0"] * length:
                return ":".join(groups[:start]) + "::" + ":".join(groups[start + length:])
    return ":".join(groups)


def _read_connections(pid: int) -> "list[Connection]":
    """Return all TCP sockets of the process's network namespace."""
    connections = []
    for name in ("tcp", "tcp6"):
        try:
            with open("/proc/%d/net/%s" % (pid, name)) as stream:
                stream.readline()
                connections += [Connection(line.split()) for line in stream]
        except OSError:
            pass  # it has ended, or this is a kernel without IPv6
    return connections


class Connections:
    """The TCP connections of a process tree.

    opened   list of (pid, Connection): each end of a connection that a process of the tree has
    waiting  list of (pid, Connection): listening sockets to which somebody is connected whom the tree has not accepted yet

    :param root: pid of the tree's root
    :param owners: the tree's sockets by inode (str), each with a process that has it (pid)
    """

    def __init__(self, root: int, owners: "dict[str, int]") -> None:
        self._owners = owners
        connections = _read_connections(root)
        self._ends = {(connection.local, connection.remote): connection for connection in connections if connection.is_open()}
        own = [(owners[connection.inode], connection) for connection in connections if connection.inode in owners]
        self.opened = [(pid, connection) for pid, connection in own if connection.is_open()]
        self.waiting = [(pid, connection) for pid, connection in own if connection.state == _LISTENING and connection.waiting]

    def is_inside(self, connection: Connection) -> bool:
        """Whether both ends are of the tree, and on the loopback interface: nobody else has to do with it."""
        other = self._ends.get((connection.remote, connection.local))
        return other is not None and other.inode in self._owners and all(
            format_address(address).startswith(("127.", "[::1]")) for address in (connection.local, connection.remote))

    def are_inside(self) -> bool:
        """Whether there are connections, and all of them are inside the tree."""
        return bool(self.opened) and not self.waiting and all(self.is_inside(connection) for _pid, connection in self.opened)

    def describe(self, connection: Connection) -> str:
        """Return both ends of a connection, for a sentence."""
        other = self._ends.get((connection.remote, connection.local))
        if other is None:
            owner = "another host"
        elif other.inode == "0":
            owner = "a socket that no process has open"  # not accepted yet, or closed
        elif other.inode in self._owners:
            process = processes.read_process(self._owners[other.inode])
            owner = "process %d (%s) of the job" % (process.pid, quote_text(process.name)) if process else "a process of the job"
        else:
            owner = "a process of uid %s that is not of the job" % other.uid
        return "from %s to %s, which is %s" % (format_address(connection.local), format_address(connection.remote), owner)


def _list_sockets(pid: int) -> "Iterator[tuple[int, str]]":
    """Yield the descriptors of a process that are sockets, each with the inode."""
    try:
        numbers = os.listdir("/proc/%d/fd" % pid)
    except OSError:
        return  # it has ended
    for number in numbers:
        try:
            path = os.readlink("/proc/%d/fd/%s" % (pid, number))
        except OSError:
            continue  # it has been closed
        if path.startswith("socket:["):
            yield int(number), path[8:-1]


def find_sharers(pids: "list[int]", inodes: "set[str]") -> "dict[str, processes.Process]":
    """Return which of the sockets of a tree (pids, its root first) other processes of its owner have open as well, each with one of them.

    What is on its way from one process to another in a message is not found.
    """
    root = processes.read_process(pids[0])
    sharers: "dict[str, processes.Process]" = {}
    for process in map(processes.read_process, set(processes.list_pids()).difference(pids)) if root and inodes else ():
        if process and root and process.uid == root.uid:
            sharers.update((inode, process) for _number, inode in _list_sockets(process.pid) if inode in inodes)
    return sharers


def has_inside_only(pids: "list[int]") -> bool:
    """Return whether a tree (pids, its root first) has TCP connections, and all of them are inside it. Nothing is opened but /proc."""
    owners: "dict[str, int]" = {}
    for pid in pids:
        for _number, inode in _list_sockets(pid):
            owners.setdefault(inode, pid)
    if not owners:
        return False
    connections = Connections(pids[0], owners)
    return connections.are_inside() and not find_sharers(pids, {connection.inode for _pid, connection in connections.opened})


def list_peers(pid: int) -> "list[str]":
    """Return the other ends (address:port) of the TCP connections of a process; "" for each that it has not accepted yet."""
    own = Connections(pid, {inode: pid for _number, inode in _list_sockets(pid)})
    return [format_address(connection.remote) for _pid, connection in own.opened] + [""] * len(own.waiting)


_SO_PEERNAME, _SO_PROTOCOL, _TCP_REPAIR = 28, 38, 19
_TCP_CLOSE = 7
_ABORT = struct.pack("ii", 1, 0)
"""SO_LINGER: the last close ends a connection at once."""


def list_sockets(root: processes.Process) -> "set[str]":
    """Return the inodes of the sockets of a tree."""
    return {inode for process in processes.list_family(root) for _number, inode in _list_sockets(process.pid)}


def _share_connections(members: "Iterable[processes.Process]", wanted: "set[str] | None" = None) -> "Iterator[socket.socket]":
    """Yield the TCP sockets of processes as our own, as far as that is possible; to be closed. As root.

    :param wanted: inodes of the sockets that are meant, None for all
    """
    seen: "set[str]" = set()
    for process in members:
        for number, inode in _list_sockets(process.pid):
            if inode in seen or wanted is not None and inode not in wanted:
                continue
            seen.add(inode)
            try:
                shared = socket.socket(fileno=processes.share_descriptor(processes.get_mark(process), number))
            except OSError:
                continue  # it is gone, we have too many, or the kernel cannot
            if shared.getsockopt(socket.SOL_SOCKET, _SO_PROTOCOL) == socket.IPPROTO_TCP:
                yield shared
            else:
                shared.close()


def _was_connected(shared: socket.socket) -> bool:
    """Whether a TCP socket had a connection which both sides have closed, or one of them has reset. /proc/net/tcp does not list it."""
    try:
        shared.getsockopt(socket.SOL_SOCKET, _SO_PEERNAME, 16)  # as long as an address at least is
    except OSError:
        return False
    return shared.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE


def has_closed(root: processes.Process) -> bool:
    """Return whether a tree has TCP sockets open whose connections were closed. As root.

    :raises HookError: TEMPORARY when one was reset and no process has noticed: it would then look as if it had been closed
    """
    found = False
    for shared in _share_connections(processes.list_family(root)):
        with shared:
            if _was_connected(shared):
                found = True
                poll = select.poll()
                poll.register(shared, 0)
                if any(events & select.POLLERR for _number, events in poll.poll(0)):
                    raise HookError(TEMPORARY, "a TCP connection of the job (its own address was %s:%d) was reset, and no process has "
                                    "noticed that yet; the job keeps running; try again when one has read from it or closed it"
                                    % shared.getsockname()[:2])
    return found


def end_repair(uid: int, sockets: "set[str]") -> None:
    """Have none of the sockets in repair mode, which is how an engine that was killed leaves the TCP connections of a job. As root.

    Nothing is sent or received in that mode, and it is a right that otherwise only CAP_NET_ADMIN gives.

    :param uid: the job's owner's, any of whose processes may have them open
    :param sockets: from list_sockets(), before the engine started; those of other jobs may be in the work of another engine
    """
    owned = (process for process in map(processes.read_process, processes.list_pids()) if process and process.uid == uid)
    for connection in _share_connections(owned, sockets):
        with connection, contextlib.suppress(OSError):
            if connection.getsockopt(socket.IPPROTO_TCP, _TCP_REPAIR):
                connection.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 0)


@contextlib.contextmanager
def drop_silently(root: processes.Process) -> "Iterator[None]":
    """Have the TCP connections of a tree that ends in the body vanish from the kernel. As root.

    Otherwise their ports stay in use for a minute (TIME_WAIT), in which the job could not be restored on this node. If it cannot be done,
    that is all.
    """
    shared = list(_share_connections(processes.list_family(root)))
    try:
        yield
    finally:
        for connection in shared:
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
