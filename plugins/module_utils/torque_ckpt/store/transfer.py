"""Copies of images between a node and the server, if each node has a store of its own.

pbs_mom removes the node's image when a copy to the server has succeeded, and tries again, over what exists, when it failed. So an image
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
from ..system.dirfd import DIRECTORY, list_directory, open_file
from ..telemetry import syslog
from ..torque.names import split_image_name
from . import generations, location
from .draft import Draft


PATIENCE = 300
"""How long sftp may neither read nor write (seconds)."""

REACHED = "/checkpoint"
"""The path at which its second sshd shows the server's checkpoint directory."""

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


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


def _list_files(image: int, path: str) -> "list[str]":
    """Return the names in an image (descriptor): files, each of which can be read without waiting for anybody."""
    names = sorted(list_directory(image))
    strange = [name for name in names if not _PLAIN.fullmatch(name)]
    if strange or schema.FILE not in names:
        raise HookError(DATA, "%s is not copied: it is no image, %s; nothing was done" % (
            path, "it holds %s" % ascii(strange[0]) if strange else "it has no %s" % schema.FILE))
    for name in names:
        if not stat.S_ISREG(os.stat(name, dir_fd=image, follow_symlinks=False).st_mode):
            raise HookError(DATA, "%s is not copied: it is no image, its %s is not a regular file; nothing was done" % (path, name))
    return names


def _read_manifest(image: int) -> bytes:
    """Return the text of an image's manifest, by the image's descriptor."""
    with open(open_file(image, schema.FILE), "rb") as stream:
        return stream.read(strict_json.LARGEST + 1)


def _copy_file(name: str, source: int, target: int) -> None:
    """Copy a file from one directory (descriptor) to another, with mode and times."""
    with open(open_file(source, name), "rb") as read, \
            open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=target), "wb") as written:
        shutil.copyfileobj(read, written, 1 << 20)
        written.flush()
        status = os.fstat(read.fileno())
        os.fchmod(written.fileno(), status.st_mode & 0o777)
        os.utime(written.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


class MountedServer:
    """The server's checkpoint directory, mounted on this node at a path.

    label  str: the path, for sentences
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.label = path

    def _open_directory(self, job: str) -> int:
        directory = os.open(os.path.join(self.path, job), DIRECTORY)
        owner = os.fstat(directory).st_uid
        if owner not in (0, os.geteuid()):  # who could remove what is copied there
            os.close(directory)
            raise OSError(errno.EPERM, "its directory %s is another user's (%d); remove it" % (job, owner))
        return directory

    def put_image(self, image: int, job: str, name: str) -> None:
        """Copy an image (descriptor) into the directory job, under its name."""
        directory = self._open_directory(job)
        try:
            try:
                existing = os.open(name, DIRECTORY, dir_fd=directory)
            except FileNotFoundError:
                existing = None
            if existing is not None:
                try:
                    if _read_manifest(existing) == _read_manifest(image):  # a previous attempt, whose answer was lost
                        return
                finally:
                    os.close(existing)
            draft = Draft(directory, name)
            try:
                for entry in list_directory(image):
                    _copy_file(entry, image, draft.descriptor)
                draft.publish()
            except BaseException:
                draft.discard()
                raise
        finally:
            os.close(directory)

    def get_image(self, job: str, name: str, target: int) -> None:
        """Copy the files of an image into a directory (descriptor)."""
        directory = self._open_directory(job)
        try:
            image = os.open(name, DIRECTORY, dir_fd=directory)
        finally:
            os.close(directory)
        try:
            for entry in list_directory(image):
                _copy_file(entry, image, target)
        finally:
            os.close(image)

    def list_names(self, job: str) -> "list[str]":
        """Return the names in the directory job, hidden ones too."""
        return os.listdir(os.path.join(self.path, job))

    def read_generations(self, job: str, _names: "list[str]") -> "dict[str, int]":
        """Return the generations that images of these names have, by name, in the directory job."""
        directory = self._open_directory(job)
        try:
            return {image.name: image.generation for image in generations.list_images(directory)}
        finally:
            os.close(directory)

    def remove_images(self, job: str, names: "list[str]") -> None:
        """Remove images, or hidden directories, from the directory job."""
        directory = self._open_directory(job)
        try:
            for name in names:
                generations.remove_directory(directory, name)
        finally:
            os.close(directory)


class SftpServer:
    """The server's checkpoint directory by sftp.

    label  str: the server's host name, for sentences

    :param account: USER@HOST
    :param ssh_config: how to reach the second sshd (path)
    """

    def __init__(self, account: str, ssh_config: str) -> None:
        self.account = account
        self.ssh_config = ssh_config
        self.label = account.partition("@")[2]

    def _run_sftp(self, commands: "list[str]", inherited: "tuple[int, ...]" = ()) -> "list[str]":
        """Run the commands in sftp; return the lines that they print.

        :param inherited: descriptors that the commands name
        :raises OSError: with the last message of sftp or ssh
        """
        # pylint: disable-next=ansible-bad-function  # the hooks have no AnsibleModule
        process = subprocess.Popen(["sftp", "-F", self.ssh_config, "-b", "-", self.account], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=inherited, env=_ENVIRONMENT)
        streams = _communicate(process, "\n".join(commands + [""]).encode())
        output, messages = (stream.decode("utf-8", "replace").splitlines() for stream in streams)
        if process.returncode:
            # ssh closes with "Connection closed", the reason is before that.
            reasons = [line.strip() for line in messages
                       if line.strip() and not line.startswith(("Connection closed", "Couldn't read", "@"))]
            raise OSError(errno.EIO, (reasons or messages or ["sftp exited %d and printed nothing" % process.returncode])[-1])
        return [line for line in output if not line.startswith("sftp>")]

    def put_image(self, image: int, job: str, name: str) -> None:
        """See MountedServer. The last small file is for the new name: what a file system must have on the disk for it comes after that.

        So it is with ext4, XFS and btrfs; without that file each of them still had the hidden name on the disk.
        """
        source, hidden = location.get_engine_path(image), generations.hide_name(name)
        go = "cd %s/%s" % (REACHED, job)
        try:
            self._run_sftp([go, "mkdir " + hidden, "chmod 700 " + hidden]
                           + ["put -pf %s/%s %s/%s" % (source, entry, hidden, entry) for entry in list_directory(image)]
                           + ["rename %s %s" % (hidden, name),
                              "put -f %s/%s %s.flushed" % (source, schema.FILE, hidden), "rm %s.flushed" % hidden], (image,))
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:  # further commands would time out, too
                raise
            arrived, free_space = self._has_image(image, job, name), self._describe_free_space()
            self._remove_hidden(job, hidden)
            if not arrived:  # by a previous attempt, whose answer was lost
                raise OSError(errno.EIO, "%s%s" % (error.strerror, free_space))

    def _describe_free_space(self) -> str:
        """Return the free space at the server, for a sentence: sftp has no message of its own for a full disk."""
        try:
            size = self._run_sftp(["df " + REACHED])[-1].split()
            return "; %d KiB are free there" % int(size[2])
        except (OSError, ValueError, IndexError):
            return ""

    def _has_image(self, image: int, job: str, name: str) -> bool:
        """Whether the server has this very image (descriptor)."""
        import tempfile
        with tempfile.TemporaryDirectory() as temporary:
            try:
                self._run_sftp(["get %s/%s/%s/%s %s/theirs" % (REACHED, job, name, schema.FILE, temporary)])
                with open(temporary + "/theirs", "rb") as stream:
                    return stream.read() == _read_manifest(image)
            except OSError:
                return False

    def _remove_hidden(self, job: str, hidden: str) -> None:
        """Remove what a failed attempt has left; it is harmless."""
        try:
            self._run_sftp(["cd %s/%s" % (REACHED, job), "-rm %s.flushed" % hidden, "-rm %s/*" % hidden, "-rmdir " + hidden])
        except OSError:
            pass

    def get_image(self, job: str, name: str, target: int) -> None:
        """See MountedServer."""
        self._run_sftp(["get -p %s/%s/%s/* %s/" % (REACHED, job, name, location.get_engine_path(target))], (target,))

    def list_names(self, job: str) -> "list[str]":
        """See MountedServer."""
        return [name for name in self._run_sftp(["cd %s/%s" % (REACHED, job), "ls -1a"]) if name not in (".", "..")]

    def read_generations(self, job: str, entries: "list[str]") -> "dict[str, int]":
        """See MountedServer."""
        import tempfile
        numbers, images = {}, [name for name in entries if split_image_name(name)]
        with tempfile.TemporaryDirectory() as temporary:
            self._run_sftp(["cd %s/%s" % (REACHED, job)] + ["-get %s/%s %s/%d" % (name, schema.FILE, temporary, number)
                                                            for number, name in enumerate(images)])
            directory = os.open(temporary, DIRECTORY)
            try:
                for number, name in enumerate(images):
                    try:
                        numbers[name] = strict_json.read_json(str(number), directory)["generation"]
                        strict_json.check_kind(numbers[name], strict_json.number())
                    except (OSError, ValueError, KeyError, TypeError):
                        numbers.pop(name, None)
            finally:
                os.close(directory)
        return numbers

    def remove_images(self, job: str, names: "list[str]") -> None:
        """See MountedServer."""
        commands = ["cd %s/%s" % (REACHED, job)]
        for name in names:
            hidden = name if name.startswith(".") else generations.hide_name(name)
            commands += ["rename %s %s" % (name, hidden)] if hidden != name else []
            commands += ["-rm %s/*" % hidden, "rmdir " + hidden]
        self._run_sftp(commands)


def _communicate(process: "subprocess.Popen[bytes]", commands: "bytes | None") -> "tuple[bytes, bytes]":
    """Write commands to a process; return what it writes to both streams.

    :raises OSError: when it does nothing for PATIENCE seconds and was killed
    """
    watch = progress.Watch(process.pid, PATIENCE)
    while True:
        try:
            return process.communicate(commands, timeout=progress.PAUSE)
        except subprocess.TimeoutExpired:
            commands = None
        if watch.find_fault():
            root = processes.read_process(process.pid)
            processes.signal_processes(reversed(processes.list_family(root)) if root else (), signal.SIGKILL)
            process.communicate()
            raise OSError(errno.ETIMEDOUT, "sftp %s and was ended" % watch.find_fault())


def find_server(directory: str, ssh_config: str, account: str) -> "MountedServer | SftpServer":
    """Return the server by which this node reaches the server's checkpoint directory.

    :param directory: where it is mounted on this node, empty for sftp
    :param ssh_config, account: see SftpServer
    """
    return MountedServer(directory) if directory else SftpServer(account, ssh_config)


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


def copy_to_server(server: "MountedServer | SftpServer", path: str, job: str, name: str, depth: int) -> int:
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
        raise HookError(NO_INPUT, "image %s cannot be copied to %s: %s; nothing was done" % (path, server.label, error.strerror))
    try:
        size = sum(os.stat(entry, dir_fd=image).st_size for entry in _list_files(image, path))
        keep = _read_depth(image, depth)
        with phases.measure("copy"):
            server.put_image(image, job, name)
    except (OSError, HookError) as error:
        raise HookError(CANNOT_WRITE, "image %s cannot be copied to %s: %s; it stays on node %s, and its job can be restarted nowhere else"
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


def fetch_from_server(server: "MountedServer | SftpServer", path: str, job: str, name: str) -> int:
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
            size = sum(os.stat(entry, dir_fd=draft.descriptor).st_size for entry in _list_files(draft.descriptor, path))
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


def remove_from_server(server: "MountedServer | SftpServer", job: str, name: str) -> None:
    """Remove an image from the server (L2 and try_transfer do; for a job pbs_server does)."""
    server.remove_images(job, [candidate for candidate in server.list_names(job) if candidate == name])


def try_transfer(server: "MountedServer | SftpServer", directory: str, job: str) -> "dict[str, float]":
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
        raise HookError(CANNOT_WRITE, "%s: %s" % (path, error.strerror))
    finally:
        shutil.rmtree(path, ignore_errors=True)
