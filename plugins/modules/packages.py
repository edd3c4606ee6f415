#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: packages
short_description: Install packages, unless that would remove or downgrade others
version_added: 0.3.0
description:
  - Installs what is missing, with apt, dnf, yum or zypper, whichever the host has. What is there is not upgraded.
  - Has the package manager simulate it first. When a package would be removed or downgraded it fails, names it, and changes nothing.
  - Where nothing is missing the package manager is not started.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
    details: The lists of packages are not fetched. Where the host has none it says what would be asked for.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  name:
    description: The packages, as the package manager takes them. With apt C(NAME=VERSION) may have wildcards.
    type: list
    elements: str
    required: true
  install_recommends:
    description: Whether apt installs what the packages recommend; its own configuration says so by default.
    type: bool
  advice:
    description: What the administrator can do when it is refused; part of the message.
    type: str
    default: install these packages in versions that go together, or do without those that would go, and run this again
"""

EXAMPLES = r"""
- name: Install CRIU
  ckpt.torque.packages:
    name: [criu]
    install_recommends: false
"""

RETURN = r"""
missing:
  description: The packages that were not there.
  returned: success
  type: list
  elements: str
removed:
  description: The packages that would be removed.
  returned: when it is refused for them
  type: list
  elements: str
downgraded:
  description: The packages that would be downgraded.
  returned: when it is refused for them
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils import packages

INSTALLED = ["dpkg-query", "-W", "-f", "${Package}\\t${Architecture}\\t${Version}\\t${db:Status-Status}\\t${Provides}\\n"]
ENVIRONMENT = {"LC_ALL": "C", "LANGUAGE": "C", "DEBIAN_FRONTEND": "noninteractive"}


def find_manager(module: AnsibleModule) -> str:
    """Return the host's package manager; fail when it has none that is known."""
    if os.path.exists("/var/lib/dpkg/status") and module.get_bin_path("apt-get"):
        return "apt"
    manager = next((name for name in ("zypper", "dnf", "yum") if module.get_bin_path(name)), "")
    if not manager:
        module.fail_json(msg="%s: there is none of apt-get, dnf, yum and zypper; install %s yourself; nothing was changed"
                         % (os.uname().nodename, " ".join(module.params["name"])))
    return manager


def find_missing(module: AnsibleModule, manager: str) -> "list[str]":
    """Return the packages that are not installed."""
    names = module.params["name"]
    if manager == "apt":
        return packages.find_missing(names, module.run_command(INSTALLED, check_rc=True)[1])
    return [name for name in names if module.run_command(["rpm", "-q", name])[0] != 0
            and module.run_command(["rpm", "-q", "--whatprovides", name])[0] != 0]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "list", "elements": "str", "required": True},
            "install_recommends": {"type": "bool"},
            "advice": {"type": "str", "default": "install these packages in versions that go together, or do without those that would go, "
                                                 "and run this again"},
        },
        supports_check_mode=True,
    )
    module.run_command_environ_update = ENVIRONMENT
    host, manager = os.uname().nodename, find_manager(module)
    missing = find_missing(module, manager)
    if not missing:
        module.exit_json(changed=False, missing=[])
    updated = ""
    if manager == "apt" and not module.check_mode:
        _status, output, error = module.run_command(["apt-get", "-q", "update"])
        updated = output + error
    options = []
    if manager == "apt" and module.params["install_recommends"] is not None:
        options = ["-o", "APT::Install-Recommends=%s" % str(module.params["install_recommends"]).lower()]
    commands = packages.COMMANDS[manager]
    status, output, error = module.run_command(commands["simulate"] + options + missing)
    plan = packages.READERS[manager](output)
    refusal = packages.refuse(manager, missing, plan, module.params["advice"])
    if refusal:
        module.fail_json(msg="%s: %s" % (host, refusal), removed=plan.removed, downgraded=plan.downgraded)
    if module.check_mode:
        module.exit_json(changed=True, missing=missing, msg="would install %s" % " ".join(missing))
    # dnf and yum end their simulation with an error; what they cannot do, they report again when they do it.
    if status == 0 or manager in ("dnf", "yum"):
        status, output, error = module.run_command(commands["install"] + options + missing)
    if status != 0:
        module.fail_json(msg="%s: %s cannot install %s: %s; correct its sources or the list of packages"
                         % (host, manager, " ".join(missing), packages.find_reason(manager, updated + output + error)))
    module.exit_json(changed=True, missing=missing)


if __name__ == "__main__":
    main()
