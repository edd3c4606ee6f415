"""Keys that seal images are rotated while jobs run and are held."""
import json
import shutil

import pytest
import vault
from cluster import CONFIG, EXAMPLES
from jobs import BIN, Jobs

NEW = {"id": "2026", "secret": "18" * 32}


class Keys:
    """The keys of all hosts that prove images; what they were is there again on leaving the block."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.nodes = [cluster.nodes["node1"], cluster.nodes["node2"]]

    def read(self, node):
        return json.loads(node.ask("cat " + self.path))["keys"]

    def write(self, keys, nodes=None):
        """As root of each node, or of some."""
        for node in nodes or self.nodes:
            node.ask("cat > %s <<'E'\n%s\nE" % (self.path, json.dumps({"keys": keys})))

    def roll_out(self, keys):
        """As an administrator does it."""
        done = self.cluster.playbook("site", checkpoint_hooks_keys=keys)
        assert done.code == 0, done.out
        assert [self.read(node) for node in self.nodes] == [keys, keys]

    def __enter__(self):
        self.path = json.loads(self.nodes[0].ask("cat " + CONFIG))["key_path"]
        self.before = self.read(self.nodes[0])
        return self

    def __exit__(self, *error):
        self.write(self.before)


@pytest.fixture
def keys(cluster):
    with Keys(cluster) as keys:
        yield keys


def test_job_outlives_the_key_that_its_first_image_was_sealed_with(job, keys, node1, node2):
    """It is checkpointed, held and restarted after the key is gone from all nodes."""
    running = job(node1)
    assert running.checkpoint(0).code == 0
    keys.write([NEW] + keys.before)
    assert running.checkpoint(0).code == 0
    keys.write([NEW])
    done = running.checkpoint(0)
    assert (done.code, done.err) == (0, "")
    running.hold()
    running.move(node2)
    running.progress()


def test_rotation_while_jobs_run_and_are_held(cluster, torque, keys):
    """The procedure in security.md."""
    with Jobs(cluster) as qsub:
        running, held = qsub.counts(), qsub.counts()
        first = running.checkpoint()
        held.hold()
        restarted = qsub.counts()
        restarted.hold()
        restarted.release("node2")
        keys.roll_out(keys.before + [NEW])
        keys.roll_out([NEW] + keys.before)
        restarted.hold()
        held.release("node2")  # its image has the old key
        held.progress("node2")
        held.hold()
        running.user("%s/qchkpt %s" % (BIN, running.id))
        running.until(lambda facts: facts["checkpoint_name"] != first, "got no second image")
        keys.roll_out([NEW])
        running.hold()
        for job in (running, held, restarted):
            job.release("node2")
            job.finish()


def test_image_whose_key_the_node_lacks_waits_for_it(cluster, torque, keys, node1, node2):
    with Jobs(cluster) as qsub:
        job = qsub.counts()
        keys.write([NEW] + keys.before, [node1])
        job.hold()
        job.send("node2")
        job.comment("was sealed with the key '2026', which this node does not have")
        job.wait("Q")
        keys.write([NEW] + keys.before, [node2])
        job.root("qmgr -c 'set server scheduling = true'")
        job.wait("R")
        job.finish()


def test_key_in_a_vault(cluster, job, keys, node1, node2, tmp_path, monkeypatch):
    """The example vault, on nodes that have no key yet: site.yml decrypts the secret, the nodes get it, and it appears in no output."""
    site = tmp_path / "site"
    shutil.copytree(EXAMPLES / "vault", site)
    password, secret = vault.create_key(site, tmp_path / "password")
    for name, value in password.items():
        monkeypatch.setenv(name, value)
    for node in keys.nodes:
        node.ask("rm " + keys.path)
    hosts = cluster.write_inventory(tmp_path / "hosts.json", without=["checkpoint_hooks_keys"], checkpoint_store_id="default")
    done = cluster.playbook("site", "--tags", "hooks", "--diff", "-vvv", inventory=[str(site / "inventory.yml"), hosts])
    assert done.code == 0, done.out
    assert [keys.read(node) for node in keys.nodes] == [[{"id": "2026", "secret": secret}]] * 2
    assert secret not in done.out
    running = job(node1)
    running.hold()
    running.move(node2)
