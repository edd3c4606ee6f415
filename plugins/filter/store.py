# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What makes a store unfit for images, by what was asked of the nodes."""
from __future__ import annotations

import re


def store_faults(found, first, first_node, path, store_id, users=(), user_directories=False):
    """Return what makes the store unfit for images on a node, as sentences (list of str).

    :param found: what store_info reports on the node (dict)
    :param first: what it reports on the first node (dict)
    :param first_node: name of the first node (str)
    :param path: checkpoint_store_path (str)
    :param store_id: checkpoint_store_id (str)
    :param users: checkpoint_store_users (list of str)
    :param user_directories: checkpoint_store_user_directories_enabled (bool)
    """
    if found["mode"] and found["id"] != store_id:
        other = ("another store, its name is %s and not %s" % (found["id"], store_id) if found["id"]
                 else "not the store, it holds no .ckpt-torque-store")
        return ["%s is %s; mount the directory that the host of group checkpoint_store has there, or correct checkpoint_store_path" % (
            path, other)]
    faults = list(found["faults"])
    if (found.get("root") or {}).get("squashed") and not user_directories:
        faults.append("root is squashed on %s, so that nobody can make directories of jobs there; set "
                      "checkpoint_store_user_directories_enabled, or export it with no_root_squash" % path)
    if found["uid"] != first["uid"]:
        faults.append("user %s has uid %d here and %d on %s, and images belong to uids; give the user the same uid on all nodes" % (
            users[0], found["uid"], first["uid"], first_node))
    return faults


def usecp_conflicts(usecp, directory):
    """Return the entries of $usecp by which pbs_mom would copy to a directory on the node itself, though it is the server's (list of str).

    :param usecp: torque_mom_usecp, "host:/there /here" (list of str) or mappings with "from" (list of dict)
    :param directory: the directory (str)
    """
    conflicts = []
    for entry in usecp:
        source = re.sub(r"^[^:]*:(\S+).*$", r"\1", entry) if isinstance(entry, str) else entry["from"]
        if (directory + "/").startswith(source):
            conflicts.append(entry if isinstance(entry, str) else source)
    return conflicts


class FilterModule:

    def filters(self):
        return {"store_faults": store_faults, "usecp_conflicts": usecp_conflicts}
