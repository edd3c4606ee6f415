#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: qmgr_info
short_description: Read the attributes of TORQUE's server, queues and nodes
version_added: 0.3.0
description:
  - Returns what was set, whoever did it. What TORQUE only reports of itself, such as C(total_jobs), and the states and notes of nodes are
    left out, so that M(ckpt.torque.qmgr) takes the values as they are.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.read_only
options:
  qmgr_path:
    description:
      - Where C(qmgr) is, by absolute path.
      - Looked for in C(/opt/torque/current/bin) and then in E(PATH) when it is not given.
    type: path
  timeout:
    description: How long C(qmgr) may take, in seconds.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Read what is set
  ckpt.torque.qmgr_info:
  register: torque
"""

RETURN = r"""
version:
  description: The server's version, as it reports it; may be empty.
  returned: success
  type: str
  sample: 6.1.3
server:
  description: Attributes of the server by name, lists as lists.
  returned: success
  type: dict
  sample: {default_queue: batch, managers: [root@head], scheduling: "True"}
queues:
  description: Attributes of the queues by queue name.
  returned: success
  type: dict
  sample: {batch: {queue_type: Execution, enabled: "True", started: "True"}}
nodes:
  description: Attributes of the nodes by node name.
  returned: success
  type: dict
  sample: {node1: {np: "2", ntype: cluster}}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque import qmgr
from ansible_collections.ckpt.torque.plugins.module_utils.torque.commands import CommandError, find_command
from ansible_collections.ckpt.torque.plugins.module_utils.torque.qmgr import QmgrError
from ansible_collections.ckpt.torque.plugins.module_utils.torque.server import Server


def main() -> None:
    module = AnsibleModule(
        argument_spec={"qmgr_path": {"type": "path"}, "timeout": {"type": "int", "default": 60}},
        supports_check_mode=True,
    )
    timeout = module.params["timeout"]
    try:
        state = Server(find_command("qmgr", module.params["qmgr_path"], module.get_bin_path), timeout).read(qmgr.KINDS)
    except (CommandError, QmgrError) as error:
        module.fail_json(msg=str(error))
    settings = {kind: {key: qmgr.list_settings(kind, attributes) for key, attributes in state[kind].items()} for kind in qmgr.KINDS}
    module.exit_json(changed=False, version=state["server"][""].get("pbs_version", ""), server=settings["server"][""],
                     queues=settings["queue"], nodes=settings["node"])


if __name__ == "__main__":
    main()
