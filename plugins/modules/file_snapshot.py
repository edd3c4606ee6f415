#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: file_snapshot
short_description: Keep files of a host as they are before a change, and put them back
version_added: 0.3.0
description:
  - Keeps two snapshots in a directory. The open one is of before a change that has not ended; the previous one of before the last
    change that proved good. Each is an archive of tar that root alone can read.
  - A run that is interrupted leaves the open snapshot. The next one keeps it, since what the host has then may be half of a change.
  - Does not restart what reads the files. Their time is that at which they were put back.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: RV(paths) has the names of what differs.
  idempotent:
    support: full
options:
  state:
    description:
      - V(open) takes a snapshot of O(paths), unless one is open already; see also O(renew).
      - V(closed) makes the open snapshot the previous one, as the change proved good. If nothing differs from it, it is removed and the
        previous one stays. Without an open one nothing is done.
      - V(restored) puts back what the open snapshot has, and removes it. Without an open one nothing is done.
      - V(previous) puts back what the previous snapshot has. That is a change, too, so a snapshot must be open.
    type: str
    choices: [open, closed, restored, previous]
    required: true
  paths:
    description:
      - Files, directories with all that is in them, and symbolic links, by absolute path. What does not exist is removed when it is put
        back. Directories C(__pycache__) are left out. With O(state=open) only; the snapshots know theirs.
    type: list
    elements: path
    default: []
  change:
    description: What change the snapshot is taken for. With O(state=open) only; see RV(change).
    type: str
    default: ''
  renew:
    description: With O(state=open), whether a snapshot that is open already is replaced, as its change was ended otherwise.
    type: bool
    default: false
  directory:
    description: The directory of the snapshots.
    type: path
    default: /var/lib/ckpt-torque/snapshots
"""

EXAMPLES = r"""
- name: Keep the configuration as it is
  ckpt.torque.file_snapshot:
    state: open
    paths: [/var/spool/torque/mom_priv/config, /opt/torque/current]

- name: Put the configuration back
  ckpt.torque.file_snapshot:
    state: restored
"""

RETURN = r"""
paths:
  description: What differed from the snapshot and was put back, or would be, sorted.
  returned: O(state=restored) or O(state=previous)
  type: list
  elements: str
links:
  description: Where the symbolic links of RV(paths) lead then, by path.
  returned: O(state=restored) or O(state=previous)
  type: dict
  sample: {/opt/torque/current: 6.1.3-debian13-x86_64-14f521553546}
was_open:
  description: Whether a snapshot was open before.
  returned: success
  type: bool
change:
  description: What change that snapshot was taken for; empty if none was open.
  returned: success
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.snapshot import Snapshot


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "required": True, "choices": ["open", "closed", "restored", "previous"]},
            "paths": {"type": "list", "elements": "path", "default": []},
            "change": {"type": "str", "default": ""},
            "renew": {"type": "bool", "default": False},
            "directory": {"type": "path", "default": "/var/lib/ckpt-torque/snapshots"},
        },
        supports_check_mode=True,
    )
    params, state, host = module.params, module.params["state"], os.uname().nodename
    relative = [path for path in params["paths"] + [params["directory"]] if not os.path.isabs(path)]
    if relative:
        module.fail_json(msg="%s: %s is not an absolute path; name it in full; nothing was changed" % (host, ", ".join(relative)))
    if state == "open" and not params["paths"]:
        module.fail_json(msg="%s: paths is empty; name the files to keep; nothing was changed" % host)
    opened, previous = os.path.join(params["directory"], "open.tar"), os.path.join(params["directory"], "previous.tar")
    was_open = os.path.exists(opened)
    if state == "previous" and not os.path.exists(previous):
        module.fail_json(msg="%s: there is no previous snapshot in %s; ckpt.torque.update takes one before it changes a node; nothing was "
                         "changed" % (host, params["directory"]))
    if state == "previous" and not was_open and not module.check_mode:
        module.fail_json(msg="%s: no snapshot is open in %s, so that this could not be undone; take one first (state=open); nothing was "
                         "changed" % (host, params["directory"]))
    try:
        present = Snapshot.read(opened) if was_open else None
        result = {"changed": False, "was_open": was_open, "change": present.change if present else ""}
        if state == "open" and (not present or params["renew"]):
            result["changed"] = True
            if not module.check_mode:
                Snapshot.take(params["paths"], params["change"]).write(opened)
        elif state == "closed" and present:
            result["changed"] = True
            if not module.check_mode:
                if present.list_differences():
                    os.rename(opened, previous)
                else:
                    os.unlink(opened)
        elif state in ("restored", "previous"):
            snapshot = Snapshot.read(previous) if state == "previous" else present or Snapshot([], {})
            paths = snapshot.list_differences() if module.check_mode else snapshot.put_back()
            result["paths"] = paths
            result["links"] = {path: target for path, target in snapshot.list_links().items() if path in paths}
            result["changed"] = bool(paths) or bool(state == "restored" and present)
            if state == "restored" and present and not module.check_mode:
                os.unlink(opened)
    except (OSError, ValueError) as error:
        module.fail_json(msg="%s: %s: %s; correct the cause and run this again, which continues"
                         % (host, "cannot keep the files" if state in ("open", "closed") else "cannot put the files back", error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
