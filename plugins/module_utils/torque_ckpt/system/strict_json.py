"""JSON that a user may have written: all JSON files of the store are read here.

Such a file costs its reader at most LARGEST bytes and VALUES values, cannot end it, and holds no value of an unexpected kind.
"""
import json

from .dirfd import open_file

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable

LARGEST = 16 << 20
"""How long such a text may be (bytes). A manifest has about 150 bytes for each file, CRIU has 7 files for each process and one for each
further thread: that is enough for 15,000 processes, or for 90,000 threads."""

VALUES = 1000000
"""How many values may be in it."""

DEPTH = 8
"""How deep they may be nested."""

TEXT = 4096
"""How long a text in it may be (characters): no path is longer."""

NAME = 255
"""How long a name may be (characters)."""

_DIGITS = 20


class Wrong(ValueError):
    """What is wrong with the JSON, the end of a sentence."""


# -- as text ---------------------------------------------------------------------------------------------------------

def _integer(digits: str) -> int:
    if len(digits) > _DIGITS or not -2 ** 63 <= int(digits) < 2 ** 64:  # as the kernel's: an inode's number may have 64 bits
        raise Wrong("it holds a number of more than 64 bits")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits) if len(digits) <= 2 * _DIGITS else float("inf")
    if abs(number) == float("inf"):
        raise Wrong("it holds a number of more than 64 bits")
    return number


def _no_number(name: str) -> None:
    raise Wrong("it holds %s" % name)


def _check(value: object, depth: int) -> None:
    """Raise Wrong when a value is nested deeper than depth, or holds a text that is too long."""
    if isinstance(value, str) and len(value) > TEXT:
        raise Wrong("it holds a text of more than %d characters" % TEXT)
    if isinstance(value, (dict, list)):
        if depth == 0:
            raise Wrong("it is nested more than %d deep" % DEPTH)
        for inner in value:
            _check(inner, depth - 1)
        if isinstance(value, dict):
            for inner in value.values():
                _check(inner, depth - 1)


def parse_json(text: bytes) -> "Any":
    """Return the value of a JSON text.

    :raises Wrong: if it is not JSON, or exceeds the limits
    """
    if len(text) > LARGEST:
        raise Wrong("it is larger than %d bytes" % LARGEST)
    if sum(map(text.count, (b",", b"[", b"{"))) > VALUES:
        raise Wrong("it holds more than %d values" % VALUES)
    try:
        value = json.loads(text.decode("utf-8"), parse_int=_integer, parse_float=_float, parse_constant=_no_number)
        _check(value, DEPTH)
    except Wrong:
        raise
    except RecursionError:
        raise Wrong("it is nested more than %d deep" % DEPTH)
    except ValueError:
        raise Wrong("it is not JSON")
    return value


def read_json(name: str, directory: int) -> "Any":
    """Return the value of a JSON file in a directory (descriptor).

    :raises OSError: if it is not a file, or cannot be read
    :raises Wrong: as parse_json() does
    """
    with open(open_file(directory, name), "rb") as stream:
        return parse_json(stream.read(LARGEST + 1))


# -- as fields -------------------------------------------------------------------------------------------------------

def number(least: int = 0, most: int = 2 ** 63 - 1) -> "tuple[str, Callable[[Any], bool]]":
    """Return the kind of whole numbers from least to most."""
    return "a whole number from %d to %d" % (least, most), lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and least <= value <= most)


def text(most: int = TEXT) -> "tuple[str, Callable[[Any], bool]]":
    """Return the kind of texts of at most so many characters."""
    return "a text of at most %d characters" % most, lambda value: isinstance(value, str) and len(value) <= most


SECONDS = "a number of seconds", lambda value: type(value) in (int, float) and 0 <= value < 2 ** 63
FLAG = "true or false", lambda value: isinstance(value, bool)


def check_kind(value: object, kind: "tuple | list | dict", where: str = "") -> None:
    """Compare a value with the kind that it should be of.

    :param kind: one of the above; [kind] is a list of such; {name: kind} holds these and maybe others, name? being one that may be missing
    :param where: the value's name, for the sentence
    :raises Wrong: if it is of another
    """
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            raise Wrong("%s is not an object" % (where or "it"))
        for name, inner in kind.items():
            field = name.rstrip("?")
            if field in value:
                check_kind(value[field], inner, where + "." + field if where else field)
            elif name == field:
                raise Wrong("%s is missing" % (where + "." + field if where else field))
    elif isinstance(kind, list):
        if not isinstance(value, list):
            raise Wrong("%s is not a list" % where)
        for index, inner in enumerate(value):
            check_kind(inner, kind[0], "%s[%d]" % (where, index))
    elif not kind[1](value):
        raise Wrong("%s is not %s" % (where, kind[0]))
