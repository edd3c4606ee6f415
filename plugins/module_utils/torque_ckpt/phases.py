"""How long each phase of a hook took, also in the part of it that runs as the user.

checkpoint: admit, dump, output, compress, manifest, publish, prune. restart: admit, verify, decompress, output, restore.
"""
import time

_spent = {}
_failed = []


class measure:
    """Context manager: adds the time of its body to the phase name (str); a phase that ends by an exception is the one that failed."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.started = time.monotonic()

    def __exit__(self, kind, error, trace):
        _spent[self.name] = _spent.get(self.name, 0) + time.monotonic() - self.started
        if error is not None:
            _failed.append(self.name)


def dump():
    """Return what was measured as what JSON can hold."""
    return [_spent, _failed]


def load(found):
    """Take over what dump() returned in the child, which was forked from this process."""
    spent, failed = found
    _spent.update(spent)
    _failed[:] = failed


def spent():
    """Return the time of each phase (dict of float, seconds)."""
    return {name: round(seconds, 6) for name, seconds in _spent.items()}


def failed():
    """Return the phase that failed, the innermost one (str), empty when none did."""
    return _failed[0] if _failed else ""
