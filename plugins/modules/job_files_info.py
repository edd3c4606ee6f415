#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: job_files_info
short_description: Report which jobs of a host a version of TORQUE would lose
version_added: 0.4.0
description:
  - C(pbs_server) and C(pbs_mom) keep their jobs in files whose format has changed. This looks at them, before the daemons of another
    version do.
  - A version before 4.5.0 cannot read jobs and arrays that a later one has written, and 2.x not the database of a later one. From 6.1.0
    on C(pbs_server) does not start with arrays that a version before 4.5.0 has written. Of jobs of 2.x some are lost.
  - Versions before 6.1.0 take each switch in the database of a later one for off, and 6.1.0 to 6.1.2 those in that of an earlier one.
  - That there are such jobs is a result, not a failure of the module; look at RV(complaint).
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.read_only
options:
  home:
    description: The home of TORQUE's daemons. One that does not exist has no jobs.
    type: path
    default: /var/spool/torque
  version:
    description: The version that is to read them.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Find the jobs that TORQUE 6.1.3 would lose
  ckpt.torque.job_files_info:
    version: 6.1.3
  register: files

- name: Check that no job would be lost
  ansible.builtin.assert:
    that: files.complaint | length == 0
    fail_msg: "{{ files.complaint }}"
"""

RETURN = r"""
lost:
  description: The ids of the jobs and arrays that it would lose, sorted.
  returned: success
  type: list
  elements: str
  sample: ["6[].head"]
complaint:
  description: Why that version must not be installed yet, as a sentence with what to do; empty if it may be.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque import job_files


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "default": "/var/spool/torque"},
            "version": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    lost, complaint = job_files.examine(module.params["home"], module.params["version"], module.fail_json)
    module.exit_json(changed=False, lost=lost, complaint=complaint)


if __name__ == "__main__":
    main()
