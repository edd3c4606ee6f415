"""What pbs_mom and pbs_server keep of a job beyond its processes: limits, slots, files, holds. Needs TORQUE's source."""
import contextlib

import proofs
import pytest
from cluster import STORE, hurried, long_dump
from jobs import BIN, COUNTS, Jobs, await_nodes, quoted

pytestmark = pytest.mark.usefixtures("torque")


@pytest.fixture
def qsub(cluster):
    with Jobs(cluster) as jobs:
        yield jobs


def mom(node):
    return node.ask("systemctl show -p MainPID --value pbs_mom")


@contextlib.contextmanager
def without_image(job):
    """A job that is held has no image here, so that its restart fails for good."""
    job.head.ask("mv {0} {0}.away".format(job.image()))
    try:
        yield
    finally:
        job.head.ask("mv {0}.away {0}".format(job.image()))


def test_limit_of_a_restarted_job(qsub, node2):
    """It is ended when its walltime is over, as one that was never held."""
    job = qsub.counts("-l", "walltime=00:10:00")
    job.hold()
    job.release("node2")
    job.progress("node2")
    with hurried(node2) as see:
        see()
        job.wait("C")
    assert "job killed: walltime" in job.text("err")


def test_limit_of_a_job_that_outlives_a_restart_of_pbs_mom(qsub, cluster, node1):
    job = qsub.counts("-l", "walltime=00:10:00")
    node1.ask("systemctl restart pbs_mom")
    await_nodes(cluster.nodes["head"])
    job.progress("node1")
    with hurried(node1) as see:
        see()
        job.wait("C")
    assert "job killed: walltime" in job.text("err")


def test_restart_that_fails_of_a_job_with_staged_in_files(qsub, cluster, node1):
    """Such a job restarts on its node only."""
    if cluster.is_older_than(6, 1):
        pytest.skip("TORQUE %s does not remove staged-in files in this way" % cluster.version)
    here = STORE + "/alice"
    node1.ask("echo staged > {0}/source; chown alice {0}/source".format(here))
    job = qsub("cat %s/staged > $PBS_O_WORKDIR/first; %s" % (here, COUNTS), "-c", "enabled",
               "-W", "stagein={0}/staged@head:{0}/source".format(here))
    job.reach("up")
    job.hold()
    before = mom(node1)
    with without_image(job):
        job.send("node1")
        job.comment("Permanent failure of the restart: ")
        job.wait("H")
    assert mom(node1) == before
    job.release("node1")
    job.finish()
    assert job.text("first") == "staged"
    node1.ask("rm {0}/source {0}/staged".format(here))


def test_element_of_an_array_whose_restart_fails_for_now(qsub, cluster, node2):
    """Its place among those that may run at once is free again: it is started when that can succeed."""
    if cluster.is_older_than(6, 1):
        pytest.skip("the patch array-slots does not fit TORQUE %s" % cluster.version)
    job = qsub("cd $PBS_O_WORKDIR; touch up; while [ ! -e go ]; do sleep 0.1; done; exit 5", "-t", "0%1", "-c", "enabled", output=False)
    array = job.id
    try:
        job.reach("up")
        job.id = array.replace("[]", "[0]")
        job.user("%s/qhold %s" % (BIN, quoted(job.id)))
        job.wait("H")
        with proofs.take_pid(job, node2) as await_refusal:
            job.root("qalter -l nodes=node2 '%s'" % job.id)
            job.user("%s/qrls %s" % (BIN, quoted(job.id)))
            await_refusal()
        job.wait("R")
    finally:
        job.id = array
        job.head.run("rm -rf %s/%s.CK" % (STORE, array.replace("[]", "-0")))


def test_hold_that_is_refused_leaves_no_hold(qsub):
    job = qsub.counts(checkpoint="none")
    done = job.head.run("runuser -u alice -- %s/qhold %s" % (BIN, job.id))
    assert "job not held since checkpointing is expected but not enabled for job" in done.err
    assert job.facts()["Hold_Types"] == "n"
    job.finish()


def test_periodic_image_of_a_job_that_outlives_a_restart_of_pbs_mom(qsub, cluster, node1):
    job = qsub.counts(checkpoint="enabled,periodic,interval=1")
    node1.ask("systemctl restart pbs_mom")
    await_nodes(cluster.nodes["head"])
    job.progress("node1")
    with hurried(node1) as see:
        see()
        job.until(lambda facts: "checkpoint_name" in facts, "got no periodic image")


def test_exit_status_of_a_job_whose_pbs_mom_is_executed_anew(qsub, cluster, node1):
    """It stays the parent of its jobs, and waits until none is being checkpointed."""
    ends = qsub("cd $PBS_O_WORKDIR; touch up; while [ ! -e go ]; do sleep 0.1; done; echo done; exit 5")
    ends.reach("up")
    held = qsub.counts()
    before = mom(node1)
    renewed = "tr '\\0' '\\n' < /proc/%s/environ | grep -q PBS_MOM_RENEWED" % before
    with long_dump(node1):
        held.user("%s/qhold %s > /dev/null 2>&1 &" % (BIN, held.id))
        node1.ask("for _ in $(seq 600); do [ -e /tmp/dumping ] && break; sleep 0.1; done; kill -WINCH %s; sleep 3; ! %s"
                  % (before, renewed))
    node1.ask("for _ in $(seq 600); do %s && exit; sleep 0.1; done; exit 1" % renewed)
    assert mom(node1) == before
    held.wait("H")
    await_nodes(cluster.nodes["head"])
    ends.sign("go")
    ends.wait("C")
    assert (ends.facts()["exit_status"], ends.text("out")) == ("5", "done")
    held.release("node2")
    held.finish()


PRIVATE = "/var/spool/torque/mom_priv"


@contextlib.contextmanager
def epilogue(head, node, script):
    """The node has this epilogue, which tells that it has begun; yields what waits for that."""
    node.ask("rm -f /tmp/epilogue.begun; cat > {0}/epilogue << 'END'\n#!/bin/sh\ntouch /tmp/epilogue.begun\n{1}\nEND\n"
             "chmod 500 {0}/epilogue".format(PRIVATE, script))
    try:
        yield lambda: node.ask("for _ in $(seq 600); do [ -e /tmp/epilogue.begun ] && exit; sleep 0.1; done; exit 1")
    finally:
        node.ask("rm -f %s/epilogue /tmp/epilogue.begun" % PRIVATE)
        await_nodes(head)


def test_exit_status_of_a_job_whose_epilogue_runs_while_pbs_mom_is_restarted(qsub, cluster, node1):
    with epilogue(cluster.nodes["head"], node1, "sleep 5") as await_epilogue:
        job = qsub("echo done; exit 5")
        await_epilogue()
        node1.ask("systemctl restart pbs_mom")
        job.wait("C")
    assert (job.facts()["exit_status"], job.text("out")) == ("5", "done")


def test_hold_of_a_job_whose_epilogue_runs(qsub, cluster, node1):
    """It is refused, which some versions do not say, and the epilogue's end is noticed."""
    waits = "while [ ! -e /tmp/epilogue.go ]; do sleep 0.1; done; rm /tmp/epilogue.go"
    with epilogue(cluster.nodes["head"], node1, waits) as await_epilogue:
        job = qsub("echo done; exit 5", "-c", "enabled")
        await_epilogue()
        done = job.head.run("runuser -u alice -- %s/qhold %s" % (BIN, job.id))
        node1.ask("touch /tmp/epilogue.go")
        job.wait("C")
    assert cluster.answers_holds_early() or "Request invalid for state of job" in done.err, done.err
    assert (job.facts()["exit_status"], job.text("out")) == ("5", "done")


def test_files_of_pbs_mom_for_a_job_that_outlives_its_restart(qsub, cluster, node1):
    """The job's TMPDIR is removed at its end, and the epilogue knows the file of nodes."""
    node1.ask("cp -p {0}/config {0}/config.before; echo '$tmpdir /tmp/scratch' >> {0}/config; mkdir -m 1777 /tmp/scratch; "
              "systemctl restart pbs_mom".format(PRIVATE))
    try:
        await_nodes(cluster.nodes["head"])
        with epilogue(cluster.nodes["head"], node1, "cat \"$PBS_NODEFILE\" > /tmp/epilogue.nodes"):
            job = qsub("cd $PBS_O_WORKDIR; touch $TMPDIR/own; echo $TMPDIR; touch up; while [ ! -e go ]; do sleep 0.1; done")
            job.reach("up")
            node1.ask("systemctl restart pbs_mom")
            await_nodes(cluster.nodes["head"])
            job.sign("go")
            job.wait("C")
            assert job.text("out") == "/tmp/scratch/" + job.id
            assert node1.ask("cat /tmp/epilogue.nodes") == "node1"
            node1.ask("for _ in $(seq 100); do [ ! -e /tmp/scratch/%s ] && exit; sleep 0.1; done; exit 1" % job.id)
    finally:
        node1.ask("mv {0}/config.before {0}/config; rm -rf /tmp/scratch /tmp/epilogue.nodes; systemctl restart pbs_mom".format(PRIVATE))
        await_nodes(cluster.nodes["head"])
