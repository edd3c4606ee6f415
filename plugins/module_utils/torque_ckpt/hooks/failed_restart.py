"""Keeps a job whose restart failed, on a pbs_mom without the patch restart-status.

There the end of the restart hook is the end of the job, and an empty file replaces the job's output. So the hook does not
end: it leaves a note, has its own job held and waits. pbs_mom calls the checkpoint hook, which finds the note, publishes
the image that could not be restarted, if it exists, also under the new name, and ends the restart hook: the job is held.
For this, root on the nodes must be a manager or operator of the server. The checkpoint hook can do nothing where its own
preconditions do not hold (store not mounted, say); there the restart hook waits until they do.
"""
import contextlib
import os
import signal
import time

from .. import errors
from ..errors import HookError, CANNOT_WRITE, GONE, STORE_CURE
from ..files import output
from ..image import manifest, seal
from ..job.records import FAILED
from ..store import location
from ..store.draft import Draft
from ..system import privilege, processes
from ..system.dirfd import list_directory
from ..telemetry import syslog
from ..telemetry.report import format_verdict
from ..torque import contract
from ..torque.server import Server
from . import caller, unheard_hold

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable
    from ..job.records import Records
    from ..telemetry.report import Report
    from .preflight import Job

PATIENCE = 60
"""How long a hold may take before it is asked for again (seconds)."""

PAUSE = 10
"""How long to wait before the preconditions are checked again (seconds)."""

_CONSEQUENCE = "nothing was done"


def find_commands() -> "Server | None":
    """Return TORQUE's commands if this restart hook belongs to a pbs_mom without the patch, else None."""
    directory = None if contract.STATUS in os.environ else caller.find_commands()
    return Server(directory, _CONSEQUENCE) if directory else None


def wait_until_ready(prepare: "Callable[[], Job]") -> "Job":
    """Return what prepare() returns; on a pbs_mom without the patch, wait until it fails no more."""
    while True:
        try:
            return prepare()
        except HookError as error:
            if find_commands() is None:
                raise
            syslog.log_event("restart", outcome="waiting", code=error.code, sentence=repr(error.sentence))
        time.sleep(PAUSE)


def _set_comment(commands: Server, job_id: str, sentence: str) -> None:
    commands.run("qalter", "-W", 'comment="%s"' % sentence.replace('"', "'"), job_id)


def comment_held_job(commands: Server, job_id: str, sentence: str, temporary: bool) -> None:
    """When the job is held: put the sentence into its comment, instead of pbs_mom's own; queue it again if temporary."""
    held = False
    while True:
        time.sleep(0.5)
        try:
            job = commands.read_job(job_id)
            state = job.get("job_state")
            if not job or state == "C" or held and state != "H":  # a later hold is somebody else's
                return
            if state == "H":
                held = True
                _set_comment(commands, job_id, sentence)
                if temporary:
                    commands.run("qrls", job_id)
                return
        except HookError:  # the server may come back, and so may processes to be had
            if not os.path.exists(os.path.join(commands.path, "qstat")):
                return
            time.sleep(PAUSE)


def _run_detached(work: "Callable[[], None]") -> None:
    """Run work() in a child that outlives this hook, and whose end is not the job's."""
    if os.fork() == 0:
        try:
            os.setsid()
            work()
        finally:
            os._exit(0)


def comment_job(job_id: str, sentence: str) -> None:
    """Put the sentence into the comment of a restarted job, instead of pbs_mom's own; as far as the server lets root of this node."""
    directory = caller.find_commands()
    if directory:
        _run_detached(lambda: _set_comment(Server(directory, _CONSEQUENCE), job_id, sentence))


def hold_job(commands: Server, records: "Records", call: contract.Call, error: HookError, report: "Report") -> None:
    """Have the job of this restart hook held. Returns only when the server refuses that; held, the hook is killed.

    :param commands: what find_commands() returned
    :param error: why the restart failed; if that is temporary, the job is queued again then
    :param report: of this call
    """
    report.log_failure(error.code, error.sentence)
    error.reported = True
    verdict = format_verdict(error.code, error.sentence)
    commented, refusals = False, 0
    while refusals < 2:  # the server may have come back between the two questions
        try:
            records.write(FAILED, {"hook": processes.get_mark(), "name": call.name})
            if not commented:
                _run_detached(lambda: comment_held_job(commands, call.job_id, verdict, errors.is_temporary(error.code)))
                commented = True
            status, output_text, error_text = commands.run("qhold", call.job_id)
        except (HookError, OSError) as failure:  # no space for the note, no process to be had: nobody has refused anything
            syslog.log_event("restart", job=call.job_id, outcome="waiting", said=str(failure))
            time.sleep(PAUSE)
            continue
        if status == 0:
            time.sleep(PATIENCE)  # should the checkpoint hook fail, try again
            continue
        refused, said = unheard_hold.ask_server(commands) is None, (output_text + error_text).strip()
        refusals += refused
        syslog.log_event("restart", job=call.job_id, outcome="refused" if refused else "waiting", said=said)
        time.sleep(PAUSE)
    syslog.log_event("restart", job=call.job_id, outcome="not kept", said=said)
    records.drop(FAILED)


def _publish_under_name(directory: int, image: int, image_path: str, described: dict, name: str) -> None:
    """Publish an image (descriptor) with this manifest also under another name."""
    draft = Draft(directory, name)
    try:
        try:
            seal.ask_to_verify(described, image_path)
            manifest.write_sealed(draft.descriptor, described, name, seal.ask_to_seal)
        except HookError:
            pass  # its restart failed for that, perhaps; its older manifest holds what is known
        for entry in set(list_directory(image)) - set(list_directory(draft.descriptor)):
            with contextlib.suppress(PermissionError):  # another user's: the image is refused for it, whatever its name
                os.link(entry, entry, src_dir_fd=image, dst_dir_fd=draft.descriptor, follow_symlinks=False)
        draft.publish()
    except OSError as error:
        draft.discard()
        raise HookError(CANNOT_WRITE, "cannot give image %s the name %s: %s; image kept; %s"
                        % (image_path, name, error.strerror, STORE_CURE))
    except HookError:
        draft.discard()
        raise


def _present_image(job: "Job", name: str) -> None:
    """As the user: publish the image name also under the name that pbs_mom now asks for."""
    call = job.call
    image_path = os.path.join(call.directory, name)
    if call.signal == contract.CONTINUE:
        raise HookError(GONE, "job %s does not run: its restart failed and it is about to be held; wait until it is, its comment says why "
                        "then; nothing was done" % call.job_id)
    try:
        directory = location.open_job_directory(job.store, call.directory)
        image = location.open_image(directory, name, image_path)
        described = manifest.read_manifest(image, image_path)
    except HookError:
        return  # it failed for that: held under a name that no image has, the job continues from the newest whole one
    if name != call.name:  # pbs_mom's names count seconds
        _publish_under_name(directory, image, image_path, described, call.name)
    try:
        output.restore_output_files(image, described["spool"], job.user.uid)  # or pbs_mom delivers an empty file over the job's output
    except HookError:
        pass


def take_over_job(job: "Job", note: dict, answer: "Callable[[Any], Any]") -> None:
    """As root, in the checkpoint hook: have the job held that a restart hook could not restore, and end that hook.

    :param note: from ongoing_restart.read_note
    :param answer: root's answer function (seal.build_answer)
    """
    commands = unheard_hold.find_commands(job.settings)
    privilege.as_user(job.user, lambda: _present_image(job, note["name"]), answer=answer)
    unheard_hold.check_server(commands)
    job.records.drop(FAILED)
    processes.send_signal(note["hook"], signal.SIGKILL)
    syslog.log_event("checkpoint", job=job.call.job_id, outcome="held", image=note["name"])
