#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: pbs_node
short_description: Drain a TORQUE node and release it, without touching what others have marked
version_added: 0.2.0
description:
  - Drains a node by setting it offline with a note of our own, C(ckpt-torque:) and the reason. The server starts no more
    jobs on it; running jobs continue. Can wait until they have ended.
  - A mark is ours when the note is C(ckpt-torque:) and the O(reason), also with another O(detail). What others set offline stays
    offline, with their note; see RV(held_by).
  - A node in use that carries another's note is not drained, as that would overwrite the note.
  - When waiting fails or is interrupted, the mark is taken back if this run set it.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
    details: Does not wait.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  node:
    description: The node's name, as the server knows it.
    type: str
    required: true
  state:
    description:
      - V(drained) sets it offline; V(released) takes our mark away.
      - A node that is not offline is released already, whatever its note says; only our own note is cleared.
    type: str
    choices: [drained, released]
    default: drained
  reason:
    description: Why, in one line of at most 243 bytes. To release a node give the reason it was drained with.
    type: str
    default: maintenance
  detail:
    description:
      - What the note is to have after the reason, for instance what failed. It is cut to what TORQUE takes.
      - A note is ours whatever its detail. Without this option the detail that it has stays.
    type: str
    version_added: 0.3.0
  wait:
    description: With O(state=drained), wait until no job is left on the node, also when others hold it.
    type: bool
    default: false
  timeout:
    description: How long to wait, in seconds.
    type: int
    default: 3600
  poll:
    description: How long to sleep between two looks, in seconds.
    type: int
    default: 5
  pbsnodes_path:
    description:
      - Where C(pbsnodes) is, by absolute path.
      - Looked for in C(/opt/torque/current/bin) and then in E(PATH) when it is not given.
    type: path
"""

EXAMPLES = r"""
- name: No new jobs on this node, and none left
  ckpt.torque.pbs_node:
    node: "{{ inventory_hostname }}"
    reason: kernel update
    wait: true
  delegate_to: head

- name: In use again, unless somebody else holds it
  ckpt.torque.pbs_node:
    node: "{{ inventory_hostname }}"
    state: released
    reason: kernel update
  delegate_to: head
"""

RETURN = r"""
held_by:
  description:
    - Another's note on a node that is offline; V(an offline mark without a note) when it has none.
    - Null when nobody else holds it.
  returned: success
  type: str
  sample: "disk broken, see ticket 12"
states:
  description: The node's states, as the server shows them.
  returned: success
  type: list
  elements: str
  sample: [offline, job-exclusive]
note:
  description: The node's note; empty when it has none.
  returned: success
  type: str
  sample: "ckpt-torque: kernel update"
jobs:
  description: Ids of the jobs on the node.
  returned: success
  type: list
  elements: str
  sample: ["4.head"]
msg:
  description: A sentence on the node's state, or why the module failed.
  returned: always
  type: str
  sample: node node1 is drained
"""

import signal

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque import nodes
from ansible_collections.ckpt.torque.plugins.module_utils.torque.commands import CommandError, find_command
from ansible_collections.ckpt.torque.plugins.module_utils.torque.nodes import NodeError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["drained", "released"], "default": "drained"},
            "reason": {"type": "str", "default": "maintenance"},
            "detail": {"type": "str"},
            "wait": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 3600},
            "poll": {"type": "int", "default": 5},
            "pbsnodes_path": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    for number in nodes.SIGNALS:
        signal.signal(number, nodes.raise_interrupted)
    try:
        mark = nodes.build_note(params["node"], params["reason"])
        path = find_command("pbsnodes", params["pbsnodes_path"], module.get_bin_path)
        answer = nodes.set_state(nodes.Pbsnodes(path, params["node"]), mark, params, module.check_mode)
    except (NodeError, CommandError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
