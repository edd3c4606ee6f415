#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: hook_roundtrip
short_description: Prove that the hooks, called exactly as pbs_mom calls them, move a job (level L2)
version_added: 0.1.0
description:
  - Plays C(pbs_mom) on one node, as root, with its arguments, directories, environment and descriptors.
    Starts a job through the run hook, checkpoints it, restarts it from its image.
  - One call does the steps of one node. For a move, hand the returned RV(state) to the next node's call.
  - The proof is the job's own output, a counter without gap or repeat over all moves, and its exit status.
  - A round trip that fails is a result, not a failure of the module; look at RV(passed) and RV(cause).
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.round_trip
options:
  steps:
    description:
      - What to do on this node, in this order.
      - V(run) starts the job. V(continue) checkpoints it and lets it go on (signal 0).
        V(hold) checkpoints and ends it (signal 15). V(restart) starts it from the last image.
        V(finish) lets it come to its own end, judges it and removes everything.
      - V(refused), alone, sees the restart hook refuse the last image, because this node is not one that could restart it. The image stays.
        Where the node has another store, it is pbs_mom that finds no image.
      - A call must end with V(hold), V(refused) or V(finish), because the job cannot outlive it.
      - V(abandon), alone, removes what a failed round trip left, without a judgement.
    type: list
    elements: str
    choices: [run, continue, hold, restart, refused, finish, abandon]
    default: [run, continue, hold, restart, finish]
  state:
    description: What the call on the node before returned as RV(state). Needed unless the first step is V(run).
    type: dict
    default: {}
  hooks_path:
    description: The directory of the hooks.
    type: path
    default: /usr/lib/ckpt-torque
  store_path:
    description: The store; the job's images go beneath it, into a directory of their own.
    type: path
    required: true
  images_path:
    description:
      - Where in the store that directory is made, as the queue's C(checkpoint_dir) says it.
      - The default is O(store_path) itself.
    type: path
  work_path:
    description:
      - The user's directory for the job's output, the same on all nodes.
      - The default is the directory of O(user) in O(store_path). With O(copies) it is C(/tmp), and the hooks carry the output along;
        C(checkpoint_hooks_node_local_directories) must hold it then.
    type: path
  user:
    description: The ordinary user whose job it is.
    type: str
    required: true
  copies:
    description:
      - Where each node has a store of its own, C(pbs_mom) copies each image to the server and removes it on the node, and fetches it
        before a restart; so does this module then.
    type: dict
    suboptions:
      server:
        description: The server's name.
        type: str
        required: true
      directory:
        description: Where its checkpoint directory is mounted.
        type: str
        default: ""
      ssh_config:
        description: How sftp reaches it.
        type: path
        default: /etc/ckpt-torque/copies/ssh_config
      job:
        description: A directory of the user's in it.
        type: str
        required: true
  timeout:
    description: How long each step may take, in seconds.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Hold a job on node1
  ckpt.torque.hook_roundtrip:
    steps: [run, continue, hold]
    store_path: /shared/ckpt
    user: alice
  delegate_to: node1
  register: first

- name: Restart it on node2 and let it end
  ckpt.torque.hook_roundtrip:
    steps: [restart, finish]
    state: "{{ first.state }}"
    store_path: /shared/ckpt
    user: alice
  delegate_to: node2
  register: second
"""

RETURN = r"""
passed:
  description: Whether all steps so far did what pbs_mom and the user rely on. Null when nothing was run.
  returned: always
  type: bool
cause:
  description: Node, step and reason of the failure; empty when it passed.
  returned: always
  type: str
  sample: "node2: restart: user alice is not known on this node; compare the account database with the other nodes"
level:
  description: The level of proof.
  returned: always
  type: str
  sample: L2
nodes:
  description: The nodes the job was on, in order.
  returned: always
  type: list
  elements: str
state:
  description: What the next node's call needs.
  returned: always
  type: dict
counters:
  description: The job's counter at each image, and at its end.
  returned: always
  type: list
  elements: int
exit_status:
  description: The job's exit status.
  returned: after V(finish)
  type: int
output_lines:
  description: How many lines the job wrote.
  returned: after V(finish)
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
case:
  description: V(refused) where a node was to refuse the job.
  returned: after V(refused)
  type: str
refusals:
  description: What the restart hooks said that refused the image, with the node.
  returned: after V(refused)
  type: list
  elements: str
phases:
  description: All steps so far with node, time taken (seconds) and counter.
  returned: always
  type: list
  elements: dict
  sample: [{node: node1, step: hold, seconds: 0.12, counter: 57}]
"""

import functools
import grp
import json
import os
import random
import shutil
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.validation import fake_mom
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.errors import HookError, ENGINE, REFUSED
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest import roundtrip, workload
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.store import transfer
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system import privilege

STATUS = 7
"""The exit status the job ends with; anything but 0 and 1, which failures produce by themselves."""

HOME = "/var/lib/ckpt-torque/mom"
"""The played pbs_mom's home, the same on all nodes: the job holds its script open there."""

SCRIPT = """\
#!/bin/bash
echo "job $PBS_JOBID starts" >&2
python3 {work}/program.py {work}/stop 0.005 {status}
status=$?
echo "job $PBS_JOBID ends with $status" >&2
exit $status
"""


class Trip:
    """The round trip on this node. .state is what the next node needs to know."""

    def __init__(self, params, state, node):
        self.node = node
        self.timeout = params["timeout"]
        self.copies = params["copies"]
        self.state = state
        self.phases = roundtrip.Phases(state.get("phases"))
        self.user = privilege.account(params["user"])
        if not state:
            job_id = "%d%04d.ckpt-validate" % (time.time(), random.randrange(10000))
            work = params["work_path"] or ("/tmp" if self.copies else os.path.join(params["store_path"], params["user"]))
            state.update(job_id=job_id, session_id=None, name=None, counters=[], nodes=[], user=params["user"],
                         carried=bool(self.copies and not params["work_path"]),
                         directory=os.path.join(params["images_path"] or params["store_path"], job_id + ".CK"),
                         work=os.path.join(work, job_id))
        self.work = state["work"]
        self.output, self.error = os.path.join(self.work, "stdout"), os.path.join(self.work, "stderr")
        self.job = fake_mom.Job(HOME, params["hooks_path"], self.user, grp.getgrgid(self.user.gid).gr_name,
                                state["job_id"], state["directory"], state["session_id"])
        privilege.become_subreaper()  # what the killed job leaves must be reaped, or its process ids stay in use
        if not state["nodes"] or state["nodes"][-1] != node:
            state["nodes"].append(node)

    def counter(self):
        """Return the job's counter (int)."""
        return self._as_user(lambda: roundtrip.evidence(self.output).counter)

    def run(self):
        """Start the job with the run hook."""
        def make():
            os.mkdir(self.work, 0o755)
            with open(os.path.join(self.work, "program.py"), "w") as stream:
                stream.write(workload.PROGRAM)
            return True
        if not os.path.isdir(os.path.dirname(self.work)):
            raise roundtrip.TrialError("there is no directory %s for the job's output; add %s to checkpoint_store_users or name a work_path"
                                       % (os.path.dirname(self.work), self.user.name))
        self._as_user(make)
        self.job.place_script(SCRIPT.format(work=self.work, status=STATUS))
        self.job.run(self.output, self.error)
        self.state["session_id"] = self.job.session_id
        self._progress(10)

    def checkpoint(self, number):
        """Call the checkpoint hook; look at what it did."""
        name = "ckpt.%s.%d" % (self.job.job_id, len(self.state["counters"]) + int(time.time()))
        self.job.checkpoint(name, number, self.timeout)
        path = os.path.join(self.job.directory, name)
        if not os.path.exists(path):
            raise roundtrip.TrialError("the checkpoint hook exited 0 but there is no image %s" % path)
        self.state["name"] = name
        self.state["image_bytes"] = self._as_user(lambda: roundtrip.image_bytes(path))
        try:
            found = json.loads(self._read(os.path.join(path, "manifest.json")))
            self.state["engine"], self.state["compression"] = dict(found["engine"]), str(found.get("compression", ""))
        except (ValueError, KeyError, TypeError):
            raise roundtrip.TrialError("the image %s has no manifest that can be read" % path)
        if self.copies:
            self.job.copy(path, self._at_server(), self.timeout)
            self._as_user(lambda: shutil.rmtree(path))

    def _at_server(self):
        """Return where the last image is, as pbs_mom names it (str)."""
        return "%s@%s:/checkpoint/%s/%s" % (self.user.name, self.copies["server"], self.copies["job"], self.state["name"])

    def _fetch(self):
        """Have the last image on this node."""
        def make():
            os.makedirs(self.job.directory, exist_ok=True)
            os.chmod(self.job.directory, 0o1777)  # as pbs_mom does
        if self.copies:
            self._as_user(make)
            self.job.copy(self._at_server(), os.path.join(self.job.directory, self.state["name"]), self.timeout)

    def _as_user(self, work):
        """Return what work() returns as the user: in his directories root may be nobody."""
        return privilege.as_user(self.user, work)

    def _read(self, path):
        """Return the text of a file of the user's."""
        return self._as_user(lambda: roundtrip.read(path))

    def hold(self):
        """Checkpoint and end the job; nothing of it may be left on this node."""
        self.checkpoint(15)
        self.job.wait(self.timeout)
        if not fake_mom.wait_until(lambda: not self.job.processes(), self.timeout):
            raise roundtrip.TrialError("processes of the held job are still there: %s"
                                       % ", ".join("%d (%s)" % (process.pid, process.name) for process in self.job.processes()))
        self.state["counters"].append(self.counter())

    def go_on(self):
        """Checkpoint the job and see it go on."""
        self.checkpoint(0)
        self.state["counters"].append(self.counter())
        self._progress(self.state["counters"][-1] + 10)

    def restart(self):
        """Start the job from its last image and see it go on from there."""
        if not self.state["name"]:
            raise roundtrip.TrialError("there is no image to restart from; do the step hold first")
        self._fetch()
        self.job.place_script(SCRIPT.format(work=self.work, status=STATUS))
        self.job.restart(self.state["name"])
        self._progress(self.state["counters"][-1] + 10)

    def refused(self):
        """See the restart hook refuse the last image and leave it as it is."""
        path = os.path.join(self.job.directory, self.state["name"] or "")
        self._fetch()
        if not os.path.exists(path):  # on a node with another store pbs_mom starts no hook
            self.state["refusals"] = self.state.get("refusals", []) + ["%s: pbs_mom finds no image %s" % (self.node, path)]
            return
        before = self.counter()
        manifest = self._read(os.path.join(path, "manifest.json"))
        self.job.place_script(SCRIPT.format(work=self.work, status=STATUS))
        self.job.restart(self.state["name"])
        status, words = self.job.wait(self.timeout), " ".join(self.job.last_words().split())
        if self.counter() != before or status not in (ENGINE, REFUSED):
            raise roundtrip.TrialError("the image should have been refused, but the restart hook ended with status %d at counter %d: %s"
                                       % (status, self.counter(), words or "it said nothing"))
        if (self._read(os.path.join(path, "manifest.json")) != manifest
                or self._as_user(lambda: roundtrip.image_bytes(path)) != self.state["image_bytes"]):
            raise roundtrip.TrialError("the image was refused, but it is not as it was: %s" % path)
        self.state["refusals"] = self.state.get("refusals", []) + ["%s: %s" % (self.node, words)]

    def finish(self):
        """Let the job end by itself and judge it."""
        self._as_user(lambda: open(os.path.join(self.work, "stop"), "w").close())
        status = self.job.wait(self.timeout)

        def look():
            found = roundtrip.evidence(self.output)
            return found.counter, found.ended, found.problems, len(roundtrip.read(self.output).splitlines())
        counter, ended, problems, lines = self._as_user(look)
        self.state["counters"].append(counter)
        self.state["exit_status"] = status
        self.state["output_lines"] = lines
        if problems:
            raise roundtrip.TrialError("the job's output is not whole: " + "; ".join(problems))
        if not ended:
            raise roundtrip.TrialError("the job's output has no end")
        if status != STATUS:
            raise roundtrip.TrialError("the job's exit status is %d, expected %d" % (status, STATUS))
        words = self._read(self.error).splitlines()
        wanted = ["job %s starts" % self.job.job_id, "job %s ends with %d" % (self.job.job_id, STATUS)]
        if words != wanted:
            raise roundtrip.TrialError("the job's stderr is %s, expected %s" % (words, wanted))

    def clean(self):
        """Remove the job from this node and its files from the shared directories."""
        self.job.kill()
        self.job.forget()
        self._as_user(lambda: [shutil.rmtree(path, ignore_errors=True) for path in (self.work, self.job.directory)])
        try:
            os.rmdir(self.job.directory)  # the user cannot remove it from root's directory
        except OSError:
            pass  # not made yet, or the hook left what only root can remove: the cause is more important
        if self.copies:
            self._as_user(self._clean_server)

    def _clean_server(self):
        way = transfer.place(self.copies["directory"], self.copies["ssh_config"], "%s@%s" % (self.user.name, self.copies["server"]))
        mine = "ckpt.%s." % self.job.job_id
        way.remove(self.copies["job"], [name for name in way.names(self.copies["job"]) if name.startswith(mine)])

    def leave(self):
        """Remove the job from this node; its files stay for the next one, unless that cannot see them."""
        self.job.kill()
        self.job.forget()
        if self.copies:
            mine = [self.job.directory] + ([self.work] if self.state["carried"] else [])
            self._as_user(lambda: [shutil.rmtree(path, ignore_errors=True) for path in mine])

    def _progress(self, counter):
        fake_mom.wait_until(lambda: self.counter() >= counter or self.job.ended(), self.timeout)
        if self.counter() >= counter:
            return
        words = " ".join((self.job.last_words() or self._read(self.error)).split())
        if self.job.ended():
            raise roundtrip.TrialError("the job ended at counter %d with status %d: %s"
                                       % (self.counter(), fake_mom.exit_status(self.job.status), words or "it said nothing"))
        raise roundtrip.TrialError("the job made no progress within %d seconds (counter %d): %s; %s" % (
            self.timeout, self.counter(), words or "it said nothing", roundtrip.whereabouts(self.job.processes())))


WORK = {"run": Trip.run, "continue": Trip.go_on, "hold": Trip.hold, "restart": Trip.restart, "refused": Trip.refused,
        "finish": Trip.finish}


def attempt(trip, steps):
    """Do the steps; return the cause of failure (str, empty when all did well)."""
    for step in steps:
        try:
            trip.phases.measure(step, functools.partial(WORK[step], trip), node=trip.node)
        except (roundtrip.TrialError, fake_mom.MomError, HookError, OSError) as error:
            return "%s: %s: %s" % (trip.node, step, error)
        trip.phases.done[-1]["counter"] = trip.counter()
    return ""


def order_fault(steps, state):
    """Return what is wrong with the order of steps (str), or an empty str; state says whether one was given (bool)."""
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
    if (steps[0] == "run") == state:
        return "the first step %s %s a state" % (steps[0], "does not take" if state else "needs")
    return ""


def main():
    module = AnsibleModule(
        argument_spec={
            "steps": {"type": "list", "elements": "str", "choices": ["run", "continue", "hold", "restart", "refused", "finish", "abandon"],
                      "default": ["run", "continue", "hold", "restart", "finish"]},
            "state": {"type": "dict", "default": {}},
            "hooks_path": {"type": "path", "default": "/usr/lib/ckpt-torque"},
            "store_path": {"type": "path", "required": True},
            "images_path": {"type": "path"},
            "work_path": {"type": "path"},
            "user": {"type": "str", "required": True},
            "copies": {"type": "dict", "options": {
                "server": {"type": "str", "required": True}, "directory": {"type": "str", "default": ""},
                "ssh_config": {"type": "path", "default": "/etc/ckpt-torque/copies/ssh_config"}, "job": {"type": "str", "required": True}}},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    params, node = module.params, os.uname().nodename
    steps, state = params["steps"], dict(params["state"])
    # In check mode no call before this one made a state.
    there = bool(state) or module.check_mode and steps[:1] != ["run"]
    fault = "" if steps == ["abandon"] else order_fault(steps, there) if steps else "there are no steps"
    if fault:
        module.fail_json(msg="%s: hook_roundtrip: %s; nothing was done" % (node, fault))
    if module.check_mode:
        module.exit_json(changed=False, state=state, **roundtrip.result(
            "L2", state.get("nodes", []), None, "check mode: no job is started", counters=[], phases=[]))
    if os.geteuid() != 0:
        module.fail_json(msg="%s: hook_roundtrip must run as root to play pbs_mom; use become" % node)
    if steps == ["abandon"] and not state:
        module.exit_json(changed=False, state={}, **roundtrip.result("L2", [], None, "nothing was run", counters=[], phases=[]))

    cause, trip = "", None
    try:
        trip = Trip(params, state, node)
        if steps != ["abandon"]:
            os.makedirs(os.path.join(HOME, "mom_priv", "jobs"), mode=0o755, exist_ok=True)
            cause = attempt(trip, steps)
    except HookError as error:
        cause = "%s: %s: %s" % (node, steps[0], error)
    if trip is not None:
        state["phases"] = trip.phases.done
        if cause or steps[-1] not in ("hold", "refused"):
            trip.clean()
        else:
            trip.leave()
    kept = ("exit_status", "output_lines", "image_bytes", "compression", "engine", "refusals")
    facts = {key: state[key] for key in kept if key in state}
    if "refusals" in state:
        facts["case"] = "refused"
    module.exit_json(changed=False, state=state, **roundtrip.result(
        "L2", state.get("nodes", [node]), not cause, cause, counters=state.get("counters", []), phases=state.get("phases", []), **facts))


if __name__ == "__main__":
    main()
