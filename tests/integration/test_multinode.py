"""Jobs on several nodes whose program ckpt-run has started: it ends on all of them, and continues on others. Needs TORQUE's source."""
import contextlib
import json
import re
import time

import cuts
import pytest
from jobs import BIN, Jobs, await_nodes, seconds
from power import crash, free, missed, start

pytestmark = pytest.mark.usefixtures("torque")

WORKER = """\
n=$(cat state.$PBS_NODENUM 2> /dev/null || echo 0)
echo $(hostname) >> hosts.$PBS_NODENUM
while [ ! -e leave ] && [ ! -e stop ]; do n=$((n+1)); echo $n >> numbers.$PBS_NODENUM; echo $PBS_NODENUM $n; sleep 0.05; done
printf . >&2
echo $n > state.$PBS_NODENUM.part
mv state.$PBS_NODENUM.part state.$PBS_NODENUM.new
"""
"""Counts on each node: into a file, and on standard output, which pbs_mom sends to the job's output; at its end a dot without a newline.

Continues from a file of its own.
"""
START = """\
rm -f leave
leave() {
    touch leave
    [ ! -e without-task-end ] || { until [ $(ls state.*.new 2> /dev/null | wc -l) = 2 ]; do sleep 0.1; done; kill $pid; }
    wait $pid
    for node in 0 1; do mv state.$node.new state.$node; done
    exit 3
}
trap leave TERM
%s/pbsdsh /bin/sh -c "cd $PWD; exec sh worker.sh" & pid=$!
wait
exit 5
""" % BIN
"""Starts it on all nodes and ends when all have ended. Without the patch task-end pbsdsh does not hear of it, and is ended."""
SCRIPT = """\
cd $PBS_O_WORKDIR
cat > worker.sh <<'W'
%sW
cat > start.sh <<'S'
%sS
/usr/local/bin/ckpt-run -- sh start.sh
exit $?""" % (WORKER, START)


@pytest.fixture
def qsub(cluster):
    if cluster.refuses_several_nodes():
        pytest.skip("with TORQUE before 4.2.8 every checkpoint of such a job is refused (test_torque.py)")
    with Jobs(cluster) as jobs:
        yield jobs


def whole(lines):
    """Whether no number is missing or twice."""
    return lines == [str(number) for number in range(1, len(lines) + 1)]


def start_on(job, *nodes):
    """Wait until the program runs on these nodes, in this order; return how far it has come there."""
    for number, node in enumerate(nodes):
        last = "tail -n 1 %s/hosts.%d 2> /dev/null || true" % (job.work, number)
        job.until(lambda _facts, last=last, node=node: job.user(last) == node, "never came to " + node)
    return [int(job.text("numbers.%d" % number).split()[-1]) for number in range(len(nodes))]


def build_script(cluster):
    """Return the job's script (str) for the cluster's TORQUE."""
    sign = "touch without-task-end\n" if cluster.is_older_than(4, 5) else ""
    return SCRIPT.replace("\n", "\n" + sign, 1)


def test_program_on_two_nodes_moves(qsub, cluster):
    """Three times, with the nodes in another order each time."""
    job = qsub(build_script(cluster), "-c", "enabled", "-l", "nodes=node1+node2")
    for nodes in (["node2", "node1"], ["node1", "node2"], ["node2", "node1"]):
        start_on(job, *reversed(nodes))
        job.hold()
        assert [node.run("pgrep -u alice").out for node in (job.nodes["node1"], job.nodes["node2"])] == ["", ""]
        job.send("+".join(nodes))
        assert job.wait("R")["exec_host"].startswith(nodes[0] + "/")
    start_on(job, "node2", "node1")
    job.sign("stop")
    job.ended("5")
    printed = re.findall(r"^(\d) (\d+)$", job.text("out"), re.MULTILINE)
    for number in "01":
        lines = job.text("numbers." + number).splitlines()
        assert whole(lines) and job.text("hosts." + number).split() == [["node1", "node2"][(int(number) + turn) % 2] for turn in range(4)]
        assert [line for rank, line in printed if rank == number] == lines
    assert job.text("err").count(".") == 4 * 2


STAYS = """\
cd $PBS_O_WORKDIR
/usr/local/bin/ckpt-run -- sh -c 'echo $$ > pid.$(hostname); trap "exit 3" TERM; while [ ! -e stop ]; do sleep 0.1; done; exit 5'
exit $?"""


def test_restarted_job_on_two_nodes_outlives_a_restart_of_pbs_mom(qsub, cluster, node2):
    """It starts nothing by pbs_mom, so that nothing else has it saved since its restart."""
    job = qsub(STAYS, "-c", "enabled", "-l", "nodes=node1+node2")
    job.reach("pid.node1")
    job.hold()
    job.send("node2+node1")
    job.reach("pid.node2")
    node2.ask("systemctl restart pbs_mom")
    await_nodes(cluster.nodes["head"])
    node2.ask("for _ in $(seq 200); do kill -0 %s || exit 1; sleep 0.1; done" % job.text("pid.node2"))
    assert job.facts()["job_state"] == "R"
    job.sign("stop")
    job.ended("0")  # a pbs_mom that was started again is not its parent


@contextlib.contextmanager
def stopped(node, daemon):
    """A daemon of a node does nothing here."""
    node.ask("pkill -STOP -x " + daemon)
    try:
        yield
    finally:
        node.ask("pkill -CONT -x " + daemon)


def test_walltime_of_a_job_whose_sister_joins_late(qsub, node1, node2):
    """A job of the node that ends meanwhile has pbs_mom reckon what each of its jobs has used."""
    job = qsub(STAYS, "-c", "enabled", "-l", "nodes=node1+node2")
    job.reach("pid.node1")
    time.sleep(5)
    used = seconds(job.hold()["resources_used.walltime"])
    assert used >= 5
    other = qsub.counts("-l", "nodes=node1")
    job.user("rm %s/pid.node1" % job.work)
    with stopped(node2, "pbs_mom"):
        job.send("node1+node2")
        job.head.ask("timeout 5 %s/qrun %s || true" % (BIN, job.id))  # pbs_sched waits for node2
        node1.ask("for _ in $(seq 300); do [ -e /var/spool/torque/mom_priv/jobs/%s.JB ] && exit 0; sleep 0.1; done; exit 1" % job.id)
        other.finish()
    job.reach("pid.node1")
    job.sign("stop")
    job.ended("5")
    assert seconds(job.facts()["resources_used.walltime"]) >= used


def end_from(job, name):
    """Check that a job continues once from this image, and ends.

    Each node's numbers, in its own file as the crash left it, go back once at most, and not to the beginning.
    """
    facts = job.until(lambda facts: facts["job_state"] == "R" and facts.get("start_count") == "2", "was not restarted", 240)
    assert facts["checkpoint_name"] == name
    start_on(job, *re.findall(r"(node\d)/", facts["exec_host"]))
    job.sign("stop")
    job.ended("5")
    for number in "01":
        counts = [int(line) for line in job.text("numbers." + number).split()]
        again = [later for former, later in zip(counts, counts[1:]) if later != former + 1]
        assert counts[0] == 1 and len(again) <= 1 and 1 not in again, counts


@pytest.mark.parametrize("nodes", ["node1+node2", "node2+node1"])
def test_node_of_a_job_on_two_crashes(qsub, cluster, nodes):
    """The first or the other: the job continues on both from its image, and its program where it was then or later."""
    free(cluster)
    job = qsub(build_script(cluster), "-c", "enabled", "-l", "nodes=" + nodes)
    start_on(job, *nodes.split("+"))
    name = job.checkpoint()
    start_on(job, *nodes.split("+"))
    crash(cluster)
    start(cluster)
    end_from(job, name)


@contextlib.contextmanager
def down(cluster):
    """Have node1 be without power within the block."""
    crash(cluster)
    yield
    start(cluster)


@contextlib.contextmanager
def unreachable(cluster):
    """Have node1 live on within the block, and reach neither the server nor node2."""
    head, node1, node2 = (cluster.nodes[name] for name in ("head", "node1", "node2"))
    with cuts.cut(node1, head, "reject"), cuts.cut(node1, node2, "reject"):
        yield


@pytest.mark.parametrize("away", [down, unreachable])
def test_other_node_of_a_job_stays_away(qsub, cluster, policy, node1, node2, away):
    """torque-ckpt node-down has pbs_mom of the first one end the job, and it continues from its image once there are nodes for it."""
    head, nodes = cluster.nodes["head"], ("node2", "node1")
    job = qsub(build_script(cluster), "-c", "enabled", "-l", "nodes=" + "+".join(nodes))
    start_on(job, *nodes)
    name = job.checkpoint()
    start_on(job, *nodes)
    with away(cluster):
        missed(cluster)
        head.ask("torque-ckpt node-down")
        time.sleep(2)
        fact, = json.loads(head.ask("torque-ckpt node-down --json"))["jobs"]
        assert (fact["job"], fact["node"], fact["action"]) == (job.id, "node1", "queued again")
        facts = job.facts()
        assert (facts["job_state"], facts["checkpoint_name"]) == ("Q", name)
        assert node2.run("pgrep -u alice").out == ""
    node1.ask("for _ in $(seq 300); do pgrep -u alice > /dev/null || exit 0; sleep 0.2; done; echo the job is running >&2; exit 1")
    free(cluster)
    job.root("qmgr -c 'set server scheduling = true'")  # starts a cycle
    end_from(job, name)


def drain(cluster, node, **variables):
    """Drain or release a node; return what the playbook prints."""
    done = cluster.playbook("drain", drain_nodes=node, **variables)
    assert done.code == 0, done.out
    return done.out


def test_drained_node(qsub, cluster):
    """It is the job's second one, and there is no third: the job continues when the node is back."""
    await_nodes(cluster.nodes["head"])
    job = qsub(build_script(cluster), "-c", "enabled", "-l", "nodes=2")
    job.wait("R")
    first, second = re.findall(r"([^+/]+)/", job.facts()["exec_host"])
    start_on(job, first, second)
    told = drain(cluster, second, drain_start_timeout=5)
    assert re.search(r"%s \(alice\): off %s after \d+\.\d seconds, queued: it had not started after 5 seconds"
                     % (re.escape(job.id), second), told), told
    assert [node.run("pgrep -u alice").out for node in (job.nodes["node1"], job.nodes["node2"])] == ["", ""]
    drain(cluster, second, drain_state="released")
    job.root("qrun -H node1+node2 " + job.id)
    start_on(job, "node1", "node2")
    job.sign("stop")
    job.ended("5")
    for number in "01":
        assert whole(job.text("numbers." + number).splitlines())


def test_drained_node_of_a_job_without_ckpt_run(qsub, cluster):
    await_nodes(cluster.nodes["head"])
    job = qsub("touch %s; sleep 600" % "$PBS_O_WORKDIR/up", "-c", "enabled", "-l", "nodes=2")
    job.reach("up")
    nodes = re.findall(r"([^+/]+)/", job.facts()["exec_host"])
    told = drain(cluster, nodes[1])
    assert re.search(r"%s \(alice\): stays on %s: process \d+ \(\S+\) belongs to a job on 2 nodes \(%s\); CRIU cannot checkpoint that; "
                     "the job keeps running" % (re.escape(job.id), nodes[1], ", ".join(sorted(nodes))), told), told
    drain(cluster, nodes[1], drain_state="released")
    assert job.facts()["job_state"] == "R"


def test_program_that_leaves_processes_behind(qsub, cluster):
    """SIGKILL ends pbsdsh, but not what it has started: an image would not have that, and nobody would start it again."""
    job = qsub("""cd $PBS_O_WORKDIR
worker="touch $PWD/up.\\$PBS_NODENUM; while sleep 0.2; do echo \\$PBS_NODENUM; done"
/usr/local/bin/ckpt-run --signal KILL -- %s/pbsdsh /bin/sh -c "$worker" """ % BIN, "-c", "enabled", "-l", "nodes=node1+node2")
    job.reach("up.0")
    job.reach("up.1")
    job.user("%s/qhold %s" % (BIN, job.id))
    facts = job.comment("still print by pbs_demux")
    assert re.search(r"process \d+; from [0-9., ]+\), though ckpt-run's program has ended; the job keeps running; have ckpt-run start a "
                     "program that ends when it has ended on all nodes", facts["comment"]), facts
    assert job.until(lambda facts: facts["Hold_Types"] == "n", "kept its hold")["job_state"] == "R"
    job.until(lambda _facts: cluster.nodes["node1"].run("pgrep -u alice pbsdsh").out, "has not started its program again")
