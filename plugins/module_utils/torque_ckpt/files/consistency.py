"""Files that the job has open and that do not travel: are they still as they were when the image was written?

Files open for writing are compared, and files open for reading that are not root's. What is mapped only
(programs, libraries) and root's the engine checks itself. It does not check files that are open for appending only,
which therefore would hold lines twice; so this is done here.

The job's memory is of that time: a file of the same size that was written to since, or replaced, is recognised by its modification
time. That is compared if the same file system reports it, and not for files open for appending only, which the job cannot have read.
Inode and ctime are noted, too, but decide nothing alone: a chmod, or a copy with its times, must not cost the job.
"""
import os
import stat
import time

from ..errors import HookError, CANNOT_WRITE, REFUSED, quote_name
from ..system import mounts
from . import output
from .open_files import READ_LEASE, WRITE_LEASE

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Sequence
    from .open_files import OpenFiles

REFUSE, REPORT, IGNORE = "refuse", "report", "ignore"
"""What a restart does about files that were changed: see config.py, changed_files."""


def _identify_file_system(access_path: str, path: str, table: "dict[str, mounts.Mount]") -> str:
    """Return what identifies a file's file system, on all nodes; empty when nothing does.

    :param access_path: a path that leads to the file
    :param path: its name, without links
    :param table: from mounts.read_mounts
    """
    mount = mounts.find_mount(path, table)
    if mount is not None and mounts.is_shared(mount):
        return mount.type
    try:
        identifier = getattr(os.statvfs(access_path), "f_fsid", 0)  # not in Python 3.6
    except OSError:
        identifier = 0
    return "%x" % identifier if identifier else ""


def record_open_files(open_files: "OpenFiles", excluded: "set[str]", trees: "Sequence[str]" = ()) -> "list[dict]":
    """Return the manifest's entries of the open files (path, size, writable, append, inode, mtime_ns, ctime_ns, filesystem).

    filesystem is empty where times mean nothing: for what others write on a node's own file systems (caches of its accounts, say), and for
    the job's script, which pbs_mom writes anew when the job comes back.

    :param excluded: paths of files that travel
    :param trees: directories that travel
    """
    files, table = [], mounts.read_mounts()
    for file in open_files.files:
        writable = file.written or file.logged
        if not (file.held and not file.unlinked and stat.S_ISREG(file.status.st_mode) and (writable or file.status.st_uid != 0)):
            continue
        if excluded.intersection(file.names) or any(name.startswith(tree + "/") for name in file.names for tree in trees):
            continue
        file_system, mount = _identify_file_system(file.proc_path, file.names[0], table), mounts.find_mount(file.names[0], table)
        if not (writable or file.status.st_uid == os.geteuid() or mount and mounts.is_shared(mount)):
            file_system = ""
        if any(name.startswith(output.get_script_directory() + "/") for name in file.names):
            file_system = ""
        files.append({"path": file.names[0], "size": file.status.st_size, "writable": writable, "append": file.is_append_only(),
                      "inode": file.status.st_ino, "mtime_ns": file.status.st_mtime_ns, "ctime_ns": file.status.st_ctime_ns,
                      "filesystem": file_system})
    return files


def has_lease(open_files: "OpenFiles") -> bool:
    """Return whether the job has a lease that any opening of its file breaks."""
    return any(file.lease == WRITE_LEASE for file in open_files.files)


def find_leases(open_files: "OpenFiles") -> "dict[str, str]":
    """Return which files (by path) the job has a lease on: READ_LEASE or WRITE_LEASE."""
    return {name: file.lease for file in open_files.files if file.lease for name in file.names}


def _open_file(path: str, lease: str = "") -> int:
    """Open a file for reading, or for writing if it cannot be read and that breaks no lease of the job."""
    flags = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDONLY | flags)
    except PermissionError:
        if lease == READ_LEASE:
            raise
        return os.open(path, os.O_WRONLY | flags)


def flush_files(files: "list[dict]", leases: "dict[str, str]") -> None:
    """Flush to the disk, or to the file server, what the job has written: the image is useless without it when this node fails.

    :param files: "open_files" of the manifest
    :param leases: from find_leases
    :raises HookError: CANNOT_WRITE when the file system has not kept it
    """
    if any(entry["writable"] and leases.get(entry["path"]) == WRITE_LEASE for entry in files):
        os.sync()  # nobody but the job can open it
    for entry in files:
        lease = leases.get(entry["path"], "")
        if not entry["writable"] or lease == WRITE_LEASE:
            continue
        try:
            descriptor = _open_file(entry["path"], lease)
        except OSError:  # gone by now, or closed to its writer: nothing can be done
            continue
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise HookError(CANNOT_WRITE, "what the job wrote to %s could not be flushed: %s; the job keeps running; see to that file "
                            "system" % (quote_name(entry["path"]), error.strerror))
        finally:
            os.close(descriptor)


def note_times(files: "list[dict]", leases: "dict[str, str]") -> None:
    """Note the times anew, of a job that is to be held: a file server may have set them when the files were flushed.

    :param files: "open_files" of the manifest
    :param leases: from find_leases
    """
    for entry in files:
        try:
            status = _read_status(entry["path"], leases.get(entry["path"], ""))
        except OSError:
            continue  # the restart will report it
        if (status.st_ino, status.st_size) == (entry["inode"], entry["size"]):
            entry.update(mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns)


def _read_status(path: str, lease: str = "") -> os.stat_result:
    """Return the status of a file. NFS shows what another node has done to it only to whoever opens it."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or lease == WRITE_LEASE:
        return status
    try:
        descriptor = _open_file(path, lease)
    except PermissionError:
        return status
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _format_time(nanoseconds: int) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(nanoseconds // 10**9))
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def _format_touch(entry: dict) -> str:
    """Return the command that restores a file's modification time; empty if none was noted."""
    if not entry.get("filesystem"):
        return ""
    return "touch -d @%d.%09d %s" % (divmod(entry["mtime_ns"], 10**9) + (_quote(entry["path"]),))


def _describe_change(entry: dict, status: os.stat_result, table: "dict[str, mounts.Mount]") -> str:
    """Return how a file (its status) that has its size was changed since, empty if it was not, as far as that can be known."""
    if not entry.get("filesystem") or status.st_mtime_ns == entry["mtime_ns"]:
        return ""
    same = status.st_ino == entry["inode"]
    if entry["append"] and same or _identify_file_system(entry["path"], os.path.realpath(entry["path"]), table) != entry["filesystem"]:
        return ""
    return "file %s, which the job has open, was %s after the image was written (its time is %s, was %s)" % (
        quote_name(entry["path"]), "written to" if same else "replaced", _format_time(status.st_mtime_ns), _format_time(entry["mtime_ns"]))


def check_files(files: "list[dict]", allowed: bool, rewritten: str = REFUSE) -> "tuple[list[dict], list[str]]":
    """Compare the files with their recorded state; return those to truncate, and the remarks to report.

    :param files: "open_files" of the manifest
    :param allowed: whether files open for appending only may be truncated
    :param rewritten: what to do about files of unchanged size with another modification time: REFUSE, REPORT or IGNORE
    :raises HookError: REFUSED for a file that is missing or has another size, or was changed
    """
    grown: "list[dict]" = []
    remarks: "list[str]" = []
    table = mounts.read_mounts()
    for entry in files:
        name, size = quote_name(entry["path"]), entry["size"]
        try:
            status = _read_status(entry["path"])
        except OSError as error:
            raise HookError(REFUSED, "file %s, which the job has open, cannot be found on this node (%s); make it available here or "
                            "restart the job on another node; image kept" % (name, error.strerror))
        if status.st_size < size:
            raise HookError(REFUSED, "file %s, which the job has open, has become shorter since the image was written (%d bytes, had %d); "
                            "restart the job from another image; image kept" % (name, status.st_size, size))
        if status.st_size > size:
            appended = entry["append"] and status.st_ino == entry["inode"]
            touch = "" if appended or not _format_touch(entry) else " && " + _format_touch(entry)
            if not (appended and allowed):
                raise HookError(REFUSED, "file %s, which the job has open, has grown since the image was written (%d bytes, had %d); "
                                "cut it back with \"truncate -s %d %s%s\"%s or restart the job from another image; image kept"
                                % (name, status.st_size, size, size, _quote(entry["path"]), touch,
                                   ", set checkpoint_hooks_truncate_append_only_enabled" if appended else ""))
            grown.append(entry)
            continue
        change = "" if rewritten == IGNORE else _describe_change(entry, status, table)
        if change and rewritten == REFUSE:
            raise HookError(REFUSED, "%s; if it is as the job needs it, give it its time back with \"%s\", or restart the job from another "
                            "image; image kept" % (change, _format_touch(entry)))
        remarks += [change] if change else []
    return grown, remarks


def _quote(path: str) -> str:
    import shlex  # for a sentence only
    return quote_name(shlex.quote(path))


def truncate_files(files: "list[dict]") -> None:
    """Truncate files (from check_files), while the job is restored and stands still.

    :raises HookError: REFUSED when one cannot be truncated
    """
    for entry in files:
        try:
            descriptor = os.open(entry["path"], os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_ino != entry["inode"]:
                    raise OSError(0, "it has just been replaced")
                os.ftruncate(descriptor, entry["size"])
            finally:
                os.close(descriptor)
        except OSError as error:
            raise HookError(REFUSED, "file %s, which the job has open for appending, cannot be cut back to its %d bytes: %s; see to that "
                            "file or restart the job from another image; image kept"
                            % (quote_name(entry["path"]), entry["size"], error.strerror))
