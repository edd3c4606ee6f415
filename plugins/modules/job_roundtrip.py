#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: job_roundtrip
short_description: Prove that a real job submitted with qsub survives qhold, qrls and moves (level L3)
version_added: 0.2.0
description:
  - Run on a host where root may use C(qrun) and C(qalter), usually the server. Submits a job as an ordinary user, waits until it
    makes progress, holds it, releases it on the next node of the path, and so on; lets it end and judges it.
  - The proof is the job's own output as TORQUE delivers it, a counter without gap or repeat, its stderr and its exit status.
  - Every wait is bounded. What the round trip made is removed, the job included.
  - A round trip that fails is a result, not a failure of the module; look at RV(passed) and RV(cause).
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.round_trip
options:
  path:
    description: The nodes the job is to be on, in this order, by the names TORQUE has for them. A node may come twice in a row.
    type: list
    elements: str
    required: true
  continued:
    description: Whether to checkpoint the job on its first node once and let it go on (C(qchkpt)) before it is held.
    type: bool
    default: true
  user:
    description: The ordinary user whose job it is.
    type: str
    required: true
  work_path:
    description: A directory of the user's that all nodes and this host share; the round trip makes its own beneath it.
    type: path
    required: true
  qsub_options:
    description: Further options for C(qsub), for instance V([-j, oe]).
    type: list
    elements: str
    default: []
  torque_path:
    description: The directory of TORQUE's commands.
    type: path
    default: /opt/torque/current/bin
  timeout:
    description: How long each step may take, in seconds.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Prove that jobs move
  ckpt.torque.job_roundtrip:
    path: [node1, node2]
    user: alice
    work_path: /shared/ckpt/alice
  register: trip
"""

RETURN = r"""
passed:
  description: Whether the job did what its owner relies on. Null when nothing was run.
  returned: always
  type: bool
cause:
  description: Step and reason of the failure; empty when it passed.
  returned: always
  type: str
  sample: "hold: qhold 12.head exited 170: qhold: Server could not connect to MOM 12.head"
level:
  description: The level of proof.
  returned: always
  type: str
  sample: L3
nodes:
  description: The nodes the job was on, in order.
  returned: always
  type: list
  elements: str
job_id:
  description: The job's identifier.
  returned: when it was submitted
  type: str
  sample: 12.head
counters:
  description: The job's counter at each image, and at its end.
  returned: always
  type: list
  elements: int
exit_status:
  description: The job's exit status as the server reports it.
  returned: when the job ended
  type: int
output_lines:
  description: How many lines of stdout TORQUE delivered.
  returned: when the job ended
  type: int
image_bytes:
  description: Size of the last image in bytes.
  returned: after the first image
  type: int
engine:
  description: Name and version of the engine, by the last image's manifest.
  returned: after the first image
  type: dict
  sample: {name: criu, version: 4.2.1}
torque:
  description: The server's version.
  returned: when it answered
  type: str
  sample: 6.1.3
comments:
  description: The job's comment after each step.
  returned: always
  type: list
  elements: str
walltime:
  description: The walltime the server accounts, in seconds.
  returned: when the job ended
  type: int
phases:
  description: All steps with node, time taken (seconds) and counter.
  returned: always
  type: list
  elements: dict
  sample: [{node: node1, step: hold, seconds: 0.42, counter: 57}]
"""

import functools
import json
import os
import re
import shlex
import shutil
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils import mom, torque_job
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt import privilege, trial, workload
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.errors import HookError

STATUS = 7
"""The exit status the job ends with; anything but 0 and 1, which failures produce by themselves."""

PAUSE = 0.1
"""Between two looks at the job, in seconds: each is a qstat or a process."""

# tee appends, so that its file may have grown when an older image comes back; stdout, which is judged, goes through MOM's spool.
SCRIPT = """\
#!/bin/bash
echo "job starts" >&2
python3 {work}/program.py {work}/stop 0.02 {status} | tee -a {work}/progress
status=${{PIPESTATUS[0]}}
echo "job ends with $status" >&2
exit $status
"""


def seconds(text):
    """Return a walltime such as "01:02:03" in seconds (int), None when it is none."""
    parts = text.split(":") if re.match(r"^\d+(:\d+){0,2}$", text) else []
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return total if parts else None


class Trip(object):
    """The round trip. .facts is what it found out."""

    def __init__(self, params, commands):
        self.commands = commands
        self.path, self.timeout, self.user = params["path"], params["timeout"], privilege.account(params["user"])
        self.qsub_options = params["qsub_options"]
        self.parent = params["work_path"]
        self.work = os.path.join(self.parent, "validate-%d-%d" % (time.time(), os.getpid()))
        self.job_id, self.place = None, None
        self.phases = trial.Phases()
        self.nodes = []
        self.imaged = 0  # when the last image was seen
        self.facts = {"counters": [], "comments": []}

    def file(self, name):
        """Return the text of a file in the job's directory, read as its owner."""
        return privilege.as_user(self.user, lambda: trial.read(os.path.join(self.work, name)))

    def counter(self):
        """Return how far the job has come (int)."""
        lines = [line.split() for line in self.file("progress").splitlines()[-2:]]
        numbers = [int(words[0]) for words in lines if len(words) == 4 and words[0].isdigit()]
        return max(numbers or [0])

    def submit(self):
        """Submit the job for the first node and see it make progress there."""
        if not os.path.isdir(self.parent):
            raise trial.TrialError("there is no directory %s for the job's output; add %s to checkpoint_store_users or name a work_path"
                                   % (self.parent, self.user.name))

        def make():
            os.mkdir(self.work)
            script = SCRIPT.format(work=shlex.quote(self.work), status=STATUS)
            for name, text in (("program.py", workload.PROGRAM), ("job.sh", script)):
                with open(os.path.join(self.work, name), "w") as stream:
                    stream.write(text)
        privilege.as_user(self.user, make)
        arguments = ["-N", "validate", "-c", "enabled", "-l", "nodes=" + self.path[0], "-o", self.work + "/stdout",
                     "-e", self.work + "/stderr"] + self.qsub_options + [self.work + "/job.sh"]
        self.job_id = self.commands(self.user.name, "qsub", *arguments).strip()
        self.facts["job_id"] = self.job_id
        self.run_on(self.path[0], 0)

    def run_on(self, node, counter):
        """Wait until the job runs on the node and has come further than counter (int)."""
        job = torque_job.wait_for_state(self.commands, self.job_id, "R", self.timeout)
        where = torque_job.node_of(job.get("exec_host", ""))
        if where != node:
            raise trial.TrialError("the job runs on %s, not on %s" % (where or "no node", node))
        self.nodes.append(node)
        self.progress(node, counter)

    def progress(self, node, counter):
        """Wait until the job has come further than counter (int); it cannot once it has ended or is held."""
        mom.wait_until(lambda: self.counter() >= counter + 10 or self.commands.job(self.job_id).get("job_state", "C") in "CH",
                       self.timeout, PAUSE)
        if self.counter() < counter + 10:
            job = self.commands.job(self.job_id)
            raise trial.TrialError("the job made no progress on %s (counter %d, state %s, waited %d seconds at most): %s" % (
                node, self.counter(), job.get("job_state", "unknown"), self.timeout, job.get("comment", "no comment")))

    def go_on(self):
        """Checkpoint the job and see it go on."""
        before = self.commands.job(self.job_id).get("checkpoint_name")
        self.commands(self.user.name, "qchkpt", self.job_id)
        mom.wait_until(lambda: self.commands.job(self.job_id).get("checkpoint_name", before) != before, self.timeout, PAUSE)
        job = self.commands.job(self.job_id)
        if job.get("checkpoint_name", before) == before:
            raise trial.TrialError("there is no image %d seconds after qchkpt: %s" % (self.timeout, job.get("comment", "no comment")))
        self.look(job)
        self.facts["counters"].append(self.counter())
        self.progress(self.path[0], self.facts["counters"][-1])

    def hold(self):
        """Hold the job and wait until it is at rest."""
        self.commands(self.user.name, "qhold", self.job_id)
        self.look(torque_job.wait_for_state(self.commands, self.job_id, "H", self.timeout))
        self.facts["counters"].append(self.counter())

    def directory(self, job):
        """Return the directory (str) of the job's images."""
        path = job.get("checkpoint_dir", "").rstrip("/")
        return path if path.endswith(".CK") else os.path.join(path, self.job_id + ".CK")

    def look(self, job):
        """Look at the image that the server names."""
        self.imaged = time.time()
        self.facts["comments"].append(job.get("comment", ""))
        if "checkpoint_name" not in job:
            raise trial.TrialError("the server names no image: %s" % job.get("comment", "no comment"))
        self.place = self.directory(job)
        path = os.path.join(self.place, job["checkpoint_name"])
        manifest = privilege.as_user(self.user, lambda: trial.read(os.path.join(path, "manifest.json")))
        try:
            self.facts["engine"] = dict(json.loads(manifest)["engine"])
        except (ValueError, KeyError, TypeError):
            raise trial.TrialError("the image %s has no manifest that can be read" % path)
        self.facts["image_bytes"] = privilege.as_user(self.user, lambda: trial.image_bytes(path))

    def release(self, node):
        """Release the job to a node and see it go on there from where it was."""
        self.commands("root", "qalter", "-l", "nodes=" + node, self.job_id)
        self.commands(self.user.name, "qrls", self.job_id)
        self.run_on(node, self.facts["counters"][-1])

    def finish(self):
        """Let the job end by itself and judge what TORQUE delivered."""
        privilege.as_user(self.user, lambda: open(os.path.join(self.work, "stop"), "w").close())
        job = torque_job.wait_for_state(self.commands, self.job_id, "C", self.timeout)
        if "exit_status" not in job:
            raise trial.TrialError("the server keeps no completed jobs, so the exit status cannot be known; set keep_completed")
        self.facts["exit_status"] = int(job["exit_status"])
        self.facts["walltime"] = seconds(job.get("resources_used.walltime", ""))
        output = mom.wait_until(lambda: self.file("stdout"), self.timeout, PAUSE)
        found = workload.Evidence("".join(line for line in output.splitlines(True) if not line.startswith("job ")))  # -j oe
        self.facts["counters"].append(found.counter)
        self.facts["output_lines"] = len(output.splitlines())
        if found.problems:
            raise trial.TrialError("the output that TORQUE delivered is not whole: " + "; ".join(found.problems))
        if not found.ended:
            raise trial.TrialError("the output that TORQUE delivered has no end (%d lines)" % len(output.splitlines()))
        if self.facts["exit_status"] != STATUS:
            raise trial.TrialError("the job's exit status is %d, expected %d" % (self.facts["exit_status"], STATUS))
        words = [line for line in (output + self.file("stderr")).splitlines() if line.startswith("job ")]
        wanted = ["job starts", "job ends with %d" % STATUS]
        if words != wanted:
            raise trial.TrialError("the job's stderr is %s, expected %s" % (words, wanted))

    def clean(self):
        """Remove the job and its files, these also when the job cannot be removed."""
        try:
            if self.job_id:
                self.end()
        finally:
            self.remove()

    def end(self):
        """End the job, if it has not."""
        job = self.commands.job(self.job_id)
        if "checkpoint_name" in job:
            self.place = self.directory(job)
        if job.get("job_state", "C") not in "CE":  # qdel fails on one that is about to end
            self.commands("root", "qdel", self.job_id)
        if not mom.wait_until(lambda: self.commands.job(self.job_id).get("job_state", "C") == "C", self.timeout, PAUSE):
            raise trial.TrialError("job %s is still there after %d seconds; look at its node, then use qdel -p"
                                   % (self.job_id, self.timeout))

    def remove(self):
        """Remove the job's files and images."""
        privilege.as_user(self.user, lambda: [shutil.rmtree(path, ignore_errors=True) for path in (self.work, self.place) if path])
        if self.place:
            try:
                os.rmdir(self.place)  # the user cannot remove it from root's directory
            except OSError:
                pass

    def rest(self):
        """Let a second pass since the last image: pbs_mom names images by the second, and no image replaces another."""
        time.sleep(max(0, self.imaged + 1.1 - time.time()))

    def steps(self, continued):
        """Yield the steps: name, node, work."""
        yield "submit", self.path[0], self.submit
        if continued:
            yield "continue", self.path[0], self.go_on
        for before, node in zip(self.path, self.path[1:]):
            self.rest()
            yield "hold", before, self.hold
            yield "release", node, functools.partial(self.release, node)
        yield "finish", self.path[-1], self.finish


FAULTS = (trial.TrialError, torque_job.JobError, HookError, OSError)


def attempt(trip, continued):
    """Do all steps; return the causes of failure (list of str, empty when all did well)."""
    causes = []
    try:
        for step, node, work in trip.steps(continued):
            try:
                trip.phases.measure(step, work, node=node)
                trip.phases.done[-1]["counter"] = trip.counter()
            except FAULTS as error:
                causes.append("%s: %s: %s" % (node, step, error))
                break
    finally:
        try:
            trip.clean()
        except FAULTS as error:
            causes.append("clean: %s" % error)
    return causes


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "list", "elements": "str", "required": True},
            "continued": {"type": "bool", "default": True},
            "user": {"type": "str", "required": True},
            "work_path": {"type": "path", "required": True},
            "qsub_options": {"type": "list", "elements": "str", "default": []},
            "torque_path": {"type": "path", "default": "/opt/torque/current/bin"},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    params, host = module.params, os.uname().nodename
    if not params["path"]:
        module.fail_json(msg="%s: job_roundtrip: the path holds no node; nothing was done" % host)
    if params["timeout"] < 1:
        module.fail_json(msg="%s: job_roundtrip: timeout is %d, but must be at least 1 (second); nothing was done"
                         % (host, params["timeout"]))
    if module.check_mode:
        module.exit_json(changed=False, **trial.result("L3", params["path"], None, "check mode: no job is submitted",
                                                       counters=[], comments=[], phases=[]))
    if os.geteuid() != 0:
        module.fail_json(msg="%s: job_roundtrip must run as root to submit as another user; use become" % host)
    missing = [name for name in ("qsub", "qstat", "qhold", "qrls", "qchkpt", "qalter", "qdel")
               if not os.access(os.path.join(params["torque_path"], name), os.X_OK)]
    if missing:
        module.fail_json(msg="%s: job_roundtrip: %s has no %s; install TORQUE's commands here or correct torque_path; nothing was done"
                         % (host, params["torque_path"], ", ".join(missing)))

    def run(argv, user):
        if user != "root":  # what root has in its environment is not the user's business: qsub -V would give it to the job
            argv = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=" + trip.user.home, "USER=" + user,
                    "LOGNAME=" + user, "runuser", "-u", user, "--"] + argv
        status, output, error = module.run_command(["timeout", "-k", "5", str(params["timeout"])] + argv, cwd="/",
                                                   environ_update={"LC_ALL": "C"})
        if status == 124:
            error = "it did not answer within %d seconds" % params["timeout"]
        return status, output, error

    try:
        trip = Trip(params, torque_job.Commands(run, params["torque_path"]))
    except HookError as error:
        module.fail_json(msg="%s: job_roundtrip: %s; nothing was done" % (host, error))
    cause = "; ".join(attempt(trip, params["continued"]))
    version = re.search(r"[Vv]ersion: *(\S+)", " ".join(run([params["torque_path"] + "/qstat", "--version"], "root")[1:]))
    if version:
        trip.facts["torque"] = version.group(1)
    module.exit_json(changed=False, **trial.result("L3", trip.nodes or params["path"], not cause, cause,
                                                   phases=trip.phases.done, **trip.facts))


if __name__ == "__main__":
    main()
