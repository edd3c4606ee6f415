"""What is mounted on this node, from /proc/self/mountinfo."""
import os
import re
from collections import namedtuple

Mount = namedtuple("Mount", "point source type options")
"""point, source, type: str; options: sorted list of str, of the mount and of its file system."""

_SHARED = re.compile(r"nfs\d?|cifs|smb3|smbfs|lustre|gpfs|beegfs\w*|ceph|pvfs2|orangefs|panfs|afs|9p|ocfs2|gfs2?|glusterfs|fuse\..*")


def is_shared(mount: Mount) -> bool:
    """Whether other nodes see the content of a Mount, too, by the type of its file system."""
    return _SHARED.fullmatch(mount.type) is not None


def _unescape(field: bytes) -> str:
    """Return a field as text, with its escapes undone."""
    return re.sub(r"\\(\d{3})", lambda escaped: chr(int(escaped.group(1), 8)), os.fsdecode(field))


def read_mounts(text: "bytes | None" = None) -> "dict[str, Mount]":
    """Return the Mounts by their mount points; of two on one point the upper one.

    :param text: the text to read instead of /proc/self/mountinfo
    """
    if text is None:
        with open("/proc/self/mountinfo", "rb") as stream:
            text = stream.read()
    mounts = {}
    for fields in map(bytes.split, text.splitlines()):
        kind, source, options = fields[fields.index(b"-") + 1:][:3]
        point = _unescape(fields[4])
        mounts[point] = Mount(point, _unescape(source), kind.decode(), sorted(set((fields[5] + b"," + options).decode().split(","))))
    return mounts


def find_mount(path: str, mounts: "dict[str, Mount]") -> "Mount | None":
    """Return the Mount that path (without links) lies on, one of mounts (from read_mounts); None if they lack the root directory's."""
    while path not in mounts and path != "/":
        path = os.path.dirname(path)
    return mounts.get(path)


def is_beneath(path: str, directory: str) -> bool:
    """Whether path lies in directory or deeper."""
    return path.startswith(directory.rstrip("/") + "/")
