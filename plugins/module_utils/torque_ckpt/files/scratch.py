"""Whole scratch directories travel with the image, each as one tar archive, and are restored if there is no such directory or an empty one.

The owner is the job's owner, links stay links, modes, groups and times are kept; sockets are the engine's, holes are filled.
"""
import os
import stat

from ..errors import HookError, CANNOT_WRITE, COPY_CURE, quote_name
from .open_files import format_state

MYPY = False  # true for the type checker alone
if MYPY:
    import tarfile
    from typing import Iterator, NoReturn

_PART = ".ckpt-torque-part"
"""A directory in the one that is being filled; what is in it when a restart begins is useless."""


def is_owned(path: str, uid: int) -> bool:
    """Whether path is a directory of the user's (uid)."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == uid


def _walk(path: str) -> "Iterator[tuple[str, os.stat_result]]":
    """Yield (name relative to path, os.stat_result) for everything in it, each directory before what it holds; a fixed order."""
    def fail(error: OSError) -> "NoReturn":
        raise error
    for parent, directories, files in os.walk(path, onerror=fail):
        directories.sort()
        for name in sorted(directories + files):
            full = os.path.join(parent, name)
            yield os.path.relpath(full, path), os.lstat(full)


def measure_size(path: str) -> int:
    """Return how many bytes the directory takes in an image; 0 for one that cannot be read: save_directory() reports why."""
    try:
        return sum(1024 + status.st_size for _name, status in _walk(path) if not stat.S_ISDIR(status.st_mode))
    except OSError:
        return 0


def hash_directory(path: str) -> str:
    """Return what changes when anybody touches anything in the directory."""
    import hashlib
    digest = hashlib.sha256()
    for name, status in _walk(path):
        digest.update(("%s %s\n" % (ascii(name), format_state(status))).encode())
    return digest.hexdigest()


def save_directory(image: int, name: str, path: str) -> dict:
    """Write the archive name of the directory path into the image (descriptor); return its entry for the manifest.

    :raises HookError: CANNOT_WRITE when it cannot be read or written
    """
    import tarfile  # needed nowhere else
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=image)
        with os.fdopen(descriptor, "wb") as stream, tarfile.open(mode="w", fileobj=stream, format=tarfile.PAX_FORMAT) as archive:
            for inner, status in _walk(path):
                member = archive.gettarinfo(os.path.join(path, inner), inner)
                if member is None:
                    continue  # a socket
                member.pax_headers = {"mtime": "%d.%09d" % divmod(status.st_mtime_ns, 10 ** 9)}
                if member.isreg():
                    with open(os.open(os.path.join(path, inner), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as source:
                        archive.addfile(member, source)
                else:
                    archive.addfile(member)
                archive.members = []  # type: ignore[attr-defined]  # undocumented; one for each file would stay in memory
        status = os.lstat(path)
    except (OSError, tarfile.TarError) as error:
        raise HookError(CANNOT_WRITE, "cannot copy the directory %s into the image: %s; the job keeps running; %s"
                        % (quote_name(path), getattr(error, "strerror", None) or error, COPY_CURE))
    return {"mode": stat.S_IMODE(status.st_mode), "gid": status.st_gid, "state": hash_directory(path)}


def is_filled(path: str) -> bool:
    """Whether a directory holds anything but what an unpack that was killed left in it."""
    return bool(set(os.listdir(path)) - {_PART})


def unpack_archive(image: int, name: str, target: str) -> None:
    """Fill an empty directory (path) from the archive name of the image (descriptor).

    :raises OSError: when something cannot be created
    """
    import tarfile
    part, directories = os.path.join(target, _PART), []
    os.mkdir(part, 0o700)
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=image)
    with os.fdopen(descriptor, "rb") as stream, tarfile.open(mode="r:", fileobj=stream) as archive:
        archive.extraction_filter = lambda member, _path: member  # the archive is ours: take it as it is
        for member in archive:
            path = os.path.join(part, member.name)
            if os.path.normpath(path) != path or not path.startswith(part + "/"):
                raise OSError(0, "the archive holds %s" % quote_name(member.name))
            if member.isdir():
                os.mkdir(path, 0o700)
                directories.append(member)
            else:
                archive.extract(member, part)
                _set_attributes(path, member)
            archive.members = []  # type: ignore[attr-defined]  # as above
    for entry in os.listdir(part):
        os.rename(os.path.join(part, entry), os.path.join(target, entry))
    os.rmdir(part)
    for member in reversed(directories):  # last: whatever is created in a directory changes its time, and needs its mode
        _set_attributes(os.path.join(target, member.name), member)


def _set_attributes(path: str, member: "tarfile.TarInfo") -> None:
    """Give what was unpacked its group (tarfile does this for root only), mode (set-id bits go with the old group), and exact time."""
    if member.gid != os.lstat(path).st_gid:
        os.chown(path, -1, member.gid, follow_symlinks=False)
    if not member.issym():
        os.chmod(path, member.mode)
    time = int(member.pax_headers["mtime"].replace(".", ""))  # as save_directory() wrote it: with nine digits
    os.utime(path, ns=(time, time), follow_symlinks=False)


def empty_directory(path: str) -> None:
    """Remove everything in a directory."""
    import shutil
    for entry in os.listdir(path):
        full = os.path.join(path, entry)
        if stat.S_ISDIR(os.lstat(full).st_mode):
            os.chmod(full, 0o700)
            for parent, directories, _files in os.walk(full):
                for name in directories:
                    if not os.path.islink(os.path.join(parent, name)):
                        os.chmod(os.path.join(parent, name), 0o700)  # else its contents could not be removed
            shutil.rmtree(full)
        else:
            os.unlink(full)
