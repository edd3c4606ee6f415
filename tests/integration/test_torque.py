"""Real jobs in a real TORQUE, as users and administrators meet them. Needs TORQUE's source; says so where there is none."""
import json
import os
import re
import time

import attackers
import proofs
import pytest
import storms
from cluster import HOOKS, STORE, configured
from jobs import BIN, COUNTS, LARGE, Jobs, await_nodes, forgotten_at_once, quoted, seconds
from module_trip import Trip

pytestmark = pytest.mark.usefixtures("torque")


@pytest.fixture
def qsub(cluster):
    with Jobs(cluster) as jobs:
        yield jobs


# -- output survives a move (D3) ----------------------------------------------

LINES = """\
seq 1 5000
touch %(here)s/half
while [ ! -e %(here)s/go ]; do sleep 0.05; done
seq 5001 10000
exit 7
"""


@pytest.mark.parametrize("options, output, names", [
    ([], True, "out"),
    (["-j", "oe"], True, "out"),
    ([], False, "job.sh.o*"),
    (["-j", "oe"], False, "job.sh.o*"),
])
def test_every_line_of_output_survives_a_move(qsub, options, output, names):
    job = qsub("cd $PBS_O_WORKDIR\n" + LINES % {"here": "."}, "-c", "enabled", *options, output=output)
    job.reach("half")
    job.hold()
    job.release("node2")
    job.sign("go")
    job.ended("7")
    assert job.text(names).splitlines() == [str(number) for number in range(1, 10001)]


STEPS = """\
cd $PBS_O_WORKDIR
for step in 1 2 3 4; do
    seq $((step * 1000 - 999)) $((step * 1000))
    echo "step $step" >&2
    touch at.$step
    while [ ! -e go.$step ]; do sleep 0.05; done
done
exit 7
"""


def moved_three_times(job):
    for step, node in enumerate(("node2", "node1", "node2"), 1):
        job.reach("at.%d" % step)
        job.hold()
        job.release(node)
        job.sign("go.%d" % step)
    job.reach("at.4")
    job.sign("go.4")
    job.ended("7")


def judge(job, out, err):
    numbers, steps = [str(number) for number in range(1, 4001)], ["step %d" % step for step in range(1, 5)]
    if err:
        assert (job.text(out).splitlines(), job.text(err).splitlines()) == (numbers, steps)
    else:
        lines = job.text(out).splitlines()
        assert ([line for line in lines if line.isdigit()], [line for line in lines if not line.isdigit()]) == (numbers, steps)
        assert lines.index("step 2") == 2001


@pytest.mark.parametrize("options, err", [([], "err"), (["-j", "oe"], None)])
def test_output_survives_three_moves(qsub, options, err):
    job = qsub(STEPS, "-c", "enabled", *options)
    moved_three_times(job)
    judge(job, "out", err)


def test_empty_output_survives_a_move(qsub):
    job = qsub("cd $PBS_O_WORKDIR; touch up; while [ ! -e go ]; do sleep 0.05; done; exit 7", "-c", "enabled")
    job.reach("up")
    job.hold()
    job.release("node2")
    job.sign("go")
    job.ended("7")
    assert job.head.ask("stat -c %%s %s/out %s/err" % (job.work, job.work)).split() == ["0", "0"]


def test_job_on_several_nodes_is_not_checkpointed(qsub, cluster, node2):
    """An image would have its processes on the first node only; those on the other are still there."""
    # pbs_mom ends what is in the task's session when its first process ends, so that one waits for the other's own session.
    task = "setsid --fork sleep 600; until pgrep -u alice -x sleep > /dev/null; do :; done"
    job = qsub("%s/pbsdsh -h node2 /bin/sh -c '%s'\n%s" % (BIN, task, COUNTS), "-c", "enabled", "-l", "nodes=node1+node2")
    job.reach("up")
    other = node2.ask("pgrep -u alice -x sleep")
    pid = job.session("node1")
    advice = ("; the settings of this node refuse every job on several" if cluster.refuses_several_nodes() else
              ", or start its program by ckpt-run, which lets it write restart files of its own")
    for command in ("qhold", "qchkpt"):
        job.user("%s/%s %s" % (BIN, command, job.id))
        facts = job.comment("belongs to a job on 2 nodes (node1, node2); CRIU cannot checkpoint that; the job keeps running; submit it "
                            "for one node" + advice)
        assert facts["job_state"] == "R" and "checkpoint_name" not in facts, facts
    assert node2.ask("pgrep -u alice -x sleep") == other
    assert "belongs to a job on 2 nodes" in job.nodes["node1"].run("torque-ckpt check " + job.id).out
    assert job.session("node1") == pid
    node2.ask("kill " + other)  # in a session of its own, so that TORQUE does not know it
    job.finish()


KEPT = "job.sh.o%s"
"""What "-k oe" names the output, in the home on the node."""


@pytest.fixture
def shared_home(cluster):
    """Give alice one home on all hosts, /shared/home/alice."""
    cluster.nodes["head"].ask("install -d -o alice /shared/home/alice")
    for node in cluster.nodes.values():
        node.ask("sed -i.good 's|:/home/alice:|:/shared/home/alice:|' /etc/passwd")
    yield "/shared/home/alice"
    for node in cluster.nodes.values():
        node.ask("mv /etc/passwd.good /etc/passwd")
    cluster.nodes["head"].ask("rm -r /shared/home")


def test_output_kept_in_a_shared_home_survives_a_move(qsub, shared_home):
    job = qsub("cd $PBS_O_WORKDIR\n" + LINES % {"here": "."}, "-c", "enabled", "-k", "oe", output=False)
    job.reach("half")
    job.hold()
    job.release("node2")
    job.sign("go")
    job.ended("7")
    text = job.head.ask("cat %s/%s" % (shared_home, KEPT % job.id.split(".")[0]))
    assert text.splitlines() == [str(number) for number in range(1, 10001)]


def test_output_kept_in_a_home_of_the_node_keeps_the_job_there(qsub, node1):
    """The file that the job has open is on that node only: elsewhere it is held with the reason, there it goes on."""
    job = qsub("cd $PBS_O_WORKDIR\n" + LINES % {"here": "."}, "-c", "enabled", "-k", "oe", output=False)
    path = "/home/alice/" + KEPT % job.id.split(".")[0]
    job.reach("half")
    job.hold()
    job.root("qalter -l nodes=node2 " + job.id)
    job.user("%s/qrls %s" % (BIN, job.id))
    job.comment("failure of the restart")
    assert "file %s, which the job has open, cannot be found on this node" % path in job.wait("H")["comment"]
    assert node1.ask("tail -n 1 " + path) == "5000"
    job.release("node1")
    job.sign("go")
    job.ended("7")
    assert node1.ask("cat " + path).splitlines() == [str(number) for number in range(1, 10001)]
    node1.ask("rm " + path)


# -- what a move costs ------------------------------------------------------------

MEMORY = """\
exec python3 -c '
import os, time
held = os.urandom(64 << 20)
open("up", "w").close()
while not os.path.exists("go"):
    time.sleep(0.05)
'
"""


def test_head_moves_no_image(qsub, cluster, node2):
    """Next to nothing goes over the head's wires while 64 MiB move; what it reads itself is seen there."""
    head = cluster.nodes["head"]

    def traffic():
        return sum(map(int, head.ask("cat /sys/class/net/[!l]*/statistics/[rt]x_bytes").split()))

    job = qsub("cd $PBS_O_WORKDIR\n" + MEMORY, "-c", "enabled")
    job.reach("up")
    before = traffic()
    job.hold()
    job.release("node2")
    image = job.image()
    moved = traffic() - before
    size = int(head.ask("du -sb %s | cut -f1" % image))
    assert size > 64 << 20
    assert moved < size / 50, "%d bytes went over the head's wires while an image of %d bytes moved" % (moved, size)
    before = traffic()
    head.ask("head -c 8000000 /dev/zero | tr '\\0' x")
    assert traffic() - before > 8000000
    job.sign("go")
    job.ended("0")


# -- level L3 -----------------------------------------------------------------------

@pytest.fixture
def trip(cluster):
    """Call job_roundtrip on the head; return its answer."""
    return lambda **arguments: Trip(cluster, **arguments).answer()


@pytest.fixture(scope="module", autouse=True)
def periodic(request, cluster):
    """A Trip with periodic images, which takes minutes; the tests before the one that looks at it run meanwhile."""
    if not cluster.torque or all(item.function is not test_periodic_images for item in request.session.items):
        yield None
        return
    trip = Trip(cluster, case="periodic")
    yield trip
    if trip.process.returncode is None:  # nobody has asked for its answer
        trip.process.communicate()


def steps(answer):
    return [(phase["step"], phase["node"]) for phase in answer["phases"]]


def test_chain_of_moves(trip):
    answer = trip(path=["node1", "node2", "node1", "node1"], depth=3)
    assert answer["nodes"] == ["node1", "node2", "node1", "node1"]
    assert answer["counters"] == sorted(set(answer["counters"])) and len(answer["counters"]) == 5
    rests = [state["node"] for state in answer["states"] if state["state"] == "H"]
    assert rests == ["node1", "node2", "node1"]
    assert answer["states"][-1]["state"] == "C"
    assert [phase["resumed"] for phase in answer["phases"] if phase["step"] == "release"] == answer["counters"][1:4]
    walltimes = [phase["walltime"] for phase in answer["phases"] if "walltime" in phase]
    assert len(walltimes) == 4 and walltimes[-1] == answer["walltime"]
    for phase in answer["phases"]:
        assert 0 < phase.get("engine_seconds", 0) < phase["seconds"] or phase["step"] not in ("continue", "hold")


def test_restart_from_an_older_image(trip):
    answer = trip(case="older_image")
    first, second, last = answer["counters"]
    resumed = [phase["resumed"] for phase in answer["phases"] if phase["step"] == "release"]
    assert 0 < resumed[0] <= first < second and last > resumed[0]
    assert steps(answer) == [("submit", "node1"), ("continue", "node1"), ("hold", "node1"), ("older_image", "node1"), ("release", "node2"),
                             ("finish", "node2")]


def test_hold_that_has_to_fail(trip):
    answer = trip(case="failed_hold")
    assert re.fullmatch(r"cannot create image ckpt\.\S+: Permission denied; see to the space, the quota and the rights in the store",
                        answer["comments"][1])
    assert [state["state"] for state in answer["states"]].count("H") == 1


def test_restart_that_has_to_fail(trip):
    answer = trip(case="failed_restart")
    assert re.fullmatch(r"Permanent failure of the restart: image \S+ is damaged: \S+ has another content than was written; "
                        r"take an older image", answer["comments"][1])
    rests = [state for state in answer["states"] if state["state"] == "H"]
    assert [state["node"] for state in rests] == ["node1", "node2"]
    assert len(answer["counters"]) == 2


@pytest.mark.parametrize("case, comment", [
    ("truncated_image", r"image \S+ is damaged: \S+ has \d+ bytes, expected \d+; take an older image"),
    ("changed_manifest", r"image \S+ has a manifest that root's hooks did not write, or that was changed since; take an older image"),
    ("foreign_file", r"image \S+ is damaged: \S+: Permission denied; take an older image"),
    ("deleted_image", r"image \S+ cannot be opened: No such file or directory.*"),
])
def test_restart_that_has_to_fail_because_of_its_image(trip, case, comment):
    answer = trip(case=case)
    assert re.fullmatch("Permanent failure of the restart: " + comment, answer["comments"][1]), answer["comments"]
    assert [state["node"] for state in answer["states"] if state["state"] == "H"] == ["node1", "node2"]
    assert len(answer["counters"]) == 2


def test_directory_with_a_command_in_its_name(trip):
    answer = trip(case="failed_directory")
    assert re.search("is not an absolute path of plain characters", answer["comments"][0]), answer["comments"]
    assert steps(answer) == [("submit", "node1"), ("failed_directory", "node1"), ("finish", "node1")]


@pytest.mark.parametrize("case", ["files", "timers", "connections", "array"])
def test_other_programs(trip, case):
    answer = trip(case=case)
    assert steps(answer) == [("submit", "node1"), ("continue", "node1"), ("hold", "node1"), ("release", "node2"), ("finish", "node2")]


def test_large_program(trip):
    answer = trip(case="memory", memory=64)
    assert answer["image_bytes"] > 64 << 20
    assert answer["image_bytes_per_second"] > 1 << 20 and answer["store_bytes_per_second"] > 1 << 20


@pytest.mark.parametrize("case", ["nested_signal", "nested_command"])
def test_program_that_writes_a_restart_file_of_its_own(trip, case):
    answer = trip(case=case)
    first, second, last = answer["counters"]
    assert 0 < first < second < last
    assert [phase["resumed"] for phase in answer["phases"] if phase["step"] == "release"] == [second]
    assert steps(answer) == [("submit", "node1"), ("continue", "node1"), ("hold", "node1"), ("release", "node2"), ("finish", "node2"),
                             ("starts", "node2")]


def test_output_of_a_job_on_two_nodes(cluster):
    if cluster.refuses_several_nodes():
        pytest.skip("with TORQUE before 4.2.8 every checkpoint of such a job is refused (test_job_on_several_nodes_is_not_checkpointed)")
    answer = Trip(cluster, case="multinode_output", path=["node1", "node2", "node1"]).answer()
    assert steps(answer) == [("submit", "node1"), ("continue", "node1"), ("hold", "node1"), ("release", "node2"), ("hold", "node2"),
                             ("release", "node1"), ("finish", "node1"), ("starts", "node1"), ("nodes_output", "node1")]


def test_nodes_without_mpi(cluster):
    """They are no failure, and nothing is proven."""
    result = Trip(cluster, case="mpi_openmpi").read_result()
    assert (result["passed"], result["cause"]) == (None, "not proven: node1 has no mpicc.openmpi, mpiexec.openmpi")


def test_periodic_images(cluster, periodic):
    """The unit of TORQUE's timer is a minute."""
    answer = periodic.answer()
    assert steps(answer) == [("submit", "node1"), ("periodic", "node1"), ("hold", "node1"), ("release", "node2"), ("periodic", "node2"),
                             ("finish", "node2")]
    assert answer["phases"][1]["seconds"] > 50
    assert cluster.nodes["head"].run("ls -d %s/alice/validate-* %s/*.CK" % (STORE, STORE)).out == ""  # nothing of any round trip


def test_server_that_is_away_during_a_hold(trip, cluster):
    """Its image must take longer than the server needs to stop, a quarter of a second on an idle host."""
    answer = trip(case="server_away", memory=4096 if cluster.is_older_than(4) else 1024)  # that of 2.x needs seconds
    assert steps(answer) == [("submit", "node1"), ("continue", "node1"), ("hold", "node1"), ("release", "node2"), ("finish", "node2")]
    assert answer["phases"][2]["seconds"] > 5
    assert cluster.nodes["head"].run("systemctl is-active pbs_server pbs_sched ckpt-torque-validate-start.timer").out.split() == [
        "active", "active", "inactive"]


def test_validate_goes_through_the_cases_it_is_told(cluster, tmp_path):
    cases = ["move", "full_store", "failed_restart", "nested_signal", "mpi_mpich"]
    done = cluster.playbook("validate", validate_directory=str(tmp_path), validate_cases=cases, validate_path=["node1", "node2"])
    assert done.code == 0, done.out
    results = [result for result in json.loads((tmp_path / "results.json").read_text())["results"] if result["level"] == "L3"]
    assert [(result["case"], result["passed"], len(result["comments"])) for result in results] == [
        ("move", True, 1), ("full_store", True, 3), ("failed_restart", True, 2), ("nested_signal", True, 2), ("mpi_mpich", None, 0)]
    for case in cases:
        assert "Submit a job for each ring, hold and release the jobs elsewhere (%s)" % case in done.out
    full = "the image needs [^,]*, store %s has 64.0 KiB free, reserve .*; the job keeps running" % STORE
    assert re.search(full, results[1]["comments"][1])
    assert re.search(r"failed_restart +node2 +\d", done.out)
    table = (tmp_path / "report.txt").read_text()
    assert "L3 job failed_restart  passed   node1 > node2" in table
    assert "L3 mpi_mpich not run: node1 > node2: not proven: node1 has no mpicc.mpich, mpiexec.mpich" in table.splitlines()


def test_validate_whose_time_is_over_submits_no_job(cluster, tmp_path):
    number = BIN + "/qmgr -c 'print server' | grep next_job_number"
    before = cluster.nodes["head"].ask(number)
    done = cluster.playbook("validate", validate_directory=str(tmp_path), validate_time_budget=1, validate_cases=["move"])
    assert done.code == 0, done.out
    document = json.loads((tmp_path / "results.json").read_text())
    assert [(result["case"], result["passed"], result["cause"]) for result in document["results"] if result["level"] == "L3"] == [
        ("move", None, "not proven: the 1 seconds of validate_time_budget were over")]
    assert [store["store"] for store in document["images"]] == [STORE + " default"]
    assert cluster.nodes["head"].ask(number) == before


# -- what fails, fails well -----------------------------------------------------

def test_hold_that_fails_leaves_the_job_running(qsub, cluster, node1):
    job = qsub.counts()
    node1.ask("cd %s && mv checkpoint checkpoint.away && printf '#!/bin/sh\\necho no room >&2\\nexit 1\\n' > checkpoint "
              "&& chmod 755 checkpoint" % HOOKS)
    try:
        job.user("%s/qhold %s" % (BIN, job.id))
        job.comment("no room")
    finally:
        node1.ask("mv %s/checkpoint.away %s/checkpoint" % (HOOKS, HOOKS))
    facts = job.wait("R")
    assert facts["Hold_Types"] == "n"
    job.finish()


RED = """\
cd $PBS_O_WORKDIR
name=$(printf '\\033[31mred')
ln -s /usr/local/bin/rooted "$name"
"./$name" 600 &
until grep -q red /proc/$!/comm; do sleep 0.1; done
touch up
wait
"""


def test_escape_sequence_in_the_name_of_a_process_is_quoted_in_the_comment(qsub, node1):
    """root reads that in a terminal."""
    node1.ask("install -m 4755 /bin/sleep /usr/local/bin/rooted")
    try:
        job = qsub(RED, "-c", "enabled")
        job.reach("up")
        job.user("%s/qchkpt %s" % (BIN, job.id))
        job.comment(r"(\x1b[31mred) of job %s runs with another user's rights" % job.id)
        assert "\x1b" not in job.head.ask("%s/qstat -f %s" % (BIN, job.id))
    finally:
        node1.ask("rm /usr/local/bin/rooted")


# -- a hold while pbs_server is away, or a second one ------------------------------

class Away:
    """A pbs_server that is killed right after a command, and comes back at the end of the block."""

    def __init__(self, cluster):
        self.cluster, self.head = cluster, cluster.nodes["head"]

    def after(self, script):
        self.head.ask("%s; systemctl kill -s KILL pbs_server; systemctl stop pbs_server pbs_sched" % script)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.head.ask("systemctl reset-failed; systemctl start pbs_server pbs_sched")
        with Jobs(self.cluster):  # waits for the nodes
            pass


def logged(node, job, words, seconds=60):
    """Wait until the hooks on a node have logged these words of a job."""
    node.ask("for _ in $(seq %d); do journalctl -q -t ckpt-torque | grep -F 'job=%s ' | grep -qF '%s' && exit 0; sleep 0.1; done; "
             "journalctl -q -o cat -n 8 -t ckpt-torque >&2; ps -eo pid,ppid,stat,args | grep -E 'criu|pbs_mom|ckpt' >&2; exit 1"
             % (10 * seconds, job.id, words))


@pytest.mark.parametrize("mom_restarts, pause", [(False, 3), (True, 3), (True, 40)])
def test_hold_that_ends_while_the_server_is_away(qsub, cluster, node1, mom_restarts, pause):
    """After 40 seconds pbs_mom is back at the server long before the process that has to tell it of the hold."""
    job = qsub(LARGE, "-c", "enabled")
    job.reach("up")
    with Away(cluster).after("runuser -u alice -- %s/qhold %s" % (BIN, job.id)):
        assert node1.run("journalctl -q -t ckpt-torque | grep 'job=%s ' | grep outcome=held" % job.id).out == "", "it was held too soon"
        logged(node1, job, "outcome=held")
        if mom_restarts:
            node1.ask("systemctl restart pbs_mom")
        time.sleep(pause)
    assert job.wait("H")["Hold_Types"] == "u"
    left = "%s.HT" if cluster.is_older_than(4) else "%s*"  # pbs_mom 2.x keeps a held job
    assert node1.run("ls -d /var/spool/torque/mom_priv/jobs/" + left % job.id).out == ""
    job.release("node2")
    job.finish()


def test_hold_that_fails_while_the_server_is_away(qsub, cluster, node1):
    job = qsub.counts()
    node1.ask("cd %s && mv checkpoint checkpoint.away && printf '#!/bin/sh\\nsleep 2\\necho no room >&2\\nexit 1\\n' > checkpoint "
              "&& chmod 755 checkpoint" % HOOKS)
    try:
        with Away(cluster).after("runuser -u alice -- %s/qhold %s" % (BIN, job.id)):
            time.sleep(5)
    finally:
        node1.ask("mv %s/checkpoint.away %s/checkpoint" % (HOOKS, HOOKS))
    job.comment("no room")
    facts = job.until(lambda facts: facts["Hold_Types"] == "n", "kept its hold")
    assert facts["job_state"] == "R"
    job.finish()


UNTOLD = """\
#!/bin/sh
unset PBS_HOLD_REPEATED
until [ -e /tmp/away ]; do sleep 0.1; done
exec {0}/checkpoint.away "$@"
"""
NOTE = "/var/lib/ckpt-torque/server_answered"


@pytest.fixture
def reported_once(cluster, node1):
    """node1's checkpoint hook takes its pbs_mom for one without the patch hold-told, and waits for /tmp/away; the commands work there."""
    if cluster.is_older_than(4):
        pytest.skip("the node's commands ask trqauthd from TORQUE 4 on")
    name = "/var/spool/torque/server_name"
    node1.ask("cd %s && mv checkpoint checkpoint.away && echo %s > checkpoint && chmod 755 checkpoint"
              % (HOOKS, quoted(UNTOLD.format(HOOKS))))
    try:
        node1.ask("rm -f %s /tmp/away; echo head > %s; systemd-run -q --unit=untold /opt/torque/current/sbin/trqauthd -F" % (NOTE, name))
        node1.ask("for _ in $(seq 50); do %s/qstat -B && exit; sleep 0.1; done; exit 1" % BIN)
        yield
    finally:
        node1.run("mv {0}/checkpoint.away {0}/checkpoint; systemctl stop untold; systemctl reset-failed untold; rm -f {1} {2} /tmp/away"
                  .format(HOOKS, NOTE, name))


@pytest.mark.parametrize("noted", [False, True])
def test_hold_that_begins_while_the_server_is_away(qsub, cluster, node1, reported_once, noted):
    """Without the patch hold-told: the hold fails and the job keeps running, also on a node where no hold has ever asked the server."""
    job = qsub(LARGE, "-c", "enabled")
    job.reach("up")
    if noted:
        node1.ask("mkdir -p -m 755 {0} && touch {1}".format(os.path.dirname(NOTE), NOTE))
    with Away(cluster).after("runuser -u alice -- %s/qhold %s" % (BIN, job.id)):
        node1.ask("touch /tmp/away")
        node1.ask("for _ in $(seq 900); do ls -d %s/%s.CK/ckpt.* && pgrep -u alice -r R,S python3 && exit; sleep 0.1; done; exit 1"
                  % (STORE, job.id))  # stopped since before there was an image
    logged(node1, job, "cause=no_server")
    facts = job.until(lambda facts: facts["job_state"] == "R" and facts["Hold_Types"] == "n", "kept its hold")
    assert "pbs_server does not answer (" in facts["comment"] and "the job keeps running" in facts["comment"], facts
    job.finish()


@pytest.mark.parametrize("signal", ["TERM", "KILL"])
@pytest.mark.parametrize("moment", ["writing", "held"])
def test_pbs_mom_that_is_started_again_during_a_hold(qsub, cluster, node1, moment, signal):
    """While CRIU writes, or when the job has ended; the process of pbs_mom that has to tell pbs_server of the hold comes to that later."""
    again = "{ systemctl kill -s %s --kill-who=main pbs_mom; systemctl restart pbs_mom; }" % signal
    job = qsub(LARGE, "-c", "enabled")
    job.reach("up")
    # A stopped CRIU does not always go on when it is continued (the hook ends it then), so only "writing" stops it, and not before it
    # has stopped the job: earlier a process of its own waits for a signal like that. The image can be whole a third of a second after
    # qhold, so the node looks for the moment from before it.
    node1.ask("rm -f /tmp/caught; cat > /tmp/catch <<'X'\n"
              "main=$(systemctl show -p MainPID --value pbs_mom); for _ in $(seq 3000); do %s && break; sleep 0.01; done\n"
              "pkill -STOP -x -P $main pbs_mom && touch /tmp/caught\nX\nsetsid sh /tmp/catch > /dev/null 2>&1 < /dev/null &"
              % ("pgrep -f '^[^ ]*/criu [d]ump '" if moment == "held" else
                 "pgrep -u alice --runstates t && pkill -STOP -f '^[^ ]*/criu [d]ump '"))
    job.user("%s/qhold %s" % (BIN, job.id))
    try:
        node1.ask("until [ -e /tmp/caught ]; do sleep 0.1; done")
        if moment == "writing":
            node1.ask(again + " && pkill -CONT -x criu")
        logged(node1, job, "outcome=held")
        if moment == "held":
            node1.ask(again)
        other = qsub("exit 3")
        if cluster.is_older_than(4):  # pbs_sched starts it in its next cycle only, ten minutes after the one in which the node was down
            await_nodes(cluster.nodes["head"])
            other.root("qrun %s || true" % other.id)
        assert other.wait("C")["exit_status"] == "3"  # pbs_mom has looked at its jobs meanwhile
        assert job.facts()["job_state"] == "R"
    finally:
        node1.ask("pkill -CONT 'criu|pbs_mom'")
    facts = job.wait("H")
    assert (facts["Hold_Types"], "checkpoint_name" in facts) == ("u", True)
    job.release("node2")
    job.finish()


def test_job_that_is_being_held_is_checkpointed_by_nobody_else(qsub, node1):
    """A second qhold changes nothing: without the patch one-checkpoint it released the first one's hold. Nor does qchkpt."""
    job = qsub(LARGE, "-c", "enabled")
    job.reach("up")
    job.user("{0}/qhold {1}; {0}/qhold {1}; {0}/qchkpt {1}".format(BIN, job.id))
    job.wait("H")
    time.sleep(3)
    assert job.facts()["Hold_Types"] == "u" and job.facts()["job_state"] == "H"
    assert node1.ask("journalctl -q -t ckpt-torque | grep -F 'job=%s ' | grep -c hook=checkpoint" % job.id) == "1"
    job.release("node2")
    job.finish()


def tried(node, job):
    """How many checkpoint hooks pbs_mom has started for a job, and how many it could not start (two ints)."""
    return [int(number) for number in node.ask(
        "journalctl -q -u pbs_mom | grep -c 'checkpoint args: .* {0} '; "
        "cat /var/spool/torque/mom_logs/* | grep -c ';{0};Checkpoint failed' || true"
        .format(job.id)).split()]


def test_periodic_image_that_is_due_during_a_hold(qsub, node1):
    """pbs_mom does not try to make it. Without the patch one-checkpoint it started another hook."""
    with qsub.due(node1, "qhold") as job:
        assert tried(node1, job) == [1, 0]
    job.wait("H")
    assert tried(node1, job) == [1, 0]
    job.release("node2")
    job.finish()


def test_periodic_image_that_is_due_during_a_checkpoint(qsub, node1):
    """It is made afterwards."""
    with qsub.due(node1, "qchkpt") as job:
        assert tried(node1, job) == [1, 0]
        node1.ask("touch /tmp/go")
        name = job.until(lambda facts: "checkpoint_name" in facts, "got no image")["checkpoint_name"]
        job.until(lambda facts: facts["checkpoint_name"] != name, "got no periodic image")
    job.finish()


# -- restarts that fail ---------------------------------------------------------

def test_restart_without_an_image_holds_the_job_and_keeps_its_output(qsub):
    """And what becomes of the image's time stamp is nothing to the walltime."""
    job = qsub.counts()
    time.sleep(5)
    used = seconds(job.hold()["resources_used.walltime"])
    output = job.head.run("cat %s/out" % job.work).out  # none until the job's end where pbs_mom keeps a held job's output
    directory = os.path.dirname(job.image())
    job.head.ask("mv {0} {0}.away".format(directory))
    job.send("node2")
    facts = job.comment("Permanent failure of the restart: ")
    assert "No such file or directory" in facts["comment"], facts["comment"]
    assert job.wait("H")["Hold_Types"] == "u"
    assert job.head.run("cat %s/out" % job.work).out == output
    job.head.ask("mv {0}.away {0}".format(directory))
    job.user("touch -d '2 days ago' {0}/*; chmod 700 {0}".format(directory))
    job.release("node2")
    job.finish()
    assert used <= seconds(job.facts()["resources_used.walltime"]) < used + 60
    assert used >= 5


def test_restart_that_fails_for_good_holds_the_job_and_keeps_image_and_output(qsub):
    assert "has another content than was written" in proofs.damaged_image(qsub)


def test_restart_that_fails_for_now_queues_the_job_and_keeps_image_and_output(qsub):
    assert "try again later or on another node" in proofs.taken_pid(qsub)


def test_restart_hook_that_is_killed_with_the_job_back_leaves_nothing_of_it(qsub, cluster, node2):
    """Not what has a session of its own, either, which pbs_mom does not know. Without restart-status the job ends with its hook."""
    job = qsub("setsid sleep 600 & trap \"kill $!\" EXIT; " + COUNTS, "-c", "enabled")
    job.reach("up")
    job.hold()
    job.send("node2")
    assert node2.ask("python3 - <<'X'\n%s\nX" % attackers.KILL_LATE) == "[]"
    restart_status = not cluster.is_older_than(6, 1)
    if restart_status:
        job.comment("Permanent failure of the restart: the restart hook was killed before the job ran; image kept")
    job.wait("H" if restart_status else "C")
    node2.ask("for _ in $(seq 600); do pgrep -u alice > /dev/null || exit 0; sleep 0.2; done; ps -fu alice >&2; exit 1")
    if not restart_status:
        return
    for node in ("node2", "node1"):
        job.release(node)
        job.hold()
    job.release("node2")
    job.finish()
    assert node2.run("pgrep -u alice").code == 1


def test_hold_that_comes_before_the_job_is_back(qsub, node2):
    """pbs_mom takes the job for running as soon as it has started the restart hook."""
    job = qsub.counts()
    job.hold()
    node2.ask("cat > /tmp/stand_still.py <<'X'\n%s\nX\npython3 /tmp/stand_still.py > /dev/null 2>&1 < /dev/null &" % attackers.STAND_STILL)
    job.release("node2")
    job.hold()
    assert node2.run("pgrep -u alice").code == 1
    job.release("node1")
    job.finish()


def test_restart_tells_in_the_comment_of_the_running_job_what_is_not_as_it_was(qsub, node1, node2):
    """The image that the server names is gone, so it was the newest whole one; and a file is not what it was then."""
    job = qsub("cd $PBS_O_WORKDIR; echo 1 > data; exec 3<> data; " + COUNTS, "-c", "enabled,depth=2")
    job.reach("up")
    name = job.checkpoint()
    node1.ask("while [ $(date +%%s) -le %s ]; do sleep 0.1; done" % name.rpartition(".")[2])  # the second image gets another name
    named = job.hold()["checkpoint_name"]
    job.user("rm -r %s; echo 2 > %s/data" % (job.image(), job.work))
    with configured(node2, changed_files="report"):
        job.send("node2")
        facts = job.comment("restarted from image %s of " % name)
    assert (facts["job_state"], facts["exec_host"].split("/")[0]) == ("R", "node2")
    told = r"restarted from image \S+ of \S+, because %s is gone; it is older: what the job did since is done again; file %s/data, which .*"
    assert re.fullmatch(told % (re.escape(named), job.work), facts["comment"]), facts["comment"]
    job.finish()


# -- no user becomes root through TORQUE (D1, D2, D7); make torque-matrix shows that without our patches he does -----

@pytest.mark.parametrize("name", sorted(proofs.ATTACKS))
def test_attack_does_nothing_and_says_why(qsub, name):
    succeeded, text = proofs.attack(qsub, name)
    assert not succeeded, text
    assert proofs.ATTACKS[name].reason in text


# -- a job exists once ---------------------------------------------------------------

def test_job_that_was_started_again_elsewhere(qsub, cluster, node1, node2):
    """node1's pbs_mom does not answer and its job keeps running: the checkpoint that pbs_mom would make writes and removes nothing.

    When that pbs_mom is back, pbs_server ends the older life; 2.x does not, and an administrator has to.
    """
    job = qsub.counts()
    job.user("%s/qchkpt %s" % (BIN, job.id))
    facts = job.until(lambda facts: "checkpoint_name" in facts, "got no image")
    name, session, directory = facts["checkpoint_name"], job.session("node1"), "%s/%s.CK" % (STORE, job.id)
    node1.ask("systemctl stop pbs_mom")
    job.root("qmgr -c 'set server scheduling = false'")
    try:
        job.head.run("cd /; %s/qrerun -f %s > /dev/null 2>&1 &" % (BIN, job.id))  # it goes on waiting for an answer of node1's
        job.wait("Q", 90)
        job.root("qalter -l nodes=node2 " + job.id)
        job.root("qrun -H node2 " + job.id)
        restarted = "journalctl -q -t ckpt-torque -o cat | grep 'hook=restart .*job=%s .*outcome=restarted'" % re.escape(job.id)
        job.until(lambda facts: facts["job_state"] == "R" and node2.run(restarted).code == 0, "does not run on node2")
        assert node1.run("pgrep -u alice").code == 0
        before = node2.ask("cd %s; find . -type f -exec sha256sum {} + | sort" % directory)
        done = node1.hook("checkpoint", session, job.id, "alice", "alice", directory, name + "9", 0, 1)
        assert done.code == 77
        assert re.match("job %s continues on node2 since .*; what runs on node1 is an older life of it, since .*; nothing was written or "
                        "removed$" % re.escape(job.id), done.err)
        assert node2.ask("cd %s; find . -type f -exec sha256sum {} + | sort" % directory) == before
    finally:
        job.root("qmgr -c 'set server scheduling = true'")
        node1.ask("systemctl start pbs_mom")
    if cluster.is_older_than(4):
        node1.ask("pkill -KILL -u alice")
    node1.ask("for _ in $(seq 300); do pgrep -u alice > /dev/null || exit 0; sleep 0.2; done; echo the older life is running >&2; exit 1")
    job.finish()


@pytest.mark.parametrize("name", ["../image", "a" * 256])
def test_name_that_no_image_has_is_refused(qsub, name):
    job = qsub(COUNTS, "-h", "-c", "enabled")
    done = job.head.run("runuser -u alice -- %s/qalter -W checkpoint_name=%s %s" % (BIN, name, job.id))
    assert done.code != 0 and "Illegal attribute or resource value" in done.err, done.err
    job.user("%s/qalter -W checkpoint_name=%s %s" % (BIN, "a" * 255, job.id))


# -- administration ----------------------------------------------------------------

def mom(node):
    return node.ask("systemctl show -p MainPID --value pbs_mom")


def test_jobs_outlive_a_restart_of_pbs_mom(qsub, cluster, node1):
    job = qsub.counts()
    before = mom(node1)
    done = cluster.playbook("site", "--limit", "node1", torque_mom_limits={"LimitNOFILE": 3000, "LimitMEMLOCK": None})
    assert done.code == 0 and "Restart pbs_mom" in done.out, done.out
    assert mom(node1) != before
    node1.ask("for _ in $(seq 600); do /opt/torque/current/sbin/momctl -q version && exit; sleep 0.1; done; exit 1")
    job.hold()
    job.release("node2")
    job.finish()
    assert cluster.playbook("site", "--limit", "node1").code == 0


PREEMPTABLE = {"queue_type": "Execution", "checkpoint_dir": STORE, "checkpoint_defaults": "enabled,periodic,interval=60", "enabled": True,
               "started": True}


def test_jobs_of_a_queue_are_checkpointable_by_default(qsub, cluster):
    """Nobody has to know of qsub -c; what a user gives with it counts instead."""
    head = cluster.nodes["head"]
    batch = {"queue_type": "Execution", "checkpoint_dir": STORE, "enabled": True, "started": True}
    for _turn in range(2):
        done = cluster.playbook("site", "--limit", "head", torque_server_queues={"batch": batch, "preemptable": PREEMPTABLE})
        assert done.code == 0, done.out
    assert done.changed("head") == 0, done.out
    job, other = qsub(COUNTS, "-q", "preemptable"), qsub(COUNTS, "-q", "preemptable", "-c", "none")
    assert (job.facts()["Checkpoint"], other.facts()["Checkpoint"]) == ("enabled,periodic,interval=60", "none")
    job.reach("up")
    job.hold()
    job.release("node2")
    job.finish()
    other.finish()
    head.ask("{0}/qdel -p {1} {2}; {0}/qmgr -c 'delete queue preemptable'".format(BIN, job.id, other.id))


def test_job_starts_processes_by_pbs_mom_after_a_restart(qsub):
    """pbs_mom knows them by the job's cookie, which they have in their environment."""
    job = qsub("cd $PBS_O_WORKDIR\nfor round in 1 2 3; do\n%s/pbsdsh /bin/sh -c \"hostname > $PWD/on$round\"; touch up$round\n"
               "while [ ! -e go$round ]; do sleep 0.1; done\ndone\nexit 5" % BIN, "-c", "enabled")
    for number, (node, following) in enumerate([("node1", "node2"), ("node2", "node1"), ("node1", "node1")], 1):
        job.reach("up%d" % number)
        assert job.text("on%d" % number) == node
        job.hold()
        job.release(following)
        job.sign("go%d" % number)
    job.ended("5")


STARTED_BY_MOM = """\
cd $PBS_O_WORKDIR
cat > worker.sh <<'W'
n=$(cat state 2> /dev/null || echo 0)
hostname >> up
while [ ! -e leave ] && [ ! -e go ]; do n=$((n+1)); echo $n >> numbers; sleep 0.05; done
echo $n > state
touch left
W
cat > start.sh <<'S'
rm -f leave left
trap 'touch leave; %s' TERM
%s/pbsdsh /bin/sh -c "cd $PWD; exec sh worker.sh" & pid=$!
wait; wait
[ ! -e leave ] || exit 3
exit 5
S
/usr/local/bin/ckpt-run -- sh start.sh
exit $?"""
"""A program that pbs_mom starts, counts, and continues from a file of its own; it ends for a checkpoint, and pbsdsh with it."""


def test_program_that_pbs_mom_has_started_ends_for_a_checkpoint(qsub, cluster):
    """pbsdsh hears of it at once. In 2.x and 4.2, without the patch task-end, only when the checkpoint is over: there it is killed."""
    more = "until [ -e left ]; do sleep 0.1; done; kill -KILL $pid" if cluster.is_older_than(4, 5) else ":"
    job = qsub(STARTED_BY_MOM % (more, BIN), "-c", "enabled")
    job.reach("up")
    for number, node in enumerate(["node2", "node1", "node2"], 2):
        job.hold()
        job.release(node)
        job.until(lambda _facts, lines=number: len(job.text("up").split()) == lines, "did not start its program again")
    job.sign("go")
    job.ended("5")
    assert job.text("up").split() == ["node1", "node2", "node1", "node2"]
    lines = job.text("numbers").split()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


def test_server_stops_while_a_job_runs(qsub, cluster):
    """At SIGTERM it waits for the job's end, and systemd kills it after a minute."""
    head, job = cluster.nodes["head"], qsub.counts()
    result = head.ask("systemctl stop pbs_server; systemctl show -p Result --value pbs_server")
    head.ask("systemctl start pbs_server pbs_sched")
    assert result == "success"
    await_nodes(head)
    job.finish()


@pytest.mark.parametrize("drift, command", [
    ("set queue batch enabled = false", "set queue batch enabled = True"),
    ("unset queue batch checkpoint_dir", "set queue batch checkpoint_dir = %s" % STORE),
])
def test_drift_of_the_server_is_repaired_by_one_change(cluster, drift, command):
    head = cluster.nodes["head"]
    head.ask("%s/qmgr -c '%s'" % (BIN, drift))
    done = cluster.playbook("site", "--limit", "head", "-v")
    assert (done.code, done.changed("head")) == (0, 1), done.out
    assert re.search(r'"executed": \["%s"\]' % re.escape(command), done.out), done.out
    assert cluster.playbook("site", "--limit", "head").changed("head") == 0


@pytest.mark.parametrize("named, alices", [
    (STORE + "/$USER", STORE + "/alice"),
    (STORE + "/$USERS", STORE + "/$USERS"),
    (STORE + "/$USER/x", STORE + "/$USER/x"),
    ("$USER", "$USER"),
])
def test_queue_with_a_directory_for_each_user(cluster, named, alices):
    """The patch user-directory: at its end only, and after a slash."""
    head = cluster.nodes["head"]
    head.ask("for it in 'create queue own queue_type=execution' 'set queue own checkpoint_dir = %s' 'set queue own enabled = true'; do "
             "%s/qmgr -c \"$it\"; done" % (named, BIN))
    job_id = head.ask("cd /tmp && runuser -u alice -- sh -c 'echo true | %s/qsub -h -q own -c enabled'" % BIN)
    try:
        attributes = head.ask("%s/qstat -f %s" % (BIN, job_id)).replace("\n\t", "")
        assert re.search("checkpoint_dir = (.*)", attributes).group(1) == alices
    finally:
        head.ask("{0}/qdel {1}; {0}/qdel -p {1} > /dev/null 2>&1; {0}/qmgr -c 'delete queue own'".format(BIN, job_id))


@pytest.mark.parametrize("attempt", range(5))
def test_requests_that_come_at_once_are_all_answered(cluster, attempt):
    """They connect while pbs_server is stopped, which has few threads after its start. Without the patch two of four attempts failed."""
    head = cluster.nodes["head"]
    head.ask("systemctl restart pbs_server && until %s/qstat -B > /dev/null 2>&1; do sleep 0.1; done; sleep 1" % BIN)
    result = head.run("pkill -STOP -x pbs_server; for _ in $(seq 10); do { timeout 20 %s/qstat -B > /dev/null 2>&1; echo $?; } & done; "
                      "sleep 2; pkill -CONT -x pbs_server; wait" % BIN)
    assert result.out.split() == ["0"] * 10


def test_server_rests_after_a_mail(qsub, cluster):
    """An unpatched pbs_server keeps a CPU busy for ever once sendmail has ended."""
    job = qsub("exit 0", "-m", "abe")
    job.wait("C")
    script = "cat /proc/$(pgrep -x pbs_server)/stat | cut -d' ' -f14,15; cut -d' ' -f1 /proc/uptime"
    time.sleep(2)
    before = cluster.nodes["head"].ask(script).split()
    time.sleep(5)
    after = cluster.nodes["head"].ask(script).split()
    used = (sum(map(int, after[:2])) - sum(map(int, before[:2]))) / 100
    assert used < (float(after[2]) - float(before[2])) / 10, "pbs_server used %.2f s of CPU" % used


def test_configuration_that_somebody_wrote_by_hand_is_kept(cluster, node1):
    path = "/var/spool/torque/mom_priv/config"
    before = node1.ask("cat " + path)
    node1.ask("printf '# of ours\\n$loglevel 2\\n' > " + path)
    done = cluster.playbook("site", "--limit", "node1")
    assert done.code == 0, done.out
    assert node1.ask("cat " + path) == before
    kept = node1.ask("ls %s.*~" % path).split()
    assert [node1.ask("cat " + name) for name in kept] == ["# of ours\n$loglevel 2"]
    assert node1.ask("stat -c '%%U %%a' %s" % kept[0]) == "root 644"
    node1.ask("rm " + kept[0])


def test_foreign_objects_are_left_alone(cluster):
    head = cluster.nodes["head"]
    head.ask("%s/qmgr -c 'create queue theirs queue_type=execution'" % BIN)
    assert cluster.playbook("site", "--limit", "head").changed("head") == 0
    assert cluster.playbook("site", "--limit", "head", torque_server_purge=["queues"]).changed("head") == 1
    assert "theirs" not in head.ask("%s/qmgr -c 'print server'" % BIN)


# -- a node that cannot checkpoint takes no jobs ------------------------------------

CRIU = "/opt/criu/current/sbin/criu"
GONE = "ERROR ckpt.torque: criu is not at /opt/criu/current/sbin/criu on this node; run the role criu"


class Looked:
    """node1, at which pbs_mom looks every five seconds."""

    def __init__(self, cluster):
        self.cluster, self.head, self.node = cluster, cluster.nodes["head"], cluster.nodes["node1"]

    def shown(self):
        """The node's attributes as pbsnodes says them."""
        return dict(re.findall(r"^     (\S+) = (.*)$", self.head.ask("%s/pbsnodes node1" % BIN), re.MULTILINE))

    def wait(self, state, message=None):
        """Wait until the node has this state and says this, or nothing if there is no message; return its attributes."""
        deadline = time.time() + 60
        while True:
            attributes = self.shown()
            match = re.search(r",message=(.*?) ?,[a-z]+=", attributes.get("status", ""))
            if attributes["state"] == state and (match and match.group(1)) == message:
                return attributes
            assert time.time() < deadline, attributes
            time.sleep(0.2)

    def take_away(self):
        self.node.ask("mv %s %s.away" % (CRIU, CRIU))

    def give_back(self):
        self.node.ask("mv %s.away %s" % (CRIU, CRIU))


@pytest.fixture
def looked(cluster):
    done = cluster.playbook("site", "--limit", "node1", torque_mom_health_check_interval="1",
                            torque_mom_directives={"status_update_time": 5})
    assert done.code == 0, done.out
    looked = Looked(cluster)
    looked.wait("free")
    yield looked
    looked.node.run("mv %s.away %s; systemctl start pbs_mom" % (CRIU, CRIU))
    assert cluster.playbook("site", "--limit", "node1").code == 0
    looked.wait("free")


def test_job_waits_while_the_engine_is_missing_from_the_start_of_pbs_mom_on(qsub, looked):
    looked.take_away()
    looked.node.ask("systemctl restart pbs_mom")
    looked.wait("down", GONE)
    job = qsub("cd $PBS_O_WORKDIR; hostname > out.name; exit 3", "-c", "enabled")
    time.sleep(15)  # three looks
    assert job.facts()["job_state"] == "Q"
    looked.wait("down", GONE)
    looked.give_back()
    looked.wait("free")
    job.root("qmgr -c 'set server scheduling = true'")  # pbs_sched looks every ten minutes only; no node that is free again calls it
    assert job.wait("C")["exit_status"] == "3"
    assert job.text("out.name") == "node1"


def test_job_that_runs_while_its_node_says_error_ends_as_ever(qsub, looked):
    """Nobody can hold, signal or delete it meanwhile: that pbs_server refuses, as for a node that does not answer."""
    job = qsub.counts()
    looked.take_away()
    looked.wait("down", GONE)
    for command in ("qhold", "qsig -s USR1", "qdel"):
        done = job.head.run("runuser -u alice -- %s/%s %s" % (BIN, command, job.id))
        assert done.code != 0 and "Server could not connect to MOM" in done.err, done.err
    job.finish()
    looked.wait("down", GONE)


def test_running_job_can_be_moved_once_its_node_is_mended(qsub, looked):
    job = qsub.counts()
    looked.take_away()
    looked.wait("down", GONE)
    looked.give_back()
    looked.wait("free")
    job.hold()
    job.release("node2")
    job.finish()


def test_drained_node_keeps_its_note_whatever_it_says(cluster, looked):
    def pbs_node(state):
        done = cluster.module("head", "pbs_node", node="node1", state=state)
        assert done.code == 0, done.out
    pbs_node("drained")
    looked.take_away()
    assert looked.wait("down,offline", GONE)["note"] == "ckpt-torque: maintenance"
    looked.give_back()
    assert looked.wait("offline")["note"] == "ckpt-torque: maintenance"
    pbs_node("released")
    looked.wait("free")


def test_script_of_the_sites_own_takes_the_place_of_ours(cluster, node1):
    config = "grep -v '^#' /var/spool/torque/mom_priv/config | grep -E 'node_check|down_on' || true"
    before = node1.ask(config)
    assert before == "$node_check_script %s/health\n$node_check_interval 400\n$down_on_error true" % HOOKS
    done = cluster.playbook("site", "--limit", "node1", torque_mom_directives={"$Node_Check_Script": "/bin/true", "node_check_interval": 9})
    assert done.code == 0, done.out
    assert node1.ask(config) == "$node_check_script /bin/true\n$node_check_interval 9"
    done = cluster.playbook("site", "--limit", "node1", torque_mom_health_check_enabled=False)
    assert (done.code, node1.ask(config)) == (0, ""), done.out
    assert cluster.playbook("site", "--limit", "node1").code == 0
    assert node1.ask(config) == before


# -- ports --------------------------------------------------------------------------

LISTEN = "import socket, time; server = socket.create_server((str(), %d)); time.sleep(600)"


@pytest.mark.parametrize("name, service, port", [("node1", "pbs_mom", 15003), ("head", "pbs_server", 15001), ("head", "pbs_sched", 15004)])
def test_port_that_is_taken_is_said_by_name(cluster, name, service, port):
    host, units = cluster.nodes[name], ["pbs_mom"] if name == "node1" else ["pbs_server", "pbs_sched"]
    since = host.ask("date +%s")
    host.ask("systemctl stop %s && systemd-run --collect --unit thief --property Type=exec python3 -c '%s'" % (service, LISTEN % port))
    try:
        host.ask("for _ in $(seq 600); do ss -Hltn sport = :%d | grep -q . && exit 0; sleep 0.1; done; exit 1" % port)
        done = cluster.playbook("site", "--limit", name)
        process = host.ask("systemctl show -p MainPID --value thief")
        path = host.ask("readlink /proc/%s/exe" % process)
        sentence = "%s: port %d, which %s needs, is taken by %s (process %s); stop that program; it was not started." % (
            name, port, service, path, process)
        assert done.code != 0 and sentence in re.sub(r"\s+", " ", done.out), done.out
        assert host.run("pgrep -x " + service).out == ""
        assert "Address already in use" not in host.ask("journalctl -q -o cat -u %s --since @%s" % (service, since))  # it was not tried
    finally:
        host.ask("systemctl stop thief; for _ in $(seq 600); do ss -Hltn sport = :%d | grep -q . || break; sleep 0.1; done; "
                 "systemctl reset-failed; systemctl start %s" % (port, " ".join(units)))  # the kernel closes it after the process's end
    assert cluster.playbook("site", "--limit", name).changed(name) == 0


def test_service_that_does_not_start_for_another_reason(cluster):
    """One of two: what systemd says of it is in the sentence."""
    head = cluster.nodes["head"]
    head.ask("systemctl stop pbs_server pbs_sched && chmod -x /opt/torque/current/sbin/pbs_server")
    try:
        done = cluster.playbook("site", "--limit", "head")
        assert done.code != 0 and "head: systemctl start pbs_server.service: Job for pbs_server.service failed" in done.out, done.out
    finally:
        head.ask("chmod +x /opt/torque/current/sbin/pbs_server; systemctl reset-failed; systemctl start pbs_server pbs_sched")


def test_ports_that_are_everyones(node1):
    node1.ask("sysctl -q net.ipv4.ip_unprivileged_port_start=80")
    try:
        done = node1.run("systemctl restart pbs_mom")
        assert done.code != 0 and node1.run("pgrep -x pbs_mom").out == ""
        done = node1.run("/usr/libexec/ckpt-torque-ports pbs_mom 15002 pbs_mom 15003")
        assert (done.code, done.err) == (
            69, "any user of this host may use the ports from 80 on (net.ipv4.ip_unprivileged_port_start), and TORQUE takes whoever uses "
            "one below 1024 for root; set it to 1024\n")
    finally:
        node1.ask("sysctl -q net.ipv4.ip_unprivileged_port_start=1024; systemctl reset-failed; systemctl start pbs_mom")


# -- what pbs_server and pbs_mom did wrong when several asked for one job -----------


def test_job_that_several_ask_for_at_a_time_is_started_once(cluster):
    """`make storm` does so five hundred times. A pbs_server 2.x starts some twice, and none is lost."""
    count = storms.storm(cluster, 20, 4, 600)
    assert (count["moves"], count["jobs that ended well"]) == (20, 4)
    assert count["starts beyond one for each move"] == 0 or cluster.is_older_than(4)


def test_hold_of_a_whole_array_checkpoints_its_running_jobs(qsub, cluster):
    """Before 6.1.1 it is refused, and each is held by its own id."""
    job = qsub("cd $PBS_O_WORKDIR; touch up.$PBS_ARRAYID; while [ ! -e go ]; do sleep 0.1; done; exit 5", "-t", "0-1", "-c", "enabled",
               output=False)
    parts = [job.id.replace("[]", "[%d]" % index) for index in range(2)]

    def each(reached, what):
        for part in parts:
            job.id = part
            job.until(reached, what)
        job.id = parts[0].replace("[0]", "[]")

    def runs(facts):
        if facts["job_state"] == "Q" and cluster.is_older_than(4):  # pbs_mom was busy with the other one; pbs_sched waits ten minutes
            job.root("qmgr -c 'set server scheduling = true'")
        return (facts["job_state"], facts.get("substate")) == ("R", "42")  # pbs_mom has it

    try:
        job.reach("up.0")
        job.reach("up.1")
        for extra in ("", "-t 0-1 "):
            done = job.head.run("runuser -u alice -- %s/qhold %s%s" % (BIN, extra, quoted(job.id)))
            if cluster.is_older_than(6, 1, 1):
                assert "its jobs that run are held one by one, each by its own id; its others are held" in done.err
                each(lambda facts: (facts["job_state"], facts["Hold_Types"]) == ("R", "n"), "was marked")
                job.user("%s/qhold %s" % (BIN, " ".join(map(quoted, parts))))
            else:
                assert done.code == 0, done.err
            each(lambda facts: facts["job_state"] == "H" and facts.get("checkpoint_name"), "was not held with an image")
            listed = json.loads(cluster.nodes["node1"].ask("torque-ckpt list --json"))["images"]
            assert {image["job"]: image["state"] for image in listed if image["job"] in parts} == dict.fromkeys(parts, "whole")
            job.user("%s/qrls %s" % (BIN, quoted(job.id)))
            each(runs, "did not run again")
        job.sign("go")
        each(lambda facts: facts.get("job_state", "C") == "C" and facts.get("exit_status") == "5", "did not end by itself")
    finally:
        job.head.run("rm -rf %s/%s[*" % (STORE, job.id.split("[")[0]))


def test_hold_of_a_job_that_its_node_does_not_have_fails_at_once(qsub, cluster, node1):
    job = qsub.counts()
    node1.ask("%s/../sbin/momctl -c %s" % (BIN, job.id))
    started = time.time()
    done = job.head.run("runuser -u alice -- %s/qhold %s" % (BIN, job.id))
    session = job.session("node1")
    qsub.purge(job)
    node1.ask("pkill -KILL -s %s" % session)  # nobody else ends it now
    message = "qhold: Request invalid for state of job MSG=MOM rejected hold request: 15018 " + job.id
    assert done.err.strip() == ("" if cluster.answers_holds_early() else message)
    assert time.time() - started < 60


DEEP = """\
import os, sys
os.chdir(sys.argv[1])
left = 4090 - len(sys.argv[1])
while left > 1:
    name = "d" * min(200, left - 1)
    os.mkdir(name)
    os.chdir(name)
    left -= len(name) + 1
open("A" * 255, "w").close()
"""


def test_job_directory_on_the_server_is_removed_with_the_rights_of_its_owner(qsub, cluster):
    """Its user fills it as he likes: a path that is longer than paths can be, and root's own stays root's."""
    job = qsub.counts()
    job.hold()
    directory = "/var/spool/torque/checkpoint/%s.CK" % job.id
    before = storms.processes(cluster)
    assert job.head.ask("stat -c %U " + directory) == "alice"
    job.user("python3 -c %s %s" % (quoted(DEEP), directory))
    job.head.ask("mkdir {0}/roots; touch {0}/roots/kept".format(directory))
    with forgotten_at_once(job):
        job.root("qdel " + job.id)
        for _attempt in range(100):
            left = job.head.ask("cd %s && find . | sort | cut -c1-80" % directory).split()
            if len(left) == 3:
                break
            time.sleep(0.2)
        assert left == [".", "./roots", "./roots/kept"]
        assert storms.processes(cluster) == before


EXCHANGE = """\
cd $1
for number in $(seq 20); do mkdir d$number; ln -s $2 l$number; done
touch ready
while [ -e ready ]; do
  for number in $(seq 20); do mv --exchange -T d$number l$number; done
  sleep 0.05
done
"""
"""Exchanges directories for links to another one as long as it is let."""


@pytest.fixture
def slow_to_open(cluster):
    """Have pbs_server, and what it starts, wait a tenth of a second before each file or directory that it opens."""
    head = cluster.nodes["head"]
    head.ask("apt-get -qq update && apt-get -qq install -y strace > /dev/null 2>&1")
    head.ask("systemd-run --quiet --collect --unit slow strace -f -q -o /dev/null -e trace=openat -e inject=openat:delay_enter=100000 "
             "-p $(pgrep -o -x pbs_server) && for _ in $(seq 600); do grep -q 'TracerPid:.*[1-9]' /proc/$(pgrep -o -x pbs_server)/status "
             "&& exit; sleep 0.1; done; exit 1")
    yield
    head.ask("systemctl stop slow")


def test_links_exchanged_while_the_server_removes_a_job_directory(qsub, cluster, slow_to_open):
    """A directory may have become a link between pbs_server's look and its next step: as root it removed what was behind that."""
    job = qsub.counts()
    job.hold()
    head, directory, other = job.head, "/var/spool/torque/checkpoint/%s.CK" % job.id, "/srv/other"
    head.ask("mkdir {0} && cd {0} && touch $(seq 1000)".format(other))
    try:
        with forgotten_at_once(job):
            job.user("(timeout 60 sh -c %s - %s %s || true) > /dev/null 2>&1 &" % (quoted(EXCHANGE), directory, other))
            head.ask("for _ in $(seq 600); do [ -e %s/ready ] && exit; sleep 0.1; done; exit 1" % directory)
            job.root("qdel " + job.id)
            head.ask("for _ in $(seq 300); do [ -e %s/ready ] || exit 0; sleep 0.1; done; exit 1" % directory)
            head.run("sleep 5; pkill -u alice timeout")
            assert head.ask("ls %s | wc -l" % other) == "1000"
    finally:
        head.run("pkill -u alice timeout; rm -r " + other)


def test_scheduler_makes_pbs_server_complain_of_nothing(qsub):
    job = qsub("exit 0")
    since = job.head.ask("date +%s")
    job.wait("C")
    job.root("qmgr -c 'set server scheduling = True'")  # another cycle
    assert job.head.ask("journalctl -u pbs_server --since @%s -o cat | grep -c 'Assertion failed.*req_select' || true" % since) == "0"
