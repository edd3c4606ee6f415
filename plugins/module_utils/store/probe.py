# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a store really is: tried, not guessed. Whatever is made for a trial is hidden and removed again.

Trials of what the user may do run as the user (torque_ckpt.privilege.as_user); those of what root may do run as root.
"""

import ctypes
import errno
import fcntl
import os
import stat
import struct
import time
import uuid

from ..torque_ckpt.errors import HookError
from ..torque_ckpt.store import transfer
from ..torque_ckpt.store.location import MARKER
from ..torque_ckpt.system import mounts, privilege

LOCAL = ("tmpfs", "ramfs", "overlay", "devtmpfs", "proc", "sysfs")
"""File systems on which images would be gone after a reboot, or with the container."""
_TRIES = 5
"""How often a flush is measured; the median counts."""


def find_nearest_directory(path):
    """Return a path (str) if it is a directory, else the nearest one above it."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def find_exposed_part(path):
    """Return the part of a path (str) that somebody besides root and the store's owner may replace, empty when there is none.

    Where a directory on the way is another's, or others may write to it, what lies in it can be moved away. What is not there is nobody's.
    """
    walked, trusted = "/", (0, os.stat(path).st_uid if os.path.isdir(path) else 0)
    for part in path.strip("/").split("/")[:-1]:
        walked = os.path.join(walked, part)
        if not os.path.isdir(walked):
            break
        found = os.stat(walked)
        if found.st_uid not in trusted or found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            return walked
    return ""


def read_store_name(path):
    """Return the store's name (str), which the role checkpoint_store has written into it; empty when there is none."""
    try:
        with open(os.path.join(path, MARKER)) as stream:
            return stream.read(200).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _build_hidden_name(what):
    return ".ckpt-torque-probe.%s.%s.%d" % (what, os.uname().nodename, os.getpid())


def _make_file(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def describe_failure(work):
    """Return "" when work() does, else what the system said (str)."""
    try:
        work()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def try_as_root(path):
    """Return what root may do in a directory (dict): refusal (str, why it cannot make a directory; empty when it can), squashed (bool,
    None when that cannot be told): whether what root makes belongs to somebody else."""
    place = os.path.join(path, _build_hidden_name("root"))
    refusal = describe_failure(lambda: os.mkdir(place, 0o700))
    if refusal:
        # Root is refused nothing on a file system that takes it for root and can be written to.
        return {"refusal": refusal, "squashed": refusal in (os.strerror(errno.EACCES), os.strerror(errno.EPERM)) or None}
    try:
        return {"refusal": "", "squashed": os.lstat(place).st_uid != 0}
    finally:
        os.rmdir(place)


def _try_renames(place):
    """Try what publishing an image needs, in a directory; return refusals (dict of str)."""
    one, two = os.path.join(place, "one"), os.path.join(place, "two")
    os.mkdir(one)
    os.mkdir(two)
    _make_file(os.path.join(one, "file"))
    found = {"rename": describe_failure(lambda: os.rename(os.path.join(one, "file"), os.path.join(two, "file"))),
             "rename_directory": describe_failure(lambda: os.rename(one, os.path.join(two, "one")))}
    found["link"] = describe_failure(lambda: os.symlink("nowhere", os.path.join(two, "link")))
    return found


def _measure_median(work):
    times = []
    for _number in range(_TRIES):
        started = time.monotonic()
        work()
        times.append(time.monotonic() - started)
    return round(sorted(times)[_TRIES // 2], 6)


def _measure_flushes(place):
    """Return what it costs to have 4 kB, and a new name, on the disk (dict of float, seconds)."""
    descriptor = os.open(os.path.join(place, "flushed"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    names = iter(range(_TRIES))

    def file():
        os.pwrite(descriptor, b"x" * 4096, 0)
        os.fsync(descriptor)

    def name():
        _make_file(os.path.join(place, "name%d" % next(names)))
        os.fsync(directory)
    try:
        return {"file": _measure_median(file), "name": _measure_median(name)}
    finally:
        os.close(descriptor)
        os.close(directory)


def _remove_tree(place):
    for directory, directories, files in os.walk(place, topdown=False):
        for name in files:
            os.unlink(os.path.join(directory, name))
        for name in directories:
            path = os.path.join(directory, name)
            (os.unlink if os.path.islink(path) else os.rmdir)(path)
    os.rmdir(place)


def try_as_user(directory):
    """As the user: return what the user may do in a directory (dict).

    refusal (str): why no directory can be made there; then it is all. uid (int): whose what is made is. renames (dict of str): why not,
    empty when it works. seconds (dict of float): what a flush costs. skew (float): by how many seconds the store's clock is ahead of
    this node's.
    """
    place = os.path.join(directory, _build_hidden_name("user"))
    skews = []
    refusal = describe_failure(lambda: skews.append(_make_directory(place)))
    if refusal:
        return {"refusal": refusal}
    try:
        return {"refusal": "", "uid": os.lstat(place).st_uid, "skew": skews[0], "renames": _try_renames(place),
                "seconds": _measure_flushes(place)}
    finally:
        _remove_tree(place)


def _make_directory(path):
    """Make a directory; return by how many seconds (float) the store's clock is ahead of this node's."""
    before = time.time()
    os.mkdir(path, 0o700)
    after, written = time.time(), os.lstat(path).st_mtime
    # Within the call's own time the two cannot be told apart.
    return round(written - after if written > after else min(0.0, written - before), 3)


def measure_skew(directory):
    """As the user: return by how many seconds (float) the clock of the store that a directory lies in is ahead of this node's.

    :raises OSError: when the user cannot make a directory there
    """
    place = os.path.join(directory, _build_hidden_name("clock"))
    skew = _make_directory(place)
    os.rmdir(place)
    return skew


def measure_free_space(path):
    """Return what is free in a directory (dict of int, None where the file system does not say): bytes, total_bytes, files, total_files."""
    found = os.statvfs(path)
    return {"bytes": found.f_bavail * found.f_frsize if found.f_blocks else None,
            "total_bytes": found.f_blocks * found.f_frsize if found.f_blocks else None,
            "files": found.f_favail if found.f_files else None, "total_files": found.f_files or None}


class _Quota(ctypes.Structure):
    """struct if_dqblk of linux/quota.h."""
    _fields_ = [(name, ctypes.c_uint64) for name in ("block_limit", "block_soft_limit", "bytes", "file_limit", "file_soft_limit", "files",
                                                     "block_time", "file_time")] + [("valid", ctypes.c_uint32)]


_GET_USER_QUOTA = 0x80000700
"""QCMD(Q_GETQUOTA, USRQUOTA)."""


_INO_LOOKUP = 0xd0009412
"""BTRFS_IOC_INO_LOOKUP."""
_FS_INFO = 0x8400941f
"""BTRFS_IOC_FS_INFO."""
_TOP = 256
"""The first file of a subvolume (BTRFS_FIRST_FREE_OBJECTID)."""


def _read_btrfs_quota(directory):
    """Return the quota of the subvolume that a directory (str) lies in, as quota does. The kernel shows it from 5.9 on."""
    lookup, info = bytearray(struct.pack("=QQ", 0, _TOP).ljust(4096, b"\0")), bytearray(1024)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _INO_LOOKUP, lookup)
        fcntl.ioctl(descriptor, _FS_INFO, info)
    finally:
        os.close(descriptor)
    place = "/sys/fs/btrfs/%s/qgroups/0_%d/" % (uuid.UUID(bytes=bytes(info[16:32])), struct.unpack_from("=Q", lookup)[0])

    def value(name):
        with open(place + name) as stream:
            return int(stream.read(), 0)
    try:
        return {"bytes": value("referenced"), "bytes_limit": value("max_referenced") or None, "files": None, "files_limit": None}
    except FileNotFoundError:
        return None


def read_quota(mount, directory, uid):
    """Return a user's quota in a directory (str) of a Mount (dict of int, limits None where there are none), None without quotas.

    bytes and files are what is used; a limit is the hard one. On btrfs it is the subvolume's, which counts no files (None); on other local
    file systems the user's. On a network file system the server knows, not this node.
    """
    if mount.type == "btrfs":
        return _read_btrfs_quota(directory)
    found, source = _Quota(), os.fsencode(mount.source)
    if not mount.source.startswith("/") or ctypes.CDLL(None).quotactl(_GET_USER_QUOTA, source, uid, ctypes.byref(found)) != 0:
        return None
    return {"bytes": found.bytes, "bytes_limit": found.block_limit * 1024 or None, "files": found.files,
            "files_limit": found.file_limit or None}


# -- all of it, as the module returns it ------------------------------------------

def inspect_store(path, directory, user, made):
    """Return what can be seen without making anything (dict)."""
    found = {"store": path, "real_path": os.path.realpath(path), "id": "", "directory": directory, "mode": "", "exposed": "", "mount": {},
             "room": {}, "quota": None, "root": {}, "user": {}, "uid": user.uid if user else None}
    real, table = found["real_path"], mounts.read_mounts()
    if os.path.isdir(real):
        found.update(id=read_store_name(real), mode="%04o" % (os.stat(real).st_mode & 0o7777), exposed=find_exposed_part(real),
                     mount=mounts.find_mount(real, table)._asdict(), room=measure_free_space(real))
        if user and os.geteuid() == 0:
            place = os.path.realpath(find_nearest_directory(directory))
            found["quota"] = read_quota(mounts.find_mount(place, table), place, user.uid)
    elif not made:
        found.update(exposed=find_exposed_part(real), mount=mounts.find_mount(find_nearest_directory(real), table)._asdict())
    return found


def try_transfer(user, copies, directory):
    """Return what came of copying an image to the server and back (dict as the module returns it)."""
    server = transfer.find_server(copies["directory"], copies["ssh_config"], "%s@%s" % (user.name, copies["server"]))
    try:
        return dict(privilege.as_user(user, lambda: transfer.try_transfer(server, directory, copies["job"])), refusal="")
    except HookError as error:
        return {"refusal": error.sentence}


# -- what of it breaks a promise ---------------------------------------------------

def list_faults(found, user, shared=True, made=True):
    """Return what makes a store unfit (list of sentences), by what was found (dict as the module returns it) and the user's name (str).

    :param made: whether it should be there already (bool); if not, only the place is judged
    :param shared: whether other nodes see it (bool); a node's own may be open to all, in which nobody can touch what is another's
    """
    path, said = found["store"], []
    if not found["mode"] and made:
        return ["store %s is no directory on this node; mount it, or make it (role checkpoint_store)" % path]
    if found["real_path"] != path:
        said.append("store %s is a link or lies behind one; name %s, the directory itself, on all nodes" % (path, found["real_path"]))
    if found["mount"]["type"] in LOCAL:
        said.append("store %s is on %s, so that images are gone after a reboot; put it on a disk or a shared file system"
                    % (path, found["mount"]["type"]))
    if "ro" in found["mount"]["options"]:
        said.append("store %s is mounted read-only; mount %s for writing" % (path, found["mount"]["point"]))
    if made and int(found["mode"], 8) & 0o022 and (shared or found["mode"] != "1777"):
        said.append("store %s can be written by others than its owner (mode %s), who could replace images; take the write permission away"
                    % (path, found["mode"]))
    if found["exposed"]:
        said.append("%s can be written by others than root, who could put another store in the place of %s; take the write permission away"
                    % (found["exposed"], path))
    asked = found["user"]
    if asked.get("refusal"):
        said.append("user %s cannot make images in %s: %s; make that directory and give it to %s (checkpoint_store_users)"
                    % (user, found["directory"], asked["refusal"], user))
    elif asked:
        if asked["uid"] != found["uid"]:
            said.append("what user %s (%d) makes in %s belongs to user %d; have the server map users to themselves"
                        % (user, found["uid"], found["directory"], asked["uid"]))
        for what, refusal in sorted(asked["renames"].items()):
            if refusal and what != "link":
                said.append("an image cannot be published in %s: %s fails (%s); use another file system"
                            % (found["directory"], what.replace("_", " "), refusal))
    if found.get("copies", {}).get("refusal"):
        said.append("images would not leave this node: %s; pbs_mom would not be told to copy them; mend that first"
                    % found["copies"]["refusal"])
    return said
