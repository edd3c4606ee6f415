"""$restart_script: bring a job back from its image and be its session leader.

Called by pbs_mom as root, already a session leader, with /dev/null for all
three standard streams: a failure is seen in the exit code and the system log.
"""
import os
import signal
import time

from . import contract, fallback, identity, manifest, preflight, privilege, report, spool, store, supervisor
from .errors import HookError, ENGINE, SYSTEM, USAGE


def _restore(call, node):
    """As the user: open, verify and restore through one and the same descriptor. Returns the manifest (dict)."""
    shown = os.path.join(call.directory, call.name)
    directory = store.open_job_directory(node.store, call.directory)
    image = store.open_image(directory, call.name, shown)
    found = manifest.verify(image, call, node.user, shown)
    if found["engine"]["name"] != node.engine.name:
        raise HookError(ENGINE, "image %s was made by %s, this node has %s; restart it on a node like %s; image kept"
                        % (shown, found["engine"]["name"], node.engine.name, found["node"]))
    manifest.check_pids_free(found)
    spool.put_back(image, found["spool"], node.user.uid)  # before anything has the files open
    node.engine.restore(store.engine_path(image))
    return found


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


def _continue(call, node, started):
    """Restore the job, supervise it, end as it ends; returns only by an exception."""
    found = privilege.as_user(node.user, lambda: _restore(call, node), node.engine.restore_capabilities)
    root = identity.process(found["root"])
    if root is None or root.ppid != os.getpid():
        raise HookError(ENGINE, "criu said it restored job %s, but its process %d is not there; image kept" % (call.job_id, found["root"]))
    identity.write_record(node.settings["run_directory"], call.job_id, identity.process(os.getpid()), root,
                          [entry["path"] for entry in found["spool"]])
    report.restart_succeeded()
    report.log("restart", job=call.job_id, outcome="restarted", engine=node.engine.name, origin=found["node"],
               bytes=found["bytes"], seconds=round(time.time() - started, 3))
    status = supervisor.supervise(root.pid)
    identity.drop_record(node.settings["run_directory"], call.job_id)
    supervisor.end_as(status)


def main(argv, config_path):
    """Restart the job that argv names, supervise it, end as it ends.

    :param argv: list of str, as pbs_mom passes it
    :param config_path: the hooks' configuration (str)
    """
    def work():
        started = time.time()
        report.restart_failed(SYSTEM, "the restart hook was killed before the job ran; image kept")  # until we know better
        call = contract.restart(argv[1:])
        node = fallback.insist(lambda: preflight.check(call, config_path))
        if os.getsid(0) != os.getpid():
            raise HookError(USAGE, "restart: must be started by pbs_mom as the leader of a session; nothing was restarted")
        supervisor.block_signals()
        privilege.become_subreaper()
        os.chdir("/")
        try:
            return _continue(call, node, started)
        except BaseException as error:
            _end_descendants()
            if isinstance(error, HookError) and fallback.is_needed():
                fallback.keep(node.settings["run_directory"], call, error)
            raise
    return report.guard("restart", work, argv[2] if len(argv) > 2 else None, report.restart_failed)
