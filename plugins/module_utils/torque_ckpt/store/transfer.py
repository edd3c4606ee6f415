"""Copies of images between a node and the server, where each node has a store of its own.

pbs_mom removes the node's image when a copy to the server was made, and tries again, over what is there, when it failed. So an image
appears under its name whole and flushed, or not at all. Everything here runs as the job's owner.

The server's checkpoint directory is either mounted on the node, or reached by sftp through the server's second sshd, which shows nothing
else (role checkpoint_store).
"""
import errno
import os
import re
import shutil
import signal
import stat
import subprocess
import time

from .. import phases
from ..errors import HookError, CANNOT_WRITE, DATA, NO_INPUT
from ..image import manifest, schema
from ..system import processes, progress, strict_json
from ..system.dirfd import DIRECTORY, names_in, open_file
from ..telemetry import syslog
from ..torque.names import split_image_name
from . import generations, location
from .draft import Draft


PATIENCE = 300
"""How long sftp may neither read nor write (seconds)."""

REACHED = "/checkpoint"
"""The server's checkpoint directory as its second sshd shows it."""

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


def outdated(known, name, keep):
    """Return which images of the same job as name (str) are beyond the newest keep (int).

    :param known: the generations of the images that are there (dict of int, by name); what has none is not touched
    """
    job = split_image_name(name)
    mine = []
    for other, generation in known.items():
        parts = split_image_name(other)
        if parts and job and parts[0] == job[0]:
            mine.append((generation, parts[1], other))
    return [other for _generation, _epoch, other in sorted(mine, reverse=True)[keep:] if other != name]


def _files(image, shown):
    """Return the names (list of str) in an image (descriptor): files, each of which can be read without waiting for anybody."""
    names = sorted(names_in(image))
    strange = [name for name in names if not _PLAIN.fullmatch(name)]
    if strange or schema.FILE not in names:
        raise HookError(DATA, "%s is not copied: it is no image, %s; nothing was done" % (
            shown, "it holds %s" % ascii(strange[0]) if strange else "it has no %s" % schema.FILE))
    for name in names:
        if not stat.S_ISREG(os.stat(name, dir_fd=image, follow_symlinks=False).st_mode):
            raise HookError(DATA, "%s is not copied: it is no image, its %s is not a regular file; nothing was done" % (shown, name))
    return names


def _facts(image):
    """Return the text of an image's manifest (bytes), by the image's descriptor."""
    with open(open_file(image, schema.FILE), "rb") as stream:
        return stream.read(strict_json.LARGEST + 1)


def _copy(name, source, target):
    """Copy a file from one directory (descriptor) to another, with mode and times."""
    with open(open_file(source, name), "rb") as read, \
            open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=target), "wb") as written:
        shutil.copyfileobj(read, written, 1 << 20)
        written.flush()
        there = os.fstat(read.fileno())
        os.fchmod(written.fileno(), there.st_mode & 0o777)
        os.utime(written.fileno(), ns=(there.st_atime_ns, there.st_mtime_ns))


class Mounted:
    """The server's checkpoint directory, mounted on this node at a path (str)."""

    def __init__(self, path):
        self.path = path
        self.shown = path

    def _open(self, job):
        directory = os.open(os.path.join(self.path, job), DIRECTORY)
        owner = os.fstat(directory).st_uid
        if owner not in (0, os.geteuid()):  # who could take away what is put there
            os.close(directory)
            raise OSError(errno.EPERM, "its directory %s is another user's (%d); remove it" % (job, owner))
        return directory

    def put(self, image, job, name):
        """Lay an image (descriptor) into the directory job (str), under its name (str)."""
        directory = self._open(job)
        try:
            try:
                there = os.open(name, DIRECTORY, dir_fd=directory)
            except FileNotFoundError:
                there = None
            if there is not None:
                try:
                    if _facts(there) == _facts(image):  # a try before this one, whose answer was lost
                        return
                finally:
                    os.close(there)
            draft = Draft(directory, name)
            try:
                for entry in names_in(image):
                    _copy(entry, image, draft.descriptor)
                draft.publish()
            except BaseException:
                draft.discard()
                raise
        finally:
            os.close(directory)

    def get(self, job, name, target):
        """Copy the files of an image into a directory (descriptor)."""
        directory = self._open(job)
        try:
            image = os.open(name, DIRECTORY, dir_fd=directory)
        finally:
            os.close(directory)
        try:
            for entry in names_in(image):
                _copy(entry, image, target)
        finally:
            os.close(image)

    def names(self, job):
        """Return the names (list of str) in the directory job, hidden ones too."""
        return os.listdir(os.path.join(self.path, job))

    def generations(self, job, _names):
        """Return the generations (dict of int, by name) of those images in the directory job, of these names (list of str), that tell."""
        directory = self._open(job)
        try:
            return {image.name: image.generation for image in generations.list_images(directory)}
        finally:
            os.close(directory)

    def remove(self, job, names):
        """Remove images, or hidden directories, from the directory job."""
        directory = self._open(job)
        try:
            for name in names:
                generations.remove_directory(directory, name)
        finally:
            os.close(directory)


class Server:
    """The server's checkpoint directory by sftp.

    :param account: USER@HOST (str)
    :param ssh_config: how to reach the second sshd (path, str)
    """

    def __init__(self, account, ssh_config):
        self.account = account
        self.ssh_config = ssh_config
        self.shown = account.partition("@")[2]

    def _ask(self, commands, inherited=()):
        """Have sftp do the commands (list of str); return what they print (list of str).

        :param inherited: descriptors that the commands name
        :raises OSError: with what sftp or ssh said last
        """
        done = subprocess.Popen(["sftp", "-F", self.ssh_config, "-b", "-", self.account], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=inherited, env=_ENVIRONMENT)
        printed, said = (text.decode("utf-8", "replace").splitlines() for text in _listen(done, "\n".join(commands + [""]).encode()))
        if done.returncode:
            # ssh closes with "Connection closed", the reason is before that.
            reasons = [line.strip() for line in said if line.strip() and not line.startswith(("Connection closed", "Couldn't read", "@"))]
            raise OSError(errno.EIO, (reasons or said or ["sftp exited %d and said nothing" % done.returncode])[-1])
        return [line for line in printed if not line.startswith("sftp>")]

    def put(self, image, job, name):
        """See Mounted. The last small file is for the new name: what a file system must have on the disk for it comes after that.

        So it is with ext4, XFS and btrfs; without that file each of them still had the hidden name on the disk.
        """
        source, hidden = location.engine_path(image), generations.hide_name(name)
        go = "cd %s/%s" % (REACHED, job)
        try:
            self._ask([go, "mkdir " + hidden, "chmod 700 " + hidden]
                      + ["put -pf %s/%s %s/%s" % (source, entry, hidden, entry) for entry in names_in(image)]
                      + ["rename %s %s" % (hidden, name),
                         "put -f %s/%s %s.flushed" % (source, schema.FILE, hidden), "rm %s.flushed" % hidden], (image,))
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:  # no use in asking more
                raise
            there, free = self._has(image, job, name), self._free()
            self._tidy(job, hidden)
            if not there:  # by a try before this one, whose answer was lost
                raise OSError(errno.EIO, "%s%s" % (error.strerror, free))

    def _free(self):
        """Return what is free at the server, for a sentence (str): sftp has no word of its own for a full disk."""
        try:
            size = self._ask(["df " + REACHED])[-1].split()
            return "; %d KiB are free there" % int(size[2])
        except (OSError, ValueError, IndexError):
            return ""

    def _has(self, image, job, name):
        """Whether the server has this very image (descriptor)."""
        import tempfile
        with tempfile.TemporaryDirectory() as place:
            try:
                self._ask(["get %s/%s/%s/%s %s/theirs" % (REACHED, job, name, schema.FILE, place)])
                with open(place + "/theirs", "rb") as stream:
                    return stream.read() == _facts(image)
            except OSError:
                return False

    def _tidy(self, job, hidden):
        """Remove what a try has left; it is harmless."""
        try:
            self._ask(["cd %s/%s" % (REACHED, job), "-rm %s.flushed" % hidden, "-rm %s/*" % hidden, "-rmdir " + hidden])
        except OSError:
            pass

    def get(self, job, name, target):
        """See Mounted."""
        self._ask(["get -p %s/%s/%s/* %s/" % (REACHED, job, name, location.engine_path(target))], (target,))

    def names(self, job):
        """See Mounted."""
        return [name for name in self._ask(["cd %s/%s" % (REACHED, job), "ls -1a"]) if name not in (".", "..")]

    def generations(self, job, entries):
        """See Mounted."""
        import tempfile
        found, images = {}, [name for name in entries if split_image_name(name)]
        with tempfile.TemporaryDirectory() as place:
            self._ask(["cd %s/%s" % (REACHED, job)] + ["-get %s/%s %s/%d" % (name, schema.FILE, place, number)
                                                       for number, name in enumerate(images)])
            directory = os.open(place, DIRECTORY)
            try:
                for number, name in enumerate(images):
                    try:
                        found[name] = strict_json.read(str(number), directory)["generation"]
                        strict_json.check(found[name], strict_json.number())
                    except (OSError, ValueError, KeyError, TypeError):
                        found.pop(name, None)
            finally:
                os.close(directory)
        return found

    def remove(self, job, names):
        """See Mounted."""
        commands = ["cd %s/%s" % (REACHED, job)]
        for name in names:
            doomed = name if name.startswith(".") else generations.hide_name(name)
            commands += ["rename %s %s" % (name, doomed)] if doomed != name else []
            commands += ["-rm %s/*" % doomed, "rmdir " + doomed]
        self._ask(commands)


def _listen(process, told):
    """Tell a process (subprocess.Popen) what to do (bytes); return what it writes to both streams.

    :raises OSError: when it does nothing for PATIENCE seconds and was killed
    """
    watch = progress.Watch(process.pid, PATIENCE)
    while True:
        try:
            return process.communicate(told, timeout=progress.PAUSE)
        except subprocess.TimeoutExpired:
            told = None
        if watch.fault():
            for pid in reversed(processes.list_tree(process.pid)):
                os.kill(pid, signal.SIGKILL)
            process.communicate()
            raise OSError(errno.ETIMEDOUT, "sftp %s and was ended" % watch.fault())


def place(directory, ssh_config, account):
    """Return how the server's checkpoint directory is reached.

    :param directory: where it is mounted on this node (str), empty for sftp
    :param ssh_config: see Server
    :param account: USER@HOST (str)
    """
    return Mounted(directory) if directory else Server(account, ssh_config)


def _left_over(names):
    """Return which of the names (list of str) hidden copies of this node have that nobody makes any more."""
    found = [(name, generations.HIDDEN.fullmatch(name)) for name in names]
    return [name for name, made in found if made and made.group(1) == os.uname().nodename
            and processes.find_marked([int(made.group(2)), int(made.group(3))]) is None]


def put(way, path, job, name, keep):
    """Copy an image of this node to the server, and have no more than the newest there.

    :param way: Mounted or Server
    :param path: the image (str)
    :param job: name of the job's directory there (str)
    :param name: the image's name there (str)
    :param keep: how many of the job's images are to be there (int)
    :returns: bytes copied (int)
    :raises HookError: CANNOT_WRITE; the node's image is as it was
    """
    try:
        image = os.open(path, DIRECTORY)
    except OSError as error:
        raise HookError(NO_INPUT, "image %s cannot be copied to %s: %s; nothing was done" % (path, way.shown, error.strerror))
    try:
        size = sum(os.stat(entry, dir_fd=image).st_size for entry in _files(image, path))
        with phases.measure("copy"):
            way.put(image, job, name)
    except (OSError, HookError) as error:
        raise HookError(CANNOT_WRITE, "image %s cannot be copied to %s: %s; it stays on node %s, and its job can be restarted nowhere else"
                        % (path, way.shown, _why(error), os.uname().nodename))
    finally:
        os.close(image)
    try:
        there = way.names(job)
        known = way.generations(job, there) if sum(map(bool, map(split_image_name, there))) > keep else {}
        doomed = outdated(known, name, keep) + _left_over(there)
        if doomed:
            way.remove(job, doomed)
        _thin_out(path, there, name, keep)
    except OSError as error:  # the image is there
        syslog.log_event("copy", outcome="not removed", path=os.path.join(way.shown, job), reason=_why(error))
    return size


def _thin_out(path, there, name, keep):
    """Remove what this node has of the job's older images (path, str, is the newest), if the server has them (names, list of str), or if
    they are beyond the newest keep: pbs_mom removes the newest alone, and nobody comes back for the others."""
    directory = os.open(os.path.dirname(path), DIRECTORY)
    try:
        here = {image.name: image.generation for image in generations.list_images(directory)}
        for old in outdated(here, name, 0):
            if old in there or old in outdated(here, name, keep):
                os.rename(old, generations.hide_name(old), src_dir_fd=directory, dst_dir_fd=directory)
                generations.remove_directory(directory, generations.hide_name(old))
    finally:
        os.close(directory)


def _is_here(directory, path):
    """Whether the image (path) is in a directory (descriptor), each byte of it; None when there is nothing."""
    try:
        image = os.open(os.path.basename(path), DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        return None
    try:
        manifest.check_files(image, manifest.read(image, path), path)
        return True
    except HookError:
        return False
    finally:
        os.close(image)


def get(way, path, job, name):
    """Copy an image from the server to this node, unless it is here.

    :param path: where pbs_mom wants it (str); the directory that holds it is there
    :returns: bytes copied (int), 0 when it was here
    :raises HookError: NO_INPUT; nothing has its name here then
    """
    where = os.path.dirname(path)
    try:
        directory = os.open(where, DIRECTORY)
    except OSError as error:
        raise HookError(NO_INPUT, "image %s cannot be fetched from %s: directory %s: %s; let the user have it in this node's store "
                        "(checkpoint_store_mode, checkpoint_store_users)" % (name, way.shown, where, error.strerror))
    try:
        there = os.fstat(directory)
        if there.st_uid != os.geteuid():
            raise HookError(NO_INPUT, "image %s cannot be fetched from %s: directory %s is another user's (%d); remove it"
                            % (name, way.shown, where, there.st_uid))
        os.fchmod(directory, 0o711)  # pbs_mom has made it writable for all
        present = _is_here(directory, path)
        if present:
            return 0
        draft = Draft(directory, os.path.basename(path))
        try:
            with phases.measure("copy"):
                way.get(job, name, draft.descriptor)
            size = sum(os.stat(entry, dir_fd=draft.descriptor).st_size for entry in _files(draft.descriptor, path))
            made = os.stat(schema.FILE, dir_fd=draft.descriptor)
            os.utime(draft.descriptor, ns=(made.st_mtime_ns, made.st_mtime_ns))  # pbs_mom reckons the job's walltime by it
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
                        "image" % (name, way.shown, _why(error)))
    finally:
        os.close(directory)


def _why(error):
    return error.sentence if isinstance(error, HookError) else error.strerror or str(error)


def remove(way, job, name):
    """Remove an image from the server (L2 and the trial do; for a job pbs_server does)."""
    way.remove(job, [found for found in way.names(job) if found == name])


def attempt(way, directory, job):
    """Copy a small image to the server and back, as pbs_mom would; return what it took (dict: bytes int, seconds float).

    :param directory: one of the user's in this node's store (str)
    :param job: a directory at the server that is the user's (str)
    :raises HookError: with the reason
    """
    name = "ckpt.trial.%s.%d" % (os.uname().nodename, os.getpid())
    path, text, started = os.path.join(directory, name), os.urandom(1 << 16), time.monotonic()
    try:
        os.mkdir(path, 0o700)
        for entry in (schema.FILE, "pages"):
            with open(os.path.join(path, entry), "wb") as stream:
                stream.write(text)
        size = put(way, path, job, name, 1)
        shutil.rmtree(path)
        get(way, path, job, name)
        for entry in (schema.FILE, "pages"):
            with open(os.path.join(path, entry), "rb") as stream:
                if stream.read() != text:
                    raise HookError(DATA, "%s came back from %s as another file than it went; look at the disks" % (entry, way.shown))
        remove(way, job, name)
        return {"bytes": size, "seconds": round(time.monotonic() - started, 3)}
    except OSError as error:
        raise HookError(CANNOT_WRITE, "%s: %s" % (path, error.strerror))
    finally:
        shutil.rmtree(path, ignore_errors=True)
