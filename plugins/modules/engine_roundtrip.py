#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: engine_roundtrip
short_description: Prove that a node's engine can freeze and revive a process tree (level L1)
version_added: 0.1.0
description:
  - As an ordinary user, starts a tree of two processes with a pipe, a unix and an inet socket (a second pipe with an engine that restores
    none), a thread and an open file, dumps it with the engine, kills it, restores it and lets it come to its own end.
  - The proof is the tree's own output, a counter without gap or repeat, and its exit status.
  - One that fails for a passing reason, as when another process has taken a process id meanwhile, is done again, twice at most.
  - A round trip that fails is a result, not a failure of the module; look at RV(passed) and RV(cause).
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.round_trip
options:
  engine:
    description: The engine to try, by its name in the hooks' registry of engines (C(docs/reference/hooks-json.md) lists them).
    type: str
    required: true
  engine_options:
    description: Options of this engine, for instance where it is installed. What is not set has its default.
    type: dict
    default: {}
  user:
    description: The ordinary user to do it as; not root.
    type: str
    default: nobody
  directory:
    description: Where a temporary directory for the image is created; it is removed in the end.
    type: path
    default: /var/tmp
  timeout:
    description: How long each step may take, in seconds.
    type: int
    default: 30
"""

EXAMPLES = r"""
- name: Prove level L1
  ckpt.torque.engine_roundtrip:
    engine: criu
    engine_options: {path: /opt/criu/current/sbin/criu}
  register: trip

- name: Check that it passed
  ansible.builtin.assert:
    that: trip.passed
    fail_msg: "{{ trip.cause }}"
"""

RETURN = r"""
passed:
  description: Whether the tree came back whole. Null when it was not run (check mode).
  returned: always
  type: bool
cause:
  description: Why it failed; empty when it passed.
  returned: always
  type: str
  sample: "criu dump failed with status 1: Can't get 1:16 opt: Operation not supported"
level:
  description: The level of proof.
  returned: always
  type: str
  sample: L1
nodes:
  description: The nodes it touched.
  returned: always
  type: list
  elements: str
engine:
  description: Name and version of the engine.
  returned: when the engine answered
  type: dict
  sample: {name: criu, version: 4.2.1}
counter_before:
  description: The tree's counter when it was frozen.
  returned: when the tree was dumped
  type: int
counter_after:
  description: The tree's counter at its end.
  returned: when the tree was restored
  type: int
exit_status:
  description: The tree's exit status.
  returned: when the tree ended
  type: int
image_bytes:
  description: Size of the image in bytes.
  returned: when the tree was dumped
  type: int
phases:
  description: The steps with the time each took, in seconds.
  returned: always
  type: list
  elements: dict
  sample: [{step: dump, seconds: 0.04}]
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.engines import registry
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest import engine_roundtrip, roundtrip


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "required": True},
            "engine_options": {"type": "dict", "default": {}},
            "user": {"type": "str", "default": "nobody"},
            "directory": {"type": "path", "default": "/var/tmp"},
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    node, entry = os.uname().nodename, registry.find_entry(module.params["engine"])
    if entry is None:
        module.fail_json(msg="%s: value of engine must be one of: %s, got: %s"
                         % (node, ", ".join(registry.list_names()), module.params["engine"]))
    fault = entry.find_fault(module.params["engine_options"])
    if fault:
        module.fail_json(msg="%s: the configuration of %s %s; correct engine_options" % (node, entry.name, fault))
    if module.check_mode:
        module.exit_json(changed=False, **roundtrip.build_result("L1", [node], None, "check mode: no process is started", phases=[]))
    if os.geteuid() != 0:
        module.fail_json(msg="%s: engine_roundtrip must run as root to become user %s; use become" % (node, module.params["user"]))
    settings = {"engine": entry.name, "engine_options": module.params["engine_options"], "engine_timeout": module.params["timeout"]}
    try:
        result = engine_roundtrip.run_round_trip(settings, module.params["user"], module.params["directory"], module.params["timeout"])
    except engine_roundtrip.NoDirectory as error:
        module.fail_json(msg="%s: %s" % (node, error))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
