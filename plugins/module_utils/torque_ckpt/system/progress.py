"""Whether a process gets on.

A user may stop whatever runs as him, also the part of a hook that does, and may keep an engine waiting for something that never
comes. Who waits for such a process asks here, so that he does not wait for ever.
"""
import time

from . import processes

STOPPED = 30
"""How long a process may be stopped by a signal, in all (seconds)."""

PAUSE = 1
"""How often to look (seconds)."""


def _done(pid):
    """Return state and work of a process so far: its times on a processor, and what it has read and written where we may know it."""
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
    """Looks after a child, and after what that has started.

    :param pid: the child (int), which nobody has waited for
    :param patience: how long none of them may use a processor, read or write (seconds); None for ever
    :param also: called for more pids (iterable of int) whose work counts, or None
    :param look: called for another reason to give it up (str) or None, each time; or None
    :param store: whether to wait for a disk or a file server counts as work (bool)
    """

    def __init__(self, pid, patience=None, also=None, look=None, store=False):
        self._pid, self._patience, self._also, self._look, self._store = pid, patience, also, look, store
        self._looked = time.monotonic()
        self._stopped = self._idle = 0
        self._before = self._fault = None

    def fault(self):
        """Return why it is to be given up (str, as in "was stopped for 30 seconds"), or None. What was said once stays so."""
        now = time.monotonic()
        if self._fault or now - self._looked < PAUSE:
            return self._fault
        passed = min(now - self._looked, 2 * PAUSE)  # more: we were stopped ourselves
        self._looked = now
        found = {pid: _done(pid) for pid in set(processes.list_tree(self._pid)).union(self._also() if self._also else ())}
        work = {pid: done[1:] for pid, done in found.items() if done}
        stopped = {pid for pid, done in found.items() if done and done[0] == b"T"}
        waits = self._store and any(done and done[0] == b"D" for done in found.values())
        self._idle = 0 if work != self._before or waits else self._idle + passed
        self._before = work
        if self._pid in stopped:  # going on for a moment now and then is no excuse
            self._stopped += passed
        if self._stopped > STOPPED or stopped and self._idle > STOPPED:
            self._fault = "was stopped for %d seconds" % STOPPED
        elif self._patience is not None and self._idle > self._patience:
            self._fault = "did nothing for %d seconds" % self._patience
        elif self._look:
            self._fault = self._look()
        return self._fault
