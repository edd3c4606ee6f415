"""pbs_node: whose an offline mark is, and what may be done to it."""

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque import nodes
from ansible_collections.ckpt.torque.plugins.module_utils.torque.nodes import Node
from recorded import VERSIONS, calls

MARK = "ckpt-torque: maintenance"
THEIRS = "disk broken, see #12"
REASON = "the reason must be one line of 1 to 243 bytes; nothing was changed"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name, states, note, jobs", [
    ("free", ["free"], "", 0), ("busy", ["job-exclusive"], "", 2), ("ours-busy", ["offline", "job-exclusive"], MARK, 2),
    ("ours-free", ["offline"], MARK, 0), ("theirs", ["offline"], THEIRS, 0), ("no-note", ["offline"], "", 0),
    ("cleared", ["job-exclusive"], "", 2),
])
def test_parse(version, name, states, note, jobs):
    node = nodes.parse_node(calls(version)["pbsnodes-" + name].output)
    assert (node.states, node.note, len(node.jobs)) == (states, note, jobs)
    assert node.offline is ("offline" in states)
    assert all(job.endswith(".head") for job in node.jobs)


def test_parse_all_nodes():
    text = "\nn1\n     state = down\n     note = a\n     status = x=1\n\nn2\n     state = free\n\nno answer\n \nn3\n     state = free\n\n"
    assert {name: (node.states, node.note) for name, node in nodes.parse_nodes(text).items()} == {
        "n1": (["down"], "a"), "n2": (["free"], ""), "n3": (["free"], "")}
    assert nodes.parse_nodes("") == {}


@pytest.mark.parametrize("text", ["", "node1\n", "Error\n     np = 2\n"])
def test_parse_nothing(text):
    assert nodes.parse_node(text) is None


def test_status_is_not_the_state():
    node = nodes.parse_node("n1\n     state = down,offline \n     status = jobs=5.head,state=free\n     note = a = b \n")
    assert node == Node(["down", "offline"], "a = b", [])


@pytest.mark.parametrize("reason, note", [
    ("kernel update", "ckpt-torque: kernel update"), ("  kernel update ", "ckpt-torque: kernel update"),
    ("x" * 243, "ckpt-torque: " + "x" * 243)])
def test_note(reason, note):
    assert nodes.build_note("node1", reason) == note


@pytest.mark.parametrize("node, reason, sentence", [
    ("node1", "", REASON), ("node1", " ", REASON), ("node1", "a\nb", REASON), ("node1", "a\tb", REASON),
    ("node1", "x" * 244, REASON), ("node1", "\u00e9" * 122, REASON),
    ("-a", "x", "'-a' cannot be the name of a node; use letters, digits, '.', '_' and '-'"),
    ("node1\n", "x", "'node1\n' cannot be the name of a node; use letters, digits, '.', '_' and '-'"),
    ("node1 node2", "x", "'node1 node2' cannot be the name of a node; use letters, digits, '.', '_' and '-'"),
])
def test_note_that_is_refused(node, reason, sentence):
    with pytest.raises(nodes.NodeError) as caught:
        nodes.build_note(node, reason)
    assert str(caught.value) == sentence


FREE, OURS = Node(["free"], "", []), Node(["offline"], MARK, [])
THEIR, BARE = Node(["offline"], THEIRS, []), Node(["offline"], "", [])


@pytest.mark.parametrize("node, drained, decision", [
    (FREE, True, ("mark", None)), (FREE, False, (None, None)),
    (OURS, True, (None, None)), (Node(["offline"], MARK + ": it failed", []), True, (None, None)), (OURS, False, ("clear", None)),
    (THEIR, True, (None, THEIRS)), (THEIR, False, (None, THEIRS)),
    (BARE, True, (None, "an offline mark without a note")), (BARE, False, (None, "an offline mark without a note")),
    (Node(["offline"], "ckpt-torque: other", []), False, (None, "ckpt-torque: other")),
    (Node(["offline"], MARK + " and more", []), False, (None, MARK + " and more")),
    (Node(["free"], MARK, []), True, ("mark", None)), (Node(["free"], MARK, []), False, ("clear", None)),
    (Node(["free"], THEIRS, []), False, (None, None)),
])
def test_decide(node, drained, decision):
    assert nodes.choose_act("node1", node, MARK, drained) == decision


def test_another_note_is_not_overwritten():
    with pytest.raises(nodes.NodeError) as caught:
        nodes.choose_act("node1", Node(["free"], THEIRS, []), MARK, True)
    assert str(caught.value) == (
        "node node1 carries the note 'disk broken, see #12' of somebody else, which draining would overwrite; "
        "clear it with pbsnodes -N n node1 when it is done with; nothing was changed")


@pytest.mark.parametrize("node, act, after", [
    (FREE, "mark", OURS), (OURS, "clear", FREE), (THEIR, None, THEIR),
    (Node(["job-exclusive"], "", ["1.h"]), "mark", Node(["offline", "job-exclusive"], MARK, ["1.h"])),
    (Node(["offline", "job-exclusive"], MARK, ["1.h"]), "clear", Node(["job-exclusive"], "", ["1.h"])),
])
def test_after(node, act, after):
    assert nodes.predict_node(node, act, MARK) == after


def test_render():
    assert nodes.render(Node(["offline", "down"], MARK, ["1.h"])) == "state = offline,down\nnote = ckpt-torque: maintenance\n"


@pytest.mark.parametrize("node, drained, held_by, sentence", [
    (FREE, False, None, "node n1 is released"), (OURS, True, None, "node n1 is drained"),
    (Node(["offline"], MARK, ["1.h", "2.h"]), True, None, "node n1 is drained; still on it: 1.h, 2.h"),
    (Node(["free"], "", ["1.h"]), False, None, "node n1 is released"),
    (THEIR, False, THEIRS, "node n1 is offline for somebody else: disk broken, see #12"),
])
def test_sentence(node, drained, held_by, sentence):
    assert nodes.describe_node("n1", node, drained, held_by) == sentence
