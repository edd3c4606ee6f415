"""CRIU, run as the job's owner with CAP_CHECKPOINT_RESTORE, and with CAP_SYS_PTRACE for a dump where Yama is on (kernel >= 5.9)."""
import mmap
import os
import re
import signal
import time

from ..errors import (HookError, CANNOT_WRITE, CARRYING, CONFIG, ENGINE, ENGINE_CURE, REFUSED, RESTORE_CURE, TEMPORARY, quote_name,
                      quote_text)
from ..system import processes, sock_diag
from ..system.command import run
from ..system.privilege import CAP_CHECKPOINT_RESTORE, CAP_NET_ADMIN, CAP_SETPCAP, CAP_SYS_PTRACE
from .base import Engine

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Optional, Sequence
    from .criu_files import OpenFiles

# --shell-job           the tree's session is the hook's, outside the image
# --file-locks          jobs lock files; their locks are restored
# --ext-unix-sk         a socket to syslog or the like must not prevent the image
# --link-remap          open files that were removed are restored
# --manage-cgroups      pbs_mom owns the job's cgroups
_COMMON = ["--unprivileged", "--shell-job", "--file-locks", "--ext-unix-sk", "--link-remap", "--manage-cgroups=ignore", "-v1"]

# skip: both ends of each connection stand still, so that nothing needs to be kept from it
_CONNECTED = ["--tcp-established", "--network-lock", "skip"]

# Otherwise CRIU opens each file to read the id of a program's build. With this it knows programs, too, by their size alone.
_LEASED = ["--file-validation", "filesize"]

_CAPABILITIES = {"setpcap": CAP_SETPCAP, "sys_ptrace": CAP_SYS_PTRACE, "checkpoint_restore": CAP_CHECKPOINT_RESTORE}
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_PORT_IN_USE = re.compile(r"Can't bind inet socket.*Address already in use")
_PID_IN_USE = re.compile(r"(?:Can't fork for|Unable to fork|Can't clone).*File exists|Unable to create a thread: -17\b"
                         r"|Pid \d+ do not match expected", re.IGNORECASE)
# CRIU's processes talk to each other through abstract sockets, to which whoever is on the node can send. After another failure that
# is printed first it reports nothing about them, or something else.
_DISTURBED = re.compile(r"Unexpected fle|Can't get fd=|Unable to open fd=|Message reply from daemon is trimmed|Communication error"
                        r"|Command \d+ for daemon failed|Failed to read ack|Can't switch parasite \d+ to daemon mode")
# The kernel goes on to carry bytes from one end of a connection to the other while both are frozen, also between the two moments in
# which CRIU asks how many an end has and reads them.
_BYTES_CAME = re.compile(r"recv failed \(\d+, want \d+\)")
_TRANSPORT = b"\0/crtools-pr-%d-"
"""How names of the sockets begin by which the CRIU of a process id talks to a job's processes."""
LONGEST = 300
"""So much of its output is shown at most (characters)."""
_CORE = re.compile(r"core-([0-9]+)\.img")
_MEMORY = re.compile(r"pages-[0-9]+\.img")
_ERROR = re.compile(r"Error \([^)]*\): (.*)")
_RIGHTS = re.compile(r"(core|creds)-[0-9]+\.img")
_REMOVED = 1 << 20
"""How large a removed file may be for CRIU by itself (bytes). It is never told less."""
_CONFINED = ("Unable to connect a transport socket: Operation not permitted", "can't get /proc fd")
"""CRIU's words about a process that may not connect to it or open /proc: a program that confines itself by Landlock while it works."""
_CONFINED_TRIES, _CONFINED_PAUSE = 6, 1
"""How often a dump is tried that such a process prevents, and after which pause (seconds): most such programs end soon."""
_VERSION_CURE = "install the version of CRIU that the role criu builds"
"""What to do if these hooks do not understand what CRIU wrote."""
_SPARE = 16
"""How many more files of memory are prepared than twice what the tree seems to need: it may fork until it is frozen."""


def _read_last_capability() -> int:
    """Return the highest capability that the kernel knows."""
    with open("/proc/sys/kernel/cap_last_cap") as stream:
        return int(stream.read())


def _read_bounding_set() -> int:
    """Return the capabilities (a bit each) that root can have on this node."""
    with open("/proc/self/status") as stream:
        return next(int(line.split()[1], 16) for line in stream if line.startswith("CapBnd:"))


def _is_bounding_set_cut() -> bool:
    """Whether root's bounding set lacks a capability on this node, as it does in most containers."""
    return _read_bounding_set() != (1 << (_read_last_capability() + 1)) - 1


def _is_ptrace_restricted() -> bool:
    """Whether Yama keeps a process of this node from stopping another of its user's that is not its child."""
    try:
        with open(_YAMA) as stream:
            return int(stream.read()) > 0
    except FileNotFoundError:
        return False


def find_reason(output: str) -> str:
    """Return CRIU's own first error out of what it printed."""
    errors = [line.strip() for line in _ERROR.findall(output)]
    lines = errors or output.strip().splitlines()[-1:] or ["it printed nothing"]
    return quote_name(lines[0].strip())[:LONGEST]  # others may have written to its output


def allows_execmem() -> bool:
    """Return whether this process may have memory that is writable and executable at once, in which CRIU restores."""
    try:
        mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    except OSError:
        return False
    return True


def _count_memory_files(root: int) -> int:
    """Return how many files of memory an image of the tree under root (pid) has: one for a process, one for a shared segment."""
    pids = processes.list_tree(root)
    segments: "set[tuple[bytes, ...]]" = set()
    for pid in pids:
        try:
            with open("/proc/%d/maps" % pid, "rb") as stream:
                segments.update(tuple(line.split(None, 5)[3:5]) for line in stream if line.split(None, 2)[1].endswith(b"s"))
        except OSError:
            pass  # it has ended
    return len(pids) + len(segments)


def _create_links(directory: str, memory: str, root: int) -> "list[str]":
    """Create links in directory (path) by which CRIU's files of memory come into memory (path); return their names."""
    links = ["pages-%d.img" % number for number in range(1, 2 * _count_memory_files(root) + _SPARE + 1)]
    try:
        for name in links:
            os.symlink(os.path.join(memory, name), os.path.join(directory, name))
    except OSError as error:
        raise HookError(CANNOT_WRITE, "cannot write to the private directory of this node: %s; the job keeps running; free some "
                        "space there" % error.strerror)
    return links


def _remove_files(directory: str, memory: "str | None") -> None:
    """Remove what a dump that failed has left in directory (path), and its files of memory in memory (path)."""
    paths = [os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".img") or name == "stats-dump"]
    if memory:
        paths += [os.path.join(memory, name) for name in os.listdir(memory) if _MEMORY.fullmatch(name)]
    for path in paths:
        os.unlink(path)


def _name_confined(root: int) -> str:
    """Return which processes of the tree under root (pid) may have confined themselves, for a sentence."""
    suspects = []
    for pid in processes.list_tree(root):
        process = processes.read_process(pid)
        try:
            with open("/proc/%d/status" % pid, "rb") as stream:
                if process and b"\nNoNewPrivs:\t1\n" in stream.read():
                    suspects.append("process %d (%s)" % (pid, quote_text(process.name)))
        except OSError:
            pass  # it has ended
    return " or ".join(suspects[:3]) or "a process of the job"


class Criu(Engine):
    """See base.Engine.

    :param path: criu by absolute path
    :param options: further options for every dump and restore
    :param timeout: seconds a call may take
    :param stall: seconds a dump or restore may do nothing
    """

    name = "criu"
    moves_connections = True

    def __init__(self, path: str, options: "Sequence[str]" = (), timeout: int = 3600, stall: int = 30) -> None:
        self.path = path
        self.options = list(options)
        self.timeout = timeout
        self.stall = stall
        if not os.access(path, os.X_OK):
            raise HookError(CONFIG, "criu is not at %s on this node; run the role criu" % path)

    @property
    def dump_capabilities(self) -> "tuple[int, ...]":
        """See Engine. The first is as good as root's rights: CRIU has it only where Yama lets nobody else stop a process."""
        return ((CAP_SYS_PTRACE,) if _is_ptrace_restricted() else ()) + (CAP_CHECKPOINT_RESTORE,)

    @property
    def connection_capabilities(self) -> "tuple[int, ...]":
        """See Engine. TCP_REPAIR needs it, by which CRIU reads and sets the state of a connection."""
        return (CAP_NET_ADMIN,)

    @property
    def restore_capabilities(self) -> "tuple[int, ...]":
        """See Engine. CRIU drops the bounding capabilities that a process had lost, for which it needs CAP_SETPCAP."""
        return (CAP_CHECKPOINT_RESTORE,) + ((CAP_SETPCAP,) if _is_bounding_set_cut() else ())

    @classmethod
    def probe(cls, options: dict) -> "dict[str, Any]":
        """See Engine; also path, what it is a link to, where all links lead, root's capabilities that CRIU needs, and allows_execmem()."""
        try:
            version = cls(**options).read_version()
        except HookError:
            version = ""
        bounding = _read_bounding_set()
        program = os.path.realpath(options["path"])
        link = os.readlink(options["path"]) if os.path.islink(options["path"]) else ""
        return {"path": options["path"], "link": link, "program": program if os.path.exists(program) else "", "version": version,
                "execmem": allows_execmem(),
                "capabilities": {name: bool(bounding >> number & 1) for name, number in _CAPABILITIES.items()}}

    def read_version(self) -> str:
        """See Engine."""
        status, output = run([self.path, "--version"], self.timeout)
        match = re.search(r"Version: *(\S+)", output)
        if status != 0 or not match:
            raise HookError(ENGINE, "%s --version failed: %s; run the role criu" % (self.path, find_reason(output)))
        return match.group(1)

    def check_node(self) -> None:
        """See Engine."""
        if _read_last_capability() < CAP_CHECKPOINT_RESTORE:
            raise HookError(CONFIG, "CRIU cannot run as an ordinary user on this node's kernel %s: it needs 5.9 or newer; "
                            "boot a newer kernel" % os.uname().release)
        if not allows_execmem():
            raise HookError(CONFIG, "SELinux refuses memory that is writable and executable on this node, so that CRIU can restore no job; "
                            "allow it: setsebool -P allow_execmem on, or where the policy has deny_execmem: setsebool -P deny_execmem off")

    def dump(self, root: int, directory: str, stop: bool, action_script: "str | None" = None,
             meanwhile: "Optional[Callable[[], None]]" = None, memory: "str | None" = None, removed: "int | None" = None,
             connected: bool = False, leased: bool = False) -> None:
        """See Engine. CRIU has one directory; links in it lead to the files of memory, which it opens as they are.

        With --leave-stopped CRIU leaves connections in repair mode, in which they could not go on. Killed, it leaves them so, too: the
        tree is stopped before that.
        """
        def stop_tree() -> None:
            process = processes.read_process(root)
            processes.signal_processes(processes.list_owned(process) if process else [], signal.SIGSTOP)
        options = ([] if removed is None else ["--ghost-limit", str(max(removed, _REMOVED))]) + (_CONNECTED if connected else []) + (
            _LEASED if leased else [])
        for left in reversed(range(_CONFINED_TRIES)):
            links = _create_links(directory, memory, root) if memory else []
            status, output = self._run_criu(["dump", "-t", str(root), "-D", directory, "--leave-stopped" if stop else "--leave-running"],
                                            action_script, meanwhile, "the job keeps running; try again",
                                            options, before_kill=stop_tree if connected else None)
            if status == 0:
                for name in links:
                    os.unlink(os.path.join(directory, name))
                return
            reason = find_reason(output)
            if _BYTES_CAME.match(reason):
                raise HookError(TEMPORARY, "the TCP connections of the job still carried bytes while its image was written (criu: %s); the "
                                "job keeps running; try again" % reason, CARRYING)
            if _DISTURBED.match(reason):
                raise HookError(TEMPORARY, "criu dump failed with status %d: %s; the job keeps running; try again" % (status, reason))
            if reason not in _CONFINED:
                raise HookError(ENGINE, "criu dump failed with status %d: %s; the job keeps running; %s" % (status, reason, ENGINE_CURE))
            if left:
                _remove_files(directory, memory)
                meanwhile = None  # it has been called
                time.sleep(_CONFINED_PAUSE)
        raise HookError(TEMPORARY, "%s has confined itself (by Landlock, as xz does while it works), so that criu did not reach it in %d "
                        "tries; the job keeps running; checkpoint the job when it has ended" % (_name_confined(root), _CONFINED_TRIES))

    def _run_criu(self, arguments: "list[str]", action_script: "str | None", meanwhile: "Optional[Callable[[], None]]",
                  advice: str, options: "Sequence[str]" = (), pause: int = 0,
                  before_kill: "Optional[Callable[[], None]]" = None) -> "tuple[int, str]":
        """Run CRIU; return its status and output.

        :param advice: what becomes of the job if CRIU hangs, and what to do, the end of the sentence
        :param options: those of this call alone
        :param pause: how much longer than usual it may do nothing (seconds)
        :param before_kill: called before it is killed, or None
        """
        strangers: "list[int]" = []

        def find_interference(pid: int) -> "str | None":
            uid = sock_diag.find_stranger(_TRANSPORT % pid)
            if uid is None:
                return None
            strangers.append(uid)
            return "was kept from the job by a process of uid %d" % uid
        try:
            return run([self.path] + arguments + (["--action-script", action_script] if action_script else []) + _COMMON + list(options)
                       + self.options, self.timeout, meanwhile, stall=self.stall + pause, find_reason=find_interference,
                       before_kill=before_kill)
        except HookError as error:
            if error.code != TEMPORARY:
                raise
            raise HookError(TEMPORARY, "%s; %s; %s" % (
                error.reason, "report it to the administrator" if strangers else
                "another process of this node may have interfered with it, or the store does not answer", advice))

    def list_process_ids(self, directory: int) -> "list[int]":
        """See Engine. CRIU writes one core file for each thread."""
        return sorted(int(match.group(1)) for match in map(_CORE.fullmatch, os.listdir(directory)) if match)

    def find_excess(self, directory: int) -> str:
        """See Engine."""
        from . import criu_rights, criu_wire  # the health check reads no image and need not load them
        gids = set(os.getgroups()) | {os.getgid()}
        for name in sorted(filter(_RIGHTS.fullmatch, os.listdir(directory))):
            if name.startswith("creds"):
                return name + " is of a CRIU that these hooks do not know"
            try:
                excess = criu_rights.find_excess(criu_wire.read_image(directory, name, criu_rights.LARGEST), os.getuid(), gids)
            except criu_wire.Unreadable as error:
                return "%s is not as CRIU writes it: %s" % (name, error)
            if excess:
                return "%s has %s" % (name, excess)
        return ""

    def find_foreign_connection(self, directory: int) -> str:
        """See Engine."""
        from . import criu_connections, criu_files, criu_wire
        try:
            ends = criu_connections.list_ends(criu_files.OpenFiles(directory))
            return criu_connections.find_foreign_connection(ends, criu_connections.list_ends_to_leave(ends))
        except criu_wire.Unreadable as error:
            return "an image of a connection is not as CRIU writes it: %s" % error

    def settle(self, directory: int, connected: bool) -> bool:
        """See Engine. What is under way in connections becomes what has arrived."""
        from . import criu_files, criu_timers, criu_wire
        try:
            files = criu_files.OpenFiles(directory)
            criu_timers.start_expired(files)
            moved = connected and self._settle_connections(directory, files)
            files.save()
        except criu_wire.Unreadable as error:
            raise HookError(ENGINE, "an image of open files or connections is not as CRIU writes it: %s; the job keeps running; %s"
                            % (error, _VERSION_CURE))
        return moved

    def _settle_connections(self, directory: int, files: "OpenFiles") -> bool:
        """Have an image (descriptor), with its image of open files, keep what is under way in connections; return whether it has any.

        :raises criu_wire.Unreadable: the image is not as CRIU writes it
        :raises HookError: REFUSED, TEMPORARY: see Engine.settle
        """
        from . import criu_connections
        ends = criu_connections.list_ends(files)
        left = criu_connections.list_left_ends(ends)
        foreign = criu_connections.find_foreign_connection(ends, left)
        if foreign:
            raise HookError(REFUSED, "the job was connected with something outside it while its image was written (%s); the job keeps "
                            "running; try again when that connection is closed" % foreign)
        closed = criu_connections.find_half_closed_connection(ends, left) or criu_connections.drop_closed_connections(
            directory, files, ends) or criu_connections.put_back(directory, files, left)
        carrying = "" if closed else criu_connections.settle(directory, ends)
        if closed or carrying:
            raise HookError(TEMPORARY, "the TCP connections of the job could not be restored as they were when its image was written (%s); "
                            "the job keeps running; try again" % (closed or carrying), CARRYING if carrying else "")
        return criu_connections.has_connection(ends)

    def complete_connections(self, directory: int) -> None:
        """See Engine. The other ends of those that were closed are created once more, and closed."""
        from . import criu_connections, criu_wire
        try:
            failed = criu_connections.close_other_ends(directory)
        except criu_wire.Unreadable as error:
            raise HookError(ENGINE, "an image of a connection is not as CRIU writes it: %s; the image is kept; %s" % (error, _VERSION_CURE))
        if failed:
            raise HookError(TEMPORARY, "the other end of a TCP connection of the image cannot be closed on this node (%s); try again later "
                            "or on another node; image kept" % failed)

    def is_memory(self, name: str) -> bool:
        """See Engine. CRIU copies these into the processes and reads nothing in them."""
        return _MEMORY.fullmatch(name) is not None

    def restore(self, directory: str, action_script: "str | None" = None, connected: bool = False, pause: int = 0) -> None:
        """See Engine."""
        status, output = self._run_criu(["restore", "-d", "-D", directory], action_script, None,
                                        "try again later or on another node; image kept", _CONNECTED if connected else [], pause)
        if status != 0:
            if _PORT_IN_USE.search(output):
                raise HookError(TEMPORARY, "a port of the image is in use on this node (criu: %s); try again later or on another node"
                                % find_reason(output))
            if _PID_IN_USE.search(output):
                raise HookError(TEMPORARY, "a process id of the image is in use on this node (criu: %s); "
                                "try again later or on another node" % find_reason(output))
            if _DISTURBED.match(find_reason(output)):
                raise HookError(TEMPORARY, "another process of this node may have interfered with criu (criu: %s); "
                                "try again later or on another node; image kept" % find_reason(output))
            raise HookError(ENGINE, "criu restore failed with status %d: %s; the image is kept; %s"
                            % (status, find_reason(output), RESTORE_CURE))
