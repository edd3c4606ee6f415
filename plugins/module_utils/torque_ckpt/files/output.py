"""The job's stdout and stderr travel with its image.

pbs_mom keeps them in its spool directory, which is the node's own, and removes
them when the job is held. What the job wrote up to the image is copied
into the image, and restored before the engine restores the processes that
have the files open. Everything here but find_output_files() runs as the job's owner.
"""
import errno
import os
import stat

from ..errors import HookError, CANNOT_WRITE, COPY_CURE, REFUSED, RETURN_CURE, SYSTEM, TEMPORARY
from ..image import schema
from . import sparse

_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # no link, and no waiting for a pipe's other end


def find_output_files(leader: int, spool: str) -> "list[str]":
    """Return the paths of the files beneath spool that a job's leader has open as stdout and stderr.

    Files elsewhere (qsub -k, $spool_as_final_name) are where they belong, and those without a name are the engine's.

    :param leader: pid of the session leader
    :param spool: pbs_mom's spool directory
    """
    paths: "list[str]" = []
    for descriptor in (1, 2):
        try:
            proc_path = "/proc/%d/fd/%d" % (leader, descriptor)
            path, status = os.readlink(proc_path), os.stat(proc_path)
            if os.path.dirname(path) != spool or path in paths or not stat.S_ISREG(status.st_mode):
                continue
            if os.path.samestat(status, os.lstat(path)):
                paths.append(path)
        except OSError:
            pass  # closed, or removed
    return paths


def get_spool_directory() -> str:
    """Return pbs_mom's spool directory; the root hooks are started in mom_priv, beside it."""
    return os.path.join(os.path.dirname(os.getcwd()), "spool")


def get_script_directory() -> str:
    """Return the directory into which pbs_mom writes a job's script, anew at each start of the job; see get_spool_directory()."""
    return os.path.join(os.getcwd(), "jobs")


def read_sizes(paths: "list[str]") -> "dict[str, int]":
    """Return the sizes of files, by path."""
    sizes = {}
    for path in paths:
        try:
            sizes[path] = os.lstat(path).st_size
        except FileNotFoundError:
            pass  # the job has just removed it
    return sizes


def _open_plain_file(path: str, flags: int, uid: int) -> int:
    """Open a spool file; anybody may create files in that directory, so it must be a plain one of the user's."""
    descriptor = os.open(path, flags | _FLAGS, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != uid or status.st_nlink != 1:
        os.close(descriptor)
        raise HookError(REFUSED, "the job's output %s is not a plain file of the job's owner; remove it and try again; image kept" % path)
    return descriptor


def open_output_files(paths: "list[str]", uid: int) -> "list[tuple[str, str, int, os.stat_result]]":
    """Open the files while the job stands still; return (name in the image, path, descriptor, status) of each.

    :param paths: from find_output_files
    :param uid: the job owner's uid
    :raises HookError: CANNOT_WRITE when one cannot be read, REFUSED for a strange file
    """
    opened = []
    for name, path in zip(schema.OUTPUT, paths):
        try:
            source = _open_plain_file(path, os.O_RDONLY, uid)
        except FileNotFoundError:
            continue  # the job has just removed it
        except OSError as error:
            raise HookError(CANNOT_WRITE, "cannot read the job's output %s: %s; the job keeps running; see to that file"
                            % (path, error.strerror))
        opened.append((name, path, source, os.fstat(source)))
    return opened


def save_output_files(image: int, opened: "list[tuple[str, str, int, os.stat_result]]") -> "list[dict]":
    """Copy the files into the image, as long as they were; return their entries for the manifest ({"name", "path", "mode"}).

    :param image: descriptor of the image
    :param opened: from open_output_files
    :raises HookError: CANNOT_WRITE when one cannot be written
    """
    saved = []
    for name, path, source, status in opened:
        try:
            target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=image)
            try:
                sparse.copy_data(source, target, status.st_size)
            finally:
                os.close(target)
        except OSError as error:
            raise HookError(CANNOT_WRITE, "cannot copy the job's output %s into the image: %s; the job keeps running; %s"
                            % (path, error.strerror, COPY_CURE))
        finally:
            os.close(source)
        saved.append({"name": name, "path": path, "mode": stat.S_IMODE(status.st_mode)})
    return saved


def _open_target(path: str, uid: int) -> int:
    try:
        return _open_plain_file(path, os.O_WRONLY, uid)  # pbs_mom created it
    except FileNotFoundError:
        return _open_plain_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, uid)


def restore_output_files(image: int, saved: "list[dict]", uid: int) -> None:
    """Give the job's output files the content and mode they had when the image was written.

    :param image: descriptor of the image
    :param saved: from save_output_files
    :param uid: the job owner's uid
    :raises HookError: TEMPORARY when there is no free space for them, SYSTEM or REFUSED when they cannot be restored
    """
    for entry in saved:
        try:
            source = os.open(entry["name"], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=image)
            try:
                target = _open_target(entry["path"], uid)
                try:
                    os.ftruncate(target, 0)  # not at once: it might have been another file
                    os.fchmod(target, entry["mode"])  # the engine checks it
                    sparse.copy_data(source, target, os.fstat(source).st_size)
                finally:
                    os.close(target)
            finally:
                os.close(source)
        except OSError as error:
            raise HookError(TEMPORARY if error.errno in (errno.ENOSPC, errno.EDQUOT) else SYSTEM,
                            "cannot put back the job's output %s: %s; %s; image kept" % (entry["path"], error.strerror, RETURN_CURE))
