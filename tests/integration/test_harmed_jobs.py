"""Jobs of a real TORQUE whose owner, neighbours or files do what they should not: they keep running, wait, or end, and free their slots.

test_neighbours.py has the same attacks on the hooks alone. Needs TORQUE's source.
"""
import pathlib
import re

import attackers
import pytest
from cluster import STORE, configured, replaced_hook
from jobs import BIN, COUNTS, IN_PLACE, LARGE, Jobs
from power import crash, free, start

pytestmark = pytest.mark.usefixtures("torque")

DECLARE = pathlib.Path(__file__).resolve().parent / "attacks/declare.py"
STALL = {"engine_options": {"stall": 4}}
DISTURBED = "another process of this node may have interfered with criu"


@pytest.fixture
def qsub(cluster):
    with Jobs(cluster) as jobs:
        yield jobs


@pytest.mark.parametrize("interruption", ["crash", "qrerun"])
def test_file_that_the_job_wrote_to_before_it_was_interrupted(qsub, cluster, interruption):
    """The file is newer than the image: the job is held, and its comment says by which command it continues all the same."""
    job = qsub("cd $PBS_O_WORKDIR\n" + IN_PLACE, "-c", "enabled")
    job.reach("up")
    name, before = job.checkpoint(), job.text("data")
    job.until(lambda _facts: job.text("data") > before, "wrote nothing more")
    if interruption == "crash":
        crash(cluster)
        start(cluster)
    else:
        job.root("qrerun " + job.id)
    facts = job.comment("Permanent failure of the restart: file %s/data, which the job has open, was written to after " % job.work, 150)
    assert job.wait("H")["checkpoint_name"] == name
    job.user(re.search('"(touch -d [^"]*)"', facts["comment"]).group(1))
    free(cluster)
    job.release("node1")
    job.sign("go")
    job.ended("5")


def test_job_whose_owner_stops_his_part_of_the_hook_is_deleted(qsub, node1):
    """It ends, nothing of it is left on the node, and others get its slots."""
    job = qsub.counts()
    with attackers.waiting_program(node1):
        job.user("%s/qchkpt %s" % (BIN, job.id))
        node1.ask("for _ in $(seq 300); do [ -e /tmp/dumping ] && exit; sleep 0.1; done; exit 1")
        node1.ask("kill -STOP $(pgrep -u alice -x checkpoint)")
        job.user("%s/qdel %s" % (BIN, job.id))
        job.wait("C", 90)
    node1.ask("for _ in $(seq 100); do pgrep -u alice > /dev/null || exit 0; sleep 0.1; done; ps -u alice -f; exit 1")
    other = qsub.counts("-l", "nodes=node1:ppn=2")
    other.finish()


def test_core_images_that_the_owner_puts_into_a_hold(qsub, owner_program, node1):
    """The job keeps running without a hold, its comment has the reason, and the next hold succeeds."""
    job = qsub.counts()
    job.checkpoint()
    with attackers.attack(node1, "put", "%s/%s.CK" % (STORE, job.id), job.image()) as answer:
        job.user("%s/qhold %s" % (BIN, job.id))
        job.comment("somebody else than the engine and the hooks put core-")
    assert answer["stopped"] and answer["wrote"]
    job.until(lambda facts: (facts["job_state"], facts["Hold_Types"]) == ("R", "n"), "kept the hold")
    job.progress("node1")
    job.hold()
    job.release("node2")
    job.finish()


def test_core_images_that_the_owner_replaces_in_a_hold(qsub, owner_program, node1, node2):
    """The job is held, and held again when it is released: nothing of such an image is started."""
    job = qsub(LARGE, "-c", "enabled")
    job.reach("up")
    with attackers.attack(node1, "replace", "%s/%s.CK" % (STORE, job.id)) as answer:
        job.hold()
    assert answer["stopped"] and answer["wrote"]
    job.send("node2")
    job.comment("Permanent failure of the restart: image %s is damaged: core-" % job.image())
    job.wait("H")
    assert node2.run("pgrep -u alice").out == ""


MEASURED = """\
#!/usr/bin/python3 -IS
import resource, subprocess, sys
status = subprocess.call([sys.argv[0] + ".real"] + sys.argv[1:])
with open("/run/peak", "w") as stream:
    stream.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10))
sys.exit(status)
"""
TOO_LARGE = "was started with more than 256 KiB of environment, and PBS_JOBID is not in the first of them"


@pytest.fixture
def declare(node1):
    """The path of DECLARE as a program of the node."""
    node1.ask("cat > /tmp/declare <<'X'\n#!/usr/bin/python3\n%sX\nchmod 755 /tmp/declare" % DECLARE.read_text())
    yield "/tmp/declare"
    node1.ask("rm /tmp/declare")


@pytest.mark.parametrize("options, comment", [("-S /tmp/declare", TOO_LARGE), ("", "was checkpointed and continued")],
                         ids=["first", "child"])
def test_environment_that_a_process_of_a_job_declares(qsub, node1, declare, options, comment):
    """Root's hook takes no memory for it; it has to find PBS_JOBID in that of the job's first process alone."""
    job = qsub("exec " + declare, "-c", "enabled", options)
    job.until(lambda _facts: node1.run("grep -s declared /var/spool/torque/spool/%s.OU" % job.id).code == 0, "declared nothing")
    with replaced_hook(node1, "checkpoint", MEASURED):
        job.user("%s/qchkpt %s" % (BIN, job.id))
        job.comment(comment)
    assert int(node1.ask("cat /run/peak; rm /run/peak")) < 100 << 20
    assert job.facts()["job_state"] == "R"


def test_hold_that_another_user_disturbs(qsub, node1):
    """The job keeps running without a hold, its comment has his number, and the next hold succeeds."""
    for _attempt in range(5):
        job = qsub.counts()
        with configured(node1, **STALL), attackers.attacker(node1, attackers.HIJACK):
            job.user("%s/qhold %s" % (BIN, job.id))
            facts = job.until(lambda facts: facts["job_state"] == "H" or "by a process of uid 1501" in facts.get("comment", ""),
                              "was not told of him")
        if facts["job_state"] != "H":  # the job was not the first to connect
            break
    else:
        raise AssertionError("the job was the first to connect, five times")
    job.until(lambda facts: (facts["job_state"], facts["Hold_Types"]) == ("R", "n"), "kept the hold")
    job.progress("node1")
    job.hold()
    job.release("node2")
    job.finish()


def test_restart_that_another_user_disturbs(qsub, node2):
    """It is tried as often as the setting says, then the job is held; when he has gone it continues."""
    job = qsub("for i in $(seq 100); do sleep 1000 & done; " + COUNTS, "-c", "enabled")
    job.reach("up")
    job.hold()
    with configured(node2, restart_attempts=2, **STALL), attackers.attacker(node2, attackers.DISTURB):
        job.send("node2")
        job.comment(DISTURBED)
        job.root("qmgr -c 'set server scheduling = true'")
        job.comment("image kept (attempt 2 of 2, the last; fix the cause, then release the job)")
        job.wait("H")
    job.release("node2")
    job.finish()


def test_numbers_of_a_held_job_that_others_have_got(qsub, node1):
    """Its owner kills it while its image is written; neither the hook nor pbs_mom signals the processes that have its numbers now."""
    job = qsub.counts()
    leader = job.session("node1")
    root = node1.ask("pgrep -P " + leader)
    mom = node1.ask("systemctl show -p MainPID --value pbs_mom")
    with attackers.waiting_program(node1):
        job.user("%s/qhold %s" % (BIN, job.id))
        node1.ask("for _ in $(seq 300); do [ -e /tmp/dumping ] && exit; sleep 0.1; done; exit 1")
        node1.ask("runuser -u alice -- kill -KILL %s %s; cat > /tmp/take.py <<'X'\n%s\nX" % (root, leader, attackers.TAKE_NUMBER))
        node1.ask("while kill -0 %s 2> /dev/null; do sleep 0.05; done" % leader)
        for number in (root, leader):
            assert node1.ask("python3 /tmp/take.py %s < /dev/null" % number) == number
        node1.ask("rm /tmp/dumping")
        job.wait("HC", 90)
    try:
        for number in (root, leader):
            assert node1.ask("ps -o user=,args= -p %s" % number).split(None, 1) == ["bob", "sleep 4712"]
        assert node1.ask("systemctl show -p MainPID --value pbs_mom") == mom
    finally:
        node1.run("pkill -KILL -u bob")
