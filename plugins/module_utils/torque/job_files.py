# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which jobs of a host a version of TORQUE cannot take over from the one that wrote their files.

pbs_server and pbs_mom keep each job in a file, and pbs_server each array: a C structure until 4.2, XML from 4.5.0 on (src/server:
job_recov.c, array_func.c). Older versions cannot read XML. Newer ones convert structures, but from 6.1.0 on not those of arrays, with
which pbs_server does not start. The database has been XML since 4.0: jobs of a server whose database is not are as 2.x wrote them, and
6.1.3 removed those of them that had dependencies.
"""

import glob
import os
import re

from . import database
from .version import VersionError, parse_version

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable

XML_FROM = "4.5.0"
"""The first version that writes jobs and arrays as XML."""
ARRAYS_BELOW = "6.1.0"
"""The first version that cannot convert an array's structure."""
DATABASE_XML_FROM = "4.0"
"""The first version that writes the server's database as XML."""
NAMED = 5


def list_lost(home: str, version: str) -> "list[str]":
    """Return the ids of the jobs and arrays in TORQUE's home that the daemons of a version would lose, sorted.

    :raises VersionError: see parse_version()
    :raises OSError: when a file cannot be read; one that goes meanwhile is left out
    """
    wanted, lost = parse_version(version), []
    if wanted < parse_version(XML_FROM):
        lost += _find(home, "*_priv/jobs/*.JB", True) + _find(home, "server_priv/arrays/*.AR", True)
    if wanted >= parse_version(ARRAYS_BELOW) or _is_of_2(home, wanted):
        lost += _find(home, "server_priv/arrays/*.AR", False)
    if _is_of_2(home, wanted):
        lost += _find(home, "server_priv/jobs/*.JB", False)
    return sorted(lost)


def explain(home: str, version: str) -> "tuple[list[str], str]":
    """Return what list_lost() does, and why that TORQUE must not be installed, as a sentence with what to do; empty if it may be.

    :raises VersionError, OSError: as list_lost()
    """
    lost = list_lost(home, version)
    if parse_version(version) < parse_version(DATABASE_XML_FROM) and _is_xml(database.get_path(home)):
        return lost, ("the server's database was written by a later version than TORQUE %s, which cannot read it; keep that version, or "
                      "take %s/server_priv away, with which queues and jobs go" % (version, home))
    if database.has_unreadable_switches(home, version):
        forward = parse_version(version) >= parse_version(database.WORDS_FROM)
        return lost, (
            "the server's database was written by another version, and TORQUE %s would take each switch in it for off (scheduling, queues "
            "that are enabled and started); keep that version, %sor take %s/server_priv away, with which queues and jobs go" % (
                version, "take one from %s on, " % database.DIGITS_FROM if forward else "", home))
    if not lost:
        return [], ""
    left = len(lost) - NAMED
    others = " and %d %s" % (left, "other" if left == 1 else "others") if left > 0 else ""
    return lost, (
        "%s%s cannot be taken over by TORQUE %s, since another version has written %s: pbs_server would not start, or lose jobs, and "
        "pbs_mom would leave them running on their own; let them end, or delete them, before TORQUE is changed" % (
            ", ".join(lost[:NAMED]), others, version, "them" if len(lost) > 1 else "it"))


def examine(home: str, version: str, fail: "Callable") -> "tuple[list[str], str]":
    """Return what explain() does for a module, which fails with a sentence where that raises.

    :param fail: AnsibleModule.fail_json
    """
    host = os.uname().nodename
    try:
        return explain(home, version)
    except VersionError as fault:
        return fail(msg="%s: version: %s" % (host, fault))
    except OSError as fault:
        return fail(msg="%s: cannot read %s: %s; become root" % (host, fault.filename, fault.strerror))


def _is_of_2(home: str, wanted: list) -> bool:
    """Whether the jobs of the server are of 2.x and the version that is wanted is not."""
    return wanted >= parse_version(DATABASE_XML_FROM) and _is_xml(database.get_path(home)) is False


def _find(home: str, pattern: str, is_xml: bool) -> "list[str]":
    """Return the ids of those whose files are XML, or are not."""
    return sorted({_name(path) for path in glob.glob(os.path.join(glob.escape(home), pattern)) if _is_xml(path) is is_xml})


def _is_xml(path: str) -> "bool | None":
    """Whether a file is XML; None of one that is gone or empty."""
    try:
        with open(path, "rb") as stream:
            first = stream.read(1)
    except FileNotFoundError:
        return None
    return first == b"<" if first else None


def _name(path: str) -> str:
    """Return the id of a job (6.head, 6[1].head) or an array (6[].head), whose file is named 6.head.JB, 6-1.head.JB or 6.head.AR."""
    name, kind = os.path.splitext(os.path.basename(path))
    return re.sub(r"^(\d+)\.", r"\1[].", name) if kind == ".AR" else re.sub(r"^(\d+)-(\d+)\.", r"\1[\2].", name)
