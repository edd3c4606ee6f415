"""What an image is, and whether it is whole.

manifest.json lies beside the engine's files and is written last. Root seals
it with a key that only root has, so that nobody else can write one or change it.
"""
import errno
import json
import os
import time

from ..errors import HookError, CANNOT_WRITE, DATA, REFUSED, SYSTEM, TEMPORARY, plain as plain_name
from ..system import strict_json
from ..system.dirfd import names_in, open_file
from . import compatibility, digest, schema


def digest_of(directory, name, target=None):
    """Return (size, hash) of a file in directory (descriptor), which becomes the content of target (descriptor or None)."""
    source = open_file(directory, name)
    try:
        return digest.hash_file(source, target)
    finally:
        os.close(source)


def _collect(private, directory, expected):
    """Copy the engine's files from a private place into the image (descriptors); return what the manifest says of them (list of dict).

    They are hashed while they are copied: their owner can change the image from now on, but not what the manifest says of it.

    :param expected: says of a file's name whether it may be in the image already
    :raises HookError: REFUSED when something else is
    """
    there, files = names_in(directory), []
    strange = sorted(name for name in there if not expected(name))
    if strange:
        raise HookError(REFUSED, "somebody else than the engine and the hooks put %s into the image while it was made; the job runs on"
                        % plain_name(strange[0]))
    for name in names_in(private):
        target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
        try:
            size, tree = digest_of(private, name, target)
        finally:
            os.close(target)
        files.append({"name": name, "size": size, "sha256_tree": tree})
    return files


def write(directory, call, user, facts, seal, plain=None, private=None, holds_memory=None):
    """Write the manifest of the image in directory (descriptor) and return it (dict).

    :param facts: what else it says (dict): at least
        engine          {"name": str, "version": str}
        root            pid of the job's root process (int)
        pids            every process and thread id in the image (list of int)
        frozen_seconds  how long the engine held the job (float, seconds)
        spool           which of the files are the job's output, from output.save_output_files (list of dict)
        and what capture.save, capture.list_left_files and consistency.record_open_files say
    :param seal: called with the manifest (dict), returns it with the fields that prove it (seal.ask_to_seal)
    :param plain: what compression.compress said (dict)
    :param private: where the engine wrote what steers it (descriptor); it is copied into the image. None if that is in the image
    :param holds_memory: says of a file's name whether the engine wrote it into the image itself; needed with private
    :raises HookError: CANNOT_WRITE, REFUSED when there is something in the image that nobody of these wrote
    """
    files, plain = [], plain or {}
    own = set(plain).union(entry.get("name") for entry in facts["spool"] + facts.get("carried", []))
    try:
        if private is not None:
            files = _collect(private, directory, lambda name: name in own or holds_memory(name))
        for name in sorted(set(names_in(directory)).difference(entry["name"] for entry in files)):
            size, tree = digest_of(directory, name)
            entry = {"name": name, "size": size, "sha256_tree": tree}
            files.append(dict(entry, plain=plain[name]) if name in plain else entry)
        files.sort(key=lambda entry: entry["name"])
        found = dict(
            dict(schema.DEFAULTS, **facts), format=schema.FORMAT, job_id=call.job_id, user=user.name, uid=user.uid, name=call.name,
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), bytes=sum(entry["size"] for entry in files), files=files,
            **compatibility.node())
        if plain:
            found.update(format=schema.COMPRESSED, compression=next(iter(plain.values()))["program"],
                         plain_bytes=sum(entry.get("plain", entry)["size"] for entry in files))
        return put(directory, found, call.name, seal)
    except OSError as error:
        raise _unwritten(call.name, error)


def _unwritten(name, error):
    return HookError(CANNOT_WRITE, "cannot write the manifest of image %s: %s" % (name, error.strerror))


def put(directory, found, name, seal):
    """Seal a manifest (dict) for an image of this name (str) and lay it into directory (descriptor); return it as it was sealed."""
    found = seal(dict(found, name=name))
    said = json.dumps(found, indent=1, sort_keys=True).encode("ascii") + b"\n"
    try:
        strict_json.parse(said)  # nobody would read it again
        with open(os.open(schema.FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory), "wb") as stream:
            stream.write(said)
    except strict_json.Wrong as error:
        raise HookError(CANNOT_WRITE, "cannot write the manifest of image %s: %s, so that no hook would read it; the job has too many "
                        "processes, threads or files for an image" % (name, error))
    except OSError as error:
        raise _unwritten(name, error)
    return found


def load(directory):
    """Return what the manifest of the image in directory (descriptor) says (dict), whoever wrote it and in whatever format.

    :raises OSError, ValueError: when it says nothing
    """
    found = strict_json.read(schema.FILE, directory)
    if not isinstance(found, dict) or len(found) > schema.MOST:
        raise strict_json.Wrong("it is not an object of at most %d fields" % schema.MOST)
    return found


def read(directory, shown):
    """Return the manifest (dict) of the image in directory (descriptor).

    :param shown: the image's path, for the sentences (str)
    :raises HookError: DATA when it is not ours, REFUSED when it is of another format
    """
    try:
        found = load(directory)
        version = found["format"]
        if version in schema.READ:
            schema.check(found)
    except OSError as error:
        raise HookError(DATA, "image %s has no readable manifest (%s); it is kept but cannot be restarted" % (shown, error.strerror))
    except strict_json.Wrong as error:
        raise _not_ours(shown, str(error))
    except KeyError as error:
        raise _not_ours(shown, "%s is missing" % error.args)
    except (ValueError, TypeError, AttributeError) as error:
        raise _not_ours(shown, "a field is of another kind (%s)" % ascii(str(error))[1:-1][:100])
    if version not in schema.READ:
        raise HookError(REFUSED, "image %s has manifest format %s, these hooks read %s; restart it on a node whose hooks made it; "
                        "image kept" % (shown, ascii(version)[:100], " and ".join(map(str, schema.READ))))
    return found


def _not_ours(shown, why):
    return HookError(DATA, "image %s has a manifest that is not ours: %s; it is kept but cannot be restarted" % (shown, why))


def check_place(found, job_id, user, name, shown):
    """Prove that an image lies where it was made: that its manifest (dict) speaks of this job (str), this User and this name (str).

    :param shown: the image's path, for the sentences (str)
    :raises HookError: REFUSED when it does not
    """
    if (found["job_id"], found["uid"]) != (job_id, user.uid):
        raise HookError(REFUSED, "image %s belongs to job %s of %s, not to job %s of %s; image kept"
                        % (shown, found["job_id"], found["user"], job_id, user.name))
    if found["name"] != name:
        raise HookError(REFUSED, "image %s was made as %s and has been given another's name since; restart it under its own; image kept"
                        % (shown, found["name"]))


def verify(directory, call, user, shown, prove):
    """Read the manifest of the image in directory (descriptor) and prove that the image is this job's and can go on on this node.

    :param shown: the image's path, for the sentences (str)
    :param prove: called with the manifest and shown; raises HookError when root did not seal it (seal.ask_to_prove)
    :returns: the manifest (dict)
    :raises HookError: DATA when it is damaged, REFUSED when it is not this job's or not for this node
    """
    found = read(directory, shown)
    prove(found, shown)
    check_place(found, call.job_id, user, call.name, shown)
    compatibility.check(found, shown)
    return found


def damaged(shown, why):
    """Return the HookError for an image (its path, str) that is not whole, for this reason (str)."""
    return HookError(DATA, "image %s is damaged: %s; take an older image" % (shown, why))


def check_files(directory, found, shown, private=None, is_memory=None):
    """Prove that the files of the image in directory (descriptor) are those of its manifest (dict).

    :param shown: the image's path, for the sentences (str)
    :param private: where to put the engine's files while they are read, so that nobody can change them afterwards (descriptor);
        the job's output and files stay where they are, as what is compressed does; memory is linked to
    :param is_memory: says of a file's name whether it holds nothing but memory of the job's processes, which their owner may change
        anyhow, and which is too much to copy
    :raises HookError: DATA when one is not
    """
    data = {entry["name"] for entry in found["spool"] + found["carried"] if "name" in entry}
    unknown = sorted(set(names_in(directory)) - {entry["name"] for entry in found["files"]} - schema.NOT_LISTED)
    if unknown:
        raise damaged(shown, "%s is not in its manifest" % ascii(unknown[0]))
    for entry in found["files"]:
        name = entry["name"]
        copied = private is not None and name not in data and "plain" not in entry and not is_memory(name)
        target = open_copy(private, name) if copied else None
        try:
            size, tree = digest_of(directory, name, target)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # of the copy
                raise _uncopied(name, error, TEMPORARY)
            raise damaged(shown, "%s: %s" % (name, error.strerror))
        finally:
            if copied:
                os.close(target)
        if size != entry["size"]:
            raise damaged(shown, "%s has %d bytes, expected %d" % (name, size, entry["size"]))
        if tree != entry["sha256_tree"]:
            raise damaged(shown, "%s has another content than was written" % name)
        if private is not None and is_memory(name):
            os.symlink(os.path.join(shown, name), name, dir_fd=private)


def open_copy(private, name):
    """Return a descriptor (int) of a new file in a private place (descriptor); raise HookError SYSTEM when there can be none."""
    try:
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=private)
    except OSError as error:
        raise _uncopied(name, error, SYSTEM)


def _uncopied(name, error, code):
    return HookError(code, "cannot copy %s of the image to a private place of this node: %s; image kept" % (name, error.strerror))


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
