#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: mom_config_info
short_description: Read and check a mom_priv/config, whoever wrote it
version_added: 0.3.0
description:
  - Reports, with line numbers, what C(pbs_mom) would ignore with a line in its log at most, misread or refuse of the file that is there.
  - A file with faults is a result, not a failure of the module; look at RV(faults). M(ckpt.torque.mom_config) writes one without.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.read_only
options:
  path:
    description: The configuration.
    type: path
    default: /var/spool/torque/mom_priv/config
  version:
    description:
      - TORQUE's version, such as V(6.1.3). Directives this version does not know are faults.
      - Without it every known directive is taken.
    type: str
  allowed:
    description: Directives that a changed C(pbs_mom) knows and stock TORQUE does not; their values are not checked.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Check what somebody wrote by hand
  ckpt.torque.mom_config_info:
    version: 6.1.3
  register: config

- name: Fail if pbs_mom would not go by it
  ansible.builtin.assert:
    that: config.faults | length == 0
    fail_msg: "{{ config.faults | join('; ') }}"
"""

RETURN = r"""
directives:
  description: The values of each directive, by its name without C($), in the order of the file.
  returned: success
  type: dict
  sample: {pbsserver: [head], usecp: ["*:/home /home"]}
resources:
  description: The other lines, as M(ckpt.torque.mom_config) takes them.
  returned: success
  type: list
  elements: str
  sample: ["size[fs=/scratch]"]
faults:
  description: What C(pbs_mom) would ignore, misread or refuse; empty when it goes by the file as it stands.
  returned: success
  type: list
  elements: str
  sample: ["line 2: $logevel is no directive of pbs_mom, which ignores the line; perhaps $loglevel was meant"]
traps:
  description: What works, but stands for more than it seems to.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque import mom_config
from ansible_collections.ckpt.torque.plugins.module_utils.torque.version import VersionError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/var/spool/torque/mom_priv/config"},
            "version": {"type": "str"},
            "allowed": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    path, version = module.params["path"], module.params["version"]
    try:
        text, status = mom_config.read_config(path)
        if status is None:
            module.fail_json(msg="there is no file %s; correct path or write it with mom_config" % path)
        faults = mom_config.find_file_faults(path, text, version, module.params["allowed"])
        traps = mom_config.traps(text, version)
    except VersionError as error:
        module.fail_json(msg="cannot check %s: %s; correct it" % (path, error))
    except OSError as error:
        module.fail_json(msg="cannot read %s: %s; correct path and become root" % (path, error.strerror))
    directives, resources = mom_config.split(text)
    module.exit_json(changed=False, directives=directives, resources=resources, faults=faults, traps=traps)


if __name__ == "__main__":
    main()
