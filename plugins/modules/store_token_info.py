#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: store_token_info
short_description: Look for a token that another node left in a store of images
version_added: 0.3.0
description:
  - Sees whether the token that another node has written (M(ckpt.torque.store_token)) is in this node's store too, and reports after how
    long a new file is seen.
  - Let every node look for it once, with O(timeout=0), before it is written; some file systems remember for a while that a file was not
    there.
  - A token that is not there is a result, not a failure of the module; look at RV(seen).
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.store_token
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
    details: Looks once, without waiting; RV(seconds) does not regard the store's clock.
  diff_mode:
    support: N/A
    details: It leaves nothing behind that could differ. To read the store's clock it makes a directory and removes it again.
  idempotent:
    support: full
    details: It never reports a change.
options:
  timeout:
    description: How long to wait for it, in seconds.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Look for a token
  ckpt.torque.store_token_info:
    path: /shared/ckpt
    user: alice
    name: abc1
  register: token
"""

RETURN = r"""
seen:
  description: Whether the token is there.
  returned: success
  type: bool
store:
  description: The store.
  returned: success
  type: str
writer:
  description: Which node wrote it.
  returned: when it was seen
  type: str
  sample: node1
seconds:
  description: How long after it was written it was seen, in seconds.
  returned: when it was seen
  type: float
  sample: 0.4
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.store import probe, token
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.errors import HookError
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system import privilege


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "user": {"type": "str", "required": True},
            "directory": {"type": "path"},
            "name": {"type": "str", "required": True},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    params, node = module.params, os.uname().nodename
    name, directory = params["name"], params["directory"] or os.path.join(params["path"], params["user"])
    fault = token.find_fault(name)
    if fault:
        module.fail_json(msg="%s: store_token_info: %s; nothing was done" % (node, fault))
    if os.geteuid() != 0:
        module.fail_json(msg="%s: store_token_info must run as root to become user %s; use become" % (node, params["user"]))
    try:
        user = privilege.find_user(params["user"])
        skew = 0 if module.check_mode else privilege.as_user(user, lambda: probe.measure_skew(directory))
        seen = privilege.as_user(user, lambda: token.await_token(directory, name, 0 if module.check_mode else params["timeout"]))
    except (HookError, OSError) as error:
        module.fail_json(msg="%s: store_token_info: %s" % (node, error))
    facts = {}
    if seen:
        facts = {"writer": seen["writer"], "seconds": round(max(0, time.time() + skew - seen["written"]), 1)}
    module.exit_json(changed=False, store=params["path"].rstrip("/"), seen=bool(seen), **facts)


if __name__ == "__main__":
    main()
