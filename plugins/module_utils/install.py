# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Putting files on a host: each in one step, and a directory that holds nothing else."""

import contextlib
import glob
import hashlib
import os
import shutil
import stat
import tempfile

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import IO, Collection, Iterator


DRAFT = ".ckpt-torque-"
"""How the name of a file begins while it is being written."""


def find_difference(path: str, text: "str | None", mode: int, digest: str = "") -> "str | None":
    """Return the file's present text if it must be written, else None.

    :param text: what it is to hold; None if that is known by its digest alone (SHA-256, hexadecimal)
    """
    try:
        status = os.lstat(path)
    except OSError:
        return ""
    if not stat.S_ISREG(status.st_mode):
        return "(not a regular file)"
    present = read_file(path)
    is_same = read_digest(path) == digest if text is None else present == text
    if is_same and stat.S_IMODE(status.st_mode) == mode and (status.st_uid, status.st_gid) == (0, 0):
        return None
    return present


def read_file(path: str) -> str:
    """Return a file's text."""
    with open(path, "rb") as stream:
        return stream.read().decode("utf-8", "replace")


def read_digest(path: str) -> str:
    """Return the SHA-256 (hexadecimal) of what a file holds."""
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def write_file(path: str, text: str, mode: int) -> None:
    """Put the file in its place in one step."""
    _take_place(_write_draft(path, text, mode), path)


@contextlib.contextmanager
def replace_file(path: str) -> "Iterator[IO[bytes]]":
    """Give a stream whose file takes the place of path when the block ends; its mode is 0600 unless the block changes it.

    Its content is on the disk by then: after a power loss path is the old file or the new one, and not an empty one.
    """
    with _open_draft(path) as stream:
        yield stream
    _take_place(stream.name, path)


def _write_draft(path: str, text: str, mode: int) -> str:
    """Write what is to take the place of path into a file beside it, to the disk; return that file's path."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with _open_draft(path) as stream:
        stream.write(text.encode("utf-8"))
        os.fchmod(stream.fileno(), mode)
        os.fchown(stream.fileno(), 0, 0)
    return stream.name


@contextlib.contextmanager
def _open_draft(path: str) -> "Iterator[IO[bytes]]":
    """Give the stream of a new file beside path, which is on the disk when the block ends, or gone when that fails."""
    with tempfile.NamedTemporaryFile(prefix=DRAFT, dir=os.path.dirname(path), delete=False) as stream:
        on_disk = False
        try:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            on_disk = True
        finally:
            if not on_disk:
                os.unlink(stream.name)


def _take_place(draft: str, path: str) -> None:
    """Rename a draft to path; remove it when that cannot be done."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        os.rename(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def remove_path(path: str) -> None:
    """Remove a file or a directory with all that is in it; never what a link leads to."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def is_owned_by_root(path: str, mode: int) -> bool:
    """Whether path itself is root's with this mode."""
    status = os.lstat(path)
    return (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, 0, mode)


def list_strays(root: str, wanted: "set[str]") -> "list[str]":
    """Return what is in root but not among the wanted paths, sorted.

    Compiled files of wanted ones may stay if nobody but root could have written them.
    """
    strays = []
    for directory, subdirectories, names in os.walk(root):
        for name in list(subdirectories):
            path = os.path.join(directory, name)
            needed = name == "__pycache__" or any(entry.startswith(path + "/") for entry in wanted)
            if os.path.islink(path) or not needed:
                strays.append(path)
                subdirectories.remove(name)
        for name in names:
            path = os.path.join(directory, name)
            source = os.path.join(os.path.dirname(directory), name.split(".")[0] + ".py")
            compiled = os.path.basename(directory) == "__pycache__" and source in wanted
            if path not in wanted and not (compiled and not os.path.islink(path) and is_owned_by_root(path, 0o644)):
                strays.append(path)
    return sorted(strays)


def list_foreign(root: str, wanted: "set[str]") -> "list[str]":
    """Return what is in root and does not come from an installation that was cut off: neither wanted nor a draft of a file."""
    return [path for path in list_strays(root, wanted)
            if not (os.path.basename(path).startswith(DRAFT) and stat.S_ISREG(os.lstat(path).st_mode))]


def list_wrong_directories(root: str) -> "list[str]":
    """Return the directories at and beneath root whose owner or mode is wrong."""
    return sorted(path for path, _subdirectories, _names in os.walk(root) if not is_owned_by_root(path, 0o755))


def list_uncompiled(package: str) -> "list[str]":
    """Return the sources of a package that have no compiled file."""
    return [path for path in glob.glob(package + "/**/*.py", recursive=True)
            if not glob.glob("%s/__pycache__/%s.*.pyc" % (os.path.dirname(path), os.path.basename(path)[:-3]))]


class Installation:
    """Files that a host is to have, and how it differs from that.

    :param wanted: (text, mode) by path; the text is None where a digest has to be sufficient until it is written
    :param root: the directory that is to hold nothing else, None without one
    :param package: a Python package in it, to be compiled, None without root
    :param digests: SHA-256 (hexadecimal) by path, of the wanted files without a text

    removed      what is in root but does not belong there (sorted list of str)
    written      files that differ (sorted list of str)
    compiling    whether the package must be compiled (bool)
    changed      whether anything is to be done (bool)
    is_ready     whether the texts of all files that differ are at hand (bool)
    """

    def __init__(self, wanted: "dict[str, tuple[str | None, int]]", root: "str | None" = None, package: "str | None" = None,
                 digests: "dict[str, str] | None" = None) -> None:
        self.wanted, self.root = wanted, root
        self.removed = list_strays(root, set(wanted)) if root and os.path.isdir(root) else []
        self._present: "dict[str, str]" = {}
        for path, (text, mode) in sorted(wanted.items()):
            is_gone = any(path.startswith(stray + "/") for stray in self.removed)
            present = "" if is_gone else find_difference(path, text, mode, (digests or {}).get(path, ""))
            if present is not None:
                self._present[path] = present
        self.written = list(self._present)
        self.compiling = bool(package and (self.written or self.removed or list_uncompiled(package)))
        self.changed = bool(self.removed or self.written or self.compiling or root and list_wrong_directories(root))
        self.is_ready = not [path for path in self.written if wanted[path][0] is None]

    def list_differences(self, secrets: "Collection[str]") -> "list[dict[str, str]]":
        """Return the differences, as Ansible shows them: changed files in full, new ones and the programs in root in a line.

        Of secrets (paths) only that there is a difference.
        """
        programs = [path for path in self.written if self.root and path.startswith(self.root + "/")]
        new = [path for path in self.written if path not in programs and not os.path.lexists(path)]
        lines = ["%s: %d files are new or differ, %d do not belong there\n" % (self.root, len(programs), len(self.removed))
                 ] if programs or self.removed else []
        lines += ["%s: new, %d lines\n" % (path, (self.wanted[path][0] or "").count("\n")) for path in new]
        changed = []
        for path in self.written:
            if path not in programs + new:
                texts = ("(secret)\n", "(another secret)\n") if path in secrets else (self._present[path], self.wanted[path][0] or "")
                changed.append({"before_header": path, "after_header": path, "before": texts[0], "after": texts[1]})
        return ([{"prepared": "".join(lines)}] if lines else []) + changed

    def install(self) -> None:
        """Remove and write what differs.

        Programs of the package may start meanwhile. All new files are on the disk before the first takes its place, so that old and new
        ones are together for a few milliseconds; what only old ones need goes last.

        :raises OSError: when that cannot be done
        """
        in_the_way = [path for path in self.removed if any((name + "/").startswith(path + "/") for name in self.wanted)]
        for path in in_the_way:
            remove_path(path)
        drafts: "dict[str, str]" = {}
        try:
            for path in self.written:
                text, mode = self.wanted[path]
                drafts[path] = _write_draft(path, text or "", mode)
            for path in self.written:
                _take_place(drafts.pop(path), path)
        finally:
            for draft in drafts.values():
                os.unlink(draft)
        for path in self.removed:
            if path not in in_the_way:
                remove_path(path)
        for path in list_wrong_directories(self.root) if self.root else []:
            os.chown(path, 0, 0)
            os.chmod(path, 0o755)
