"""Whatever happens to the hooks, the store or an image: no job, no older image and no file elsewhere is lost.

Each case runs on a node, through the installed hooks with a store of their own, with real jobs and real CRIU (node/cases.py, ../harm.py).
"make faults" tries each often, "make faults FAULTS=short" a few times.
"""
import os

import harm
import pytest
from harm import lost_nothing

FULL = os.environ.get("CKPT_TORQUE_FAULTS") == "full"


@pytest.fixture(scope="module")
def node(cluster):
    """A node with the suite's programs."""
    host = cluster.nodes["node1"]
    with harm.installed(host, "python3-fusepy strace faketime btrfs-progs e2fsprogs"):
        yield host


def test_killed_at_any_instant(node):
    """kill -9 of the hook, its user's part, the engine, or all of them."""
    count = 200 if FULL else 24
    assert lost_nothing(node, "kill", count=count)["seen"]["killed"] > count / 5  # others come too late


def test_images_that_are_not_what_they_were(node):
    lost_nothing(node, "images", kinds=None if FULL else ["a bit flipped"])


def test_an_owner_who_races(node):
    lost_nothing(node, "races", count=40 if FULL else 4)


def test_jobs_that_make_it_hard(node):
    lost_nothing(node, "hard")


def test_many_jobs_at_once(node):
    count = 50 if FULL else 8
    assert lost_nothing(node, "many", count=count)["cases"] == count


def test_two_hooks_at_once(node):
    lost_nothing(node, "twice", count=24 if FULL else 4)


@pytest.mark.parametrize("error, reading", [("ENOSPC", False), ("EDQUOT", False), ("EIO", True)])
def test_store_that_fails_at_every_operation(node, error, reading):
    assert lost_nothing(node, "failing", error=error, reading=reading, step=1 if FULL else 19)["operations"] > 20


def test_quota_that_ends(node):
    if node.run("grep -q btrfs /proc/filesystems || modprobe btrfs").code != 0:
        pytest.skip("the nodes' kernel has no btrfs")
    seen = lost_nothing(node, "quota", count=200 if FULL else 20)["seen"]
    assert seen["refused before"] and seen["refused"]


def test_store_that_is_filled(node):
    seen = lost_nothing(node, "full", count=200 if FULL else 20)["seen"]
    assert seen["refused before"] and seen["refused"]


def test_store_that_hangs(node):
    assert lost_nothing(node, "hanging", seconds=5)["seen"]["refused"]  # it hung while the engine was at work


def test_node_that_loses_its_power(node):
    """What was not flushed is gone then (node/faultfs.py)."""
    seen = lost_nothing(node, "reset", count=200 if FULL else 18)["seen"]
    assert seen["image"] and seen["no image"]


def test_store_that_can_only_be_read(node):
    lost_nothing(node, "readonly")


def test_clock_that_jumps(node):
    count = 50 if FULL else 6
    assert lost_nothing(node, "clock", count=count)["jumps"] > 5 * count
