#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: blcr_info
short_description: Tell what a node has of BLCR, whether its kernel modules can be built and loaded there, and who uses them
version_added: 0.2.0
description:
  - Looks at the running kernel, its headers and symbol table, and whether it may load modules.
  - Looks which modules modprobe would load for this kernel and for the others that are installed, and what nodes must have in common.
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
  signed:
    description: Whether the modules will be signed, so that a kernel that takes signed ones only is none to be refused.
    type: bool
    default: false
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
  sample: [blcr, blcr_imports]
last_kernel:
  description: The last kernel that this version knows, as numbers; empty where that is not known.
  returned: success
  type: list
  elements: int
  sample: [3, 17]
findable:
  description: Whether modprobe finds both modules for the running kernel.
  returned: success
  type: bool
outdated:
  description: Whether other modules are loaded than those that modprobe finds; V(null) if that is not known.
  returned: success
  type: bool
kernels_without:
  description: Releases of the other installed kernels for which modprobe finds no BLCR.
  returned: success
  type: list
  elements: str
users:
  description: The processes that have BLCR's library mapped.
  returned: success
  type: list
  elements: dict
  contains:
    pid:
      description: The process.
      type: int
    job:
      description: Its job; empty when it is in none.
      type: str
ctrl:
  description: Group and mode of C(/proc/checkpoint/ctrl); empty when the modules are not loaded.
  returned: success
  type: dict
  sample: {group: root, mode: "0666"}
dkms:
  description: The versions of BLCR that DKMS has.
  returned: success
  type: list
  elements: str
common:
  description: What nodes must have in common so that an image restarts on each of them.
  returned: success
  type: dict
  sample: {libc: 3b9c5f5e1f0a7d42, loader: 0d5c54b0b3b0a1f7, locales: none, nscd: does not run, randomize_va_space: "2", vdso: "1"}
prelinks:
  description: Whether prelink changes this node's programs, or has done so.
  returned: success
  type: bool
boot_file:
  description: The file that tells this system which modules to load at boot.
  returned: success
  type: str
"""

import hashlib
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.engine import blcr_kernel


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "kernel_tree": {"type": "path"},
            "system_map": {"type": "path"},
            "signed": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params, machine = module.params, os.uname()
    build = blcr_kernel.read_kernel_build(machine.release, params["kernel_tree"] or "", params["system_map"] or "")
    files = blcr_kernel.list_module_files(machine.release)
    module.exit_json(
        changed=False,
        kernel=machine.release,
        build="%s-%s" % (machine.release, hashlib.sha256(machine.version.encode()).hexdigest()[:8]),
        tree=build["tree"],
        system_map=build["system_map"],
        loaded=build["loaded"],
        cannot_load=blcr_kernel.find_load_fault(build, params["version"], params["signed"]),
        cannot_build=blcr_kernel.find_build_fault(build),
        last_kernel=list(blcr_kernel.LAST.get(params["version"], ())),
        findable=len(files) == len(blcr_kernel.MODULES),
        outdated=blcr_kernel.is_outdated(files),
        kernels_without=blcr_kernel.list_kernels_without_modules(machine.release),
        users=blcr_kernel.list_users(),
        ctrl=blcr_kernel.read_ctrl(),
        common=blcr_kernel.read_common_facts(),
        prelinks=blcr_kernel.uses_prelink(),
        dkms=blcr_kernel.list_dkms_versions(),
        boot_file=blcr_kernel.get_boot_file())


if __name__ == "__main__":
    main()
