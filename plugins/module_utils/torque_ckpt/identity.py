"""Which process is this job, really.

pbs_mom's session id is a hint: after a restart it still names the first
session, on another node, where the number may belong to anybody. A job's
root process is proven by uid, start time and PBS_JOBID; after a restart it is
found by the record that the restart hook, as root, left on this node.
"""
import os
import signal
import time
from collections import namedtuple

from . import records
from .errors import HookError, GONE, REFUSED, shown

EXECVE_SECONDS = 1
"""How long a process may be on its way from one program to the next before it is taken as it is."""

LONGEST_ENVIRONMENT = 256 << 10
"""So much of a process's environment is looked at (bytes); a process may say that any part of its memory is its environment."""

Process = namedtuple("Process", "pid ppid group session start state uid name alien")
"""start is in clock ticks since boot; a pid and its start time name one process for good.
uid is the real one; alien says that the effective, saved or file system uid is another (a setuid program)."""


def process(pid):
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


def mark(found=None):
    """Return what tells a Process (default: this one) from all others on this node: [pid, start]."""
    found = found or process(os.getpid())
    return [found.pid, found.start]


def marked(pair):
    """Return the Process that mark() told of, None when it is gone."""
    found = process(pair[0])
    return found if found is not None and found.start == pair[1] else None


def children(pid):
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


def tree(root):
    """Return the pids (list of int) of root and all its descendants, parents first."""
    found = [root]
    for pid in found:
        found.extend(children(pid))
    return found


def family(root):
    """Return root (Process) and all its descendants (list of Process), parents first; nobody else's, though numbers are given again."""
    found = [root]
    for parent in found:
        mine = [child for child in map(process, children(parent.pid)) if child and child.ppid == parent.pid]
        if marked(mark(parent)):  # it was there all the time
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


def _handle(pid):
    """Return a descriptor (int) that means this very process for good, or None: the kernel has none (before 5.3)."""
    try:
        return getattr(os, "pidfd_open", lambda pid: _system_call(_PIDFD_OPEN, pid, 0))(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def has_handles():
    """Return whether send() cannot hit another process, not even one that has just been given the number (bool)."""
    handle = _handle(os.getpid())
    if handle is not None:
        os.close(handle)
    return handle is not None


def send(pair, number):
    """Send a signal (int) to the process that mark() told of; to nobody when it is gone, whoever has its pid by now."""
    handle = None
    try:
        handle = _handle(pair[0])
        if marked(pair) is None:
            return
        if handle is None:
            os.kill(pair[0], number)
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


def variable(pid, name):
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


def job_of(pid):
    """Return PBS_JOBID (str) from the environment pid was started with, or None.

    :raises HookError: as variable()
    """
    found = variable(pid, "PBS_JOBID")
    return None if found is None else found.decode("utf-8", "replace")


def started(found):
    """Return when a Process started (float, seconds since the epoch by this node's clock)."""
    boottime = 7  # CLOCK_BOOTTIME has no name before Python 3.7
    return time.time() - time.clock_gettime(boottime) + found.start / os.sysconf("SC_CLK_TCK")


def write_record(run_directory, job_id, leader, root, output=(), left=(), incarnation=None):
    """Leave root's record of a restarted job: its leader and root process (Process), its files in the spool (list of str).

    :param left: what it left on nodes it was on, from carried.left (list of dict)
    :param incarnation: of this life of the job (dict, incarnation.py)
    """
    records.write(run_directory, job_id, records.JOB,
                  {"leader": mark(leader), "root": mark(root), "output": list(output), "left": list(left),
                   "incarnation": incarnation})


def _recorded(run_directory, job_id):
    record = records.read(run_directory, job_id, records.JOB)
    if record is None:
        return None
    leader, root = marked(record["leader"]), marked(record["root"])
    return root if leader else None  # without: left behind by a job that is over


def recorded_of(run_directory, job_id, root, key):
    """Return what was recorded under key ("output", "left", "incarnation") of a restarted job with this root (Process); [] for nothing."""
    record = records.read(run_directory, job_id, records.JOB)
    return record.get(key) or [] if record is not None and record["root"] == mark(root) else []


def _hinted(session_id):
    leader = process(session_id) if session_id else None
    if leader is None or leader.session != leader.pid:
        return None
    # Beside the job's shell, MOM may have put pbs_demux under the same leader; it is not the job.
    mine = [child for child in map(process, children(leader.pid)) if child and child.name != "pbs_demux"]
    # The run hook gives the job's shell a process group of its own; the children of a shell are in the shell's.
    return mine[0] if len(mine) == 1 and mine[0].group == mine[0].pid else None


def root_of(run_directory, call, uid):
    """Return the job's root Process, proven to be the job's.

    :param call: contract.Call
    :param uid: the job owner's uid (int)
    :raises HookError: GONE when it is not on this node, REFUSED when what is there is not this job
    """
    root = _recorded(run_directory, call.job_id) or _hinted(call.session_id)
    if root is None or root.state in "ZX":
        raise HookError(GONE, "job %s has no running process started by the run or restart hook on this node "
                        "(session %s); was $checkpoint_run_exe set when it started?" % (call.job_id, call.session_id))
    owner = job_of(root.pid)
    if root.uid != uid or owner != call.job_id:
        raise HookError(REFUSED, "process %d is not job %s of %s (its uid is %d, its PBS_JOBID is %s); it was left alone"
                        % (root.pid, call.job_id, call.user, root.uid, shown(owner) if owner else "not set"))
    for member in filter(None, map(process, tree(root.pid))):
        if member.uid != uid or member.alien:
            raise HookError(REFUSED, "process %d (%s) of job %s runs with another user's rights; its memory must not become the user's: "
                            "checkpoint the job when it has ended" % (member.pid, shown(member.name), call.job_id))
    return root
