# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What keeps an image of BLCR on some of the nodes."""
from __future__ import annotations


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
        return {"blcr_differences": blcr_differences}
