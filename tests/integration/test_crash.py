"""Nodes that crash, and nodes that stay away: their jobs continue from their images, once. Needs TORQUE's source."""
import contextlib
import json
import re
import threading
import time

import pytest
from cluster import GROUP, hosts
from jobs import BIN, Jobs
from power import crash, free, missed, start
from restartable import script, whole

pytestmark = pytest.mark.usefixtures("torque")
MOM = "/var/spool/torque"
DROPINS = "/etc/systemd/system/pbs_mom.service.d"


@pytest.fixture
def qsub(cluster):
    with Jobs(cluster) as jobs:
        yield jobs


@pytest.fixture(scope="module", autouse=True)
def node1_is_back(cluster):
    yield
    if cluster.torque:
        start(cluster)


def test_jobs_of_a_node_that_crashes(qsub, cluster):
    """One continues from its image where it was, by itself; one that must not be rerun and has no image ends, not with 0."""
    job, lost = qsub.counts(), qsub.counts("-r", "n")
    name = job.checkpoint()
    crash(cluster)
    start(cluster)
    job.continued("node1", name)
    assert lost.wait("C")["exit_status"] == "-4"
    job.finish()
    left = cluster.nodes["node1"].ask("ls %s/mom_priv/jobs %s/spool" % (MOM, MOM))
    assert job.id not in left and lost.id not in left


def test_crash_that_pbs_server_has_not_heard_of(qsub, cluster):
    """It crashes, too, while it holds a job. A pbs_mom that is started once more meanwhile reports the crash again."""
    head, node1 = cluster.nodes["head"], cluster.nodes["node1"]
    job = qsub.counts()
    name = job.hold_untold("node1")
    crash(cluster)
    head.ask("systemctl kill --signal=KILL pbs_server; systemctl stop pbs_server")
    try:
        start(cluster)
        node1.ask("for _ in $(seq 300); do grep -aq '%s;.*exit status -5' %s/mom_logs/* && exit; sleep 0.1; done; exit 1" % (job.id, MOM))
        node1.ask("sleep 2; systemctl restart pbs_mom")
    finally:
        head.ask("systemctl reset-failed; systemctl start pbs_server pbs_sched")
    assert job.wait("H")["checkpoint_name"] == name  # without the repetition it took five minutes, and images on the node were removed
    free(cluster)
    job.release("node2")
    job.finish()
    if not cluster.is_older_than(4):  # 2.5 keeps its files of a job that it reported as held
        assert job.id not in node1.ask("ls %s/mom_priv/jobs" % MOM)


def test_job_that_is_held_as_its_node_goes_away(qsub, cluster):
    """qrerun -f frees it from there, and it stays held."""
    job = qsub.counts()
    name = job.hold_untold("node1")
    crash(cluster)
    job.root("qrerun -f " + job.id)
    assert job.wait("H")["checkpoint_name"] == name
    start(cluster)
    free(cluster)
    job.release("node2")
    job.finish()


@contextlib.contextmanager
def booting(cluster):
    """Boot node1 whenever it has crashed, as a real host does by itself."""
    ended, crashes = threading.Event(), []

    def watch():
        while not ended.wait(0.5):
            if hosts("podman", "inspect", "-f", "{{.State.Running}}", "ckpt-%s-node1" % GROUP) == "false":
                crashes.append(time.time())
                start(cluster)

    thread = threading.Thread(target=watch)
    thread.start()
    yield crashes
    ended.set()
    thread.join()


def test_validate_crashes_a_node(cluster, tmp_path):
    free(cluster)
    with booting(cluster) as crashes:
        done = cluster.playbook("validate", validate_directory=str(tmp_path), validate_cases=["move"], validate_path=["node1", "node2"],
                                validate_crash_node="node1")
    assert done.code == 0, done.out
    results = [result for result in json.loads((tmp_path / "results.json").read_text())["results"] if result["level"] == "L3"]
    assert [(result["case"], result["passed"], result["nodes"]) for result in results] == [
        ("move", True, ["node1", "node2"]), ("node_crash", True, ["node1"])], results
    assert len(crashes) == 1


def test_validate_crashes_no_node_that_has_other_jobs(cluster, qsub, tmp_path):
    free(cluster)
    other = qsub.counts()
    done = cluster.playbook("validate", validate_directory=str(tmp_path), validate_cases=[], validate_crash_node="node1")
    result, = [result for result in json.loads((tmp_path / "results.json").read_text())["results"] if result["level"] == "L3"]
    assert (result["passed"], result["cause"]) == (
        None, "not proven: node1 has other jobs, which would crash with it: " + other.id), done.out
    assert cluster.nodes["node1"].ask("systemctl list-units --all 'ckpt-torque-validate-crash*' --no-legend") == ""
    other.finish()


def test_program_with_restart_files_on_a_node_that_crashes(qsub, cluster):
    """It continues from its own file, as that was at the time of the image."""
    job = qsub("cd $PBS_O_WORKDIR\n" + script(), "-c", "enabled")
    job.reach("program.py")
    name = job.checkpoint()
    job.progress("node1")
    crash(cluster)
    start(cluster)
    job.continued("node1", name)
    job.progress("node1")
    job.sign("stop")
    job.ended("5")
    assert whole(job.text("out").splitlines())


def test_node_that_lost_the_directories_of_pbs_mom(qsub, cluster):
    """As after a new file system at /var, when /etc still has the unit and its list of directories."""
    node1 = cluster.nodes["node1"]
    free(cluster)
    node1.ask("systemctl stop pbs_mom && mv %s /var/lost" % MOM)
    done = cluster.playbook("site", "--limit", "head,node1")
    assert done.code == 0, done.out
    assert done.changed("node1") > 0
    assert node1.ask("cat %s/mom_priv/config" % MOM) == node1.ask("cat /var/lost/mom_priv/config; rm -r /var/lost")
    free(cluster)
    qsub.counts().finish()


@pytest.fixture
def diskless(cluster):
    """Have node1 lose its jobs' files at each start of pbs_mom, and pbs_server soon ask for jobs that are not reported to it."""
    head, node1 = cluster.nodes["head"], cluster.nodes["node1"]
    free(cluster)
    rate = head.ask("%s/qmgr -c 'print server' | sed -n 's/.* job_stat_rate = //p'" % BIN)
    head.ask("%s/qmgr -c 'set server job_stat_rate = 3'" % BIN)
    node1.ask("mkdir -p {0}; printf '[Service]\nExecStartPre=/bin/sh -c \"rm -rf {1}/mom_priv/jobs/* {1}/spool/*\"\n' > {0}/diskless.conf; "
              "systemctl daemon-reload".format(DROPINS, MOM))
    yield
    start(cluster)
    node1.ask("rm -r %s; systemctl daemon-reload" % DROPINS)
    head.ask("%s/qmgr -c '%s'" % (BIN, "set server job_stat_rate = " + rate if rate else "unset server job_stat_rate"))


@pytest.mark.parametrize("rerunable", ["y", "n"])
def test_jobs_of_a_node_without_a_disk_that_crashes(qsub, cluster, diskless, rerunable):
    """Its pbs_mom knows none of them: one continues from its image, once; the other starts anew, or ends if it must not be rerun."""
    job, other = qsub.counts("-r", "n"), qsub.counts("-r", rerunable)
    name = job.checkpoint()
    crash(cluster)
    other.user("rm %s/up" % other.work)
    start(cluster)
    patience = 420 if (4,) <= cluster.get_version() < (5,) else 60  # 4.x waits three minutes after pbs_mom's last report of a job
    for again in [job] + [other] * (rerunable == "y"):
        facts = again.until(lambda facts: facts.get("start_count") == "2" and facts["job_state"] == "R", "was not started again", patience)
        assert facts["exec_host"].startswith("node1/") and "exit_status" not in facts  # no pbs_mom has reported its end
    assert job.facts()["checkpoint_name"] == name
    if rerunable == "y":
        other.reach("up")
        other.finish(starts=2)
    else:
        assert other.wait("C").get("exit_status") != "0"
    job.finish()
    restarts = "journalctl -q -t ckpt-torque -o cat | grep -c 'hook=restart .*job=%s .*outcome=restarted' || true"
    assert [cluster.nodes["node1"].ask(restarts % each.id) for each in (job, other)] == ["1", "0"]


def test_jobs_of_a_node_that_crashes_run_elsewhere(qsub, cluster):
    """One moves with its image, one that has none starts anew."""
    head = cluster.nodes["head"]
    free(cluster)
    moved, again = qsub.counts(), qsub.counts("-r", "y")
    name = moved.checkpoint()
    head.ask("%s/qmgr -c 'set server scheduling = false'" % BIN)
    try:
        crash(cluster)
        start(cluster)
        for job in (moved, again):
            job.wait("Q")
            job.root("qalter -l nodes=node2 " + job.id)
    finally:
        head.ask("%s/qmgr -c 'set server scheduling = true'" % BIN)
    moved.continued("node2", name)
    assert again.wait("R", 90)["exec_host"].startswith("node2/")
    moved.finish()
    again.progress("node2")
    again.sign("go")
    again.ended("5", starts=2)
    lines = again.text("out").splitlines()
    life = lines[len(lines) - 1 - lines[::-1].index("1"):]  # before it, TORQUE 4.2 has the output of the first run
    assert life == [str(number) for number in range(1, len(life) + 1)]


def test_restart_of_pbs_mom_alone_keeps_the_jobs(qsub, cluster):
    """It is not their parent afterwards and reports exit status 0 for them, as ever."""
    node1 = cluster.nodes["node1"]
    free(cluster)
    job = qsub.counts()
    noted = node1.ask("cat %s/mom_priv/jobs/boot" % MOM)
    for how in ("systemctl restart pbs_mom", "systemctl kill --signal=KILL --kill-who=main pbs_mom; sleep 1; systemctl restart pbs_mom"):
        node1.ask(how)
        job.progress("node1")
    assert node1.ask("cat %s/mom_priv/jobs/boot" % MOM) == noted
    free(cluster)  # pbs_server 2.5 asks nothing of a node that it takes for away
    job.hold()
    job.release("node2")
    job.finish()


@pytest.fixture
def no_alice(cluster):
    """Have node1 not know alice while the context lasts, as without its directory service."""
    @contextlib.contextmanager
    def gone():
        node1.ask("cp -p /etc/passwd /etc/passwd.good; sed -i /^alice:/d /etc/passwd")
        try:
            yield
        finally:
            node1.ask("mv /etc/passwd.good /etc/passwd")

    node1 = cluster.nodes["node1"]
    free(cluster)
    return gone


def test_users_are_unknown_when_pbs_mom_starts(qsub, cluster, no_alice):
    """A directory service that comes up 20 seconds later costs no job."""
    node1, job = cluster.nodes["node1"], qsub.counts("-r", "n")
    with no_alice():
        node1.ask("systemctl restart pbs_mom; sleep 20")
    job.progress("node1")
    free(cluster)
    job.hold()
    job.release("node2")
    job.finish()


def test_user_stays_unknown_when_pbs_mom_starts(qsub, cluster, no_alice):
    """After a minute pbs_mom forgets the job and its processes end; the node works. A pbs_mom 5.1.2 or newer died at each start."""
    node1, job = cluster.nodes["node1"], qsub.counts("-r", "n")
    try:
        with no_alice():
            node1.ask("systemctl restart pbs_mom; for _ in $(seq 90); do [ -e %s/mom_priv/jobs/%s.JB ] || exit 0; sleep 1; done; exit 1"
                      % (MOM, job.id))
            node1.ask("sleep 2; systemctl is-active pbs_mom")
            if not cluster.is_older_than(4):
                node1.ask("! pgrep -u $(stat -c %%u %s)" % job.work)
    finally:
        node1.run("systemctl reset-failed pbs_mom; systemctl start pbs_mom; pkill -KILL -u alice")
    free(cluster)
    assert qsub("exit 3").wait("C")["exit_status"] == "3"
    job.root("qdel -p " + job.id)


def test_job_of_a_node_that_stays_away(qsub, cluster, policy):
    """The timer's service queues it again, and it continues elsewhere; what the node still has of it when it is back is dropped."""
    head = cluster.nodes["head"]
    free(cluster)
    job, other = qsub.counts(), qsub.counts()
    name = job.checkpoint()
    crash(cluster)
    missed(cluster)

    def actions():
        return {fact["job"]: fact["action"] for fact in json.loads(head.ask("torque-ckpt node-down --json"))["jobs"]}

    assert re.match("waits until 20", actions()[job.id])
    time.sleep(2)
    head.ask("systemctl start ckpt-torque-node-down.service")
    job.wait("Q")
    line = "^hook=node_down action=queued again .* job=%s " % job.id
    head.ask("for _ in $(seq 600); do journalctl -q -t ckpt-torque -o cat | grep -q '%s' && exit; sleep 0.1; done; exit 1" % line)
    left = "left alone: the image that the server names is not whole here, or the server knows of none"
    assert actions() == {other.id: left}
    job.root("qalter -l nodes=node2 " + job.id)
    job.root("qmgr -c 'set server scheduling = true'")  # starts a cycle, which qalter does not
    facts = job.wait("R", 90)
    assert facts["exec_host"].startswith("node2/") and facts["checkpoint_name"] == name
    before = job.progress("node2")
    start(cluster)
    free(cluster)
    other.until(lambda facts: facts.get("exit_status") == "-4" and facts["job_state"] in "QR", "was not queued again")
    assert job.progress("node2") > before
    job.finish()
    assert cluster.nodes["node1"].ask("ls %s/spool | grep %s || true" % (MOM, job.id)) == ""
