#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: inventory_check
short_description: Check the groups and variables of an inventory before anything is changed
version_added: 0.3.0
description:
  - Fails when a group that is needed is missing, misspelt or empty, when a variable of a role has a value of another type, or when the
    keys of the hooks are missing, and names all of it at once.
  - Runs on the controller alone, once for all hosts of the play. No host is reached.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.read_only
attributes:
  action:
    description: It is done on the controller.
    support: full
options:
  nodes_needed:
    description: Whether it fails when C(--limit) leaves no compute node.
    type: bool
    default: false
  keys_needed:
    description: Whether compute nodes and servers need C(checkpoint_hooks_keys).
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Check groups and variables
  ckpt.torque.inventory_check:
  run_once: true
"""

RETURN = r"""
faults:
  description: What is wrong, one sentence each.
  returned: failure
  type: list
  elements: str
"""
