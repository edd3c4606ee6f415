"""Keeping a job whose restart failed, on a pbs_mom without the patch restart-status.

There the end of the restart hook is the end of the job, and an empty file replaces the job's output. So the hook does not
end: it leaves a note, has its own job held and waits. pbs_mom calls the checkpoint hook, which finds the note, publishes
the image that could not be restarted, if it is there, under the new name, too, and ends the restart hook: the job is held.
For this, root on the nodes must be a manager or operator of the server. The checkpoint hook can do nothing where its own
preconditions do not hold (store not mounted, say); there the restart hook waits until they do.
"""
import os
import time

from .. import errors
from ..errors import HookError, CANNOT_WRITE, GONE
from ..files import output
from ..image import manifest, seal
from ..job import records
from ..store import location
from ..store.draft import Draft
from ..system import processes
from ..system.command import run
from ..system.dirfd import names_in
from ..telemetry import report, syslog
from ..torque import contract

PATIENCE = 60
"""How long one of TORQUE's commands, or a hold, may take (seconds)."""

PAUSE = 10
"""How long to wait before looking at the preconditions again (seconds)."""


def find_commands():
    """Return the directory of TORQUE's commands (str), or None when it was no pbs_mom beside which they are that called this hook."""
    caller = processes.read_process(os.getppid())
    for pid in (caller.pid, caller.ppid) if caller else ():  # an unpatched one calls the checkpoint hook by a shell
        try:
            mom = os.readlink("/proc/%d/exe" % pid)
        except OSError:
            continue
        found = os.path.join(os.path.dirname(os.path.dirname(mom)), "bin")
        if os.path.basename(mom) == "pbs_mom" and os.access(os.path.join(found, "qhold"), os.X_OK):
            return found
    return None


def is_needed():
    """Whether this restart hook belongs to a pbs_mom without the patch."""
    return contract.STATUS not in os.environ and find_commands() is not None


def insist(check):
    """Return what check() returns; where the fallback is needed, wait until it fails no more."""
    while True:
        try:
            return check()
        except HookError as error:
            if not is_needed():
                raise
            syslog.log_event("restart", outcome="waiting", code=error.code, sentence=repr(error.sentence))
        time.sleep(PAUSE)


def note(run_directory, job_id):
    """Return the note (dict: "hook", "name") that a restart hook which still waits left for this job, or None."""
    found = records.read(run_directory, job_id, records.FAILED)
    return found if found and processes.find_marked(found["hook"]) else None


def drop_note(run_directory, job_id):
    """Remove the note, if there is one."""
    records.drop(run_directory, job_id, records.FAILED)


def _explain(commands, job_id, sentence, temporary):
    """When the job is held: put the sentence into its comment, in the place of pbs_mom's own; queue it again if temporary."""
    status, said = 0, ""
    while status == 0 and "job_state = C" not in said:
        time.sleep(0.5)
        status, said = run([os.path.join(commands, "qstat"), "-f", job_id], PATIENCE)
        if "job_state = H" in said:
            run([os.path.join(commands, "qalter"), "-W", 'comment="%s"' % sentence.replace('"', "'"), job_id], PATIENCE)
            if temporary:
                run([os.path.join(commands, "qrls"), job_id], PATIENCE)
            return


def comment(job_id, sentence):
    """Have the sentence (str) in the comment of a restarted job, in the place of pbs_mom's own; as far as the server lets root here."""
    commands = find_commands()
    if commands and os.fork() == 0:
        try:
            os.setsid()  # its end is not the job's
            run([os.path.join(commands, "qalter"), "-W", 'comment="%s"' % sentence.replace('"', "'"), job_id], PATIENCE)
        finally:
            os._exit(0)


def keep(run_directory, call, error):
    """Have the job of this restart hook held. Returns only when the server refuses that; held, the hook is killed.

    :param call: contract.Call
    :param error: why the restart failed (HookError); if that is temporary, the job is queued again then
    """
    commands = find_commands()
    report.failed("restart", call.job_id, error.code, error.sentence)
    error.told = True
    records.write(run_directory, call.job_id, records.FAILED, {"hook": processes.get_mark(), "name": call.name})
    if os.fork() == 0:
        try:
            os.setsid()  # it outlives this hook
            _explain(commands, call.job_id, report.verdict(error.code, error.sentence), errors.is_temporary(error.code))
        finally:
            os._exit(0)
    while True:
        status, said = run([os.path.join(commands, "qhold"), call.job_id], PATIENCE)
        if status != 0:
            break
        time.sleep(PATIENCE)  # should the checkpoint hook fail, try again
    syslog.log_event("restart", job=call.job_id, outcome="not kept", said=said.strip())
    drop_note(run_directory, call.job_id)


def _publish(directory, image, shown, found, name):
    """Publish an image (descriptor) with this manifest (dict) under another name, too."""
    draft = Draft(directory, name)
    try:
        try:
            seal.ask_to_prove(found, shown)
            manifest.put(draft.descriptor, found, name, seal.ask_to_seal)
        except HookError:
            pass  # its restart failed for that, perhaps; its old manifest says what there is to say
        for entry in set(names_in(image)) - set(names_in(draft.descriptor)):
            os.link(entry, entry, src_dir_fd=image, dst_dir_fd=draft.descriptor, follow_symlinks=False)
        draft.publish()
    except OSError as error:
        draft.discard()
        raise HookError(CANNOT_WRITE, "cannot give image %s the name %s: %s; image kept" % (shown, name, error.strerror))
    except HookError:
        draft.discard()
        raise


def present(call, node, name):
    """As the user: publish the image name (str) under the name that pbs_mom now asks for, too."""
    shown = os.path.join(call.directory, name)
    if call.signal == 0:
        raise HookError(GONE, "job %s does not run: its restart failed and it is about to be held; nothing was done" % call.job_id)
    try:
        directory = location.open_job_directory(node.store, call.directory)
        image = location.open_image(directory, name, shown)
        found = manifest.read(image, shown)
    except HookError:
        return  # it failed for that: held under a name that no image has, the job continues from the newest whole one
    if name != call.name:  # pbs_mom's names count seconds
        _publish(directory, image, shown, found, call.name)
    try:
        output.put_back(image, found["spool"], node.user.uid)  # or pbs_mom delivers an empty file over the job's output
    except HookError:
        pass
