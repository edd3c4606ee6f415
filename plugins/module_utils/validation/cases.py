# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What can happen to the job of a round trip of level L3 beside its moves: one entry of CASES for each.

The module's documentation repeats the descriptions; a test compares them.
"""

import contextlib
import functools
import os
import pwd
import stat

from ..torque_ckpt.selftest.roundtrip import RoundTripError
from . import drained, harms, needs, outages, programs
from .case import Case, Step

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, ContextManager, Iterator
    from .job import JobRoundTrip

INTERVAL = 1
"""Between two periodic images, in minutes of walltime: the shortest that TORQUE knows."""


def continue_job(trip: "JobRoundTrip") -> None:
    """Checkpoint the job and see it continue."""
    trip.request_checkpoint("after qchkpt")
    trip.facts["counters"].append(trip.read_counter())
    trip.await_progress(trip.facts["counters"][-1])


def await_periodic_image(trip: "JobRoundTrip") -> None:
    """Wait for an image that no command requested, and see the job continue."""
    before = os.path.basename(trip.images[-1]) if trip.images else None
    trip.await_image(before, trip.timeout + INTERVAL * 60, "without a command")


def choose_older_image(trip: "JobRoundTrip") -> None:
    """Let the restart take the image before the last one; as its owner would, truncate the file that has grown since."""
    name = os.path.basename(trip.images[-2])
    trip.commands("root", "qalter", "-W", "checkpoint_name=" + name, trip.job_id)
    chosen = trip.read_job().get("checkpoint_name")
    if chosen != name:
        raise RoundTripError("the server still names the image %s after qalter -W checkpoint_name=%s" % (chosen, name))
    progress = os.path.join(trip.work, "progress")
    for entry in trip.read_manifest(trip.images[-2]).get("open_files", []):
        if entry["path"] == progress:
            trip.as_user(functools.partial(_truncate_file, progress, entry))
    trip.origin, trip.origin_is_exact = trip.facts["counters"][-2], False
    trip.least_walltime = 0  # it goes back with the job


def preempt_job(trip: "JobRoundTrip") -> None:
    """Take the node from the job as a scheduler does that preempts: hold it and, without waiting, release it; see it continue."""
    before = trip.read_job()
    for command in ("qhold", "qrls"):
        trip.commands("root", command, "-h", "s", trip.job_id)

    def has_restarted(job: "dict[str, str]") -> bool:
        return job.get("job_state") == "R" and job.get("start_count") != before.get("start_count")

    job = trip.await_job(lambda job: has_restarted(job) or job.get("job_state", "C") in "CH")
    if not has_restarted(job):
        raise RoundTripError("the job was not started again after a hold that was released at once (state %s): %s"
                             % (job.get("job_state", "C"), job.get("comment", "no comment")))
    if job.get("checkpoint_name") == before.get("checkpoint_name"):
        raise RoundTripError("the job was started again after a hold that was released at once, but not from a new image")
    trip.check_image(job)
    trip.facts["counters"].append(trip.read_counter())
    trip.await_progress(trip.facts["counters"][-1])


def expect_failed_hold(obstacle: "Callable[[JobRoundTrip], ContextManager[None]]", reason: str, trip: "JobRoundTrip") -> None:
    """Let a hold fail because of an obstacle, and see the job continue, its images as they were."""
    before = trip.list_images()
    with obstacle(trip):
        trip.commands(trip.user.name, "qhold", trip.job_id)
        job = trip.await_job(lambda job: reason in job.get("comment", "") and job.get("Hold_Types") == "n")
        _check_failure(trip, job, "R", reason)
    _check_images(set(before) ^ set(trip.list_images()))
    trip.await_progress(trip.read_counter())


@contextlib.contextmanager
def make_read_only(trip: "JobRoundTrip") -> "Iterator[None]":
    """Take the write permission from the directory of the job's images, and give it back after the block."""
    mode = stat.S_IMODE(os.stat(trip.directory).st_mode)
    trip.as_user(lambda: os.chmod(trip.directory, 0o500))
    try:
        yield
    finally:
        trip.as_user(lambda: os.chmod(trip.directory, mode))


def expect_failed_restart(harm: harms.Harm, trip: "JobRoundTrip", node: str) -> None:
    """Let a restart fail because of what was done to the image; see the job held, its image and its output as they were."""
    before, output = trip.list_images(), [trip.read_file("stdout"), trip.read_file("stderr")]
    inflicted = harms.inflict_harm(trip, harm)
    try:
        trip.request_release(node)
        job = trip.await_job(lambda job: (job.get("job_state") == "H" and harm.reason in job.get("comment", "")
                                          or job.get("job_state", "C") == "C"))
    finally:
        harms.repair_image(trip, harm, inflicted)
    _check_failure(trip, job, "H", harm.reason)
    name = os.path.basename(trip.images[-1])
    if trip.read_job().get("checkpoint_name") != name:  # see below; the second one has what the first was harmed to
        trip.commands("root", "qalter", "-W", "checkpoint_name=" + name, trip.job_id)
    # Not what is new: a pbs_mom without restart-status has the image under a second name, too.
    _check_images(set(before) - set(trip.list_images()))
    if [trip.read_file("stdout"), trip.read_file("stderr")] != output:
        raise RoundTripError("the restart failed, and the output that TORQUE had delivered is not as it was")


def expect_failed_directory(trip: "JobRoundTrip") -> None:
    """Let a hold fail because of the directory that the job names, and see the job continue; nobody may run what is in its name."""
    reason = "is not an absolute path of plain"
    trip.commands(trip.user.name, "qhold", trip.job_id)
    job = trip.await_job(lambda job: (job.get("Hold_Types") == "n" and reason in job.get("comment", "")
                                      or job.get("job_state", "C") in "CH"))
    proof = os.path.join(trip.work, "proof")
    if trip.as_user(lambda: os.path.exists(proof)):
        raise RoundTripError("a command in the name of the directory for the job's images was run by %s; build TORQUE with the patches"
                             % trip.as_user(lambda: _describe_owner(proof)))
    _check_failure(trip, job, "R", reason)
    trip.await_progress(trip.read_counter())


def measure_throughput(trip: "JobRoundTrip") -> None:
    """Note how fast the last image was written, and how fast the job's node wrote a file of about that size."""
    trip.facts["store_bytes_per_second"] = int(trip.read_file("rate"))
    seconds = [phase["engine_seconds"] for phase in trip.phases.done if "engine_seconds" in phase]
    if seconds and seconds[-1]:
        trip.facts["image_bytes_per_second"] = int(trip.facts["image_bytes"] / seconds[-1])


def check_starts(trip: "JobRoundTrip") -> None:
    """Check that each image ended the program that ckpt-run had started, and that it was started again for no other reason."""
    starts = len(trip.read_file("starts").split())
    if starts != len(trip.images) + 1:
        raise RoundTripError("the number of times that ckpt-run started the program is %d, expected %d: once, and again after each image"
                             % (starts, len(trip.images) + 1))


def check_nodes_output(trip: "JobRoundTrip") -> None:
    """Check that the job's output has what each of its nodes printed, no line missing or twice."""
    lines = [line.split() for line in trip.read_file("stdout").splitlines() if line.startswith("node ")]
    for number in range(len(set(trip.path))):
        printed = [words[2] for words in lines if words[1] == str(number)]
        wanted = [str(number) for number in range(1, len(printed) + 1)]
        if not printed or printed != wanted:
            wrong = next((place for place, (one, other) in enumerate(zip(printed, wanted), 1) if one != other), 0)
            raise RoundTripError("what node %d of the job printed is not in its output as a whole (%d lines, the first wrong one: %d)"
                                 % (number, len(printed), wrong))


def _check_failure(trip: "JobRoundTrip", job: "dict[str, str]", state: str, reason: str) -> None:
    """Check that a job for which something had to fail is in the state, and that its comment has the reason."""
    comment = job.get("comment", "no comment")
    trip.facts["comments"].append(comment)
    if job.get("job_state", "C") != state or reason not in comment:
        raise RoundTripError("this had to fail, but the job is in state %s; its comment: %s" % (job.get("job_state", "C"), comment))


def _check_images(changed: "set[str]") -> None:
    """Check that nothing (of what JobRoundTrip.list_images lists) has changed among the job's images."""
    if changed:
        raise RoundTripError("this failed, but changed among the job's images: " + ", ".join(sorted(changed)))


def _describe_owner(path: str) -> str:
    """Return the name of a file's owner, or his uid."""
    uid = os.stat(path).st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid


def _truncate_file(path: str, entry: dict) -> None:
    """Bring a file back to what it was by a manifest's entry."""
    os.truncate(path, entry["size"])
    if "mtime_ns" in entry:
        os.utime(path, ns=(entry["mtime_ns"], entry["mtime_ns"]))


CONTINUE = Step("continue", continue_job)
PROBE = Step("probe", needs.probe_node)
STARTS = Step("starts", check_starts)
NODES_OUTPUT = Step("nodes_output", check_nodes_output)


def _harm(name: str, description: str, needs_store: bool = False) -> Case:
    """Return the case in which a restart fails because of what is done to the image."""
    return Case(description, before_release=[Step(name, functools.partial(expect_failed_restart, harms.HARMS[name]))], least_nodes=2,
                needs_store=needs_store)


CASES = {
    "move": Case("Nothing else."),
    "continue": Case(
        "The job is checkpointed once on its first node and continues (C(qchkpt)).",
        on_first_node=[CONTINUE]),
    "periodic": Case(
        "On each node the job waits for an image that C(pbs_mom) makes by itself. Its timer counts minutes of walltime and is looked at "
        "about every 45 seconds, so this takes up to two minutes on each node.",
        qsub_words=["periodic", "interval=%d" % INTERVAL], on_each_node=[Step("periodic", await_periodic_image)]),
    "older_image": Case(
        "As V(continue); then the held job is restarted from the first of its two images (C(qalter -W checkpoint_name)). "
        "Needs a path of two nodes.",
        on_first_node=[CONTINUE], after_hold=[Step("older_image", choose_older_image)], least_nodes=2),
    "failed_hold": Case(
        "As V(continue); then the directory of the job's images loses its write permission. The hold must fail, the job continue, the "
        "previous image stay as it was, and the comment say why. Then the permission is given back. Not possible with O(copies_path).",
        on_first_node=[CONTINUE, Step("failed_hold", functools.partial(expect_failed_hold, make_read_only, "Permission denied"))],
        needs_store=True),
    "full_store": Case(
        "As V(failed_hold), but O(full_store_file) is created, and there must be no free space on the first node where the job's images "
        "are, until the file is removed. Not possible with O(copies_path).",
        on_first_node=[CONTINUE, Step("full_store", functools.partial(expect_failed_hold, outages.fill_store, "the image needs"))],
        needs_store=True, fills_store=True),
    "failed_restart": _harm(
        "failed_restart", "A byte of the held job's image is changed before the first release. The restart must fail, the job be held with "
        "the reason in its comment, its image and its output stay. Then the image is repaired. Needs a path of two nodes."),
    "truncated_image": _harm("truncated_image", "As V(failed_restart), but the largest file of the image loses its second half."),
    "changed_manifest": _harm("changed_manifest", "As V(failed_restart), but the image's manifest is changed."),
    "foreign_file": _harm(
        "foreign_file", "As V(failed_restart), but the largest file of the image is given to root. If root may not do that in the store, "
        "RV(passed) is null. Not possible with O(copies_path).", needs_store=True),
    "deleted_image": _harm("deleted_image", "As V(failed_restart), but the image is moved away."),
    "failed_directory": Case(
        "The job names a directory for its images that contains a shell command (C(qsub -c dir=)). The hold must fail, the job continue, "
        "the comment say why, and nobody run the command. The job stays on the first node.",
        qsub_words=["dir=/tmp/$(id>{work}/proof)"], on_first_node=[Step("failed_directory", expect_failed_directory)], moves=False),
    "server_away": Case(
        "As V(continue), with the program of V(memory). C(pbs_server.service), which must run on this host, is stopped while the first "
        "hold writes its image, and started again when that is complete. The hold must arrive there. Jobs keep running, but nobody can use "
        "the server for about ten seconds. Not possible with O(copies_path).",
        on_first_node=[CONTINUE], first_hold=outages.hold_without_server, needs_store=True, program=programs.MEMORY, disturbs_others=True),
    "node_crash": Case(
        "The job is checkpointed on its first node (C(qchkpt)), then O(crash_file) is created, and the node must crash. The job must "
        "continue from its image, started once, when the node is back, without a command. If the node has other jobs, RV(passed) is null.",
        on_first_node=[Step("node_crash", outages.crash_node)], program=programs.PAUSABLE, moves=False, disturbs_others=True, crashes=True),
    "preempt": Case(
        "A system hold is set and, while the image is written, released again, as Maui does for C(PREEMPTPOLICY CHECKPOINT). The job must "
        "leave its node with an image, and the scheduler start it again from that.",
        on_first_node=[Step("preempt", preempt_job)]),
    "drain": Case(
        "The first node is set offline and the job is held by an operator's hold, as C(drain.yml) does. When that is taken off the job "
        "must continue on the next node. Then the first node is taken into use again. Needs a path that leads to another node first.",
        first_hold=drained.hold_job_of_drained_node, first_release=drained.release_job_of_drained_node, least_nodes=2,
        leaves_node=True),
    "files": Case(
        "As V(continue), but the program appends to a file, and changes another one in place; both must have what it wrote.",
        on_first_node=[CONTINUE], program=programs.FILES),
    "timers": Case(
        "As V(continue), but the program counts the signals of a timer, and those of another process.",
        on_first_node=[CONTINUE], program=programs.TIMERS),
    "connections": Case(
        "As V(continue), but the program has TCP connections with another process of the job. Not with an engine that restores no sockets.",
        on_first_node=[CONTINUE], program=programs.CONNECTIONS),
    "memory": Case(
        "As V(continue), but the program fills O(memory) with numbers that cannot be compressed, and reads all of them again and again. It "
        "is measured how fast its image was written, and how fast its node writes a file of that size.",
        on_first_node=[CONTINUE, Step("throughput", measure_throughput)], program=programs.MEMORY),
    "array": Case("As V(continue), but the job is one of an array (C(qsub -t 0)).", on_first_node=[CONTINUE], array=True),
    "nested_signal": Case(
        "As V(continue), but C(ckpt-run) starts the job's program, sends it a signal at each checkpoint, and starts it again. The program "
        "must continue from the file that it wrote itself, and no image may contain it.",
        on_first_node=[CONTINUE], after_end=[STARTS], program=programs.NESTED_SIGNAL),
    "nested_command": Case(
        "As V(nested_signal), but C(ckpt-run) asks the program by a command.",
        on_first_node=[CONTINUE], after_end=[STARTS], program=programs.NESTED_COMMAND),
    "multinode_output": Case(
        "As V(nested_signal), but the job has all nodes of the path at a time, and its program has each of them print by C(pbsdsh). What "
        "they print must be in the job's output, no line missing or twice. Needs a path over two nodes.",
        on_first_node=[CONTINUE], after_end=[STARTS, NODES_OUTPUT], least_nodes=2, program=programs.MULTINODE_OUTPUT, on_all_nodes=True),
    "mpi_mpich": Case(
        "As V(continue), but the job runs four ranks of MPICH, which exchange messages. It compiles its program by C(mpicc.mpich) and "
        "starts it by C(mpiexec.mpich). If a node of the path has no such command, or the job cannot compile, RV(passed) is null and "
        "RV(cause) contains the reason.",
        before_submit=[PROBE], on_first_node=[CONTINUE], program=programs.MPICH),
    "mpi_openmpi": Case(
        "As V(mpi_mpich), but of Open MPI, by C(mpicc.openmpi) and C(mpiexec.openmpi).",
        before_submit=[PROBE], on_first_node=[CONTINUE], program=programs.OPEN_MPI),
}


def find_fault(params: dict) -> str:
    """Return why the case cannot be run with the module's arguments; empty when it can."""
    name, path = params["case"], params["path"]
    case = CASES[name]
    if len(path) < case.least_nodes:
        return "case %s needs a path of two nodes at least (one may come twice)" % name
    if case.on_all_nodes and len(set(path)) < 2:
        return "case %s needs a path over two different nodes" % name
    if case.leaves_node and path[0] == path[1]:
        return "case %s needs a path that leads to another node first" % name
    if case.needs_store and params["copies_path"]:
        return "case %s needs the nodes' store on this host, which with copies_path sees copies only; leave the case out" % name
    if case.crashes and not params["crash_file"]:
        return "case %s needs crash_file, and somebody who crashes the node when that exists" % name
    if case.fills_store and not params["full_store_file"]:
        return "case %s needs full_store_file, and somebody who fills the store of the first node while that exists" % name
    return ""
