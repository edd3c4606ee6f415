"""The hooks of an earlier release are replaced while jobs run and are held: older images restart with newer hooks, and newer with older."""
import shutil
import subprocess

import pytest
from cluster import HOOKS, TOP
from jobs import Jobs, await_nodes

pytestmark = pytest.mark.usefixtures("torque")

RELEASE = "77546046"
"""The commit of 0.3.0."""


@pytest.fixture
def earlier(cluster, tmp_path):
    """Return a function that sets up the hooks by the earlier release's site.yml."""
    found = subprocess.run(["git", "archive", "--output=%s/earlier.tar" % tmp_path, RELEASE], cwd=TOP, stderr=subprocess.PIPE, check=False)
    if found.returncode:
        pytest.skip("the history of this checkout does not go back to release 0.3.0")
    collections = tmp_path / "ansible_collections"
    (collections / "ckpt/torque").mkdir(parents=True)
    subprocess.run(["tar", "-xf", str(tmp_path / "earlier.tar"), "-C", str(collections / "ckpt/torque")], check=True)
    shutil.copytree(str(TOP / ".cache/collections/ansible_collections/ansible"), str(collections / "ansible"))

    def install():
        # The variable wins over what ansible.cfg says.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ANSIBLE_COLLECTIONS_PATH", str(tmp_path))
            done = cluster.playbook("site", "--tags", "hooks")
        assert done.code == 0, done.out
    yield install
    done = cluster.playbook("site")
    assert done.code == 0, done.out


def digest(node):
    return node.ask("cd %s && find . -name '*.py' | sort | xargs sha256sum | sha256sum" % HOOKS)


def test_jobs_outlive_an_upgrade_and_a_rollback(cluster, earlier, node1, node2):
    newer = digest(node1)
    earlier()
    older = digest(node1)
    assert older != newer
    with Jobs(cluster) as qsub:
        held, running = qsub.counts(), qsub.counts()
        held.hold()
        first = running.checkpoint()
        done = cluster.playbook("update", update_jobs="leave")
        assert done.code == 0, done.out
        await_nodes(cluster.nodes["head"])
        assert [digest(node1), digest(node2)] == [newer, newer]
        held.release("node2")
        held.progress("node2")
        running.hold()
        assert running.facts()["checkpoint_name"] != first
        held.hold()
        done = cluster.playbook("rollback", rollback_nodes="node1", update_jobs="leave")
        assert done.code == 0, done.out
        await_nodes(cluster.nodes["head"])
        assert [digest(node1), digest(node2)] == [older, newer]
        for job in (held, running):
            job.release("node1")
            job.progress("node1")
            job.hold()
            job.release("node2")
            job.finish()
