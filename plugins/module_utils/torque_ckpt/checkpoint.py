"""$checkpoint_script: write an image of a running job.

Called by pbs_mom as root. What goes to stderr becomes the job's comment. A
checkpoint that fails leaves the job running and the older images as they were.
"""
import os
import signal
import time

from . import contract, fallback, identity, key, manifest, preflight, privilege, report, spool, store


def _signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def _write(call, node, root, output, hook):
    """As the user: dump, describe, publish; then kill for a hold. Returns the manifest (dict).

    :param output: paths of the job's files in pbs_mom's spool (list of str)
    :param hook: this program's path (str)
    """
    hold = call.signal == contract.HOLD
    directory = store.open_job_directory(node.store, call.directory, create=True)
    draft = store.Draft(directory, call.name)
    try:
        # Already stopped ones (qsig -s suspend) must not be set going if we have to give up.
        suspended = [pid for pid in identity.tree(root.pid) if getattr(identity.process(pid), "state", "") == "T"]
        started = time.time()
        # A job that goes on writes on while its output is copied: how much of it counts must be seen before.
        watch = output and not hold
        if watch:
            os.environ[spool.WATCHED] = "\n".join(output)
        printed = node.engine.dump(root.pid, draft.path(), stop=hold, witness=hook if watch else None)
        frozen = time.time() - started
    except BaseException:
        draft.discard()
        raise
    try:
        saved = spool.save(draft.descriptor, output, spool.sizes(printed) if watch else None, node.user.uid)
        facts = {"engine": {"name": node.engine.name, "version": node.engine.version()}, "root": root.pid,
                 "pids": node.engine.process_ids(draft.descriptor), "frozen_seconds": round(frozen, 6), "spool": saved}
        found = manifest.write(draft.descriptor, call, node.user, facts, key.ask_to_seal)
        draft.publish()
    except BaseException:
        if hold:
            _signal_all([pid for pid in identity.tree(root.pid) if pid not in suspended], signal.SIGCONT)
        draft.discard()
        raise
    if hold:  # not before the image is whole and under its name
        _signal_all(identity.tree(root.pid), signal.SIGKILL)
    return found


def main(argv, config_path):
    """Checkpoint the job that argv names; return the exit code (int).

    :param argv: list of str, as pbs_mom passes it
    :param config_path: the hooks' configuration (str)
    """
    if spool.WATCHED in os.environ:
        return spool.testify()

    def work():
        started = time.time()
        call = contract.checkpoint(argv[1:])
        node = preflight.check(call, config_path)
        answer = key.answer(node.keys, call, node.user)
        failed = fallback.note(node.settings["run_directory"], call.job_id)
        if failed:
            privilege.as_user(node.user, lambda: fallback.present(call, node, failed["name"]), answer=answer)
            fallback.drop_note(node.settings["run_directory"], call.job_id)
            _signal_all([failed["hook"][0]], signal.SIGKILL)
            report.log("checkpoint", job=call.job_id, outcome="held", image=failed["name"])
            return
        root = identity.root_of(node.settings["run_directory"], call, node.user.uid)
        # A restart hook does not have the job's output open as the run hook has.
        output = identity.output_of(node.settings["run_directory"], call.job_id, root) or spool.find(root.ppid, spool.directory())
        store.give_job_directory(node.store, call.directory, node.user)
        found = privilege.as_user(node.user, lambda: _write(call, node, root, output, argv[0]), node.engine.dump_capabilities,
                                  answer)
        report.log("checkpoint", job=call.job_id, outcome="held" if call.signal else "continued", engine=node.engine.name,
                   bytes=found["bytes"], frozen_seconds=found["frozen_seconds"], seconds=round(time.time() - started, 3))
    return report.guard("checkpoint", work, argv[2] if len(argv) > 2 else None)
