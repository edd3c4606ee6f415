"""TCP connections of a process tree, and whose their other ends are, by /proc/net/tcp."""
import os
import sys

from ..errors import quote_text
from ..system import processes
from ..system.addresses import format_end, is_loopback, unmap_address

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterable, Iterator

_CLOSED, _LISTENING = "07", "0A"
_CLOSE_WAIT = "08"
_HALF_CLOSED = ("05", _CLOSE_WAIT, "09", "0B")
"""FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING: one side has said that it sends nothing any more."""


def parse_end(text: str) -> "tuple[bytes, int]":
    """Return an address, as its other end may have it, and its port, from /proc/net/tcp or tcp6."""
    digits, port = text.split(":")
    order = -1 if sys.byteorder == "little" else 1  # of each word of 32 bits
    words = [bytes.fromhex(digits[start:start + 8])[::order] for start in range(0, len(digits), 8)]
    return unmap_address(b"".join(words)), int(port, 16)


class Connection:
    """One end of a TCP connection, or a listening socket: a line of /proc/net/tcp.

    local, remote  tuple: address and port, from parse_end
    inode          str, "0" if no process has it
    """

    def __init__(self, fields: "list[str]") -> None:
        self.local, self.remote = map(parse_end, fields[1:3])
        self.state = fields[3]
        self.uid, self.inode = fields[7], fields[9]
        self.waiting = int(fields[4].partition(":")[2], 16)

    def is_open(self) -> bool:
        """Whether this is an end of a connection."""
        return self.state not in (_CLOSED, _LISTENING)

    def is_half_closed(self) -> bool:
        """Whether one side of the connection was closed, and the other side knows it."""
        return self.state in _HALF_CLOSED


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
        """Whether it is on the loopback interface, and nobody else has to do with it: the other end is of the tree, or was closed."""
        other = self._ends.get((connection.remote, connection.local))
        return is_loopback(connection.local[0]) and is_loopback(connection.remote[0]) and (
            self.is_left(connection) or other is not None and other.inode in self._owners)

    def is_left(self, connection: Connection) -> bool:
        """Whether the other end was closed by all that had it, and this one has received all that came from it."""
        other = self._ends.get((connection.remote, connection.local))
        return connection.state == _CLOSE_WAIT and (other is None or other.inode == "0")

    def are_inside(self) -> bool:
        """Whether there are connections, and all of them are inside the tree."""
        return bool(self.opened) and not self.waiting and all(self.is_inside(connection) for _pid, connection in self.opened)

    def describe(self, connection: Connection) -> str:
        """Return both ends of a connection, for a sentence."""
        other = self._ends.get((connection.remote, connection.local))
        if other is None:
            owner = "gone" if is_loopback(connection.remote[0]) else "another host"
        elif other.inode == "0":
            owner = "a socket that no process has open"  # not accepted yet, or closed
        elif other.inode in self._owners:
            process = processes.read_process(self._owners[other.inode])
            owner = "process %d (%s) of the job" % (process.pid, quote_text(process.name)) if process else "a process of the job"
        else:
            owner = "a process of uid %s that is not of the job" % other.uid
        return "from %s to %s, which is %s" % (format_end(*connection.local), format_end(*connection.remote), owner)


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


def has_inside_only(pids: "list[int]", sockets: "dict[str, tuple[processes.Process, int]]") -> bool:
    """Return whether a tree has TCP connections, and all of them are inside it. Nothing is opened but /proc.

    :param pids: its processes, the root first
    :param sockets: theirs, from list_sockets()
    """
    if not sockets:
        return False
    connections = Connections(pids[0], {inode: process.pid for inode, (process, _number) in sockets.items()})
    return connections.are_inside() and not find_sharers(pids, {connection.inode for _pid, connection in connections.opened})


def list_sockets(members: "Iterable[processes.Process]") -> "dict[str, tuple[processes.Process, int]]":
    """Return the sockets of processes by inode, each with one that has it, and its descriptor there."""
    sockets: "dict[str, tuple[processes.Process, int]]" = {}
    for process in members:
        for number, inode in _list_sockets(process.pid):
            sockets.setdefault(inode, (process, number))
    return sockets


def list_peers(pid: int) -> "list[str]":
    """Return the other ends (address:port) of the TCP connections of a process; "" for each that it has not accepted yet."""
    own = Connections(pid, {inode: pid for _number, inode in _list_sockets(pid)})
    return [format_end(*connection.remote) for _pid, connection in own.opened] + [""] * len(own.waiting)
