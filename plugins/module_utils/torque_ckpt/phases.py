"""How long each phase of a hook took, also in the part of it that runs as the user.

checkpoint: admit, wait (if it does), programs (if the site has some, or ckpt-run has started some), dump, output, settle, compress,
manifest, publish, prune.
restart: admit, verify, decompress, output, restore.
"""
import time

_spent: "dict[str, float]" = {}
_failed: "list[str]" = []


class measure:
    """Context manager: adds the time of its body to the phase name; a phase that ends by an exception is the one that failed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, kind: object, error: "BaseException | None", trace: object) -> None:
        _spent[self.name] = _spent.get(self.name, 0) + time.monotonic() - self.started
        if error is not None:
            _failed.append(self.name)


def dump() -> list:
    """Return what was measured, in a form that JSON can hold."""
    return [_spent, _failed]


def load(dumped: list) -> None:
    """Take over what dump() returned in the child, which was forked from this process."""
    spent, failed = dumped
    _spent.update(spent)
    _failed[:] = failed


def spent() -> "dict[str, float]":
    """Return the time of each phase (seconds)."""
    return {name: round(seconds, 6) for name, seconds in _spent.items()}


def forget_failure() -> None:
    """Forget which phase failed: what it was part of is tried again."""
    _failed.clear()


def failed() -> str:
    """Return the phase that failed, the innermost one, empty when none did."""
    return _failed[0] if _failed else ""
