#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: store_token
short_description: Leave a token in a store of images, for other nodes to see
version_added: 0.3.0
description:
  - A token that one node writes and others look for (M(ckpt.torque.store_token_info)) proves that they have the same storage.
  - It is written and removed as the user.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.store_token
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  state:
    description:
      - V(present) writes this node's name into the token. It fails when another node's token of this name is there.
      - V(absent) removes the token.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Leave a token on one node
  ckpt.torque.store_token:
    path: /shared/ckpt
    user: alice
    name: abc1
  run_once: true

- name: See it on all nodes
  ckpt.torque.store_token_info:
    path: /shared/ckpt
    user: alice
    name: abc1

- name: Remove it
  ckpt.torque.store_token:
    path: /shared/ckpt
    user: alice
    name: abc1
    state: absent
  run_once: true
"""

RETURN = r"""
token:
  description: The token's path.
  returned: success
  type: str
  sample: /shared/ckpt/alice/.ckpt-torque-token.abc1
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.store import token
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.errors import HookError
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system import privilege


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "user": {"type": "str", "required": True},
            "directory": {"type": "path"},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    params, node = module.params, os.uname().nodename
    name, directory = params["name"], params["directory"] or os.path.join(params["path"], params["user"])
    fault = token.find_fault(name)
    if fault:
        module.fail_json(msg="%s: store_token: %s; nothing was changed" % (node, fault))
    if os.geteuid() != 0:
        module.fail_json(msg="%s: store_token must run as root to become user %s; use become" % (node, params["user"]))
    try:
        user = privilege.find_user(params["user"])
        if module.check_mode:
            present = privilege.as_user(user, lambda: os.path.lexists(token.get_path(directory, name)))
            changed = present != (params["state"] == "present")
        elif params["state"] == "present":
            changed = privilege.as_user(user, lambda: token.write_token(directory, name, node))
        else:
            changed = privilege.as_user(user, lambda: token.remove_token(directory, name))
    except (HookError, OSError) as error:
        module.fail_json(msg="%s: store_token: %s" % (node, error))
    module.exit_json(changed=changed, token=token.get_path(directory, name))


if __name__ == "__main__":
    main()
