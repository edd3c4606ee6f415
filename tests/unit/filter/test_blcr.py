"""What BLCR lacks on a node, and in what nodes with the same kernel differ for it."""
import pytest
from ansible_collections.ckpt.torque.plugins.filter import blcr

LIBC = ("libc is not the same on all nodes with kernel 3.10.0 (node1, node3 2.17; node2 2.19), and an image restarts only where it is")
LOCALE = ("locale is not the same on all nodes with kernel 3.10.0 (node3 C; node1, node2 de_DE), and an image restarts only where it is")
PRELINK = ("prelink changes the programs of node1, and an image restarts only where they are the same; set blcr_undo_prelink_enabled")


def report(libc, locale, prelinks=False):
    return {"kernel": "3.10.0", "common": {"locale": locale, "libc": libc}, "prelinks": prelinks}


@pytest.mark.parametrize("libc, locale, prelinks, undo_prelink, sentences", [
    (("2.17", "2.17", "2.17"), ("C", "C", "C"), False, False, []),
    (("2.17", "2.19", "2.17"), ("C", "C", "C"), False, False, [LIBC]),
    (("2.17", "2.19", "2.17"), ("de_DE", "de_DE", "C"), True, False, [LIBC, LOCALE, PRELINK]),
    (("2.17", "2.17", "2.17"), ("C", "C", "C"), True, True, []),
])
def test_differences(libc, locale, prelinks, undo_prelink, sentences):
    peers = {"node%d" % number: report(*values) for number, values in enumerate(zip(libc, locale), 1)}
    assert blcr.blcr_differences(dict(peers["node1"], prelinks=prelinks), peers, undo_prelink, "node1") == sentences


MODULES = {"kernel": "3.10.0-957", "findable": True, "outdated": False, "kernels_without": [], "cannot_load": ""}
WANTED = {"installed": True, "key": "0.8.6_b4-rhel7-x86_64-x", "current": "0.8.6_b4-rhel7-x86_64-x"}


@pytest.mark.parametrize("changed, faults, warnings", [
    ({}, [], []),
    ({"findable": False}, ["kernel 3.10.0-957 has no modules of BLCR"], []),
    ({"outdated": True}, ["the loaded modules of BLCR differ from the installed ones"], []),
    ({"outdated": True, "findable": False, "cannot_load": "signed modules only"}, ["signed modules only"], []),
    # Compared as versions are: 3.10.0-1160 is newer than 3.10.0-957.
    ({"kernels_without": ["3.10.0-1160", "3.10.0-123", "3.10.0-957", "3.16"]}, [],
     ["cannot after the next boot with kernel 3.10.0-1160 or 3.16, which has no modules of BLCR"]),
])
def test_plan(changed, faults, warnings):
    assert blcr.blcr_plan(dict(MODULES, **changed), WANTED) == {"faults": faults, "warnings": warnings}


@pytest.mark.parametrize("changed, artifact, faults", [
    ({}, {"installed": False}, ["BLCR 0.8.6_b4-rhel7-x86_64-x is not installed"]),
    ({}, {"installed": False, "current": "0.8.5-rhel7-x86_64-x"}, ["BLCR 0.8.6_b4-rhel7-x86_64-x is not installed"]),
    ({}, {"current": "0.8.5-rhel7-x86_64-x"}, ["BLCR 0.8.6_b4-rhel7-x86_64-x is not the one in use"]),
    # One is enough: the role does the rest, too.
    ({"outdated": True}, {"current": ""}, ["BLCR 0.8.6_b4-rhel7-x86_64-x is not the one in use"]),
    ({"findable": False}, {"installed": False, "current": ""}, ["kernel 3.10.0-957 has no modules of BLCR"]),
    ({"cannot_load": "signed modules only"}, {"installed": False}, ["signed modules only"]),
])
def test_plan_of_a_node_with_another_blcr(changed, artifact, faults):
    assert blcr.blcr_plan(dict(MODULES, **changed), dict(WANTED, **artifact)) == {"faults": faults, "warnings": []}
