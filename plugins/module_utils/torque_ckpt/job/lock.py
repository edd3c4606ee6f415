"""One hook at a time for one job.

The lock is root's, in the directory of root's records. It ends with the last
process of the hook that took it, so a hook that is killed leaves none behind.
"""
import contextlib
import fcntl
import json
import os
import time

from ..errors import HookError, SYSTEM, TEMPORARY
from .records import LOCK

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterator
    from .records import Records

_PAUSE = 0.05


def _open_file(path: str) -> int:
    # An ordinary user could take the lock of a file that he can read.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _take_lock(path: str) -> "int | None":
    """Return the descriptor of the locked file, or None when another hook has it."""
    while True:
        descriptor = _open_file(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # whoever had it has just removed the file


def _describe_holder(path: str) -> str:
    """Return a phrase for the hook that has the lock."""
    try:
        with open(path) as stream:
            holder = json.load(stream)
        return "a %s (process %d, since %s)" % (holder["what"], holder["pid"], holder["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another hook"  # it has not written it yet, or has just ended


def build_error(holder: str, job_id: str, waited: float, consequence: str) -> HookError:
    """Return the error of a hook that has waited too long for another one of the same job.

    :param holder: a phrase for the other one
    :param waited: how long (seconds)
    :param consequence: what becomes of the job, the end of the sentence
    """
    return HookError(TEMPORARY, "%s is at work on job %s; waited %d seconds; try again when it has ended; %s"
                     % (holder, job_id, waited, consequence))


@contextlib.contextmanager
def hold_lock(records: "Records", activity: str, timeout: float, consequence: str) -> "Iterator[None]":
    """Hold the job's lock for the body of the with statement. To be used by root.

    :param activity: what the body does, for whoever has to wait
    :param timeout: how long to wait for another hook (seconds)
    :param consequence: what becomes of the job when that was too long, the end of the sentence
    :raises HookError: TEMPORARY then; CONFIG or SYSTEM when there can be no lock
    """
    records.make_directory()
    path = records.get_path(LOCK)
    deadline = time.monotonic() + timeout
    try:
        descriptor = _take_lock(path)
        while descriptor is None:
            if time.monotonic() > deadline:
                raise build_error(_describe_holder(path), records.job_id, timeout, consequence)
            time.sleep(_PAUSE)
            descriptor = _take_lock(path)
    except OSError as error:
        raise HookError(SYSTEM, "cannot lock %s: %s; see to that file system; %s" % (path, error.strerror, consequence))
    try:
        with contextlib.suppress(OSError):  # it is for those who have to wait
            os.ftruncate(descriptor, 0)
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            os.write(descriptor, json.dumps({"what": activity, "pid": os.getpid(), "since": since}).encode())
        yield
    finally:
        records.drop(LOCK)
        os.close(descriptor)
