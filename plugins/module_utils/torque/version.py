# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The order of TORQUE's versions."""

import re


class VersionError(Exception):
    """This is no version; the text says so and how one looks."""


def parse_version(version: str) -> "list[tuple[int, int, str]]":
    """Return what sorts versions loosely: 2.4.8 < 2.5 < 6.1.3 < 6.1.3.h5 < 6.1.3.1 < 6.1.10.

    :raises VersionError: when it does not begin with a number
    """
    if not re.match(r"\d[\w.+-]*$", version):
        raise VersionError("'%s' is not a version; name one such as 6.1.3 or 6.1.3.h5" % version)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"\d+|[a-z]+", version.lower())]
