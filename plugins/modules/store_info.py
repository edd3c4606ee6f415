#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: store_info
short_description: Report what a store of images really is on a node, by trying it
version_added: 0.3.0
description:
  - Finds on which mount the store lies, whether root is squashed there, whether the user can create, rename and flush what an image needs,
    what is free, and how far the store's clock is from the node's. What it creates for that it removes again.
  - Whether nodes have the same storage is for M(ckpt.torque.store_token) and M(ckpt.torque.store_token_info) to prove.
  - What makes the store unfit is a result, not a failure of the module; look at RV(faults).
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
    details: Reports what can be seen without creating anything; RV(root) and RV(user) are empty, RV(would) lists what would be tried.
  diff_mode:
    support: N/A
    details: It leaves nothing behind that could differ.
  idempotent:
    support: full
    details: It never reports a change.
options:
  path:
    description: The store.
    type: path
    required: true
  user:
    description: An ordinary user, whose directory in the store is tried. Without one RV(user) is empty.
    type: str
  directory:
    description: Where that user's images are written. The default is the directory of O(user) in O(path).
    type: path
  exists:
    description: Whether the store should exist already. If not, only the path is checked where it would be created.
    type: bool
    default: true
  shared:
    description: Whether other nodes see the same store. One of this node's own may be open to all, with mode 1777.
    type: bool
    default: true
  copies:
    description:
      - How images reach the server from a store of this node's own. A small one is copied there as O(user) and back, as C(pbs_mom) would.
    type: dict
    suboptions:
      server:
        description: The server's name, as C(pbs_mom) knows it.
        type: str
        required: true
      directory:
        description: Where the server's checkpoint directory is mounted on this node. Empty for sftp.
        type: str
        default: ""
      ssh_config:
        description: How sftp reaches the server.
        type: path
        default: /etc/ckpt-torque/copies/ssh_config
      job:
        description: Name of a directory in the server's checkpoint directory that is the user's.
        type: str
        required: true
"""

EXAMPLES = r"""
- name: Try the store on every node
  ckpt.torque.store_info:
    path: /shared/ckpt
    user: alice
  register: store
"""

RETURN = r"""
faults:
  description: What makes the store unfit on this node, and what to do; empty when it is fit.
  returned: success
  type: list
  elements: str
store:
  description: The store.
  returned: success
  type: str
real_path:
  description: The store without links.
  returned: success
  type: str
id:
  description: The store's name, which the role checkpoint_store has written into it; empty when there is none.
  returned: success
  type: str
  sample: default
directory:
  description: The directory that was tried as the user; null without one.
  returned: success
  type: str
mode:
  description: The store's mode; empty when there is no such directory, as is all else then.
  returned: success
  type: str
  sample: "0755"
exposed:
  description: The directory on the way to the store that others than root can write to; empty when there is none.
  returned: success
  type: str
mount:
  description: The mount that it lies on.
  returned: success
  type: dict
  sample: {point: /shared, source: "head:/export", type: nfs4, options: [hard, rw, "vers=4.2"]}
free_space:
  description: What is free of how much, in bytes and files; V(null) if the file system does not report it.
  returned: success
  type: dict
  sample: {bytes: 70866960384, total_bytes: 270582939648, files: 15728640, total_files: 16777216}
quota:
  description: What the user has used of which hard limits, in bytes and files, on a local file system with user quotas; a limit is V(null)
    where there is none. On btrfs it is that of the subvolume in which O(directory) lies, which counts no files. V(null) without quotas or a
    user, and on network file systems, whose server knows.
  returned: success
  type: dict
  sample: {bytes: 4096, bytes_limit: 107374182400, files: 1, files_limit: null}
root:
  description: Why root cannot create a directory in the store (C(refusal), empty when it can), and whether root is squashed, V(null) if
    that is not known.
  returned: success
  type: dict
  sample: {refusal: "", squashed: true}
user:
  description: Why the user cannot create a directory (C(refusal)); else whose it is (C(uid)), which of an image's steps fail and why
    (C(renames)), what flushing a file and a name costs (C(seconds)), by how many seconds the store's clock is ahead (C(skew)).
  returned: success
  type: dict
  sample: {refusal: "", uid: 1500, renames: {rename: "", rename_directory: "", link: ""}, seconds: {file: 0.004, name: 0.009}, skew: 0.0}
uid:
  description: The user's id on this node; null without one.
  returned: success
  type: int
copies:
  description: How many bytes went to the server and came back (C(bytes)), and how long that took (C(seconds)), or why not (C(refusal)).
  returned: with O(copies), if the user can create images
  type: dict
  sample: {refusal: "", bytes: 131072, seconds: 0.41}
would:
  description: What would be tried.
  returned: in check mode
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.store import probe
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.errors import HookError
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system import privilege


def find_fault(params: dict) -> str:
    """Return why the store cannot be examined, empty when it can."""
    path = params["path"]
    if not os.path.isabs(path) or path == "/":
        return "path %s is %s; name the store's directory in full" % (path, "the root of everything" if path == "/" else "not absolute")
    if params["user"] is None and (params["directory"] or params["copies"]):
        return "directory and copies are tried as a user; name one"
    return ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "user": {"type": "str"},
            "directory": {"type": "path"},
            "exists": {"type": "bool", "default": True},
            "shared": {"type": "bool", "default": True},
            "copies": {"type": "dict", "options": {
                "server": {"type": "str", "required": True}, "directory": {"type": "str", "default": ""},
                "ssh_config": {"type": "path", "default": "/etc/ckpt-torque/copies/ssh_config"}, "job": {"type": "str", "required": True}}},
        },
        supports_check_mode=True,
    )
    params, node = module.params, os.uname().nodename
    fault = find_fault(params)
    if fault:
        module.fail_json(msg="%s: store_info: %s; nothing was done" % (node, fault))
    path = params["path"].rstrip("/")
    try:
        user = privilege.find_user(params["user"]) if params["user"] else None
        directory = (params["directory"] or os.path.join(path, user.name)) if user else None
        result = probe.inspect_store(path, directory, user, params["exists"])
        more = {}
        if module.check_mode:
            tried = ["as root, a directory in %s" % path]
            if user:
                tried.append("as %s, directories, renames and flushes in %s" % (user.name, result["directory"]))
            if user and params["copies"]:
                tried.append("as %s, an image to %s and back" % (user.name, params["copies"]["server"]))
            more["would"] = tried
        elif os.geteuid() != 0:
            module.fail_json(msg="%s: store_info must run as root to try what root and the user may do; use become" % node)
        elif result["mode"]:
            result["root"] = probe.try_as_root(path)
            if user:
                result["user"] = privilege.as_user(user, lambda: probe.try_as_user(result["directory"]))
                if params["copies"] and not result["user"]["refusal"]:
                    more["copies"] = probe.try_transfer(user, params["copies"], result["directory"])
    except (HookError, OSError) as error:
        module.fail_json(msg="%s: store_info: %s" % (node, error))
    result.update(more)
    module.exit_json(changed=False, faults=probe.list_faults(result, params["user"], params["shared"], params["exists"]), **result)


if __name__ == "__main__":
    main()
