#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: torque_artifact_info
short_description: Report which artifact of TORQUE or BLCR a host needs, and where it is
version_added: 0.3.0
description:
  - Reports which platform a host is and so which artifact it needs, whether the host has it and whether the controller's cache does.
  - Of TORQUE it reports, too, whether the host has jobs that the artifact would lose, as M(ckpt.torque.job_files_info) does.
  - M(ckpt.torque.torque_artifact) installs it.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.artifact
  - ckpt.torque.attributes
  - ckpt.torque.attributes.read_only
options:
  home:
    description: The home of TORQUE's daemons, whose jobs are looked at. Without, none are.
    type: path
attributes:
  action:
    description: The artifact is looked for on the controller.
    support: full
"""

EXAMPLES = r"""
- name: Check whether the artifact must be built
  ckpt.torque.torque_artifact_info:
    version: 6.1.3
    digest: 5ec1b3943a7a
    home: /var/spool/torque
    cache: /root/.cache/ckpt-torque/artifacts
  register: artifact
"""

RETURN = r"""
platform:
  description: System, its major version and architecture.
  returned: success
  type: str
  sample: debian13-x86_64
family:
  description: V(Debian) or V(RedHat), by whose packages it installs; empty for others.
  returned: success
  type: str
package_formats:
  description: The kinds of packages that the host has the tool to make, of V(deb) and V(rpm).
  returned: success
  type: list
  elements: str
  sample: [deb]
key:
  description: The artifact's name.
  returned: success
  type: str
  sample: 6.1.3-debian13-x86_64-5ec1b3943a7a
path:
  description: Where the artifact is on the controller, or would be.
  returned: success
  type: str
available:
  description: Whether it is there.
  returned: success
  type: bool
installed:
  description: Whether the host has it.
  returned: success
  type: bool
current:
  description: The name of the artifact that the link C(current) leads to; empty when there is none.
  returned: success
  type: str
complaint:
  description: Why the artifact must not be installed yet, as a sentence with what to do; empty if it may be.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.build import artifact
from ansible_collections.ckpt.torque.plugins.module_utils.torque import job_files


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": "torque"},
            "version": {"type": "str", "required": True},
            "digest": {"type": "str", "required": True},
            "prefix": {"type": "path", "default": "/opt/torque"},
            "programs": {"type": "list", "elements": "str", "default": []},
            "home": {"type": "path"},
            "cache": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    complaint = job_files.examine(params["home"], params["version"], module.fail_json)[1] if params["home"] else ""
    module.exit_json(changed=False, complaint=complaint, **artifact.describe(
        params["version"], params["digest"], params["prefix"], params["programs"], module.get_bin_path))


if __name__ == "__main__":
    main()
