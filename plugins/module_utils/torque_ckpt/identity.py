"""Which process is this job, really.

pbs_mom's session id is a hint: after a restart it still names the first
session, on another node, where the number may belong to anybody. A job's
root process is proven by uid, start time and PBS_JOBID; after a restart it is
found by the record that the restart hook, as root, left on this node.
"""
import json
import os
import stat
from collections import namedtuple

from .errors import HookError, CONFIG, GONE, REFUSED

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


def variable(pid, name):
    """Return a variable (bytes) from the environment pid was started with, or None."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as stream:
            for entry in stream.read().split(b"\0"):
                if entry.startswith(name.encode() + b"="):
                    return entry[len(name) + 1:]
    except OSError:
        pass
    return None


def job_of(pid):
    """Return PBS_JOBID (str) from the environment pid was started with, or None."""
    found = variable(pid, "PBS_JOBID")
    return None if found is None else found.decode("utf-8", "replace")


def records(run_directory):
    """Return the directory (str) of root's records of jobs; make it when it is missing.

    :raises HookError: CONFIG when somebody else could have put a record there
    """
    for path in (run_directory, os.path.join(run_directory, "jobs")):
        try:
            try:
                os.mkdir(path)
                os.chmod(path, 0o755)  # whatever the umask
            except FileExistsError:
                pass
            found = os.lstat(path)
        except OSError as error:
            raise HookError(CONFIG, "cannot use the directory %s of the hooks' records: %s; nothing was done" % (path, error.strerror))
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise HookError(CONFIG, "%s must be a directory of root's that nobody else can write to, because the hooks trust the records "
                            "in it; remove it, the next hook makes it anew; nothing was done" % path)
    return path


def record_path(run_directory, job_id):
    """Return where the record of a restarted job is kept (str)."""
    return os.path.join(run_directory, "jobs", job_id + ".json")


def leave(run_directory, name, found):
    """Write one of root's records, which everybody may read.

    :param name: its name in the directory of the records (str)
    :param found: what it says; must fit into JSON
    """
    path = os.path.join(records(run_directory), name)
    with open(path + ".new", "w") as stream:
        os.fchmod(stream.fileno(), 0o644)  # whatever the umask
        json.dump(found, stream)
    os.rename(path + ".new", path)


def write_record(run_directory, job_id, leader, root, output=(), left=()):
    """Leave root's record of a restarted job: its leader and root process (Process), its files in the spool (list of str).

    :param left: what it left on nodes it was on, from carried.left (list of dict)
    """
    leave(run_directory, job_id + ".json", {"leader": [leader.pid, leader.start], "root": [root.pid, root.start],
                                            "output": list(output), "left": list(left)})


def read_record(run_directory, job_id):
    """Return the record (dict) of a restarted job, or None."""
    try:
        with open(record_path(run_directory, job_id)) as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def drop_record(run_directory, job_id):
    """Remove the record, if there is one."""
    try:
        os.unlink(record_path(run_directory, job_id))
    except OSError:
        pass


def _recorded(run_directory, job_id):
    record = read_record(run_directory, job_id)
    if record is None:
        return None
    for key in ("leader", "root"):
        pid, start = record[key]
        found = process(pid)
        if found is None or found.start != start:
            return None  # left behind by a job that is over
    return process(record["root"][0])


def recorded_of(run_directory, job_id, root, key):
    """Return what was recorded under key ("output" or "left", a list) of a restarted job with this root (Process)."""
    record = read_record(run_directory, job_id)
    return record.get(key, []) if record is not None and record["root"] == [root.pid, root.start] else []


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
                        % (root.pid, call.job_id, call.user, root.uid, owner or "not set"))
    for member in filter(None, map(process, tree(root.pid))):
        if member.uid != uid or member.alien:
            raise HookError(REFUSED, "process %d (%s) of job %s runs with another user's rights; its memory must not become the user's: "
                            "checkpoint the job when it has ended" % (member.pid, member.name, call.job_id))
    return root
