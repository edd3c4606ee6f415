"""$checkpoint_script: write an image of a running job.

Called by pbs_mom as root. What goes to stderr becomes the job's comment. A
checkpoint that fails leaves the job running and the older images as they were.
"""
import contextlib
import os
import signal
import time
from collections import namedtuple

from .. import phases
from ..engines import registry
from ..errors import HookError, ENGINE, REFUSED, TEMPORARY
from ..files import capture, connections, consistency, obstacles, open_files, output
from ..image import compression, compressors, digest, manifest, seal
from ..job import frozen, identity, lock, site_programs, suspension
from ..nested import request
from ..store import capacity, catalog, generations, incarnation, location
from ..store.draft import Draft
from ..system import environment, privilege, processes
from ..telemetry import syslog
from ..telemetry.report import Report, describe_image
from ..torque import contract
from . import demux, failed_restart, ongoing_restart, preflight, unheard_hold

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, ContextManager, Iterator
    from ..system.private_dir import PrivateDirectory

_CONSEQUENCE = "the job keeps running"
"""The end of the sentence when something fails before the job is touched."""
_STOP_SECONDS = 60
"""How long the processes may take to stop when they have been signalled (seconds)."""

Target = namedtuple("Target", "root spooled left needed connected")
"""What is to be checkpointed.

root       processes.Process: the job's root process
spooled    list of str: the job's files in pbs_mom's spool
left       list of dict: what the job left on other nodes
needed     list of int: bytes and files that the image takes, from capacity.estimate_need
connected  bool: its processes have TCP connections with each other, and with nobody else, which the engine moves
"""


class Companions:
    """What travels with the tree: work for frozen.Worker. As the job's owner.

    :param image: descriptor of the image
    :param opened: what the tree had open before
    """

    def __init__(self, job: preflight.Job, target: Target, node_local: capture.NodeLocal, image: int, opened: open_files.OpenFiles) -> None:
        self._job, self._target, self._node_local, self._image = job, target, node_local, image
        held = job.call.signal == contract.HOLD and not target.connected  # an engine that lets the tree run removes its own names
        self._known = {name for file in opened.files for name in file.names} if held else None

    def while_frozen(self) -> None:
        """Find what the tree has open; copy what could change."""
        job, target = self._job, self._target
        self._open_files = open_files.find_open_files(target.root.pid, self._node_local.directories)
        self._streams = output.open_output_files(target.spooled, job.user.uid)
        load = capture.Load(self._open_files, self._node_local, target.spooled, job.user.uid)
        self._capture = capture.Capture(self._image, load, job.settings["node_local_bytes"], self._known)
        self._capture.while_frozen()

    def after_thaw(self) -> dict:
        """Copy the rest; return the manifest's fields about it."""
        facts = self._capture.after_thaw()
        travelling = set(self._target.spooled) | capture.list_paths(facts)
        facts["open_files"] = consistency.record_open_files(self._open_files, travelling, [] if facts["bound"] else self._node_local.trees)
        facts["leases"] = consistency.find_leases(self._open_files)
        return dict(facts, left=self._target.left, spool=output.save_output_files(self._image, self._streams))


class Stop:
    """Stops the tree: work for frozen.Worker, when the engine itself must let the tree run. As the job's owner.

    :param root: the tree's root
    """

    def __init__(self, root: processes.Process, companions: Companions) -> None:
        self._root, self._companions = root, companions

    def while_frozen(self) -> None:
        """Copy what could change; have each process stop as soon as the engine lets it go."""
        self._companions.while_frozen()
        processes.signal_processes(processes.list_owned(self._root), signal.SIGSTOP)

    def after_thaw(self) -> dict:
        """Wait until all have stopped; copy the rest; return the manifest's fields about it.

        :raises HookError: ENGINE if one does not stop
        """
        deadline = time.monotonic() + _STOP_SECONDS
        while any(process.state not in "TtZX" for process in map(processes.read_process, processes.list_tree(self._root.pid)) if process):
            if time.monotonic() > deadline:
                raise HookError(ENGINE, "not all processes of the job stopped within %d seconds; %s" % (_STOP_SECONDS, _CONSEQUENCE))
            time.sleep(0.001)
        return self._companions.after_thaw()


def _find_root(job: preflight.Job) -> processes.Process:
    """As root: return the job's root process, verified. A job that a dead hook has left stopped is resumed."""
    root = identity.find_root_process(job.records, job.call, job.user.uid)
    suspension.resume_abandoned_job(job.records, root.pid)
    return root


def _open_life(job: preflight.Job) -> "tuple[int, int, incarnation.OwnIncarnation]":
    """As the job's owner: return a descriptor of the job's directory, the generation of the next image, and the life that writes it.

    :raises HookError: REFUSED when the job continues elsewhere
    """
    directory = location.open_job_directory(job.store, job.call.directory, create=True)
    generation = generations.next_generation(directory, job.call.job_id)
    return directory, generation, incarnation.OwnIncarnation(directory, job.call.job_id, generation - 1)


@contextlib.contextmanager
def _run_site_programs(job: preflight.Job, root: processes.Process) -> "Iterator[None]":
    """As root: run the site's program for before the body of the with statement, and if the job continues that for after it."""
    def run_program(setting: str, event: str) -> None:
        if job.programs.has(setting):
            with phases.measure("programs"):
                job.programs.run(setting, event, job.call.name, _CONSEQUENCE)

    def resume() -> None:
        try:
            if processes.is_alive(processes.get_mark(root)):
                run_program(site_programs.POST, "continue")
        except (HookError, OSError) as error:
            syslog.log_event("checkpoint", job=job.call.job_id, outcome="program failed", sentence=repr(str(error)))
    holds = job.call.signal == contract.HOLD
    try:
        run_program(site_programs.PRE, "hold" if holds else "checkpoint")
        yield
    except Exception:
        resume()
        raise
    if not holds:
        resume()


def _prepare_programs(job: preflight.Job, root: processes.Process, answer: "Callable[[Any], Any]") -> None:
    """As root: have programs that ckpt-run has started prepared, or end with restart files of their own if the rest can be checkpointed.

    They continue when this hook is gone.
    """
    runners = request.find_runners(processes.list_tree(root.pid))
    if runners:
        hook = processes.get_mark()

        def check_others() -> None:
            programs = request.list_programs(runners)
            _check_obstacles(job, open_files.find_open_files(root.pid, [], programs))
            capture.check_work_directories(job.settings, root.pid, programs)

        def prepare_programs() -> None:
            os.close(_open_life(job)[0])  # a life that is not to continue must not touch the files of the other
            request.prepare_programs(runners, hook, job.settings["engine_timeout"], check_others)
        with phases.measure("programs"):
            privilege.as_user(job.user, prepare_programs, answer=answer)
            if request.any_program_ends(runners):
                demux.wait_for_output(root.ppid)


def _find_target(job: preflight.Job, root: processes.Process) -> Target:
    """As root: return the Target."""
    # A restart hook does not have the job's output open as the run hook has.
    spooled, left = (identity.read_recorded(job.records, root, key) for key in ("output", "left"))
    spooled = spooled or output.find_output_files(root.ppid, output.get_spool_directory())
    tree = processes.list_tree(root.pid)
    needed = capacity.estimate_need(tree, sum(output.read_sizes(spooled).values()))
    return Target(root, spooled, left, needed, job.engine.moves_connections and connections.has_inside_only(tree))


def _check_obstacles(job: preflight.Job, opened: open_files.OpenFiles, kind: "str | None" = None) -> None:
    """Check that the job has nothing that the engine cannot write, by what it has open; or nothing of one kind.

    :raises HookError: REFUSED
    """
    entry = registry.get_entry(job.engine.name)
    ends = request.any_program_ends(request.find_runners(opened.pids))
    kinds = [kind] if kind else obstacles.select_kinds(entry.obstacles, job.settings, ends)
    listed = obstacles.find_obstacles(opened, kinds, job.settings["refused_devices"], job.settings["node_local_bytes"],
                                      job.engine.moves_connections, identity.list_nodes(opened.pids[0]))
    if listed:
        more = "; torque-ckpt check %s lists %d more" % (job.call.job_id, len(listed) - 1) if len(listed) > 1 else ""
        raise HookError(REFUSED, obstacles.format_sentence(listed[0], entry.title, _CONSEQUENCE) + more)


def _explain_failure(job: preflight.Job, target: Target, error: HookError) -> HookError:
    """Return the error of a dump that failed, as _check_obstacles says it if the job has come by an obstacle since."""
    kind = registry.get_entry(job.engine.name).find_kind(error.sentence) if error.code == ENGINE else None
    if kind is None:
        return error
    try:
        _check_obstacles(job, open_files.find_open_files(target.root.pid, []), kind)
    except HookError as refusal:
        return refusal
    return HookError(REFUSED, "%s; %s" % (error.sentence, obstacles.KINDS[kind]))


def _check_capacity(job: preflight.Job, target: Target, staging: "PrivateDirectory", node_local: capture.NodeLocal, draft: Draft,
                    opened: open_files.OpenFiles) -> None:
    """Check that there is free space for the image, in the store and in the private directory.

    :raises HookError: CANNOT_WRITE
    """
    settings, store = job.settings, job.store["path"]
    removed = opened.count_removed_bytes()
    needed = [target.needed[0] + removed, target.needed[1] + len(opened.removed)]
    capacity.check_private(staging, needed[1], removed)
    files = capture.estimate_need(opened, node_local, settings["node_local_bytes"], target.spooled, job.user.uid)
    needed = [needed[0] + files[0], needed[1] + files[1]]
    if settings["user_limit"]:
        capacity.check_limit(needed[0], catalog.count_used_bytes(job.store, job.user.name), settings["user_limit"], store, job.user.name)
    capacity.check_store(draft.descriptor, needed, store, settings["reserve"], job.user.name)


def _dump_tree(job: preflight.Job, target: Target, draft: Draft, staging: "PrivateDirectory", companions: Companions,
               channel: "frozen.Channel | None", leased: bool) -> dict:
    """Have the engine write the tree, and copy its companions: by the channel while the tree is frozen, or after it, for a hold.

    For a hold of a job with connections the tree is stopped by the channel: an engine that leaves it stopped would not release them.

    :param leased: the tree has a lease that any opening of its file breaks

    The tree's memory goes into the draft, which its owner can change; what steers the engine goes to the private directory.

    Returns the manifest's fields about both.
    """
    started, engine = time.monotonic(), {"name": job.engine.name}

    def read_version() -> None:
        engine["version"] = job.engine.read_version()
    held = job.call.signal == contract.HOLD
    with phases.measure("dump"):
        worker = frozen.Worker(Stop(target.root, companions) if held else companions, channel) if channel else None
        try:
            job.engine.dump(target.root.pid, location.get_engine_path(staging.descriptor), not channel, channel and channel.program,
                            read_version, draft.path(), job.settings["node_local_bytes"], target.connected, leased)
        except HookError as error:
            raise worker and worker.find_fault() or _explain_failure(job, target, error)
    seconds = time.monotonic() - started
    with phases.measure("output"):
        if worker:
            facts = worker.read_result() or {}
        else:
            companions.while_frozen()
            facts = companions.after_thaw()
    return dict(facts, engine=engine, frozen_seconds=round(seconds, 6), held=held, connected=target.connected)


def _check_rights(job: preflight.Job, target: Target, staging: "PrivateDirectory") -> None:
    """Check that the image would give no process more than its owner has, and no connection with anything outside it or that is lost.

    :raises HookError: REFUSED, or TEMPORARY
    """
    connection = job.engine.find_foreign_connection(staging.descriptor) if target.connected else ""
    if connection:
        raise HookError(REFUSED, "the job was connected with something outside it while its image was written (%s); the job keeps "
                        "running; try again when that connection is closed" % connection)
    reason = job.engine.find_unrestorable_connection(staging.descriptor) if target.connected else ""
    if reason:
        raise HookError(TEMPORARY, "the TCP connections of the job could not be restored as they were when its image was written (%s); the "
                        "job keeps running; try again" % reason)
    excess = job.engine.find_excess(staging.descriptor)
    if excess:
        raise HookError(REFUSED, "the image would give a process of the job more than %s has (%s); checkpoint the job when that "
                        "process has ended; the job keeps running" % (job.user.name, excess))


def _prune_images(job: preflight.Job, directory: int, life: dict) -> None:
    """Remove the generations that are too many. The image is published, so a failure is only logged."""
    try:
        with phases.measure("prune"):
            generations.prune_images(directory, job.call.job_id, job.call.depth or job.settings["depth"], life)
    except (HookError, OSError) as error:
        syslog.log_event("checkpoint", job=job.call.job_id, outcome="not pruned", sentence=repr(str(error)))


def _make_image(job: preflight.Job, target: Target, staging: "PrivateDirectory", channel: "frozen.Channel | None") -> dict:
    """As the job's owner: check, dump, compress, describe, publish, prune. Returns the manifest.

    :param staging: where the engine writes
    :param channel: how the engine reaches this hook while the job stands still, or None when the engine is to leave the job stopped
    """
    call, engine = job.call, job.engine
    with phases.measure("admit"):
        compressor = compressors.choose_program(job.settings["compression"])
        directory, generation, life = _open_life(job)
        generations.sweep_leftovers(directory, 2 * job.settings["engine_timeout"])
        node_local = capture.NodeLocal(job.settings, target.root.pid)
        opened = open_files.find_open_files(target.root.pid, node_local.directories)
        _check_obstacles(job, opened)
        draft = Draft(directory, call.name)
    with draft:
        with phases.measure("admit"):
            _check_capacity(job, target, staging, node_local, draft, opened)
        facts = _dump_tree(job, target, draft, staging, Companions(job, target, node_local, draft.descriptor, opened), channel,
                           consistency.has_lease(opened))
        _check_rights(job, target, staging)
        compressed = {}
        if compressor:
            with phases.measure("compress"):
                compressed = compression.compress_files(draft.descriptor, engine.holds_memory, compressor,
                                                        job.settings["compression_level"], job.settings["engine_timeout"])
        draft.flush()
        leases = facts.pop("leases")
        with phases.measure("publish"):
            consistency.flush_files(facts["open_files"], leases)
            if facts["held"]:
                consistency.note_times(facts["open_files"], leases)
        facts.update(root=target.root.pid, pids=engine.list_process_ids(staging.descriptor),
                     lost=engine.list_lost_resources(staging.descriptor), generation=generation, incarnation=life.incarnation["id"])
        if call.depth:
            facts["depth"] = call.depth  # for torque-ckpt prune, which keeps as many
        with phases.measure("manifest"):
            described = manifest.write_manifest(draft.descriptor, call, job.user, facts, seal.ask_to_seal, compressed, staging.descriptor,
                                                engine.holds_memory)
        with phases.measure("publish"):
            life.publish(draft)
    _prune_images(job, directory, life.incarnation)
    return described


def _list_capabilities(job: preflight.Job, target: Target) -> "tuple[int, ...]":
    """Return the capabilities that the engine needs to write this job."""
    return job.engine.dump_capabilities + (job.engine.connection_capabilities if target.connected else ())


def _guard_job(job: preflight.Job, target: Target) -> "ContextManager[list[int]]":
    """As root: see suspension.guard_job. An engine that was killed leaves connections that do not work."""
    sockets = connections.list_sockets(target.root) if target.connected else set()

    def repair() -> None:
        if sockets:
            connections.end_repair(job.user.uid, sockets)
    return suspension.guard_job(job.records, target.root, job.engine, job.settings["engine_timeout"], repair)


def _checkpoint_for_hold(job: preflight.Job, target: Target, staging: "PrivateDirectory", answer: "Callable[[Any], Any]") -> dict:
    """As root: have an image written of a job that is to be held; the job is stopped then. Returns the manifest.

    Whatever fails resumes the job: here if the owner's part dies, there if this one does, else the job's leader (suspension.py).
    """
    privilege.become_subreaper()
    commands = unheard_hold.find_commands()
    try:
        with contextlib.ExitStack() as stack:
            suspended = stack.enter_context(_guard_job(job, target))

            def make_image() -> dict:
                # Where there are connections root resumes the job, when they are repaired.
                with contextlib.ExitStack() if target.connected else suspension.resume_on_failure(target.root, suspended):
                    return _make_image(job, target, staging, channel)
            channel = stack.enter_context(frozen.open_channel(job.hook, job.records, job.user, _CONSEQUENCE)) if target.connected else None
            described = privilege.as_user(job.user, make_image, _list_capabilities(job, target), answer)
            unheard_hold.check_server(commands)
            return described
    except unheard_hold.Unheard:
        unheard_hold.wait_for_server(commands, job.settings["engine_timeout"])
        raise


def _checkpoint_and_continue(job: preflight.Job, target: Target, staging: "PrivateDirectory", answer: "Callable[[Any], Any]") -> dict:
    """As root: have an image written of a job that continues. Returns the manifest."""
    with contextlib.ExitStack() as stack:
        if job.engine.stops or target.connected:
            privilege.become_subreaper()
            stack.enter_context(_guard_job(job, target))
        channel = stack.enter_context(frozen.open_channel(job.hook, job.records, job.user, _CONSEQUENCE))
        return privilege.as_user(job.user, lambda: _make_image(job, target, staging, channel), _list_capabilities(job, target), answer)


def _checkpoint_job(job: preflight.Job, started: float) -> None:
    """As root: write an image of the job; or hold one whose restart failed."""
    digest.load_modules()
    answer = seal.build_answer(job.keys, job.call, job.user)
    note = failed_restart.read_note(job.records)
    if note:
        failed_restart.take_over_job(job, note, answer)
        return
    with phases.measure("admit"):
        root = _find_root(job)
        location.give_job_directory(job.store, job.call.directory, job.user)
        answer = incarnation.answer_checkpoint(job, root, identity.read_recorded(job.records, root, "incarnation"), answer)
    with _run_site_programs(job, root):
        _write_image(job, root, answer, started)


def _write_image(job: preflight.Job, root: processes.Process, answer: "Callable[[Any], Any]", started: float) -> None:
    """As root: write an image of the job with this root process; end the job if it is to be held."""
    holds = job.call.signal == contract.HOLD
    _prepare_programs(job, root, answer)
    with phases.measure("admit"):
        target = _find_target(job, root)
    with job.create_private_directory(_CONSEQUENCE) as staging:
        described = (_checkpoint_for_hold if holds else _checkpoint_and_continue)(job, target, staging, answer)
        job.report.log_success(outcome="held" if holds else "continued", engine=job.engine.name, bytes=described["bytes"],
                               frozen_seconds=described["frozen_seconds"], seconds=round(time.monotonic() - started, 3),
                               **describe_image(described))
        if holds:
            with connections.drop_silently(target.root) if target.connected else contextlib.ExitStack():
                suspension.kill_tree(target.root, job.user)
        if holds or job.engine.stops or target.connected:
            suspension.remove_note(job.records)


def main(argv: "list[str]", config_path: str) -> int:
    """Checkpoint the job that argv names; return the exit code.

    :param argv: as pbs_mom passes it
    :param config_path: the hooks' configuration
    """
    with Report("checkpoint", contract.find_job_id(argv)) as report:
        started = time.monotonic()
        call = contract.parse_checkpoint(argv[1:])
        environment.isolate_hook(contract.REPEATED)
        privilege.avoid_oom_kill()
        with phases.measure("admit"):
            job = preflight.prepare_job(call, config_path, argv[0], report)
        ongoing_restart.wait_until_back(job)
        with lock.hold_lock(job.records, "checkpoint", job.settings["lock_timeout"], _CONSEQUENCE):
            _checkpoint_job(job, started)
    return report.code
