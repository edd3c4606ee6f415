"""BLCR: kernel modules and their commands, run as the job's owner. Kernels 3.5 to 3.17.

Its commands check little: a checkpoint that fails may leave the job stopped, an image has no checksum, and a program that was
replaced restarts and crashes. What they do not check is checked here, and in manifest.py.
"""
import errno
import hashlib
import json
import os
import re
import time

from ..errors import HookError, CANNOT_WRITE, CONFIG, ENGINE, ENGINE_CURE, REFUSED, RESTORE_CURE, STORE_CURE, TEMPORARY, quote_name
from ..system import processes, strict_json
from ..system.command import run
from .base import Engine

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Optional, Sequence

CONTEXT = "context"
"""The image itself, in BLCR's own format."""
DESCRIPTION = "context.json"
"""What this module needs to know about it: pids, suspended (lists of int), mapped (path: [size, sha256]), lost (list of str)."""

_COMMANDS = ("cr_run", "cr_checkpoint", "cr_restart")
_CONTROL = "/proc/checkpoint/ctrl"
"""What BLCR's modules create when they are loaded."""
_LEFT = 86
"""The status with which cr_restart ends when the tree is restored: it shall not stay as the parent of the job. None of its own codes."""
_NOT_LOADED, _NOT_UNDER_CR_RUN = 38, 52  # ENOSYS, EBADE: the errno is the exit status
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_TEMPORARY = (12, 16)  # ENOMEM, EBUSY
_STOP_SECONDS = 60
"""How long the processes may take to stop when BLCR has signalled them (seconds)."""


def find_reason(output: str) -> str:
    """Return BLCR's own reason out of what a command printed: what its modules report, or else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    kernel = [line[2:] for line in lines if line.startswith("- ")]
    return (kernel or lines[-1:] or ["it printed nothing"])[0].rstrip(".")


def _is_stopped(pid: int) -> bool:
    process = processes.read_process(pid)
    return process is None or process.state in "TtZX"


def _wait_until_stopped(root: int, consequence: str) -> None:
    """Wait until no process of the tree under root (pid) runs; BLCR signals them when it is done, they stop a moment later.

    :param consequence: what becomes of the job if one does not, a part of the sentence
    :raises HookError: ENGINE then
    """
    late = time.monotonic() + _STOP_SECONDS
    while not all(map(_is_stopped, processes.list_tree(root))):
        if time.monotonic() > late:
            raise HookError(ENGINE, "not all processes had stopped %d seconds after BLCR signalled them; %s; see whether one waits for a "
                            "file system that does not answer (state D of ps)" % (_STOP_SECONDS, consequence))
        time.sleep(0.001)


def _resume(root: int, suspended: "list[int]") -> None:
    """Resume the tree under root (pid), except what had been suspended (pids)."""
    process = processes.read_process(root)
    if process:
        processes.resume_tree(process, suspended)


def _find_mapped_files(pids: "list[int]") -> "list[str]":
    """Return the paths (sorted) of the files that processes (pids) have mapped."""
    paths: "set[bytes]" = set()
    for pid in pids:
        try:
            with open("/proc/%d/maps" % pid, "rb") as stream:
                fields = [line.rstrip(b"\n").split(None, 5) for line in stream]
        except OSError:
            continue  # it has ended
        paths.update(line[5] for line in fields if len(line) == 6 and line[1] in (b"r-xp", b"r--p"))
    return sorted(os.fsdecode(path) for path in paths if path.startswith(b"/") and not path.endswith(b" (deleted)"))


def _describe_file(path: str) -> "list[Any] | None":
    """Return [size, sha256] of a file, or None when it cannot be read."""
    checksum = hashlib.sha256()
    size = 0
    try:
        with open(path, "rb") as stream:
            for chunk in iter(lambda: stream.read(1 << 20), b""):
                checksum.update(chunk)
                size += len(chunk)
    except OSError:
        return None
    return [size, checksum.hexdigest()]


def _list_threads(pids: "list[int]") -> "list[int]":
    """Return the ids (sorted) of all threads of processes (pids)."""
    threads = set(pids)
    for pid in pids:
        try:
            threads.update(map(int, os.listdir("/proc/%d/task" % pid)))
        except OSError:
            pass
    return sorted(threads)


def _read_lines(path: str) -> "list[bytes]":
    try:
        with open(path, "rb") as stream:
            return stream.readlines()
    except OSError:
        return []


def _find_sockets(pid: int) -> "set[str]":
    """Return the names of the sockets that a process has open."""
    try:
        targets = [os.readlink("/proc/%d/fd/%s" % (pid, name)) for name in os.listdir("/proc/%d/fd" % pid)]
    except OSError:
        return set()
    return {target for target in targets if target.startswith("socket:")}


def _list_lost(pids: "list[int]") -> "list[str]":
    """Return what processes (pids) have that BLCR does not restore. BLCR itself reports none of it."""
    states = [getattr(processes.read_process(pid), "state", "") for pid in pids]
    counts = (("socket", len(set().union(*map(_find_sockets, pids)))),
              ("POSIX timer", sum(line.startswith(b"ID:") for pid in pids for line in _read_lines("/proc/%d/timers" % pid))),
              ("System V shared memory segment", len({line.split(None, 5)[4] for pid in pids for line in _read_lines("/proc/%d/maps" % pid)
                                                      if b" /SYSV" in line})),
              ("zombie", states.count("Z")))
    return ["%d %s%s" % (count, name, "s" if count > 1 else "") for name, count in counts if count]


def _create_file(directory: str, name: str) -> int:
    return os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _make_write_error(name: str, error: OSError) -> HookError:
    return HookError(CANNOT_WRITE, "cannot write %s of the image: %s; the job keeps running; %s" % (name, error.strerror, STORE_CURE))


class Blcr(Engine):
    """See base.Engine.

    :param path: directory of BLCR's commands
    :param dump_options: further options of every cr_checkpoint, such as --save-exe
    :param restore_options: further options of every cr_restart, such as --relocate
    :param timeout: seconds a call may take
    """

    name = "blcr"
    stops = stops_late = True

    def __init__(self, path: str, dump_options: "Sequence[str]" = (), restore_options: "Sequence[str]" = (), timeout: int = 3600) -> None:
        self.path = path
        self.dump_options = list(dump_options)
        self.restore_options = list(restore_options)
        self.timeout = timeout
        for command in _COMMANDS:
            if not os.access(self._get_command_path(command), os.X_OK):
                raise HookError(CONFIG, "%s is not in %s on this node; run the role blcr" % (command, path))

    def _get_command_path(self, name: str) -> str:
        return os.path.join(self.path, name)

    @property
    def keeps_ids(self) -> bool:
        """See Engine."""
        return "--no-restore-pid" not in self.restore_options

    def build_command(self, arguments: "list[str]") -> "list[str]":
        """See Engine. cr_run preloads the library without which BLCR cannot stop a process."""
        return [self._get_command_path("cr_run"), "--"] + arguments

    @staticmethod
    def find_difference(manifest: dict, node: dict) -> str:
        """See Engine. Addresses of one build of the kernel are in the image, with which it would crash another."""
        build, own = [(side["kernel"], side["kernel_version"]) for side in (manifest, node)]
        return "was written by BLCR on kernel %s (%s), this node has %s (%s)" % (build + own) if build != own else ""

    @classmethod
    def probe(cls, options: dict) -> "dict[str, Any]":
        """See Engine; also path, and which of BLCR's kernel modules are loaded."""
        try:
            version = cls(**options).read_version()
        except HookError:
            version = ""
        loaded = [line.split()[0] for line in _read_lines("/proc/modules")]
        return {"path": options["path"], "version": version,
                "modules": [name for name in ("blcr", "blcr_imports") if name.encode("ascii") in loaded]}

    def read_version(self) -> str:
        """See Engine."""
        status, output = run([self._get_command_path("cr_checkpoint"), "--version"], self.timeout)
        match = re.search(r"version *(\S+)", output)
        if status != 0 or not match:
            raise HookError(ENGINE, "%s --version failed: %s; run the role blcr"
                            % (self._get_command_path("cr_checkpoint"), find_reason(output)))
        return match.group(1)

    def check_node(self) -> None:
        """See Engine. The modules belong to one build of a kernel, so that a node may have lost them with its last boot."""
        if not os.path.exists(_CONTROL):
            raise HookError(CONFIG, "BLCR's kernel modules are not loaded on this node (kernel %s; there is no %s); run the role blcr"
                            % (os.uname().release, _CONTROL))

    def dump(self, root: int, directory: str, stop: bool, action_script: "str | None" = None,
             meanwhile: "Optional[Callable[[], None]]" = None, memory: "str | None" = None, removed: "int | None" = None,
             connected: bool = False, leased: bool = False) -> None:
        """See Engine. The processes are stopped in any case: with --kill or --term BLCR ends them even when it fails."""
        suspended = processes.list_stopped(root)
        try:
            self._write_context(root, memory or directory, meanwhile)
            _wait_until_stopped(root, "the job keeps running")
            pids = processes.list_tree(root)
            if action_script:
                self._run_action_script(action_script, "the job keeps running")
        except BaseException:
            _resume(root, suspended)
            raise
        threads, paths, lost = _list_threads(pids), _find_mapped_files(pids), _list_lost(pids)
        if not stop:
            _resume(root, suspended)
        mapped = {path: description for path, description in ((path, _describe_file(path)) for path in paths) if description}
        try:
            with os.fdopen(_create_file(directory, DESCRIPTION), "w") as stream:
                json.dump({"pids": threads, "suspended": suspended, "lost": lost, "mapped": mapped}, stream)
        except OSError as error:
            raise _make_write_error(DESCRIPTION, error)

    def _write_context(self, root: int, directory: str, meanwhile: "Optional[Callable[[], None]]") -> None:
        try:
            context = _create_file(directory, CONTEXT)
        except OSError as error:
            raise _make_write_error(CONTEXT, error)
        try:
            # What is written is flushed with the rest of the image, when the job need not wait.
            status, output = run([self._get_command_path("cr_checkpoint"), "--tree", str(root), "--stop", "--nosync", "-F", str(context)]
                                 + self.dump_options, self.timeout, meanwhile, [context])
        finally:
            os.close(context)
        if status != 0:
            self._check_access("the job keeps running")
        # If the store gets full meanwhile, its modules report that, but the status may differ (22).
        errno_match = re.search(r"returned -(\d+)", output)
        number = int(errno_match.group(1)) if status != 0 and errno_match else status
        if number in _NO_ROOM:
            raise HookError(CANNOT_WRITE, "there is no space for the image: %s (cr_checkpoint: %s); the job keeps running; free some "
                            "space in the store" % (os.strerror(number), find_reason(output)))
        if status == _NOT_UNDER_CR_RUN:
            raise HookError(ENGINE, "a process of the job was not started under cr_run, or is linked statically, so that BLCR cannot "
                            "checkpoint it (cr_checkpoint: %s); the job keeps running; submit it with qsub -c enabled, and link its "
                            "programs dynamically" % find_reason(output))
        if status == _NOT_LOADED or "cr_init" in output:
            raise HookError(CONFIG, "BLCR's kernel modules are not loaded on this node (cr_checkpoint: %s); the job keeps running; "
                            "run the role blcr" % find_reason(output))
        if status != 0:
            raise HookError(ENGINE, "cr_checkpoint failed with status %d: %s; the job keeps running; %s"
                            % (status, find_reason(output), ENGINE_CURE))

    @staticmethod
    def _check_access(consequence: str) -> None:
        """Raise a HookError if BLCR's modules are loaded, but not for this user: its commands report that as many other things.

        :param consequence: what becomes of the job, the end of the sentence
        :raises HookError: REFUSED
        """
        if os.path.exists(_CONTROL) and not os.access(_CONTROL, os.R_OK | os.W_OK):
            raise HookError(REFUSED, "user %d may not use BLCR on this node: %s is for its group only (blcr_ctrl_group); make the user a "
                            "member of it; %s" % (os.getuid(), _CONTROL, consequence))

    def _run_action_script(self, action_script: str, consequence: str) -> None:
        status, output = run([action_script], self.timeout)
        if status != 0:
            raise HookError(ENGINE, "%s failed with status %d: %s; %s" % (action_script, status, find_reason(output), consequence))

    def list_process_ids(self, directory: int) -> "list[int]":
        """See Engine."""
        return self._read_description(directory)["pids"]

    def list_lost_resources(self, directory: int) -> "list[str]":
        """See Engine."""
        return self._read_description(directory)["lost"]

    def _read_description(self, directory: int) -> "dict[str, Any]":
        return strict_json.read_json(DESCRIPTION, directory)

    def is_memory(self, name: str) -> bool:
        """See Engine. What the kernel restores by and what it restores is one file."""
        return False

    def holds_memory(self, name: str) -> bool:
        """See Engine."""
        return name == CONTEXT

    def restore(self, directory: str, action_script: "str | None" = None, connected: bool = False, pause: int = 0) -> None:
        """See Engine."""
        with open(os.path.join(directory, DESCRIPTION)) as stream:
            about = json.load(stream)
        self._check_mapped(about["mapped"])
        before = processes.list_children(os.getppid())
        context = os.open(os.path.join(directory, CONTEXT), os.O_RDONLY | os.O_NOFOLLOW)
        try:
            # The job has what cr_restart has open, and is left in its process group, which is the job's alone then: --restore-pgid finds
            # the group of two processes in use.
            status, output = run([self._get_command_path("cr_restart"), "-F", str(context), "--stop", "--run-on-success", "exit %d" % _LEFT]
                                 + self.restore_options, self.timeout, inherited=[context])
        finally:
            os.close(context)
        if status != _LEFT:
            self._check_access("image kept")
            raise self._explain_failure(status, output)
        for root in self._list_new_children(before):
            _wait_until_stopped(root, "image kept")
            if action_script:
                self._run_action_script(action_script, "image kept")
            _resume(root, about["suspended"])

    def _list_new_children(self, before: "list[int]") -> "list[int]":
        return [pid for pid in processes.list_children(os.getppid()) if pid not in before]

    def _explain_failure(self, status: int, output: str) -> HookError:
        """Return the HookError for a cr_restart that ended with this status."""
        if status in _TEMPORARY:
            cause = "a process id of the image is in use" if status == 16 else "there is not enough memory"
            return HookError(TEMPORARY, "%s on this node (cr_restart: %s); try again later or on another node"
                             % (cause, find_reason(output)))
        if status == _NOT_LOADED or "cr_init" in output:
            return HookError(CONFIG, "BLCR's kernel modules are not loaded on this node (cr_restart: %s); run the role blcr; image kept"
                             % find_reason(output))
        return HookError(ENGINE, "cr_restart failed with status %d: %s; the image is kept; %s"
                         % (status, find_reason(output), RESTORE_CURE))

    def _check_mapped(self, mapped: "dict[str, list]") -> None:
        """Check that programs and libraries are those that the processes had: BLCR would map whatever is at these paths.

        :raises HookError: REFUSED for one that is not
        """
        if {"--save-all", "--save-private"} & set(self.dump_options):
            return
        for path, recorded in sorted(mapped.items()):
            if _describe_file(path) != recorded:
                raise HookError(REFUSED, "%s, which the job has mapped, is not on this node as it was where the image was written; give "
                                "the nodes the same programs and libraries (no prelink), or restart the job elsewhere; image kept"
                                % quote_name(path))
