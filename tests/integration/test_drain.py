"""drain.yml and job_migration on a real TORQUE: jobs leave a node and lose nothing, whatever happens to the run."""
import contextlib
import json
import os
import re
import subprocess
import threading

import pytest
from cluster import TOP, long_dump
from jobs import BIN, COUNTS, Jobs, await_nodes, slots

pytestmark = pytest.mark.usefixtures("torque")

NOTE = "ckpt-torque: new memory"
HELD = "/var/lib/ckpt-torque/drain.json"


@pytest.fixture(scope="module", autouse=True)
def four_slots(cluster):
    """Let each node run four jobs."""
    if not cluster.torque:
        yield
        return
    with slots(cluster.nodes["head"], 4):
        yield


@pytest.fixture
def start(cluster):
    """Start a job on a node that could run on any: start(node, *options, script=COUNTS, checkpoint=True) returns the Qjob."""
    head = cluster.nodes["head"]
    with Jobs(cluster) as jobs:
        def begin(node, *options, script=COUNTS, checkpoint=True):
            other = {"node1": "node2", "node2": "node1"}[node]
            head.ask("%s/pbsnodes -o %s" % (BIN, other))
            job = jobs(script, "-l", "nodes=1", *(("-c", "enabled") if checkpoint else ()), *options)
            job.reach("up")
            assert job.facts()["exec_host"].split("/")[0] == node
            head.ask("%s/pbsnodes -c %s" % (BIN, other))
            await_nodes(head)
            return job

        yield begin
    head.ask("%s/pbsnodes -c -N n node1 node2" % BIN)
    await_nodes(head)
    assert head.run("cat " + HELD).code != 0


@pytest.fixture
def drain(cluster):
    """Run the playbook on a node: drain(node, *arguments, **variables) returns its Result and the lines that it reports."""
    def run(node, *arguments, **variables):
        done = cluster.playbook("drain", *arguments, **dict({"drain_nodes": node, "drain_reason": "new memory"}, **variables))
        lists = re.findall(r'"msg": (\[.*?\n    \])', done.out, re.DOTALL)
        return done, json.loads(lists[-1]) if lists else []

    return run


def see_node(cluster, node):
    """Return the states and the note of a node as pbsnodes shows them."""
    text = cluster.nodes["head"].ask("%s/pbsnodes %s" % (BIN, node))
    attributes = dict(re.findall(r"^     (\S+) = (.*)$", text, re.MULTILINE))
    return attributes["state"], attributes.get("note", "")


def see_job(job):
    """Return the state, the node and the holds of a job."""
    facts = job.facts()
    return facts["job_state"], facts["exec_host"].split("/")[0], facts["Hold_Types"]


def moved(job, node, other):
    return re.compile(r"%s \(alice\): moved from %s to %s, off %s after \d+\.\d seconds" % (re.escape(job.id), node, other, node))


# -- as an administrator uses it ---------------------------------------------------------

@pytest.mark.parametrize("node, other", [("node1", "node2"), ("node2", "node1")])
def test_jobs_move_and_one_that_cannot_keeps_running(cluster, start, drain, node, other):
    first, second, third = start(node), start(node), start(node, checkpoint=False)
    done, lines = drain(node, "--check")
    assert done.code == 0, done.out
    assert lines == ["%s (alice): would be held and released, to start on another node" % job.id for job in (first, second)] + [
        "%s (alice): stays on %s: it was submitted without qsub -c enabled" % (third.id, node)]
    assert (see_node(cluster, node), see_job(first)) == (("free", ""), ("R", node, "n"))

    done, lines = drain(node)
    assert done.code == 0, done.out
    assert moved(first, node, other).fullmatch(lines[0]) and moved(second, node, other).fullmatch(lines[1]), lines
    stays = ["%s (alice): stays on %s: it was submitted without qsub -c enabled" % (third.id, node),
             "%s: offline (%s), still on it: %s" % (node, NOTE, third.id)]
    assert lines[2:] == stays
    assert see_node(cluster, node) == ("offline", NOTE)
    assert [see_job(job) for job in (first, second, third)] == [("R", other, "n"), ("R", other, "n"), ("R", node, "n")]

    done, lines = drain(node)
    assert (done.code, done.changed("head"), lines) == (0, 0, stays), done.out
    done, lines = drain(node, drain_state="released")
    assert (done.code, done.changed("head"), lines) == (0, 1, ["node %s is released" % node]), done.out
    assert see_node(cluster, node) == ("free", "")
    for job in (first, second, third):
        job.finish()


def test_wait_for_a_job_that_cannot_move(cluster, start, drain):
    job = start("node1", checkpoint=False)
    done, lines = drain("node1", drain_wait=True, drain_wait_timeout=2)
    assert done.code == 2
    assert "jobs are still on node1 (%s) after 2 seconds; end them or wait longer; the nodes stay offline" % job.id in done.out
    assert lines[-1] == "node1: offline (%s), still on it: %s" % (NOTE, job.id)
    timer = threading.Timer(25, job.sign, ["go"])  # when the playbook waits for the job
    timer.start()
    done, lines = drain("node1", drain_wait=True)
    timer.join()
    assert done.code == 0, done.out
    assert re.fullmatch(r"%s \(alice\): off node1 after \d+\.\d seconds by itself" % re.escape(job.id), lines[0]), lines
    assert lines[1:] == ["node1: offline (%s), no jobs" % NOTE]


def test_job_that_names_its_node_waits_for_it(cluster, start, drain):
    job = start("node1", "-l", "nodes=node1")
    done, lines = drain("node1")
    assert done.code == 0, done.out
    assert re.fullmatch(r"%s \(alice\): off node1 after \d+\.\d seconds, queued: its resource list names node1, for which it waits"
                        % re.escape(job.id), lines[0]), lines
    assert job.wait("Q")
    done, lines = drain("node1", drain_state="released")
    assert (done.code, lines) == (0, ["node node1 is released"]), done.out
    cluster.nodes["head"].ask("%s/qmgr -c 'set server scheduling = true'" % BIN)  # pbs_sched looks at the node now
    assert job.wait("R")["exec_host"].startswith("node1/")
    job.finish()


def test_job_that_its_user_held_is_not_touched(cluster, start, drain):
    job = start("node1")
    job.hold()
    before = job.facts()
    done, lines = drain("node1")
    assert (done.code, done.changed("head"), lines) == (0, 1, ["node1: offline (%s), no jobs" % NOTE]), done.out
    assert job.facts() == before and before["Hold_Types"] == "u"
    job.release("node2")
    job.finish()


# -- checkpoints that fail -------------------------------------------------------------------

OBSTACLE = """\
cd $PBS_O_WORKDIR
exec python3 -c '
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
%s
open("up", "w").close()
counter = 0
while not os.path.exists("go"):
    counter += 1
    os.write(1, b"%%d\\n" %% counter)
    time.sleep(0.1)
sys.exit(5)
'
"""


@pytest.mark.parametrize("code, words", [
    ('libc.inotify_add_watch(libc.inotify_init1(0), b"/tmp", 2)', "watches files (inotify)"),
    ("libc.shmat(libc.shmget(0, 4096, 0o1600), None, 0)", "has System V shared memory"),
], ids=["inotify", "sysv"])
def test_job_that_cannot_be_checkpointed_keeps_running(cluster, start, drain, node1, code, words):
    job = start("node1", script=OBSTACLE % code)
    pid = job.session("node1")
    done, lines = drain("node1")
    assert done.code == 0, done.out
    assert re.match(r"%s \(alice\): stays on node1: process \d+ \(python3\) %s" % (re.escape(job.id), re.escape(words)), lines[0]), lines
    assert lines[1] == "node1: offline (%s), still on it: %s" % (NOTE, job.id)
    assert (see_job(job), job.session("node1")) == (("R", "node1", "n"), pid)
    done, lines = drain("node1")
    assert (done.code, done.changed("head")) == (0, 0), done.out
    assert "stays on node1: its checkpoint failed; " in lines[0] and words in lines[0], lines
    assert see_job(job) == ("R", "node1", "n")
    job.finish()


def test_checkpoint_that_takes_too_long(start, drain, node1):
    """The hold is taken off meanwhile; when the image is written at last, the job continues from it elsewhere."""
    job = start("node1")
    with long_dump(node1):
        done, lines = drain("node1", drain_hold_timeout=3)
        assert done.code == 0, done.out
        assert lines[0] == ("%s (alice): stays on node1: its checkpoint had not ended after 3 seconds; if it still succeeds, the job "
                            "continues elsewhere" % job.id)
        assert see_job(job) == ("R", "node1", "n")
    job.until(lambda facts: facts["job_state"] == "R" and facts["exec_host"].startswith("node2/"), "did not come to node2")
    job.finish()


# -- runs that are broken off ------------------------------------------------------------------

@contextlib.contextmanager
def migration(cluster, **arguments):
    """job_migration at work on the head, for node1, which is offline."""
    done = cluster.module("head", "pbs_node", node="node1", reason="new memory")
    assert done.code == 0, done.out
    arguments = dict({"nodes": ["node1"]}, **arguments)
    process = subprocess.Popen(
        ["ansible", "-i", cluster.inventory, "head", "-m", "ckpt.torque.job_migration", "-a", json.dumps(arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, cwd=TOP,
        env=dict(os.environ, ANSIBLE_CONFIG=str(TOP / "ansible.cfg"), ANSIBLE_NOCOLOR="1"))
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            process.communicate()


def send(head, signal):
    """Send a signal to the process that has the lock."""
    head.ask("for process in /proc/[0-9]*; do readlink $process/fd/* 2> /dev/null | grep -q drain.lock && kill -%s ${process#/proc/} && "
             "exit; done; exit 1" % signal)


def await_dump(node):
    node.ask("for _ in $(seq 300); do [ -e /tmp/dumping ] && exit; sleep 0.1; done; echo no dump has begun >&2; exit 1")


def test_run_that_is_killed_right_after_a_hold(cluster, start, drain, node1):
    """The next run finds the job by the file that the killed one left."""
    job, head = start("node1"), cluster.nodes["head"]
    with long_dump(node1), migration(cluster):
        await_dump(node1)
        send(head, "KILL")
    assert job.wait("H")["Hold_Types"] == "o"
    assert json.loads(head.ask("cat " + HELD)) == {"jobs": {job.id: "node1"}}
    assert head.ask("stat -c '%U %a' " + HELD) == "root 600"
    done, lines = drain("node1")
    assert done.code == 0, done.out
    assert lines == ["%s (alice): moved from node1 to node2, off node1" % job.id, "node1: offline (%s), no jobs" % NOTE]
    job.finish()


def test_next_run_while_the_checkpoint_still_lasts(cluster, start, node1):
    """The second run takes the hold over that is under way."""
    job, head = start("node1"), cluster.nodes["head"]
    with long_dump(node1):
        with migration(cluster):
            await_dump(node1)
            send(head, "KILL")
        with migration(cluster) as process:
            head.ask("for _ in $(seq 300); do readlink /proc/[0-9]*/fd/* 2> /dev/null | grep -q drain.lock && exit; sleep 0.1; done; "
                     "exit 1")
            node1.ask("sleep 2; touch /tmp/go")
            text = process.communicate()[0]
    assert "%s (alice): moved from node1 to node2, off node1" % job.id in text, text
    assert see_job(job) == ("R", "node2", "n")
    job.finish()


def test_run_that_is_ended_by_a_signal(cluster, start, node1):
    """It releases the job whose checkpoint ends within some seconds."""
    job, head = start("node1"), cluster.nodes["head"]
    with long_dump(node1), migration(cluster) as process:
        await_dump(node1)
        send(head, "TERM")
        node1.ask("touch /tmp/go")
        text = process.communicate()[0]
    assert "interrupted by signal 15; no job is held" in text, text
    job.until(lambda facts: facts["job_state"] == "R" and facts["exec_host"].startswith("node2/"), "did not come to node2")
    job.finish()


def test_job_that_its_user_holds_meanwhile_stays_held(cluster, start, node1):
    """Only the operator's hold is taken off."""
    job = start("node1")
    with long_dump(node1), migration(cluster) as process:
        await_dump(node1)
        job.user("%s/qhold %s" % (BIN, job.id))
        assert set(job.facts()["Hold_Types"]) == {"o", "u"}
        node1.ask("touch /tmp/go")
        text = process.communicate()[0]
    assert re.search(r"%s \(alice\): off node1 after \d+\.\d seconds, held: its user holds it" % re.escape(job.id), text), text
    assert see_job(job)[::2] == ("H", "u")
    job.release("node2")
    job.finish()
