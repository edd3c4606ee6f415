"""What holds memory in an image is compressed after the dump, and decompressed in a private place before the restart.

Programs do that, because Python's library knows neither zstd nor lz4. They are called as an engine is, by the job's owner and with
a time-out, but without its capabilities: they read what the owner can write. None writes more than the plain file has.
"""
import fcntl
import os
import resource
import select
import signal
import time

from ..errors import HookError, CANNOT_WRITE, ENGINE, REFUSED, TEMPORARY
from ..system import privilege
from ..system.command import run
from ..system.dirfd import names_in
from ..units import format_bytes
from . import compressors, digest, manifest

_F_SETPIPE_SZ, _PIECE = 1031, 1 << 20

WORTH = 64 << 10
"""Files that are smaller stay as they are (bytes): they are not worth a process."""


def _run(command, source, target, most, timeout, meanwhile=None):
    """Run a program from one descriptor to another; see command.run. It is killed when it writes more than most bytes (int)."""
    def confine():
        privilege.drop_capabilities()
        privilege.die_with_parent()  # or it would work on for nobody
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    return run(command, timeout, meanwhile, [], (source, target), confine)


def _ended(program, status, output):
    """Say how a program (its name, str) failed (str)."""
    if status < 0:
        return "%s was killed by signal %d" % (program, -status)
    lines = output.strip().splitlines()
    return "%s failed with status %d: %s" % (program, status, lines[-1].strip() if lines else "it printed nothing")


# -- into the image ---------------------------------------------------------------------------------------------------

def _compress(image, name, program, level, timeout):
    """Put a compressed file in the place of a plain one, if it is smaller; return its name and what the manifest says of the plain one."""
    packed, opened = name + compressors.PROGRAMS[program].suffix, []
    try:
        opened.append(manifest.open_file(image, name))
        opened.append(os.open(packed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=image))
        source, target = opened
        size, seen = os.fstat(source).st_size, []
        status, output = _run(compressors.compressing(program, level), source, target, size, timeout,
                              lambda: seen.extend(digest.hash_file(source)))
        if status not in (0, -signal.SIGXFSZ):  # the second: it has become as large as the plain one
            raise _uncompressed(name, _ended(program, status, output))
        smaller = status == 0 and os.fstat(target).st_size < size
        os.unlink(name if smaller else packed, dir_fd=image)
    except OSError as error:
        raise _uncompressed(name, error.strerror)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return packed if smaller else None, {"program": program, "name": name, "size": seen[0], "sha256_tree": seen[1]}


def _uncompressed(name, why):
    return HookError(CANNOT_WRITE, "cannot compress %s of the image: %s; the job runs on; free room in the store, or set "
                     "checkpoint_hooks_compression to none" % (name, why))


def compress(image, holds_memory, program, level, timeout):
    """As the user: compress what is worth it in an image (descriptor), one file after the other.

    :param holds_memory: says of a file's name whether it does (engines.base.Engine)
    :param program: its name (str)
    :param level: int, see compressors.compressing
    :param timeout: seconds for each file (int)
    :returns: what the manifest says of the plain files, by the names of the compressed ones (dict)
    :raises HookError: CANNOT_WRITE when that fails, ENGINE when it takes too long; the image is useless then
    """
    bulky = [name for name in sorted(names_in(image))
             if holds_memory(name) and os.stat(name, dir_fd=image, follow_symlinks=False).st_size >= WORTH]
    made = dict(_compress(image, name, program, level, timeout) for name in bulky)
    made.pop(None, None)
    return made


# -- out of the image -------------------------------------------------------------------------------------------------

def _packed(found):
    return [entry for entry in found["files"] if "plain" in entry]


def check(found, shown, place, linked):
    """Prove that what an image has of memory can be decompressed, or copied, on this node.

    :param found: its manifest (dict)
    :param shown: its path, for the sentences (str)
    :param place: private_dir.Place
    :param linked: says of a file's name whether it stays in the store; manifest.check_files copies the others
    :raises HookError: REFUSED for want of the program, TEMPORARY for want of room
    """
    for name in sorted({entry["plain"]["program"] for entry in _packed(found)}):
        if name not in compressors.PROGRAMS:
            raise HookError(REFUSED, "image %s was compressed by %s, which these hooks do not know; restart it on a node whose hooks made "
                            "it; image kept" % (shown, ascii(name)))
        if compressors.find(name) is None:
            raise HookError(REFUSED, "image %s was compressed by %s, which is not in %s on this node; install the package %s here or "
                            "restart the job on another node; image kept" % (shown, name, compressors.looked_for(), name))
    packed, free = sum(entry["plain"]["size"] for entry in _packed(found)), place.free()
    data = {entry.get("name") for entry in found["spool"] + found["carried"]}
    copied = sum(entry["size"] for entry in found["files"]
                 if "plain" not in entry and entry["name"] not in data and not linked(entry["name"]))
    if free is not None and packed + copied > free:
        raise HookError(TEMPORARY, "image %s needs %s to be %s, %s has %s free; free room there, name a larger disk of this node "
                        "in checkpoint_hooks_private_directory or restart the job on another node; image kept"
                        % (shown, format_bytes(packed + copied), "decompressed" if packed else "copied", place.path, format_bytes(free)))


class _Receiver:
    """Writes what a program sends through a pipe into a file.

    The program is the owner's to take over. It has this end of nothing but the pipe, so nobody can write into the file behind the hash.

    writer   int: the program's end of the pipe
    seen     digest.Stream
    failure  OSError: why the file could not be written, or None
    late     bool: whether the time was over

    :param target: the file (descriptor)
    :param most: how many bytes it may get (int)
    :param timeout: seconds until nothing more is read (int)
    """

    def __init__(self, target, most, timeout):
        self._target, self._most, self._end = target, most, time.monotonic() + timeout
        self._reader, self.writer = os.pipe()
        self.seen, self.failure, self.late = digest.Stream(), None, False
        try:
            fcntl.fcntl(self.writer, _F_SETPIPE_SZ, _PIECE)
        except OSError:
            pass  # its owner has many pipes; it takes longer then

    def receive(self):
        """Read until the program ends, or sends too much; it cannot send more then. To be called while it runs, and once more."""
        if self.writer is None:
            return
        os.close(self.writer)
        self.writer = None
        try:
            with os.fdopen(self._reader, "rb", buffering=0) as stream:
                self._read(stream)
        except OSError as error:
            self.failure = error

    def _read(self, stream):
        while self.seen.size <= self._most:
            self.late = not select.select([stream], [], [], max(0, self._end - time.monotonic()))[0]
            piece = b"" if self.late else stream.read(min(_PIECE, self._most + 1 - self.seen.size))
            if not piece:
                return
            wanted = memoryview(piece)[:self._most - self.seen.size]
            self.seen.add(piece)
            while wanted:
                wanted = wanted[os.write(self._target, wanted):]


def _decompress(image, entry, shown, place, timeout):
    name, plain, opened = entry["name"], entry["plain"], []
    try:
        opened.append(manifest.open_file(image, name))
        opened.append(manifest.open_copy(place.descriptor, plain["name"]))
        receiver = _Receiver(opened[1], plain["size"], timeout)
        try:
            command = compressors.decompressing(plain["program"])
            status, output = _run(command, opened[0], receiver.writer, plain["size"], timeout, receiver.receive)
        finally:
            receiver.receive()
        if receiver.late:
            raise HookError(ENGINE, "%s took longer than %d seconds" % (command[0], timeout))
        if receiver.failure or (status != 0 and receiver.seen.size <= plain["size"]):
            why = receiver.failure.strerror if receiver.failure else _ended(plain["program"], status, output)
            raise HookError(TEMPORARY, "cannot decompress %s of the image to %s: %s; try again later or on another node; image kept"
                            % (name, place.path, why))
    except OSError as error:
        raise manifest.damaged(shown, "%s: %s" % (name, error.strerror))
    finally:
        for descriptor in opened:
            os.close(descriptor)
    seen = receiver.seen.size, receiver.seen.hash()
    if seen != (plain["size"], plain["sha256_tree"]):  # its owner has changed it since it was verified
        raise manifest.damaged(shown, "%s has another content than was written" % name)


def decompress(image, found, shown, place, timeout):
    """As the user: put the plain files of an image (descriptor), which was verified, to a private place, and prove that they are those.

    :param found, shown, place: see check
    :param timeout: seconds for each file (int)
    :raises HookError: DATA when one is not, TEMPORARY when it cannot be put there, ENGINE when that takes too long
    """
    for entry in _packed(found):
        _decompress(image, entry, shown, place, timeout)
