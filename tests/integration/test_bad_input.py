"""What the roles for server and nodes refuse: each by its exact sentence, and afterwards the hosts are as they were."""
import pytest
from cluster import HOOKS, STORE
from jobs import BIN
from refusals import MANAGED, refusal
from trips import answer

pytestmark = pytest.mark.usefixtures("untouched")


# -- the server -----------------------------------------------------------------------

def queues(**more):
    return dict({"batch": {"queue_type": "Execution", "checkpoint_dir": STORE, "enabled": True, "started": True}}, **more)


ILL_SET = ("head: torque_server_scheduler (pbs_sched) must be pbs_sched, maui or none, not pbs_sched where torque_build_scheduler_enabled "
           "is false, and torque_server_queues must hold a queue; nothing was changed.")


@pytest.mark.parametrize("variables, sentence", [
    ({"torque_server_nodes": ["node1", "node2", "nowhere.invalid"]},
     "head: cannot resolve nowhere.invalid to an IPv4 address; add it to DNS or /etc/hosts; nothing was changed."),
    ({"torque_server_nodes": ["node1", "node2", "NODE1"]},
     "nodes NODE1 and node1 are the same host; use one name, the one the server knows it by"),
    ({"torque_server_queues": {}}, ILL_SET),
    ({"torque_build_scheduler_enabled": False}, ILL_SET),
    ({"torque_server_queues": queues(), "checkpoint_store_user_directories_enabled": True},
     "head: the checkpoint_dir of batch (torque_server_queues) is the store itself, but with checkpoint_store_user_directories_enabled "
     "images lie in the directories of their users; set it to %s/$USER; nothing was changed." % STORE),
])
def test_server_that_cannot_be(cluster, variables, sentence):
    refusal(cluster.role("head", "torque_server", **variables), sentence)


def test_queue_with_a_running_job_stays(cluster):
    """The job goes on, and nothing else of what was asked for is done."""
    head = cluster.nodes["head"]
    head.ask(BIN + "/qmgr -c 'create queue busy queue_type=execution,enabled=true,started=true'")
    job = head.ask("cd /tmp && echo sleep 600 | runuser -u alice -- %s/qsub -q busy -o /dev/null -e /dev/null" % BIN)
    try:
        head.ask("for n in $(seq 300); do %s/qstat -f %s | grep -q 'job_state = R' && exit; sleep 0.2; done; exit 1" % (BIN, job))
        done = cluster.role("head", "torque_server", torque_server_queues=queues(busy="absent"), torque_server_attributes={"log_level": 1})
        refusal(done, "queue busy still holds jobs (1 Running): let them end or move them with qmove, then run again; nothing was changed")
        assert "job_state = R" in head.ask("%s/qstat -f %s" % (BIN, job))
        assert "log_level" not in head.ask(MANAGED)
    finally:
        head.ask("cd /; %s/qdel -p %s; %s/qmgr -c 'delete queue busy'" % (BIN, job, BIN))


def test_server_that_does_not_answer(cluster):
    head = cluster.nodes["head"]
    head.ask("pkill -STOP -x pbs_server")
    try:
        done = cluster.module("head", "qmgr", qmgr_path=BIN + "/qmgr", server={"log_level": 1}, timeout=2)
        refusal(done, BIN + "/qmgr got no answer within 2 seconds and was killed; look at the log of pbs_server")
    finally:
        head.ask("pkill -CONT -x pbs_server")


# -- a node ---------------------------------------------------------------------------

@pytest.mark.parametrize("variables, sentence", [
    ({"torque_mom_remote_checkpoint_dirs": ["/ckpt%d" % number for number in range(33)], "torque_mom_usecp": []},
     "pbs_mom would not go by this configuration: $remote_checkpoint_dirs has 33 entries, and pbs_mom has room for 32; correct it; "
     "nothing was changed"),
    ({"torque_mom_directives": {"checkpoint_intervall": 5}},
     "pbs_mom would not go by this configuration: $checkpoint_intervall is no directive of pbs_mom, which ignores the line; perhaps "
     "$checkpoint_interval was meant; correct it; nothing was changed"),
    ({"torque_mom_hooks_directory": "/nowhere"},
     "pbs_mom would not go by this configuration: %s; correct it; nothing was changed" % "; ".join(
         "$%s /nowhere/%s cannot be used: No such file or directory; pbs_mom would ignore the line and continue without it" % pair
         for pair in (("checkpoint_run_exe", "run"), ("checkpoint_script", "checkpoint"), ("restart_script", "restart"),
                      ("node_check_script", "health")))),
])
def test_configuration_that_pbs_mom_would_not_go_by(cluster, variables, sentence):
    refusal(cluster.role("node1", "torque_mom", **variables), sentence)


def test_configuration_that_somebody_wrote_by_hand(cluster):
    """It is checked line by line; the role puts it right."""
    node, path = cluster.nodes["node1"], "/var/spool/torque/mom_priv/config"
    node.ask("cp -p %s /tmp/config && printf '%%s\n' '$pbsserver head' '$logevel 3' 'checkpoint_script %s/checkpoint' > %s"
             % (path, HOOKS, path))
    try:
        assert answer(cluster.module("node1", "mom_config_info", version="6.1.3"))["faults"] == [
            "line 2: $logevel is no directive of pbs_mom, which ignores the line; perhaps $loglevel was meant",
            "line 3: checkpoint_script lacks its $"]
        assert node.ask("cat " + path).splitlines()[1] == "$logevel 3"
    finally:
        node.ask("mv /tmp/config " + path)


@pytest.mark.parametrize("name, sentence", [
    ("nowhere.invalid", "node2: cannot resolve nowhere.invalid to an IPv4 address; add it to DNS or /etc/hosts; nothing was changed."),
    ("localhost", "node2: localhost resolves to 127.0.0.1 here, which no other host can reach; correct its line in /etc/hosts; nothing was "
     "changed."),
])
def test_server_that_a_new_node_cannot_reach(cluster, name, sentence):
    """Before anything is installed, and again the next time."""
    node = cluster.nodes["node2"]
    node.ask("mv /opt/torque/current /tmp/current")
    try:
        for _run in range(2):
            refusal(cluster.role("node2", "torque_mom", torque_server_name=name), sentence)
            assert node.run("ls -d /opt/torque/current").code != 0
    finally:
        node.ask("mv -T /tmp/current /opt/torque/current")
