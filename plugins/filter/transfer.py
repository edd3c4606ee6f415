# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the server knows of the nodes that copy images to it."""
from __future__ import annotations


def transfer_host_keys(identities: dict[str, list[str]]) -> dict[str, str]:
    """Return, by node, the lines of known_hosts (sshd(8)) with its names and keys.

    :param identities: what each node reports, as lines: "names NAME,...", and "key TYPE KEY [comment]" for each key
    """
    texts = {}
    for node, lines in identities.items():
        names = next(line[len("names "):] for line in lines if line.startswith("names "))
        keys = [" ".join(line.split(" ")[1:3]) for line in lines if line.startswith("key ")]
        texts[node] = "\n".join("%s %s" % (names, key) for key in keys) + "\n"
    return texts


class FilterModule:

    def filters(self) -> dict:
        return {"transfer_host_keys": transfer_host_keys}
