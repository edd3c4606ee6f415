"""Directories of images, and how an image appears in one.

Everything here runs as the job's owner, from a directory descriptor
downwards, without following links. An image is written under a hidden name
and renamed when it is whole; nothing reads a hidden name.
"""
import os
import time

from .errors import HookError, CANNOT_WRITE, CONFIG, NO_INPUT, REFUSED

MARKER = ".ckpt-torque-store"
"""A file with the store's id, made by the role checkpoint_store; without it the store is not mounted."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSAGE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # needs search permission only


def configured(stores, directory):
    """Return the entry of stores (list of {"path", "id"}) that holds directory (str).

    :raises HookError: REFUSED when none does
    """
    for store in stores:
        if directory.startswith(store["path"].rstrip("/") + "/"):
            return store
    raise HookError(REFUSED, "directory %s is in none of this node's stores (%s); set the job's checkpoint directory beneath one"
                    % (directory, ", ".join(store["path"] for store in stores)))


def check_mounted(store):
    """Prove that the store (dict) is there and is the one meant.

    :raises HookError: CONFIG when its marker is missing or another store's
    """
    marker = os.path.join(store["path"], MARKER)
    try:
        with open(marker) as stream:
            found = stream.read().strip()
    except OSError as error:
        raise HookError(CONFIG, "store %s is not usable on this node: %s: %s; is it mounted?"
                        % (store["path"], marker, error.strerror))
    if found != store["id"]:
        raise HookError(CONFIG, "store %s is another one than configured: its id is %s, expected %s"
                        % (store["path"], ascii(found[:80]), store["id"]))


def give_job_directory(store, directory, user):
    """As root: make a job's directory (str) that lies in the store (dict) itself, where its user may make none, and give it to him.

    A directory deeper in the store is the user's own to make. What root cannot make, under root_squash, the user's attempt explains.
    """
    parent, name = os.path.split(directory)
    if parent != store["path"].rstrip("/"):
        return
    opened = []
    try:
        opened.append(os.open(parent, _DIRECTORY))
        if os.fstat(opened[0]).st_mode & 0o022:  # whoever can write here could put something else in its place
            return
        os.mkdir(name, 0o700, dir_fd=opened[0])
        opened.append(os.open(name, _DIRECTORY, dir_fd=opened[0]))
        os.fchmod(opened[1], 0o711)  # pbs_mom must be able to stat the image, also as nobody
        os.fchown(opened[1], user.uid, user.gid)
    except OSError:
        pass
    finally:
        for descriptor in opened:
            os.close(descriptor)


def open_job_directory(store, directory, create=False):
    """Return a descriptor (int) of a job's directory beneath store (dict); the caller closes it.

    :param create: make the last component when it is missing (bool)
    :raises HookError: CANNOT_WRITE or NO_INPUT, by the meaning of create
    """
    parts = directory[len(store["path"].rstrip("/")) + 1:].split("/")
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
                except FileExistsError:
                    pass
            deeper = os.open(part, _DIRECTORY if last else _PASSAGE, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
    except OSError as error:
        if descriptor is not None:
            os.close(descriptor)
        raise HookError(CANNOT_WRITE if create else NO_INPUT, "%s of job images %s: %s"
                        % ("cannot use the directory" if create else "cannot open the directory", walked, error.strerror))
    return descriptor


def open_image(job_directory, name, shown):
    """Return a descriptor (int) of the published image name; the caller closes it.

    :param job_directory: descriptor from open_job_directory
    :param shown: the image's path, for the sentence (str)
    :raises HookError: NO_INPUT when it is missing or unreadable
    """
    try:
        return os.open(name, _DIRECTORY, dir_fd=job_directory)
    except OSError as error:
        raise HookError(NO_INPUT, "image %s cannot be opened: %s" % (shown, error.strerror))


def engine_path(descriptor):
    """Return a path (str) of a directory descriptor for an engine's command line; no rename can redirect it."""
    os.set_inheritable(descriptor, True)
    return "/proc/self/fd/%d" % descriptor


class Draft(object):
    """An image in the making: a hidden directory that becomes the image, or goes.

    descriptor  int: the hidden directory
    """

    def __init__(self, job_directory, name):
        self.job_directory = job_directory
        self.name = name
        self.hidden = ".%s.%d.%d" % (name, os.getpid(), int(time.time()))
        try:
            os.mkdir(self.hidden, 0o700, dir_fd=job_directory)
            self.descriptor = os.open(self.hidden, _DIRECTORY, dir_fd=job_directory)
        except OSError as error:
            raise HookError(CANNOT_WRITE, "cannot create image %s: %s" % (name, error.strerror))

    def path(self):
        """Return the draft's path (str) for the engine."""
        return engine_path(self.descriptor)

    def publish(self):
        """Make the draft the image: flush it, then rename it in one step.

        :raises HookError: CANNOT_WRITE; the draft is still there then
        """
        try:
            for entry in os.listdir(self.descriptor):
                flushed = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.descriptor)
                try:
                    os.fsync(flushed)
                finally:
                    os.close(flushed)
            os.fsync(self.descriptor)
            os.rename(self.hidden, self.name, src_dir_fd=self.job_directory, dst_dir_fd=self.job_directory)
            self.hidden = self.name  # what must be discarded if the last flush fails
            os.fsync(self.job_directory)
        except OSError as error:
            raise HookError(CANNOT_WRITE, "cannot publish image %s: %s" % (self.name, error.strerror))
        os.close(self.descriptor)

    def discard(self):
        """Remove the draft; a leftover is harmless, so failures are not raised."""
        try:
            for entry in os.listdir(self.descriptor):
                os.unlink(entry, dir_fd=self.descriptor)
            os.close(self.descriptor)
            os.rmdir(self.hidden, dir_fd=self.job_directory)
        except OSError:
            pass
