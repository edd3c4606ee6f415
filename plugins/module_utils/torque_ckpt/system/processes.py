"""Processes of this node, from /proc: what they are, who belongs to whom, and signals that hit no other.

A pid is used again; together with its start time it names one process for good (its mark).
"""
import os
import signal
import time
from collections import namedtuple

from ..errors import HookError, REFUSED, SYSTEM

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterable

EXECVE_SECONDS = 1
"""How long an execve may take before the process's environment is taken as it is."""

LONGEST_ENVIRONMENT = 256 << 10
"""How much of a process's environment is read (bytes); a process may declare any part of its memory to be its environment."""

Process = namedtuple("Process", "pid ppid group session start state uid name alien")
"""start is in clock ticks since boot; a pid and its start time name one process for good.
uid is the real one; alien: whether the effective, saved or file system uid differs from it (a setuid program)."""


def read_process(pid: int) -> "Process | None":
    """Return the Process with that pid, None if there is none."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            text = stream.read()
        with open("/proc/%d/status" % pid, "rb") as stream:
            uids = next(line.split()[1:] for line in stream if line.startswith(b"Uid:"))
    except (OSError, StopIteration):
        return None
    name = text[text.index(b"(") + 1:text.rindex(b")")].decode("utf-8", "replace")
    fields = text[text.rindex(b")") + 2:].split()
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), fields[0].decode(),
                   int(uids[0]), name, len(set(uids)) > 1)


def read_self() -> Process:
    """Return this very process.

    :raises HookError: SYSTEM if /proc does not have it
    """
    process = read_process(os.getpid())
    if process is None:
        raise HookError(SYSTEM, "this process cannot be read in /proc; mount /proc on this node and try again")
    return process


def list_pids() -> "list[int]":
    """Return the pids of all processes of this node."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_arguments(pid: int) -> "list[bytes]":
    """Return what pid was started with, its program first; at most 8 KiB of it, [] when there is no such process."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as stream:
            return stream.read(8192).split(b"\0")
    except OSError:
        return []


def get_mark(process: "Process | None" = None) -> "list[int]":
    """Return the mark of a Process (default: this one), which no other has on this node: [pid, start]."""
    process = process or read_self()
    return [process.pid, process.start]


def find_marked(mark: "list[int]") -> "Process | None":
    """Return the Process that get_mark() names, None when it is gone."""
    process = read_process(mark[0])
    return process if process is not None and process.start == mark[1] else None


def is_alive(mark: "list[int]") -> bool:
    """Whether the process that get_mark() names runs, or may run again: one that has ended and was not waited for does not.

    Where /proc hides it from this user (hidepid), another user's with its pid is taken for it.
    """
    process = read_process(mark[0])
    if process is not None:
        return process.start == mark[1] and process.state not in "ZX"
    try:
        os.kill(max(mark[0], 1), 0)
    except (ProcessLookupError, OverflowError):  # a user may have written the mark
        return False
    except PermissionError:
        pass
    return True


def list_children(pid: int) -> "list[int]":
    """Return the pids of the children of all threads of pid."""
    children: "list[int]" = []
    try:
        threads_now = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return children
    for thread in threads_now:
        try:
            with open("/proc/%d/task/%s/children" % (pid, thread), "rb") as stream:
                children.extend(int(child) for child in stream.read().split())
        except OSError:
            pass  # this thread has just ended; another one has its children now
    return children


def list_tree(root: int) -> "list[int]":
    """Return the pids of root and all its descendants, parents first."""
    pids = [root]
    for pid in pids:
        pids.extend(list_children(pid))
    return pids


def list_family(root: Process) -> "list[Process]":
    """Return root and all its descendants, parents first; no other process, although pids are used again."""
    members = [root]
    for parent in members:
        children = [child for child in map(read_process, list_children(parent.pid)) if child and child.ppid == parent.pid]
        if find_marked(get_mark(parent)):  # it has existed all the time
            members.extend(children)
    return members


_PIDFD_SEND_SIGNAL, _PIDFD_OPEN, _PIDFD_GETFD = 424, 434, 438  # the same on every architecture


def _system_call(*arguments: int) -> int:
    import ctypes  # Python before 3.9 knows none of them
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(*[ctypes.c_long(value) for value in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _open_pidfd(pid: int) -> "int | None":
    """Return a descriptor that refers to this process for good, None if the kernel has none (before 5.3)."""
    try:
        return getattr(os, "pidfd_open", lambda pid: _system_call(_PIDFD_OPEN, pid, 0))(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def share_descriptor(mark: "list[int]", number: int) -> int:
    """Return a descriptor of our own for what a process has open, given by get_mark() and its descriptor's number. As root.

    :raises OSError: if that is gone, or the kernel cannot (before 5.6)
    """
    handle = _open_pidfd(mark[0])
    if handle is None:
        raise OSError("this kernel has no pidfds")
    try:
        if find_marked(mark) is None:
            raise ProcessLookupError("the process is gone")
        return _system_call(_PIDFD_GETFD, handle, number, 0)
    finally:
        os.close(handle)


def has_pidfds() -> bool:
    """Return whether send_signal() cannot hit another process, not even one that has just got the same pid."""
    handle = _open_pidfd(os.getpid())
    if handle is not None:
        os.close(handle)
    return handle is not None


def send_signal(mark: "list[int]", number: int) -> None:
    """Send a signal to the process that get_mark() names; to none if it is gone, whichever process has its pid now."""
    handle = None
    try:
        handle = _open_pidfd(mark[0])
        if find_marked(mark) is None:
            return
        if handle is None:
            os.kill(mark[0], number)
        else:
            getattr(signal, "pidfd_send_signal", lambda *arguments: _system_call(_PIDFD_SEND_SIGNAL, *arguments + (0, 0)))(handle, number)
    except ProcessLookupError:
        pass
    finally:
        if handle is not None:
            os.close(handle)


def _has_environment(pid: int) -> bool:
    """Whether a process has an environment, or will have one: during an execve its code (proc(5), stat) has no address yet."""
    with open("/proc/%d/stat" % pid, "rb") as stream:
        fields = stream.read().rpartition(b")")[2].split()
    memory, code, start, end = fields[20], fields[23], fields[47], fields[48]
    return memory != b"0" and (code == b"0" or start != end)


def _read_environment(pid: int) -> bytes:
    deadline = time.monotonic() + EXECVE_SECONDS
    while True:
        with open("/proc/%d/environ" % pid, "rb") as stream:
            text = stream.read(LONGEST_ENVIRONMENT + 1)  # empty if the program was replaced since the open
        if text or not _has_environment(pid) or time.monotonic() > deadline:
            return text
        time.sleep(0.001)


def read_variable(pid: int, name: str) -> "bytes | None":
    """Return a variable from the environment pid was started with, or None.

    :raises HookError: REFUSED if it is not in the first LONGEST_ENVIRONMENT bytes and there are more
    """
    try:
        text = _read_environment(pid)
    except OSError:
        return None
    _before, assignment, after = (b"\0" + text).partition(b"\0" + name.encode() + b"=")
    value, end, _rest = after.partition(b"\0")
    if len(text) > LONGEST_ENVIRONMENT and not (assignment and end):
        raise HookError(REFUSED, "process %d was started with more than %d KiB of environment, and %s is not in the first of them; start "
                        "the job with a smaller one; it was left alone" % (pid, LONGEST_ENVIRONMENT >> 10, name))
    return value if assignment else None


def read_boot_id() -> str:
    """Return what names this boot of this node."""
    with open("/proc/sys/kernel/random/boot_id") as stream:
        return stream.read().strip()


def get_start_time(process: Process) -> float:
    """Return when a Process started (seconds since the epoch by this node's clock)."""
    boottime = 7  # CLOCK_BOOTTIME has no name before Python 3.7
    return time.time() - time.clock_gettime(boottime) + process.start / os.sysconf("SC_CLK_TCK")


def signal_processes(processes: "Iterable[Process]", number: int) -> None:
    """Send a signal to those of processes that still exist."""
    for process in processes:
        send_signal(get_mark(process), number)


def catches(process: Process, number: int) -> bool:
    """Whether a process has a handler for a signal: it may do something before it ends."""
    try:
        with open("/proc/%d/status" % process.pid, "rb") as stream:
            masks = [int(line.split()[1], 16) for line in stream if line.startswith(b"SigCgt:")]
    except OSError:
        return False
    return any(mask >> (number - 1) & 1 for mask in masks)


def list_owned(root: Process) -> "list[Process]":
    """Return those processes of the tree under root that run as its user, parents first."""
    return [process for process in list_family(root) if process.uid == root.uid]


def list_stopped(root: int) -> "list[int]":
    """Return the pids of the tree under root (pid) that are stopped, by a signal or by a debugger."""
    return [pid for pid in list_tree(root) if getattr(read_process(pid), "state", "") in ("T", "t")]


def resume_tree(root: Process, suspended: "list[int]") -> None:
    """Continue the tree under root, except what had been suspended (pids)."""
    signal_processes([process for process in list_owned(root) if process.pid not in suspended], signal.SIGCONT)
