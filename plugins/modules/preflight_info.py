#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: preflight_info
short_description: Report what decides whether jobs of other nodes can continue on a node
version_added: 0.3.0
description:
  - Reads the hooks, what C(mom_priv/config) says of checkpoints, the libraries of an ordinary program, the account of a user, the state of
    C(pbs_mom) and the clock, and runs the hooks' health check.
  - Together with what M(ckpt.torque.engine_info) returns it is what the playbook C(ckpt.torque.validate) compares before it tries anything.
  - What is wrong is a result, not a failure of the module.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.read_only
options:
  hooks_directory:
    description: Where the hooks are.
    type: path
    default: /usr/lib/ckpt-torque
  hooks_config_path:
    description: Their configuration, beside which the records of the nodes are.
    type: path
    default: /etc/ckpt-torque/hooks.json
  mom_config_path:
    description: C(pbs_mom)'s configuration. Without it neither that nor O(service) is looked at.
    type: path
  service:
    description: The systemd unit of C(pbs_mom).
    type: str
    default: pbs_mom
  user:
    description: A user whose jobs are to move. Without one RV(user) is empty.
    type: str
  shell:
    description: The program whose libraries are listed, a shell.
    type: path
    default: /bin/bash
"""

EXAMPLES = r"""
- name: Look at what decides whether jobs can continue here
  ckpt.torque.preflight_info:
    mom_config_path: /var/spool/torque/mom_priv/config
    user: alice
  register: node
"""

RETURN = r"""
hooks_directory:
  description: As O(hooks_directory).
  returned: success
  type: str
hooks:
  description: The SHA-256 of each file of the hooks, by its path in O(hooks_directory); empty without hooks.
  returned: success
  type: dict
changed_hooks:
  description: Which files of the hooks' package (C(torque_ckpt)) are not those of the collection on the controller, or are missing.
  returned: success
  type: list
  elements: str
  sample: [torque_ckpt/hooks/checkpoint.py]
odd_programs:
  description: Which of the hooks' programs differ from most of them. They are the same but for their names.
  returned: success
  type: list
  elements: str
  sample: [checkpoint]
complaint:
  description: What the hooks' health check says; empty if it says nothing, or without hooks.
  returned: success
  type: str
  sample: store /shared/ckpt is not mounted
stores:
  description:
    - Free space and reserve of each store of the hooks, in bytes, without stores that do not know their size.
    - Empty if RV(complaint) is not. A store of which it complains may not answer.
  returned: success
  type: list
  elements: dict
  sample: [{path: /shared/ckpt, free: 73014444032, reserve: 1073741824}]
config_path:
  description: As O(mom_config_path); empty without it.
  returned: success
  type: str
directives:
  description: The values of what C(mom_priv/config) says of checkpoints and copies, sorted; V(null) if there is none.
  returned: success
  type: dict
  sample: {checkpoint_script: [/usr/lib/ckpt-torque/checkpoint], usecp: ["*:/shared /shared"]}
service:
  description: Name of the unit (C(name)), whether it should run here (C(wanted)), and whether it does (C(running)).
  returned: success
  type: dict
  sample: {name: pbs_mom, wanted: true, running: true}
libraries:
  description: Size in bytes (C(bytes)) and build id (C(build_id)) of what O(shell) has mapped, and of the archive of locales, by path.
  returned: success
  type: dict
  sample: {/usr/lib/x86_64-linux-gnu/libc.so.6: {bytes: 2003408, build_id: 58749c528985eab03e6700ebc1469fa50aa41219}}
user:
  description: Name, uid and gid of O(user); uid and gid are V(null) if the node does not know him. V(null) without O(user).
  returned: success
  type: dict
  sample: {name: alice, uid: 1500, gid: 1500}
record_fault:
  description: In what the record of this node that C(torque-ckpt show) uses is wrong; empty if in nothing, or without a record.
  returned: success
  type: str
clock:
  description:
    - By how many seconds this node's clock is ahead of the controller's, at least; negative if it is behind. It is 0 if it may be the same.
    - The time that the answer took is not counted.
  returned: success
  type: float
  sample: 0.0
"""

import os
import re
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils import daemon
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.image import compatibility
from ansible_collections.ckpt.torque.plugins.module_utils.validation import node_state

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any

PRINT_MAPS = "while read -r line; do echo \"$line\"; done < /proc/self/maps"
"""For the shell alone, without a child."""


def read_complaint(module: AnsibleModule, directory: str) -> str:
    """Return what the hooks' health check says, empty if it says nothing or if there is none."""
    program = os.path.join(directory, "health")
    if not os.access(program, os.X_OK):
        return ""
    status, output, error = module.run_command([program])
    complaint = re.sub("^ERROR ckpt.torque: ", "", output.strip())
    return complaint or ("%s ended with status %d: %s" % (program, status, error.strip()[-300:]) if status else "")


def read_service(module: AnsibleModule, name: str, wanted: bool) -> "dict[str, Any]":
    """Return name, wanted and running of a systemd unit; one that nobody wants, or a host without systemd, is not asked."""
    wanted = wanted and os.path.isdir("/run/systemd/system")
    running = False
    if wanted:
        _status, output, _error = module.run_command(["systemctl", "show", name, "--property=ActiveState"])
        running = daemon.read_state(output).get("ActiveState") in daemon.RUNNING
    return {"name": name, "wanted": wanted, "running": running}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "hooks_directory": {"type": "path", "default": "/usr/lib/ckpt-torque"},
            "hooks_config_path": {"type": "path", "default": "/etc/ckpt-torque/hooks.json"},
            "mom_config_path": {"type": "path"},
            "service": {"type": "str", "default": "pbs_mom"},
            "user": {"type": "str"},
            "shell": {"type": "path", "default": "/bin/bash"},
        },
        supports_check_mode=True,
    )
    params, node = module.params, compatibility.describe_node()
    config_path = params["mom_config_path"] or ""
    status, maps, error = module.run_command([params["shell"], "-c", PRINT_MAPS])
    if status:
        module.fail_json(msg="%s: preflight_info: %s -c ended with status %d: %s; name a shell of this node" % (
            node["node"], params["shell"], status, error.strip() or "it says nothing"))
    try:
        complaint = read_complaint(module, params["hooks_directory"])
        module.exit_json(
            changed=False,
            hooks_directory=params["hooks_directory"],
            hooks=node_state.hash_hooks(params["hooks_directory"]),
            changed_hooks=[],  # the action plugin knows what they should be
            odd_programs=node_state.find_odd_programs(params["hooks_directory"]),
            complaint=complaint,
            stores=[] if complaint else node_state.read_stores(params["hooks_config_path"]),  # a store of which it complains may not answer
            config_path=config_path,
            directives=node_state.read_directives(config_path) if config_path else None,
            service=read_service(module, params["service"], bool(config_path)),
            libraries=node_state.describe_files(node_state.list_mapped_files(maps) + [node_state.LOCALES]),
            user=node_state.read_user(params["user"]) if params["user"] else None,
            record_fault=node_state.find_record_fault(params["hooks_config_path"], node),
            clock=time.time(),  # the action plugin compares it with the controller's
        )
    except OSError as fault:
        module.fail_json(msg="%s: preflight_info: cannot read %s: %s; become root" % (node["node"], fault.filename, fault.strerror))


if __name__ == "__main__":
    main()
