# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node's offline mark: whose it is, what may be done to it, and doing it with pbsnodes."""

import re
import signal
import time
from collections import namedtuple

from ..torque_ckpt.system.waiting import wait_until
from . import commands
from .qmgr import NAMES, jobs

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Those that end a module."""

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
    def offline(self) -> bool:
        return "offline" in self.states


def build_note(node: str, reason: str) -> str:
    """Return our note for a reason.

    :raises NodeError: when node or reason do not pass through pbsnodes
    """
    if not re.fullmatch(NAMES["node"][0], node):
        raise NodeError("'%s' cannot be the name of a node; use %s" % (node, NAMES["node"][1]))
    text = PREFIX + reason.strip()
    longest = LONGEST - len(PREFIX)
    if not reason.strip() or re.search(r"[\x00-\x1f\x7f]", text) or len(text.encode("utf-8")) > LONGEST:
        raise NodeError("the reason must be one line of 1 to %d bytes; nothing was changed" % longest)
    return text


def add_detail(mark: str, detail: str) -> str:
    """Return our note with what is to be known besides the reason, in one line and cut to what TORQUE takes."""
    text = " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", detail).split())
    note = mark + ": " + text if text else mark
    return note.encode("utf-8")[:LONGEST].decode("utf-8", "ignore")


def is_ours(note: str, mark: str) -> bool:
    """Return whether a note is ours, with or without a detail."""
    return note == mark or note.startswith(mark + ": ")


def parse_node(text: str) -> "Node | None":
    """Return the Node in the output of "pbsnodes NODE", None when there is none."""
    attributes = dict(re.findall(r"^     (\S+) = (.*)$", text, re.MULTILINE))
    if "state" not in attributes:
        return None
    return Node(attributes["state"].strip().split(","), attributes.get("note", "").strip(), jobs("node", attributes))


def parse_nodes(text: str) -> "dict[str, Node]":
    """Return each Node by its name in the output of "pbsnodes"; what has no state is none."""
    found = {}
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        node = parse_node(block)
        if node:
            found[block.split("\n", 1)[0].strip()] = node
    return found


def choose_act(name: str, node: Node, mark: str, drained: bool, detail: str = "") -> "tuple[str | None, str | None]":
    """Return (what is to be done: "mark", "clear" or None; who else holds the node, None if nobody does).

    :param name: the node's name
    :param mark: our note, without a detail
    :param drained: whether the node is to be drained or released
    :param detail: what the note is to have besides
    :raises NodeError: when draining would overwrite another's note
    """
    ours = is_ours(node.note, mark)
    if node.offline and not ours:
        return None, node.note or "an offline mark without a note"
    if not drained:
        return ("clear" if ours else None), None
    if node.note and not ours:
        raise NodeError("node %s carries the note '%s' of somebody else, which draining would overwrite; clear it with "
                        "pbsnodes -N n %s when it is done with; nothing was changed" % (name, node.note, name))
    is_marked = node.offline and (node.note == add_detail(mark, detail) or not detail)  # a detail stays until there is another one
    return (None if is_marked else "mark"), None


def predict_node(node: Node, act: "str | None", mark: str) -> Node:
    """Return the Node as it would be after an act ("mark", "clear" or None)."""
    others = [state for state in node.states if state not in ("offline", "free")]
    if act == "mark":
        return Node(["offline"] + others, mark, node.jobs)
    return Node(others or ["free"], "", node.jobs) if act == "clear" else node


def render(node: Node) -> str:
    """Return a Node as text, for diffs."""
    return "state = %s\nnote = %s\n" % (",".join(node.states), node.note)


def describe_node(name: str, node: Node, drained: bool, held_by: "str | None") -> str:
    """Return a sentence on the node's state."""
    if held_by:
        return "node %s is offline for somebody else: %s" % (name, held_by)
    left = "; still on it: %s" % ", ".join(node.jobs) if drained and node.jobs else ""
    return "node %s is %s%s" % (name, "drained" if drained else "released", left)


# -- with pbsnodes ---------------------------------------------------------

class Interrupted(NodeError):
    """A signal asked to end."""


def raise_interrupted(number: int, _frame: object) -> None:
    """Handle a signal."""
    raise Interrupted("interrupted by signal %d" % number)


class Pbsnodes:
    """One node, through pbsnodes.

    :param path: of pbsnodes
    :param name: of the node
    :param run: as commands.run
    """

    def __init__(self, path: str, name: str, run: "Callable[..., tuple[int, str, str]]" = commands.run) -> None:
        self.path = path
        self.name = name
        self.run = run

    def _run(self, arguments: "list[str]") -> "tuple[str, str]":
        """Return (stdout, stderr as one line). pbsnodes exits 0 also when it has failed."""
        try:
            _status, output, error = self.run([self.path] + arguments)
        except commands.CommandError as failure:
            raise NodeError(str(failure))
        return output, commands.join_complaint(error)

    def read(self) -> Node:
        """Return the Node."""
        output, error = self._run([self.name])
        if "Unknown node" in error or "no node list" in error:
            raise NodeError("the server knows no node %s; pbsnodes shows the names it knows" % self.name)
        node = parse_node(output)
        if node is None:
            raise NodeError(commands.describe_silence("pbsnodes", error or "it printed nothing"))
        return node

    def mark(self, note: str) -> Node:
        """Set the node offline with a note; return the Node after it."""
        return self._change("drain", ["-o", "-N", note], lambda node: node.offline and node.note == note)

    def clear(self) -> Node:
        """Remove the offline mark and the note; return the Node after it."""
        return self._change("release", ["-c", "-N", "n"], lambda node: not node.offline and not node.note)

    def _change(self, verb: str, options: "list[str]", done: "Callable[[Node], bool]") -> Node:
        error = self._run(options + [self.name])[1]
        node = self.read()
        if not done(node):
            raise NodeError("pbsnodes did not %s node %s: %s; only root on the server's host and the server's managers and "
                            "operators may do this" % (verb, self.name, error or "it gave no reason"))
        return node


def await_idle_node(pbsnodes: Pbsnodes, node: Node, timeout: int, poll: int, clock: "Callable[[], float]",
                    sleep: "Callable[[float], None]") -> Node:
    """Return the Node once it has no jobs; a server that does not answer meanwhile is asked again.

    :raises NodeError: when the time is over
    """
    seen: "list[Node]" = []
    trouble = [""]

    def is_idle() -> bool:
        if not seen:
            seen[:] = [node]  # it was read just now
            return not node.jobs
        try:
            seen[:], trouble[:] = [pbsnodes.read()], [""]
        except Interrupted:
            raise
        except NodeError as error:
            trouble[:] = [" (%s)" % error]
        return not seen[0].jobs

    if not wait_until(is_idle, timeout, poll, clock, sleep):
        raise NodeError("node %s still has jobs after %d seconds: %s%s; end or hold them, or wait longer"
                        % (pbsnodes.name, timeout, ", ".join(seen[0].jobs), trouble[0]))
    return seen[0]


def clear_own_mark(pbsnodes: Pbsnodes, mark: str) -> str:
    """Clear our mark, if it is there; return a sentence on it."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    try:
        if not is_ours(pbsnodes.read().note, mark):
            return "no mark of ours is on it"
        pbsnodes.clear()
    except NodeError as error:
        return "our mark may still be on it (%s): release it" % error
    return "our mark was taken back"


def set_state(pbsnodes: Pbsnodes, mark: str, params: dict, check: bool, clock: "Callable[[], float]" = time.monotonic,
              sleep: "Callable[[float], None]" = time.sleep) -> dict:
    """Drain or release the node; return the module's answer.

    :raises NodeError: when it cannot be done
    """
    drained = params["state"] == "drained"
    before = node = pbsnodes.read()
    detail = params.get("detail") or ""
    act, held_by = choose_act(pbsnodes.name, before, mark, drained, detail)
    try:
        if check:
            node = predict_node(before, act, add_detail(mark, detail))
        elif act:
            node = pbsnodes.mark(add_detail(mark, detail)) if act == "mark" else pbsnodes.clear()
        if drained and params["wait"] and not check:
            node = await_idle_node(pbsnodes, node, params["timeout"], params["poll"], clock, sleep)
    except NodeError as error:
        if act != "mark":
            raise
        raise NodeError("%s; %s" % (error, clear_own_mark(pbsnodes, mark)))
    return dict(node._asdict(), changed=act is not None, held_by=held_by,
                msg=describe_node(pbsnodes.name, node, drained, held_by),
                diff={"before_header": pbsnodes.name, "after_header": pbsnodes.name,
                      "before": render(before), "after": render(node)})
