# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What BLCR lacks on a node, and what keeps an image of it on some of the nodes."""
from __future__ import annotations

from ansible.module_utils.compat.version import LooseVersion


def blcr_plan(node: dict, artifact: dict) -> dict[str, list[str]]:
    """Return what plan.yml reports of BLCR on a node: faults and warnings, as sentences.

    :param node: what blcr_info reports of it
    :param artifact: what torque_artifact_info reports of the BLCR that is wanted there
    """
    faults = []
    if node["cannot_load"]:
        faults = [node["cannot_load"]]
    elif not node["findable"]:
        faults = ["kernel %s has no modules of BLCR" % node["kernel"]]
    elif not artifact["installed"]:
        faults = ["BLCR %s is not installed" % artifact["key"]]
    elif artifact["current"] != artifact["key"]:
        faults = ["BLCR %s is not the one in use" % artifact["key"]]
    elif node["outdated"]:
        faults = ["the loaded modules of BLCR differ from the installed ones"]
    newer = [kernel for kernel in node["kernels_without"] if LooseVersion(kernel) > LooseVersion(node["kernel"])]
    later = "cannot after the next boot with kernel %s, which has no modules of BLCR" % " or ".join(newer)
    return {"faults": faults, "warnings": [later] if newer else []}


def blcr_differences(node: dict, peers: dict[str, dict], undo_prelink: bool, name: str) -> list[str]:
    """Return in what the nodes with the same build of the kernel differ, as sentences.

    :param node: what blcr_info reports of this node
    :param peers: the same of all nodes with its build of the kernel, by name
    :param undo_prelink: blcr_undo_prelink_enabled
    :param name: name of this node
    """
    sentences = []
    for fact in sorted(node["common"]):
        names: dict[str, list[str]] = {}
        for peer, report in peers.items():
            names.setdefault(report["common"][fact], []).append(peer)
        if len(names) > 1:
            sentences.append("%s is not the same on all nodes with kernel %s (%s), and an image restarts only where it is" % (
                fact, node["kernel"], "; ".join("%s %s" % (", ".join(names[value]), value) for value in sorted(names))))
    if node["prelinks"] and not undo_prelink:
        sentences.append("prelink changes the programs of %s, and an image restarts only where they are the same; set "
                         "blcr_undo_prelink_enabled" % name)
    return sentences


class FilterModule:

    def filters(self) -> dict:
        return {"blcr_plan": blcr_plan, "blcr_differences": blcr_differences}
