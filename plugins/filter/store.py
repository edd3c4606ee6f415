# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What makes a store unfit for images, by what the nodes reported."""
from __future__ import annotations

import re

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Sequence


def store_faults(result: dict, first: dict, first_node: str, path: str, store_id: str, users: "Sequence[str]" = (),
                 user_directories: bool = False) -> "list[str]":
    """Return what makes the store unfit for images on a node, as sentences.

    :param result: what store_info reports on the node
    :param first: what it reports on the first node
    :param first_node: name of the first node
    :param path: checkpoint_store_path
    :param store_id: checkpoint_store_id
    :param users: checkpoint_store_users
    :param user_directories: checkpoint_store_user_directories_enabled
    """
    if result["mode"] and result["id"] != store_id:
        other = ("another store, its name is %s and not %s" % (result["id"], store_id) if result["id"]
                 else "not the store, it holds no .ckpt-torque-store")
        return ["%s is %s; mount the directory that the host of group checkpoint_store has there, or correct checkpoint_store_path" % (
            path, other)]
    faults = list(result["faults"])
    if (result.get("root") or {}).get("squashed") and not user_directories:
        faults.append("root is squashed on %s, so that nobody can make directories of jobs there; set "
                      "checkpoint_store_user_directories_enabled, or export it with no_root_squash" % path)
    if result["uid"] != first["uid"]:
        faults.append("user %s has uid %d here and %d on %s, and images belong to uids; give the user the same uid on all nodes" % (
            users[0], result["uid"], first["uid"], first_node))
    return faults


def usecp_conflicts(usecp: "Sequence[str | dict]", directory: str) -> "list[str]":
    """Return the entries of $usecp by which pbs_mom would copy to a directory on the node itself, though it is the server's.

    :param usecp: torque_mom_usecp, texts "host:/from /to" or mappings with "from"
    :param directory: the directory
    """
    conflicts = []
    for entry in usecp:
        source = re.sub(r"^[^:]*:(\S+).*$", r"\1", entry) if isinstance(entry, str) else entry["from"]
        if (directory + "/").startswith(source):
            conflicts.append(entry if isinstance(entry, str) else source)
    return conflicts


class FilterModule:

    def filters(self) -> "dict[str, Callable]":
        return {"store_faults": store_faults, "usecp_conflicts": usecp_conflicts}
