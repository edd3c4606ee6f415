"""The files of an image that hold memory are compressed after the dump and decompressed in a private directory before the restart.

Programs do that, because Python's library knows neither zstd nor lz4. They are run as an engine is, as the job's owner and with
a time-out, but without its capabilities: they read what the owner can write. None may write more than the size of the plain file.
"""
import fcntl
import os
import resource
import select
import signal
import time

from ..errors import HookError, CANNOT_WRITE, ENGINE, REFUSED, TEMPORARY, TIME_CURE
from ..system import privilege
from ..system.command import run
from ..system.dirfd import list_directory
from ..units import format_bytes
from . import compressors, digest, manifest

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, BinaryIO, Callable
    from ..system.private_dir import PrivateDirectory

_F_SETPIPE_SZ, _PIECE = 1031, 1 << 20

WORTH = 64 << 10
"""Smaller files are not compressed (bytes): they are not worth a process."""


def _run(command: "list[str]", source: int, target: int, most: int, timeout: int,
         meanwhile: "Callable[[], None] | None" = None) -> "tuple[int, str]":
    """Run a program from one descriptor to another; see command.run. It is killed if it writes more than most bytes."""
    def confine() -> None:
        privilege.drop_capabilities()
        privilege.die_with_parent()  # otherwise it would continue without anybody waiting for it
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    return run(command, timeout, meanwhile, [], (source, target), confine)


def _describe_end(program: str, status: int, output: str) -> str:
    """Return how a program (its name) failed."""
    if status < 0:
        return "%s was killed by signal %d" % (program, -status)
    lines = output.strip().splitlines()
    return "%s failed with status %d: %s" % (program, status, lines[-1].strip() if lines else "it printed nothing")


# -- into the image ---------------------------------------------------------------------------------------------------

def _compress_file(image: int, name: str, program: str, level: int, timeout: int) -> "tuple[str | None, dict]":
    """Replace a plain file by a compressed one, if that is smaller; return its name, or None, and the manifest's entry of the plain one."""
    packed = name + compressors.PROGRAMS[program].suffix
    opened: "list[int]" = []
    hashed: "list[Any]" = []  # its size, its hash
    try:
        opened.append(manifest.open_file(image, name))
        opened.append(os.open(packed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=image))
        source, target = opened
        size = os.fstat(source).st_size
        status, output = _run(compressors.build_compress_command(program, level), source, target, size, timeout,
                              lambda: hashed.extend(digest.hash_file(source)))
        if status not in (0, -signal.SIGXFSZ):  # the second: the compressed file has become as large as the plain one
            raise _uncompressed(name, _describe_end(program, status, output))
        smaller = status == 0 and os.fstat(target).st_size < size
        os.unlink(name if smaller else packed, dir_fd=image)
    except OSError as error:
        raise _uncompressed(name, error.strerror)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return packed if smaller else None, {"program": program, "name": name, "size": hashed[0], "sha256_tree": hashed[1]}


def _uncompressed(name: str, reason: "str | None") -> HookError:
    return HookError(CANNOT_WRITE, "cannot compress %s of the image: %s; the job keeps running; free some space in the store, or set "
                     "checkpoint_hooks_compression to none" % (name, reason))


def compress_files(image: int, holds_memory: "Callable[[str], bool]", program: str, level: int, timeout: int) -> "dict[str, dict]":
    """As the user: compress those files of an image (descriptor) that are worth it, one after the other.

    :param holds_memory: called with a file's name, returns whether it does (engines.base.Engine)
    :param program: its name
    :param level: see compressors.build_compress_command
    :param timeout: seconds for each file
    :returns: the manifest's entries of the plain files, by the names of the compressed ones
    :raises HookError: CANNOT_WRITE if that fails, ENGINE if it takes too long; the image is useless then
    """
    bulky = [name for name in sorted(list_directory(image))
             if holds_memory(name) and os.stat(name, dir_fd=image, follow_symlinks=False).st_size >= WORTH]
    compressed = [_compress_file(image, name, program, level, timeout) for name in bulky]
    return {packed: entry for packed, entry in compressed if packed is not None}


# -- out of the image -------------------------------------------------------------------------------------------------

def _list_compressed(described: dict) -> "list[dict]":
    return [entry for entry in described["files"] if "plain" in entry]


def check_decompressible(described: dict, image_path: str, private_directory: "PrivateDirectory",
                         is_linked: "Callable[[str], bool]") -> None:
    """Check that the memory in an image can be decompressed, or copied, on this node.

    :param described: its manifest
    :param image_path: its path, for the sentences
    :param is_linked: called with a file's name, returns whether it stays in the store; manifest.check_files copies the others
    :raises HookError: REFUSED if the program is not installed, TEMPORARY if there is too little free space
    """
    for name in sorted({entry["plain"]["program"] for entry in _list_compressed(described)}):
        if name not in compressors.PROGRAMS:
            raise HookError(REFUSED, "image %s was compressed by %s, which these hooks do not know; restart it on a node whose hooks wrote "
                            "it; image kept" % (image_path, ascii(name)))
        if compressors.find_program(name) is None:
            raise HookError(REFUSED, "image %s was compressed by %s, which is not in %s on this node; install the package %s here or "
                            "restart the job on another node; image kept" % (image_path, name, compressors.format_directories(), name))
    packed_size, free = sum(entry["plain"]["size"] for entry in _list_compressed(described)), private_directory.get_free_space()
    data = {entry.get("name") for entry in described["spool"] + described["node_local"]}
    copied_size = sum(entry["size"] for entry in described["files"]
                      if "plain" not in entry and entry["name"] not in data and not is_linked(entry["name"]))
    if free is not None and packed_size + copied_size > free:
        raise HookError(TEMPORARY, "image %s needs %s to be %s, %s has %s free; free some space there, name a larger disk of this node "
                        "in checkpoint_hooks_private_directory or restart the job on another node; image kept"
                        % (image_path, format_bytes(packed_size + copied_size), "decompressed" if packed_size else "copied",
                           private_directory.path, format_bytes(free)))


class _Receiver:
    """Writes what a program sends through a pipe into a file.

    The owner can take over the program. It has nothing but its end of the pipe, so nobody can write into the file after the hash.

    writer   int: the program's end of the pipe
    received digest.Stream
    failure  OSError: why the file could not be written, or None
    late     bool: whether the time-out has passed

    :param target: the file (descriptor)
    :param most: how many bytes it may receive
    :param timeout: seconds until nothing more is read
    """

    def __init__(self, target: int, most: int, timeout: int) -> None:
        self._target, self._most, self._end = target, most, time.monotonic() + timeout
        self._reader, self.writer = os.pipe()
        self.received, self.late = digest.Stream(), False
        self.failure: "OSError | None" = None
        self._is_open = True
        try:
            fcntl.fcntl(self.writer, _F_SETPIPE_SZ, _PIECE)
        except OSError:
            pass  # its owner has many pipes; it takes longer then

    def receive(self) -> None:
        """Read until the program ends or sends too much; then it cannot send more. Called while it runs, and once more."""
        if not self._is_open:
            return
        self._is_open = False
        os.close(self.writer)
        try:
            with os.fdopen(self._reader, "rb", buffering=0) as stream:
                self._read(stream)
        except OSError as error:
            self.failure = error

    def _read(self, stream: "BinaryIO") -> None:
        while self.received.size <= self._most:
            self.late = not select.select([stream], [], [], max(0, self._end - time.monotonic()))[0]
            piece = b"" if self.late else stream.read(min(_PIECE, self._most + 1 - self.received.size))
            if not piece:
                return
            unwritten = memoryview(piece)[:self._most - self.received.size]
            self.received.add(piece)
            while unwritten:
                unwritten = unwritten[os.write(self._target, unwritten):]


def _decompress_file(image: int, entry: dict, image_path: str, private_directory: "PrivateDirectory", timeout: int) -> None:
    name, plain = entry["name"], entry["plain"]
    opened: "list[int]" = []
    try:
        opened.append(manifest.open_file(image, name))
        opened.append(manifest.open_copy(private_directory.descriptor, plain["name"]))
        receiver = _Receiver(opened[1], plain["size"], timeout)
        try:
            command = compressors.build_decompress_command(plain["program"])
            status, output = _run(command, opened[0], receiver.writer, plain["size"], timeout, receiver.receive)
        finally:
            receiver.receive()
        if receiver.late:
            raise HookError(ENGINE, "%s took longer than %d seconds for %s of the image; %s; image kept"
                            % (command[0], timeout, name, TIME_CURE))
        if receiver.failure or (status != 0 and receiver.received.size <= plain["size"]):
            reason = receiver.failure.strerror if receiver.failure else _describe_end(plain["program"], status, output)
            raise HookError(TEMPORARY, "cannot decompress %s of the image to %s: %s; try again later or on another node; image kept"
                            % (name, private_directory.path, reason))
    except OSError as error:
        raise manifest.damaged(image_path, "%s: %s" % (name, error.strerror))
    finally:
        for descriptor in opened:
            os.close(descriptor)
    received = receiver.received.size, receiver.received.hash()
    if received != (plain["size"], plain["sha256_tree"]):  # its owner has changed it since it was verified
        raise manifest.damaged(image_path, "%s has another content than was written" % name)


def decompress_files(image: int, described: dict, image_path: str, private_directory: "PrivateDirectory", timeout: int) -> None:
    """As the user: decompress the files of a verified image (descriptor) into a private directory, and check that they are those of its
    manifest.

    :param described, image_path, private_directory: see check_decompressible
    :param timeout: seconds for each file
    :raises HookError: DATA if one is not, TEMPORARY if it cannot be written there, ENGINE if that takes too long
    """
    for entry in _list_compressed(described):
        _decompress_file(image, entry, image_path, private_directory, timeout)
