"""Whether a process makes progress.

A user may stop any of his processes, also the part of a hook that runs as him, and may keep an engine waiting for something that never
comes. Whoever waits for such a process asks here, so as not to wait for ever.
"""
import time

from . import processes

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Iterable, Optional

STOPPED = 30
"""How long a process may be stopped by a signal, in all (seconds)."""

PAUSE = 1
"""How often to check (seconds)."""


def _read_progress(pid: int) -> "tuple[bytes, list[bytes], bytes] | None":
    """Return the state and the work of a process so far: its processor times, and what it has read and written if we may know it."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
    try:
        with open("/proc/%d/io" % pid, "rb") as stream:
            moved = stream.read()
    except OSError:  # it is not dumpable, and we are not root
        moved = b""
    return fields[0], fields[11:15], moved


class Watch:
    """Watches a child, and what that has started.

    :param pid: the child, not yet waited for
    :param patience: how long none of them may use a processor, read or write (seconds); None for ever
    :param list_more: called for more pids whose work counts, or None
    :param find_reason: called each time for another reason to give it up, which may be None; or None
    :param store: whether waiting for a disk or a file server counts as work
    """

    def __init__(self, pid: int, patience: "float | None" = None, list_more: "Optional[Callable[[], Iterable[int]]]" = None,
                 find_reason: "Optional[Callable[[], str | None]]" = None, store: bool = False) -> None:
        self._pid, self._patience, self._list_more, self._find_reason, self._store = pid, patience, list_more, find_reason, store
        self._checked = time.monotonic()
        self._stopped = self._idle = 0.0
        self._before: "dict | None" = None
        self._fault: "str | None" = None

    def find_fault(self) -> "str | None":
        """Return why it is to be given up (as in "was stopped for 30 seconds"), or None. The first fault stays."""
        now = time.monotonic()
        if self._fault or now - self._checked < PAUSE:
            return self._fault
        passed = min(now - self._checked, 2 * PAUSE)  # more: we were stopped ourselves
        self._checked = now
        pids = set(processes.list_tree(self._pid)).union(self._list_more() if self._list_more else ())
        reports = {pid: _read_progress(pid) for pid in pids}
        work = {pid: report[1:] for pid, report in reports.items() if report}
        stopped = {pid for pid, report in reports.items() if report and report[0] == b"T"}
        waits = self._store and any(report and report[0] == b"D" for report in reports.values())
        self._idle = 0 if work != self._before or waits else self._idle + passed
        self._before = work
        if self._pid in stopped:  # continuing for a moment now and then does not count
            self._stopped += passed
        if self._stopped > STOPPED or stopped and self._idle > STOPPED:
            self._fault = "was stopped for %d seconds" % STOPPED
        elif self._patience is not None and self._idle > self._patience:
            self._fault = "did nothing for %d seconds" % self._patience
        elif self._find_reason:
            self._fault = self._find_reason()
        return self._fault
