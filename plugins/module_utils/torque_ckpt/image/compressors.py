"""The programs that compress images: which they are, where they are searched and how they are called."""
import os
from collections import namedtuple

from ..errors import HookError, CONFIG

Program = namedtuple("Program", "suffix highest options")
"""suffix: of a compressed file's name (str); highest: its highest level (int); options: besides those that all have (list of str)."""

PROGRAMS = {
    "zstd": Program(".zst", 19, ["-T%d" % min(4, len(os.sched_getaffinity(0)))]),  # as many threads as hashing has
    "lz4": Program(".lz4", 12, []),
    "gzip": Program(".gz", 9, ["-n"]),
}

ORDER = ("zstd", "lz4", "gzip")
"""The order in which "auto" prefers them."""

DIRECTORIES = ("/usr/bin", "/bin", "/usr/local/bin")
"""Where they are searched; a job's PATH is its user's."""


def find_program(name: str) -> "str | None":
    """Return the path of the program name, None if this node has none."""
    paths = [os.path.join(directory, name) for directory in DIRECTORIES]
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def list_available() -> "list[str]":
    """Return the names of the programs that this node has."""
    return [name for name in ORDER if find_program(name)]


def format_directories() -> str:
    """Return DIRECTORIES for a sentence."""
    return "%s or %s" % (", ".join(DIRECTORIES[:-1]), DIRECTORIES[-1])


def choose_program(setting: str) -> "str | None":
    """Return the name of the program that the setting compression means on this node, None for none.

    :raises HookError: CONFIG if this node does not have the one that is named
    """
    if setting in ("none", "auto"):
        return next(iter(list_available()), None) if setting == "auto" else None
    if find_program(setting) is None:
        raise HookError(CONFIG, "%s, by which checkpoint_hooks_compression has images compressed, is not in %s on this node; run the role "
                        "checkpoint_hooks on it" % (setting, format_directories()))
    return setting


def _get_path(name: str) -> str:
    """Return the path of the program name. If it was removed a moment ago, the start of what this returns reports that."""
    return find_program(name) or os.path.join(DIRECTORIES[0], name)


def build_compress_command(name: str, level: int) -> "list[str]":
    """Return the command by which the program name compresses stdin to stdout.

    :param level: 0 for the program's own default; a level above the program's highest means the highest
    """
    program = PROGRAMS[name]
    return [_get_path(name), "-q", "-c"] + program.options + (["-%d" % min(level, program.highest)] if level else [])


def build_decompress_command(name: str) -> "list[str]":
    """Return the command by which the program name decompresses stdin to stdout."""
    return [_get_path(name), "-q", "-d", "-c"]
