"""Which life of a job is the one that continues.

A server that cannot reach a node may start a job again elsewhere, and then it runs twice. Each life of a job has an incarnation:
a small file in the job's directory, written by the job's owner and sealed by root. A restart writes a new one before it reads
the image, a job that started from the beginning with its first image. The life that started last is the one that continues: a
checkpoint of any other is refused before it writes or removes anything.

  id          str, random; the manifests of the images that this life creates name it
  job_id, uid str, int: whose it is
  node        str, where it runs
  started     float, seconds since the epoch by that node's clock
  generation  int, the newest image that it continues from; what other lives created later does not belong to it
  process     [boot id, pid, start] of the root process of a job that started from the beginning, else empty
  key, mac    the seal (seal.py)
"""
import json
import os
import stat
import time

from ..errors import HookError, CANNOT_WRITE, REFUSED, STORE_CURE, TEMPORARY
from ..image import seal
from ..system import privilege, processes, strict_json
from ..system.dirfd import DIRECTORY
from ..telemetry import syslog
from . import generations

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable
    from .draft import Draft

_NAME = ".incarnation."  # and the job's id: pbs_mom 2.4 keeps the images of several jobs in one directory

LARGEST = 4096
"""How long the file may be (bytes)."""

_KINDS = {"id": str, "job_id": str, "uid": int, "node": str, "started": float, "generation": int, "process": list, "key": str, "mac": str}
_PURPOSE = b"incarnation"


def name_file(job_id: str) -> str:
    """Return the name of a job's incarnation in the job's directory."""
    return _NAME + job_id


# -- as the job's owner ------------------------------------------------------------------------------------------------

def _read_text(directory: int, job_id: str) -> "str | None":
    """Return what the file in a job's directory (descriptor) holds, None when it does not exist, empty when it is no such file."""
    try:
        descriptor = os.open(name_file(job_id), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, LARGEST).decode("ascii", "replace")
    finally:
        os.close(descriptor)


def _write_text(directory: int, job_id: str, text: "str | None") -> None:
    """Write or replace the file, in one step; None removes it. What a crash leaves is the next sweep's."""
    if text is None:
        try:
            os.unlink(name_file(job_id), dir_fd=directory)
        except FileNotFoundError:
            pass
        return
    hidden = generations.hide_name("incarnation")
    os.mkdir(hidden, 0o700, dir_fd=directory)
    inner = os.open(hidden, DIRECTORY, dir_fd=directory)
    try:
        with open(os.open("new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=inner), "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename("new", name_file(job_id), src_dir_fd=inner, dst_dir_fd=directory)
    finally:
        os.close(inner)
        generations.remove_directory(directory, hidden)
    os.fsync(directory)


def read_incarnation(directory: int, job_id: str) -> "dict | None":
    """Return the incarnation in a job's directory (descriptor), whoever wrote it, or None."""
    return _parse(_read_text(directory, job_id))


def _parse(text: "str | None") -> "dict | None":
    try:
        incarnation = strict_json.parse_json((text or "").encode("ascii", "replace"))
        good = isinstance(incarnation, dict) and set(incarnation) == set(_KINDS) and all(
            isinstance(incarnation[name], kind) and not isinstance(incarnation[name], bool) for name, kind in _KINDS.items())
        return incarnation if good else None
    except ValueError:
        return None


class OwnIncarnation:
    """As the user, in a checkpoint: the incarnation of the life that is to be checkpointed.

    incarnation  dict

    :param directory: descriptor of the job's directory
    :param generation: the newest image in it
    :raises HookError: REFUSED when the job continues elsewhere
    """

    def __init__(self, directory: int, job_id: str, generation: int) -> None:
        self.directory, self.job_id = directory, job_id
        self.before = _read_text(directory, job_id)
        self.incarnation = privilege.ask_root(["incarnation", self.before, generation])

    def publish(self, draft: "Draft") -> None:
        """Publish the image that this life has written, the file first.

        :raises HookError: as above, should a restart have come in between; as Draft.publish()
        """
        text, now = json.dumps(self.incarnation), _read_text(self.directory, self.job_id)
        if now != self.before:
            privilege.ask_root(["incarnation", now, self.incarnation["generation"]])
        try:
            if now != text:
                _write_text(self.directory, self.job_id, text)
            draft.publish()
        except OSError as error:
            raise HookError(CANNOT_WRITE, "cannot write %s of job %s: %s; %s"
                            % (name_file(self.job_id), self.job_id, error.strerror, STORE_CURE))
        except HookError:
            restore_text(self.directory, self.job_id, now)
            raise


class NewIncarnation:
    """As the user, in a restart: the incarnation of the life that begins.

    previous  dict or None, the one that the file had before

    :param directory: descriptor of the job's directory
    """

    def __init__(self, directory: int, job_id: str) -> None:
        self._directory, self._job_id, self._generation = directory, job_id, -1
        self._before = _read_text(directory, job_id)
        self._written: "list[str]" = []
        self.previous = _parse(self._before)

    def begin(self, generation: int) -> None:
        """Write the file: from then on the checkpoints of other lives are refused.

        A full store must not keep a job from its restart: then the first image of this life writes the file.

        :param generation: of the image that the job is restarted from, or the newest one while that is not known
        """
        if generation != self._generation:
            self._generation = generation
            self._written.append(json.dumps(privilege.ask_root(["incarnation", None, generation])))
            restore_text(self._directory, self._job_id, self._written[-1])

    def describe(self) -> "tuple[str | None, list[str]]":
        """Return what withdraw_incarnation takes."""
        return self._before, self._written

    def withdraw(self) -> None:
        withdraw_incarnation(self._directory, self._job_id, *self.describe())


def withdraw_incarnation(directory: int, job_id: str, before: "str | None", written: "list[str]") -> None:
    """As the user, when a restart has failed: give the file what it held before, unless another life has written it since.

    :param before: None removes it
    :param written: what the restart wrote
    """
    if _read_text(directory, job_id) in written:
        restore_text(directory, job_id, before)


def restore_text(directory: int, job_id: str, text: "str | None") -> None:
    """Write or replace the file, as far as that is possible; None removes it."""
    try:
        _write_text(directory, job_id, text)
    except (OSError, HookError) as error:
        syslog.log_event("incarnation", job=job_id, outcome="not written", reason=error)


# -- as root -----------------------------------------------------------------------------------------------------------

def _create(job: "Any", started: float, generation: int, process: list) -> dict:
    return seal.add_seal(job.keys, {"id": os.urandom(16).hex(), "job_id": job.call.job_id, "uid": job.user.uid, "node": os.uname().nodename,
                                    "started": started, "generation": generation, "process": process}, _PURPOSE)


def _identify_process(root: processes.Process) -> list:
    """Return what identifies a process in the whole cluster: [boot id, pid, start]."""
    return [processes.read_boot_id()] + processes.get_mark(root)


def _format_time(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def _parse_trusted(job: "Any", text: "str | None", recorded: dict) -> "dict | None":
    """Return the incarnation that a text from the job's directory holds, None when it is damaged or another's.

    :param recorded: see answer_checkpoint; where the text names it, root's record is returned, whatever key the text was sealed with
    :raises HookError: TEMPORARY when this node lacks the key
    """
    incarnation = _parse(text)
    if incarnation is None or (incarnation["job_id"], incarnation["uid"]) != (job.call.job_id, job.user.uid):
        return None
    if recorded and incarnation["id"] == recorded["id"]:
        return recorded
    if incarnation["key"] not in dict(job.keys):
        raise HookError(TEMPORARY, "the incarnation of job %s was sealed with the key %s, which this node does not have; run site.yml on "
                        "this node, or remove %s if that key is gone for good; nothing was written or removed"
                        % (job.call.job_id, ascii(incarnation["key"]), _name_path(job)))
    return incarnation if seal.is_sealed(job.keys, incarnation, _PURPOSE) else None


def _renew(job: "Any", incarnation: dict) -> dict:
    """Return the incarnation, sealed with the key that seals today: a job may outlive the one with which it began."""
    if incarnation["key"] == next(iter(job.keys))[0]:
        return incarnation
    return seal.add_seal(job.keys, {name: value for name, value in incarnation.items() if name not in ("key", "mac")}, _PURPOSE)


def _name_path(job: "Any") -> str:
    return os.path.join(job.call.directory, name_file(job.call.job_id))


def answer_checkpoint(job: "Any", root: processes.Process, recorded: dict, answer: "Callable[[Any], Any]") -> "Callable[[Any], Any]":
    """Return root's answer function for a checkpoint (see OwnIncarnation).

    :param job: preflight.Job
    :param root: the job's root process
    :param recorded: the incarnation in root's record of the job, empty for one that was not restarted here
    :param answer: answers all other questions (seal.build_answer)
    """
    def decide(text: "str | None", generation: int) -> dict:
        existing = _parse_trusted(job, text, recorded)
        if existing and (existing["id"] == recorded["id"] if recorded else existing["process"] == _identify_process(root)):
            return _renew(job, existing)
        started = recorded["started"] if recorded else processes.get_start_time(root)
        if existing and existing["started"] >= started:
            raise HookError(REFUSED, "job %s continues on %s since %s; what runs on %s is an older life of it, since %s (if that is wrong, "
                            "compare the two clocks and remove %s); nothing was written or removed"
                            % (job.call.job_id, ascii(existing["node"])[1:-1], _format_time(existing["started"]), os.uname().nodename,
                               _format_time(started), _name_path(job)))
        return _renew(job, recorded) if recorded else _create(job, started, 0 if existing else generation, _identify_process(root))

    return _make_answer(decide, answer)


def answer_restart(job: "Any", begun: "list[dict]", answer: "Callable[[Any], Any]") -> "Callable[[Any], Any]":
    """Return root's answer function for a restart (see NewIncarnation).

    :param job, answer: see answer_checkpoint
    :param begun: takes the incarnation, for root's record of the job
    """
    def decide(_text: "str | None", generation: int) -> dict:
        begun[:] = [_create(job, time.time(), generation, [])]
        return begun[0]

    return _make_answer(decide, answer)


def _make_answer(decide: "Callable[[str | None, int], dict]", answer: "Callable[[Any], Any]") -> "Callable[[Any], Any]":
    def respond(question: "Any") -> "Any":
        return decide(*question[1:]) if question[0] == "incarnation" else answer(question)
    return respond
