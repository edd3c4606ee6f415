"""What an image is, and whether it is whole.

manifest.json lies beside the engine's files and is written last.
"""
import hashlib
import json
import os
import time

from .errors import HookError, CANNOT_WRITE, DATA, REFUSED, TEMPORARY
from .spool import NAMES

FILE = "manifest.json"
FORMAT = 2
READABLE = (1, 2)
"""Formats. 1 knew nothing of the job's output; hooks that read only that one must not restart what has some."""

_NOT_LISTED = {FILE, "stats-restore"}  # the second is CRIU's note of an earlier restart; it reads it never

_CHUNK = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def _digest(directory, name):
    digest = hashlib.sha256()
    with open(os.open(name, _READ, dir_fd=directory), "rb", buffering=0) as stream:
        size = 0
        while True:
            chunk = stream.read(_CHUNK)
            if not chunk:
                return size, digest.hexdigest()
            size += len(chunk)
            digest.update(chunk)


def write(directory, call, user, engine, root, pids, frozen_seconds, spool=()):
    """Write the manifest of the image in directory (descriptor) and return it (dict).

    :param engine: {"name": str, "version": str}
    :param root: pid of the job's root process (int)
    :param pids: every process and thread id in the image (list of int)
    :param frozen_seconds: how long the engine held the job (float, seconds)
    :param spool: which of the files are the job's output, from spool.save (list of dict)
    """
    machine = os.uname()
    files = []
    try:
        for name in sorted(os.listdir(directory)):
            size, digest = _digest(directory, name)
            files.append({"name": name, "size": size, "sha256": digest})
        found = {
            "format": FORMAT,
            "job_id": call.job_id,
            "user": user.name,
            "uid": user.uid,
            "name": call.name,
            "engine": engine,
            "node": machine.nodename,
            "kernel": machine.release,
            "arch": machine.machine,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "root": root,
            "pids": pids,
            "frozen_seconds": round(frozen_seconds, 6),
            "spool": list(spool),
            "bytes": sum(entry["size"] for entry in files),
            "files": files,
        }
        with open(os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory), "w") as stream:
            json.dump(found, stream, indent=1, sort_keys=True)
            stream.write("\n")
    except OSError as error:
        raise HookError(CANNOT_WRITE, "cannot write the manifest of image %s: %s" % (call.name, error.strerror))
    return found


def _check_fields(found):
    """Raise KeyError or TypeError when a manifest (dict) lacks a field or has one of another type."""
    kinds = {"job_id": str, "user": str, "uid": int, "arch": str, "node": str, "root": int, "bytes": int, "pids": list, "files": list,
             "spool": list}
    for key, kind in kinds.items():
        if not isinstance(found[key], kind):
            raise TypeError(key)
    if not all(isinstance(pid, int) for pid in found["pids"]) or not isinstance(found["engine"]["name"], str):
        raise TypeError("pids or engine")
    for entry in found["files"]:
        if not (isinstance(entry["name"], str) and isinstance(entry["size"], int) and isinstance(entry["sha256"], str)):
            raise TypeError("files")
        if "/" in entry["name"]:
            raise ValueError(entry["name"])
    for entry in found["spool"]:
        if entry["name"] not in NAMES or not isinstance(entry["path"], str) or not isinstance(entry["mode"], int):
            raise TypeError("spool")


def read(directory, shown):
    """Return the manifest (dict) of the image in directory (descriptor).

    :param shown: the image's path, for the sentences (str)
    :raises HookError: DATA when it is not ours, REFUSED when it is of another format
    """
    try:
        with open(os.open(FILE, _READ, dir_fd=directory), "rb") as stream:
            found = json.loads(stream.read().decode("utf-8"))
        version = found["format"]
        if version in READABLE:
            found.setdefault("spool", [])
            _check_fields(found)
    except OSError as error:
        raise HookError(DATA, "image %s has no readable manifest (%s); it is kept but cannot be restarted" % (shown, error.strerror))
    except (ValueError, KeyError, TypeError):
        raise HookError(DATA, "image %s has a manifest that is not ours; it is kept but cannot be restarted" % shown)
    if version not in READABLE:
        raise HookError(REFUSED, "image %s has manifest format %s, these hooks read %d; update the hooks on this node; image kept"
                        % (shown, version, FORMAT))
    return found


def verify(directory, call, user, shown):
    """Read the manifest of the image in directory (descriptor) and prove the image whole and this job's.

    :param shown: the image's path, for the sentences (str)
    :returns: the manifest (dict)
    :raises HookError: DATA when the image is damaged, REFUSED when it is not this job's or not for this node
    """
    found = read(directory, shown)
    if (found["job_id"], found["uid"]) != (call.job_id, user.uid):
        raise HookError(REFUSED, "image %s belongs to job %s of %s, not to job %s of %s; image kept"
                        % (shown, found["job_id"], found["user"], call.job_id, user.name))
    if found["arch"] != os.uname().machine:
        raise HookError(REFUSED, "image %s is for %s, this node is %s; restart it on a node like %s; image kept"
                        % (shown, found["arch"], os.uname().machine, found["node"]))
    unknown = sorted(set(os.listdir(directory)) - {entry["name"] for entry in found["files"]} - _NOT_LISTED)
    if unknown:
        raise HookError(DATA, "image %s is damaged: %s is not in its manifest; take an older image" % (shown, ascii(unknown[0])))
    for entry in found["files"]:
        try:
            size, digest = _digest(directory, entry["name"])
        except OSError as error:
            raise HookError(DATA, "image %s is damaged: %s: %s; take an older image" % (shown, entry["name"], error.strerror))
        if size != entry["size"]:
            raise HookError(DATA, "image %s is damaged: %s has %d bytes, expected %d; take an older image"
                            % (shown, entry["name"], size, entry["size"]))
        if digest != entry["sha256"]:
            raise HookError(DATA, "image %s is damaged: %s has another content than was written; take an older image"
                            % (shown, entry["name"]))
    return found


def check_pids_free(found):
    """Prove that no process or thread id of the manifest (dict) is taken on this node.

    :raises HookError: TEMPORARY, naming the first that is
    """
    for pid in found["pids"]:
        try:
            with open("/proc/%d/comm" % pid, "rb") as stream:
                name = stream.read().strip().decode("utf-8", "replace")
        except OSError:
            continue
        raise HookError(TEMPORARY, "process id %d of the image is in use on this node (by %s); try again later or on another node"
                        % (pid, ascii(name)))
