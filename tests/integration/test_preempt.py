"""A high-priority job takes the node of another one, by the requests that Maui sends; pbs_server stops and boots. Needs TORQUE's source."""
import re
import time

import pytest
from cluster import FIGURES, long_dump
from jobs import BIN, COUNTS, LARGE, Jobs, await_nodes, slots
from module_trip import Trip
from power import crash, shut_down, start

pytestmark = pytest.mark.usefixtures("torque")


@pytest.fixture
def qsub(cluster):
    with Jobs(cluster) as jobs:
        yield jobs


@pytest.fixture
def maui(cluster):
    """Nodes with one slot each, and no pbs_sched: jobs start where a client of the server, like Maui, sends them."""
    head = cluster.nodes["head"]
    with slots(head, 1):
        head.ask(BIN + "/qmgr -c 'set server scheduling = false'")
        yield Maui(head)
        head.ask(BIN + "/qmgr -c 'set server scheduling = true'")


class Maui:
    """Maui's requests to pbs_server, as its MPBSI.c sends them: a system hold and its release, then runs with a list of hosts."""

    def __init__(self, head):
        self.head = head

    def preempt(self, job):
        """MPBSJobCkpt: pbs_holdjob and, at once, pbs_rlsjob."""
        return self.head.run("{0}/qhold -h s {1} && {0}/qrls -h s {1}".format(BIN, job.id))

    def run(self, job, node):
        """MPBSJobStart: pbs_runjob with a list of hosts."""
        return self.head.run("%s/qrun -H %s %s" % (BIN, node, job.id))

    def run_soon(self, job, node):
        """The same in each cycle, until the server has room for the job; return what the server answered before."""
        answers = self.head.ask("for _ in $(seq 300); do %s/qrun -H %s %s 2>&1 && exit; sleep 0.1; done; exit 1" % (BIN, node, job.id))
        job.wait("R")
        return set(re.findall(r"^qrun: (.*?) +MSG=", answers, re.MULTILINE))

    def start(self, job, node, sign="up"):
        done = self.run(job, node)
        assert done.code == 0, done.err
        job.reach(sign)
        assert job.facts()["exec_host"].split("/")[0] == node


def submit(qsub, maui, node, script=COUNTS):
    """A checkpointable job that could run anywhere, on a node."""
    job = qsub(script, "-c", "enabled", "-l", "nodes=1")
    maui.start(job, node)
    return job


def read_hold(node, job):
    """What the hooks have logged of the job's hold (str by name)."""
    line = node.ask("journalctl -q -t ckpt-torque -o cat | grep 'job=%s ' | grep outcome=held" % job.id)
    return dict(re.findall(r"(\S+)=(\S+)", line))


# -- preemption ---------------------------------------------------------------------------

@pytest.mark.parametrize("script", [COUNTS, LARGE], ids=["small", "large"])
def test_urgent_job_takes_the_node_of_another_one(qsub, maui, node1, script):
    """The job leaves with an image, continues elsewhere, and both end as ever."""
    job, urgent = submit(qsub, maui, "node1", script), qsub(COUNTS, "-c", "enabled", "-l", "nodes=1")
    assert maui.run(urgent, "node1").code != 0
    begin = time.monotonic()
    done = maui.preempt(job)
    assert (done.code, done.err) == (0, "")
    answers = maui.run_soon(urgent, "node1")
    seconds = time.monotonic() - begin
    urgent.reach("up")
    facts = job.facts()
    hold = read_hold(node1, job)
    FIGURES.append("an urgent job runs %.1f s after the request to preempt a job whose image has %.1f MiB: the hook took %s s, the job was "
                   "frozen for %s s" % (seconds, int(hold["bytes"]) / 2 ** 20, hold["seconds"], hold["frozen_seconds"]))
    assert answers == {"Resource temporarily unavailable"}
    assert (facts["job_state"], facts["Hold_Types"], "checkpoint_name" in facts) == ("Q", "n", True), facts
    assert maui.run(job, "node2").code == 0
    assert job.wait("R")["exec_host"].startswith("node2/")
    job.finish()
    urgent.finish()


def test_old_host_stays_in_neednodes(qsub, maui):
    """The list of hosts of the run counts, whatever neednodes says."""
    job = submit(qsub, maui, "node1")
    assert maui.preempt(job).code == 0
    job.wait("Q")
    job.root("qalter -l neednodes=node1 " + job.id)
    assert maui.run(job, "node2").code == 0
    assert job.wait("R")["exec_host"].startswith("node2/")
    job.finish()


def test_next_cycle_comes_while_the_image_is_written(qsub, maui, node1):
    """Maui still sees the job running, without a hold, and preempts it again: it is checkpointed once and starts once."""
    job, urgent = submit(qsub, maui, "node1"), qsub(COUNTS, "-c", "enabled", "-l", "nodes=1")
    with long_dump(node1):
        assert maui.preempt(job).code == 0
        node1.ask("for _ in $(seq 300); do [ -e /tmp/dumping ] && exit; sleep 0.1; done; exit 1")
        facts = job.facts()
        assert (facts["job_state"], facts["Hold_Types"], "checkpoint_name" in facts) == ("R", "n", False), facts
        for _cycle in range(3):
            maui.preempt(job)
            assert maui.run(urgent, "node1").code != 0
            assert maui.run(job, "node2").code != 0
        node1.ask("touch /tmp/go")
        maui.run_soon(urgent, "node1")
        urgent.reach("up")
    facts = job.wait("Q")
    assert (facts["Hold_Types"], "checkpoint_name" in facts) == ("n", True), facts
    assert maui.run(job, "node2").code == 0
    assert job.wait("R")["exec_host"].startswith("node2/")
    job.finish()
    urgent.finish()
    assert node1.ask("journalctl -q -t ckpt-torque -o cat | grep 'job=%s ' | grep -c outcome=held" % job.id) == "1"


OBSTACLE = """\
cd $PBS_O_WORKDIR
exec python3 -c '
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
libc.inotify_add_watch(libc.inotify_init1(0), b"/tmp", 2)
open("up", "w").close()
counter = 0
while not os.path.exists("go"):
    counter += 1
    os.write(1, b"%d\\n" % counter)
    time.sleep(0.1)
sys.exit(5)
'
"""


def test_job_that_cannot_be_checkpointed_keeps_its_node(qsub, maui, node1):
    """As often as Maui asks; the reason is in the job's comment, and no hold is left."""
    job, urgent = submit(qsub, maui, "node1", OBSTACLE), qsub(COUNTS, "-c", "enabled", "-l", "nodes=1")
    pid = job.session("node1")
    for _cycle in range(2):
        maui.preempt(job)
        assert maui.run(urgent, "node1").code != 0
        job.comment("watches files (inotify)")
        facts = job.facts()
        assert (facts["job_state"], facts["Hold_Types"], job.session("node1")) == ("R", "n", pid), facts
    job.finish()
    maui.run_soon(urgent, "node1")
    urgent.reach("up")
    urgent.finish()


def test_case_preempt(cluster):
    """The scheduler starts the job again by itself; the job then moves as ever."""
    answer = Trip(cluster, case="preempt").answer()
    assert [(phase["step"], phase["node"]) for phase in answer["phases"]] == [
        ("submit", "node1"), ("preempt", "node1"), ("hold", "node1"), ("release", "node2"), ("finish", "node2")]
    first, second, last = answer["counters"]
    assert 0 < first < second < last
    assert len(answer["comments"]) == 2


def test_validation_case_drain(cluster):
    """The job leaves by an operator's hold, and returns when the node is in use again."""
    answer = Trip(cluster, case="drain", path=["node1", "node2", "node1"]).answer()
    assert [(phase["step"], phase["node"]) for phase in answer["phases"]] == [
        ("submit", "node1"), ("hold", "node1"), ("release", "node2"), ("hold", "node2"), ("release", "node1"), ("finish", "node1")]
    assert answer["counters"] == sorted(set(answer["counters"])) and len(answer["counters"]) == 3
    assert "offline" not in cluster.nodes["head"].ask("%s/pbsnodes -a" % BIN)


def test_validation_queues_no_job_behind_others(cluster, qsub, maui, node1):
    """A node without a free slot is not proven, and neither is one that is offline; the user's job does not notice."""
    job = submit(qsub, maui, "node1")
    answer = Trip(cluster).read_result()
    assert (answer["passed"], answer["cause"], "job_id" in answer) == (None, "not proven: node1 has no free slot", False), answer
    job.finish()
    job.head.ask("%s/pbsnodes -o node1" % BIN)
    try:
        answer = Trip(cluster, timeout=5).read_result()
    finally:
        job.head.ask("%s/pbsnodes -c node1" % BIN)
    assert (answer["passed"], answer["cause"]) == (None, "not proven: node1 is offline"), answer


# -- the server stops, hosts boot ---------------------------------------------------------

@pytest.mark.parametrize("stop", ["qterm", "qterm -t quick", "reboot", "power"])
def test_server_stops_with_jobs_that_run_and_are_held(qsub, cluster, stop):
    """Both are as they were when it is back; the held one continues from its image."""
    head = cluster.nodes["head"]
    held, running = qsub.counts(), qsub.counts()
    held.hold()
    before = held.facts()
    if stop in ("reboot", "power"):
        shut_down(cluster, "head") if stop == "reboot" else crash(cluster, "head")
        start(cluster, "head", "pbs_server")
    else:
        head.ask("%s/%s; for _ in $(seq 600); do pgrep -x pbs_server || exit 0; sleep 0.1; done; exit 1" % (BIN, stop))
        head.ask("systemctl reset-failed; systemctl start pbs_server pbs_sched")
    await_nodes(head)
    facts = held.facts()
    assert [facts[key] for key in ("job_state", "Hold_Types", "checkpoint_name")] == ["H", "u", before["checkpoint_name"]]
    assert running.wait("R")["exec_host"].startswith("node1/")
    held.release("node2")
    held.finish()
    running.finish()


def test_qterm_knows_no_other_way(cluster):
    """From 4.2 on jobs are neither checkpointed nor queued again when the server stops."""
    done = cluster.nodes["head"].run("%s/qterm -t immediate" % BIN)
    assert (done.code, done.err.strip()) == (1, "Usage: qterm [-t quick] [server ...]")


def test_node_shuts_down_with_jobs_for_that(qsub, cluster):
    """pbs_mom writes no image then, and -c shutdown alone lets nobody write one: such a job starts anew."""
    job, other = qsub.counts(checkpoint="enabled,shutdown"), qsub.counts(checkpoint="shutdown")
    name = job.checkpoint()
    done = other.head.run("%s/qchkpt %s" % (BIN, other.id))
    assert done.err.strip() == "qchkpt: Invalid request MSG=job is not checkpointable %s" % other.id
    other.user("rm %s/up" % other.work)
    shut_down(cluster, "node1")
    start(cluster)
    job.continued("node1", name)
    assert job.facts()["checkpoint_name"] == name
    facts = other.until(lambda facts: facts.get("start_count") == "2" and facts["job_state"] == "R", "was not started again", 120)
    assert "checkpoint_name" not in facts, facts
    other.reach("up")
    job.finish()
    other.finish(starts=2)
