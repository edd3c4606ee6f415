"""What an image is, and whether it is whole.

manifest.json lies beside the engine's files and is written last. Root seals
it with a key that only root has, so that nobody else can write one or change it.
"""
import errno
import json
import os
import time

from ..errors import HookError, CANNOT_WRITE, DATA, PRIVATE_CURE, REFUSED, STORE_CURE, SYSTEM, TEMPORARY, quote_name
from ..system import strict_json
from ..system.dirfd import list_directory, open_file
from . import compatibility, digest, schema

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable
    from ..system.privilege import User


def hash_named_file(directory: int, name: str, target: "int | None" = None) -> "tuple[int, str]":
    """Return (size, hash) of the file name in directory (descriptor), and copy it to target (descriptor or None)."""
    source = open_file(directory, name)
    try:
        return digest.hash_file(source, target)
    finally:
        os.close(source)


def _never(_name: str) -> bool:
    return False


def _collect_files(private: int, directory: int, expected: "Callable[[str], bool]") -> "list[dict]":
    """Copy the engine's files from a private directory into the image (descriptors); return their entries in the manifest.

    They are hashed while they are copied: their owner can change the image from now on, but not its hashes in the manifest.

    :param expected: called with a file's name, returns whether it may be in the image already
    :raises HookError: REFUSED if another file is
    """
    present, files = list_directory(directory), []
    strange = sorted(name for name in present if not expected(name))
    if strange:
        raise HookError(REFUSED, "somebody else than the engine and the hooks put %s into the image while it was written; the job keeps "
                        "running; stop what writes there and try again" % quote_name(strange[0]))
    for name in list_directory(private):
        target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
        try:
            size, file_hash = hash_named_file(private, name, target)
        finally:
            os.close(target)
        files.append({"name": name, "size": size, "sha256_tree": file_hash})
    return files


def write_manifest(directory: int, call: "Any", user: "User", facts: dict, seal: "Callable[[dict], dict]",
                   plain: "dict[str, dict] | None" = None, private: "int | None" = None,
                   holds_memory: "Callable[[str], bool]" = _never) -> dict:
    """Write the manifest of the image in directory (descriptor) and return it.

    :param call: contract.Call
    :param facts: further fields: at least
        engine          {"name": str, "version": str}
        root            pid of the job's root process (int)
        pids            every process and thread id in the image (list of int)
        frozen_seconds  how long the engine held the job (float, seconds)
        spool           which of the files are the job's output, from output.save_output_files (list of dict)
        and the fields from Capture.after_thaw, capture.list_left_files and consistency.record_open_files
    :param seal: called with the manifest, returns it with its seal (seal.ask_to_seal)
    :param plain: result of compression.compress_files
    :param private: directory in which the engine wrote its control files (descriptor); they are copied into the image. None if it
        wrote into the image only
    :param holds_memory: called with a file's name, returns whether the engine wrote it into the image itself; needed with private
    :raises HookError: CANNOT_WRITE; REFUSED if the image holds a file that neither the engine nor the hooks wrote
    """
    files, plain = [], plain or {}
    known = set(plain).union(entry.get("name") for entry in facts["spool"] + facts.get("node_local", []))
    try:
        if private is not None:
            files = _collect_files(private, directory, lambda name: name in known or holds_memory(name))
        for name in sorted(set(list_directory(directory)).difference(entry["name"] for entry in files)):
            size, file_hash = hash_named_file(directory, name)
            entry = {"name": name, "size": size, "sha256_tree": file_hash}
            files.append(dict(entry, plain=plain[name]) if name in plain else entry)
        files.sort(key=lambda entry: entry["name"])
        manifest = dict(
            dict(schema.DEFAULTS, **facts), format=schema.FORMAT, job_id=call.job_id, user=user.name, uid=user.uid, name=call.name,
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), bytes=sum(entry["size"] for entry in files), files=files,
            **compatibility.describe_node())
        if plain:
            manifest.update(format=schema.COMPRESSED, compression=next(iter(plain.values()))["program"],
                            plain_bytes=sum(entry.get("plain", entry)["size"] for entry in files))
        return write_sealed(directory, manifest, call.name, seal)
    except OSError as error:
        raise _unwritten(call.name, error)


def _unwritten(name: str, error: OSError) -> HookError:
    return HookError(CANNOT_WRITE, "cannot write the manifest of image %s: %s; %s" % (name, error.strerror, STORE_CURE))


def write_sealed(directory: int, manifest: dict, name: str, seal: "Callable[[dict], dict]") -> dict:
    """Seal a manifest for an image of this name and write it into directory (descriptor); return it as it was sealed."""
    manifest = seal(dict(manifest, name=name))
    text = json.dumps(manifest, indent=1, sort_keys=True).encode("ascii") + b"\n"
    try:
        strict_json.parse_json(text)  # otherwise no hook would read it
        with open(os.open(schema.FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory), "wb") as stream:
            stream.write(text)
    except strict_json.Wrong as error:
        raise HookError(CANNOT_WRITE, "cannot write the manifest of image %s: %s, so that no hook would read it; checkpoint the job when "
                        "it has fewer processes, threads or open files" % (name, error))
    except OSError as error:
        raise _unwritten(name, error)
    return manifest


def read_unchecked(directory: int) -> dict:
    """Return the manifest of the image in directory (descriptor), whoever wrote it and in whatever format.

    :raises OSError, ValueError: if there is none, or it is not a JSON object
    """
    manifest = strict_json.read_json(schema.FILE, directory)
    if not isinstance(manifest, dict) or len(manifest) > schema.MOST:
        raise strict_json.Wrong("it is not an object of at most %d fields" % schema.MOST)
    return manifest


def read_manifest(directory: int, image_path: str) -> dict:
    """Return the manifest of the image in directory (descriptor).

    :param image_path: the image's path, for the sentences
    :raises HookError: DATA if it is not ours, REFUSED if it is of another format
    """
    try:
        manifest = read_unchecked(directory)
        version = manifest["format"]
        if version in schema.READ:
            schema.check_manifest(manifest)
    except OSError as error:
        raise HookError(DATA, "image %s has no readable manifest (%s); it is kept but cannot be restarted; take an older "
                        "image" % (image_path, error.strerror))
    except strict_json.Wrong as error:
        raise _not_ours(image_path, str(error))
    except KeyError as error:
        raise _not_ours(image_path, "%s is missing" % error.args)
    except (ValueError, TypeError, AttributeError) as error:
        raise _not_ours(image_path, "a field is of another kind (%s)" % ascii(str(error))[1:-1][:100])
    if version not in schema.READ:
        raise HookError(REFUSED, "image %s has manifest format %s, these hooks read %s; restart it on a node whose hooks wrote it; "
                        "image kept" % (image_path, ascii(version)[:100], " and ".join(map(str, schema.READ))))
    return manifest


def _not_ours(image_path: str, reason: str) -> HookError:
    return HookError(DATA, "image %s has a manifest that is not ours: %s; it is kept but cannot be restarted; take an older image"
                     % (image_path, reason))


def check_identity(manifest: dict, job_id: str, user: "User", name: str, image_path: str) -> None:
    """Check that an image lies where it was created: that its manifest names this job, this user and this name.

    :param image_path: the image's path, for the sentences
    :raises HookError: REFUSED if it does not
    """
    if (manifest["job_id"], manifest["uid"]) != (job_id, user.uid):
        raise HookError(REFUSED, "image %s belongs to job %s of %s, not to job %s of %s; move it back to its own job; image kept"
                        % (image_path, manifest["job_id"], manifest["user"], job_id, user.name))
    if manifest["name"] != name:
        raise HookError(REFUSED, "image %s was written as %s and has been given another's name since; restart it under its own; image kept"
                        % (image_path, manifest["name"]))


def verify_manifest(directory: int, call: "Any", user: "User", image_path: str, check_seal: "Callable[[dict, str], None]") -> dict:
    """Read the manifest of the image in directory (descriptor) and check that the image is this job's and can be restarted on this node.

    :param call: contract.Call
    :param image_path: the image's path, for the sentences
    :param check_seal: called with the manifest and image_path; raises HookError if root did not seal it (seal.ask_to_verify)
    :returns: the manifest
    :raises HookError: DATA if it is damaged, REFUSED if it is not this job's or not for this node
    """
    manifest = read_manifest(directory, image_path)
    check_seal(manifest, image_path)
    check_identity(manifest, call.job_id, user, call.name, image_path)
    compatibility.check_node(manifest, image_path)
    return manifest


def damaged(image_path: str, reason: str) -> HookError:
    """Return the HookError for an image (its path) that is not whole, for this reason."""
    return HookError(DATA, "image %s is damaged: %s; take an older image" % (image_path, reason))


def check_files(directory: int, manifest: dict, image_path: str, private: "int | None" = None,
                is_memory: "Callable[[str], bool]" = _never) -> None:
    """Check that the files of the image in directory (descriptor) are those of its manifest.

    :param image_path: the image's path, for the sentences
    :param private: directory into which the engine's files are copied while they are read, so that nobody can change them afterwards
        (descriptor); the job's output and files stay where they are, and so do compressed files; memory is linked to
    :param is_memory: called with a file's name, returns whether it holds only memory of the job's processes, which their owner may
        change anyway, and which is too large to copy
    :raises HookError: DATA if one is not
    """
    data = {entry["name"] for entry in manifest["spool"] + manifest["node_local"] if "name" in entry}
    unknown = sorted(set(list_directory(directory)) - {entry["name"] for entry in manifest["files"]} - schema.NOT_LISTED)
    if unknown:
        raise damaged(image_path, "%s is not in its manifest" % ascii(unknown[0]))
    for entry in manifest["files"]:
        name, target = entry["name"], None
        if private is not None and name not in data and "plain" not in entry and not is_memory(name):
            target = open_copy(private, name)
        try:
            size, file_hash = hash_named_file(directory, name, target)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # of the copy
                raise _uncopied(name, error, TEMPORARY)
            raise damaged(image_path, "%s: %s" % (name, error.strerror))
        finally:
            if target is not None:
                os.close(target)
        if size != entry["size"]:
            raise damaged(image_path, "%s has %d bytes, expected %d" % (name, size, entry["size"]))
        if file_hash != entry["sha256_tree"]:
            raise damaged(image_path, "%s has another content than was written" % name)
        if private is not None and is_memory(name):
            os.symlink(os.path.join(image_path, name), name, dir_fd=private)


def open_copy(private: int, name: str) -> int:
    """Return a descriptor of a new file in a private directory (descriptor); raise HookError SYSTEM if it cannot be created."""
    try:
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=private)
    except OSError as error:
        raise _uncopied(name, error, SYSTEM)


def _uncopied(name: str, error: OSError, code: int) -> HookError:
    return HookError(code, "cannot copy %s of the image to a private directory of this node: %s; %s; image kept"
                     % (name, error.strerror, PRIVATE_CURE))


def check_pids_free(manifest: dict) -> None:
    """Check that no process or thread id of the manifest is in use on this node.

    :raises HookError: TEMPORARY, naming the first that is
    """
    for pid in manifest["pids"]:
        try:
            with open("/proc/%d/comm" % pid, "rb") as stream:
                name = stream.read().strip().decode("utf-8", "replace")
        except OSError:
            continue
        raise HookError(TEMPORARY, "process id %d of the image is in use on this node (by %s); try again later or on another node"
                        % (pid, ascii(name)))
