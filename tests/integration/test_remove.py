"""remove.yml takes checkpoints away, not before images and jobs are accounted for; site.yml brings them back."""
import re

import pytest
from cluster import CONFIG, HOOKS, STORE
from jobs import BIN, Jobs
from refusals import refusal

NODES = ("node1", "node2")
LEFT = ("ls -d /etc/ckpt-torque /usr/lib/ckpt-torque* /opt/criu /run/ckpt-torque /var/lib/ckpt-torque /usr/local/bin/torque-ckpt "
        "/usr/local/bin/ckpt-run /etc/systemd/system/ckpt-torque* /etc/exports.d/ckpt-torque.exports 2> /dev/null; true")


@pytest.fixture
def qsub(cluster, torque):
    with Jobs(cluster) as jobs:
        yield jobs


def test_image_is_not_left_behind(qsub, cluster):
    job = qsub.counts()
    job.hold()
    before = cluster.nodes["node1"].ask("find %s /etc/ckpt-torque %s -printf '%%p %%T@\n' | sort" % (HOOKS, CONFIG))
    refusal(cluster.playbook("remove"),
            "head: the stores have 1 image, of %s; let these jobs end, and remove images without a job (torque-ckpt prune "
            "--orphans), or set remove_images to keep, with which they stay and can be restarted after ckpt.torque.site; nothing was "
            "changed." % job.id)
    assert cluster.nodes["node1"].ask("find %s /etc/ckpt-torque %s -printf '%%p %%T@\n' | sort" % (HOOKS, CONFIG)) == before
    # As if it had been held while the compute nodes were done: only the server's part of the playbook runs.
    refusal(cluster.playbook("remove", "--start-at-task", "List the images in the stores"),
            "head: the stores have 1 image, of %s; apply ckpt.torque.site, let these jobs end, and remove images without a job "
            "(torque-ckpt prune --orphans), or set remove_images to keep, with which they stay and can be restarted after "
            "ckpt.torque.site; the server and the login nodes keep their hooks." % job.id)
    job.release("node1")
    job.finish()


def test_node_with_a_job_keeps_its_hooks(qsub, cluster):
    """So do the server and the login nodes. The other node is done, and does not checkpoint any more."""
    job = qsub.counts()
    done = cluster.playbook("remove")
    assert done.code != 0
    assert re.search(r"node1: the hooks cannot be removed, jobs that they started run here \(processes [0-9 ]+\); let them end "
                     r"and run this again, or apply ckpt.torque.site, with which all nodes have the hooks again; the hooks stay as they "
                     r"are.",
                     done.out), done.out
    assert "the hooks are still on node1, so the server and the login nodes keep theirs; run this again." in done.out
    assert cluster.nodes["node2"].ask(LEFT) == ""
    assert cluster.nodes["head"].run("torque-ckpt list").code == 0
    job.checkpoint()
    job.finish()


def test_what_is_removed(cluster):
    foreign = "/var/lib/ckpt-torque/site.json"
    cluster.nodes["node1"].ask("touch " + foreign)
    done = cluster.playbook("remove")
    assert done.code == 0, done.out
    assert cluster.nodes["node1"].ask("find /var/lib/ckpt-torque -mindepth 1") == foreign
    cluster.nodes["node1"].ask("rm %s && rmdir /var/lib/ckpt-torque" % foreign)
    for node in cluster.nodes.values():
        assert node.ask(LEFT) == ""
    assert cluster.nodes["head"].run("ls -A %s" % STORE).code != 0  # it was empty
    if cluster.torque:
        for name in NODES:
            lines = cluster.nodes[name].ask("grep -v '^#' /var/spool/torque/mom_priv/config").split("\n")
            assert lines == ["$pbsserver head", "$loglevel 3"]
        assert "checkpoint" not in cluster.nodes["head"].ask("%s/qmgr -c 'print queue batch'" % BIN)
    done = cluster.playbook("remove")
    assert done.code == 0, done.out
    assert [done.changed(name) for name in cluster.nodes] == [0, 0, 0]


def test_jobs_run_without_checkpoints(qsub):
    """Its submission says nothing of checkpoints, as the queue does not."""
    job = qsub("cd $PBS_O_WORKDIR\ntouch up\nexit 3")
    job.reach("up")
    assert job.wait("C")["exit_status"] == "3"


def test_set_up_again(cluster):
    done = cluster.playbook("site")
    assert done.code == 0, done.out
    done = cluster.playbook("site")
    assert [done.changed(name) for name in cluster.nodes] == [0, 0, 0]


def test_jobs_move_again(qsub):
    job = qsub.counts()
    job.hold()
    job.release("node2")
    job.finish()


def test_images_that_are_kept(qsub, cluster):
    """The held job continues when the hooks are back. Until then an operator's hold keeps its owner from releasing it."""
    job = qsub.counts()
    job.hold()
    job.root("qhold -h o %s" % job.id)
    done = cluster.playbook("remove", remove_images="keep")
    assert done.code == 0, done.out
    for node in cluster.nodes.values():
        assert node.ask(LEFT) == ""
    job.user("%s/qrls %s" % (BIN, job.id))
    facts = job.facts()
    assert (facts["job_state"], facts["Hold_Types"]) == ("H", "o")
    done = cluster.playbook("site")
    assert done.code == 0, done.out
    job.root("qalter -l nodes=node2 %s" % job.id)
    job.root("qrls -h o %s" % job.id)
    job.wait("R")
    job.finish()
