"""Root's records of jobs: small files that nobody else can write. Each is of one kind.

JOB       of a restarted job: its processes, its files in the spool (identity.py)
ATTEMPTS  how often its restart has failed here (retries.py)
HOLDING   that a hook has stopped it (suspension.py)
FAILED    that its restart hook waits to have it held (failed_restart.py)

HOLDING is for the job's leader, too, which is the user's; the others name files in users' directories and are root's alone.

CALL and ANSWER are named pipes of the job owner's instead, between engine and hook (frozen.py).
"""
import json
import os

from ..system import rootfiles

JOB, ATTEMPTS, HOLDING, FAILED = "json", "attempts", "holding", "failed"
CALL, ANSWER = "call", "answer"


def directory(run_directory):
    """Return the directory (str) of the records; make it when it is missing.

    :raises HookError: CONFIG when somebody else could have put a record there
    """
    found = os.path.join(run_directory, "jobs")
    rootfiles.make_directory(run_directory)
    rootfiles.make_directory(found)
    return found


def stem(run_directory, job_id):
    """Return what the paths of all of a job's records begin with (str)."""
    return os.path.join(run_directory, "jobs", job_id)


def path(run_directory, job_id, kind):
    """Return where a record is kept (str)."""
    return "%s.%s" % (stem(run_directory, job_id), kind)


def write(run_directory, job_id, kind, found):
    """Write a record; found must fit into JSON.

    :raises OSError: when it cannot be written; the older one is there still
    :raises HookError: as directory()
    """
    directory(run_directory)
    place = path(run_directory, job_id, kind)
    with open(place + ".new", "w") as stream:
        os.fchmod(stream.fileno(), 0o644 if kind == HOLDING else 0o600)  # whatever the umask
        json.dump(found, stream)
    os.rename(place + ".new", place)


def read(run_directory, job_id, kind):
    """Return what a record says, or None when there is none that can be read."""
    try:
        with open(path(run_directory, job_id, kind)) as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def drop(run_directory, job_id, kind):
    """Remove a record, if there is one."""
    try:
        os.unlink(path(run_directory, job_id, kind))
    except OSError:
        pass
