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
      - V(run) starts the job. V(continue) checkpoints it and lets it continue (signal 0).
        V(hold) checkpoints and ends it (signal 15). V(restart) starts it from the last image.
        V(finish) lets it come to its own end, checks its output and removes everything.
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
      - Where in the store that directory is created, as in the queue's C(checkpoint_dir).
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
  description:
    - All steps so far with node, time taken (seconds) and counter.
    - A step that wrote an image has C(engine_seconds), how long the engine held the job, by the image's manifest.
  returned: always
  type: list
  elements: dict
  sample: [{node: node1, step: hold, seconds: 0.12, engine_seconds: 0.031, counter: 57}]
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest import roundtrip
from ansible_collections.ckpt.torque.plugins.module_utils.validation import hooks


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "steps": {"type": "list", "elements": "str", "choices": list(hooks.STEPS),
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
    # In check mode no call before this one returned a state.
    fault = hooks.find_order_fault(steps, bool(state) or module.check_mode and steps[:1] != ["run"])
    if fault:
        module.fail_json(msg="%s: hook_roundtrip: %s; nothing was done" % (node, fault))
    if module.check_mode:
        module.exit_json(changed=False, state=state, **roundtrip.build_result(
            "L2", state.get("nodes", []), None, "check mode: no job is started", counters=[], phases=[]))
    if os.geteuid() != 0:
        module.fail_json(msg="%s: hook_roundtrip must run as root to play pbs_mom; use become" % node)
    if steps == ["abandon"] and not state:
        module.exit_json(changed=False, state={}, **roundtrip.build_result("L2", [], None, "nothing was run", counters=[], phases=[]))
    cause = hooks.make_round_trip(params, state, node)
    names = ("exit_status", "output_lines", "image_bytes", "compression", "engine", "refusals")
    facts = {name: state[name] for name in names if name in state}
    if "refusals" in state:
        facts["case"] = "refused"
    module.exit_json(changed=False, state=state, **roundtrip.build_result(
        "L2", state.get("nodes", [node]), not cause, cause, counters=state.get("counters", []), phases=state.get("phases", []), **facts))


if __name__ == "__main__":
    main()
