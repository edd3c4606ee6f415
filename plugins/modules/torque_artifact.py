#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: torque_artifact
short_description: Install a TORQUE or BLCR that was built once, beside the others, and switch to it
version_added: 0.2.0
description:
  - Unpacks the artifact from the controller's cache where the host has it not yet, and lets the link C(current) lead to it.
  - The controller notes an artifact's SHA-256 in a file beside it when it is new. What arrives on a host is compared with that before it
    is unpacked. That finds damage, on the controller's disk or on the way; who can write to the cache can change both files.
  - One execution on a host that has it.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.artifact
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
  action:
    description: The artifact is looked for on the controller.
    support: full
options:
  switch:
    description:
      - Whether the link is to lead to the artifact. With V(false) it is unpacked only, and the link shows that something is left to be done
        until another call switches it.
    type: bool
    default: true
    version_added: 0.3.0
  home:
    description:
      - The home of TORQUE's daemons. The link is not switched to a C(pbs_server) that would not start with the database that is there.
    type: path
    version_added: 0.4.0
  archive:
    description: The artifact on the host. Filled in by the controller.
    type: path
  checksum:
    description: SHA-256 of the artifact. Filled in by the controller.
    type: str
"""

EXAMPLES = r"""
- name: Install TORQUE
  ckpt.torque.torque_artifact:
    version: 6.1.3
    digest: 5ec1b3943a7a
    cache: /root/.cache/ckpt-torque/artifacts
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
  description: Whether the host had it before.
  returned: success
  type: bool
current:
  description: The name of the artifact that the link led to before; empty when there was none.
  returned: success
  type: str
"""

import os
import tarfile
import zlib

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.build import artifact
from ansible_collections.ckpt.torque.plugins.module_utils.torque import database


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": "torque"},
            "version": {"type": "str", "required": True},
            "digest": {"type": "str", "required": True},
            "prefix": {"type": "path", "default": "/opt/torque"},
            "programs": {"type": "list", "elements": "str", "default": []},
            "cache": {"type": "path", "required": True},
            "switch": {"type": "bool", "default": True},
            "home": {"type": "path"},
            "archive": {"type": "path"},
            "checksum": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params, host = module.params, os.uname().nodename
    result = artifact.describe(params["version"], params["digest"], params["prefix"], params["programs"], module.get_bin_path)
    key, installed, current = result["key"], result["installed"], result["current"]
    target = key if params["switch"] else current
    link = os.path.join(params["prefix"], artifact.LINK)
    if not os.path.isabs(params["prefix"]):
        module.fail_json(msg="%s: prefix %s is not an absolute path; name it in full; nothing was changed" % (host, params["prefix"]))
    result["diff"] = {"before": "%s -> %s\n" % (link, current) if current else "", "after": "%s -> %s\n" % (link, target) if target else ""}
    if os.path.lexists(link) and not os.path.islink(link):
        module.fail_json(msg="%s: %s is not a link; move it away, it would hide the %s that is installed; nothing was changed"
                         % (host, link, params["name"].upper()))

    def label(draft: str, target: str) -> None:
        """Give what was unpacked (path) the contexts that SELinux's policy has for where it will be (path).

        Without them systemd would start pbs_mom in its own domain.
        """
        if module.selinux_enabled():
            for top, directories, files in os.walk(draft):
                for path in [top] + [os.path.join(top, name) for name in directories + files]:
                    module.set_context_if_different(path, module.selinux_default_context(target + path[len(draft):]), False)

    def check_database() -> None:
        unknown = database.list_unknown(params["home"], os.path.join(params["prefix"], key, "sbin/pbs_server")) if params["home"] else []
        if unknown:
            module.fail_json(msg="%s: pbs_server of the artifact %s does not know %s in %s/server_priv, and would not start; remove %s "
                             "with qmgr (unset), or keep the version that has written %s; the link %s was left as it is" % (
                                 host, key, ", ".join(unknown), params["home"], *(("them", "them") if unknown[1:] else ("it", "it")), link))

    if not module.check_mode and (installed or params["archive"]):
        os.umask(0o022)  # users must be able to enter
        try:
            if not installed:
                artifact.check_archive(params["archive"], params["checksum"])
                artifact.install(params["archive"], key, params["prefix"], label, False)
            if current != target:
                check_database()
                artifact.install(None, key, params["prefix"], label)
        except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
            module.fail_json(msg="%s: cannot install the artifact %s: %s; %s" % (host, key, error, artifact.advise(error)))
    module.exit_json(changed=not installed or current != target, **result)


if __name__ == "__main__":
    main()
