"""The server's checkpoint directory as a node reaches it: mounted, or by sftp through the server's second sshd, which shows nothing else
(role checkpoint_store).

An image appears there under its name whole and flushed, or not at all. Everything here runs as the job's owner.
"""
import errno
import os
import shutil
import signal
import subprocess

from ..image import schema
from ..system import processes, progress, strict_json
from ..system.dirfd import DIRECTORY, list_directory, open_file
from ..torque.names import split_image_name
from . import generations, location
from .draft import Draft

PATIENCE = 300
"""How long sftp may neither read nor write (seconds)."""

REACHED = "/checkpoint"
"""The path at which its second sshd shows the server's checkpoint directory."""

_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


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
