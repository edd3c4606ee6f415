# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an unpacked TORQUE source is: its version, its form, and a digest of its sources. Reads only."""

import hashlib
import os
import re

SUFFIXES = (".c", ".h", ".cpp", ".hpp")

GENERATED = re.compile(r"src/(include/(pbs_config|site_\w+)\.h|scheduler\.basl/(Lexer|Parser)\.c)$")
"""Made from other files by configure and make, and in some release tarballs."""

KNOWN = {
    "2.4.8": (
        "2d9f4ad3c42c179aaa53f41e2d0bb3cc70d0981bf679f6971cc95580670991b1",
    ),
    "2.5.3": (
        "8374f98b2c526bc391e9675879f67f376840a8c1ced2c2d6d88d5da59e0892c2",
        "95bf14838e8a83e50961151a744f70667ec28b1f144a0f147e6aaba488d35c24",
    ),
    "2.5.13": (
        "d92db0c5994b9316bad08d1086957bdfebdb02fab386b65bf042357789113e5a",
        "e011c4d3698d471ab41b4fa822bd4d88db07787700b53c1c80344634c82e7cc2",
    ),
    "4.2.10": (
        "b56e8f7030d7f305f0a5a766adc89e20da372bb7f0e6d32435f1b79298c65396",
        "f6218fe9a907d66a9623f7b9c262e04742c1d8bdc90bc1406e0c7f8c765b7025",
    ),
    "6.0.4": (
        "d53e9a8d211d26e13faf4ab218eb6755ff82eb2a030b05a2418093ce3f4084fe",
        "02116de450c0f36f22d4d84b03d5b7f264fef19c0c2473f91cd5509f354fd916",
    ),
    "6.1.3": (
        "bb98f3af72d2268066a172c122c938e0e7b531596a237462f7a30f0f9f6cddd1",
        "f9a5ac99780f9b9ce1646f39859aa224e2b2e5179f27c8721360411fbd1b6f12",
    ),
    "6.1.3.h5": (
        "b90a7d83cf1919c423a1b7cc9dda0775125da89c3784c811c693e2548daa213a",
        "a20d0e17d23bd9454cc7544ebfb5a0df711d3561272baca12607e2af2dd64a0f",
    ),
}
"""Digests by version: of the tree in upstream's repository, and of what its make dist packs where that leaves headers out."""


class SourceError(Exception):
    """This is not the source asked for; the text says why and what to do."""


def order(version):
    """Return what sorts versions (str) loosely: 2.4.8 < 2.5 < 6.1.3 < 6.1.3.h5 < 6.1.3.1 < 6.1.10.

    :raises SourceError: when it does not begin with a number
    """
    if not re.match(r"\d[\w.+-]*$", version):
        raise SourceError("'%s' is not a version; name one such as 6.1.3 or 6.1.3.h5" % version)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"\d+|[a-z]+", version.lower())]


def text(path):
    """Return a file's text (str), empty when there is none."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def version_of(tree):
    """Return the version (str) that a tree gives itself, empty when it is not a TORQUE tree."""
    if not all(os.path.isdir(os.path.join(tree, "src", name)) for name in ("resmom", "server")):
        return ""
    for name, pattern in (("configure.ac", r"^AC_INIT\(\[?torque\]?,\s*\[?([^\]\s,)]+)"),
                          ("configure.in", r"^AM_INIT_AUTOMAKE\(\[?torque\]?,\s*\[?([^\]\s,)]+)"),
                          ("configure", r"^PACKAGE_STRING='torque ([^']+)'")):
        found = re.search(pattern, text(os.path.join(tree, name)), re.MULTILINE)
        if found:
            return found.group(1)
    return ""


def form_of(tree):
    """Return "release" when a tree brings configure and Makefile.in, else "tree": the autotools must run first."""
    return "release" if all(os.path.isfile(os.path.join(tree, name)) for name in ("configure", "Makefile.in")) else "tree"


def sources(tree):
    """Return the relative paths (list of str, sorted) that the digest is of; see digest_of."""
    def fail(error):
        raise error
    found = []
    for directory, subdirectories, names in os.walk(os.path.join(tree, "src"), onerror=fail):
        subdirectories[:] = [name for name in subdirectories if name != "test"]
        for name in names:
            path = os.path.join(directory, name)
            relative = os.path.relpath(path, tree)
            if name.endswith(SUFFIXES) and not GENERATED.match(relative) and os.path.isfile(path) and not os.path.islink(path):
                found.append(relative)
    return sorted(found)


def digest_of(tree):
    """Return the sha256 (str, hexadecimal) of a tree's C and C++ sources, whatever they were packed in.

    It is the digest of what sha256sum prints for the regular files src/**/*.{c,h,cpp,hpp}, in the byte order of their paths
    relative to the tree; without the directories named test, which releases carry in part, and without GENERATED.
    """
    lines = hashlib.sha256()
    for name in sources(tree):
        with open(os.path.join(tree, name), "rb") as stream:
            lines.update(hashlib.sha256(stream.read()).hexdigest().encode() + b"  " + os.fsencode(name) + b"\n")
    return lines.hexdigest()


def examine(tree, wanted=None):
    """Say what a tree is.

    :param tree: its path (str)
    :param wanted: the version asked for (str) or None
    :returns: dict with version, form, digest, genuine; genuine is None where no digest of this version is known
    :raises SourceError: when it is not a TORQUE tree or not of that version
    :raises OSError: when it cannot be read
    """
    names = os.listdir(tree)
    version = version_of(tree)
    if not version:
        inner = [name for name in sorted(names) if version_of(os.path.join(tree, name))]
        raise SourceError("%s is not a TORQUE source tree, which has src/resmom, src/server and a configure.ac that names torque; %s" % (
            tree, "name %s" % os.path.join(tree, inner[0]) if inner else "name the directory that the source was unpacked to"))
    if wanted is not None and wanted != version:
        raise SourceError("%s holds TORQUE %s, but %s was asked for; name the source of %s or ask for %s" % (
            tree, version, wanted, wanted, version))
    digest = digest_of(tree)
    return {"version": version, "form": form_of(tree), "digest": digest,
            "genuine": digest in KNOWN[version] if version in KNOWN else None}
