# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which engine a kernel can run, by the registry of engines: pure decisions, no I/O."""

import re

from ..torque_ckpt.engines import registry

AUTO = "auto"
"""What asks for the first engine of the registry that the kernel can run."""


class EngineError(Exception):
    """The engine asked for cannot work here; the text says what to do."""


def numbers(release: str) -> "tuple[int, int]":
    """Return (major, minor) of a kernel release such as "3.10.0-514.el7.x86_64"."""
    match = re.match(r"(\d+)\.(\d+)", release)
    if not match:
        raise EngineError("kernel release '%s' is not a version; set checkpoint_engine to %s"
                          % (release, " or ".join(registry.list_names())))
    return int(match.group(1)), int(match.group(2))


def dotted(version: "tuple[int, int]") -> str:
    """Return "3.17" for (3, 17)."""
    return ".".join(str(part) for part in version)


def _range(entry: registry.Entry) -> str:
    """Return the kernels of an engine as text: "3.5 to 3.17", or "5.9 and newer"."""
    return dotted(entry.first) + (" and newer" if entry.last is None else " to " + dotted(entry.last))


def _mode(entry: registry.Entry) -> str:
    return " " + entry.mode if entry.mode else ""


def _advise(entry: registry.Entry, able: "list[registry.Entry]") -> str:
    """Return what to do if an engine cannot run; able: the entries of those that can."""
    if able:
        return "set checkpoint_engine to " + " or ".join([", ".join(other.name for other in able), AUTO])
    if entry.last is None:
        return "boot a newer kernel"
    newer = ["%s for %s" % (_range(other), other.title) for other in registry.ENGINES if other.last is None]
    return ", or ".join(["boot a kernel in that range"] + newer)


def _refuse(entry: registry.Entry, release: str, able: "list[registry.Entry]") -> EngineError:
    needed = ("it needs %s or newer" % dotted(entry.first) if entry.last is None
              else "with these hooks it runs on kernels " + _range(entry))
    return EngineError("%s cannot run%s on kernel %s: %s; %s" % (entry.title, _mode(entry), release, needed, _advise(entry, able)))


def choose(engine: str, release: str) -> "tuple[str, str]":
    """Choose the engine for a node.

    :param engine: AUTO or the name of an engine of the registry
    :param release: the running kernel's release
    :returns: (engine, reason)
    :raises EngineError: when this kernel cannot run it
    """
    kernel = numbers(release)
    able = [entry for entry in registry.ENGINES if entry.runs_on(kernel)]
    if engine != AUTO:
        entry = {known.name: known for known in registry.ENGINES}[engine]
        if entry not in able:
            raise _refuse(entry, release, able)
        return engine, "asked for, and kernel %s can run it" % release
    if not able:
        ranges = ["%s runs%s on kernels %s" % (entry.title, _mode(entry), _range(entry))
                  for entry in sorted(registry.ENGINES, key=lambda entry: entry.first)]
        raise EngineError("no engine can run on kernel %s: %s; boot a kernel in one of these ranges" % (release, ", ".join(ranges)))
    best = able[0]
    where = "%s or newer" % dotted(best.first) if best.last is None else "between %s and %s" % (dotted(best.first), dotted(best.last))
    return best.name, "kernel %s is %s" % (release, where)
