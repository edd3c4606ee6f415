#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: job_migration
short_description: Move the jobs of TORQUE nodes to other nodes
version_added: 0.3.0
description:
  - Run as root on the host of C(pbs_server). The nodes must be offline; see M(ckpt.torque.pbs_node).
  - Holds each job that can be checkpointed by an operator's hold (C(qhold -h o)), waits until its image is written and it is off the
    node, and takes exactly this hold off again (C(qrls -h o)), so that the scheduler starts the job on another node.
  - Left alone and reported with the reason are jobs that were submitted without C(qsub -c enabled), that are interactive, and those that
    are held already. A job whose checkpoint fails keeps running without a hold, for instance one on several nodes whose program
    C(ckpt-run) has not started.
  - A job is noted in O(state_directory) before it is held. If a run is killed, the next one releases what it held, also with no O(nodes).
    On SIGTERM, SIGINT and SIGHUP a run releases what is held within 10 seconds, and names the rest.
  - Fails when O(wait_timeout) is over and jobs are left, and when a hold could not be taken off. Without O(wait) jobs that stay are no
    failure.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
    details: Reports what would be done with each job. The nodes need not be offline.
  diff_mode:
    support: N/A
    details: RV(jobs) has what happened to each job.
  idempotent:
    support: full
    details: A job whose checkpoint fails is tried again by each run, which is no change.
options:
  nodes:
    description:
      - The nodes' names, as the server knows them. With an empty list only what an earlier run held is released.
    type: list
    elements: str
    required: true
  jobs_at_once:
    description: How many jobs are held at a time, as each writes an image into the store.
    type: int
    default: 4
  hold_timeout:
    description:
      - How long the checkpoint of a job may take, in seconds. Then the hold is taken off and the job is reported as one that stays. If the
        checkpoint still succeeds, the job continues on another node.
    type: int
    default: 1800
  start_timeout:
    description: How long to wait until a released job runs on another node, in seconds. Then it is reported as queued.
    type: int
    default: 60
  move:
    description: Whether to move jobs. Otherwise none is held, and only what an earlier run held is released.
    type: bool
    default: true
  wait:
    description: Whether to wait until the jobs that are not moved have left the nodes, too.
    type: bool
    default: false
  wait_timeout:
    description: With O(wait), how long to wait for them, in seconds.
    type: int
    default: 3600
  poll:
    description: How long to sleep between two looks, in seconds.
    type: int
    default: 1
  torque_directory:
    description: The directory of TORQUE's commands.
    type: path
    default: /opt/torque/current/bin
  state_directory:
    description: Root's directory for the file of the jobs that are held, C(drain.json). The file is there only while jobs are held.
    type: path
    default: /var/lib/ckpt-torque
"""

EXAMPLES = r"""
- name: Move the jobs of a node that is offline
  ckpt.torque.job_migration:
    nodes: [node17]

- name: Wait until the others have ended, for a day at most
  ckpt.torque.job_migration:
    nodes: [node17, node18]
    wait: true
    wait_timeout: 86400

- name: Release what a run that was killed has held
  ckpt.torque.job_migration:
    nodes: []
"""

RETURN = r"""
jobs:
  description:
    - What happened to each job that was on the nodes, and to those that an earlier run held.
    - C(action) is V(moved) (it runs on C(to), a node or several with plus signs between), V(queued) or V(held) (it is off the node),
      V(left) (it is off the node, without this module), V(stays), or V(unreleased) (it may still have this module's hold). C(reason) is
      the reason of all but V(moved) and V(left).
    - C(seconds) is the time from the request to hold the job, or for a job that was waited for from the start of the module, until the
      job was off the node; null when it is not, and for what an earlier run held.
  returned: when it was begun
  type: list
  elements: dict
  sample: [{job: 12.head, owner: alice, node: node1, action: moved, to: node2, reason: "", seconds: 1.3}]
nodes:
  description: The nodes after that; C(states), C(note) and the ids of the C(jobs) as M(ckpt.torque.pbs_node) has them.
  returned: success
  type: list
  elements: dict
  sample: [{name: node1, states: [offline], note: "ckpt-torque: new memory", jobs: []}]
lines:
  description: One line for each job and each node, for the terminal.
  returned: when it was begun
  type: list
  elements: str
  sample: ["12.head (alice): moved from node1 to node2, off node1 after 1.3 seconds", "node1: offline (ckpt-torque: new memory), no jobs"]
msg:
  description: A sentence on the nodes, or why the module failed.
  returned: always
  type: str
  sample: no job is left on node1
"""

import os
import signal

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque import drain, migration, nodes, outcomes
from ansible_collections.ckpt.torque.plugins.module_utils.torque.commands import CommandError, Commands
from ansible_collections.ckpt.torque.plugins.module_utils.torque.held_jobs import HeldJobs, HeldJobsError
from ansible_collections.ckpt.torque.plugins.module_utils.torque.nodes import NodeError, Pbsnodes

LEAST = {"jobs_at_once": 1, "hold_timeout": 1, "start_timeout": 0, "wait_timeout": 0, "poll": 0}
COMMANDS = ("pbsnodes", "qhold", "qrls", "qstat")


def find_fault(params: dict) -> str:
    """Return what is wrong with the arguments, empty when nothing is."""
    for name, least in LEAST.items():
        if params[name] < least:
            return "%s is %d, but must be at least %d" % (name, params[name], least)
    for name in params["nodes"]:
        try:
            nodes.build_note(name, "drain")
        except NodeError as error:
            return str(error)
    missing = [name for name in COMMANDS if not os.access(os.path.join(params["torque_directory"], name), os.X_OK)]
    if missing:
        return "%s has no %s; run on the host of pbs_server, or correct torque_directory" % (params["torque_directory"], ", ".join(missing))
    return ""


def find_failure(answer: dict, params: dict) -> str:
    """Return why the module fails, empty when it does not."""
    failures = ["%s (%s)" % (outcome["job"], outcome["reason"]) for outcome in answer["jobs"] if outcome["action"] == "unreleased"]
    failures = ["still held: " + ", ".join(failures)] if failures else []
    if params["wait"] and any(node["jobs"] for node in answer["nodes"]):
        failures.append("%s after %d seconds; end them or wait longer; the nodes stay offline" % (answer["msg"], params["wait_timeout"]))
    return "; ".join(failures)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "str", "required": True},
            "jobs_at_once": {"type": "int", "default": 4},
            "hold_timeout": {"type": "int", "default": 1800},
            "start_timeout": {"type": "int", "default": 60},
            "move": {"type": "bool", "default": True},
            "wait": {"type": "bool", "default": False},
            "wait_timeout": {"type": "int", "default": 3600},
            "poll": {"type": "int", "default": 1},
            "torque_directory": {"type": "path", "default": "/opt/torque/current/bin"},
            "state_directory": {"type": "path", "default": "/var/lib/ckpt-torque"},
        },
        supports_check_mode=True,
    )
    params = module.params
    fault = find_fault(params)
    if fault:
        module.fail_json(msg=fault + "; nothing was changed")
    commands, held = Commands(params["torque_directory"]), HeldJobs(params["state_directory"])
    pbsnodes = [Pbsnodes(os.path.join(params["torque_directory"], "pbsnodes"), name) for name in dict.fromkeys(params["nodes"])]
    jobs = migration.Migration(commands, held, params)
    try:
        if module.check_mode:
            now = drain.read_nodes(pbsnodes)
            predicted = drain.predict_outcomes(commands, now if params["move"] else {}, held.peek())
            module.exit_json(**outcomes.build_answer(now, predicted, any(outcome["action"] != "stays" for outcome in predicted), True))
        for number in nodes.SIGNALS:
            signal.signal(number, nodes.raise_interrupted)
        with held:
            now = drain.empty_nodes(pbsnodes, jobs, params["move"])
            if params["wait"]:
                now = drain.await_empty_nodes(pbsnodes, jobs, params["wait_timeout"], params["poll"])
    except (NodeError, CommandError, HeldJobsError) as error:
        known = list(jobs.outcomes.values())
        module.fail_json(msg=str(error), changed=jobs.changed, jobs=known, lines=[outcomes.describe_outcome(outcome) for outcome in known])
    answer = outcomes.build_answer(now, jobs.outcomes.values(), jobs.changed)
    failure = find_failure(answer, params)
    if failure:
        module.fail_json(msg=failure, **{key: value for key, value in answer.items() if key != "msg"})
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
