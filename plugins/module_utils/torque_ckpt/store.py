"""Directories of images, how an image appears in one and how it goes.

Everything here runs as the job's owner, from a directory descriptor
downwards, without following links. An image is written under a hidden name
and renamed when it is whole; it goes by a hidden name, too. Nothing reads a
hidden name, and it tells which process made it: what a hook that crashed left
behind is swept away by the job's next checkpoint.
"""
import errno
import os
import re
import stat
from collections import namedtuple

from . import manifest, processes
from .directory import DIRECTORY, names_in
from .errors import HookError, CANNOT_WRITE, CONFIG, NO_INPUT, REFUSED

MARKER = ".ckpt-torque-store"
"""A file with the store's id, made by the role checkpoint_store; without it the store is not mounted."""

_MUCH = 32 << 20
"""From so many bytes on a draft is flushed while it is hashed."""

HIDDEN = re.compile(r"\..+@([^:/]+):([0-9]+):([0-9]+)")  # neither an image's nor a node's name holds @ or :
_RENAME_EXCHANGE = 2
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


def _is_new(name, directory):
    """Whether a job's directory beneath another (descriptor) has no image yet: pbs_mom, who made it, does not flush."""
    return os.stat(name, dir_fd=directory, follow_symlinks=False).st_nlink <= 2  # of itself; file systems that do not count: always


def give_job_directory(store, directory, user):
    """As root: make what a job's directory (str) lacks in the store (dict) itself, where its user may make none, and give it to him.

    That is the job's directory, or the user's own if the job's lies in that. One deeper in the store is the user's to make. What root
    cannot make, under root_squash, the user's attempt explains.
    """
    parent, name = os.path.split(directory)
    top = store["path"].rstrip("/")
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


def _flush(name, directory):
    """Flush a directory beneath another (descriptor); one that may be passed but not read cannot be."""
    try:
        flushed = os.open(name, DIRECTORY, dir_fd=directory)
    except PermissionError:
        return
    try:
        os.fsync(flushed)
    finally:
        os.close(flushed)


def _reason(error, path, descriptor=None):
    """Return why something cannot be opened (str): a user whose uid is another on this node has no right to what is his.

    :param error: OSError
    :param path: it (str), beneath a directory (descriptor)
    """
    if error.errno == errno.EACCES:
        try:
            owner = os.stat(path, dir_fd=descriptor, follow_symlinks=False).st_uid
        except OSError:
            owner = 0
        if owner not in (0, os.geteuid()):
            return "%s; it belongs to uid %d, and the job's user has uid %d on this node; give the user one uid on all nodes" % (
                error.strerror, owner, os.geteuid())
    return error.strerror


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
                    _flush(".", descriptor)
                except FileExistsError:
                    if _is_new(part, descriptor):
                        _flush(".", descriptor)
            deeper = os.open(part, DIRECTORY if last else _PASSAGE, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        owner = os.fstat(descriptor).st_uid
        if create and owner not in (0, os.geteuid()):  # where all may make directories, somebody may have made this one first
            raise OSError(errno.EPERM, "it is another user's (%d); remove it" % owner)
    except OSError as error:
        reason = _reason(error, walked)
        if descriptor is not None:
            os.close(descriptor)
        raise HookError(CANNOT_WRITE if create else NO_INPUT, "%s of job images %s: %s"
                        % ("cannot use the directory" if create else "cannot open the directory", walked, reason))
    return descriptor


def open_image(job_directory, name, shown):
    """Return a descriptor (int) of the published image name; the caller closes it.

    :param job_directory: descriptor from open_job_directory
    :param shown: the image's path, for the sentence (str)
    :raises HookError: NO_INPUT when it is missing or unreadable
    """
    try:
        return os.open(name, DIRECTORY, dir_fd=job_directory)
    except OSError as error:
        raise HookError(NO_INPUT, "image %s cannot be opened: %s" % (shown, _reason(error, name, job_directory)))


def engine_path(descriptor):
    """Return a path (str) of a directory descriptor for an engine's command line; no rename can redirect it."""
    os.set_inheritable(descriptor, True)
    return "/proc/self/fd/%d" % descriptor


Image = namedtuple("Image", "name generation epoch whole manifest")
"""A published image. generation: int from 1, 0 for images from before there were any; epoch: the number at the name's end (int);
whole: whether all files are there with their sizes (bool); manifest: what it says of itself, not proven, without lists (dict)."""


def _is_whole(image, files):
    """Whether the files (list of {"name", "size"}) are in the image (descriptor)."""
    try:
        found = [(os.stat(entry["name"], dir_fd=image, follow_symlinks=False), entry["size"]) for entry in files]
    except OSError:
        return False
    return all(stat.S_ISREG(there.st_mode) and there.st_size == size for there, size in found)


def epoch_of(name):
    """Return the number (int) at the end of an image's name (str), 0 for none."""
    return int(re.search("[0-9]*$", name).group() or 0)


def images(job_directory, job_id=None):
    """Return the published images (list of Image), newest first. What has no manifest that these hooks know is none.

    :param job_directory: descriptor from open_job_directory
    :param job_id: only this job's (str); pbs_mom 2.4 keeps the images of several in one directory
    """
    found = []
    for name in names_in(job_directory):
        if name.startswith("."):
            continue
        try:
            image = open_image(job_directory, name, name)
        except HookError:
            continue
        try:
            facts = manifest.load(image)
            generation = facts.get("generation", 0)
            known = facts["format"] in manifest.KNOWN and isinstance(generation, int) and generation is not True and generation >= 0
            if known and job_id in (None, facts["job_id"]):
                brief = {field: value for field, value in facts.items() if not isinstance(value, (dict, list))}
                found.append(Image(name, generation, epoch_of(name), _is_whole(image, facts["files"]), brief))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        finally:
            os.close(image)
    return sorted(found, key=lambda image: (image.generation, image.epoch, image.name), reverse=True)


def next_generation(job_directory, job_id):
    """Return the number (int) of a job's next image."""
    return max([image.generation for image in images(job_directory, job_id)] or [0]) + 1


def hidden(name):
    """Return the hidden name (str) that this process gives to something called name."""
    mine = processes.read_process(os.getpid())
    return ".%s@%s:%d:%d" % (name, os.uname().nodename, mine.pid, mine.start)


def remove(job_directory, name):
    """Remove a directory of ours that holds files only.

    :raises OSError: the rest is still there then
    """
    directory = os.open(name, DIRECTORY, dir_fd=job_directory)
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to somebody else")
        for entry in names_in(directory):
            os.unlink(entry, dir_fd=directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=job_directory)


def belongs(image, life):
    """Whether an Image is of a life of the job (incarnation, dict): made by it, or not after the image that it continues from.

    Without an incarnation all images are.
    """
    return life is None or image.manifest.get("incarnation") == life["id"] or image.generation <= life["generation"]


def superfluous(job_directory, job_id, keep, life=None):
    """Return the names (list of str) of a job's images that are older than the newest whole ones that are to be kept.

    What is not an image of the job's is not among them, and neither is the newest one, whole or not. What another life of the
    job made meanwhile does not count as kept.

    :param keep: generations to keep (int, at least 1)
    :param life: the job's incarnation (dict), None for all images
    """
    kept, doomed = set(), []
    for number, image in enumerate(images(job_directory, job_id)):
        generation = image.generation or image.name  # an image may have two names
        if number and len(kept) >= keep and generation not in kept:
            doomed.append(image.name)
        elif image.whole and belongs(image, life):
            kept.add(generation)
    return doomed


def prune(job_directory, job_id, keep, life=None):
    """Remove the superfluous images of a job; return their names (list of str).

    :param keep, life: see superfluous
    :raises HookError: CANNOT_WRITE when one cannot be removed; it is then as it was, or hidden
    """
    doomed = superfluous(job_directory, job_id, keep, life)
    try:
        for name in doomed:
            os.rename(name, hidden(name), src_dir_fd=job_directory, dst_dir_fd=job_directory)
        if doomed:
            os.fsync(job_directory)  # nothing is taken out of an image before its name is gone for good
        for name in doomed:
            remove(job_directory, hidden(name))
    except OSError as error:
        raise HookError(CANNOT_WRITE, "cannot remove the older image %s: %s; the newer ones are kept" % (name, error.strerror))
    return doomed


def _clock(job_directory):
    """Return the time (float, seconds) by the clock of the store."""
    name = hidden("clock")
    os.mkdir(name, 0o700, dir_fd=job_directory)
    try:
        return os.stat(name, dir_fd=job_directory, follow_symlinks=False).st_mtime
    finally:
        os.rmdir(name, dir_fd=job_directory)


def _age(job_directory, name, now):
    """Return how long before now() something was written to a hidden directory (float, seconds)."""
    directory = os.open(name, DIRECTORY, dir_fd=job_directory)
    try:
        times = [os.fstat(directory).st_mtime]
        times.extend(os.stat(entry, dir_fd=directory, follow_symlinks=False).st_mtime for entry in names_in(directory))
    finally:
        os.close(directory)
    return now() - max(times)


def is_left_over(job_directory, name, patience, now):
    """Whether a hidden directory's maker is gone.

    On this node the process that the name tells of must be gone; on another one the last write must be old.

    :param patience: how old what another node left must be (seconds)
    :param now: returns the time (float, seconds since the epoch)
    :raises OSError: when it is not ours, or gone by now
    """
    made = HIDDEN.fullmatch(name)
    if made is None:
        return False
    if made.group(1) == os.uname().nodename:
        return processes.find_marked([int(made.group(2)), int(made.group(3))]) is None
    return _age(job_directory, name, now) > patience


def sweep(job_directory, patience):
    """Remove what hooks that are gone left behind; return the hidden names (list of str).

    :param job_directory: descriptor from open_job_directory
    :param patience: how old what another node left must be, by the store's clock (seconds)
    """
    swept = []
    for name in names_in(job_directory):
        try:
            if is_left_over(job_directory, name, patience, lambda: _clock(job_directory)):
                remove(job_directory, name)
                swept.append(name)
        except OSError:
            pass  # not ours, or gone by now
    return swept


class Draft(object):
    """An image in the making: a hidden directory that becomes the image, or goes.

    descriptor  int: the hidden directory
    """

    def __init__(self, job_directory, name):
        self.job_directory = job_directory
        self.name = name
        self.hidden = hidden(name)
        self._flushing, self._failure = None, None
        try:
            os.mkdir(self.hidden, 0o700, dir_fd=job_directory)
            self.descriptor = os.open(self.hidden, DIRECTORY, dir_fd=job_directory)
        except OSError as error:
            raise HookError(CANNOT_WRITE, "cannot create image %s: %s" % (name, error.strerror))

    def path(self):
        """Return the draft's path (str) for the engine."""
        return engine_path(self.descriptor)

    def flush(self):
        """Start to flush what is in the draft, if that is much, while the caller reads it; publish() raises what went wrong."""
        try:
            entries = names_in(self.descriptor)  # not in the thread: the caller lists the same open directory
            if sum(os.stat(entry, dir_fd=self.descriptor).st_size for entry in entries) < _MUCH:
                return
        except OSError:
            return  # the caller will meet it
        import threading  # small images do without

        def work():
            try:
                self._flush(entries)
            except OSError as error:
                self._failure = error
        self._flushing = threading.Thread(target=work)
        self._flushing.start()

    def _wait(self):
        if self._flushing:
            self._flushing.join()

    def _flush(self, entries):
        for entry in sorted(entries, key=lambda entry: entry == manifest.FILE):
            flushed = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.descriptor)
            try:
                os.fsync(flushed)
            finally:
                os.close(flushed)

    def publish(self):
        """Make the draft the image: flush it, then rename it in one step. An image of the same name is superseded.

        :raises HookError: CANNOT_WRITE; the draft is still there then, and so is the other image
        """
        try:
            self._wait()
            if self._failure:
                raise self._failure  # the kernel says it once only
            self._flush(names_in(self.descriptor))
            os.fsync(self.descriptor)
            superseded = self._rename()
            try:
                os.fsync(self.job_directory)
            except OSError:
                if superseded:
                    self._exchange()
                else:
                    self.hidden = self.name  # what must be discarded
                raise
        except OSError as error:
            raise HookError(CANNOT_WRITE, "cannot publish image %s: %s" % (self.name, error.strerror))
        if superseded:
            try:
                remove(self.job_directory, self.hidden)
            except OSError:
                pass  # the next sweep's
        os.close(self.descriptor)

    def _rename(self):
        """Give the draft its name; return whether an image had it before, which has the hidden name then (bool)."""
        try:
            os.rename(self.hidden, self.name, src_dir_fd=self.job_directory, dst_dir_fd=self.job_directory)
            return False
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        there = [image.generation for image in images(self.job_directory) if image.name == self.name]
        if not there or there[0] >= manifest.load(self.descriptor).get("generation", 0):
            raise HookError(CANNOT_WRITE, "cannot publish image %s: what has its name is not an older image; it is kept" % self.name)
        try:
            self._exchange()
        except OSError as error:
            raise HookError(CANNOT_WRITE, "cannot publish image %s: one of the same second is there, and the store's file system cannot "
                            "exchange the two (%s); that one is kept, try again a second later" % (self.name, error.strerror))
        return True

    def _exchange(self):
        """Exchange the draft and what has its name, in one step."""
        import ctypes  # rarely needed, and it costs a few milliseconds
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "renameat2"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if libc.renameat2(self.job_directory, os.fsencode(self.hidden), self.job_directory, os.fsencode(self.name), _RENAME_EXCHANGE) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def discard(self):
        """Remove the draft; a leftover is harmless, so failures are not raised."""
        self._wait()
        try:
            there = os.stat(self.hidden, dir_fd=self.job_directory, follow_symlinks=False)
            if os.path.samestat(there, os.fstat(self.descriptor)):
                remove(self.job_directory, self.hidden)
            os.close(self.descriptor)
        except OSError:
            pass
