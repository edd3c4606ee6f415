"""Where images are stored: the stores of this node, and the directory of a job's images in one.

From a store downwards everything goes by directory descriptors, as the job's owner, without following links.
"""
import errno
import os

from ..errors import HookError, CANNOT_WRITE, CONFIG, NO_INPUT, REFUSED, STORE_CURE
from ..system.dirfd import DIRECTORY

MYPY = False  # true for the type checker alone
if MYPY:
    from ..system.privilege import User

MARKER = ".ckpt-torque-store"
"""A file with the store's id, created by the role checkpoint_store; without it the store is not mounted."""

IMAGES_CURE = "see with torque-ckpt list which images the job has, and whether its owner may read them"
"""What to do if an image cannot be opened."""

_PASSAGE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # needs search permission only


def find_store(stores: "list[dict[str, str]]", directory: str) -> "dict[str, str]":
    """Return the one of stores ({"path", "id"}) that holds directory.

    :raises HookError: REFUSED when none does
    """
    for store in stores:
        if directory.startswith(store["path"] + "/"):
            return store
    raise HookError(REFUSED, "directory %s is in none of this node's stores (%s); set the job's checkpoint directory beneath one"
                    % (directory, ", ".join(store["path"] for store in stores)))


def check_mounted(store: "dict[str, str]") -> None:
    """Check that the store is mounted and is the configured one.

    :raises HookError: CONFIG when its marker is missing or another store's
    """
    marker = os.path.join(store["path"], MARKER)
    try:
        with open(marker) as stream:
            store_id = stream.read().strip()
    except OSError as error:
        raise HookError(CONFIG, "store %s is not usable on this node: %s: %s; is it mounted?"
                        % (store["path"], marker, error.strerror))
    if store_id != store["id"]:
        raise HookError(CONFIG, "store %s is another one than configured: its id is %s, expected %s; mount the one that is configured"
                        % (store["path"], ascii(store_id[:80]), store["id"]))


def _is_new(name: str, directory: int) -> bool:
    """Whether a job's directory beneath another (descriptor) has no image yet: pbs_mom, which created it, does not flush."""
    return os.stat(name, dir_fd=directory, follow_symlinks=False).st_nlink <= 2  # of itself; file systems that do not count: always


def give_job_directory(store: "dict[str, str]", directory: str, user: "User") -> None:
    """As root: create what a job's directory lacks in the store itself, if its user may not, and give it to him.

    That is the job's directory, or the user's own if the job's lies in that. One deeper in the store is the user's to create. What root
    cannot create, under root_squash, the user's attempt explains.
    """
    parent, name = os.path.split(directory)
    top = store["path"]
    if parent == os.path.join(top, user.name):
        parent, name = top, user.name
    if parent != top:
        return
    opened = []
    try:
        opened.append(os.open(parent, DIRECTORY))
        if os.fstat(opened[0]).st_mode & 0o022:  # whoever can write here could put something else in its place
            return
        try:
            os.mkdir(name, 0o700, dir_fd=opened[0])
        except FileExistsError:
            if _is_new(name, opened[0]):
                os.fsync(opened[0])
            return
        os.fsync(opened[0])
        opened.append(os.open(name, DIRECTORY, dir_fd=opened[0]))
        os.fchmod(opened[1], 0o711)  # pbs_mom must be able to stat the image, also as nobody
        os.fchown(opened[1], user.uid, user.gid)
    except OSError:
        pass
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _flush_directory(name: str, directory: int) -> None:
    """Flush a directory beneath another (descriptor); one that may be passed but not read cannot be."""
    try:
        flushed = os.open(name, DIRECTORY, dir_fd=directory)
    except PermissionError:
        return
    try:
        os.fsync(flushed)
    finally:
        os.close(flushed)


def _explain(error: OSError, cure: str, path: str, descriptor: "int | None" = None) -> str:
    """Return why something cannot be opened, and what to do: a user whose uid differs on this node has no access to his own files.

    :param cure: what to do otherwise
    :param path: it, beneath a directory (descriptor)
    """
    if error.errno == errno.EACCES:
        try:
            owner = os.stat(path, dir_fd=descriptor, follow_symlinks=False).st_uid
        except OSError:
            owner = 0
        if owner not in (0, os.geteuid()):
            return "%s; it belongs to uid %d, and the job's user has uid %d on this node; give the user one uid on all nodes" % (
                error.strerror, owner, os.geteuid())
    return "%s; %s" % (error.strerror, cure)


def open_job_directory(store: "dict[str, str]", directory: str, create: bool = False) -> int:
    """Return a descriptor of a job's directory beneath store; the caller closes it.

    :param create: create the last component when it is missing
    :raises HookError: CANNOT_WRITE or NO_INPUT, by the meaning of create
    """
    parts = directory[len(store["path"]) + 1:].split("/")
    walked, descriptor = store["path"], None
    try:
        descriptor = os.open(walked, _PASSAGE)
        for number, part in enumerate(parts):
            walked = os.path.join(walked, part)
            last = number == len(parts) - 1
            if create and last:
                try:
                    os.mkdir(part, 0o711, dir_fd=descriptor)
                    os.chmod(part, 0o711, dir_fd=descriptor)  # pbs_mom must be able to stat the image, also as nobody
                    _flush_directory(".", descriptor)
                except FileExistsError:
                    if _is_new(part, descriptor):
                        _flush_directory(".", descriptor)
            deeper = os.open(part, DIRECTORY if last else _PASSAGE, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
    except OSError as error:
        if descriptor is not None:
            os.close(descriptor)
        if create:
            raise HookError(CANNOT_WRITE, "cannot use the directory of job images %s: %s" % (walked, _explain(error, STORE_CURE, walked)))
        raise HookError(NO_INPUT, "cannot open the directory of job images %s: %s" % (walked, _explain(error, IMAGES_CURE, walked)))
    owner = os.fstat(descriptor).st_uid
    if create and owner not in (0, os.geteuid()):  # if all may create directories, somebody may have created this one first
        os.close(descriptor)
        raise HookError(CANNOT_WRITE, "cannot use the directory of job images %s: it is another user's (%d); remove it" % (walked, owner))
    return descriptor


def open_image(job_directory: int, name: str, image_path: str) -> int:
    """Return a descriptor of the published image name; the caller closes it.

    :param job_directory: descriptor from open_job_directory
    :param image_path: the image's path, for the sentence
    :raises HookError: NO_INPUT when it is missing or unreadable
    """
    try:
        return os.open(name, DIRECTORY, dir_fd=job_directory)
    except OSError as error:
        raise HookError(NO_INPUT, "image %s cannot be opened: %s" % (image_path, _explain(error, IMAGES_CURE, name, job_directory)))


def get_engine_path(descriptor: int) -> str:
    """Return a path of a directory descriptor for an engine's command line; no rename can redirect it."""
    os.set_inheritable(descriptor, True)
    return "/proc/self/fd/%d" % descriptor
