"""$restart_script: bring a job back from its image and be its session leader.

Called by pbs_mom as root, already a session leader, with /dev/null for all
three standard streams: a failure is seen in the exit code and the system log.
"""
import os
import signal
import time

from .. import config, phases
from ..errors import HookError, ENGINE, SYSTEM, USAGE
from ..files import capture, consistency, output, restore
from ..image import compression, digest, manifest, schema, seal
from ..job import cleanup, frozen, identity, lock, records, retries, supervisor
from ..store import choice, incarnation, location
from ..system import environment, private_dir, privilege, processes
from ..telemetry import report
from ..torque import contract
from . import failed_restart, preflight


def _engine(node, place, cuts, way):
    """Have the engine restore; cut back files that have grown, but not before the tree is there."""
    if not cuts:
        return node.engine.restore(location.engine_path(place))
    watching = frozen.Witness(lambda: consistency.cut_back(cuts), way)
    try:
        node.engine.restore(location.engine_path(place), way.program)
    except HookError as error:
        raise watching.fault() or error
    return watching.result()


def _restore(call, node, place, way):
    """As the user: open and verify the image, restore what was verified, from a place (private_dir.Place) where nobody can change it.

    Returns the manifest (dict), what was put back on this node (list of dict), and what to give incarnation.put_back.

    :param way: how the engine reaches this hook (frozen.Way)
    """
    with phases.measure("verify"):
        directory = location.open_job_directory(node.store, call.directory)
        call, instead = choice.choose(call, node, directory, seal.ask_to_prove)
        shown = os.path.join(call.directory, call.name)
        image = location.open_image(directory, call.name, shown)
        found = manifest.verify(image, call, node.user, shown, seal.ask_to_prove)
        if found["engine"]["name"] != node.engine.name:
            raise HookError(ENGINE, "image %s was made by %s, this node has %s; restart it on a node like %s; image kept"
                            % (shown, found["engine"]["name"], node.engine.name, found["node"]))
        restore.check_node(found, shown)
        if node.engine.keeps_ids:
            manifest.check_pids_free(found)
        linked = (lambda _name: False) if node.settings["copy_memory"] else node.engine.is_memory
        compression.check(found, shown, place, linked)
        manifest.check_files(image, found, shown, place.descriptor, linked)
        rewritten = node.settings["changed_files"]
        if found.get("held") and rewritten == consistency.REPORT:
            rewritten = consistency.REFUSE  # the job has not touched them since
        cuts, remarks = consistency.check(found["open_files"], node.settings["truncate_append_only"], rewritten)
    if found["format"] == schema.COMPRESSED:
        with phases.measure("decompress"):
            compression.decompress(image, found, shown, place, node.settings["engine_timeout"])
    excess = node.engine.excess(place.descriptor)
    if excess:
        raise manifest.damaged(shown, "it would give a process more than %s has (%s)" % (node.user.name, excess))
    private_dir.ask_to_take_over()
    files = restore.PutBack(image, found, node.settings, node.user.uid)
    try:
        with phases.measure("output"):  # before anything has the files open
            files.do()
            output.put_back(image, found["spool"], node.user.uid)
        with phases.measure("restore"):
            before = incarnation.begin(directory, call.job_id, found.get("generation", 0))
            try:
                _engine(node, place.descriptor, cuts, way)
            except BaseException:
                incarnation.put_back(directory, call.job_id, before)
                raise
    except BaseException:
        files.undo()
        raise
    return dict(found, remarks="; ".join([instead] * bool(instead) + remarks)), files.made, before


def _end_descendants():
    """End what a failed restart may have brought back: nobody would look after it."""
    while True:
        left = processes.list_children(os.getpid())
        if not left:
            return
        for member in processes.list_family(processes.read_process(os.getpid()))[1:]:
            processes.send_signal(processes.get_mark(member), signal.SIGKILL)
        for pid in left:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass


def _adopt(call, node, found, life):
    """Return the restored root Process, our child, of which root's record is written by now.

    :param found: the manifest (dict)
    :param life: its incarnation (dict)
    """
    came = [found["root"]] if node.engine.keeps_ids else processes.list_children(os.getpid())
    root = processes.read_process(came[0]) if came else None
    if root is None or root.ppid != os.getpid():
        raise HookError(ENGINE, "%s said it restored job %s, but its process %d is not there; image kept"
                        % (node.engine.name, call.job_id, found["root"]))
    identity.write_record(node.settings["run_directory"], call.job_id, processes.read_process(os.getpid()), root,
                          [entry["path"] for entry in found["spool"]], capture.left(found), life)
    return root


def _bring_back(call, node, hook):
    """Restore the job and write root's record of it. Returns the manifest (dict) and the job's root process."""
    digest.prepare()
    place = private_dir.Place(node.settings["private_directory"] or node.settings["state_directory"], node.user)
    begun = []
    answer = incarnation.restarted(node, call, begun, place.answer(seal.answer(node.keys, call, node.user)))
    try:
        with frozen.way(hook, node.settings["run_directory"], call.job_id, node.user, "image kept") as way:
            found, made, before = privilege.as_user(node.user, lambda: _restore(call, node, place, way),
                                                    node.engine.restore_capabilities, answer)
    finally:
        place.remove()
    try:
        return found, _adopt(call, node, found, begun[0])
    except BaseException:
        _end_descendants()

        def undo():
            restore.undo(made, node.settings, node.user.uid)
            incarnation.put_back(location.open_job_directory(node.store, call.directory), call.job_id, before)
        privilege.as_user(node.user, undo)
        raise


def _continue(call, node, started, hook):
    """Restore the job, supervise it, end as it ends; returns only by an exception."""
    with lock.held(node.settings["run_directory"], call.job_id, "restart", node.settings["lock_timeout"], "image kept"), \
            cleanup.if_killed(call.job_id, node.user.uid):
        privilege.become_subreaper()
        found, root = _bring_back(call, node, hook)
    report.restart_succeeded()
    if found["remarks"]:
        failed_restart.comment(call.job_id, found["remarks"])
    retries.forget(node.settings["run_directory"], call.job_id)
    report.done("restart", job=call.job_id, outcome="restarted", engine=node.engine.name, origin=found["node"],
                image=found["name"], bytes=found["bytes"], seconds=round(time.monotonic() - started, 3), **report.about(found))
    status = supervisor.supervise(root.pid, node.settings["run_directory"], call.job_id)
    records.drop(node.settings["run_directory"], call.job_id, records.JOB)
    supervisor.end_as(status)


def _try(call, config_path, started, hook):
    """Restart the job; returns only by an exception."""
    with phases.measure("admit"):
        node = failed_restart.insist(lambda: preflight.check(call, config_path))
    if os.getsid(0) != os.getpid():
        raise HookError(USAGE, "restart: must be started by pbs_mom as the leader of a session; nothing was restarted")
    supervisor.block_signals()
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
        environment.settle(contract.STATUS)
        privilege.be_spared()
        try:
            _try(call, config_path, started, argv[0])
        except HookError as error:
            privilege.reset_signals()  # there is no job to hand them on to
            settings = _settings(config_path)
            error = retries.judge(settings, call.job_id, error)
            if failed_restart.is_needed():
                failed_restart.keep(settings["run_directory"], call, error)
            raise error
    return report.guard("restart", work, argv[2] if len(argv) > 2 else None, report.restart_failed)
