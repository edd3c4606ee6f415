"""torque-ckpt check: what stands in the way of a checkpoint of a job that runs on this node."""
import os

from ..engines import registry
from ..errors import HookError, CONFIG, GONE, REFUSED, USAGE
from ..files import obstacles, open_files
from ..job import identity
from ..job.records import Records
from ..nested import request
from ..store import catalog
from ..system import processes

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any


def _list_jobs(wanted: str) -> "dict[str, set[int]]":
    """Return the sessions of the processes that we may look into and that belong to such a job, by its id."""
    jobs: "dict[str, set[int]]" = {}
    for pid in processes.list_pids():
        try:
            job_id = identity.read_job_id(pid)
        except HookError:
            continue  # its environment is too large
        process = processes.read_process(pid) if job_id and wanted in (job_id, job_id.partition(".")[0]) else None
        if job_id and process:
            jobs.setdefault(job_id, set()).add(process.session)
    return jobs


def _find_root(settings: dict, job_id: str, sessions: "set[int]") -> "processes.Process | None":
    """Return the root process of a job with processes in these sessions, or None."""
    records = Records(settings["run_directory"], job_id)
    for session in sorted(sessions):
        root = identity.find_candidate(records, session)
        if root is not None and root.state not in "ZX" and identity.read_job_id(root.pid) == job_id:
            return root
    return None


def find_job(settings: dict, wanted: str) -> "tuple[str, processes.Process]":
    """Return the id and the root process of a job of ours, or for root of anybody's, that runs on this node.

    :param wanted: its id, or the number of it
    :raises HookError: GONE when there is none, USAGE when it may be one of several
    """
    jobs = _list_jobs(wanted)
    if len(jobs) > 1:
        raise HookError(USAGE, "%s means several jobs (%s); name one in full" % (ascii(wanted), ", ".join(sorted(jobs))))
    if not jobs:
        raise HookError(GONE, "job %s has no process%s on %s; run torque-ckpt check on the node where it runs, the first one in exec_host "
                        "of qstat -f" % (ascii(wanted)[1:-1], "" if os.geteuid() == 0 else " of yours", os.uname().nodename))
    job_id, sessions = next(iter(jobs.items()))
    root = _find_root(settings, job_id, sessions)
    if root is None:
        raise HookError(GONE, "job %s was not started by the run or restart hook on %s, so that it cannot be checkpointed; submit it "
                        "with qsub -c enabled; torque-ckpt check --pid looks at its processes" % (ascii(job_id)[1:-1], os.uname().nodename))
    return job_id, root


def _find_process(pid: int) -> processes.Process:
    root = processes.read_process(pid)
    if root is None:
        raise HookError(GONE, "there is no process %d on %s; run torque-ckpt check where it runs" % (pid, os.uname().nodename))
    return root


def look(settings: dict, wanted: "str | None", pid: "int | None") -> "dict[str, Any]":
    """Return what stands in the way of a checkpoint: what --json prints, without the problems.

    :param wanted: a job, or None
    :param pid: a process, or None; one of both is to be given
    :raises HookError: USAGE, GONE, or REFUSED for processes that are not ours
    """
    if (wanted is None) == (pid is None):
        raise HookError(USAGE, "name a job, or a process with --pid; see torque-ckpt check --help")
    entry = registry.find_entry(settings["engine"])
    if entry is None:
        raise HookError(CONFIG, "engine %s is not known to these hooks; set checkpoint_hooks_engine" % ascii(settings["engine"]))
    job_id, root = find_job(settings, wanted) if wanted is not None else (None, _find_process(pid or 0))
    if root.uid == 0 or os.geteuid() not in (0, root.uid):
        raise HookError(REFUSED, "process %d (%s) is %s; it was left alone" % (
            root.pid, ascii(root.name)[1:-1], "root's, and jobs of root are not checkpointed" if root.uid == 0 else
            "another user's; only root may look at it"))

    moves = entry.load().moves_connections
    runners = request.find_runners(processes.list_tree(root.pid))
    kinds = obstacles.select_kinds(entry.obstacles, settings, request.any_program_ends(runners))

    def find() -> "list[obstacles.Obstacle]":
        opened = open_files.find_open_files(root.pid, [], request.list_programs(runners))
        return obstacles.find_obstacles(opened, kinds, settings["refused_devices"], settings["node_local_bytes"], moves,
                                        identity.list_nodes(root.pid))
    listed = [obstacles.Obstacle(*values) for values in catalog.run_as_owner(catalog.find_account(root.uid, 0), find)]
    return {"job": job_id, "pid": root.pid, "engine": settings["engine"],
            "obstacles": [dict(obstacle._asdict(), sentence=obstacles.format_sentence(obstacle, entry.title)) for obstacle in listed]}
