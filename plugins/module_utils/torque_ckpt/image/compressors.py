"""The programs that compress images: which there are, where they are looked for and how they are called."""
import os
from collections import namedtuple

from ..errors import HookError, CONFIG

Program = namedtuple("Program", "suffix highest options")
"""suffix: of a compressed file's name (str); highest: its highest level (int); options: beside those that all have (list of str)."""

PROGRAMS = {
    "zstd": Program(".zst", 19, ["-T%d" % min(4, len(os.sched_getaffinity(0)))]),  # as many threads as hashing has
    "lz4": Program(".lz4", 12, []),
    "gzip": Program(".gz", 9, ["-n"]),
}

ORDER = ("zstd", "lz4", "gzip")
"""Which one "auto" prefers."""

DIRECTORIES = ("/usr/bin", "/bin", "/usr/local/bin")
"""Where they are looked for; a job's PATH is its user's."""


def find(name):
    """Return the path (str) of the program name (str), None when this node has none."""
    paths = [os.path.join(directory, name) for directory in DIRECTORIES]
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def found():
    """Return the names (list of str) of those that this node has."""
    return [name for name in ORDER if find(name)]


def looked_for():
    """Return where they are looked for (str), for a sentence."""
    return "%s or %s" % (", ".join(DIRECTORIES[:-1]), DIRECTORIES[-1])


def choose(setting):
    """Return the name (str) of the program that the setting compression (str) means on this node, None for none.

    :raises HookError: CONFIG when this node does not have the one that is named
    """
    if setting in ("none", "auto"):
        return next(iter(found()), None) if setting == "auto" else None
    if find(setting) is None:
        raise HookError(CONFIG, "%s, by which checkpoint_hooks_compression has images compressed, is not in %s on this node; run the role "
                        "checkpoint_hooks on it" % (setting, looked_for()))
    return setting


def compressing(name, level):
    """Return the command (list of str) by which the program name compresses stdin to stdout.

    :param level: int; 0 for the program's own default, and no program is asked for more than its highest
    """
    program = PROGRAMS[name]
    return [find(name), "-q", "-c"] + program.options + (["-%d" % min(level, program.highest)] if level else [])


def decompressing(name):
    """Return the command (list of str) by which the program name decompresses stdin to stdout."""
    return [find(name), "-q", "-d", "-c"]
