# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Snapshots of files: what a host had before a change, so that it can be put back."""

import glob
import io
import json
import os
import stat
import tarfile

from .install import remove_path, replace_file

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterator

COMPILED = "__pycache__"
"""Directories of Python that no snapshot has: what is in them belongs to the files as they are."""

HEADER = "ckpt_torque.snapshot"
"""The header of the archive that has, as JSON, the paths with those that did not exist, the change, and how many entries there are."""


class Entry:
    """A file, directory or symbolic link.

    :param kind: stat.S_IFREG, S_IFDIR or S_IFLNK
    :param content: of a file, or where a link leads, as bytes; empty for a directory
    """

    def __init__(self, kind: int, mode: int, uid: int, gid: int, content: bytes) -> None:
        self.kind, self.mode, self.uid, self.gid, self.content = kind, mode, uid, gid, content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.kind, self.content))


def read_entries(paths: "list[str]") -> "dict[str, Entry]":
    """Return what is at the paths (absolute), and beneath those that are directories, by path. What does not exist is left out.

    :raises OSError: when it cannot be read
    :raises ValueError: when something there is no file, directory or link
    """
    return dict(entry for path in paths for entry in _walk(path))


def _walk(path: str) -> "Iterator[tuple[str, Entry]]":
    """Yield path and Entry of a path and of all that is beneath it."""
    try:
        status = os.lstat(path)
    except OSError:
        return
    kind = stat.S_IFMT(status.st_mode)
    content = b""
    if kind == stat.S_IFREG:
        with open(path, "rb") as stream:
            content = stream.read()
    elif kind == stat.S_IFLNK:
        content = os.fsencode(os.readlink(path))
    elif kind != stat.S_IFDIR:
        raise ValueError("%s is no file, directory or symbolic link" % path)
    yield path, Entry(kind, stat.S_IMODE(status.st_mode) if kind != stat.S_IFLNK else 0o777, status.st_uid, status.st_gid, content)
    if kind == stat.S_IFDIR:
        for name in sorted(os.listdir(path)):
            if name != COMPILED:
                yield from _walk(os.path.join(path, name))


class Snapshot:
    """What a host had at some paths.

    paths       what it was taken of (list of str)
    entries     what was there (dict of Entry, by path)
    change      what it was taken for (str)
    """

    def __init__(self, paths: "list[str]", entries: "dict[str, Entry]", change: str = "") -> None:
        self.paths, self.entries, self.change = paths, entries, change

    @classmethod
    def take(cls, paths: "list[str]", change: str = "") -> "Snapshot":
        """Return a snapshot of what is there now.

        :raises OSError, ValueError: as read_entries
        """
        return cls(paths, read_entries(paths), change)

    @classmethod
    def read(cls, path: str) -> "Snapshot":
        """Return the snapshot in a file.

        :raises OSError: when it cannot be read
        :raises ValueError: when it is none, or damaged
        """
        kinds = {tarfile.REGTYPE: stat.S_IFREG, tarfile.SYMTYPE: stat.S_IFLNK, tarfile.DIRTYPE: stat.S_IFDIR}
        entries = {}
        try:
            with tarfile.open(path, "r:") as archive:
                for member in archive:
                    stream = archive.extractfile(member) if member.isreg() else None
                    content = stream.read() if stream else os.fsencode(member.linkname)
                    entries["/" + member.name] = Entry(kinds[member.type], member.mode, member.uid, member.gid, content)
                header = json.loads(archive.pax_headers[HEADER])
        except (tarfile.TarError, KeyError, EOFError) as error:
            raise ValueError("%s is no whole snapshot (%s)" % (path, error))
        if len(entries) != header["entries"]:
            raise ValueError("%s is no whole snapshot (it has %d of %d entries)" % (path, len(entries), header["entries"]))
        return cls(header["paths"], entries, header["change"])

    def write(self, path: str) -> None:
        """Write the snapshot into a file, an archive of tar that root alone can read, in one step.

        :raises OSError: when that cannot be done
        """
        types = {stat.S_IFREG: tarfile.REGTYPE, stat.S_IFLNK: tarfile.SYMTYPE, stat.S_IFDIR: tarfile.DIRTYPE}
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with replace_file(path) as stream:
            headers = {HEADER: json.dumps({"paths": self.paths, "change": self.change, "entries": len(self.entries)})}
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive:
                for name, entry in sorted(self.entries.items()):
                    member = tarfile.TarInfo(name.lstrip("/"))
                    member.type, member.mode, member.uid, member.gid = types[entry.kind], entry.mode, entry.uid, entry.gid
                    if entry.kind == stat.S_IFLNK:
                        member.linkname = os.fsdecode(entry.content)
                    member.size = len(entry.content) if entry.kind == stat.S_IFREG else 0
                    archive.addfile(member, io.BytesIO(entry.content) if member.size else None)

    def list_differences(self) -> "list[str]":
        """Return the paths at which the host differs from the snapshot now, sorted.

        :raises OSError, ValueError: as read_entries
        """
        present = read_entries(self.paths)
        return sorted(path for path in set(present) | set(self.entries) if present.get(path) != self.entries.get(path))

    def list_links(self) -> "dict[str, str]":
        """Return where the symbolic links lead that the snapshot has, by path."""
        return {path: os.fsdecode(entry.content) for path, entry in self.entries.items() if entry.kind == stat.S_IFLNK}

    def put_back(self) -> "list[str]":
        """Make the host what the snapshot has, each file in one step; return the paths that differed, sorted.

        What is put back is new: a daemon that reads it must be restarted. No program is left away in between: files are replaced before
        what does not belong there is removed.

        :raises OSError: when that cannot be done; called again it continues
        :raises ValueError: as read_entries
        """
        differences = self.list_differences()
        for path in differences:
            if path in self.entries:
                self._put(path, self.entries[path])
        for path in differences:
            if path not in self.entries and os.path.lexists(path):  # it may have gone with its directory
                remove_path(path)
        return differences

    @staticmethod
    def _put(path: str, entry: Entry) -> None:
        """Create or replace a file, directory or link."""
        name, extension = os.path.splitext(os.path.basename(path))
        is_directory = os.path.isdir(path) and not os.path.islink(path)
        if os.path.lexists(path) and is_directory != (entry.kind == stat.S_IFDIR):
            remove_path(path)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        if entry.kind == stat.S_IFREG:
            with replace_file(path) as stream:
                stream.write(entry.content)
                os.fchown(stream.fileno(), entry.uid, entry.gid)
                os.fchmod(stream.fileno(), entry.mode)
            if extension == ".py":
                for compiled in glob.glob("%s/%s/%s.*.pyc" % (glob.escape(os.path.dirname(path)), COMPILED, name)):
                    os.unlink(compiled)  # it could be taken for that of the new file, by time and size
        elif entry.kind == stat.S_IFLNK:
            draft = os.path.join(os.path.dirname(path), ".ckpt-torque-%d" % os.getpid())
            os.symlink(os.fsdecode(entry.content), draft)
            os.lchown(draft, entry.uid, entry.gid)
            os.rename(draft, path)
        else:
            os.makedirs(path, exist_ok=True)
            os.chown(path, entry.uid, entry.gid)
            os.chmod(path, entry.mode)
