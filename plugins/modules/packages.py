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
  action:
    description: It sends the packages of a bundle.
    support: full
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
  download:
    description:
      - A file on the host into which the packages are written, with all that they need, even what the host has; nothing is installed.
        apt alone can do that.
      - It is a repository, as a tar file, and what O(repository) takes.
    type: path
    version_added: 0.3.0
  repository:
    description:
      - A repository on the host, as O(download) writes it. The packages are taken from that alone; the host's own sources are not asked.
      - Where the variable C(bundle_source) is set, this is the bundle's for the host's platform, which is sent when a package is missing.
    type: path
    version_added: 0.3.0
  bundled:
    description: Whether to report only what is missing, so that a repository can be sent. Set where C(bundle_source) is.
    type: bool
    default: false
    version_added: 0.3.0
"""

EXAMPLES = r"""
- name: Install CRIU
  ckpt.torque.packages:
    name: [criu]
    install_recommends: false

- name: Download what another host of this kind needs for that
  ckpt.torque.packages:
    name: [criu]
    download: /var/tmp/packages.tar
"""

RETURN = r"""
missing:
  description: The packages that were not there.
  returned: success
  type: list
  elements: str
manager:
  description: The host's package manager.
  returned: success
  type: str
  sample: apt
platform:
  description: System, its major version and architecture.
  returned: success
  type: str
  sample: debian13-x86_64
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
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils import packages
from ansible_collections.ckpt.torque.plugins.module_utils.build import artifact

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


def download(module: AnsibleModule, manager: str, path: str) -> None:
    """Write a repository of the packages, and of all that they need, to a tar file."""
    host, names = os.uname().nodename, module.params["name"]
    if manager != "apt":
        module.fail_json(msg="%s: packages for a bundle can be downloaded with apt alone, not with %s; have a mirror with %s at the site; "
                             "nothing was written" % (host, manager, " ".join(names)))
    with tempfile.TemporaryDirectory(prefix="ckpt-torque-", dir=module.tmpdir) as work:
        os.makedirs(work + "/packages/partial")
        with open(work + "/status", "w"):
            pass  # as if the host had nothing
        _status, output, error = module.run_command(["apt-get", "-q", "update"])
        updated = output + error
        status, output, error = module.run_command(packages.COMMANDS[manager]["download"] + names + [
            "-o", "Dir::State::status=%s/status" % work, "-o", "Dir::Cache::archives=%s/packages" % work])
        if status != 0:
            module.fail_json(msg="%s: %s cannot download %s: %s; correct its sources or the list of packages"
                             % (host, manager, " ".join(names), packages.find_reason(manager, updated + output + error)))
        files = sorted(name for name in os.listdir(work + "/packages") if name.endswith(".deb"))
        with open(work + "/packages/Packages", "w", encoding="utf-8") as index:
            for name in files:
                place = os.path.join(work, "packages", name)
                fields = module.run_command(["dpkg-deb", "-f", place], check_rc=True)[1]
                index.write("%s\nFilename: ./%s\nSize: %d\nSHA256: %s\n\n"
                            % (fields.strip("\n"), name, os.path.getsize(place), module.sha256(place)))
        module.run_command(["tar", "-C", work + "/packages", "-cf", path, "Packages"] + files, check_rc=True)


def use_repository(module: AnsibleModule, path: str) -> "list[str]":
    """Unpack a repository; return apt's options that have it know that one alone. It is there as long as the module runs."""
    work = tempfile.mkdtemp(prefix="ckpt-torque-", dir=module.tmpdir)
    for name in ("packages", "sources", "lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(work, name))
    module.run_command(["tar", "-C", work + "/packages", "-xf", path], check_rc=True)
    with open(work + "/sources/bundle.list", "w", encoding="utf-8") as stream:
        stream.write("deb [trusted=yes] file:%s/packages ./\n" % work)
    settings = ["Dir::Etc::SourceList=/dev/null", "Dir::Etc::SourceParts=%s/sources" % work, "Dir::State::Lists=%s/lists" % work,
                "Dir::Cache=%s/cache" % work, "APT::Sandbox::User=root"]
    return [word for setting in settings for word in ("-o", setting)]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "list", "elements": "str", "required": True},
            "install_recommends": {"type": "bool"},
            "advice": {"type": "str", "default": "install these packages in versions that go together, or do without those that would go, "
                                                 "and run this again"},
            "download": {"type": "path"},
            "repository": {"type": "path"},
            "bundled": {"type": "bool", "default": False},
        },
        mutually_exclusive=[("download", "repository")],
        supports_check_mode=True,
    )
    module.run_command_environ_update = ENVIRONMENT
    host, manager = os.uname().nodename, find_manager(module)
    about = {"platform": artifact.read_platform()[0], "manager": manager}
    if module.params["download"]:
        if not module.check_mode:
            download(module, manager, module.params["download"])
        module.exit_json(changed=True, missing=[], **about)
    missing = find_missing(module, manager)
    if not missing:
        module.exit_json(changed=False, missing=[], **about)
    if module.params["bundled"] and manager == "apt" and not module.check_mode:
        module.exit_json(changed=False, missing=missing, **about)
    options = use_repository(module, module.params["repository"]) if module.params["repository"] else []
    updated = ""
    if manager == "apt" and not module.check_mode:
        _status, output, error = module.run_command(["apt-get", "-q", "update"] + options)
        updated = output + error
    if manager == "apt" and module.params["install_recommends"] is not None:
        options += ["-o", "APT::Install-Recommends=%s" % str(module.params["install_recommends"]).lower()]
    commands = packages.COMMANDS[manager]
    status, output, error = module.run_command(commands["simulate"] + options + missing)
    plan = packages.READERS[manager](output)
    refusal = packages.refuse(manager, missing, plan, module.params["advice"])
    if refusal:
        module.fail_json(msg="%s: %s" % (host, refusal), removed=plan.removed, downgraded=plan.downgraded)
    if module.check_mode:
        module.exit_json(changed=True, missing=missing, **about, msg="would install %s" % " ".join(missing))
    # dnf and yum end their simulation with an error; what they cannot do, they report again when they do it.
    if status == 0 or manager in ("dnf", "yum"):
        status, output, error = module.run_command(commands["install"] + options + missing)
    if status != 0:
        module.fail_json(msg="%s: %s cannot install %s: %s; correct its sources or the list of packages"
                         % (host, manager, " ".join(missing), packages.find_reason(manager, updated + output + error)))
    module.exit_json(changed=True, missing=missing, **about)


if __name__ == "__main__":
    main()
