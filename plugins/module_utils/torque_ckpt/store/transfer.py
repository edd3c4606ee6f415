"""Copies of images between a node and the server, if each node has a store of its own.

pbs_mom removes the node's image when a copy to the server has succeeded, and tries again, over what exists, when it failed. So an image
appears under its name whole and flushed, or not at all. Everything here runs as the job's owner.
"""
import os
import re
import shutil
import stat
import time

from .. import phases
from ..errors import HookError, CANNOT_WRITE, DATA, NO_INPUT
from ..image import manifest, schema
from ..system import processes
from ..system.dirfd import DIRECTORY, list_directory
from ..telemetry import syslog
from ..torque.names import split_image_name
from . import generations
from .draft import Draft
from .location import IMAGES_CURE

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Union
    from .server_directory import MountedServer, SftpServer
    Server = Union[MountedServer, SftpServer]

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def list_outdated(known: "dict[str, int]", name: str, keep: int) -> "list[str]":
    """Return which images of the same job as name are beyond the newest keep.

    :param known: the generations of the existing images, by name; what has none is not touched
    """
    job = split_image_name(name)
    images = []
    for image_name, generation in known.items():
        parts = split_image_name(image_name)
        if parts and job and parts[0] == job[0]:
            images.append((generation, parts[1], image_name))
    return [image_name for _generation, _epoch, image_name in sorted(images, reverse=True)[keep:] if image_name != name]


def _no_image(reason: str) -> OSError:
    return OSError(0, "it is no image, " + reason)


def _list_files(image: int) -> "list[str]":
    """Return the names in an image (descriptor): files, each of which can be read without waiting for anybody.

    :raises OSError: if it is no image
    """
    names = sorted(list_directory(image))
    strange = [name for name in names if not _PLAIN.fullmatch(name)]
    if strange or schema.FILE not in names:
        raise _no_image("it holds %s" % ascii(strange[0]) if strange else "it has no %s" % schema.FILE)
    for name in names:
        if not stat.S_ISREG(os.stat(name, dir_fd=image, follow_symlinks=False).st_mode):
            raise _no_image("its %s is not a regular file" % name)
    return names


def _list_leftovers(names: "list[str]") -> "list[str]":
    """Return those of the names that are hidden copies whose process on this node is gone."""
    hidden = [(name, generations.HIDDEN.fullmatch(name)) for name in names]
    return [name for name, maker in hidden if maker and maker.group(1) == os.uname().nodename
            and not processes.is_alive([int(maker.group(2)), int(maker.group(3))])]


def _read_depth(image: int, depth: int) -> int:
    """Return how many images the job of an image (descriptor) keeps, depth if that cannot be read."""
    try:
        return generations.get_depth(manifest.read_unchecked(image), depth)
    except (OSError, ValueError):
        return depth


def copy_to_server(server: "Server", path: str, job: str, name: str, depth: int) -> int:
    """Copy an image of this node to the server, and keep no more than the newest of the job's images at the server.

    :param path: the image
    :param job: name of the job's directory at the server
    :param name: the image's name at the server
    :param depth: how many of the job's images are kept at the server, unless the job asked for a number of them
    :returns: bytes copied
    :raises HookError: CANNOT_WRITE; the node's image is as it was
    """
    try:
        image = os.open(path, DIRECTORY)
    except OSError as error:
        raise HookError(NO_INPUT, "image %s cannot be copied to %s: %s; nothing was done; %s"
                        % (path, server.label, error.strerror, IMAGES_CURE))
    try:
        size = sum(os.stat(entry, dir_fd=image).st_size for entry in _list_files(image))
        keep = _read_depth(image, depth)
        with phases.measure("copy"):
            server.put_image(image, job, name)
    except (OSError, HookError) as error:
        raise HookError(CANNOT_WRITE, "image %s cannot be copied to %s: %s; it stays on node %s, and its job can be restarted nowhere "
                        "else; restart it there (qalter -l nodes=NODE:ppn=N, then qrls)"
                        % (path, server.label, _explain(error), os.uname().nodename))
    finally:
        os.close(image)
    try:
        remote_names = server.list_names(job)
        known = server.read_generations(job, remote_names) if sum(map(bool, map(split_image_name, remote_names))) > keep else {}
        doomed = list_outdated(known, name, keep) + _list_leftovers(remote_names)
        if doomed:
            server.remove_images(job, doomed)
        _remove_older_images(path, remote_names, name, keep)
    except OSError as error:  # the image has arrived
        syslog.log_event("copy", outcome="not removed", path=os.path.join(server.label, job), reason=_explain(error))
    return size


def _remove_older_images(path: str, remote_names: "list[str]", name: str, keep: int) -> None:
    """Remove what this node has of the job's older images (path is the newest), if the server has them (remote_names), or if they are
    beyond the newest keep: pbs_mom removes the newest alone, and nobody comes back for the others."""
    directory = os.open(os.path.dirname(path), DIRECTORY)
    try:
        local_images = {image.name: image.generation for image in generations.list_images(directory)}
        for old in list_outdated(local_images, name, 0):
            if old in remote_names or old in list_outdated(local_images, name, keep):
                os.rename(old, generations.hide_name(old), src_dir_fd=directory, dst_dir_fd=directory)
                generations.remove_directory(directory, generations.hide_name(old))
    finally:
        os.close(directory)


def _is_present(directory: int, path: str) -> "bool | None":
    """Whether the image (path) is in a directory (descriptor), each byte of it; None when nothing has its name."""
    try:
        image = os.open(os.path.basename(path), DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        return None
    try:
        manifest.check_files(image, manifest.read_manifest(image, path), path)
        return True
    except HookError:
        return False
    finally:
        os.close(image)


def fetch_from_server(server: "Server", path: str, job: str, name: str) -> int:
    """Copy an image from the server to this node, unless it is here.

    :param path: where pbs_mom wants it; the directory that holds it exists
    :returns: bytes copied, 0 when it was here
    :raises HookError: NO_INPUT; nothing has its name here then
    """
    parent = os.path.dirname(path)
    try:
        directory = os.open(parent, DIRECTORY)
    except OSError as error:
        raise HookError(NO_INPUT, "image %s cannot be fetched from %s: directory %s: %s; let the user have it in this node's store "
                        "(checkpoint_store_mode, checkpoint_store_users)" % (name, server.label, parent, error.strerror))
    try:
        status = os.fstat(directory)
        if status.st_uid != os.geteuid():
            raise HookError(NO_INPUT, "image %s cannot be fetched from %s: directory %s is another user's (%d); remove it"
                            % (name, server.label, parent, status.st_uid))
        os.fchmod(directory, 0o711)  # pbs_mom has created it writable for all
        present = _is_present(directory, path)
        if present:
            return 0
        draft = Draft(directory, os.path.basename(path))
        try:
            with phases.measure("copy"):
                server.get_image(job, name, draft.descriptor)
            size = sum(os.stat(entry, dir_fd=draft.descriptor).st_size for entry in _list_files(draft.descriptor))
            written = os.stat(schema.FILE, dir_fd=draft.descriptor).st_mtime_ns
            os.utime(draft.descriptor, ns=(written, written))  # pbs_mom computes the job's walltime from it
            if present is not None:
                os.rename(os.path.basename(path), generations.hide_name("damaged"), src_dir_fd=directory, dst_dir_fd=directory)
            draft.publish()
            if present is not None:
                generations.remove_directory(directory, generations.hide_name("damaged"))
            return size
        except BaseException:
            draft.discard()
            raise
    except (OSError, HookError) as error:
        if isinstance(error, HookError) and error.code == NO_INPUT:
            raise
        raise HookError(NO_INPUT, "image %s cannot be fetched from %s: %s; restart the job on the node that has it, or choose an older "
                        "image" % (name, server.label, _explain(error)))
    finally:
        os.close(directory)


def _explain(error: "OSError | HookError") -> str:
    return error.sentence if isinstance(error, HookError) else error.strerror or str(error)


def remove_from_server(server: "Server", job: str, name: str) -> None:
    """Remove an image from the server (L2 and try_transfer do; for a job pbs_server does)."""
    server.remove_images(job, [candidate for candidate in server.list_names(job) if candidate == name])


def try_transfer(server: "Server", directory: str, job: str) -> "dict[str, float]":
    """Copy a small image to the server and back, as pbs_mom would; return the cost: {"bytes", "seconds"}.

    :param directory: one of the user's in this node's store
    :param job: a directory at the server that is the user's
    :raises HookError: with the reason
    """
    name = "ckpt.trial.%s.%d" % (os.uname().nodename, os.getpid())
    path, content, started = os.path.join(directory, name), os.urandom(1 << 16), time.monotonic()
    try:
        os.mkdir(path, 0o700)
        for entry in (schema.FILE, "pages"):
            with open(os.path.join(path, entry), "wb") as stream:
                stream.write(content)
        size = copy_to_server(server, path, job, name, 1)
        shutil.rmtree(path)
        fetch_from_server(server, path, job, name)
        for entry in (schema.FILE, "pages"):
            with open(os.path.join(path, entry), "rb") as stream:
                if stream.read() != content:
                    raise HookError(DATA, "%s was changed on the way to %s and back; check the disks" % (entry, server.label))
        remove_from_server(server, job, name)
        return {"bytes": size, "seconds": round(time.monotonic() - started, 3)}
    except OSError as error:
        raise HookError(CANNOT_WRITE, "trial image %s of a copy to %s and back cannot be written, read or removed: %s; see to the space, "
                        "the quota and the rights on both sides" % (path, server.label, error.strerror))
    finally:
        shutil.rmtree(path, ignore_errors=True)
