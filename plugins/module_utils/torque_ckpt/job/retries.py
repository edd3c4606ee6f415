"""How often a job's restart has failed on this node for reasons that may pass.

A pbs_mom with the patch restart-status queues such a job again at once, and
the scheduler may start it at once: without a pause and an end the two would
go round for ever.
"""
import time

from .. import errors
from ..errors import HookError, SYSTEM
from ..telemetry import syslog
from . import records

LONGEST = 300
"""The longest pause before a job is queued again (seconds)."""


def failed(run_directory, job_id):
    """Return how many restarts of the job have failed here in a row (int)."""
    try:
        return int(records.read(run_directory, job_id, records.ATTEMPTS)["failed"])
    except (ValueError, KeyError, TypeError):
        return 0


def forget(run_directory, job_id):
    """Start counting anew."""
    records.drop(run_directory, job_id, records.ATTEMPTS)


def judge(settings, job_id, error, sleep=time.sleep):
    """Count a failed restart; return the failure (HookError) to tell pbs_mom.

    A temporary one is told after a pause that doubles from time to time. After so many in a row it is a lasting one,
    so that the job is held.

    :param settings: dict from config.load
    :param error: why the restart failed (HookError)
    :param sleep: called with the pause in seconds
    """
    if not errors.is_temporary(error.code):
        forget(settings["run_directory"], job_id)
        return error
    count, most = failed(settings["run_directory"], job_id) + 1, settings["restart_attempts"]
    if count >= most:
        forget(settings["run_directory"], job_id)
        return HookError(SYSTEM, "%s (attempt %d of %d, the last; mend the cause, then release the job)"
                         % (error.sentence, count, most))
    try:
        records.write(settings["run_directory"], job_id, records.ATTEMPTS, {"failed": count})
    except (OSError, HookError) as problem:
        syslog.log_event("restart", job=job_id, outcome="not counted", reason=problem)
    sleep(min(LONGEST, settings["restart_backoff"] * 2 ** (count - 1)))
    return HookError(error.code, "%s (attempt %d of %d)" % (error.sentence, count, most))
