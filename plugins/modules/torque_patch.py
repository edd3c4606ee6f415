#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: torque_patch
short_description: Put a series of patches into a TORQUE source tree, wholly or not at all
version_added: 0.2.0
description:
  - Chooses by the version which variant of each patch is for the tree, and says of each patch what became of it.
  - Works on copies and replaces the tree's files by renames only when the whole series fits, without fuzz. A patch may change
    the text of files in the tree and nothing else; one that names a path outside, or one that a link leads to, is refused.
  - Takes out what an earlier run put in before it puts the series in, so a series that grew in the middle is no trouble.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  path:
    description: The unpacked source tree.
    type: path
    required: true
  version:
    description:
      - The tree's version, such as V(6.1.3).
      - Versions are compared part by part as M(ckpt.torque.torque_source) names them, V(2.4.8) before V(2.5) before
        V(6.1.3) before V(6.1.3.h5).
    type: str
    required: true
  directory:
    description: Where the patch files lie on this host.
    type: path
    required: true
  series:
    description: The patches, in the order they go in.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The patch's name, unique in the series.
        type: str
        required: true
      purpose:
        description: What it is for. For the reader only.
        type: str
      cures:
        description: The defects it cures. For the reader only.
        type: raw
      proof:
        description: The test that proves it. For the reader only.
        type: raw
      variants:
        description: The files it consists of. Their ranges may not overlap.
        type: list
        elements: dict
        default: []
        suboptions:
          from:
            description: The first version the file is for. Any without.
            type: str
          below:
            description: The first version it is no longer for. Any without.
            type: str
          file:
            description:
              - A unified diff to be applied with C(-p1).
              - Its last component is its name in O(directory), so a site may give the path that it has on the controller.
            type: str
            required: true
      upstream:
        description: The versions that bring the change themselves.
        type: list
        elements: dict
        default: []
        suboptions:
          from:
            description: The first of them. Any without.
            type: str
          below:
            description: The first version after them. Any without.
            type: str
requirements:
  - GNU patch
"""

EXAMPLES = r"""
- name: Put the collection's series and a site's own patch in
  ckpt.torque.torque_patch:
    path: /var/cache/ckpt-torque/build/torque-6.1.3
    version: 6.1.3
    directory: /var/cache/ckpt-torque/build/patches
    series: "{{ torque_build_series + site }}"
  vars:
    site:
      - name: site-banner
        purpose: Our name in the log
        variants:
          - from: 6.1.3
            below: 6.1.4
            file: /srv/torque/site-banner.patch
"""

RETURN = r"""
series:
  description: Each patch of the series, in its order.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    state:
      description:
        - V(applied) by this run; V(already applied) when the tree had the change already, as after an earlier run.
        - V(already upstream) when O(series[].upstream) holds the version; V(not applicable) when there is no variant for it.
      type: str
    file:
      description: The variant's file; none where no patch is needed.
      type: str
  sample: [{name: migration, state: already upstream, file: null}, {name: hook-exec, state: applied, file: hook-exec-6.patch}]
files:
  description: The files of the tree that changed.
  returned: success
  type: list
  elements: str
  sample: [src/resmom/checkpoint.c]
digest:
  description: SHA-256 of the names and contents of the patches that are in the tree, in their order.
  returned: success
  type: str
"""

import os
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.build.patches import Applier, PatchError, install, plan
from ansible_collections.ckpt.torque.plugins.module_utils.torque.version import VersionError


def shown(text: "str | None") -> str:
    """Return a file's text for the diff, decoded as UTF-8."""
    return "" if text is None else text.encode("latin-1").decode("utf-8", "replace")


def main() -> None:
    limits = {"from": {"type": "str"}, "below": {"type": "str"}}
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "version": {"type": "str", "required": True},
            "directory": {"type": "path", "required": True},
            "series": {"type": "list", "elements": "dict", "required": True, "options": {
                "name": {"type": "str", "required": True},
                "purpose": {"type": "str"},
                "cures": {"type": "raw"},
                "proof": {"type": "raw"},
                "variants": {"type": "list", "elements": "dict", "default": [],
                             "options": dict(limits, file={"type": "str", "required": True})},
                "upstream": {"type": "list", "elements": "dict", "default": [], "options": limits},
            }},
        },
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LC_ALL": "C", "LANGUAGE": "C"}  # its messages are parsed
    params, tree = module.params, module.params["path"]
    program = module.get_bin_path("patch")
    if program is None:
        module.fail_json(msg="GNU patch is not installed; install the package patch; nothing was changed")
    if not os.path.isdir(tree):
        module.fail_json(msg="there is no directory %s; name the one that the source was unpacked to; nothing was changed" % tree)
    staging = []
    try:
        scratch = tempfile.mkdtemp(dir=module.tmpdir)
        result, digest, before, after = plan(tree, params["version"], params["directory"], params["series"],
                                             Applier(module.run_command, program, scratch))
        if after and not module.check_mode:
            staging.append(tempfile.mkdtemp(prefix=".ckpt-torque-", dir=tree))
            install(os.path.realpath(tree), before, after, staging[0])
    except (PatchError, VersionError) as error:
        module.fail_json(msg="%s; nothing was changed" % error)
    except OSError as error:
        module.fail_json(msg="cannot patch %s: %s: %s; become a user who can write there, or free some space; nothing was changed" % (
            tree, error.filename, error.strerror))
    finally:
        for path in staging:
            shutil.rmtree(path, ignore_errors=True)
    diff = [{"before_header": name, "after_header": name, "before": shown(before[name]), "after": shown(after[name])}
            for name in sorted(after)]
    module.exit_json(changed=bool(after), series=result, files=sorted(after), digest=digest, diff=diff)


if __name__ == "__main__":
    main()
