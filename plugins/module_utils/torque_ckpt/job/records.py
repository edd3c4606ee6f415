"""Root's records of jobs: small files that nobody else can write. Each is of one kind.

JOB       of a restarted job: its processes, its files in the spool (identity.py)
ATTEMPTS  how often its restart has failed here (retries.py)
HOLDING   that a hook has stopped it (suspension.py)
FAILED    that its restart hook waits to have it held (failed_restart.py)

HOLDING is for the job's leader, too, which is the user's; the others name files in users' directories and are root's alone.

CALL and ANSWER are named pipes of the job owner's instead, between engine and hook (frozen.py); LOCK is a file to lock (lock.py).
"""
import json
import os

from ..system import rootfiles

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any

JOB, ATTEMPTS, HOLDING, FAILED = "json", "attempts", "holding", "failed"
CALL, ANSWER, LOCK = "call", "answer", "lock"


class Records:
    """Root's records of one job on this node.

    job_id     str
    directory  str: where the records of all jobs are
    stem       str: what the paths of this job's records begin with

    :param run_directory: the setting of this name
    :param job_id: the job's id
    """

    def __init__(self, run_directory: str, job_id: str) -> None:
        self._run_directory = run_directory
        self.job_id = job_id
        self.directory = os.path.join(run_directory, "jobs")
        self.stem = os.path.join(self.directory, job_id)

    def make_directory(self) -> None:
        """Create the directory of the records when it is missing.

        :raises HookError: CONFIG when somebody else could have put a record there
        """
        rootfiles.create_directory(self._run_directory)
        rootfiles.create_directory(self.directory)

    def get_path(self, kind: str) -> str:
        """Return where a record of this kind is kept."""
        return "%s.%s" % (self.stem, kind)

    def write(self, kind: str, content: "Any") -> None:
        """Write a record; the content must fit into JSON.

        :raises OSError: when it cannot be written; the older one is kept
        :raises HookError: as make_directory()
        """
        self.make_directory()
        path = self.get_path(kind)
        with open(path + ".new", "w") as stream:
            os.fchmod(stream.fileno(), 0o644 if kind == HOLDING else 0o600)  # whatever the umask
            json.dump(content, stream)
        os.rename(path + ".new", path)

    def read(self, kind: str) -> "Any":
        """Return the content of a record, or None when there is none that can be read."""
        try:
            with open(self.get_path(kind)) as stream:
                return json.load(stream)
        except (OSError, ValueError):
            return None

    def drop(self, kind: str) -> None:
        """Remove a record, if there is one."""
        try:
            os.unlink(self.get_path(kind))
        except OSError:
            pass
