# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What pbs_server keeps of itself and of its queues, and which versions can read it.

Since 4.0 it is XML (src/server: svr_recov.c, queue_recov.c). A pbs_server does not start with an attribute that it does not know; until
6.1.2 it takes a switch for off that a version before 6.1.0 has written ("1"), or one from there on ("true"), where it is of the other.
"""

import glob
import os
import re

from .version import parse_version

WORDS_FROM = "6.1.0"
"""The first version that writes switches as words."""
DIGITS_FROM = "6.1.3"
"""The first of these that reads the digits of earlier ones."""


def get_path(home: str) -> str:
    """Return where the database of the server is in TORQUE's home."""
    return os.path.join(home, "server_priv/serverdb")


def has_unreadable_switches(home: str, version: str) -> bool:
    """Whether a version takes each switch in the database for off: scheduling, queues that are enabled and started, and others.

    :raises VersionError: see parse_version()
    """
    switches = re.findall(rb"<scheduling>(\w+)</scheduling>", _read(get_path(home)))
    if not switches:
        return False
    if switches[0].isdigit():
        return parse_version(WORDS_FROM) <= parse_version(version) < parse_version(DIGITS_FROM)
    return parse_version(version) < parse_version(WORDS_FROM)


def list_unknown(home: str, program: str) -> "list[str]":
    """Return the attributes in the database that a pbs_server (path) does not know, sorted.

    Those that it knows are strings in the program, which is asked itself since hot fixes differ, too.
    """
    names: "set[bytes]" = set()
    for path in [get_path(home)] + glob.glob(os.path.join(glob.escape(home), "server_priv/queues/*")):
        for attributes in re.findall(rb"<attributes>\n(.*?)\n</attributes>", _read(path), re.DOTALL):
            names.update(re.findall(rb"^<(\w+)>", attributes, re.MULTILINE))  # what is in one is indented
    text = _read(program) if names else b""
    return sorted(name.decode() for name in names if b"\0" + name + b"\0" not in text)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return b""
