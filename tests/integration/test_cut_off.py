"""A node that lives and reaches the store, but not the server: what its pbs_mom does meanwhile harms no job. Needs TORQUE's source."""
import cuts
import pytest
from cluster import STORE
from jobs import BIN, LARGE, Jobs

pytestmark = pytest.mark.usefixtures("torque")
MOM = "/var/spool/torque"


@pytest.fixture
def qsub(cluster):
    with Jobs(cluster) as jobs:
        yield jobs


@pytest.fixture(scope="module", autouse=True)
def watchful(cluster):
    """Have pbs_server notice within seconds that a node is away, and pbs_mom look at its jobs each second."""
    if not cluster.torque:
        yield
        return
    head, nodes = cluster.nodes["head"], [cluster.nodes["node1"], cluster.nodes["node2"]]
    for node in nodes:
        node.ask("cd %s/mom_priv && cp -p config config.good && printf '$check_poll_time 1\\n$status_update_time 2\\n' >> config && "
                 "systemctl restart pbs_mom" % MOM)
    # The rate counts from the next look on, and the first one comes soon after a start.
    head.ask("%s/qmgr -c 'set server node_check_rate = 6' && systemctl restart pbs_server && systemctl start pbs_sched" % BIN)
    yield
    head.ask("%s/qmgr -c 'set server node_check_rate = 150'" % BIN)
    for node in nodes:
        node.ask("cd %s/mom_priv && mv config.good config && systemctl restart pbs_mom" % MOM)


def strike_timer(node):
    """Have the minutes of the jobs' periodic images be over."""
    node.ask("echo '$wallmult 10000' >> %s/mom_priv/config && systemctl kill --signal=HUP --kill-who=main pbs_mom" % MOM)


def reset_timer(node):
    node.ask("sed -i '/wallmult/d' %s/mom_priv/config && systemctl kill --signal=HUP --kill-who=main pbs_mom" % MOM)


def start_elsewhere(job):
    """Queue a job again whose node is away, and see it run on node2."""
    job.head.ask("for _ in $(seq 300); do %s/pbsnodes node1 | grep -q 'state = .*down' && exit; sleep 0.2; done; exit 1" % BIN)
    job.root("qrerun -f " + job.id)
    job.wait("Q")
    job.root("qalter -l nodes=node2 " + job.id)
    job.root("qrun -H node2 " + job.id)
    job.until(lambda facts: facts["job_state"] == "R" and job.nodes["node2"].run("pgrep -u alice").code == 0, "does not run on node2")


@pytest.mark.parametrize("way", sorted(cuts.WAYS))
def test_job_of_a_node_that_is_cut_off(qsub, cluster, node1, node2, way):
    """It continues elsewhere, and what node1's pbs_mom still makes of it is refused; a pbs_mom that waits for the server makes nothing."""
    head, job = cluster.nodes["head"], qsub.counts("-c", "enabled,periodic,interval=60")
    name, session, directory = job.checkpoint(), job.session("node1"), "%s/%s.CK" % (STORE, job.id)
    images = "cd %s; find . -type f -exec sha256sum {} + | sort" % directory
    refused = ("journalctl -q -t ckpt-torque -o cat --no-pager | grep 'code=77 job=%s node=node1 .* continues on node2 .*nothing was "
               "written or removed'" % job.id)
    job.root("qmgr -c 'set server scheduling = false'")
    try:
        with cuts.cut(node1, head, way):
            start_elsewhere(job)
            assert node1.run("pgrep -u alice").code == 0
            before = node2.ask(images)
            if way == "reject":
                strike_timer(node1)
            else:
                assert node1.hook("checkpoint", session, job.id, "alice", "alice", directory, name + "9", 0, 1).code == 77
            node1.ask("for _ in $(seq 300); do %s && exit; sleep 0.2; done; echo nothing was refused >&2; exit 1" % refused)
            assert node2.ask(images) == before
    finally:
        job.root("qmgr -c 'set server scheduling = true'")
        reset_timer(node1)
    node1.ask("for _ in $(seq 400); do pgrep -u alice > /dev/null || exit 0; sleep 0.2; done; echo the older life is running >&2; exit 1")
    job.finish()
    assert job.id not in node1.ask("ls %s/mom_priv/jobs %s/spool" % (MOM, MOM))
    assert head.ask("grep -hc ';E;%s;' %s/server_priv/accounting/*" % (job.id, MOM)) == "1"


TELLS = {
    "drop": "ss -Htnp state syn-sent | grep -F pbs_mom | grep -qv \"pid=$(systemctl show -p MainPID --value pbs_mom),\"",
    "reject": "journalctl -q -t pbs_mom | grep -q 'Job %s failed .* to get connection to'",
}
"""Whether the process of pbs_mom's that made an image waits for the server, or has tried in vain to reach it."""


@pytest.mark.parametrize("way", sorted(TELLS))
def test_hold_that_ends_while_the_node_is_cut_off(qsub, cluster, node1, way):
    """The server hears of it afterwards. One that rejects fails each attempt at once, so that there must be more than one."""
    job = qsub(LARGE, "-c", "enabled")
    job.reach("up")
    job.user("%s/qhold %s" % (BIN, job.id))
    held = "journalctl -q -t ckpt-torque | grep -F 'job=%s ' | grep -q outcome=held" % job.id
    tells = TELLS[way].replace("%s", job.id)
    with cuts.cut(node1, cluster.nodes["head"], way):
        assert node1.run(held).code, "it was held too soon"
        node1.ask("for _ in $(seq 300); do %s && %s && exit; sleep 0.2; done; ss -tnp >&2; exit 1" % (held, tells))
        assert job.facts()["job_state"] == "R"
    assert job.wait("H", 90)["Hold_Types"] == "u"
    job.release("node2")
    job.finish()
