# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The round trip of level L2: the hooks, called as pbs_mom calls them, move a job. Each call does the steps of one node."""

import functools
import grp
import os
import random
import shutil
import time

from ..torque_ckpt.errors import ENGINE, REFUSED, HookError
from ..torque_ckpt.selftest import roundtrip, workload
from ..torque_ckpt.selftest.roundtrip import RoundTripError
from ..torque_ckpt.store import server_directory
from ..torque_ckpt.system import privilege
from ..torque_ckpt.system.textfile import read_text
from ..torque_ckpt.system.waiting import wait_until
from . import evidence, fake_mom

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable

MOM_HOME = "/var/lib/ckpt-torque/mom"
"""The played pbs_mom's home, the same on all nodes: the job holds its script open there."""

TICK = 0.005
"""Pause between two numbers of the job, in seconds."""

STEPS = ("run", "continue", "hold", "restart", "refused", "finish", "abandon")


class HookRoundTrip:
    """The round trip on this node.

    :param params: as the module hook_roundtrip's arguments
    :param state: empty or what the call on the node before left; it is changed to what the next node needs to know
    :param node: this node's name
    :raises HookError: when the user cannot have a job
    """

    def __init__(self, params: dict, state: dict, node: str) -> None:
        self.node = node
        self.timeout = params["timeout"]
        self.copies = params["copies"]
        self.state = state
        self.step_facts: "dict[str, Any]" = {}
        self.phases = roundtrip.Phases(state.get("phases"))
        self.user = privilege.find_user(params["user"])
        if not state:
            job_id = "%d%08d.ckpt-validate" % (time.time(), random.randrange(10 ** 8))  # many nodes start one at the same time
            work = params["work_path"] or ("/tmp" if self.copies else os.path.join(params["store_path"], params["user"]))
            state.update(job_id=job_id, session_id=None, name=None, counters=[], nodes=[], user=params["user"],
                         node_local_output=bool(self.copies and not params["work_path"]),
                         directory=os.path.join(params["images_path"] or params["store_path"], job_id + ".CK"),
                         work=os.path.join(work, job_id))
        self.work = state["work"]
        self.output, self.error = os.path.join(self.work, "stdout"), os.path.join(self.work, "stderr")
        self.job = fake_mom.Job(MOM_HOME, params["hooks_path"], self.user, grp.getgrgid(self.user.gid).gr_name,
                                state["job_id"], state["directory"], state["session_id"])
        privilege.become_subreaper()  # what the killed job leaves must be reaped, or its process ids stay in use
        if not state["nodes"] or state["nodes"][-1] != node:
            state["nodes"].append(node)

    def read_counter(self) -> int:
        """Return the job's counter."""
        return self._as_user(lambda: roundtrip.read_evidence(self.output).counter)

    def run_job(self) -> None:
        """Start the job with the run hook."""
        def write_program() -> None:
            os.mkdir(self.work, 0o755)
            with open(os.path.join(self.work, "program.py"), "w") as stream:
                stream.write(workload.PROGRAM)
        if not os.path.isdir(os.path.dirname(self.work)):
            raise RoundTripError("there is no directory %s for the job's output; add %s to checkpoint_store_users or name a work_path"
                                 % (os.path.dirname(self.work), self.user.name))
        self._as_user(write_program)
        self._place_script()
        self.job.run(self.output, self.error)
        self.state["session_id"] = self.job.session_id
        self._await_progress(10)

    def continue_job(self) -> None:
        """Checkpoint the job and see it continue."""
        self._checkpoint_job(0)
        self.state["counters"].append(self.read_counter())
        self._await_progress(self.state["counters"][-1] + 10)

    def hold_job(self) -> None:
        """Checkpoint and end the job; nothing of it may be left on this node."""
        self._checkpoint_job(15)
        self.job.wait(self.timeout)
        if not wait_until(lambda: not self.job.processes(), self.timeout):
            raise RoundTripError("processes of the held job are still there: %s"
                                 % ", ".join("%d (%s)" % (process.pid, process.name) for process in self.job.processes()))
        self.state["counters"].append(self.read_counter())

    def restart_job(self) -> None:
        """Start the job from its last image and see it continue from there."""
        if not self.state["name"]:
            raise RoundTripError("there is no image to restart from; do the step hold first")
        self._fetch_image()
        self._place_script()
        self.job.restart(self.state["name"])
        self._await_progress(self.state["counters"][-1] + 10)

    def expect_refusal(self) -> None:
        """See the restart hook refuse the last image and leave it as it is."""
        path = os.path.join(self.job.directory, self.state["name"] or "")
        self._fetch_image()
        if not os.path.exists(path):  # on a node with another store pbs_mom starts no hook
            self._note_refusal("pbs_mom finds no image %s" % path)
            return
        counter = self.read_counter()
        manifest = self._read_file(os.path.join(path, "manifest.json"))
        self._place_script()
        self.job.restart(self.state["name"])
        status, words = self.job.wait(self.timeout), " ".join(self.job.last_words().split())
        if self.read_counter() != counter or status not in (ENGINE, REFUSED):
            raise RoundTripError("the image should have been refused, but the restart hook ended with status %d at counter %d: %s"
                                 % (status, self.read_counter(), words or "it printed nothing"))
        if (self._read_file(os.path.join(path, "manifest.json")) != manifest
                or self._as_user(lambda: roundtrip.measure_image(path)) != self.state["image_bytes"]):
            raise RoundTripError("the image was refused, but it is not as it was: %s" % path)
        self._note_refusal(words)

    def finish_job(self) -> None:
        """Let the job end by itself and check what it left."""
        self._as_user(lambda: open(os.path.join(self.work, "stop"), "w").close())
        status = self.job.wait(self.timeout)
        output = self._read_file(self.output)
        output_evidence = roundtrip.parse_evidence(output)
        self.state["counters"].append(output_evidence.counter)
        self.state["exit_status"] = status
        self.state["output_lines"] = len(output.splitlines())
        evidence.judge_job(output_evidence, status, self._read_file(self.error).splitlines(), "job " + self.job.job_id)

    def clean(self) -> None:
        """Remove the job from this node and its files from the shared directories."""
        self.job.kill()
        self.job.forget()
        self._remove_as_user([self.work, self.job.directory])
        try:
            os.rmdir(self.job.directory)  # the user cannot remove it from root's directory
        except OSError:
            pass  # not created yet, or the hook left what only root can remove: the cause is more important
        if self.copies:
            self._as_user(self._clean_server)

    def leave_node(self) -> None:
        """Remove the job from this node; its files stay for the next one, unless that cannot see them."""
        self.job.kill()
        self.job.forget()
        if self.copies:
            self._remove_as_user([self.job.directory] + ([self.work] if self.state["node_local_output"] else []))

    def _checkpoint_job(self, number: int) -> None:
        """Call the checkpoint hook with a signal's number (0 or 15) and check the image it wrote."""
        name = "ckpt.%s.%d" % (self.job.job_id, len(self.state["counters"]) + int(time.time()))
        self.job.checkpoint(name, number, self.timeout)
        path = os.path.join(self.job.directory, name)
        if not os.path.exists(path):
            raise RoundTripError("the checkpoint hook exited 0 but there is no image %s" % path)
        self.state["name"] = name
        self.state["image_bytes"] = self._as_user(lambda: roundtrip.measure_image(path))
        manifest = evidence.parse_manifest(self._read_file(os.path.join(path, "manifest.json")), path)
        self.state.update(evidence.describe_image(manifest))
        if "frozen_seconds" in manifest:
            self.step_facts["engine_seconds"] = manifest["frozen_seconds"]
        if self.copies:
            self.job.copy(path, self._name_copy(), self.timeout)
            self._as_user(lambda: shutil.rmtree(path))

    def _name_copy(self) -> str:
        """Return where the last image is on the server, as pbs_mom names it."""
        return "%s@%s:/checkpoint/%s/%s" % (self.user.name, self.copies["server"], self.copies["job"], self.state["name"])

    def _fetch_image(self) -> None:
        """Copy the last image to this node, if it is on the server."""
        def create_directory() -> None:
            os.makedirs(self.job.directory, exist_ok=True)
            os.chmod(self.job.directory, 0o1777)  # as pbs_mom does
        if self.copies:
            self._as_user(create_directory)
            self.job.copy(self._name_copy(), os.path.join(self.job.directory, self.state["name"]), self.timeout)

    def _place_script(self) -> None:
        self.job.place_script(evidence.build_script("job $PBS_JOBID", self.work, TICK))

    def _note_refusal(self, words: str) -> None:
        self.state["refusals"] = self.state.get("refusals", []) + ["%s: %s" % (self.node, words)]

    def _as_user(self, work: "Callable[[], Any]") -> "Any":
        """Return what work() returns as the user: in his directories root may be nobody."""
        return privilege.as_user(self.user, work)

    def _read_file(self, path: str) -> str:
        """Return the text of a file of the user's."""
        return self._as_user(lambda: read_text(path))

    def _remove_as_user(self, paths: "list[str]") -> None:
        def remove() -> None:
            for path in paths:
                shutil.rmtree(path, ignore_errors=True)
        self._as_user(remove)

    def _clean_server(self) -> None:
        account = "%s@%s" % (self.user.name, self.copies["server"])
        server = server_directory.find_server(self.copies["directory"], self.copies["ssh_config"], account)
        prefix = "ckpt.%s." % self.job.job_id
        server.remove_images(self.copies["job"], [name for name in server.list_names(self.copies["job"]) if name.startswith(prefix)])

    def _await_progress(self, counter: int) -> None:
        wait_until(lambda: self.read_counter() >= counter or self.job.ended(), self.timeout)
        if self.read_counter() >= counter:
            return
        words = " ".join((self.job.last_words() or self._read_file(self.error)).split())
        if self.job.ended():
            raise RoundTripError("the job ended at counter %d with status %d: %s"
                                 % (self.read_counter(), self.job.wait(0), words or "it printed nothing"))
        raise RoundTripError("the job made no progress within %d seconds (counter %d): %s; %s" % (
            self.timeout, self.read_counter(), words or "it printed nothing", roundtrip.describe_processes(self.job.processes())))


WORK = {"run": HookRoundTrip.run_job, "continue": HookRoundTrip.continue_job, "hold": HookRoundTrip.hold_job,
        "restart": HookRoundTrip.restart_job, "refused": HookRoundTrip.expect_refusal, "finish": HookRoundTrip.finish_job}


def find_order_fault(steps: "list[str]", has_state: bool) -> str:
    """Return what is wrong with the order of steps, empty when nothing is; has_state is whether a state was given."""
    if not steps:
        return "there are no steps"
    if steps == ["abandon"]:
        return ""
    after = {"run": [], "restart": ["hold"], "continue": ["run", "restart", "continue"]}
    after["hold"] = after["finish"] = after["continue"]
    for number, step in enumerate(steps):
        before = steps[number - 1] if number else None
        first = step in ("run", "restart", "refused")
        if before is None and not first or before is not None and before not in after.get(step, []) and step != "abandon":
            return "step %d (%s) cannot follow %s" % (number + 1, step, before or "nothing")
    if steps[-1] not in ("hold", "refused", "finish"):
        return "the last step must be hold, refused or finish, not %s: the job cannot outlive this call" % steps[-1]
    if "abandon" in steps:
        return "abandon must be the only step"
    if (steps[0] == "run") == has_state:
        return "the first step %s %s a state" % (steps[0], "does not take" if has_state else "needs")
    return ""


def _do_steps(trip: HookRoundTrip, steps: "list[str]") -> str:
    """Do the steps; return the cause of failure (empty when all succeeded)."""
    os.makedirs(os.path.join(MOM_HOME, "mom_priv", "jobs"), mode=0o755, exist_ok=True)
    for step in steps:
        trip.step_facts = {}
        try:
            trip.phases.measure(step, functools.partial(WORK[step], trip), node=trip.node)
        except (RoundTripError, fake_mom.MomError, HookError, OSError) as error:
            return "%s: %s: %s" % (trip.node, step, error)
        trip.phases.done[-1].update(trip.step_facts, counter=trip.read_counter())
    return ""


def make_round_trip(params: dict, state: dict, node: str) -> str:
    """Do params["steps"] on this node, as root; return the cause of failure (empty when all succeeded).

    The parameters are those of HookRoundTrip; state is changed.
    """
    steps, cause = params["steps"], ""
    try:
        trip = HookRoundTrip(params, state, node)
    except HookError as error:
        return "%s: %s: %s" % (node, steps[0], error)
    if steps != ["abandon"]:
        cause = _do_steps(trip, steps)
    state["phases"] = trip.phases.done
    if cause or steps[-1] not in ("hold", "refused"):
        trip.clean()
    else:
        trip.leave_node()
    return cause
