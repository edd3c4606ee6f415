#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: torque_source
short_description: Tell what an unpacked TORQUE source is
version_added: 0.2.0
description:
  - Reads version and form of an unpacked TORQUE source and takes a digest of all that is in it, which does not depend on how it was
    packed. Compares it with the digests of the trees in upstream's repository that this collection knows.
  - Take the digest before M(ckpt.torque.torque_patch) changes the tree.
  - The digest is the SHA-256 of what C(sha256sum) prints for all files, in the byte order (C(LC_ALL=C)) of their paths relative
    to the tree. A link counts as a file that holds its target.
  - A release tarball of TORQUE 4 to 6 holds C(configure) and other generated files as well. It is not one of the known trees, and
    whoever builds it compares the checksum of the tarball.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.read_only
options:
  path:
    description: The directory the source was unpacked to.
    type: path
    required: true
  version:
    description: The version it must be, such as V(6.1.3). Any TORQUE will do without.
    type: str
"""

EXAMPLES = r"""
- name: Tell a genuine source from a changed one
  ckpt.torque.torque_source:
    path: /var/cache/ckpt-torque/build/torque-6.1.3
    version: 6.1.3
  register: source
  failed_when: source is failed or source.genuine is false
"""

RETURN = r"""
version:
  description: The version that the source gives itself.
  returned: success
  type: str
  sample: 6.1.3
form:
  description: V(release) when it brings C(configure) and C(Makefile.in), V(tree) when the autotools must run first.
  returned: success
  type: str
  sample: tree
digest:
  description: SHA-256 of all that is in it.
  returned: success
  type: str
genuine:
  description:
    - Whether this is, file by file, the tree that upstream's repository has as this version.
    - None where no digest of this version is known.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.build.source import SourceError, examine


def main() -> None:
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "required": True}, "version": {"type": "str"}},
        supports_check_mode=True,
    )
    try:
        source = examine(module.params["path"], module.params["version"])
    except SourceError as error:
        module.fail_json(msg="%s; nothing was changed" % error)
    except OSError as error:
        module.fail_json(msg="cannot read the source: %s: %s; name the directory that it was unpacked to, and become a user who can read "
                         "it; nothing was changed" % (error.filename, error.strerror))
    module.exit_json(changed=False, **source)


if __name__ == "__main__":
    main()
