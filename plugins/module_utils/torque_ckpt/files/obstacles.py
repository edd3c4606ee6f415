"""What stands in the way of a checkpoint: found in /proc while the job runs, without stopping it or opening anything that it has open.

What an engine cannot write is data of its entry (engines/registry.py): some of KINDS. What appears after the look, the engine reports.
"""
import os
from collections import namedtuple
from fnmatch import fnmatchcase

from ..errors import quote_text
from ..system import processes, sock_diag
from ..system.addresses import format_end
from ..units import format_bytes
from .connections import Connections, find_sharers
from .open_files import REMOVED, parse_flags, read_information

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterable, Sequence
    from .open_files import OpenFiles

Obstacle = namedtuple("Obstacle", "kind pid name resource advice")
"""One resource that cannot be checkpointed.

kind      str: one of KINDS
pid, name the process that has it
resource  str: what the process has or is, the rest of a sentence that begins with it
advice    str: what to do
"""

_WAIT = "checkpoint the job when the process has closed it"
KINDS = {
    "io_uring": "turn io_uring off in the program (libuv before 1.50, so most Node.js before 24: UV_USE_IO_URING=0), or have the "
                "administrator turn it off on the nodes (sysctl kernel.io_uring_disabled=2)",
    "kernel_object": _WAIT,
    "inotify": "start the program so that it does not watch files, or checkpoint the job when it has ended",
    "fanotify": _WAIT,
    "packet_pipe": "checkpoint the job when the process has ended, or let the program use pipes without O_DIRECT",
    "device": "checkpoint the job when the process has closed the device",
    "sysv_memory": "let the program use POSIX shared memory (MPI with UCX: UCX_TLS=posix,self), or checkpoint the job when it has ended",
    "removed_file": "checkpoint the job when the process has closed it, or have the administrator raise checkpoint_hooks_node_local_bytes",
    "replaced_file": "checkpoint the job when the process has closed it; a program or library that an update of the node has replaced is "
                     "open until the process ends",
    "dead_process": "checkpoint the job when the process has changed its directory or has ended",
    "namespace": "checkpoint the job when the container has ended, or run the program without a container",
    "traced": "end the debugger, or checkpoint the job when it has ended",
    "seccomp": "checkpoint the job when the process has ended, or run the program without its sandbox",
    "nodes": "submit it for one node, or start its program by ckpt-run, which lets it write restart files of its own",
    "nodes_refused": "submit it for one node; the settings of this node refuse every job on several",
    "tcp": "checkpoint the job when the connection is closed",
    "tcp_pending": "try again when the process has accepted it",
    "unix_peer": "checkpoint the job when the connection is closed",
    "x11": "close its windows, or start an X server in the job for it (xvfb-run)",
    "socket": _WAIT,
    "broken_lease": "try again when the process has given the lease up",
}
"""Kinds of obstacles, and what to do about each."""

REFUSE, NESTED, SITE = "refuse", "nested", "site"
"""What a checkpoint does about a job on several nodes: see config.py, multinode."""

_ANONYMOUS = "anon_inode:"
_KNOWN_OBJECTS = ("eventfd", "eventpoll", "signalfd", "timerfd", "pidfd", "bpf-map")
"""Kernel objects that are no obstacles; every other one is of a kind of its own or a "kernel_object"."""
_WATCHES = {"inotify": b"\ninotify wd:", "fanotify": b"\nfanotify ino:"}
"""Those that are obstacles if they watch something, and how fdinfo shows that."""
_NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts")
_X11 = ("/tmp/.X11-unix/", "@/tmp/.X11-unix/")
_MOST = 1000
"""So many obstacles are listed at most."""

_DATAGRAM = "0002"


class _Findings:
    """What was found of some kinds."""

    def __init__(self, kinds: "Iterable[str]") -> None:
        self.kinds = frozenset(kinds)
        self._obstacles: "dict[tuple[int, str], Obstacle]" = {}

    def add(self, kind: str, pid: int, resource: str) -> None:
        """Note a resource, if it is of one of the kinds."""
        if kind in self.kinds and (pid, resource) not in self._obstacles and len(self._obstacles) < _MOST:
            self._obstacles[pid, resource] = Obstacle(kind, pid, _read_name(pid), resource, KINDS[kind])

    def sort(self, pids: "list[int]") -> "list[Obstacle]":
        """Return the obstacles in the order of these processes."""
        order = {pid: number for number, pid in enumerate(pids)}
        return sorted(self._obstacles.values(), key=lambda obstacle: order.get(obstacle.pid, len(order)))


def _read_name(pid: int) -> str:
    process = processes.read_process(pid)
    return quote_text(process.name) if process else "?"


# -- processes ---------------------------------------------------------------------------------------------------------

def _read_namespaces(pid: int) -> "dict[str, str]":
    links = {}
    for name in _NAMESPACES:
        try:
            links[name] = os.readlink("/proc/%d/ns/%s" % (pid, name))
        except OSError:
            pass  # it has ended, or the kernel has no such namespaces
    return links


def _examine_process(findings: _Findings, pid: int) -> None:
    try:
        with open("/proc/%d/status" % pid, "rb") as stream:
            fields = dict(line.split(b":", 1) for line in stream.read().splitlines() if line.startswith((b"TracerPid", b"Seccomp:")))
        directory = os.readlink("/proc/%d/cwd" % pid)
    except OSError:
        return  # it has ended
    if directory.startswith("/proc/") and directory.endswith(REMOVED):
        findings.add("dead_process", pid, "works in the directory %s of a process that has ended" % quote_text(directory[:-len(REMOVED)]))
    tracer = int(fields[b"TracerPid"])
    if tracer:
        findings.add("traced", pid, "is traced by process %d (%s)" % (tracer, _read_name(tracer)))
    if fields.get(b"Seccomp", b"0").strip() != b"0":
        findings.add("seccomp", pid, "is confined by seccomp")


def _examine_processes(findings: _Findings, pids: "list[int]") -> None:
    own = _read_namespaces(pids[0])
    for pid in pids:
        _examine_process(findings, pid)
        if "namespace" in findings.kinds and pid != pids[0]:
            other = [name for name, link in _read_namespaces(pid).items() if own.get(name) != link]
            if other:
                findings.add("namespace", pid, "is in a container (namespaces of its own: %s)" % ", ".join(other))


def _examine_nodes(findings: _Findings, root: int, nodes: "Sequence[str]") -> None:
    """An image has a job's processes on one of its nodes: that of its shell."""
    if len(nodes) > 1:
        shown = ", ".join(map(quote_text, nodes[:4])) + (" and %d more" % (len(nodes) - 4) if len(nodes) > 4 else "")
        for kind in ("nodes", "nodes_refused"):
            findings.add(kind, root, "belongs to a job on %d nodes (%s)" % (len(nodes), shown))


# -- descriptors and mappings --------------------------------------------------------------------------------------------

def _is_packet_pipe(pid: int, number: str) -> bool:
    try:
        return bool(parse_flags(read_information(pid, number)) & os.O_DIRECT)
    except OSError:
        return False  # it has been closed


def _is_watching(pid: int, number: str, name: str) -> bool:
    try:
        return _WATCHES[name] in read_information(pid, number)
    except OSError:
        return False  # it has been closed


def _examine_device(findings: _Findings, pid: int, path: str, devices: "list[str]") -> None:
    if any(fnmatchcase(path, pattern) for pattern in devices):
        findings.add("device", pid, "has the device %s open" % quote_text(path))


def _examine_descriptors(findings: _Findings, opened: "OpenFiles", devices: "list[str]") -> None:
    for pid, number, path in opened.others:
        if path.startswith("/dev/"):
            _examine_device(findings, pid, path, devices)
        elif path.startswith(_ANONYMOUS):
            name = path[len(_ANONYMOUS):].strip("[]")
            if name == "io_uring":
                findings.add("io_uring", pid, "has an io_uring open")
            elif name in _WATCHES:
                if name in findings.kinds and _is_watching(pid, number, name):
                    findings.add(name, pid, "watches files (%s)" % name)
            elif name not in _KNOWN_OBJECTS:
                findings.add("kernel_object", pid, "has a kernel object open (%s)" % quote_text(name))
        elif path.startswith("pipe:") and "packet_pipe" in findings.kinds and _is_packet_pipe(pid, number):
            findings.add("packet_pipe", pid, "has a pipe of packets open (O_DIRECT)")
    for pid, path in opened.mapped:
        _examine_device(findings, pid, path, devices)
        if path.startswith("/SYSV"):
            findings.add("sysv_memory", pid, "has System V shared memory")
    for pid, path in opened.breaking:
        findings.add("broken_lease", pid, "has a lease on the file %s that another process is breaking" % quote_text(path))


def _may_create(path: str) -> bool:
    """Whether we may create a file with this path, and the directories above it that are missing."""
    directory = os.path.dirname(path)
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    return os.access(directory, os.W_OK | os.X_OK)


def _examine_replaced_files(findings: _Findings, opened: "OpenFiles") -> None:
    """A removed file is restored by its name for a moment, as the job's owner."""
    for _size, path, pid in opened.removed.values():
        if not _may_create(path):
            findings.add("replaced_file", pid, "has the file %s open, which was removed or replaced, in a directory to which you may not "
                         "write" % quote_text(path))


def _examine_removed_files(findings: _Findings, opened: "OpenFiles", limit: int) -> None:
    """All of them together may have as much as may travel with an image."""
    total = opened.count_removed_bytes()
    if total > limit:
        size, path, pid = max(opened.removed.values())
        others = ", and others, %s in all" % format_bytes(total) if size < total else ""
        findings.add("removed_file", pid, "has the removed file %s of %s open%s, of which at most %s may be in an image"
                     % (quote_text(path), format_bytes(size), others, format_bytes(limit)))


# -- sockets -------------------------------------------------------------------------------------------------------------

def _examine_tcp(findings: _Findings, pids: "list[int]", owners: "dict[str, int]", moves: bool) -> None:
    """pids: the tree's; owners: its sockets, each with a process that has it; moves: see find_obstacles()."""
    connections = Connections(pids[0], owners)
    sharers = find_sharers(pids, {connection.inode for _pid, connection in connections.opened}) if moves else {}
    for pid, connection in connections.opened:
        if connection.inode in sharers:
            findings.add("tcp", pid, "shares a TCP connection with process %d (%s), which is not of the job: that %s"
                         % (sharers[connection.inode].pid, quote_text(sharers[connection.inode].name), connections.describe(connection)))
        elif connection.is_half_closed() and not (moves and connections.is_inside(connection) and connections.is_left(connection)):
            findings.add("tcp", pid, "has a half-closed TCP connection " + connections.describe(connection))
        elif not (moves and connections.is_inside(connection)):
            findings.add("tcp", pid, "has a TCP connection " + connections.describe(connection))
    for pid, connection in connections.waiting:
        findings.add("tcp_pending", pid, "has not yet accepted a TCP connection to %s" % format_end(*connection.local))


def _examine_unix(findings: _Findings, opened: "OpenFiles", owners: "dict[str, int]") -> None:
    if not opened.unix:
        return
    sockets = sock_diag.list_unix_sockets()
    for inode, (kind, _name) in opened.unix.items():
        peer = sock_diag.unpack_number(sockets.get(int(inode), {}).get(sock_diag.PEER))
        if kind == _DATAGRAM or not peer or peer not in sockets or str(peer) in owners:
            continue  # of a connection that nobody has accepted yet the peer is 0
        name = os.fsdecode(sockets[peer].get(sock_diag.NAME, b"")).rstrip("\0")
        shown = "@" + name[1:] if name.startswith("\0") else name
        if shown.startswith(_X11) and "x11" in findings.kinds:
            findings.add("x11", owners[inode], "has windows on a screen (%s)" % quote_text(shown))
        else:
            findings.add("unix_peer", owners[inode], "is connected to %s, a socket of a process that is not of the job"
                         % (quote_text(shown) if shown else "a unix socket without a name"))


_HARMLESS = ("UNIX", "UNIX-STREAM", "TCP", "TCPv6", "UDP", "UDPv6", "UDP-Lite", "UDPLITEv6", "RAW", "RAWv6", "PING", "PINGv6", "NETLINK",
             "PACKET")
"""Protocols of sockets that are no obstacles by themselves, by the names that the kernel gives them."""


def _examine_protocol(findings: _Findings, pid: int, number: str) -> None:
    try:
        name = os.getxattr("/proc/%d/fd/%s" % (pid, number), "system.sockprotoname").rstrip(b"\0").decode("ascii", "replace")
    except OSError:
        return  # it has been closed
    if name not in _HARMLESS:
        findings.add("socket", pid, "has a socket of the protocol %s open" % quote_text(name))


def _examine_sockets(findings: _Findings, opened: "OpenFiles", moves: bool) -> None:
    ends = [(pid, number, path[8:-1]) for pid, number, path in opened.others if path.startswith("socket:[")]
    owners: "dict[str, int]" = {}
    for pid, _number, inode in ends:
        owners.setdefault(inode, pid)
    if opened.unix and findings.kinds & {"unix_peer", "x11"}:
        _examine_unix(findings, opened, owners)
    others = [(pid, number) for pid, number, inode in ends if inode not in opened.unix]
    if others and "tcp" in findings.kinds:
        _examine_tcp(findings, opened.pids, owners, moves)
    if "socket" in findings.kinds:
        for pid, number in others:
            _examine_protocol(findings, pid, number)


# -- all -----------------------------------------------------------------------------------------------------------------

def select_kinds(kinds: "Iterable[str]", settings: dict, nested: bool) -> "list[str]":
    """Return what stands in the way on this node, of KINDS: what its engine cannot write, and what its settings refuse.

    :param nested: whether a program of the job was started by ckpt-run, and so has ended on all nodes when the image is written
    """
    if settings["multinode"] == REFUSE:
        return list(kinds) + ["nodes_refused"]
    return list(kinds) + ["nodes"] * (settings["multinode"] == NESTED and not nested)


def find_obstacles(opened: "OpenFiles", kinds: "Iterable[str]", devices: "list[str]", limit: int, moves: bool = False,
                   nodes: "Sequence[str]" = ()) -> "list[Obstacle]":
    """Return what stands in the way of a checkpoint of a tree, in the order of its processes.

    :param opened: what the tree has open, from open_files.find_open_files()
    :param kinds: what the engine cannot write, of KINDS
    :param devices: patterns of devices' paths
    :param limit: how much removed files may have (bytes)
    :param moves: whether TCP connections between processes of the tree on the loopback interface are moved
    :param nodes: those of the job, from identity.list_nodes()
    """
    findings = _Findings(kinds)
    _examine_nodes(findings, opened.pids[0], nodes)
    _examine_processes(findings, opened.pids)
    _examine_descriptors(findings, opened, devices)
    if "removed_file" in findings.kinds:
        _examine_removed_files(findings, opened, limit)
    if "replaced_file" in findings.kinds:
        _examine_replaced_files(findings, opened)
    _examine_sockets(findings, opened, moves)
    return findings.sort(opened.pids)


def format_sentence(obstacle: Obstacle, engine: str, consequence: str = "") -> str:
    """Return a sentence about an obstacle.

    :param engine: the engine's name
    :param consequence: what becomes of the job, or empty
    """
    return "process %d (%s) %s; %s cannot checkpoint that; %s%s" % (obstacle.pid, obstacle.name, obstacle.resource, engine,
                                                                    consequence + "; " if consequence else "", obstacle.advice)
