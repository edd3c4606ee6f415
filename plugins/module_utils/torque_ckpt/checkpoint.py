"""$checkpoint_script: write an image of a running job.

Called by pbs_mom as root. What goes to stderr becomes the job's comment. A
checkpoint that fails leaves the job running and the older images as they were.
"""
import contextlib
import os
import signal
import time

from . import admit, carried, changed, compression, compressors, contract, digest, fallback, generations, holding, identity
from . import incarnation, key, location, lock, manifest, opened, phases, preflight, private, privilege, processes, report, spool, start
from . import survey, syslog, told, witness
from .draft import Draft
from .errors import HookError, REFUSED


def _prune(directory, call, settings, life):
    """Remove the generations that are too many; the image is made, so a failure is only written down."""
    try:
        with phases.measure("prune"):
            generations.prune_images(directory, call.job_id, call.depth or settings["depth"], life)
    except (HookError, OSError) as error:
        syslog.log_event("checkpoint", job=call.job_id, outcome="not pruned", sentence=repr(str(error)))


def _companions(image, node, root, places, output, left):
    """Copy what travels with the tree into the image (descriptor); say what does not.

    A generator as witness.Witness wants one; it returns what the manifest says of it (dict).
    """
    found = opened.look(root.pid, places.directories)
    streams = spool.look(output, node.user.uid)
    facts = yield from carried.save(image, carried.Load(found, places, output, node.user.uid), node.settings["carried_bytes"])
    facts["open_files"] = changed.record(found, set(output) | carried.paths(facts), [] if facts["bound"] else places.trees)
    return dict(facts, left=left, spool=spool.save(image, streams))


def _dump(node, root, draft, place, companions, way):
    """Have the engine write the tree and companions (generator function) copy the rest: by way (witness.Way), or after it, for a hold.

    The tree's memory goes into the draft, which its owner can change; what steers the engine goes to a place (private.Place).

    Returns (seconds in the engine, the engine as the manifest calls it (dict), what companions said (dict)).
    """
    started, engine = time.monotonic(), {"name": node.engine.name}

    def meanwhile():
        engine["version"] = node.engine.version()
    with phases.measure("dump"):
        watching = way and witness.Witness(companions, way)
        try:
            node.engine.dump(root.pid, location.engine_path(place.descriptor), not way, way and way.program, meanwhile, draft.path())
        except HookError as error:
            raise watching and watching.fault() or error
    seconds = time.monotonic() - started
    with phases.measure("output"):
        return seconds, engine, watching.result() if way else witness.to_the_end(companions())


def _compress(node, draft, program):
    """Compress the draft's memory by a program (its name, str); return what the manifest says of it (dict). A job that is to go on runs."""
    with phases.measure("compress"):
        return compression.compress(draft.descriptor, node.engine.holds_memory, program, node.settings["compression_level"],
                                    node.settings["engine_timeout"])


def _write(call, node, root, place, output, left, needed, way):
    """As the user: dump, describe, publish. Returns the manifest (dict).

    :param place: where the engine writes (private.Place)
    :param output: paths of the job's files in pbs_mom's spool (list of str)
    :param left: what the job left on other nodes (list of dict)
    :param needed: what the image takes, from admit.need (list)
    :param way: how the engine reaches this hook while the job stands still (witness.Way), or None when the job is to be held
    """
    with phases.measure("admit"):
        program = compressors.choose(node.settings["compression"])
        directory = location.open_job_directory(node.store, call.directory, create=True)
        generations.sweep_leftovers(directory, 2 * node.settings["engine_timeout"])
        generation = generations.next_generation(directory, call.job_id)
        life = incarnation.Own(directory, call.job_id, generation - 1)
        draft = Draft(directory, call.name)
        places = carried.Places(node.settings, root.pid)

    def companions():
        return _companions(draft.descriptor, node, root, places, output, left)
    try:
        with phases.measure("admit"):
            admit.check_private(place, needed[1])
            files = carried.need(places, root.pid, node.settings["carried_bytes"], output, node.user.uid)
            needed = [needed[0] + files[0], needed[1] + files[1]]
            if node.settings["user_limit"]:
                used = survey.used_bytes(node.store, node.user.name)
                admit.check_limit(needed[0], used, node.settings["user_limit"], node.store["path"], node.user.name)
            admit.check(draft.descriptor, needed, node.store["path"], node.settings["reserve"], node.user.name)
        frozen, engine, facts = _dump(node, root, draft, place, companions, way)
        excess = node.engine.excess(place.descriptor)
        if excess:
            raise HookError(REFUSED, "the image would give a process of the job more than %s has (%s); checkpoint the job when that "
                            "process has ended; the job runs on" % (node.user.name, excess))
        plain = _compress(node, draft, program) if program else {}
        draft.flush()
        with phases.measure("publish"):
            changed.flush(facts["open_files"])
            if way is None:
                changed.note(facts["open_files"])
        facts.update(engine=engine, root=root.pid, pids=node.engine.process_ids(place.descriptor), lost=node.engine.lost(place.descriptor),
                     frozen_seconds=round(frozen, 6), generation=generation, incarnation=life.incarnation["id"], held=way is None)
        if call.depth:
            facts["depth"] = call.depth  # for torque-ckpt prune, which keeps as many
        with phases.measure("manifest"):
            found = manifest.write(draft.descriptor, call, node.user, facts, key.ask_to_seal, plain, place.descriptor,
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

    Whatever fails sets the job going again: here if the user's part dies, there if this one does, else the job's leader (holding.py).
    """
    run_directory = node.settings["run_directory"]
    privilege.become_subreaper()
    commands = told.commands()
    try:
        with holding.guarded(run_directory, call.job_id, root, node.engine, node.settings["engine_timeout"]) as suspended:
            # When it has returned its part of the hook is over: a signal that came late could hit the restarted job, with the same ids.
            found = privilege.as_user(node.user, lambda: _or_go_on(root, suspended, write), node.engine.dump_capabilities, answer)
            told.insist(commands)
    except told.Unheard:
        told.wait(commands, node.settings["engine_timeout"])
        raise
    log(found)
    holding.kill(root, node.user)
    holding.end(run_directory, call.job_id)
    lock.forget(run_directory, call.job_id)


def _go_on_after(call, node, hook, root, work):
    """As root: have the image made, by work(witness.Way), of a job that goes on."""
    run_directory = node.settings["run_directory"]
    with contextlib.ExitStack() as stack:
        if node.engine.stops:
            privilege.become_subreaper()
            stack.enter_context(holding.guarded(run_directory, call.job_id, root, node.engine, node.settings["engine_timeout"]))
        work(stack.enter_context(witness.way(hook, run_directory, call.job_id, node.user, "the job runs on")))
    if node.engine.stops:
        holding.end(run_directory, call.job_id)


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
    answer = key.answer(node.keys, call, node.user)
    failed = fallback.note(node.settings["run_directory"], call.job_id)
    if failed:
        commands = told.commands()
        privilege.as_user(node.user, lambda: fallback.present(call, node, failed["name"]), answer=answer)
        told.insist(commands)
        fallback.drop_note(node.settings["run_directory"], call.job_id)
        processes.send_signal(failed["hook"], signal.SIGKILL)
        syslog.log_event("checkpoint", job=call.job_id, outcome="held", image=failed["name"])
        return
    with phases.measure("admit"):
        root = identity.find_root_process(node.settings["run_directory"], call, node.user.uid)
        holding.heal(node.settings["run_directory"], call.job_id, root.pid)
        # A restart hook does not have the job's output open as the run hook has.
        output, left, life = (identity.read_recorded(node.settings["run_directory"], call.job_id, root, what)
                              for what in ("output", "left", "incarnation"))
        output = output or spool.find(root.ppid, spool.directory())
        needed = admit.need(processes.list_tree(root.pid), sum(spool.lengths(output).values()))
        location.give_job_directory(node.store, call.directory, node.user)
        answer = incarnation.checkpointed(node, call, root, life, answer)

    def write(way=None):
        return _write(call, node, root, place, output, left, needed, way)

    def log(found):
        report.done("checkpoint", job=call.job_id, outcome="held" if call.signal else "continued", engine=node.engine.name,
                    bytes=found["bytes"], frozen_seconds=found["frozen_seconds"], seconds=round(time.monotonic() - started, 3),
                    **report.about(found))
    place = private.Place(node.settings["private_directory"] or node.settings["state_directory"], node.user, "the job runs on")
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
        start.settle(contract.REPEATED)
        privilege.be_spared()
        with phases.measure("admit"):
            node = preflight.check(call, config_path)
        with lock.held(node.settings["run_directory"], call.job_id, "checkpoint", node.settings["lock_timeout"], "the job runs on"):
            _checkpoint(call, node, argv[0], started)
    return report.guard("checkpoint", work, argv[2] if len(argv) > 2 else None)
