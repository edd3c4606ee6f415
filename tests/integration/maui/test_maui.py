"""Maui itself preempts by checkpoint, set up by the role maui. Needs the sources of Maui (MAUI_SOURCE) and of TORQUE."""
import os
import re

import pytest
from cluster import STORE, TOP
from jobs import BIN, COUNTS, LARGE, Jobs, await_nodes
from refusals import refusal

QUEUE = {"queue_type": "Execution", "checkpoint_dir": STORE, "enabled": True, "started": True}
SETTINGS = {
    "torque_server_scheduler": "maui", "maui_prefix": "/opt/maui", "maui_home": "/opt/maui/spool", "maui_poll_interval": 5,
    "torque_server_queues": {
        "batch": QUEUE, "preemptable": dict(QUEUE, checkpoint_defaults="enabled,periodic,interval=60"), "urgent": QUEUE},
    "torque_server_attributes": {"auto_node_np": False}, "torque_server_node_attributes": {"node1": {"np": 1}, "node2": {"np": 1}}}
STOCK = {"maui_prefix": "/opt/maui-stock", "maui_home": "/opt/maui-stock/spool"}


def set_up(cluster, **settings):
    done = cluster.playbook("site", "--limit", "head", **dict(SETTINGS, **settings))
    assert done.code == 0, done.out
    await_nodes(cluster.nodes["head"])
    return done


@pytest.fixture(scope="session")
def maui(cluster):
    """The head, with Maui in both forms; afterwards with pbs_sched."""
    assert cluster.torque, "there is no TORQUE source; name a tarball in TORQUE_SOURCE"
    head = cluster.nodes["head"]
    for path, name in ((os.environ["MAUI_SOURCE"], "maui.tar"), (TOP / "roles/maui/files/preempted-reservation.patch", "maui.patch"),
                       (TOP / "tests/integration/maui/build.sh", "build.sh")):
        cluster.module("head", "copy", "ansible.builtin", src=str(path), dest="/tmp/" + name)
    head.ask("sh /tmp/build.sh /tmp/maui.tar /tmp/maui.patch stock")
    yield head
    done = cluster.playbook("site", "--limit", "head", torque_server_node_attributes={"node1": {"np": 2}, "node2": {"np": 2}})
    assert done.code == 0, done.out
    assert head.run("systemctl is-active maui pbs_sched").out.split() == ["inactive", "active"]


@pytest.fixture
def qsub(cluster, maui):
    with Jobs(cluster) as jobs:
        yield jobs


def fill(qsub, script=COUNTS):
    """A preemptable job on each node."""
    jobs = [qsub(script, "-q", "preemptable", "-l", "nodes=1") for _node in range(2)]
    for job in jobs:
        job.reach("up")
    return jobs


def starts(jobs):
    return [int(job.facts()["start_count"]) for job in jobs]


def test_stock_maui_is_refused(cluster, maui):
    before = maui.ask("systemctl show pbs_sched maui -p ActiveState; ls /etc/systemd/system /opt/maui-stock/spool")
    refusal(cluster.role("head", "maui", **STOCK),
            "head: this Maui gives a job that it has preempted by checkpoint its node back at once, so that no urgent job starts; apply "
            "%s/files/preempted-reservation.patch to its source and build it again, or set maui_preempt_policy to REQUEUE or NONE; the "
            "scheduler was not changed." % (TOP / ".cache/collections/ansible_collections/ckpt/torque/roles/maui"))
    assert maui.ask("systemctl show pbs_sched maui -p ActiveState; ls /etc/systemd/system /opt/maui-stock/spool") == before


def test_second_run_changes_nothing(cluster, maui):
    set_up(cluster)
    assert maui.run("systemctl is-active maui pbs_sched").out.split() == ["active", "inactive"]
    assert set_up(cluster).changed("head") == 0


@pytest.mark.parametrize("script", [COUNTS, LARGE], ids=["small", "large"])
def test_urgent_job_takes_a_node(cluster, qsub, script):
    """One job leaves with an image and continues when the urgent one has ended; nothing else moves."""
    set_up(cluster)
    jobs = fill(qsub, script)
    urgent = qsub(COUNTS, "-q", "urgent", "-l", "nodes=1")
    urgent.reach("up")
    urgent.finish()
    preempted, = [job for job in jobs if int(job.until(lambda facts: facts["job_state"] == "R", "does not run")["start_count"]) == 2]
    assert sorted(starts(jobs)) == [1, 2]
    assert "was checkpointed and terminated" in preempted.facts()["comment"]
    for job in jobs:
        job.finish()


def test_maui_without_the_patch_starts_no_urgent_job(cluster, qsub, maui):
    """What the role's refusal is for: each cycle preempts a job, which gets its node back."""
    maui.ask("systemctl stop maui; cp -p /opt/maui/spool/maui.cfg /opt/maui-stock/spool/; runuser -u maui -- /opt/maui-stock/sbin/maui")
    try:
        jobs = fill(qsub)
        urgent = qsub(COUNTS, "-q", "urgent", "-l", "nodes=1")
        jobs[0].until(lambda _facts: sum(starts(jobs)) >= 8, "was not preempted again and again")
        assert urgent.facts()["job_state"] == "Q"
    finally:
        maui.ask("pkill -x maui; systemctl start maui")
    urgent.reach("up")
    for job in [urgent] + jobs:
        job.finish()


def test_canceljob_does_not_cancel(cluster, qsub, maui):
    """As docs/preemption.md warns."""
    jobs = fill(qsub)
    number = re.match(r"\d+", jobs[0].id).group()
    assert "job '%s' cancelled" % number in maui.ask("/opt/maui/bin/canceljob " + number)
    jobs[0].until(lambda facts: facts["job_state"] == "R" and facts["start_count"] == "2", "was not started again")
    for job in jobs:
        job.finish()


def test_queues_are_known_to_maui(cluster, maui):
    answer = maui.ask("/opt/maui/bin/diagnose -c")
    assert re.search(r"^preemptable +0 PREEMPTEE ", answer, re.MULTILINE), answer
    assert re.search(r"^urgent +1000 PREEMPTOR ", answer, re.MULTILINE), answer
    assert maui.ask("%s/qmgr -c 'list server managers'" % BIN).split("managers = ")[1].split() == ["maui@head,root@head"]
