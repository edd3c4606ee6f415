# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The jobs that a drain holds, in a file of root's on the server: written before the hold, so that no end of a drain leaves a job held."""

import json
import os
import re
import stat

from ..torque_ckpt.system import rootfiles
from ..torque_ckpt.system.dirfd import open_file
from ..torque_ckpt.torque.names import is_job_id
from .qmgr import NAMES

NAME = "drain.json"
DRAFT = "drain.json.new"
LOCK = "drain.lock"

LARGEST = 16 << 20
"""How long the file may be (bytes)."""

PATIENCE = 5
"""How long to wait for the end of another drain, in seconds."""


class HeldJobsError(Exception):
    """The file cannot be used; the text says what, why and what to do."""


def parse(text: str) -> "dict[str, str]":
    """Return the jobs in the file's text, {job id: name of the node that it was held on}.

    :raises ValueError: with the end of a sentence, when it is not what this module writes
    """
    content = json.loads(text)
    jobs = content.get("jobs") if isinstance(content, dict) and set(content) == {"jobs"} else None
    if not isinstance(jobs, dict):
        raise ValueError("it is no list of jobs")
    for job_id, node in jobs.items():
        if not is_job_id(job_id) or not isinstance(node, str) or not re.fullmatch(NAMES["node"][0], node):
            raise ValueError("it holds something else than jobs and nodes")
    return jobs


class HeldJobs:
    """The file, which one drain at a time has.

    :param path: of its directory

    nodes  names of nodes by job id (dict): what the file holds
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.nodes: "dict[str, str]" = {}
        self._directory = self._lock = -1

    def __enter__(self) -> "HeldJobs":
        try:
            self._directory = rootfiles.open_directory(self.path)
            lock = rootfiles.lock_file(self._directory, LOCK, PATIENCE)
        except OSError as error:
            self._close()
            raise HeldJobsError("cannot note the jobs to hold in %s: %s; make it a directory of root's that nobody else can write to; "
                                "nothing was changed" % (self.path, error.strerror))
        if lock is None:
            self._close()
            raise HeldJobsError("another drain moves jobs on this host; run again when it has ended; no job was held")
        self._lock = lock
        try:
            self.nodes = self._read(self._directory)
        except HeldJobsError:
            self._close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    def _close(self) -> None:
        for descriptor in (self._lock, self._directory):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._directory = -1

    def peek(self) -> "dict[str, str]":
        """Return what the file holds, without a lock and without creating anything.

        :raises HeldJobsError: when it is not what this module writes
        """
        try:
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return {}
        try:
            return self._read(directory)
        finally:
            os.close(directory)

    def _read(self, directory: int) -> "dict[str, str]":
        """Return what the file in a directory (descriptor) holds; nothing when it is missing."""
        try:
            descriptor = open_file(directory, NAME)
            with open(descriptor, "rb") as stream:
                status = os.fstat(descriptor)
                if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    raise ValueError("others than root can write it")
                if status.st_size > LARGEST:
                    raise ValueError("it is larger than %d bytes" % LARGEST)
                return parse(stream.read().decode("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise HeldJobsError("%s/%s cannot be read: %s; look for jobs that a drain held (qselect -h o), release them (qrls -h o JOB) "
                                "and remove the file; no job was held" % (self.path, NAME, getattr(error, "strerror", None) or error))

    def add(self, job_id: str, node: str) -> None:
        """Note a job before it is held on a node.

        :raises HeldJobsError: when that is not on the disk
        """
        self.nodes[job_id] = node
        try:
            self._write()
        except HeldJobsError:
            del self.nodes[job_id]
            raise

    def remove(self, job_id: str) -> None:
        """Forget a job that has no hold of ours; with the last one the file is removed."""
        if self.nodes.pop(job_id, None) is not None:
            self._write()

    def _write(self) -> None:
        try:
            if self.nodes:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                with open(os.open(DRAFT, flags, 0o600, dir_fd=self._directory), "w") as stream:
                    json.dump({"jobs": self.nodes}, stream, indent=1, sort_keys=True)
                    stream.flush()
                    os.fsync(stream.fileno())
                os.rename(DRAFT, NAME, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            else:
                self._unlink()
            os.fsync(self._directory)
        except OSError as error:
            raise HeldJobsError("cannot write %s/%s: %s" % (self.path, NAME, error.strerror))

    def _unlink(self) -> None:
        try:
            os.unlink(NAME, dir_fd=self._directory)
        except FileNotFoundError:
            pass
