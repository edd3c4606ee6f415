"""The image of a running job: what is checked before, while and after the engine writes it. Everything here runs as the job's owner."""
import signal
import time
from collections import namedtuple

from .. import phases
from ..engines import registry
from ..errors import HookError, ENGINE, REFUSED
from ..files import capture, consistency, obstacles, open_files, output
from ..image import compression, compressors, manifest, seal
from ..job import affinity, frozen, identity
from ..nested import request
from ..store import capacity, catalog, generations, incarnation, location
from ..store.draft import Draft
from ..system import processes
from ..telemetry import syslog
from ..torque import contract
from . import preflight

MYPY = False  # true for the type checker alone
if MYPY:
    from ..system.private_dir import PrivateDirectory

CONSEQUENCE = "the job keeps running"
"""The end of the sentence when something fails before the job is touched."""
_STOP_SECONDS = 60
"""How long the processes may take to stop when they have been signalled (seconds)."""

Target = namedtuple("Target", "root spooled left needed connected")
"""What is to be checkpointed.

root       processes.Process: the job's root process
spooled    list of str: the job's files in pbs_mom's spool
left       list of dict: what the job left on other nodes
needed     list of int: bytes and files that the image takes, from capacity.estimate_need
connected  bool: its processes have TCP connections with each other, and with nobody else, which the engine moves, or had such
"""


class Companions:
    """What travels with the tree: work for frozen.Worker.

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
        self._affinity = affinity.find_bound(target.root)
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
        return dict(facts, left=self._target.left, affinity=self._affinity, spool=output.save_output_files(self._image, self._streams))


class Stop:
    """Stops the tree: work for frozen.Worker, when the engine itself must let the tree run.

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
                raise HookError(ENGINE, "not all processes of the job stopped within %d seconds; %s; see whether one waits for a file "
                                "system that does not answer (state D of ps)" % (_STOP_SECONDS, CONSEQUENCE))
            time.sleep(0.001)
        return self._companions.after_thaw()


def open_life(job: preflight.Job) -> "tuple[int, int, incarnation.OwnIncarnation]":
    """Return a descriptor of the job's directory, the generation of the next image, and the life that writes it.

    :raises HookError: REFUSED when the job continues elsewhere
    """
    directory = location.open_job_directory(job.store, job.call.directory, create=True)
    generation = generations.next_generation(directory, job.call.job_id)
    return directory, generation, incarnation.OwnIncarnation(directory, job.call.job_id, generation - 1)


def check_obstacles(job: preflight.Job, opened: open_files.OpenFiles, kind: "str | None" = None) -> None:
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
        raise HookError(REFUSED, obstacles.format_sentence(listed[0], entry.title, CONSEQUENCE) + more)


def _explain_failure(job: preflight.Job, target: Target, error: HookError) -> HookError:
    """Return the error of a dump that failed, as check_obstacles says it if the job has come by an obstacle since."""
    kind = registry.get_entry(job.engine.name).find_kind(error.sentence) if error.code == ENGINE else None
    if kind is None:
        return error
    try:
        check_obstacles(job, open_files.find_open_files(target.root.pid, []), kind)
    except HookError as refusal:
        return refusal
    return HookError(REFUSED, "%s; %s" % (error.sentence.rpartition("; ")[0], obstacles.KINDS[kind]))  # instead of its own advice


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
    return dict(facts, engine=engine, frozen_seconds=round(seconds, 6), held=held)


def _check_rights(job: preflight.Job, staging: "PrivateDirectory") -> None:
    """Check that the image would give no process more than its owner has.

    :raises HookError: REFUSED
    """
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


def make_image(job: preflight.Job, target: Target, staging: "PrivateDirectory", channel: "frozen.Channel | None") -> dict:
    """Check, dump, compress, describe, publish, prune. Returns the manifest.

    :param staging: where the engine writes
    :param channel: how the engine reaches this hook while the job stands still, or None when the engine is to leave the job stopped
    """
    call, engine = job.call, job.engine
    with phases.measure("admit"):
        compressor = compressors.choose_program(job.settings["compression"])
        directory, generation, life = open_life(job)
        generations.sweep_leftovers(directory, 2 * job.settings["engine_timeout"])
        node_local = capture.NodeLocal(job.settings, target.root.pid)
        opened = open_files.find_open_files(target.root.pid, node_local.directories)
        check_obstacles(job, opened)
        draft = Draft(directory, call.name)
    with draft:
        with phases.measure("admit"):
            _check_capacity(job, target, staging, node_local, draft, opened)
        facts = _dump_tree(job, target, draft, staging, Companions(job, target, node_local, draft.descriptor, opened), channel,
                           consistency.has_lease(opened))
        with phases.measure("settle"):
            facts["connected"] = engine.settle(staging.descriptor, target.connected)
        _check_rights(job, staging)
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
