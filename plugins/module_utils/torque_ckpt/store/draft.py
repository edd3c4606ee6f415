"""An image that is being written.

It is written under a hidden name and renamed when it is whole, in one step. Everything here runs as the job's owner.
"""
import errno
import os

from ..errors import HookError, CANNOT_WRITE, STORE_CURE
from ..image import manifest, schema
from ..system.dirfd import DIRECTORY, list_directory
from . import generations
from .location import get_engine_path

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Optional
    from threading import Thread

_MUCH = 32 << 20
"""From so many bytes on a draft is flushed while it is hashed."""

_RENAME_EXCHANGE = 2


class Draft:
    """An image that is being written: a hidden directory that becomes the image, or is removed.

    descriptor  int: the hidden directory
    """

    def __init__(self, job_directory: int, name: str) -> None:
        self.job_directory = job_directory
        self.name = name
        self.hidden = generations.hide_name(name)
        self._flushing: "Optional[Thread]" = None
        self._failure: "OSError | None" = None
        try:
            os.mkdir(self.hidden, 0o700, dir_fd=job_directory)
            self.descriptor = os.open(self.hidden, DIRECTORY, dir_fd=job_directory)
        except OSError as error:
            raise HookError(CANNOT_WRITE, "cannot create image %s: %s; %s" % (name, error.strerror, STORE_CURE))

    def __enter__(self) -> "Draft":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Discard the draft when the body of the with statement failed."""
        if kind is not None:
            self.discard()

    def path(self) -> str:
        """Return the draft's path for the engine."""
        return get_engine_path(self.descriptor)

    def flush(self) -> None:
        """Start to flush what is in the draft, if that is much, while the caller reads it; publish() raises what went wrong."""
        try:
            entries = list_directory(self.descriptor)  # not in the thread: the caller lists the same open directory
            if sum(os.stat(entry, dir_fd=self.descriptor).st_size for entry in entries) < _MUCH:
                return
        except OSError:
            return  # the caller will meet the error
        import threading  # small images do without

        def work() -> None:
            try:
                self._flush(entries)
            except OSError as error:
                self._failure = error
        self._flushing = threading.Thread(target=work)
        self._flushing.start()

    def _wait(self) -> None:
        if self._flushing:
            self._flushing.join()

    def _flush(self, entries: "list[str]") -> None:
        for entry in sorted(entries, key=lambda entry: entry == schema.FILE):
            flushed = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.descriptor)
            try:
                os.fsync(flushed)
            finally:
                os.close(flushed)

    def publish(self) -> None:
        """Publish the draft as the image: flush it, then rename it in one step. An image of the same name is superseded.

        :raises HookError: CANNOT_WRITE; the draft and the other image still exist then
        """
        try:
            self._wait()
            if self._failure:
                raise self._failure  # the kernel reports it only once
            self._flush(list_directory(self.descriptor))
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
            raise HookError(CANNOT_WRITE, "cannot publish image %s: %s; %s" % (self.name, error.strerror, STORE_CURE))
        if superseded:
            try:
                generations.remove_directory(self.job_directory, self.hidden)
            except OSError:
                pass  # the next sweep's
        os.close(self.descriptor)

    def _rename(self) -> bool:
        """Give the draft its name; return whether an image had it before, which has the hidden name then."""
        try:
            os.rename(self.hidden, self.name, src_dir_fd=self.job_directory, dst_dir_fd=self.job_directory)
            return False
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        superseded = [image.generation for image in generations.list_images(self.job_directory) if image.name == self.name]
        if not superseded or superseded[0] >= manifest.read_unchecked(self.descriptor).get("generation", 0):
            raise HookError(CANNOT_WRITE, "cannot publish image %s: what has its name is not an older image; it is kept; move it away, or "
                            "try again a second later" % self.name)
        try:
            self._exchange()
        except OSError as error:
            raise HookError(CANNOT_WRITE, "cannot publish image %s: one of the same second is there, and the store's file system cannot "
                            "exchange the two (%s); that one is kept; try again a second later" % (self.name, error.strerror))
        return True

    def _exchange(self) -> None:
        """Exchange the draft and what has its name, in one step."""
        import ctypes  # rarely needed, and it costs a few milliseconds
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "renameat2"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if libc.renameat2(self.job_directory, os.fsencode(self.hidden), self.job_directory, os.fsencode(self.name), _RENAME_EXCHANGE) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def discard(self) -> None:
        """Remove the draft; a leftover is harmless, so failures are not raised."""
        self._wait()
        try:
            status = os.stat(self.hidden, dir_fd=self.job_directory, follow_symlinks=False)
            if os.path.samestat(status, os.fstat(self.descriptor)):
                generations.remove_directory(self.job_directory, self.hidden)
            os.close(self.descriptor)
        except OSError:
            pass
