"""The images of a job, and what crashed hooks left between them.

An image has a hidden name until it is whole, and again when it goes. Nothing reads a hidden name, and it names the process that created it:
what a hook that crashed left behind is swept away by the job's next checkpoint. Everything here runs as the job's owner.
"""
import errno
import os
import re
import stat
from collections import namedtuple

from ..errors import HookError, CANNOT_WRITE
from ..image import manifest, schema
from ..system import processes
from ..system.dirfd import DIRECTORY, list_directory
from .location import open_image

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable

HIDDEN = re.compile(r"\..+@([^:/]+):([0-9]+):([0-9]+)")  # neither an image's nor a node's name holds @ or :


Image = namedtuple("Image", "name generation epoch whole manifest")
"""A published image. generation: int from 1, 0 for images that are older than generations; epoch: the number at the name's end (int);
whole: whether all files exist with their sizes (bool); manifest: its manifest, not verified, without lists (dict)."""


def _is_whole(image: int, files: "list[dict]") -> bool:
    """Whether the files ({"name", "size"}) are in the image (descriptor)."""
    try:
        present = [(os.stat(entry["name"], dir_fd=image, follow_symlinks=False), entry["size"]) for entry in files]
    except OSError:
        return False
    return all(stat.S_ISREG(status.st_mode) and status.st_size == size for status, size in present)


def get_epoch(name: str) -> int:
    """Return the number at the end of an image's name, 0 for none."""
    return int(re.findall("[0-9]*$", name)[0] or 0)


def list_images(job_directory: int, job_id: "str | None" = None) -> "list[Image]":
    """Return the published images, newest first. What has no manifest that these hooks know is no image.

    :param job_directory: descriptor from open_job_directory
    :param job_id: only this job's; pbs_mom 2.4 keeps the images of several in one directory
    """
    images = []
    for name in list_directory(job_directory):
        if name.startswith("."):
            continue
        try:
            image = open_image(job_directory, name, name)
        except HookError:
            continue
        try:
            described = manifest.read_unchecked(image)
            generation = described.get("generation", 0)
            known = described["format"] in schema.KNOWN and isinstance(generation, int) and generation is not True and generation >= 0
            if known and job_id in (None, described["job_id"]):
                brief = {field: value for field, value in described.items() if not isinstance(value, (dict, list))}
                images.append(Image(name, generation, get_epoch(name), _is_whole(image, described["files"]), brief))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        finally:
            os.close(image)
    return sorted(images, key=lambda image: (image.generation, image.epoch, image.name), reverse=True)


def next_generation(job_directory: int, job_id: str) -> int:
    """Return the number of a job's next image."""
    return max([image.generation for image in list_images(job_directory, job_id)] or [0]) + 1


def hide_name(name: str) -> str:
    """Return the hidden name that this process gives to something called name."""
    pid, start = processes.get_mark()
    return ".%s@%s:%d:%d" % (name, os.uname().nodename, pid, start)


def remove_directory(job_directory: int, name: str) -> None:
    """Remove a directory of ours that holds files only.

    :raises OSError: when something cannot be removed; the rest still exists then
    """
    directory = os.open(name, DIRECTORY, dir_fd=job_directory)
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to somebody else")
        for entry in list_directory(directory):
            os.unlink(entry, dir_fd=directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=job_directory)


def belongs_to(image: Image, life: "dict | None") -> bool:
    """Whether an image is of a life of the job (incarnation): created by it, or not after the image that it continues from.

    Without an incarnation all images are.
    """
    return life is None or image.manifest.get("incarnation") == life["id"] or image.generation <= life["generation"]


def list_superfluous(job_directory: int, job_id: str, keep: int, life: "dict | None" = None) -> "list[str]":
    """Return the names of a job's images that are older than the newest whole ones that are to be kept.

    What is not an image of the job's is not among them, and neither is the newest one, whole or not. What another life of the
    job created meanwhile does not count as kept.

    :param keep: generations to keep (at least 1)
    :param life: the job's incarnation, None for all images
    """
    kept: "set[int | str]" = set()
    doomed = []
    for number, image in enumerate(list_images(job_directory, job_id)):
        generation = image.generation or image.name  # an image may have two names
        if number and len(kept) >= keep and generation not in kept:
            doomed.append(image.name)
        elif image.whole and belongs_to(image, life):
            kept.add(generation)
    return doomed


def prune_images(job_directory: int, job_id: str, keep: int, life: "dict | None" = None) -> "list[str]":
    """Remove the superfluous images of a job; return their names.

    :param keep, life: see list_superfluous
    :raises HookError: CANNOT_WRITE when one cannot be removed; it is then as it was, or hidden
    """
    doomed = list_superfluous(job_directory, job_id, keep, life)
    try:
        for name in doomed:
            os.rename(name, hide_name(name), src_dir_fd=job_directory, dst_dir_fd=job_directory)
        if doomed:
            os.fsync(job_directory)  # nothing is taken out of an image before its name is gone for good
        for name in doomed:
            remove_directory(job_directory, hide_name(name))
    except OSError as error:
        raise HookError(CANNOT_WRITE, "cannot remove the older image %s: %s; the newer ones are kept; remove it by hand"
                        % (name, error.strerror))
    return doomed


def _read_clock(job_directory: int) -> float:
    """Return the time (seconds) by the clock of the store."""
    name = hide_name("clock")
    os.mkdir(name, 0o700, dir_fd=job_directory)
    try:
        return os.stat(name, dir_fd=job_directory, follow_symlinks=False).st_mtime
    finally:
        os.rmdir(name, dir_fd=job_directory)


def _get_age(job_directory: int, name: str, now: "Callable[[], float]") -> float:
    """Return how long before now() something was written to a hidden directory (seconds)."""
    directory = os.open(name, DIRECTORY, dir_fd=job_directory)
    try:
        times = [os.fstat(directory).st_mtime]
        times.extend(os.stat(entry, dir_fd=directory, follow_symlinks=False).st_mtime for entry in list_directory(directory))
    finally:
        os.close(directory)
    return now() - max(times)


def is_left_over(job_directory: int, name: str, patience: float, now: "Callable[[], float]") -> bool:
    """Whether the process that created a hidden directory is gone.

    On this node the process in its name must be gone; on another one the last write must be old.

    :param patience: how old what another node left must be (seconds)
    :param now: returns the time (seconds since the epoch)
    :raises OSError: when it is not ours, or gone by now
    """
    maker = HIDDEN.fullmatch(name)
    if maker is None:
        return False
    if maker.group(1) == os.uname().nodename:
        return not processes.is_alive([int(maker.group(2)), int(maker.group(3))])
    return _get_age(job_directory, name, now) > patience


def get_depth(manifest: dict, depth: int) -> int:
    """Return how many of a job's images are kept: as many as the job asked for with qsub -c depth=N, by its newest manifest, else depth."""
    wanted = manifest.get("depth")
    return wanted if isinstance(wanted, int) and wanted > 0 else depth


def sweep_leftovers(job_directory: int, patience: float) -> "list[str]":
    """Remove what hooks that are gone left behind; return the hidden names.

    :param job_directory: descriptor from open_job_directory
    :param patience: how old what another node left must be, by the store's clock (seconds)
    """
    swept = []
    for name in list_directory(job_directory):
        try:
            if is_left_over(job_directory, name, patience, lambda: _read_clock(job_directory)):
                remove_directory(job_directory, name)
                swept.append(name)
        except OSError:
            pass  # not ours, or gone by now
    return swept
