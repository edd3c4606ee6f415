"""The root process of a job, and how it is verified.

pbs_mom's session id is a hint: after a restart it still names the first
session, on another node, where the number may belong to anybody. A job's
root process is verified by uid, start time and PBS_JOBID; after a restart it is
found by the record that the restart hook, as root, left on this node.
"""
import os

from ..errors import HookError, GONE, REFUSED, quote_text
from ..system import processes
from ..torque import names
from .records import JOB

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Sequence
    from .records import Records


_NODE_FILE_BYTES = 1 << 20
"""So much of the list of a job's nodes is read at most."""


def read_job_id(pid: int) -> "str | None":
    """Return PBS_JOBID from the environment pid was started with, or None.

    :raises HookError: as processes.read_variable()
    """
    value = processes.read_variable(pid, names.JOB_ID)
    return None if value is None else value.decode("utf-8", "replace")


def list_nodes(root: int) -> "list[str]":
    """Return the nodes of the job with this root process (pid), by the file that pbs_mom gave it; [] if it has none. As the job's owner.

    :raises HookError: as processes.read_variable()
    """
    return sorted(set(read_slots(processes.read_variable(root, names.NODE_FILE) or b"")))


def read_slots(path: "str | bytes") -> "list[str]":
    """Return what pbs_mom's file for a job names: a node for each of the job's processors; [] if there is no such file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as stream:
            return list(map(os.fsdecode, stream.read(_NODE_FILE_BYTES).split()))
    except OSError:
        return []  # pbs_mom has removed it


def write_record(records: "Records", leader: processes.Process, root: processes.Process, output: "Sequence[str]" = (),
                 left: "Sequence[dict]" = (), incarnation: "dict | None" = None) -> None:
    """Write root's record of a restarted job: its leader and root process, its files in the spool.

    :param left: what it left on nodes it was on, from capture.list_left_files
    :param incarnation: of this life of the job (incarnation.py)
    """
    records.write(JOB, {"leader": processes.get_mark(leader), "root": processes.get_mark(root), "output": list(output), "left": list(left),
                        "incarnation": incarnation})


def _find_recorded_root(records: "Records") -> "processes.Process | None":
    record = records.read(JOB)
    if record is None:
        return None
    leader, root = processes.find_marked(record["leader"]), processes.find_marked(record["root"])
    return root if leader else None  # without: left behind by a job that is over


def read_recorded(records: "Records", root: processes.Process, key: str) -> "Any":
    """Return what was recorded under key ("output", "left", "incarnation") of a restarted job with this root process; [] for nothing."""
    record = records.read(JOB)
    return record.get(key) or [] if record is not None and record["root"] == processes.get_mark(root) else []


def _list_children(leader: int) -> "list[processes.Process]":
    return list(filter(None, map(processes.read_process, processes.list_children(leader))))


def find_demux(leader: int) -> "processes.Process | None":
    """Return the pbs_demux that pbs_mom has put beneath the leader (pid) of a job on several nodes. It is not of the job."""
    return next((child for child in _list_children(leader) if child.name == names.DEMUX), None)


def list_restored(leader: int) -> "list[int]":
    """Return the pids of the processes beneath the leader (pid) of a job that an engine has just restored there."""
    return [child.pid for child in _list_children(leader) if child.name != names.DEMUX]


def _find_hinted_root(session_id: "int | None") -> "processes.Process | None":
    leader = processes.read_process(session_id) if session_id else None
    if leader is None or leader.session != leader.pid:
        return None
    members = [child for child in _list_children(leader.pid) if child.name != names.DEMUX]
    # The run hook gives the job's shell a process group of its own; the children of a shell are in the shell's.
    return members[0] if len(members) == 1 and members[0].group == members[0].pid else None


def find_candidate(records: "Records", session_id: "int | None") -> "processes.Process | None":
    """Return the process that should be the job's root, from root's record or beneath the leader of this session, or None. Not verified.

    :param session_id: what pbs_mom passes, or None
    """
    return _find_recorded_root(records) or _find_hinted_root(session_id)


def find_root_process(records: "Records", call: "Any", uid: int) -> processes.Process:
    """Return the job's root process, verified to be the job's.

    :param call: contract.Call
    :param uid: the job owner's uid
    :raises HookError: GONE when it is not on this node, REFUSED when that process is not this job's
    """
    root = find_candidate(records, call.session_id)
    if root is None or root.state in "ZX":
        raise HookError(GONE, "job %s has no running process started by the run or restart hook on this node "
                        "(session %s); was $checkpoint_run_exe set when it started?" % (call.job_id, call.session_id))
    owner = read_job_id(root.pid)
    if root.uid != uid or owner != call.job_id:
        raise HookError(REFUSED, "process %d is not job %s of %s (its uid is %d, its PBS_JOBID is %s); it was left alone; see whether the "
                        "job runs on this node, with PBS_JOBID in its environment"
                        % (root.pid, call.job_id, call.user, root.uid, quote_text(owner) if owner else "not set"))
    for member in filter(None, map(processes.read_process, processes.list_tree(root.pid))):
        if member.uid != uid or member.alien:
            raise HookError(REFUSED, "process %d (%s) of job %s runs with another user's rights; its memory must not become the user's: "
                            "checkpoint the job when it has ended" % (member.pid, quote_text(member.name), call.job_id))
    return root
