# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)


class ModuleDocFragment:

    DOCUMENTATION = r"""
options:
  name:
    description: The product, V(torque) or an engine that is built, by the name of its role.
    type: str
    default: torque
  version:
    description: Its version.
    type: str
    required: true
  digest:
    description: What tells this build from others of the version, on every platform.
    type: str
    required: true
  prefix:
    description: Where artifacts are installed.
    type: path
    default: /opt/torque
  programs:
    description: Files of the artifact, by their paths in it. A host that lacks one does not have the artifact, and gets it again.
    type: list
    elements: str
    default: []
  cache:
    description: The controller's directory of artifacts. Where the variable C(bundle_source) is set, the bundle's is used instead.
    type: path
    required: true
"""
