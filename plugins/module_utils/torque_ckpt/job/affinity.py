"""The CPUs to which threads of a job are bound, which no engine writes: by mpirun --bind-to, taskset, numactl, OMP_PROC_BIND."""
import os

from ..system import processes

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterator


def _list_threads(root: int) -> "Iterator[int]":
    """Yield the ids of all threads of the tree under root (pid)."""
    for pid in processes.list_tree(root):
        try:
            yield from map(int, os.listdir("/proc/%d/task" % pid))
        except OSError:
            pass  # it has just ended


def _read_cpus(thread: int) -> "set[int] | None":
    """Return the CPUs on which a thread may run, None if it has ended."""
    try:
        return os.sched_getaffinity(thread)
    except OSError:
        return None


def find_bound(root: processes.Process) -> "list[dict]":
    """Return the threads of the tree under root that may not run on the same CPUs as the job's leader, its parent.

    Each has "thread" (id) and "cpus" (sorted list of int). The leader is in no image; what nobody has bound runs where it does.
    """
    usual = _read_cpus(root.ppid)
    found = ((thread, _read_cpus(thread)) for thread in _list_threads(root.pid))
    return [{"thread": thread, "cpus": sorted(cpus)} for thread, cpus in found if usual and cpus and cpus != usual]


def bind_threads(entries: "list[dict]") -> "list[str]":
    """Bind restored threads (their ids are what they were) as find_bound found them; return remarks.

    A thread one of whose CPUs this process may not use stays as it is: bound to the others it might share them with threads that were
    elsewhere before.
    """
    usual, missing = os.sched_getaffinity(0), set()
    for entry in entries:
        cpus = set(entry["cpus"])
        if not cpus <= usual:
            missing |= cpus - usual
            continue
        try:
            os.sched_setaffinity(entry["thread"], cpus)
        except ProcessLookupError:
            pass
        except OSError:
            missing |= cpus  # the node has lost one since we looked
    if not missing:
        return []
    return ["threads of the job were bound to CPUs that it may not use on this node (%s), and are not bound now"
            % ", ".join(map(str, sorted(missing)))]
