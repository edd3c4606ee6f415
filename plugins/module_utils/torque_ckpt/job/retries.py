"""How often a job's restart has failed on this node for reasons that may pass.

A pbs_mom with the patch restart-status queues such a job again at once, and
the scheduler may start it at once: without a pause and a limit the two would
repeat that for ever.
"""
import time

from .. import errors
from ..errors import HookError, SYSTEM
from ..telemetry import syslog
from .records import ATTEMPTS

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable
    from .records import Records

LONGEST = 300
"""The longest pause before a job is queued again (seconds)."""


def count_failures(records: "Records") -> int:
    """Return how many restarts of the job have failed here in a row."""
    try:
        return int(records.read(ATTEMPTS)["failed"])
    except (ValueError, KeyError, TypeError):
        return 0


def reset_failures(records: "Records") -> None:
    """Forget the failed restarts of the job."""
    records.drop(ATTEMPTS)


def assess_failure(records: "Records", settings: dict, error: HookError, sleep: "Callable[[float], None]" = time.sleep) -> HookError:
    """Count a failed restart; return the failure to report to pbs_mom.

    A temporary one is reported after a pause that doubles from time to time. After restart_attempts in a row it is a lasting one,
    so that the job is held.

    :param settings: from config.load_settings
    :param error: why the restart failed
    :param sleep: called with the pause in seconds
    """
    if not errors.is_temporary(error.code):
        reset_failures(records)
        return error
    count, limit = count_failures(records) + 1, settings["restart_attempts"]
    if count >= limit:
        reset_failures(records)
        return HookError(SYSTEM, "%s (attempt %d of %d, the last; fix the cause, then release the job)"
                         % (error.sentence, count, limit))
    try:
        records.write(ATTEMPTS, {"failed": count})
    except (OSError, HookError) as problem:
        syslog.log_event("restart", job=records.job_id, outcome="not counted", reason=problem)
    sleep(min(LONGEST, settings["restart_backoff"] * 2 ** (count - 1)))
    return HookError(error.code, "%s (attempt %d of %d)" % (error.sentence, count, limit))
