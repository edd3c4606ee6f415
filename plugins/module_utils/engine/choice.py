# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which engine a kernel can run: pure decisions, no I/O."""

import re

# BLCR: to 3.17 with 0.8.6_b4 (0.8.5 ends at 3.7). It begins at 2.6, but the hooks need what Linux has since 3.5: child subreapers, and the
# lists of children in /proc.
BLCR_FIRST, BLCR_LAST = (3, 5), (3, 17)
# CRIU as an ordinary user needs CAP_CHECKPOINT_RESTORE, which is Linux 5.9.
CRIU_FIRST = (5, 9)


class EngineError(Exception):
    """The engine asked for cannot work here; the text says what to do."""


def numbers(release):
    """Return (major, minor) of a kernel release (str) such as "3.10.0-514.el7.x86_64"."""
    found = re.match(r"(\d+)\.(\d+)", release)
    if not found:
        raise EngineError("kernel release '%s' is not a version; set checkpoint_engine to criu or blcr" % release)
    return int(found.group(1)), int(found.group(2))


def dotted(version):
    """Return "3.17" for (3, 17)."""
    return ".".join(str(part) for part in version)


def choose(engine, release):
    """Choose the engine for a node.

    :param engine: "auto", "criu" or "blcr"
    :param release: the running kernel's release (str)
    :returns: (engine, reason), both str
    :raises EngineError: when this kernel cannot run it
    """
    kernel = numbers(release)
    blcr = BLCR_FIRST <= kernel <= BLCR_LAST
    criu = kernel >= CRIU_FIRST
    ranges = "BLCR runs on kernels %s to %s, CRIU as an ordinary user on %s and newer" % (
        dotted(BLCR_FIRST), dotted(BLCR_LAST), dotted(CRIU_FIRST))
    if engine == "blcr" and not blcr:
        raise EngineError("BLCR cannot run on kernel %s: with these hooks it runs on kernels %s to %s; %s" % (
            release, dotted(BLCR_FIRST), dotted(BLCR_LAST), "set checkpoint_engine to criu or auto" if criu
            else "boot a kernel in that range, or %s and newer for CRIU" % dotted(CRIU_FIRST)))
    if engine == "criu" and not criu:
        raise EngineError("CRIU cannot run as an ordinary user on kernel %s: it needs %s or newer; %s" % (
            release, dotted(CRIU_FIRST), "set checkpoint_engine to blcr or auto" if blcr else "boot a newer kernel"))
    if engine != "auto":
        return engine, "asked for, and kernel %s can run it" % release
    if criu:
        return "criu", "kernel %s is %s or newer" % (release, dotted(CRIU_FIRST))
    if blcr:
        return "blcr", "kernel %s is between %s and %s" % (release, dotted(BLCR_FIRST), dotted(BLCR_LAST))
    raise EngineError("no engine can run on kernel %s: %s; boot a kernel in one of these ranges" % (release, ranges))
