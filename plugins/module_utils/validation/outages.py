# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The server, a node or free space that is away while a job of level L3 needs it: what its host or its node is told to do for that."""

import contextlib
import os
import time

from ..torque.commands import CommandError, JobError
from ..torque_ckpt.selftest.roundtrip import RoundTripError
from ..torque_ckpt.system.textfile import read_text
from ..torque_ckpt.system.waiting import wait_until
from .case import NotPossibleError

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterator
    from .job import JobRoundTrip

SERVICE = "pbs_server.service"
START_UNIT = "ckpt-torque-validate-start"
"""The timer that starts the server if the round trip cannot."""

ABSENCE = 5
"""How long the server stays away after the image is complete, in seconds: pbs_mom tries to report the hold within that."""

PAUSE = 0.1
"""Between two looks, in seconds."""


def hold_without_server(trip: "JobRoundTrip") -> None:
    """Hold the job, stop pbs_server while its image is written, and start it later; the hold must arrive there.

    :raises NotPossibleError: when pbs_server is no running service here, or had stopped too late
    """
    if trip.commands.run(["systemctl", "--quiet", "is-active", SERVICE], timeout=trip.timeout)[0]:
        raise NotPossibleError("%s does not run on this host" % SERVICE)
    before = _list_images(trip)
    with _start_server_in_the_end(trip):
        started = trip.request_hold()
        _systemctl(trip, "stop", SERVICE)
        if _list_images(trip) != before:
            raise NotPossibleError("the image was complete before %s had stopped; increase the memory of the program" % SERVICE)
        if not wait_until(lambda: _list_images(trip) != before, trip.timeout, PAUSE):
            raise RoundTripError("the hold wrote no image while %s was stopped (waited %d seconds)" % (SERVICE, trip.timeout))
        time.sleep(ABSENCE)
    trip.await_hold(started)


def crash_node(trip: "JobRoundTrip") -> None:
    """Checkpoint the job, have its node crash, and see the job continue from that image, started once, when the node is back.

    The program pauses meanwhile, so that no file is another one than in the image.

    :raises NotPossibleError: when the node has other jobs
    """
    node = trip.path[0]
    others = _list_other_jobs(trip, node)
    if others:
        raise NotPossibleError("%s has other jobs, which would crash with it: %s" % (node, ", ".join(others)))
    trip.write_file("pause", "")
    if not wait_until(lambda: trip.as_user(lambda: os.path.exists(os.path.join(trip.work, "paused"))), trip.timeout, PAUSE):
        raise RoundTripError("the program does not pause (waited %d seconds)" % trip.timeout)
    before = trip.request_checkpoint("after qchkpt")
    trip.origin = trip.read_counter()
    trip.facts["counters"].append(trip.origin)
    written = len(trip.read_counters())
    trip.as_user(lambda: open(trip.crash_file, "w").close())
    try:
        job = trip.await_job(lambda job: _count_starts(job) > _count_starts(before) and job.get("job_state") == "R"
                             or job.get("job_state", "C") in "CH", trip.boot_timeout)
    finally:
        trip.as_user(lambda: os.unlink(trip.crash_file))
    if job.get("job_state", "C") in "CH":
        raise RoundTripError("the job did not continue after the crash (state %s, exit status %s): %s; build TORQUE with the patches" % (
            job.get("job_state", "C"), job.get("exit_status", "none"), job.get("comment", "no comment")))
    starts = _count_starts(job) - _count_starts(before)
    if starts != 1:
        raise RoundTripError("the job was started %d times, not once, within %d seconds after %s was created; see that the node crashes "
                             "then" % (starts, trip.boot_timeout, trip.crash_file))
    trip.as_user(lambda: os.unlink(os.path.join(trip.work, "pause")))
    trip.await_progress(trip.origin, written)
    resumed = trip.read_counters()[written] - 1
    if resumed != trip.origin:
        raise RoundTripError("the job continues from %d, but its image was written at %d" % (resumed, trip.origin))


@contextlib.contextmanager
def fill_store(trip: "JobRoundTrip") -> "Iterator[None]":
    """Have no free space where the job's images are on its first node, until the block ends.

    :raises NotPossibleError: when nobody sees to that
    """
    request, full = trip.full_store_file, trip.full_store_file + ".full"

    def is_full() -> bool:
        return trip.as_user(lambda: os.path.exists(full) and os.path.getsize(full) > 0)

    def write_request() -> None:
        with open(request, "w") as stream:
            stream.write(os.path.basename(trip.directory) + "\n")

    def remove_request() -> None:
        if os.path.exists(request):  # the node removes it when its time is over
            os.unlink(request)

    trip.as_user(write_request)
    try:
        if not wait_until(is_full, trip.timeout, PAUSE):
            raise NotPossibleError("nobody filled the store of %s within %d seconds after %s was created"
                                   % (trip.path[0], trip.timeout, request))
        reason = trip.as_user(lambda: read_text(full)).strip()
        if reason:
            raise NotPossibleError(reason)
        yield
    finally:
        trip.as_user(remove_request)
        if not wait_until(lambda: not is_full(), trip.timeout, PAUSE):
            raise RoundTripError("%s is still there %d seconds after %s was removed; unmount %s on %s if something is mounted there"
                                 % (full, trip.timeout, request, trip.directory, trip.path[0]))


def _list_images(trip: "JobRoundTrip") -> "list[str]":
    """Return the names of the job's complete images."""
    return trip.as_user(lambda: sorted(name for name in os.listdir(trip.directory) if not name.startswith(".")))


def _count_starts(job: "dict[str, str]") -> int:
    return int(job.get("start_count", "0"))


def _list_other_jobs(trip: "JobRoundTrip", node: str) -> "list[str]":
    known = trip.read_node(node)
    return [job for job in known.jobs if job != trip.job_id] if known else []


def _systemctl(trip: "JobRoundTrip", *words: str) -> None:
    """Have systemd do something to a unit.

    :raises JobError: when it cannot
    """
    status, output, error = trip.commands.run(["systemctl"] + list(words), timeout=trip.timeout)
    if status:
        raise JobError("systemctl %s exited %d: %s" % (" ".join(words), status, " ".join((error or output).split())))


@contextlib.contextmanager
def _start_server_in_the_end(trip: "JobRoundTrip") -> "Iterator[None]":
    """Start pbs_server after the block, and wait until it knows its nodes; a timer starts it if this process is killed in the block."""
    delay = "%ds" % (2 * trip.timeout + 60)
    status, _output, error = trip.commands.run(["systemd-run", "--quiet", "--collect", "--unit", START_UNIT, "--on-active", delay,
                                                "systemctl", "start", SERVICE], timeout=trip.timeout)
    if status:
        raise RoundTripError("systemd-run --unit %s exited %d: %s; %s was not stopped"
                             % (START_UNIT, status, " ".join(error.split()), SERVICE))
    try:
        yield
    finally:
        _systemctl(trip, "start", SERVICE)
        _systemctl(trip, "stop", START_UNIT + ".timer")
        wait_until(lambda: _answers(trip), trip.timeout, PAUSE)
        _await_nodes(trip)


def _await_nodes(trip: "JobRoundTrip") -> None:
    """Wait until pbs_server has heard of the path's nodes since it was started.

    A job that is released before stays queued for a scheduler's whole interval, ten minutes by default, and one that has an image cannot
    be removed before.
    """
    if not wait_until(lambda: not _list_down(trip), trip.timeout, 1):
        raise RoundTripError("%d seconds after its start %s has not heard of %s; see the log of pbs_mom there"
                             % (trip.timeout, SERVICE, " and ".join(_list_down(trip)) or "its nodes"))


def _list_down(trip: "JobRoundTrip") -> "list[str]":
    known = {node: trip.read_node(node) for node in sorted(set(trip.path))}
    return [node for node, state in known.items() if state and {"down", "unknown"} & set(state.states)]


def _answers(trip: "JobRoundTrip") -> bool:
    try:
        return bool(trip.read_job())
    except CommandError:
        return False
