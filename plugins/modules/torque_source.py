#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: torque_source
short_description: Tell what an unpacked TORQUE source is
version_added: 0.2.0
description:
  - Reads version and form of an unpacked TORQUE source and takes a digest of its C and C++ sources that does not depend on
    how they were packed. Compares it with the digests of the versions this collection knows.
  - Take the digest before M(ckpt.torque.torque_patch) changes the tree.
  - The digest is the SHA-256 of what C(sha256sum) prints for the regular files C(src/**/*.{c,h,cpp,hpp}), in the byte order
    (C(LC_ALL=C)) of their paths relative to the tree. Directories named C(test) do not count, nor do the files that configure
    and make generate, C(src/include/pbs_config.h), C(src/include/site_*.h), C(src/scheduler.basl/Lexer.c) and C(Parser.c).
  - The digest says nothing of C(configure), makefiles and scripts. Whoever wants certainty of the whole compares the checksum
    of the tarball.
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
  description: SHA-256 of the sources.
  returned: success
  type: str
genuine:
  description:
    - Whether these are the sources that upstream published as this version.
    - None where no digest of this version is known.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque_source import SourceError, examine


def main():
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "required": True}, "version": {"type": "str"}},
        supports_check_mode=True,
    )
    try:
        found = examine(module.params["path"], module.params["version"])
    except SourceError as error:
        module.fail_json(msg="%s; nothing was changed" % error)
    except OSError as error:
        module.fail_json(msg="cannot read the source: %s: %s; name the directory that it was unpacked to, and become a user who can read "
                         "it; nothing was changed" % (error.filename, error.strerror))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
