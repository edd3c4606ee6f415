# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A series of patches and a source tree: which patches belong to a version, are in the tree, or can be put in.

Texts are str decoded from latin-1, which keeps every byte; a missing file is None.
"""

import collections
import hashlib
import os
import re

from ..torque.version import VersionError, parse_version

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable

APPLIED, BEFORE, UPSTREAM, NOT_FOR = "applied", "already applied", "already upstream", "not applicable"

HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")

BEYOND = ("rename ", "copy ", "similarity ", "GIT binary patch", "new file mode 12", "deleted file mode 12", "old mode ", "new mode ")
"""Beginnings of lines that change more than the text of a file."""

Section = collections.namedtuple("Section", "name text")
"""What a patch does to one file: its path in the tree, and the hunks with their header."""

Patch = collections.namedtuple("Patch", "name file sections digest")


class PatchError(Exception):
    """The series cannot be applied; the text says which patch, why and what to do."""


class Rejected(Exception):
    """A file is not what a section was made for; the text says where they part."""


def within(version: str, limits: "dict[str, str | None]") -> bool:
    """Return whether a version is in limits (from, inclusive, and below, exclusive; either may be missing)."""
    if not limits:
        return True
    first, end = limits.get("from"), limits.get("below")
    number = parse_version(version)
    return (first is None or parse_version(first) <= number) and (end is None or number < parse_version(end))


def choose(entry: dict, version: str) -> "tuple[str | None, str | None]":
    """Return what a series entry is to a version: (file, None), or (None, UPSTREAM or NOT_FOR).

    :raises PatchError: when two variants claim the version, or a limit is no version
    """
    try:
        upstream = any(within(version, limits) for limits in entry.get("upstream") or [])
        files = [variant["file"] for variant in entry.get("variants") or [] if within(version, variant)]
    except VersionError as error:
        raise PatchError("patch %s: %s" % (entry["name"], error))
    if upstream:
        return None, UPSTREAM
    if len(files) > 1:
        raise PatchError("patch %s has %d variants for TORQUE %s (%s); let their ranges not overlap" % (
            entry["name"], len(files), version, ", ".join(files)))
    return (files[0], None) if files else (None, NOT_FOR)


def bare(header: str) -> "str | None":
    """Return the path in a --- or +++ line without its first directory; None for /dev/null."""
    path = header[4:].split("\t")[0].rstrip("\r\n")
    if path == "/dev/null":
        return None
    return path.partition("/")[2] if not path.startswith(("/", '"')) else ""


def sections_of(patch: str) -> "list[Section]":
    """Return the Sections of a unified diff.

    :raises PatchError: when it is malformed, changes more than text, or names a file outside the tree
    """
    lines = re.findall(r"[^\n]*\n|[^\n]+", patch)
    sections, number = [], 0
    while number < len(lines):
        line = lines[number]
        if line.startswith("--- ") and lines[number + 1:number + 2] and lines[number + 1].startswith("+++ "):
            old, new = bare(line), bare(lines[number + 1])
            name = new if old is None else old
            if not name or os.path.normpath(name) != name or name.startswith("/") or ".." in name.split("/") or new not in (name, None):
                raise PatchError("line %d names no file in the tree: %s" % (number + 1, line.strip()))
            sections.append(Section(name, "--- %s\n+++ %s\n" % ("a" if old else "/dev/null", "b" if new else "/dev/null")))
            number += 2
            continue
        hunk = HUNK.match(line)
        if hunk:
            if not sections:
                raise PatchError("line %d is a hunk of no file" % (number + 1))
            start, left = number, [int(count or 1) for count in hunk.groups()]
            number += 1
            while number < len(lines) and (any(left) or lines[number].startswith("\\")):
                kind = lines[number][0]
                if kind not in " \n-+\\":
                    break
                left[0] -= kind in " \n-"
                left[1] -= kind in " \n+"
                number += 1
            if any(left):
                raise PatchError("the hunk at line %d is not as long as it says" % (start + 1))
            sections[-1] = Section(sections[-1].name, sections[-1].text + "".join(lines[start:number]))
            continue
        if line.startswith(BEYOND):
            raise PatchError("line %d changes more than the text of a file: %s" % (number + 1, line.strip()))
        number += 1
    if not sections:
        raise PatchError("it holds no unified diff")
    return sections


def real(tree: str, name: str) -> str:
    """Return the path of a file in a tree.

    :raises PatchError: when a link leads away from there
    """
    path = os.path.join(os.path.realpath(tree), name)
    if os.path.realpath(path) != path or os.path.lexists(path) and not os.path.isfile(path):
        raise PatchError("%s is a link or no regular file" % name)
    return path


def read(path: str) -> "str | None":
    """Return a file's text, None when there is none."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("latin-1")
    except (FileNotFoundError, NotADirectoryError):
        return None


class Applier:
    """GNU patch, given one file at a time: it never chooses a name itself.

    :param run: takes argv, returns (exit status, stdout, stderr)
    :param program: GNU patch
    :param scratch: an empty directory
    """

    def __init__(self, run: "Callable[[list[str]], tuple[int, str, str]]", program: str, scratch: str) -> None:
        self.run, self.program = run, program
        self.file, self.hunks = os.path.join(scratch, "file"), os.path.join(scratch, "hunks")

    def __call__(self, text: "str | None", section: Section, reverse: bool = False) -> "str | None":
        """Return a text with a Section put in or, in reverse, taken out.

        :raises Rejected: when the text is not what the section was made for
        """
        creates = section.text.split("\n")[1 if reverse else 0].endswith(" /dev/null")
        if creates != (text is None):
            raise Rejected("%s is %s" % (section.name, "missing" if text is None else "there already"))
        for path, content in ((self.file, text), (self.hunks, section.text)):
            if os.path.lexists(path):
                os.unlink(path)
            if content is not None:
                with open(path, "wb") as stream:
                    stream.write(content.encode("latin-1"))
        # Not --batch nor --forward: both guess at reversed patches, --force tries just what it is told.
        status, output, error = self.run([self.program, "--force", "--unified", "--binary", "--fuzz=0", "--no-backup-if-mismatch",
                                          "--reject-file=-", "--input=" + self.hunks] + ["--reverse"] * reverse + [self.file])
        if status != 0:
            failed = re.findall(r"Hunk #(\d+) FAILED at (\d+)", output)
            raise Rejected("; ".join("hunk %s of %s fails at line %s" % (hunk, section.name, line) for hunk, line in failed)
                           or "%s: %s" % (section.name, " ".join((error or output).split()) or "patch exited %d" % status))
        return read(self.file)


def load(entry: dict, file: str, directory: str) -> Patch:
    """Return the Patch of a series entry, from file in directory.

    :raises PatchError: when it cannot be used
    """
    path = os.path.join(directory, os.path.basename(file))
    try:
        text = read(path)
    except OSError as error:
        raise PatchError("patch %s: cannot read %s: %s" % (entry["name"], path, error.strerror))
    if text is None:
        raise PatchError("patch %s: there is no file %s; correct directory or the file of the variant" % (entry["name"], path))
    try:
        sections = sections_of(text)
    except PatchError as error:
        raise PatchError("patch %s (%s): %s; correct the file" % (entry["name"], file, error))
    return Patch(entry["name"], file, sections, hashlib.sha256(text.encode("latin-1")).hexdigest())


def put(patch: Patch, files: "dict[str, str | None]", applier: Applier, reverse: bool = False) -> "dict[str, str | None]":
    """Return files (texts by path) with a Patch put in or taken out; raises Rejected."""
    files = dict(files)
    for section in reversed(patch.sections) if reverse else patch.sections:
        files[section.name] = applier(files[section.name], section, reverse)
    return files


def plan(tree: str, version: str, directory: str, series: "list[dict]",
         applier: Applier) -> "tuple[list[dict], str, dict[str, str | None], dict[str, str | None]]":
    """Work out what a tree becomes; nothing is changed.

    :param series: entries as in the series file
    :returns: (result, digest, before, after): result is a list of dicts with name, state and file; digest is of the
        patches that are in the tree then; before and after are texts by path, of the files that differ
    :raises PatchError: when a patch for this version cannot be put in
    :raises VersionError: when version is none
    """
    parse_version(version)
    result, patches = [], []
    names = [entry["name"] for entry in series]
    twice = sorted(name for name in set(names) if names.count(name) > 1)
    if twice:
        raise PatchError("the series names %s more than once; give each patch a name of its own" % ", ".join(twice))
    for entry in series:
        file, state = choose(entry, version)
        result.append({"name": entry["name"], "state": state, "file": file})
        if file is not None:
            patches.append(load(entry, file, directory))

    before: "dict[str, str | None]" = {}
    for patch in patches:
        for section in patch.sections:
            try:
                before[section.name] = read(real(tree, section.name))
            except PatchError as error:
                raise PatchError("patch %s (%s) would change what is not the tree's own: %s" % (patch.name, patch.file, error))
    after, present = dict(before), set()
    for patch in reversed(patches):  # what came last goes first: patches may build on one another
        try:
            after = put(patch, after, applier, reverse=True)
            present.add(patch.name)
        except Rejected:
            pass
    for patch in patches:
        try:
            after = put(patch, after, applier)
        except Rejected as error:
            raise PatchError("patch %s (%s) does not fit this TORQUE %s: %s; unpack the source afresh, or name a variant for "
                             "this version" % (patch.name, patch.file, version, error))
    for row in result:
        row["state"] = row["state"] or (BEFORE if row["name"] in present else APPLIED)
    changed = [name for name in sorted(before) if before[name] != after[name]]
    digest = hashlib.sha256("".join("%s  %s\n" % (patch.digest, patch.name) for patch in patches).encode()).hexdigest()
    return result, digest, {name: before[name] for name in changed}, {name: after[name] for name in changed}


def install(tree: str, before: "dict[str, str | None]", after: "dict[str, str | None]", staging: str) -> None:
    """Put the files of after (texts by path) in their places by renames; all or, on an OSError, none.

    :param staging: an empty directory in the tree's file system
    """
    drafts = {}
    for number, (name, text) in enumerate(sorted(after.items())):
        drafts[name] = os.path.join(staging, str(number))
        for path, content in ((drafts[name], text), (drafts[name] + ".old", before[name])):
            if content is not None:
                with open(path, "wb") as stream:
                    stream.write(content.encode("latin-1"))
                if before[name] is not None:
                    status = os.stat(os.path.join(tree, name))
                    os.chown(path, status.st_uid, status.st_gid)
                    os.chmod(path, status.st_mode & 0o7777)
    done = []
    try:
        for name in sorted(after):
            done.append(name)
            move(drafts[name], os.path.join(tree, name))
    except OSError:
        for name in done:
            move(drafts[name] + ".old", os.path.join(tree, name))
        raise


def move(draft: str, path: str) -> None:
    """Rename draft to path; where there is no draft, path goes too."""
    if os.path.exists(draft):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.rename(draft, path)
    elif os.path.exists(path):
        os.unlink(path)
