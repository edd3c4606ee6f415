"""$restart_script: bring a job back from its image and be its session leader.

Called by pbs_mom as root, already a session leader, with /dev/null for all
three standard streams: a failure is seen in the exit code and the system log.
"""
import os
import signal
import time

from . import attempts, carried, changed, compression, config, contract, digest, fallback, identity, key, lock, manifest, phases
from . import preflight, private, privilege, put_back, records, report, spool, start, store, supervisor, witness
from .errors import HookError, ENGINE, SYSTEM, USAGE


def _engine(node, place, cuts, way):
    """Have the engine restore; cut back files that have grown, but not before the tree is there."""
    if not cuts:
        return node.engine.restore(store.engine_path(place))
    watching = witness.Witness(lambda: changed.cut_back(cuts), way)
    try:
        node.engine.restore(store.engine_path(place), way.program)
    except HookError as error:
        raise watching.fault() or error
    return watching.result()


def _restore(call, node, place, way):
    """As the user: open and verify the image, restore what was verified, from a place (private.Place) where nobody can change it.

    Returns the manifest (dict), and what was put back on this node (list of dict).

    :param way: how the engine reaches this hook (witness.Way)
    """
    shown = os.path.join(call.directory, call.name)
    with phases.measure("verify"):
        directory = store.open_job_directory(node.store, call.directory)
        image = store.open_image(directory, call.name, shown)
        found = manifest.verify(image, call, node.user, shown, key.ask_to_prove)
        if found["engine"]["name"] != node.engine.name:
            raise HookError(ENGINE, "image %s was made by %s, this node has %s; restart it on a node like %s; image kept"
                            % (shown, found["engine"]["name"], node.engine.name, found["node"]))
        put_back.check_node(found, shown)
        if node.engine.keeps_ids:
            manifest.check_pids_free(found)
        compression.check(found, shown, place)
        manifest.check_files(image, found, shown, place.descriptor, node.engine.is_memory)
        cuts = changed.check(found["open_files"], node.settings["cut_back_appended"])
    if found["format"] == manifest.COMPRESSED:
        with phases.measure("decompress"):
            compression.decompress(image, found, shown, place, node.settings["engine_timeout"])
    files = put_back.PutBack(image, found, node.settings, node.user.uid)
    try:
        with phases.measure("output"):  # before anything has the files open
            files.do()
            spool.put_back(image, found["spool"], node.user.uid)
        with phases.measure("restore"):
            _engine(node, place.descriptor, cuts, way)
    except BaseException:
        files.undo()
        raise
    return found, files.made


def _end_descendants():
    """End what a failed restart may have brought back: nobody would look after it."""
    while True:
        left = identity.children(os.getpid())
        if not left:
            return
        for pid in identity.tree(os.getpid())[1:]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in left:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass


def _adopt(call, node, found):
    """Return the restored root Process, our child, of which root's record is written by now.

    :param found: the manifest (dict)
    """
    came = [found["root"]] if node.engine.keeps_ids else identity.children(os.getpid())
    root = identity.process(came[0]) if came else None
    if root is None or root.ppid != os.getpid():
        raise HookError(ENGINE, "%s said it restored job %s, but its process %d is not there; image kept"
                        % (node.engine.name, call.job_id, found["root"]))
    identity.write_record(node.settings["run_directory"], call.job_id, identity.process(os.getpid()), root,
                          [entry["path"] for entry in found["spool"]], carried.left(found))
    return root


def _bring_back(call, node, hook):
    """Restore the job and write root's record of it. Returns the manifest (dict) and the job's root process."""
    digest.prepare()
    place = private.Place(node.settings["private_directory"] or node.settings["state_directory"], node.user)
    try:
        with witness.way(hook, node.settings["run_directory"], call.job_id, node.user, "image kept") as way:
            found, made = privilege.as_user(node.user, lambda: _restore(call, node, place, way),
                                            node.engine.restore_capabilities, key.answer(node.keys, call, node.user))
    finally:
        place.remove()
    try:
        return found, _adopt(call, node, found)
    except BaseException:
        _end_descendants()
        privilege.as_user(node.user, lambda: put_back.undo(made, node.settings, node.user.uid))
        raise


def _continue(call, node, started, hook):
    """Restore the job, supervise it, end as it ends; returns only by an exception."""
    with lock.held(node.settings["run_directory"], call.job_id, "restart", node.settings["lock_timeout"], "image kept"):
        found, root = _bring_back(call, node, hook)
    report.restart_succeeded()
    attempts.forget(node.settings["run_directory"], call.job_id)
    report.done("restart", job=call.job_id, outcome="restarted", engine=node.engine.name, origin=found["node"],
                bytes=found["bytes"], seconds=round(time.monotonic() - started, 3), **report.about(found))
    status = supervisor.supervise(root.pid, node.settings["run_directory"], call.job_id)
    records.drop(node.settings["run_directory"], call.job_id, records.JOB)
    supervisor.end_as(status)


def _try(call, config_path, started, hook):
    """Restart the job; returns only by an exception."""
    with phases.measure("admit"):
        node = fallback.insist(lambda: preflight.check(call, config_path))
    if os.getsid(0) != os.getpid():
        raise HookError(USAGE, "restart: must be started by pbs_mom as the leader of a session; nothing was restarted")
    supervisor.block_signals()
    privilege.become_subreaper()
    os.chdir("/")
    try:
        _continue(call, node, started, hook)
    except BaseException:
        _end_descendants()
        raise


def _settings(config_path):
    """Return the configuration (dict), also where its being wrong is what failed."""
    try:
        return config.load(config_path)
    except HookError:
        return config.DEFAULTS


def main(argv, config_path):
    """Restart the job that argv names, supervise it, end as it ends.

    :param argv: list of str, as pbs_mom passes it
    :param config_path: the hooks' configuration (str)
    """
    def work():
        started = time.monotonic()
        report.restart_failed(SYSTEM, "the restart hook was killed before the job ran; image kept")  # until we know better
        call = contract.restart(argv[1:])
        start.settle()
        try:
            _try(call, config_path, started, argv[0])
        except HookError as error:
            privilege.reset_signals()  # there is no job to hand them on to
            settings = _settings(config_path)
            error = attempts.judge(settings, call.job_id, error)
            if fallback.is_needed():
                fallback.keep(settings["run_directory"], call, error)
            raise error
    return report.guard("restart", work, argv[2] if len(argv) > 2 else None, report.restart_failed)
