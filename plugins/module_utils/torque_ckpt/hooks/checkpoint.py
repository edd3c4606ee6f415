"""$checkpoint_script: write an image of a running job.

Called by pbs_mom as root. What goes to stderr becomes the job's comment. A
checkpoint that fails leaves the job running and the older images as they were.
"""
import contextlib
import os
import time

from .. import phases
from ..errors import HookError, CARRYING
from ..files import capture, connections, open_files, output
from ..image import digest, seal
from ..job import frozen, identity, lock, site_programs, suspension
from ..nested import request
from ..store import capacity, incarnation, location
from ..system import environment, privilege, processes
from ..telemetry import syslog
from ..telemetry.report import Report, describe_image
from ..torque import contract
from . import demux, ongoing_restart, preflight
from .image_writer import CONSEQUENCE, Target, check_obstacles, make_image, open_life

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, ContextManager, Iterator
    from ..system.private_dir import PrivateDirectory

_TRIES = 3
"""How often an image is written at most: of 25 of the busiest connection one was in motion."""


def _find_root(job: preflight.Job) -> processes.Process:
    """As root: return the job's root process, verified. A job that a dead hook has left stopped is resumed."""
    root = identity.find_root_process(job.records, job.call, job.user.uid)
    suspension.resume_abandoned_job(job.records, root.pid)
    return root


@contextlib.contextmanager
def _run_site_programs(job: preflight.Job, root: processes.Process) -> "Iterator[None]":
    """As root: run the site's program for before the body of the with statement, and if the job continues that for after it."""
    def run_program(setting: str, event: str) -> None:
        if job.programs.has(setting):
            with phases.measure("programs"):
                job.programs.run(setting, event, job.call.name, CONSEQUENCE)

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
            check_obstacles(job, open_files.find_open_files(root.pid, [], programs))
            capture.check_work_directories(job.settings, root.pid, programs)

        def prepare_programs() -> None:
            os.close(open_life(job)[0])  # a life that is not to continue must not touch the files of the other
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
    tree = processes.list_family(root)
    pids = [process.pid for process in tree]
    needed = capacity.estimate_need(pids, sum(output.read_sizes(spooled).values()))
    sockets = connections.list_sockets(tree) if job.engine.moves_connections else {}
    return Target(root, spooled, left, needed, bool(sockets) and _is_connected(pids, sockets))


def _is_connected(pids: "list[int]", sockets: "dict[str, tuple[processes.Process, int]]") -> bool:
    """As root: return whether the engine moves connections of these sockets of the job's processes (its root first)."""
    from ..files import tcp_sockets  # takes milliseconds, and most jobs have no socket
    return tcp_sockets.has_closed(pids, sockets) or connections.has_inside_only(pids, sockets)


def _list_capabilities(job: preflight.Job, target: Target) -> "tuple[int, ...]":
    """Return the capabilities that the engine needs to write this job."""
    return job.engine.dump_capabilities + (job.engine.connection_capabilities if target.connected else ())


def _guard_job(job: preflight.Job, target: Target) -> "ContextManager[list[int]]":
    """As root: see suspension.guard_job. An engine that was killed leaves connections that do not work."""
    sockets = connections.list_sockets(processes.list_family(target.root)) if target.connected else {}

    def repair() -> None:
        if sockets:
            from ..files import tcp_sockets
            tcp_sockets.end_repair(job.user.uid, sockets)
    return suspension.guard_job(job.records, target.root, job.engine, job.settings["engine_timeout"], repair)


def _checkpoint_for_hold(job: preflight.Job, target: Target, staging: "PrivateDirectory", answer: "Callable[[Any], Any]") -> dict:
    """As root: have an image written of a job that is to be held; the job is stopped then. Returns the manifest.

    Whatever fails resumes the job: here if the owner's part dies, there if this one does, else the job's leader (suspension.py).
    """
    from . import unheard_hold  # takes milliseconds, and most checkpoints are no hold
    privilege.become_subreaper()
    commands = unheard_hold.find_commands(job.settings)
    try:
        with contextlib.ExitStack() as stack:
            suspended = stack.enter_context(_guard_job(job, target))

            def make_or_resume() -> dict:
                # Where there are connections root resumes the job, when they are repaired.
                with contextlib.ExitStack() if target.connected else suspension.resume_on_failure(target.root, suspended):
                    return make_image(job, target, staging, channel)
            channel = stack.enter_context(frozen.open_channel(job.hook, job.records, job.user, CONSEQUENCE)) if target.connected else None
            described = privilege.as_user(job.user, make_or_resume, _list_capabilities(job, target), answer)
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
        channel = stack.enter_context(frozen.open_channel(job.hook, job.records, job.user, CONSEQUENCE))
        return privilege.as_user(job.user, lambda: make_image(job, target, staging, channel), _list_capabilities(job, target), answer)


def _make_image(job: preflight.Job, target: Target, answer: "Callable[[Any], Any]") -> dict:
    """As root: have an image written, anew if the kernel carried bytes between the job's processes meanwhile. Returns the manifest."""
    checkpoint = _checkpoint_for_hold if job.call.signal == contract.HOLD else _checkpoint_and_continue
    left = _TRIES
    while True:
        left -= 1
        try:
            with job.create_private_directory(CONSEQUENCE) as staging:
                return checkpoint(job, target, staging, answer)
        except HookError as error:
            if error.cause != CARRYING or not left:
                raise
            phases.forget_failure()


def _checkpoint_job(job: preflight.Job, started: float) -> None:
    """As root: write an image of the job; or hold one whose restart failed."""
    digest.load_modules()
    answer = seal.build_answer(job.keys, job.call, job.user)
    note = ongoing_restart.read_note(job.records)
    if note:
        from . import failed_restart  # takes milliseconds, and few restarts fail
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
    described = _make_image(job, target, answer)
    job.report.log_success(outcome="held" if holds else "continued", engine=job.engine.name, bytes=described["bytes"],
                           frozen_seconds=described["frozen_seconds"], seconds=round(time.monotonic() - started, 3),
                           **describe_image(described))
    if holds:
        with contextlib.ExitStack() as stack:
            if target.connected:
                from ..files import tcp_sockets
                stack.enter_context(tcp_sockets.drop_silently(target.root))
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
        with lock.hold_lock(job.records, "checkpoint", job.settings["lock_timeout"], CONSEQUENCE):
            _checkpoint_job(job, started)
    return report.code
