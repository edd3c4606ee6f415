"""$restart_script: bring a job back from its image and be its session leader.

Called by pbs_mom as root, already a session leader, with /dev/null for all
three standard streams: a failure is seen in the exit code and the system log.
"""
import os
import signal
import time

from . import config, contract, identity, manifest, privilege, report, store, supervisor
from .engines import registry
from .errors import HookError, ENGINE, USAGE


def _restore(call, user, engine, place):
    """As the user: open, verify and restore through one and the same descriptor. Returns the manifest (dict)."""
    shown = os.path.join(call.directory, call.name)
    directory = store.open_job_directory(place, call.directory)
    image = store.open_image(directory, call.name, shown)
    found = manifest.verify(image, call, user, shown)
    if found["engine"]["name"] != engine.name:
        raise HookError(ENGINE, "image %s was made by %s, this node has %s; restart it on a node like %s; image kept"
                        % (shown, found["engine"]["name"], engine.name, found["node"]))
    manifest.check_pids_free(found)
    engine.restore(store.engine_path(image))
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


def _continue(call, settings, user, engine, place, started):
    """Restore the job, supervise it, end as it ends; returns only by an exception."""
    found = privilege.as_user(user, lambda: _restore(call, user, engine, place), engine.capabilities)
    root = identity.process(found["root"])
    if root is None or root.ppid != os.getpid():
        raise HookError(ENGINE, "criu said it restored job %s, but its process %d is not there; image kept" % (call.job_id, found["root"]))
    identity.write_record(settings["run_directory"], call.job_id, identity.process(os.getpid()), root)
    report.log("restart", job=call.job_id, outcome="restarted", engine=engine.name, origin=found["node"],
               bytes=found["bytes"], seconds=round(time.time() - started, 3))
    status = supervisor.supervise(root.pid)
    identity.drop_record(settings["run_directory"], call.job_id)
    supervisor.end_as(status)


def main(argv, config_path):
    """Restart the job that argv names, supervise it, end as it ends.

    :param argv: list of str, as pbs_mom passes it
    :param config_path: the hooks' configuration (str)
    """
    def work():
        started = time.time()
        call = contract.restart(argv[1:])
        settings = config.load(config_path)
        user = privilege.account(call.user, call.group)
        place = store.configured(settings["stores"], call.directory)
        store.check_mounted(place)
        engine = registry.get(settings)
        if os.getsid(0) != os.getpid():
            raise HookError(USAGE, "restart: must be started by pbs_mom as the leader of a session; nothing was restarted")
        supervisor.block_signals()
        privilege.become_subreaper()
        os.chdir("/")
        try:
            return _continue(call, settings, user, engine, place, started)
        except BaseException:
            _end_descendants()
            raise
    return report.guard("restart", work, argv[2] if len(argv) > 2 else None)
