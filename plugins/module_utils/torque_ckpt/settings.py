"""What a setting is: a row of config.SETTINGS or of an engine's options (engines/registry.py), and the checks of a value.

A check is called with the setting's name and a value of its type, and returns what is wrong, empty if nothing is.
"""
import os
import re

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Iterable, Iterator, Optional


class Setting:
    """One value that a site may set.

    :param name: its key in hooks.json
    :param default: what it is when nothing is set; its type is the setting's
    :param help: what it means, one or more sentences
    :param least, most: the smallest and the largest number, or None
    :param unit: what a number counts
    :param choices: the only values, or none
    :param check: a further check, or None
    """

    def __init__(self, name: str, default: "Any", help: str,  # pylint: disable=redefined-builtin
                 least: "int | None" = None, most: "int | None" = None, unit: str = "", choices: tuple = (),
                 check: "Optional[Callable[[str, Any], str]]" = None) -> None:
        self.name, self.default, self.help = name, default, help
        self.least, self.most, self.unit = least, most, unit
        self.choices, self.check = choices, check

    @property
    def type(self) -> str:
        """The name of its type in Python."""
        return type(self.default).__name__

    def find_fault(self, value: "Any", prefix: str = "") -> str:
        """Return what is wrong with a value, the end of a sentence that begins with the file; empty if nothing is.

        :param prefix: what stands before the name in that sentence
        """
        name = prefix + self.name
        if not isinstance(value, type(self.default)):
            return "sets %s to something that is not a %s" % (name, self.type)
        if self.choices and value not in self.choices:
            return "sets %s to %s, which these hooks do not know" % (name, ascii(value))
        if self.least is not None and (isinstance(value, bool) or value < self.least):
            return "sets %s to something that is not a number of %s" % (name, self.unit)
        if self.most is not None and value > self.most:
            return "sets %s to more than %d %s" % (name, self.most, self.unit)
        return self.check(name, value) if self.check else ""


def find_faults(settings: "Iterable[Setting]", values: dict, prefix: str = "") -> "Iterator[str]":
    """Yield what is wrong with values, which hold one for each of the settings."""
    for setting in settings:
        fault = setting.find_fault(values[setting.name], prefix)
        if fault:
            yield fault


def check_path(_name: str, value: str) -> str:
    """A path is absolute; an empty one means none."""
    return "" if not value or os.path.isabs(value) else "names %s, which is not an absolute path" % ascii(value)


def check_texts(name: str, value: list) -> str:
    """A list holds nothing but text."""
    return "" if all(isinstance(entry, str) for entry in value) else "sets %s to something that is not text" % name


def check_job_paths(name: str, value: list) -> str:
    """A list holds absolute paths, and paths in the job's $TMPDIR."""
    for path in value:
        if not isinstance(path, str) or not (path == "$TMPDIR" or path.startswith(("$TMPDIR/", "/"))) or ".." in path.split("/"):
            return "sets %s to something that is not a list of absolute paths, or paths in $TMPDIR" % name
    return ""


def check_variables(name: str, value: dict) -> str:
    """A dictionary holds variables of the environment, each with a text, or None."""
    for variable, text in value.items():
        if not re.match("[A-Za-z_][A-Za-z0-9_]*$", variable) or not (text is None or isinstance(text, str) and "\0" not in text):
            return "sets %s to something that is not names of variables, each with a text or null" % name
    return ""
