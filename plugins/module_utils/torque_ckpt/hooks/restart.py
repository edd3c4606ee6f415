"""$restart_script: restore a job from its image and be its session leader.

Called by pbs_mom as root, already a session leader, with /dev/null for all
three standard streams: a failure is seen in the exit code and the system log.
"""
import contextlib
import os
import signal
import time

from .. import config, phases
from ..errors import HookError, DEATH_CURE, ENGINE, RESTORE_CURE, SYSTEM, USAGE
from ..files import capture, consistency, output, restore
from ..image import compression, digest, manifest, schema, seal
from ..job import affinity, cleanup, frozen, identity, lock, retries, site_programs, supervisor
from ..job.records import JOB, Records
from ..store import choice, generations, incarnation, location
from ..system import environment, private_dir, privilege, processes
from ..telemetry.report import (Report, build_unexpected, describe_image, report_restart_failure, report_restart_remarks,
                                withdraw_restart_failure)
from ..torque import contract
from . import failed_restart, preflight

_CONSEQUENCE = "image kept"
"""The end of the sentence when something fails before the job is restored."""


class Completion:
    """What is done when the tree is restored and stands still: work for frozen.Worker. As the job's owner.

    :param name: the image's
    :param cuts: files that have grown, from consistency.check_files
    :param connected: descriptor of an image that has connections, else None
    :param bound: the threads to bind to CPUs, from affinity.find_bound
    """

    def __init__(self, job: preflight.Job, name: str, cuts: "list[dict]", connected: "int | None", bound: "list[dict]") -> None:
        self._job, self._name, self._cuts, self._connected, self._bound = job, name, cuts, connected, bound

    def while_frozen(self) -> None:
        """Complete connections; run the site's program; truncate the files; bind the threads."""
        if self._connected is not None:
            self._job.engine.complete_connections(self._connected)
        if self._job.programs.has(site_programs.RESTART):
            self._job.programs.run_as_owner(site_programs.RESTART, "restart", self._name, _CONSEQUENCE)
        consistency.truncate_files(self._cuts)
        self._remarks = affinity.bind_threads(self._bound)

    def after_thaw(self) -> "list[str]":
        """Return remarks."""
        return self._remarks


def _run_engine(job: preflight.Job, staging: private_dir.PrivateDirectory, described: dict, cuts: "list[dict]", channel: frozen.Channel,
                connected: bool) -> "list[str]":
    """Have the engine restore; complete that before the job continues. Returns remarks.

    :param described: the manifest
    :param cuts: see Completion
    :param connected: see _restore_image
    """
    path = location.get_engine_path(staging.descriptor)
    bound = described.get("affinity", []) if job.engine.keeps_ids else []
    if not cuts and not connected and not bound and not job.programs.has(site_programs.RESTART):
        job.engine.restore(path, None, connected)
        return []
    worker = frozen.Worker(Completion(job, described["name"], cuts, staging.descriptor if connected else None, bound), channel)
    try:
        job.engine.restore(path, channel.program, connected, job.programs.get_patience(site_programs.RESTART))
    except HookError as error:
        raise worker.find_fault() or error
    return worker.read_result()


def _check_rights(job: preflight.Job, staging: private_dir.PrivateDirectory, image_path: str, connected: bool) -> None:
    """Check that the image gives no process more than its owner has, and no connection with anything outside it.

    :raises HookError: DATA
    """
    connection = job.engine.find_foreign_connection(staging.descriptor) if connected else ""
    if connection:
        raise manifest.damaged(image_path, "it would connect a process with something outside the job (%s)" % connection)
    excess = job.engine.find_excess(staging.descriptor)
    if excess:
        raise manifest.damaged(image_path, "it would give a process more than %s has (%s)" % (job.user.name, excess))


def _verify_image(job: preflight.Job, staging: private_dir.PrivateDirectory, directory: int, life: incarnation.NewIncarnation,
                  connected: bool) -> "tuple[int, dict, list[dict], list[str]]":
    """Choose the image and read all of it; return its descriptor, its manifest, see Completion, and remarks.

    :param directory: descriptor of the job's directory
    :param connected: see _restore_image; without it an image that has connections is not read, and its files are not compared
    """
    settings = job.settings
    call, remark = choice.choose(job, directory, life.previous, seal.ask_to_verify)
    image_path = os.path.join(call.directory, call.name)
    image = location.open_image(directory, call.name, image_path)
    described = manifest.verify_manifest(image, call, job.user, image_path, seal.ask_to_verify)
    if described["engine"]["name"] != job.engine.name:
        raise HookError(ENGINE, "image %s was written by %s, this node has %s; restart it on a node like %s; image kept"
                        % (image_path, described["engine"]["name"], job.engine.name, described["node"]))
    if described.get("connected") and not connected:
        return image, described, [], []
    life.begin(described.get("generation", 0))
    restore.check_node(described, image_path)
    if job.engine.keeps_ids:
        manifest.check_pids_free(described)
    linked = (lambda _name: False) if settings["copy_memory"] else job.engine.is_memory
    compression.check_decompressible(described, image_path, staging, linked)
    manifest.check_files(image, described, image_path, staging.descriptor, linked)
    changed_files = settings["changed_files"]
    if described.get("held") and changed_files == consistency.REPORT:
        changed_files = consistency.REFUSE  # the job has not touched them since
    cuts, remarks = consistency.check_files(described["open_files"], settings["truncate_append_only"], changed_files)
    return image, described, cuts, [remark] * bool(remark) + remarks


def _restore_image(job: preflight.Job, staging: private_dir.PrivateDirectory, channel: frozen.Channel, connected: bool) -> dict:
    """As the job's owner: open and verify the image, restore what was verified, from a directory where nobody can change it.

    :param connected: whether the engine has the capabilities that it needs for connections
    :returns: nothing, if the image has connections and these capabilities are missing: nothing was done then. Otherwise "manifest"
        (dict), "remarks" (list of str), "created": what was restored on this node (list of dict), "life": what
        incarnation.withdraw_incarnation takes (list)
    """
    job_id, settings, user = job.call.job_id, job.settings, job.user
    directory = location.open_job_directory(job.store, job.call.directory)
    life = incarnation.NewIncarnation(directory, job_id)
    with contextlib.ExitStack() as undo:
        undo.callback(life.withdraw)
        with phases.measure("verify"):  # which takes minutes: another life must not remove the image meanwhile
            life.begin(generations.next_generation(directory, job_id) - 1)
            image, described, cuts, remarks = _verify_image(job, staging, directory, life, connected)
        if described.get("connected") and not connected:
            return {}
        connected = bool(described.get("connected"))
        image_path = os.path.join(job.call.directory, described["name"])
        if described["format"] == schema.COMPRESSED:
            with phases.measure("decompress"):
                compression.decompress_files(image, described, image_path, staging, settings["engine_timeout"])
        _check_rights(job, staging, image_path, connected)
        private_dir.ask_to_take_over()
        files = restore.Restoration(image, described, settings, user.uid)
        undo.callback(files.remove_created)
        with phases.measure("output"):  # before anything has the files open
            files.restore()
            output.restore_output_files(image, described["spool"], user.uid)
        with phases.measure("restore"):
            remarks += _run_engine(job, staging, described, cuts, channel, connected)
        undo.pop_all()
    return {"manifest": described, "remarks": remarks, "created": files.created, "life": life.describe()}


def _end_descendants() -> None:
    """End what a failed restart may have restored: nobody would supervise it."""
    while True:
        children = processes.list_children(os.getpid())
        if not children:
            return
        for member in processes.list_family(processes.read_self())[1:]:
            processes.send_signal(processes.get_mark(member), signal.SIGKILL)
        for pid in children:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass


def _undo_restore(job: preflight.Job, restored: dict) -> None:
    """End the restored job, and remove what _restore_image has restored."""
    _end_descendants()

    def undo() -> None:
        restore.undo_restore(restored["created"], job.settings, job.user.uid)
        incarnation.withdraw_incarnation(location.open_job_directory(job.store, job.call.directory), job.call.job_id, *restored["life"])
    privilege.as_user(job.user, undo)


def _adopt_root(job: preflight.Job, described: dict, life: dict) -> processes.Process:
    """Return the restored root Process, our child, of which root's record is written by now.

    :param described: the manifest
    :param life: its incarnation
    """
    leader = processes.read_self()
    pids = [described["root"]] if job.engine.keeps_ids else identity.list_restored(leader.pid)
    root = processes.read_process(pids[0]) if pids else None
    if root is None or root.ppid != leader.pid:
        raise HookError(ENGINE, "%s said it restored job %s, but its process %d is not there; %s; image kept"
                        % (job.engine.name, job.call.job_id, described["root"], RESTORE_CURE))
    identity.write_record(job.records, leader, root, [entry["path"] for entry in described["spool"]], capture.list_left_files(described),
                          life)
    return root


def _restore_job(job: preflight.Job) -> "tuple[dict, processes.Process]":
    """As root: restore the job and write root's record of it. Returns what _restore_image does, and the job's root Process."""
    digest.load_modules()
    incarnations: "list[dict]" = []
    verified: "list[dict]" = []
    with job.create_private_directory(_CONSEQUENCE) as staging:
        answer = incarnation.answer_restart(job, incarnations, staging.build_answer(
            seal.build_answer(job.keys, job.call, job.user, verified)))
        with frozen.open_channel(job.hook, job.records, job.user, _CONSEQUENCE) as channel:
            restored = privilege.as_user(job.user, lambda: _restore_image(job, staging, channel, False), job.engine.restore_capabilities,
                                         answer)
            if not restored:
                # Root itself has verified that an image of this job needs more.
                owner = job.call.job_id, job.user.uid
                if not any(facts.get("connected") and (facts["job_id"], facts["uid"]) == owner for facts in verified):
                    raise HookError(SYSTEM, "the part of the hook that runs as %s returned nothing; image kept" % job.user.name)
                restored = privilege.as_user(job.user, lambda: _restore_image(job, staging, channel, True),
                                             job.engine.restore_capabilities + job.engine.connection_capabilities, answer)
    with contextlib.ExitStack() as undo:
        undo.callback(_undo_restore, job, restored)
        root = _adopt_root(job, restored["manifest"], incarnations[0])
        undo.pop_all()
    return restored, root


def _comment_job(job_id: str, remarks: str) -> None:
    """Put the remarks into the comment of the restarted job."""
    if not report_restart_remarks(remarks):
        failed_restart.comment_job(job_id, remarks)


def _restart_job(job: preflight.Job, started: float) -> None:
    """As root: restore the job, supervise it, end as it ends. Returns only by an exception; nothing of the job is left then."""
    with contextlib.ExitStack() as undo:
        undo.callback(_end_descendants)
        with lock.hold_lock(job.records, "restart", job.settings["lock_timeout"], _CONSEQUENCE), \
                cleanup.guard_restart(job.call.job_id, job.user.uid):
            privilege.become_subreaper()
            restored, root = _restore_job(job)
        withdraw_restart_failure()
        described, remarks = restored["manifest"], "; ".join(restored["remarks"])
        if remarks:
            with contextlib.suppress(OSError):  # the job runs, and the remarks are in the log as well
                _comment_job(job.call.job_id, remarks)
        retries.reset_failures(job.records)
        job.report.log_success(outcome="restarted", engine=job.engine.name, origin=described["node"], image=described["name"],
                               bytes=described["bytes"], seconds=round(time.monotonic() - started, 3),
                               **describe_image(dict(described, remarks=remarks)))
        status = supervisor.supervise_job(root.pid, job.records)
        job.records.drop(JOB)
        supervisor.end_as(status)


def _prepare_job(call: contract.Call, config_path: str, hook: str, report: Report) -> preflight.Job:
    """Return the Job, when this process can be its leader."""
    with phases.measure("admit"):
        job = failed_restart.wait_until_ready(lambda: preflight.prepare_job(call, config_path, hook, report))
    if os.getsid(0) != os.getpid():
        raise HookError(USAGE, "restart: must be started by pbs_mom as the leader of a session; nothing was restarted")
    supervisor.block_signals()
    os.chdir("/")
    return job


def _load_settings(config_path: str) -> dict:
    """Return the configuration, its defaults when it is wrong: that may be what failed."""
    try:
        return config.load_settings(config_path)
    except HookError:
        return config.DEFAULTS


def _assess_failure(call: contract.Call, config_path: str, error: HookError, report: Report) -> HookError:
    """Return the HookError by which the restart fails: a temporary one after a pause, or the lasting one after too many.

    Without the patch restart-status the job is held or queued again here, and the hook is killed.
    """
    privilege.reset_signals()  # there is no job to forward them to
    settings = _load_settings(config_path)
    records = Records(settings["run_directory"], call.job_id)
    error = retries.assess_failure(records, settings, error)
    commands = failed_restart.find_commands()
    if commands:
        failed_restart.hold_job(commands, records, call, error, report)
    return error


def main(argv: "list[str]", config_path: str) -> int:
    """Restart the job that argv names, supervise it, end as it ends; return the exit code when that failed.

    :param argv: as pbs_mom passes it
    :param config_path: the hooks' configuration
    """
    with Report("restart", contract.find_job_id(argv)) as report:
        started = time.monotonic()
        # Until we know better:
        report_restart_failure(SYSTEM, "the restart hook was killed before the job ran; image kept; %s" % DEATH_CURE)
        call = contract.parse_restart(argv[1:])
        environment.isolate_hook(contract.STATUS, contract.COMMENT)
        privilege.avoid_oom_kill()
        try:
            _restart_job(_prepare_job(call, config_path, argv[0], report), started)
        except Exception as error:
            raise _assess_failure(call, config_path, error if isinstance(error, HookError) else build_unexpected(error), report)
    report_restart_failure(report.code, report.sentence)
    return report.code
