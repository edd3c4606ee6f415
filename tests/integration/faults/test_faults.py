"""Whatever happens to the hooks, the store or an image: no job, no older image and no file elsewhere is lost.

Each case runs on a node, through the installed hooks with a store of their own, with real jobs and real CRIU (node/cases.py).
"make faults" tries each often, "make faults FAULTS=short" a few times.
"""
import io
import json
import os
import pathlib
import subprocess
import tarfile

import pytest
from conftest import FAULTS, TOP

HERE = pathlib.Path(__file__).resolve().parent
PLACE = "/opt/faults"
FULL = os.environ.get("CKPT_TORQUE_FAULTS") == "full"
COUNTED = ("cases", "jobs or images lost", "files outside the store touched")
PACKAGES = "python3-fusepy strace faketime btrfs-progs"
QUIET = ("/var/spool/torque/mom_logs/", "/usr/lib/ckpt-torque/torque_ckpt/__pycache__/")
"""Where others than the hooks write meanwhile."""


@pytest.fixture(scope="module")
def node(cluster):
    """A node with the suite's programs."""
    found = cluster.nodes["node1"]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(TOP / "plugins/module_utils", "ansible_collections/ckpt/torque/plugins/module_utils")
        for path in sorted((HERE / "node").glob("*.py")):
            tar.add(path, path.name)
    found.ask("rm -rf {0} && mkdir -p {0} && {{ dpkg -s {1} || {{ apt-get update && apt-get install -y --no-install-recommends {1}; }}; }} "
              "> /dev/null 2>&1".format(PLACE, PACKAGES))
    subprocess.run(found.command + ["tar -C %s -xf -" % PLACE], input=archive.getvalue(), check=True)
    yield found
    found.run("pkill -KILL -u alice; rm -rf %s /shared/faults /shared/faults-work /shared/faults-real" % PLACE)


def lost_nothing(node, case, **parameters):
    """Run a case; return what it found."""
    done = subprocess.run(node.command + ["python3 %s/cases.py %s '%s'" % (PLACE, case, json.dumps(parameters))], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=4 * 3600, check=False)
    assert done.returncode == 0, done.stderr or done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    strays = [path for path in found["outside"] if not path.startswith(QUIET)]
    for what, count in zip(COUNTED, (found["cases"], len(found["lost"]), len(strays))):
        FAULTS[what] = FAULTS.get(what, 0) + count
    print(case, found["cases"], found["seen"])
    assert found["lost"] == []
    assert strays == []
    assert found["cases"] > 0
    return found


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
    assert seen["refused before"] and seen["refused"] and seen["image"]


def test_store_that_hangs(node):
    assert max(lost_nothing(node, "hanging", seconds=5)["blocked_seconds"]) < 30


def test_node_that_loses_its_power(node):
    """What was not flushed is gone then (node/faultfs.py)."""
    seen = lost_nothing(node, "reset", count=200 if FULL else 18)["seen"]
    assert seen["image"] and seen["no image"]


def test_store_that_can_only_be_read(node):
    lost_nothing(node, "readonly")


def test_clock_that_jumps(node):
    count = 50 if FULL else 6
    assert lost_nothing(node, "clock", count=count)["jumps"] > 5 * count
