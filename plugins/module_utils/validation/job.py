# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The round trip of level L3: a job submitted with qsub is held and released on the next node. What else happens to it is a Case."""

import contextlib
import functools
import os
import re
import shlex
import shutil
import time

from ..torque import nodes
from ..torque.commands import CommandError, Commands, wait_for_state
from ..torque_ckpt.errors import HookError
from ..torque_ckpt.selftest import roundtrip, workload
from ..torque_ckpt.selftest.roundtrip import RoundTripError
from ..torque_ckpt.system import privilege
from ..torque_ckpt.system.textfile import read_text
from ..torque_ckpt.system.waiting import wait_until
from ..torque_ckpt.torque.names import get_directory_name
from ..torque_ckpt.torque.server import get_first_node
from . import evidence
from .case import Case, NotPossibleError
from .free_nodes import check_room

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Iterator

PAUSE = 0.1
"""Between two queries of the job, in seconds: each is a qstat or a process."""

TICK = 0.02
"""Pause between two numbers of the job, in seconds."""

ARRAY_INDEX = "0"
"""That of the only job of an array."""

COMMANDS = ("qsub", "qstat", "qhold", "qrls", "qchkpt", "qalter", "qdel")
"""TORQUE's commands that a round trip uses."""

FAULTS = (RoundTripError, CommandError, HookError, OSError)
"""What a failed step raises."""


def parse_walltime(text: str) -> "int | None":
    """Return a walltime such as "01:02:03" in seconds, None when it is none."""
    parts = text.split(":") if re.match(r"^\d+(:\d+){0,2}$", text) else []
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return total if parts else None


def hold_job(trip: "JobRoundTrip", user: str = "", *options: str) -> None:
    """Hold the job of a round trip and wait until it is at rest; user and options: see request_hold."""
    trip.await_hold(trip.request_hold(user, *options))


class JobRoundTrip:
    """A job's round trip over the nodes of a path.

    :param params: as the module job_roundtrip's arguments
    :raises HookError: when the user cannot have a job

    phases     roundtrip.Phases: the steps that were done
    nodes      names of the nodes the job was on (list of str)
    images     paths of its images, in the order they were seen (list of str)
    directory  where they lie (str), empty before the first
    origin     how far the job's progress is in the image that the next restart takes (int)
    origin_is_exact  whether it is not less; a job that continues after its image has come further when that is seen (bool)
    least_walltime  seconds that the server must account at least (int)
    facts      what is known of the job and its images (dict), for the result
    undo       contextlib.ExitStack of what the case has changed beside the job, closed in the end
    possible   whether the nodes have what the case needs (bool), as far as known
    """

    def __init__(self, params: dict, case: Case, commands: Commands) -> None:
        self.commands = commands
        self.case = case
        self.path = params["path"] if case.moves else params["path"][:1]
        self.timeout, self.user = params["timeout"], privilege.find_user(params["user"])
        self.depth, self.memory = params["depth"], params["memory"]
        self.images_path, self.copies_path = params["images_path"], params["copies_path"]
        self.crash_file, self.boot_timeout = params["crash_file"], params["boot_timeout"]
        self.full_store_file = params["full_store_file"]
        self.qsub_options, self.ckpt_run_path = params["qsub_options"], params["ckpt_run_path"]
        self.work = os.path.join(params["work_path"], "validate-%d-%d" % (time.time(), os.getpid()))
        self.job_id, self.directory = "", ""
        self.phases = roundtrip.Phases()
        self.nodes: "list[str]" = []
        self.images: "list[str]" = []
        self.origin, self.origin_is_exact = 0, True
        self.least_walltime = 0
        self.possible = True
        self.undo = contextlib.ExitStack()
        self.facts: dict = {"case": params["case"], "counters": [], "comments": []}
        self._image_seen = 0.0  # when the last one was, by time.monotonic()
        self._step_facts: dict = {}  # of the phase that is running

    # what the job shows

    def as_user(self, work: "Callable[[], Any]") -> "Any":
        """Return what work() returns when the job's owner does it."""
        return privilege.as_user(self.user, work)

    def read_file(self, name: str) -> str:
        """Return the text of a file in the job's directory, read as its owner."""
        return self.as_user(lambda: read_text(os.path.join(self.work, name)))

    def read_output(self, name: str) -> str:
        """Return the text of a file in the job's directory that TORQUE delivers: it adds the index of an array's job to the name."""
        return self.read_file(name + ("-" + ARRAY_INDEX if self.case.array else ""))

    def read_counters(self) -> "list[int]":
        """Return all that the job has counted, in the order it was written."""
        lines = [line.split() for line in self.read_file("progress").split("\n")[:-1]]
        return [int(words[0]) for words in lines if len(words) == 4 and words[0].isdigit()]

    def read_counter(self) -> int:
        """Return how far the job has come."""
        return (self.read_counters() or [0])[-1]

    def read_job(self) -> "dict[str, str]":
        """Return the job's attributes as the server knows them now."""
        return self.commands.read_job(self.job_id)

    def read_node(self, name: str) -> "nodes.Node | None":
        """Return what the server knows of a node now, None if pbsnodes lists none.

        :raises JobError: when pbsnodes fails
        """
        return nodes.parse_node(self.commands("root", "pbsnodes", name))

    def read_manifest(self, image: str) -> dict:
        """Return the manifest of an image (path)."""
        return evidence.parse_manifest(self.as_user(lambda: read_text(os.path.join(image, "manifest.json"))), image)

    def await_job(self, predicate: "Callable[[dict[str, str]], bool]", timeout: "int | None" = None) -> "dict[str, str]":
        """Wait until predicate is true of the job's attributes; return the last ones seen."""
        seen: "list[dict[str, str]]" = []

        def is_true() -> bool:
            seen[:] = [self.read_job()]
            return predicate(seen[0])

        wait_until(is_true, timeout or self.timeout, PAUSE)
        return seen[0]

    def await_progress(self, counter: int, written: int = 0, started: "float | None" = None) -> None:
        """Wait until the job has come further than counter; it cannot, once it has ended or is held.

        :param written: how many lines do not count, because they were there before
        :param started: when it was sent to its node, by time.monotonic(); the time until its first line is noted then
        """
        def has_come_further() -> bool:
            new = self.read_counters()[written:]
            if new and started:
                self._step_facts.setdefault("running_seconds", round(time.monotonic() - started, 4))
            return bool(new) and new[-1] >= counter + 10

        wait_until(lambda: has_come_further() or self.read_job().get("job_state", "C") in "CH", self.timeout, PAUSE)
        if not has_come_further():
            job = self.read_job()
            raise RoundTripError("the job made no progress on %s (counter %d, state %s, waited %d seconds at most): %s" % (
                self.nodes[-1], self.read_counter(), job.get("job_state", "unknown"), self.timeout, job.get("comment", "no comment")))

    def await_start(self, node: str, counter: int, written: int = 0, started: "float | None" = None) -> None:
        """Wait until the job runs on the node and has come further than counter; the rest is as in await_progress."""
        job = wait_for_state(self.commands, self.job_id, "R", self.timeout)
        first_node = get_first_node(job)
        if first_node != node:
            raise RoundTripError("the job runs on %s, not on %s" % (first_node or "no node", node))
        self.nodes.append(node)
        self.await_progress(counter, written, started)

    def await_new_image(self, before: "str | None", timeout: int, when: str) -> "dict[str, str]":
        """Wait for an image of another name than before, and check it; return the job's attributes. When is for the sentence."""
        job = self.await_job(lambda job: job.get("checkpoint_name", before) != before or job.get("job_state", "C") in "CH", timeout)
        if job.get("checkpoint_name", before) == before:
            raise RoundTripError("there is no image %s (state %s, waited %d seconds at most): %s" % (
                when, job.get("job_state", "unknown"), timeout, job.get("comment", "no comment")))
        self.check_image(job)
        return job

    def await_image(self, before: "str | None", timeout: int, when: str) -> None:
        """Wait for an image as await_new_image does, and see the job continue."""
        self.await_new_image(before, timeout, when)
        self.facts["counters"].append(self.read_counter())
        self.await_progress(self.facts["counters"][-1])

    def list_images(self) -> "list[str]":
        """Return what is in the directory of the job's images, and the files of the last image with their sizes."""
        image = self.images[-1]
        return self.as_user(lambda: sorted(os.listdir(self.directory)) + sorted(
            "%s/%s (%d bytes)" % (os.path.basename(image), entry.name, entry.stat().st_size) for entry in os.scandir(image)))

    # the steps of every case

    def create_directory(self) -> None:
        """Create the job's directory, if it is not there."""
        parent = os.path.dirname(self.work)
        if not os.path.isdir(parent):
            raise RoundTripError("there is no directory %s for the job's output; add %s to checkpoint_store_users or name a work_path"
                                 % (parent, self.user.name))

        def create() -> None:
            if not os.path.isdir(self.work):
                os.mkdir(self.work)
        self.as_user(create)

    def write_file(self, name: str, text: str) -> None:
        """Write a file into the job's directory as its owner."""
        def write() -> None:
            with open(os.path.join(self.work, name), "w") as stream:
                stream.write(text)
        self.as_user(write)

    def submit_job(self) -> None:
        """Submit the job for the first node and see it make progress there."""
        check_room(self.read_node, self.place_on(self.path[0]).split("+"), self.timeout)
        self.create_directory()
        # stdout, which is checked, goes through MOM's spool; tee's file shows how far the job is while it runs.
        program = self.case.program
        self.write_file(program.name, program.source)
        self.write_file("job.sh", evidence.build_script("job", self.work, TICK, " | tee -a %s/progress" % shlex.quote(self.work),
                                                        program.command, self.ckpt_run_path, self.commands.directory, self.memory))
        words = ["enabled"] + [word.replace("{work}", self.work) for word in self.case.qsub_words]
        words += ["depth=%d" % self.depth] if self.depth else []
        words += ["dir=" + self.images_path] if self.images_path and "dir=" not in ",".join(words) else []
        arguments = ["-N", "validate", "-c", ",".join(words), "-l", "nodes=" + self.place_on(self.path[0]), "-o", self.work + "/stdout",
                     "-e", self.work + "/stderr"] + (["-t", ARRAY_INDEX] if self.case.array else [])
        arguments += self.qsub_options + [self.work + "/job.sh"]
        self.job_id = self.commands(self.user.name, "qsub", *arguments).strip().replace("[]", "[%s]" % ARRAY_INDEX)
        self.facts["job_id"] = self.job_id
        try:
            if self.case.array:
                self.await_job(bool)  # TORQUE 2.x creates the jobs of an array after its answer
            self.await_start(self.path[0], 0)
        except FAULTS as error:
            obstacle = self.read_file("obstacle").strip()
            if obstacle:
                raise NotPossibleError(obstacle)
            complaints = [line for line in self.read_output("stderr").splitlines() if not line.startswith(("job ", "run: "))]
            if complaints:
                raise RoundTripError("%s; its stderr ends with: %s" % (error, complaints[-1]))
            raise

    def request_checkpoint(self, when: str) -> "dict[str, str]":
        """Have an image written of the job, which keeps running; return the job's attributes."""
        before = self.read_job()
        self.commands(self.user.name, "qchkpt", self.job_id)
        return self.await_new_image(before.get("checkpoint_name"), self.timeout, when)

    def request_hold(self, user: str = "", *options: str) -> float:
        """Request a hold of the job; return when, by time.monotonic().

        :param user: who does (default: the job's owner)
        :param options: those of qhold
        """
        started = time.monotonic()
        self.commands(user or self.user.name, "qhold", *options, self.job_id)
        return started

    def await_hold(self, started: float) -> None:
        """Wait until the job is at rest, held; started is when that was requested, by time.monotonic()."""
        job = wait_for_state(self.commands, self.job_id, "H", self.timeout)
        self.check_image(job)
        self.origin, self.origin_is_exact = self.read_counter(), True
        self.facts["counters"].append(self.origin)
        # pbs_mom counts on from the image's time: what the hold took after that is not the job's, and both are whole seconds.
        self.least_walltime = (self.check_walltime(job) or 0) - int(time.monotonic() - started) - 2

    def place_on(self, node: str) -> str:
        """Return the nodes of the job, for qsub -l nodes=, when node is its first."""
        names = set(self.path) if self.case.on_all_nodes else {node}
        return "+".join(sorted(names, key=lambda name: (name != node, self.path.index(name))))

    def request_release(self, node: str, user: str = "", *options: str) -> None:
        """Have the job restarted on a node; user and options are those of the hold (request_hold)."""
        self.commands("root", "qalter", "-l", "nodes=" + self.place_on(node), self.job_id)
        self.commands(user or self.user.name, "qrls", *options, self.job_id)

    def release_job(self, node: str, user: str = "", *options: str) -> None:
        """Release the job to a node and see it continue there from where its image was; user and options: see request_release."""
        check_room(self.read_node, self.place_on(node).split("+"), self.timeout)
        written, started = len(self.read_counters()), time.monotonic()
        self.request_release(node, user, *options)
        self.await_start(node, self.origin, written, started)
        resumed = self.read_counters()[written] - 1
        self._step_facts["resumed"] = resumed
        if resumed > self.origin or self.origin_is_exact and resumed < self.origin:
            raise RoundTripError("the job continues from %d, but its image was written at %d: it is not from the image that was named"
                                 % (resumed, self.origin))

    def finish_job(self) -> None:
        """Let the job end by itself and check what TORQUE delivered."""
        self.as_user(lambda: open(os.path.join(self.work, "stop"), "w").close())
        job = wait_for_state(self.commands, self.job_id, "C", self.timeout)
        if "exit_status" not in job:
            raise RoundTripError("the server keeps no completed jobs, so the exit status cannot be known; set keep_completed")
        self.facts["exit_status"] = int(job["exit_status"])
        self.facts["walltime"] = self.check_walltime(job)
        lines = wait_until(lambda: self.read_output("stdout"), self.timeout, PAUSE).splitlines(True)
        output = workload.Evidence("".join(line for line in lines if not line.startswith(("job ", "node "))),  # -j oe, all nodes
                                   self.case.program.routes)
        self.facts["counters"].append(output.counter)
        self.facts["output_lines"] = len(lines)
        errors = [line for line in ("".join(lines) + self.read_output("stderr")).splitlines() if line.startswith("job ")]
        evidence.judge_job(output, self.facts["exit_status"], errors, "job", "the output that TORQUE delivered", self.origin)

    # what is checked of an image and of a job at rest

    def check_walltime(self, job: "dict[str, str]") -> "int | None":
        """Return the walltime (seconds) of a job (its attributes) at rest, None when there is none; a restart must not set it back."""
        walltime = parse_walltime(job.get("resources_used.walltime", ""))
        if walltime is not None:
            self._step_facts["walltime"] = walltime
            if walltime < self.least_walltime:
                raise RoundTripError("the server accounts a walltime of %d seconds, but the job had used %d before its restart"
                                     % (walltime, self.least_walltime))
        return walltime

    def check_image(self, job: "dict[str, str]") -> None:
        """Check the image that the server names in the job's attributes."""
        self._image_seen = time.monotonic()
        self.facts["comments"].append(job.get("comment", ""))
        if "checkpoint_name" not in job:
            raise RoundTripError("the server names no image: %s" % job.get("comment", "no comment"))
        self.directory = self._get_directory(job)
        image = os.path.join(self.directory, job["checkpoint_name"])
        if self.copies_path:  # pbs_server names an image before it asks for the copy
            wait_until(lambda: self.as_user(lambda: os.path.isdir(image)), self.timeout, PAUSE)
        manifest = self.read_manifest(image)
        self.facts.update(evidence.describe_image(manifest))
        if "frozen_seconds" in manifest:
            self._step_facts["engine_seconds"] = manifest["frozen_seconds"]
        if self.depth and manifest.get("depth") != self.depth:
            raise RoundTripError("the job was submitted with depth %d, but the checkpoint hook was given %s"
                                 % (self.depth, manifest.get("depth")))
        self.facts["image_bytes"] = self.as_user(lambda: roundtrip.measure_image(image))
        self.images.append(image)
        if self.depth:
            self._check_depth()

    def _check_depth(self) -> None:
        """Check that the job's directory holds the newest images, no more than depth."""
        names = sorted(name for name in self.as_user(lambda: os.listdir(self.directory)) if not name.startswith("."))
        newest = {os.path.basename(path) for path in self.images[-self.depth:]}
        if len(names) > self.depth or not newest <= set(names):
            raise RoundTripError("the job was submitted with depth %d and has written %d images, but these are kept: %s"
                                 % (self.depth, len(self.images), ", ".join(names)))

    def _get_directory(self, job: "dict[str, str]") -> str:
        """Return the directory of the job's images."""
        path = self.copies_path or job.get("checkpoint_dir", "").rstrip("/")
        return path if path.endswith(".CK") else os.path.join(path, get_directory_name(self.job_id))

    # the end

    def clean(self) -> None:
        """Remove the job and its files, these also when the job cannot be removed."""
        try:
            with self.undo:
                if self.job_id:
                    self._delete_job()
        finally:
            self._remove_files()

    def _delete_job(self) -> None:
        """End the job, if it has not."""
        job = self.read_job()
        if "checkpoint_name" in job:
            self.directory = self._get_directory(job)
        if job.get("job_state", "C") not in "CE":  # qdel fails on one that is about to end
            self.commands("root", "qdel", self.job_id)
        if self.await_job(lambda job: job.get("job_state", "C") == "C").get("job_state", "C") != "C":
            raise RoundTripError("job %s is still there after %d seconds; look at its node, then use qdel -p"
                                 % (self.job_id, self.timeout))

    def _remove_files(self) -> None:
        """Remove the job's files and images."""
        def remove() -> None:
            for path in (self.work, self.directory):
                if path:
                    shutil.rmtree(path, ignore_errors=True)
        self.as_user(remove)
        if self.directory:
            try:
                os.rmdir(self.directory)  # the user cannot remove it from root's directory
            except OSError:
                pass

    # all of it

    def wait_for_next_second(self) -> None:
        """Let a second pass since the last image: pbs_mom names images by the second, and no image replaces another."""
        time.sleep(max(0, self._image_seen + 1.1 - time.monotonic()))

    def list_steps(self) -> "Iterator[tuple[str, str, Callable[[], None]]]":
        """Yield the steps: name, node, work."""
        for step in self.case.before_submit:
            for node in sorted(set(self.path), key=self.path.index):
                yield step.name, node, functools.partial(step.work, self, node)
        yield "submit", self.path[0], self.submit_job
        for number, node in enumerate(self.path):
            if number:
                self.wait_for_next_second()
                yield "hold", self.path[number - 1], functools.partial(number == 1 and self.case.first_hold or hold_job, self)
                if number == 1:
                    for step in self.case.after_hold:
                        yield step.name, self.path[0], functools.partial(step.work, self)
                    for step in self.case.before_release:
                        yield step.name, node, functools.partial(step.work, self, node)
                release = number == 1 and self.case.first_release or JobRoundTrip.release_job
                yield "release", node, functools.partial(release, self, node)
            else:
                for step in self.case.on_first_node:
                    yield step.name, node, functools.partial(step.work, self)
            for step in self.case.on_each_node:
                yield step.name, node, functools.partial(step.work, self)
        yield "finish", self.path[-1], self.finish_job
        for step in self.case.after_end:
            yield step.name, self.path[-1], functools.partial(step.work, self)

    def make(self) -> "list[str]":
        """Do all steps and clean up; return the causes of failure, or why nothing was proven (empty when all succeeded)."""
        causes = []
        try:
            for step, node, work in self.list_steps():
                try:
                    self._step_facts = {}
                    self.phases.measure(step, work, node=node)
                    self.phases.done[-1].update(self._step_facts, counter=self.read_counter())
                except NotPossibleError as error:
                    self.possible = False
                    causes.append("not proven: %s" % error)
                    break
                except FAULTS as error:
                    causes.append("%s: %s: %s" % (node, step, error))
                    break
        finally:
            try:
                self.clean()
            except FAULTS as error:
                causes.append("clean: %s" % error)
        return causes
