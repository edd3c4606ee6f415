# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node's offline mark: whose it is, and what may be done to it. Pure functions."""

import re
from collections import namedtuple

from .qmgr import NAMES, jobs

PREFIX = "ckpt-torque: "
LONGEST = 256
"""Longest note that TORQUE 2.x takes, in bytes."""


class NodeError(Exception):
    """Something cannot be done; the text says what, why and what to do."""


class Node(namedtuple("Node", "states note jobs")):
    """A node as the server shows it.

    states  list of str, such as ["offline", "job-exclusive"]
    note    str, empty when there is none
    jobs    ids of the jobs on it (sorted list of str)
    """

    @property
    def offline(self):
        return "offline" in self.states


def note(node, reason):
    """Return our note (str) for a reason (str).

    :raises NodeError: when node or reason do not pass through pbsnodes
    """
    if not re.fullmatch(NAMES["node"][0], node):
        raise NodeError("'%s' cannot be the name of a node; use %s" % (node, NAMES["node"][1]))
    text = PREFIX + reason.strip()
    room = LONGEST - len(PREFIX)
    if not reason.strip() or re.search(r"[\x00-\x1f\x7f]", text) or len(text.encode("utf-8")) > LONGEST:
        raise NodeError("the reason must be one line of 1 to %d bytes; nothing was changed" % room)
    return text


def parse(text):
    """Return the Node in the output (str) of "pbsnodes NODE", None when there is none."""
    found = dict(re.findall(r"^     (\S+) = (.*)$", text, re.MULTILINE))
    if "state" not in found:
        return None
    return Node(found["state"].strip().split(","), found.get("note", "").strip(), jobs("node", found))


def decide(name, node, mark, drained):
    """Return (what is to be done: "mark", "clear" or None; who else holds the node: str or None).

    :param name: the node's name (str)
    :param node: Node
    :param mark: our note (str)
    :param drained: whether the node is to be drained (bool) or released
    :raises NodeError: when draining would overwrite another's note
    """
    ours = node.note == mark
    if node.offline and not ours:
        return None, node.note or "an offline mark without a note"
    if not drained:
        return ("clear" if ours else None), None
    if node.note and not ours:
        raise NodeError("node %s carries the note '%s' of somebody else, which draining would overwrite; clear it with "
                        "pbsnodes -N n %s when it is done with; nothing was changed" % (name, node.note, name))
    return (None if node.offline else "mark"), None


def after(node, act, mark):
    """Return the Node as it would be after an act ("mark", "clear" or None)."""
    others = [state for state in node.states if state not in ("offline", "free")]
    if act == "mark":
        return Node(["offline"] + others, mark, node.jobs)
    return Node(others or ["free"], "", node.jobs) if act == "clear" else node


def render(node):
    """Return a Node as text (str), for diffs."""
    return "state = %s\nnote = %s\n" % (",".join(node.states), node.note)


def sentence(name, node, drained, held_by):
    """Return what is the case now (str)."""
    if held_by:
        return "node %s is offline for somebody else: %s" % (name, held_by)
    left = "; still on it: %s" % ", ".join(node.jobs) if drained and node.jobs else ""
    return "node %s is %s%s" % (name, "drained" if drained else "released", left)
