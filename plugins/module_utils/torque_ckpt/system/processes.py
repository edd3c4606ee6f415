"""Processes of this node, from /proc: what they are, who belongs to whom, and signals that hit no other.

A pid is given again; with its start time it names one process for good (its mark).
"""
import os
import signal
import time
from collections import namedtuple

from ..errors import HookError, REFUSED

EXECVE_SECONDS = 1
"""How long a process may be on its way from one program to the next before it is taken as it is."""

LONGEST_ENVIRONMENT = 256 << 10
"""So much of a process's environment is looked at (bytes); a process may say that any part of its memory is its environment."""

Process = namedtuple("Process", "pid ppid group session start state uid name alien")
"""start is in clock ticks since boot; a pid and its start time name one process for good.
uid is the real one; alien says that the effective, saved or file system uid is another (a setuid program)."""


def read_process(pid):
    """Return the Process with that pid (int), or None when there is none."""
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


def get_mark(found=None):
    """Return what tells a Process (default: this one) from all others on this node: [pid, start]."""
    found = found or read_process(os.getpid())
    return [found.pid, found.start]


def find_marked(mark):
    """Return the Process that get_mark() names, None when it is gone."""
    found = read_process(mark[0])
    return found if found is not None and found.start == mark[1] else None


def list_children(pid):
    """Return the pids (list of int) of the children of all threads of pid."""
    found = []
    try:
        threads_now = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return found
    for thread in threads_now:
        try:
            with open("/proc/%d/task/%s/children" % (pid, thread), "rb") as stream:
                found.extend(int(child) for child in stream.read().split())
        except OSError:
            pass  # this thread has just ended; its children are another's now
    return found


def list_tree(root):
    """Return the pids (list of int) of root and all its descendants, parents first."""
    found = [root]
    for pid in found:
        found.extend(list_children(pid))
    return found


def list_family(root):
    """Return root (Process) and all its descendants (list of Process), parents first; nobody else's, though numbers are given again."""
    found = [root]
    for parent in found:
        mine = [child for child in map(read_process, list_children(parent.pid)) if child and child.ppid == parent.pid]
        if find_marked(get_mark(parent)):  # it was there all the time
            found.extend(mine)
    return found


_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434  # the same on every architecture


def _system_call(*arguments):
    import ctypes  # Python before 3.9 knows none of them
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(*[ctypes.c_long(value) for value in arguments])
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def _open_pidfd(pid):
    """Return a descriptor (int) that means this very process for good, or None: the kernel has none (before 5.3)."""
    try:
        return getattr(os, "pidfd_open", lambda pid: _system_call(_PIDFD_OPEN, pid, 0))(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def has_pidfds():
    """Return whether send_signal() cannot hit another process, not even one that has just been given the number (bool)."""
    handle = _open_pidfd(os.getpid())
    if handle is not None:
        os.close(handle)
    return handle is not None


def send_signal(mark, number):
    """Send a signal (int) to the process that get_mark() names; to nobody when it is gone, whoever has its pid by now."""
    handle = None
    try:
        handle = _open_pidfd(mark[0])
        if find_marked(mark) is None:
            return
        if handle is None:
            os.kill(mark[0], number)
        else:
            getattr(signal, "pidfd_send_signal", lambda *found: _system_call(_PIDFD_SEND_SIGNAL, *found + (0, 0)))(handle, number)
    except ProcessLookupError:
        pass
    finally:
        if handle is not None:
            os.close(handle)


def _has_environment(pid):
    """Whether a process has an environment, or will have: in the midst of an execve its code (proc(5), stat) has no place yet."""
    with open("/proc/%d/stat" % pid, "rb") as stream:
        fields = stream.read().rpartition(b")")[2].split()
    memory, code, start, end = fields[20], fields[23], fields[47], fields[48]
    return memory != b"0" and (code == b"0" or start != end)


def _environment(pid):
    deadline = time.monotonic() + EXECVE_SECONDS
    while True:
        with open("/proc/%d/environ" % pid, "rb") as stream:
            found = stream.read(LONGEST_ENVIRONMENT + 1)  # nothing when the program was replaced since the open
        if found or not _has_environment(pid) or time.monotonic() > deadline:
            return found
        time.sleep(0.001)


def read_variable(pid, name):
    """Return a variable (bytes) from the environment pid was started with, or None.

    :raises HookError: REFUSED when it is not in the first LONGEST_ENVIRONMENT bytes, but there are more
    """
    try:
        text = _environment(pid)
    except OSError:
        return None
    _before, found, after = (b"\0" + text).partition(b"\0" + name.encode() + b"=")
    value, end, _rest = after.partition(b"\0")
    if len(text) > LONGEST_ENVIRONMENT and not (found and end):
        raise HookError(REFUSED, "process %d was started with more than %d KiB of environment, and %s is not in the first of them; start "
                        "the job with a smaller one; it was left alone" % (pid, LONGEST_ENVIRONMENT >> 10, name))
    return value if found else None


def get_start_time(found):
    """Return when a Process started (float, seconds since the epoch by this node's clock)."""
    boottime = 7  # CLOCK_BOOTTIME has no name before Python 3.7
    return time.time() - time.clock_gettime(boottime) + found.start / os.sysconf("SC_CLK_TCK")


def signal_processes(processes, number):
    """Send a signal to processes (iterable of Process), as far as they are there."""
    for found in processes:
        send_signal(get_mark(found), number)


def list_own(root):
    """Return the tree under root (Process) as far as it is its user's (list of Process), parents first."""
    return [found for found in list_family(root) if found.uid == root.uid]


def list_stopped(root):
    """Return the pids (list of int) of the tree under root (pid) that stand still."""
    return [pid for pid in list_tree(root) if getattr(read_process(pid), "state", "") == "T"]


def resume(root, suspended):
    """Set the tree under root (Process) going again, but for what had been suspended (pids)."""
    signal_processes([found for found in list_own(root) if found.pid not in suspended], signal.SIGCONT)
