"""$checkpoint_script: write an image of a running job.

Called by pbs_mom as root. What goes to stderr becomes the job's comment. A
checkpoint that fails leaves the job running and the older images as they were.
"""
import contextlib
import os
import signal
import time

from .. import phases
from ..errors import HookError, REFUSED
from ..files import capture, consistency, open_files, output
from ..image import compression, compressors, digest, manifest, seal
from ..job import frozen, identity, lock, suspension
from ..store import capacity, catalog, generations, incarnation, location
from ..store.draft import Draft
from ..system import environment, private_dir, privilege, processes
from ..telemetry import report, syslog
from ..torque import contract
from . import failed_restart, preflight, unheard_hold


def _prune(directory, call, settings, life):
    """Remove the generations that are too many; the image is made, so a failure is only written down."""
    try:
        with phases.measure("prune"):
            generations.prune_images(directory, call.job_id, call.depth or settings["depth"], life)
    except (HookError, OSError) as error:
        syslog.log_event("checkpoint", job=call.job_id, outcome="not pruned", sentence=repr(str(error)))


def _companions(image, node, root, places, spooled, left):
    """Copy what travels with the tree into the image (descriptor); say what does not.

    A generator as frozen.Witness wants one; it returns what the manifest says of it (dict).
    """
    found = open_files.look(root.pid, places.directories)
    streams = output.look(spooled, node.user.uid)
    facts = yield from capture.save(image, capture.Load(found, places, spooled, node.user.uid), node.settings["node_local_bytes"])
    facts["open_files"] = consistency.record(found, set(spooled) | capture.paths(facts), [] if facts["bound"] else places.trees)
    return dict(facts, left=left, spool=output.save(image, streams))


def _dump(node, root, draft, place, companions, way):
    """Have the engine write the tree and companions (generator function) copy the rest: by way (frozen.Way), or after it, for a hold.

    The tree's memory goes into the draft, which its owner can change; what steers the engine goes to a place (private_dir.Place).

    Returns (seconds in the engine, the engine as the manifest calls it (dict), what companions said (dict)).
    """
    started, engine = time.monotonic(), {"name": node.engine.name}

    def meanwhile():
        engine["version"] = node.engine.version()
    with phases.measure("dump"):
        watching = way and frozen.Witness(companions, way)
        try:
            node.engine.dump(root.pid, location.engine_path(place.descriptor), not way, way and way.program, meanwhile, draft.path())
        except HookError as error:
            raise watching and watching.fault() or error
    seconds = time.monotonic() - started
    with phases.measure("output"):
        return seconds, engine, watching.result() if way else frozen.to_the_end(companions())


def _compress(node, draft, program):
    """Compress the draft's memory by a program (its name, str); return what the manifest says of it (dict). A job that is to go on runs."""
    with phases.measure("compress"):
        return compression.compress(draft.descriptor, node.engine.holds_memory, program, node.settings["compression_level"],
                                    node.settings["engine_timeout"])


def _write(call, node, root, place, spooled, left, needed, way):
    """As the user: dump, describe, publish. Returns the manifest (dict).

    :param place: where the engine writes (private_dir.Place)
    :param spooled: paths of the job's files in pbs_mom's spool (list of str)
    :param left: what the job left on other nodes (list of dict)
    :param needed: what the image takes, from capacity.need (list)
    :param way: how the engine reaches this hook while the job stands still (frozen.Way), or None when the job is to be held
    """
    with phases.measure("admit"):
        program = compressors.choose(node.settings["compression"])
        directory = location.open_job_directory(node.store, call.directory, create=True)
        generations.sweep_leftovers(directory, 2 * node.settings["engine_timeout"])
        generation = generations.next_generation(directory, call.job_id)
        life = incarnation.Own(directory, call.job_id, generation - 1)
        draft = Draft(directory, call.name)
        places = capture.Places(node.settings, root.pid)

    def companions():
        return _companions(draft.descriptor, node, root, places, spooled, left)
    try:
        with phases.measure("admit"):
            capacity.check_private(place, needed[1])
            files = capture.need(places, root.pid, node.settings["node_local_bytes"], spooled, node.user.uid)
            needed = [needed[0] + files[0], needed[1] + files[1]]
            if node.settings["user_limit"]:
                used = catalog.used_bytes(node.store, node.user.name)
                capacity.check_limit(needed[0], used, node.settings["user_limit"], node.store["path"], node.user.name)
            capacity.check(draft.descriptor, needed, node.store["path"], node.settings["reserve"], node.user.name)
        frozen_seconds, engine, facts = _dump(node, root, draft, place, companions, way)
        excess = node.engine.excess(place.descriptor)
        if excess:
            raise HookError(REFUSED, "the image would give a process of the job more than %s has (%s); checkpoint the job when that "
                            "process has ended; the job runs on" % (node.user.name, excess))
        plain = _compress(node, draft, program) if program else {}
        draft.flush()
        with phases.measure("publish"):
            consistency.flush(facts["open_files"])
            if way is None:
                consistency.note(facts["open_files"])
        facts.update(engine=engine, root=root.pid, pids=node.engine.process_ids(place.descriptor), lost=node.engine.lost(place.descriptor),
                     frozen_seconds=round(frozen_seconds, 6), generation=generation, incarnation=life.incarnation["id"], held=way is None)
        if call.depth:
            facts["depth"] = call.depth  # for torque-ckpt prune, which keeps as many
        with phases.measure("manifest"):
            found = manifest.write(draft.descriptor, call, node.user, facts, seal.ask_to_seal, plain, place.descriptor,
                                   node.engine.holds_memory)
        with phases.measure("publish"):
            life.publish(draft)
    except BaseException:
        draft.discard()
        raise
    _prune(directory, call, node.settings, life.incarnation)
    return found


def _hold(call, node, root, write, answer, log):
    """As root: have the image made of a job that is to be held and end the job.

    Whatever fails sets the job going again: here if the user's part dies, there if this one does, else the job's leader (suspension.py).
    """
    run_directory = node.settings["run_directory"]
    privilege.become_subreaper()
    commands = unheard_hold.commands()
    try:
        with suspension.guarded(run_directory, call.job_id, root, node.engine, node.settings["engine_timeout"]) as suspended:
            # When it has returned its part of the hook is over: a signal that came late could hit the restarted job, with the same ids.
            found = privilege.as_user(node.user, lambda: _or_go_on(root, suspended, write), node.engine.dump_capabilities, answer)
            unheard_hold.insist(commands)
    except unheard_hold.Unheard:
        unheard_hold.wait(commands, node.settings["engine_timeout"])
        raise
    log(found)
    suspension.kill(root, node.user)
    suspension.end(run_directory, call.job_id)
    lock.forget(run_directory, call.job_id)


def _go_on_after(call, node, hook, root, work):
    """As root: have the image made, by work(frozen.Way), of a job that goes on."""
    run_directory = node.settings["run_directory"]
    with contextlib.ExitStack() as stack:
        if node.engine.stops:
            privilege.become_subreaper()
            stack.enter_context(suspension.guarded(run_directory, call.job_id, root, node.engine, node.settings["engine_timeout"]))
        work(stack.enter_context(frozen.way(hook, run_directory, call.job_id, node.user, "the job runs on")))
    if node.engine.stops:
        suspension.end(run_directory, call.job_id)


def _or_go_on(root, suspended, write):
    """As the user: write(), and set the job going again if that fails."""
    try:
        return write()
    except BaseException:
        processes.resume(root, suspended)
        raise


def _checkpoint(call, node, hook, started):
    """Write an image of the job; or hold one whose restart failed."""
    digest.prepare()
    answer = seal.answer(node.keys, call, node.user)
    failed = failed_restart.note(node.settings["run_directory"], call.job_id)
    if failed:
        commands = unheard_hold.commands()
        privilege.as_user(node.user, lambda: failed_restart.present(call, node, failed["name"]), answer=answer)
        unheard_hold.insist(commands)
        failed_restart.drop_note(node.settings["run_directory"], call.job_id)
        processes.send_signal(failed["hook"], signal.SIGKILL)
        syslog.log_event("checkpoint", job=call.job_id, outcome="held", image=failed["name"])
        return
    with phases.measure("admit"):
        root = identity.find_root_process(node.settings["run_directory"], call, node.user.uid)
        suspension.heal(node.settings["run_directory"], call.job_id, root.pid)
        # A restart hook does not have the job's output open as the run hook has.
        spooled, left, life = (identity.read_recorded(node.settings["run_directory"], call.job_id, root, what)
                               for what in ("output", "left", "incarnation"))
        spooled = spooled or output.find(root.ppid, output.directory())
        needed = capacity.need(processes.list_tree(root.pid), sum(output.lengths(spooled).values()))
        location.give_job_directory(node.store, call.directory, node.user)
        answer = incarnation.checkpointed(node, call, root, life, answer)

    def write(way=None):
        return _write(call, node, root, place, spooled, left, needed, way)

    def log(found):
        report.done("checkpoint", job=call.job_id, outcome="held" if call.signal else "continued", engine=node.engine.name,
                    bytes=found["bytes"], frozen_seconds=found["frozen_seconds"], seconds=round(time.monotonic() - started, 3),
                    **report.about(found))
    place = private_dir.Place(node.settings["private_directory"] or node.settings["state_directory"], node.user, "the job runs on")
    try:
        if call.signal == contract.HOLD:
            _hold(call, node, root, write, answer, log)
        else:
            _go_on_after(call, node, hook, root,
                         lambda way: log(privilege.as_user(node.user, lambda: write(way), node.engine.dump_capabilities, answer)))
    finally:
        place.remove()
    if call.signal == contract.HOLD:
        os._exit(0)  # pbs_mom must hear of success at once


def main(argv, config_path):
    """Checkpoint the job that argv names; return the exit code (int).

    :param argv: list of str, as pbs_mom passes it
    :param config_path: the hooks' configuration (str)
    """
    def work():
        started = time.monotonic()
        call = contract.checkpoint(argv[1:])
        environment.settle(contract.REPEATED)
        privilege.be_spared()
        with phases.measure("admit"):
            node = preflight.check(call, config_path)
        with lock.held(node.settings["run_directory"], call.job_id, "checkpoint", node.settings["lock_timeout"], "the job runs on"):
            _checkpoint(call, node, argv[0], started)
    return report.guard("checkpoint", work, argv[2] if len(argv) > 2 else None)
