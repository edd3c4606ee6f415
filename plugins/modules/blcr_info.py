#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: blcr_info
short_description: Tell whether BLCR's kernel modules can be built for a node and loaded there
version_added: 0.2.0
description:
  - Looks at the running kernel, its headers and symbol table, and whether it may load modules.
  - BLCR's modules belong to one build of a kernel, because they hold addresses of it.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.read_only
options:
  version:
    description: The version of BLCR.
    type: str
    required: true
  kernel_tree:
    description: Where the kernel was compiled, or its headers are. The default is C(/lib/modules/RELEASE/build).
    type: path
  system_map:
    description: The kernel's symbol table. By default it is looked for in C(/boot), in O(kernel_tree) and in C(/lib/modules/RELEASE).
    type: path
"""

EXAMPLES = r"""
- name: Look whether BLCR fits this node
  ckpt.torque.blcr_info:
    version: 0.8.6_b4
  register: node
"""

RETURN = r"""
cannot_load:
  description: Why this node cannot load BLCR, and what to do; empty when it can.
  returned: success
  type: str
  sample: BLCR 0.8.5 knows kernels up to 3.7, this node runs 3.10.108; set blcr_version to 0.8.6_b4
cannot_build:
  description: Why BLCR cannot be built for this node, and what to do; empty when it can.
  returned: success
  type: str
kernel:
  description: Release of the running kernel.
  returned: success
  type: str
build:
  description: What tells this build of the kernel from others of the release.
  returned: success
  type: str
  sample: 3.10.108-5f2c1e7a
tree:
  description: Where its headers were looked for.
  returned: success
  type: str
system_map:
  description: Its symbol table; empty when there is none.
  returned: success
  type: str
loaded:
  description: BLCR's modules that are loaded.
  returned: success
  type: list
  elements: str
"""

import hashlib
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils import blcr


def main():
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "kernel_tree": {"type": "path"},
            "system_map": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params, machine = module.params, os.uname()
    found = blcr.look(machine.release, params["kernel_tree"] or "", params["system_map"] or "")
    module.exit_json(
        changed=False, kernel=machine.release, tree=found["tree"], system_map=found["system_map"], loaded=found["loaded"],
        build="%s-%s" % (machine.release, hashlib.sha256(machine.version.encode()).hexdigest()[:8]),
        cannot_load=blcr.cannot_load(found, params["version"]), cannot_build=blcr.cannot_build(found))


if __name__ == "__main__":
    main()
