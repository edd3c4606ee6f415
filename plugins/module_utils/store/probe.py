# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a store really is: tried, not guessed. Whatever is created for a trial is hidden and removed again.

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
from ..torque_ckpt.store import server_directory, transfer
from ..torque_ckpt.store.location import MARKER
from ..torque_ckpt.system import mounts, privilege

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable

LOCAL = ("tmpfs", "ramfs", "overlay", "devtmpfs", "proc", "sysfs")
"""File systems on which images would be gone after a reboot, or with the container."""
_TRIES = 5
"""How often a flush is measured; the median counts."""


def find_nearest_directory(path: str) -> str:
    """Return a path if it is a directory, else the nearest one above it."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def find_exposed_part(path: str) -> str:
    """Return the part of a path that a user besides root and the store's owner may replace, empty when there is none.

    If a directory above the store is another user's, or others may write to it, what lies in it can be moved away. A part that does not
    exist is not exposed.
    """
    walked, trusted = "/", (0, os.stat(path).st_uid if os.path.isdir(path) else 0)
    for part in path.strip("/").split("/")[:-1]:
        walked = os.path.join(walked, part)
        if not os.path.isdir(walked):
            break
        status = os.stat(walked)
        if status.st_uid not in trusted or status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            return walked
    return ""


def read_store_name(path: str) -> str:
    """Return the store's name, which the role checkpoint_store has written into it; empty when there is none."""
    try:
        with open(os.path.join(path, MARKER)) as stream:
            return stream.read(200).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _build_hidden_name(what: str) -> str:
    return ".ckpt-torque-probe.%s.%s.%d" % (what, os.uname().nodename, os.getpid())


def _create_file(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def describe_failure(work: "Callable[[], object]") -> str:
    """Return "" when work() succeeds, else the system's error message."""
    try:
        work()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def try_as_root(path: str) -> dict:
    """Return what root may do in a directory: refusal (str, why it cannot create a directory; empty when it can), squashed (bool,
    None when that cannot be known): whether what root creates belongs to another user."""
    directory = os.path.join(path, _build_hidden_name("root"))
    refusal = describe_failure(lambda: os.mkdir(directory, 0o700))
    if refusal:
        # On a file system that can be written to and does not squash root, nothing is refused to it.
        return {"refusal": refusal, "squashed": refusal in (os.strerror(errno.EACCES), os.strerror(errno.EPERM)) or None}
    try:
        return {"refusal": "", "squashed": os.lstat(directory).st_uid != 0}
    finally:
        os.rmdir(directory)


def _try_renames(directory: str) -> "dict[str, str]":
    """Try what publishing an image needs, in a directory; return the refusals, empty for what works."""
    one, two = os.path.join(directory, "one"), os.path.join(directory, "two")
    os.mkdir(one)
    os.mkdir(two)
    _create_file(os.path.join(one, "file"))
    return {"rename": describe_failure(lambda: os.rename(os.path.join(one, "file"), os.path.join(two, "file"))),
            "rename_directory": describe_failure(lambda: os.rename(one, os.path.join(two, "one"))),
            "link": describe_failure(lambda: os.symlink("nowhere", os.path.join(two, "link")))}


def _measure_median(work: "Callable[[], None]") -> float:
    """Return the median of how long work() takes (seconds)."""
    times = []
    for _number in range(_TRIES):
        started = time.monotonic()
        work()
        times.append(time.monotonic() - started)
    return round(sorted(times)[_TRIES // 2], 6)


def _measure_flushes(path: str) -> "dict[str, float]":
    """Return how long it takes to have 4 kB (file) and a new name (name) on the disk (seconds)."""
    descriptor = os.open(os.path.join(path, "flushed"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    names = iter(range(_TRIES))

    def file() -> None:
        os.pwrite(descriptor, b"x" * 4096, 0)
        os.fsync(descriptor)

    def name() -> None:
        _create_file(os.path.join(path, "name%d" % next(names)))
        os.fsync(directory)
    try:
        return {"file": _measure_median(file), "name": _measure_median(name)}
    finally:
        os.close(descriptor)
        os.close(directory)


def _remove_tree(top: str) -> None:
    for directory, directories, files in os.walk(top, topdown=False):
        for name in files:
            os.unlink(os.path.join(directory, name))
        for name in directories:
            path = os.path.join(directory, name)
            (os.unlink if os.path.islink(path) else os.rmdir)(path)
    os.rmdir(top)


def try_as_user(directory: str) -> dict:
    """As the user: return what the user may do in a directory.

    refusal (str): why no directory can be created there; if it is not empty, it is the only entry. uid (int): the owner of what the user
    creates. renames (dict of str): why each fails, empty when it works. seconds (dict of float): how long a flush takes. skew (float): by
    how many seconds the store's clock is ahead of this node's.
    """
    trial = os.path.join(directory, _build_hidden_name("user"))
    skews: "list[float]" = []
    refusal = describe_failure(lambda: skews.append(_create_directory(trial)))
    if refusal:
        return {"refusal": refusal}
    try:
        return {"refusal": "", "uid": os.lstat(trial).st_uid, "skew": skews[0], "renames": _try_renames(trial),
                "seconds": _measure_flushes(trial)}
    finally:
        _remove_tree(trial)


def _create_directory(path: str) -> float:
    """Create a directory; return by how many seconds the store's clock is ahead of this node's."""
    before = time.time()
    os.mkdir(path, 0o700)
    after, written = time.time(), os.lstat(path).st_mtime
    # A difference within the time of the call itself is none.
    return round(written - after if written > after else min(0.0, written - before), 3)


def measure_skew(directory: str) -> float:
    """As the user: return by how many seconds the clock of the store that a directory lies in is ahead of this node's.

    :raises OSError: when the user cannot create a directory there
    """
    trial = os.path.join(directory, _build_hidden_name("clock"))
    skew = _create_directory(trial)
    os.rmdir(trial)
    return skew


def measure_free_space(path: str) -> "dict[str, int | None]":
    """Return what is free in a directory (None if the file system does not report it): bytes, total_bytes, files, total_files."""
    status = os.statvfs(path)
    return {"bytes": status.f_bavail * status.f_frsize if status.f_blocks else None,
            "total_bytes": status.f_blocks * status.f_frsize if status.f_blocks else None,
            "files": status.f_favail if status.f_files else None, "total_files": status.f_files or None}


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


def _read_btrfs_quota(directory: str) -> "dict[str, int | None] | None":
    """Return the quota of the subvolume that a directory lies in, as read_quota does. The kernel shows it from 5.9 on."""
    lookup, info = bytearray(struct.pack("=QQ", 0, _TOP).ljust(4096, b"\0")), bytearray(1024)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _INO_LOOKUP, lookup)
        fcntl.ioctl(descriptor, _FS_INFO, info)
    finally:
        os.close(descriptor)
    group = "/sys/fs/btrfs/%s/qgroups/0_%d/" % (uuid.UUID(bytes=bytes(info[16:32])), struct.unpack_from("=Q", lookup)[0])

    def value(name: str) -> int:
        with open(group + name) as stream:
            return int(stream.read(), 0)
    try:
        return {"bytes": value("referenced"), "bytes_limit": value("max_referenced") or None, "files": None, "files_limit": None}
    except FileNotFoundError:
        return None


def read_quota(mount: mounts.Mount, directory: str, uid: int) -> "dict[str, int | None] | None":
    """Return a user's quota in a directory of a Mount, None without quotas: bytes, bytes_limit, files, files_limit; None for no limit.

    bytes and files are what is used; a limit is the hard one. On btrfs it is the subvolume's, which counts no files (None); on other local
    file systems the user's. On a network file system the server knows, not this node.
    """
    if mount.type == "btrfs":
        return _read_btrfs_quota(directory)
    quota, source = _Quota(), os.fsencode(mount.source)
    if not mount.source.startswith("/") or ctypes.CDLL(None).quotactl(_GET_USER_QUOTA, source, uid, ctypes.byref(quota)) != 0:
        return None
    return {"bytes": quota.bytes, "bytes_limit": quota.block_limit * 1024 or None, "files": quota.files,
            "files_limit": quota.file_limit or None}


# -- all of it, as the module returns it ------------------------------------------

def _describe_mount(path: str, table: "dict[str, mounts.Mount]") -> dict:
    mount = mounts.find_mount(path, table)
    return mount._asdict() if mount else {}


def inspect_store(path: str, directory: "str | None", user: "privilege.User | None", must_exist: bool) -> dict:
    """Return what can be seen without creating anything; must_exist as in list_faults."""
    real, table = os.path.realpath(path), mounts.read_mounts()
    result: dict = {"store": path, "real_path": real, "id": "", "directory": directory, "mode": "", "exposed": "", "mount": {},
                    "free_space": {}, "quota": None, "root": {}, "user": {}, "uid": user.uid if user else None}
    if os.path.isdir(real):
        result.update(id=read_store_name(real), mode="%04o" % (os.stat(real).st_mode & 0o7777), exposed=find_exposed_part(real),
                      mount=_describe_mount(real, table), free_space=measure_free_space(real))
        if user and directory and os.geteuid() == 0:
            nearest = os.path.realpath(find_nearest_directory(directory))
            mount = mounts.find_mount(nearest, table)
            result["quota"] = read_quota(mount, nearest, user.uid) if mount else None
    elif not must_exist:
        result.update(exposed=find_exposed_part(real), mount=_describe_mount(find_nearest_directory(real), table))
    return result


def try_transfer(user: privilege.User, copies: "dict[str, str]", directory: str) -> dict:
    """Return the result of copying an image to the server and back, as the module returns it."""
    server = server_directory.find_server(copies["directory"], copies["ssh_config"], "%s@%s" % (user.name, copies["server"]))
    try:
        return dict(privilege.as_user(user, lambda: transfer.try_transfer(server, directory, copies["job"])), refusal="")
    except HookError as error:
        return {"refusal": error.sentence.partition("; it stays on node")[0]}  # a trial image is no job's


# -- what of it breaks a promise ---------------------------------------------------

def list_faults(result: dict, user: "str | None", shared: bool = True, must_exist: bool = True) -> "list[str]":
    """Return what makes a store unfit (sentences), by the module's result so far and the user's name.

    :param must_exist: whether the store must exist already; if not, only the path where it is to be created is checked
    :param shared: whether other nodes see it; a node's own may be open to all, in which nobody can touch what is another's
    """
    path, faults = result["store"], []
    if not result["mode"] and must_exist:
        return ["store %s is not a directory on this node; mount it or create it (role checkpoint_store)" % path]
    if result["real_path"] != path:
        faults.append("store %s is a link or lies behind one; name %s, the directory itself, on all nodes" % (path, result["real_path"]))
    if result["mount"]["type"] in LOCAL:
        faults.append("store %s is on %s, so its images are lost on a reboot; put it on a disk or a shared file system"
                      % (path, result["mount"]["type"]))
    if "ro" in result["mount"]["options"]:
        faults.append("store %s is mounted read-only; mount %s for writing" % (path, result["mount"]["point"]))
    if must_exist and int(result["mode"], 8) & 0o022 and (shared or result["mode"] != "1777"):
        faults.append("store %s is writable by users other than its owner (mode %s), who could replace images; remove that write permission"
                      % (path, result["mode"]))
    if result["exposed"]:
        faults.append("%s is writable by users other than root, who could replace %s with another store; remove that write permission"
                      % (result["exposed"], path))
    tried = result["user"]
    if tried.get("refusal"):
        faults.append("user %s cannot create images in %s: %s; create that directory and give it to %s (checkpoint_store_users)"
                      % (user, result["directory"], tried["refusal"], user))
    elif tried:
        if tried["uid"] != result["uid"]:
            faults.append("what user %s (uid %d) creates in %s belongs to uid %d; configure the file server to keep uids"
                          % (user, result["uid"], result["directory"], tried["uid"]))
        for what, refusal in sorted(tried["renames"].items()):
            if refusal and what != "link":
                faults.append("an image cannot be published in %s: %s fails (%s); use another file system"
                              % (result["directory"], what.replace("_", " "), refusal))
    if result.get("copies", {}).get("refusal"):
        faults.append("images would not leave this node: %s; fix that before pbs_mom is configured to copy images"
                      % result["copies"]["refusal"])
    return faults
