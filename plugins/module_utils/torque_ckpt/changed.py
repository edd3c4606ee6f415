"""Files that the job has open and that do not travel: are they still as they were when the image was made?

Looked at are those that are open for writing, and those that are open for reading and not root's. What is mapped only
(programs, libraries) and root's the engine checks itself. It does not check files that are open for appending only,
which therefore would hold lines twice; so this is done here.
"""
import os
import stat

from .errors import HookError, CANNOT_WRITE, REFUSED, plain


def record(found, left_out, trees=()):
    """Return what the manifest says of the open files (list of {"path", "size", "writable", "append", "inode"}).

    :param found: opened.Found
    :param left_out: paths of files that travel (set of str)
    :param trees: directories that travel (list of str)
    """
    files = []
    for file in found.files:
        writable = file.written or file.logged
        if not (file.held and stat.S_ISREG(file.status.st_mode) and (writable or file.status.st_uid != 0)):
            continue
        if left_out.intersection(file.names) or any(name.startswith(tree + "/") for name in file.names for tree in trees):
            continue
        files.append({"path": file.names[0], "size": file.status.st_size, "writable": writable, "append": file.appended(),
                      "inode": file.status.st_ino})
    return files


def check_fields(found):
    """Raise KeyError or TypeError when a manifest (dict) says nonsense about open files."""
    kinds = {"path": str, "size": int, "writable": bool, "append": bool, "inode": int}
    for entry in found["open_files"]:
        if not all(isinstance(entry[key], kind) for key, kind in kinds.items()):
            raise TypeError("open_files")


def _open(path):
    flags = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDONLY | flags)
    except PermissionError:
        return os.open(path, os.O_WRONLY | flags)


def flush(files):
    """Have on the disk, or on the file server, what the job has written: the image is good for nothing without it when this node fails.

    :param files: "open_files" of the manifest (list of dict)
    :raises HookError: CANNOT_WRITE when the file system has not kept it
    """
    for entry in files:
        if not entry["writable"]:
            continue
        try:
            descriptor = _open(entry["path"])
        except OSError:  # gone by now, or closed to its writer: nothing can be done
            continue
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise HookError(CANNOT_WRITE, "what the job wrote to %s could not be flushed: %s; the job runs on; see to that file "
                            "system" % (plain(entry["path"]), error.strerror))
        finally:
            os.close(descriptor)


def _look(path):
    """Return the status of a file. NFS tells what another node has done to it only to who opens it."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        return found
    try:
        descriptor = _open(path)
    except PermissionError:
        return found
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def check(files, allowed):
    """Compare the files with what they were; return those that must be cut back (list of dict).

    :param files: "open_files" of the manifest (list of dict)
    :param allowed: whether files open for appending only may be cut back (bool)
    :raises HookError: REFUSED for a file that is missing or has another size
    """
    grown = []
    for entry in files:
        name, size = plain(entry["path"]), entry["size"]
        try:
            there = _look(entry["path"])
        except OSError as error:
            raise HookError(REFUSED, "file %s, which the job has open, cannot be found on this node (%s); make it available here or "
                            "restart the job on another node; image kept" % (name, error.strerror))
        if there.st_size < size:
            raise HookError(REFUSED, "file %s, which the job has open, has become shorter since the image was made (%d bytes, had %d); "
                            "restart the job from another image; image kept" % (name, there.st_size, size))
        if there.st_size > size:
            own = entry["append"] and there.st_ino == entry["inode"]
            if not (own and allowed):
                raise HookError(REFUSED, "file %s, which the job has open, has grown since the image was made (%d bytes, had %d); "
                                "cut it back with \"truncate -s %d %s\"%s or restart the job from another image; image kept"
                                % (name, there.st_size, size, size, _quoted(entry["path"]),
                                   ", set checkpoint_hooks_cut_back_appended" if own else ""))
            grown.append(entry)
    return grown


def _quoted(path):
    import shlex  # for a sentence only
    return plain(shlex.quote(path))


def cut_back(files):
    """Cut the files (from check) back; a generator as witness.Witness wants one: the job is restored and stands still.

    :raises HookError: REFUSED when one cannot be cut back
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
            raise HookError(REFUSED, "file %s, which the job has open for appending, cannot be cut back to its %d bytes: %s; image kept"
                            % (plain(entry["path"]), entry["size"], error.strerror))
    yield
