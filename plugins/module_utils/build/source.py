# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an unpacked TORQUE source is: its version, its form, and a digest of all that is in it. Reads only."""

import hashlib
import os
import re
import stat

from ..torque_ckpt.system.textfile import read_text

KNOWN = {
    "2.4.8": "9b0f63630ea5d4c0e6a746e8c6f90f95855c4b2486db0bc302f93baff56f1790",
    "2.5.3": "d62f566c5685208441105b483967d8677cc7027cb8c49c30a077c3f4945417d4",
    "2.5.13": "086a1c4ddb8399395d9cdea172958a82be3ce4119d33f53a34cb5ddcbd5e7a1f",
    "4.2.8": "1fe6d0f52004222e5df4280536ad0301725d0d311b0a2da2d6d616ec26c8d852",
    "4.2.10": "7353a492dad069a2d7b2d549281d0770b6f81c43c782092680ac936fe6d48faa",
    "5.1.3": "3ae02bfd99d1adc53dc0a6908475283e88ec2f34b042804be1172730b31dca5f",
    "6.0.4": "c08d222498f456e4b4e589dcac91197f7953c1683d2bd85e5eda3a839c8593bb",
    "6.1.3": "acac2e0f8eefaee9b08cf9531b299866c7b337659c78c0cf3e34af664e84a892",
    "6.1.3.h5": "a667dd46ddbcc8e84bf2b654bf99bbf99d843e2fb437d9d4f8861b2d5608a52b",
}
"""Digests by version, of the trees in upstream's repository. Release tarballs of 4 to 6 hold generated files as well, which nobody can
check here; they have other digests."""


NOT_THERE = (FileNotFoundError, NotADirectoryError)
"""What is no reason to give up: a tree that cannot be read is not one of another kind."""


class SourceError(Exception):
    """This is not the source asked for; the text says why and what to do."""


def read_version(tree: str) -> str:
    """Return the version that a tree gives itself, empty when it is not a TORQUE tree."""
    if not all(os.path.isdir(os.path.join(tree, "src", name)) for name in ("resmom", "server")):
        return ""
    for name, pattern in (("configure.ac", r"^AC_INIT\(\[?torque\]?,\s*\[?([^\]\s,)]+)"),
                          ("configure.in", r"^AM_INIT_AUTOMAKE\(\[?torque\]?,\s*\[?([^\]\s,)]+)"),
                          ("configure", r"^PACKAGE_STRING='torque ([^']+)'")):
        match = re.search(pattern, read_text(os.path.join(tree, name), NOT_THERE), re.MULTILINE)
        if match:
            return match.group(1)
    return ""


def find_form(tree: str) -> str:
    """Return "release" when a tree brings configure and Makefile.in, else "tree": the autotools must run first."""
    return "release" if all(os.path.isfile(os.path.join(tree, name)) for name in ("configure", "Makefile.in")) else "tree"


def list_files(tree: str) -> "list[str]":
    """Return the relative paths (sorted as bytes) of all that is in a tree and is no directory."""
    def fail(error: OSError) -> None:
        raise error
    paths = []
    for directory, subdirectories, names in os.walk(tree, onerror=fail):
        links = [name for name in subdirectories if os.path.islink(os.path.join(directory, name))]
        paths += [os.path.relpath(os.path.join(directory, name), tree) for name in names + links]
    return sorted(paths, key=os.fsencode)


def _read_content(path: str) -> bytes:
    """Return what counts of a file; of a link it is where it leads to.

    :raises SourceError: when it is neither
    """
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(os.readlink(path))
    if not stat.S_ISREG(status.st_mode):
        raise SourceError("%s is neither a file nor a link, which no TORQUE source has; unpack the source anew" % path)
    with open(path, "rb") as stream:
        return stream.read()


def compute_digest(tree: str) -> str:
    """Return the sha256 (hexadecimal) of a tree, whatever it was packed in.

    It is the digest of what sha256sum prints for all of its files, in the byte order of their paths relative to the tree. A link
    counts as a file that holds its target. Modes, times and empty directories do not count.
    """
    lines = hashlib.sha256()
    for name in list_files(tree):
        content = hashlib.sha256(_read_content(os.path.join(tree, name)))
        lines.update(content.hexdigest().encode() + b"  " + os.fsencode(name) + b"\n")
    return lines.hexdigest()


def examine(tree: str, wanted: "str | None" = None) -> dict:
    """Identify a tree.

    :param tree: its path
    :param wanted: the version asked for
    :returns: dict with version, form, digest, genuine; genuine is None where no digest of this version is known
    :raises SourceError: when it is not a TORQUE tree or not of that version
    :raises OSError: when it cannot be read
    """
    names = os.listdir(tree)
    version = read_version(tree)
    if not version:
        inner = [name for name in sorted(names) if read_version(os.path.join(tree, name))]
        raise SourceError("%s is not a TORQUE source tree, which has src/resmom, src/server and a configure.ac that names torque; %s" % (
            tree, "name %s" % os.path.join(tree, inner[0]) if inner else "name the directory that the source was unpacked to"))
    if wanted is not None and wanted != version:
        raise SourceError("%s holds TORQUE %s, but %s was asked for; name the source of %s or ask for %s" % (
            tree, version, wanted, wanted, version))
    digest = compute_digest(tree)
    return {"version": version, "form": find_form(tree), "digest": digest,
            "genuine": digest == KNOWN[version] if version in KNOWN else None}
