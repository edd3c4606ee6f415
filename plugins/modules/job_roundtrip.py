#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: job_roundtrip
short_description: Prove that a real job submitted with qsub survives qhold, qrls and moves (level L3)
version_added: 0.2.0
description:
  - Run on a host where root may use C(qalter) and C(qdel), usually the server. Submits a job as an ordinary user, waits until it
    makes progress, holds it, releases it on the next node of the path, and so on; lets it end and judges it.
  - The proof is the job's own output as TORQUE delivers it, a counter without gap or repeat, its stderr, its exit status, and a walltime
    that no restart has set back.
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
  case:
    description:
      - What happens to the job beside the moves of O(path).
      - V(move) is nothing else. With V(continue) the job is checkpointed on its first node once and goes on (C(qchkpt)).
      - V(periodic) waits on each node for an image that C(pbs_mom) makes by itself. Its timer counts minutes of walltime and is looked at
        about every 45 seconds, so this takes up to two minutes on each node.
      - V(older_image) does as V(continue), and restarts the held job from the first of its two images (C(qalter -W checkpoint_name)).
      - V(failed_hold) does as V(continue), then takes the right to write away from the directory of the job's images. The hold must fail,
        the job go on, the image before stay as it was, and the comment say why. Then the right is given back.
      - V(failed_restart) damages the held job's image before the first release. The restart must fail, the job be held with the reason in
        its comment, its image and its output stay. Then the image is repaired.
    type: str
    choices: [move, continue, periodic, older_image, failed_hold, failed_restart]
    default: continue
  depth:
    description:
      - Submit the job with C(-c depth=N), see in each image's manifest that the checkpoint hook was given this number, and in the
        directory that the newest images are kept and no more than so many.
    type: int
  user:
    description: The ordinary user whose job it is.
    type: str
    required: true
  work_path:
    description: A directory of the user's that all nodes and this host share; the round trip makes its own beneath it.
    type: path
    required: true
  images_path:
    description:
      - Submit the job with C(-c dir=PATH), so that its images lie beneath this directory.
      - The default is what the queue's C(checkpoint_dir) says.
    type: path
  copies_path:
    description:
      - Where each node has a store of its own, the server's checkpoint directory, in which images are at rest. The module must run on the
        server then.
      - The default is that this host sees the store of the nodes.
    type: path
  qsub_options:
    description: Further options for C(qsub), for instance V([-j, oe]).
    type: list
    elements: str
    default: []
  torque_directory:
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

- name: Prove that a restart that fails loses nothing
  ckpt.torque.job_roundtrip:
    path: [node1, node2]
    case: failed_restart
    user: alice
    work_path: /shared/ckpt/alice
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
case:
  description: What happened beside the moves, as O(case).
  returned: always
  type: str
  sample: continue
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
compression:
  description: Name of the program that compressed the last image, by its manifest; empty where none did.
  returned: after the first image
  type: str
  sample: zstd
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
  description: The job's comment after each image, each hold that had to fail and each restart that had to fail.
  returned: always
  type: list
  elements: str
states:
  description:
    - The states of the job, each when it was first seen, in seconds since the first look; C(node) is empty where TORQUE names none.
    - The job is looked at about ten times a second, so short ones may be missing.
  returned: always
  type: list
  elements: dict
  sample: [{state: R, substate: 42, node: node1, seconds: 0.31}]
walltime:
  description: The walltime the server accounts, in seconds.
  returned: when the job ended
  type: int
phases:
  description:
    - All steps with node, time taken (seconds) and counter.
    - A step that made an image has C(engine_seconds), how long the engine held the job, by the image's manifest.
    - C(hold) has C(walltime), which the server accounts so far (seconds).
    - C(release) has C(running_seconds), from C(qalter) to the first line that the job wrote on the new node (the rest of its time goes to
      ten further lines), and C(resumed), the counter from which it went on.
  returned: always
  type: list
  elements: dict
  sample: [{node: node1, step: hold, seconds: 0.42, engine_seconds: 0.031, walltime: 3, counter: 57}]
"""

import functools
import json
import os
import re
import shlex
import shutil
import stat
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.validation import fake_mom
from ansible_collections.ckpt.torque.plugins.module_utils.torque import commands
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.errors import HookError
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest import roundtrip, workload
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system import privilege

STATUS = 7
"""The exit status the job ends with; anything but 0 and 1, which failures produce by themselves."""

PAUSE = 0.1
"""Between two looks at the job, in seconds: each is a qstat or a process."""

# stdout, which is judged, goes through MOM's spool; tee's file shows how far the job is while it runs.
CASES = ("move", "continue", "periodic", "older_image", "failed_hold", "failed_restart")

INTERVAL = 1
"""Between two periodic images, in minutes of walltime: the least that TORQUE knows."""

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


class Trip:
    """The round trip. .facts is what it found out."""

    def __init__(self, params, commands):
        self.commands = commands
        self.path, self.timeout, self.user = params["path"], params["timeout"], privilege.account(params["user"])
        self.case, self.depth = params["case"], params["depth"]
        self.images_path, self.copies_path = params["images_path"], params["copies_path"]
        self.qsub_options = params["qsub_options"]
        self.parent = params["work_path"]
        self.work = os.path.join(self.parent, "validate-%d-%d" % (time.time(), os.getpid()))
        self.job_id, self.place = None, None
        self.phases = roundtrip.Phases()
        self.nodes = []
        self.images = []  # their paths, in the order they were seen
        self.imaged = 0  # when the last one was seen
        self.origin = 0  # the counter in the image that comes next to a restart, or a little less than it
        self.walltime = 0  # what the server must account at least
        self.noted = {}  # for the phase that is running
        self.facts = {"case": self.case, "counters": [], "comments": []}

    def as_user(self, work):
        """Return what work() returns when the job's owner does it."""
        return privilege.as_user(self.user, work)

    def file(self, name):
        """Return the text of a file in the job's directory, read as its owner."""
        return self.as_user(lambda: roundtrip.read(os.path.join(self.work, name)))

    def numbers(self):
        """Return all that the job has counted (list of int), in the order it was written."""
        lines = [line.split() for line in self.file("progress").split("\n")[:-1]]
        return [int(words[0]) for words in lines if len(words) == 4 and words[0].isdigit()]

    def counter(self):
        """Return how far the job has come (int)."""
        return (self.numbers() or [0])[-1]

    def job(self):
        """Return the job's attributes (dict of str) as the server knows them now."""
        return self.commands.job(self.job_id)

    def submit(self):
        """Submit the job for the first node and see it make progress there."""
        if not os.path.isdir(self.parent):
            raise roundtrip.TrialError("there is no directory %s for the job's output; add %s to checkpoint_store_users or name a work_path"
                                       % (self.parent, self.user.name))

        def make():
            os.mkdir(self.work)
            script = SCRIPT.format(work=shlex.quote(self.work), status=STATUS)
            for name, text in (("program.py", workload.PROGRAM), ("job.sh", script)):
                with open(os.path.join(self.work, name), "w") as stream:
                    stream.write(text)
        self.as_user(make)
        words = ["enabled"] + (["periodic", "interval=%d" % INTERVAL] if self.case == "periodic" else [])
        words += ["depth=%d" % self.depth] if self.depth else []
        words += ["dir=" + self.images_path] if self.images_path else []
        arguments = ["-N", "validate", "-c", ",".join(words), "-l", "nodes=" + self.path[0], "-o", self.work + "/stdout",
                     "-e", self.work + "/stderr"] + self.qsub_options + [self.work + "/job.sh"]
        self.job_id = self.commands(self.user.name, "qsub", *arguments).strip()
        self.facts["job_id"] = self.job_id
        self.run_on(self.path[0], 0)

    def run_on(self, node, counter, written=0, started=None):
        """Wait until the job runs on the node and has come further than counter (int), by what it wrote after so many lines (int).

        :param started: when it was sent there; the time until its first line is noted then
        """
        job = commands.wait_for_state(self.commands, self.job_id, "R", self.timeout)
        where = commands.node_of(job.get("exec_host", ""))
        if where != node:
            raise roundtrip.TrialError("the job runs on %s, not on %s" % (where or "no node", node))
        self.nodes.append(node)
        self.progress(counter, written, started)

    def progress(self, counter, written=0, started=None):
        """As run_on, wherever the job is; it cannot come further once it has ended or is held."""
        def far():
            new = self.numbers()[written:]
            if new and started:
                self.noted.setdefault("running_seconds", round(time.monotonic() - started, 4))
            return bool(new) and new[-1] >= counter + 10

        fake_mom.wait_until(lambda: far() or self.job().get("job_state", "C") in "CH", self.timeout, PAUSE)
        if not far():
            job = self.job()
            raise roundtrip.TrialError("the job made no progress on %s (counter %d, state %s, waited %d seconds at most): %s" % (
                self.nodes[-1], self.counter(), job.get("job_state", "unknown"), self.timeout, job.get("comment", "no comment")))

    def go_on(self):
        """Checkpoint the job and see it go on."""
        before = self.job().get("checkpoint_name")
        self.commands(self.user.name, "qchkpt", self.job_id)
        self.await_image(before, self.timeout, "after qchkpt")

    def wait_for_periodic(self):
        """Wait for an image that nobody asked for, and see the job go on."""
        self.await_image(os.path.basename(self.images[-1]) if self.images else None, self.timeout + INTERVAL * 60, "without a command")

    def await_image(self, before, timeout, when):
        """Wait for an image of another name than before (str or None), made while the job runs."""
        def news():
            found = self.job()
            return found if found.get("checkpoint_name", before) != before or found.get("job_state", "C") in "CH" else None

        job = fake_mom.wait_until(news, timeout, PAUSE) or self.job()
        if job.get("checkpoint_name", before) == before:
            raise roundtrip.TrialError("there is no image %s (state %s, waited %d seconds at most): %s" % (
                when, job.get("job_state", "unknown"), timeout, job.get("comment", "no comment")))
        self.look(job)
        self.facts["counters"].append(self.counter())
        self.progress(self.facts["counters"][-1])

    def hold(self):
        """Hold the job and wait until it is at rest."""
        started = time.monotonic()
        self.commands(self.user.name, "qhold", self.job_id)
        job = commands.wait_for_state(self.commands, self.job_id, "H", self.timeout)
        self.look(job)
        self.origin = self.counter()
        self.facts["counters"].append(self.origin)
        # pbs_mom counts on from the image's time: what the hold took after that is not the job's, and both are whole seconds.
        self.walltime = (self.account(job) or 0) - int(time.monotonic() - started) - 2

    def account(self, job):
        """Return the walltime (int, seconds) of a job (dict of str) at rest, None when there is none; a restart must not set it back."""
        found = seconds(job.get("resources_used.walltime", ""))
        if found is not None:
            self.noted["walltime"] = found
            if found < self.walltime:
                raise roundtrip.TrialError("the server accounts a walltime of %d seconds, but the job had used %d before its restart"
                                           % (found, self.walltime))
        return found

    def directory(self, job):
        """Return the directory (str) of the job's images."""
        path = self.copies_path or job.get("checkpoint_dir", "").rstrip("/")
        return path if path.endswith(".CK") else os.path.join(path, self.job_id + ".CK")

    def manifest(self, path):
        """Return the manifest (dict) of an image (path, str)."""
        text = self.as_user(lambda: roundtrip.read(os.path.join(path, "manifest.json")))
        try:
            found = json.loads(text)
            dict(found["engine"])
        except (ValueError, KeyError, TypeError):
            raise roundtrip.TrialError("the image %s has no manifest that can be read" % path)
        return found

    def look(self, job):
        """Look at the image that the server names."""
        self.imaged = time.monotonic()
        self.facts["comments"].append(job.get("comment", ""))
        if "checkpoint_name" not in job:
            raise roundtrip.TrialError("the server names no image: %s" % job.get("comment", "no comment"))
        self.place = self.directory(job)
        path = os.path.join(self.place, job["checkpoint_name"])
        if self.copies_path:  # pbs_server names an image before it asks for the copy
            fake_mom.wait_until(lambda: self.as_user(lambda: os.path.isdir(path)), self.timeout, PAUSE)
        manifest = self.manifest(path)
        self.facts["engine"], self.facts["compression"] = dict(manifest["engine"]), str(manifest.get("compression", ""))
        if "frozen_seconds" in manifest:
            self.noted["engine_seconds"] = manifest["frozen_seconds"]
        if self.depth and manifest.get("depth") != self.depth:
            raise roundtrip.TrialError("the job was submitted with depth %d, but the checkpoint hook was given %s"
                                       % (self.depth, manifest.get("depth")))
        self.facts["image_bytes"] = self.as_user(lambda: roundtrip.image_bytes(path))
        self.images.append(path)
        if self.depth:
            self.count_images()

    def count_images(self):
        """See that the job's directory holds the newest images, no more than depth."""
        found = sorted(name for name in self.as_user(lambda: os.listdir(self.place)) if not name.startswith("."))
        wanted = {os.path.basename(path) for path in self.images[-self.depth:]}
        if len(found) > self.depth or not wanted <= set(found):
            raise roundtrip.TrialError("the job was submitted with depth %d and has made %d images, but these are kept: %s"
                                       % (self.depth, len(self.images), ", ".join(found)))

    def kept(self):
        """Return what is in the directory of the job's images, and the files of the last image with their sizes (list of str)."""
        image = self.images[-1]
        return self.as_user(lambda: sorted(os.listdir(self.place)) + sorted(
            "%s/%s (%d bytes)" % (os.path.basename(image), entry.name, entry.stat().st_size) for entry in os.scandir(image)))

    def insist(self, job, states, reason, before):
        """Insist that a job (dict of str) that had to fail is in one of states (str), says reason (str), and that kept() is as before."""
        comment = job.get("comment", "no comment")
        self.facts["comments"].append(comment)
        if job.get("job_state", "C") not in states or reason not in comment:
            raise roundtrip.TrialError("this had to fail, but the job is in state %s; its comment: %s"
                                       % (job.get("job_state", "C"), comment))
        changed = set(self.kept()) ^ set(before)
        if self.case == "failed_restart":
            changed &= set(before)  # a pbs_mom without restart-status has the image under a second name, too
        if changed:
            raise roundtrip.TrialError("this failed, but changed among the job's images: " + ", ".join(sorted(changed)))

    def fail_to_hold(self):
        """Let a hold fail, as it does on a full store, and see the job go on."""
        def failed():
            found = self.job()
            return found if reason in found.get("comment", "") and found.get("Hold_Types") == "n" else None

        reason, before = "Permission denied", self.kept()
        mode = stat.S_IMODE(os.stat(self.place).st_mode)
        self.as_user(lambda: os.chmod(self.place, 0o500))
        try:
            self.commands(self.user.name, "qhold", self.job_id)
            self.insist(fake_mom.wait_until(failed, self.timeout, PAUSE) or self.job(), "R", reason, before)
        finally:
            self.as_user(lambda: os.chmod(self.place, mode))
        self.progress(self.counter())

    def fail_to_restart(self, node):
        """Let a restart fail, as it does from a damaged image; see the job held, its image and its output as they were."""
        def largest():
            files = [os.path.join(self.images[-1], name) for name in os.listdir(self.images[-1]) if name != "manifest.json"]
            return max(files, key=os.path.getsize)

        def swap():
            """Change the file's first byte, or change it back."""
            with open(path, "r+b") as stream:
                byte = stream.read(1)
                stream.seek(0)
                stream.write(bytes([byte[0] ^ 0xff]))

        def failed():
            found = self.job()
            return found if reason in found.get("comment", "") and found.get("job_state") == "H" else None

        path, reason, before = self.as_user(largest), "is damaged", self.kept()
        output = [self.file("stdout"), self.file("stderr")]
        self.as_user(swap)
        try:
            self.send(node)
            self.insist(fake_mom.wait_until(failed, self.timeout, PAUSE) or self.job(), "H", reason, before)
        finally:
            self.as_user(lambda: os.path.exists(path) and swap())
        if [self.file("stdout"), self.file("stderr")] != output:
            raise roundtrip.TrialError("the restart failed, and the output that TORQUE had delivered is not as it was")

    @staticmethod
    def _cut_back(path, entry):
        os.truncate(path, entry["size"])
        if "mtime_ns" in entry:
            os.utime(path, ns=(entry["mtime_ns"], entry["mtime_ns"]))

    def choose_older(self):
        """Let the restart take the image before the last one; as its owner would, cut back the file that has grown since."""
        name = os.path.basename(self.images[-2])
        self.commands("root", "qalter", "-W", "checkpoint_name=" + name, self.job_id)
        found = self.job().get("checkpoint_name")
        if found != name:
            raise roundtrip.TrialError("the server still names the image %s after qalter -W checkpoint_name=%s" % (found, name))
        progress = os.path.join(self.work, "progress")
        for entry in self.manifest(self.images[-2]).get("open_files", []):
            if entry["path"] == progress:
                self.as_user(lambda entry=entry: self._cut_back(progress, entry))
        self.origin = self.facts["counters"][-2]
        self.walltime = 0  # it goes back with the job

    def send(self, node):
        """Release the job to a node."""
        self.commands("root", "qalter", "-l", "nodes=" + node, self.job_id)
        self.commands(self.user.name, "qrls", self.job_id)

    def release(self, node):
        """Release the job to a node and see it go on there from where its image was."""
        written, started = len(self.numbers()), time.monotonic()
        self.send(node)
        self.run_on(node, self.origin, written, started)
        self.noted["resumed"] = self.numbers()[written] - 1
        if self.noted["resumed"] > self.origin:
            raise roundtrip.TrialError("the job goes on from %d, but its image was made at %d: it is not from the image that was named"
                                       % (self.noted["resumed"], self.origin))

    def finish(self):
        """Let the job end by itself and judge what TORQUE delivered."""
        self.as_user(lambda: open(os.path.join(self.work, "stop"), "w").close())
        job = commands.wait_for_state(self.commands, self.job_id, "C", self.timeout)
        if "exit_status" not in job:
            raise roundtrip.TrialError("the server keeps no completed jobs, so the exit status cannot be known; set keep_completed")
        self.facts["exit_status"] = int(job["exit_status"])
        self.facts["walltime"] = self.account(job)
        output = fake_mom.wait_until(lambda: self.file("stdout"), self.timeout, PAUSE)
        found = workload.Evidence("".join(line for line in output.splitlines(True) if not line.startswith("job ")))  # -j oe
        self.facts["counters"].append(found.counter)
        self.facts["output_lines"] = len(output.splitlines())
        if found.problems:
            raise roundtrip.TrialError("the output that TORQUE delivered is not whole: " + "; ".join(found.problems))
        if not found.ended:
            raise roundtrip.TrialError("the output that TORQUE delivered has no end (%d lines)" % len(output.splitlines()))
        if found.counter < self.origin:  # what made progress was another one, which a hold had not ended
            raise roundtrip.TrialError("the job ended at %d, but its last image was made at %d: it is not from that image"
                                       % (found.counter, self.origin))
        if self.facts["exit_status"] != STATUS:
            raise roundtrip.TrialError("the job's exit status is %d, expected %d" % (self.facts["exit_status"], STATUS))
        words = [line for line in (output + self.file("stderr")).splitlines() if line.startswith("job ")]
        wanted = ["job starts", "job ends with %d" % STATUS]
        if words != wanted:
            raise roundtrip.TrialError("the job's stderr is %s, expected %s" % (words, wanted))

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
        if not fake_mom.wait_until(lambda: self.commands.job(self.job_id).get("job_state", "C") == "C", self.timeout, PAUSE):
            raise roundtrip.TrialError("job %s is still there after %d seconds; look at its node, then use qdel -p"
                                       % (self.job_id, self.timeout))

    def remove(self):
        """Remove the job's files and images."""
        self.as_user(lambda: [shutil.rmtree(path, ignore_errors=True) for path in (self.work, self.place) if path])
        if self.place:
            try:
                os.rmdir(self.place)  # the user cannot remove it from root's directory
            except OSError:
                pass

    def rest(self):
        """Let a second pass since the last image: pbs_mom names images by the second, and no image replaces another."""
        time.sleep(max(0, self.imaged + 1.1 - time.monotonic()))

    def steps(self):
        """Yield the steps: name, node, work."""
        yield "submit", self.path[0], self.submit
        for number, node in enumerate(self.path):
            if number:
                self.rest()
                yield "hold", self.path[number - 1], self.hold
                if number == 1 and self.case == "older_image":
                    yield "older_image", self.path[0], self.choose_older
                if number == 1 and self.case == "failed_restart":
                    yield "failed_restart", node, functools.partial(self.fail_to_restart, node)
                yield "release", node, functools.partial(self.release, node)
            elif self.case in ("continue", "older_image", "failed_hold"):
                yield "continue", node, self.go_on
                if self.case == "failed_hold":
                    yield "failed_hold", node, self.fail_to_hold
            if self.case == "periodic":  # after a restart too: its timer starts anew
                yield "periodic", node, self.wait_for_periodic
        yield "finish", self.path[-1], self.finish


FAULTS = (roundtrip.TrialError, commands.JobError, HookError, OSError)


def attempt(trip):
    """Do all steps; return the causes of failure (list of str, empty when all did well)."""
    causes = []
    try:
        for step, node, work in trip.steps():
            try:
                trip.noted = {}
                trip.phases.measure(step, work, node=node)
                trip.phases.done[-1].update(trip.noted, counter=trip.counter())
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
            "case": {"type": "str", "choices": list(CASES), "default": "continue"},
            "depth": {"type": "int"},
            "user": {"type": "str", "required": True},
            "work_path": {"type": "path", "required": True},
            "images_path": {"type": "path"},
            "copies_path": {"type": "path"},
            "qsub_options": {"type": "list", "elements": "str", "default": []},
            "torque_directory": {"type": "path", "default": "/opt/torque/current/bin"},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    params, host = module.params, os.uname().nodename
    if not params["path"]:
        module.fail_json(msg="%s: job_roundtrip: the path holds no node; nothing was done" % host)
    if params["case"] in ("older_image", "failed_restart") and len(params["path"]) < 2:
        module.fail_json(msg="%s: job_roundtrip: case %s needs a path of two nodes at least (one may come twice); nothing was done"
                         % (host, params["case"]))
    if params["case"] == "failed_hold" and params["copies_path"]:
        module.fail_json(msg="%s: job_roundtrip: in case failed_hold the node's store refuses an image, and with copies_path this host "
                         "sees copies only; leave the case out; nothing was done" % host)
    if params["depth"] is not None and params["depth"] < 1:
        module.fail_json(msg="%s: job_roundtrip: depth is %d, but must be at least 1; nothing was done" % (host, params["depth"]))
    if params["timeout"] < 1:
        module.fail_json(msg="%s: job_roundtrip: timeout is %d, but must be at least 1 (second); nothing was done"
                         % (host, params["timeout"]))
    if module.check_mode:
        module.exit_json(changed=False, **roundtrip.result("L3", params["path"], None, "check mode: no job is submitted",
                                                           case=params["case"], counters=[], comments=[], states=[], phases=[]))
    if os.geteuid() != 0:
        module.fail_json(msg="%s: job_roundtrip must run as root to submit as another user; use become" % host)
    missing = [name for name in ("qsub", "qstat", "qhold", "qrls", "qchkpt", "qalter", "qdel")
               if not os.access(os.path.join(params["torque_directory"], name), os.X_OK)]
    if missing:
        module.fail_json(msg="%s: job_roundtrip: %s has no %s; install TORQUE's commands here or correct torque_directory; nothing was done"
                         % (host, params["torque_directory"], ", ".join(missing)))

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
        trip = Trip(params, commands.Commands(run, params["torque_directory"]))
    except HookError as error:
        module.fail_json(msg="%s: job_roundtrip: %s; nothing was done" % (host, error))
    cause = "; ".join(attempt(trip))
    version = re.search(r"[Vv]ersion: *(\S+)", " ".join(run([params["torque_directory"] + "/qstat", "--version"], "root")[1:]))
    if version:
        trip.facts["torque"] = version.group(1)
    module.exit_json(changed=False, **roundtrip.result("L3", trip.nodes or params["path"], not cause, cause,
                                                       phases=trip.phases.done, states=trip.commands.states, **trip.facts))


if __name__ == "__main__":
    main()
