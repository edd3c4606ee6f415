"""A cluster of stock TORQUE that somebody built and set up by hand, elsewhere than the roles do, is taken over while jobs run on it."""
import json
import os
import pathlib
import shutil

import pytest
import yaml
from cluster import EXAMPLES, GROUP, TOP, Cluster, hosts
from jobs import COUNTS, Jobs, Qjob, await_nodes, quoted

PREFIX, HOME, ARCHIVE = "/usr/local/torque", "/var/spool/pbs", "/shared/torque.tar"
STORE, SHARED = "/shared/ckpt", "/shared/work"
DAEMONS = {"head": ["pbs_server", "pbs_sched", "trqauthd"], "node1": ["pbs_mom"], "node2": ["pbs_mom"]}
SERVER = ("create queue long queue_type=Execution", "set queue long enabled=true", "set queue long started=true",
          "set queue long max_running=9", "set server default_queue=long", "set server scheduling=true", "set server keep_completed=60",
          "set server node_check_rate=222", "set server managers += alice@head")
CREATE = """cd /
echo y | {0}/sbin/pbs_server -t create -d {1}
for _ in $(seq 100); do [ -s {1}/server_priv/serverdb ] && break; sleep 0.1; done
sleep 2
pkill -x pbs_server
for _ in $(seq 100); do pgrep -x pbs_server || break; sleep 0.1; done
printf 'node1 np=2\\nnode2 np=2\\n' > {1}/server_priv/nodes
systemctl daemon-reload
systemctl enable --now trqauthd pbs_server
"""
CONFIG = "# by hand\n$pbsserver head\n$usecp *:/shared /shared\n$loglevel 3\n$prologalarm 120\n"


class Found(Qjob):
    """A job of alice's of before the take-over."""

    def submit(self, script, *options, output=True):
        self.work = "%s/%s" % (SHARED, self.work.rpartition("/")[2])
        self.make_directory()
        self.user("cat > %s/job.sh <<'X'\necho started >> %s/starts\n%s\nX" % (self.work, self.work, script))
        self.id = self.user("cd {0} && {1}/bin/qsub -o {0}/out -e {0}/err {2} job.sh".format(self.work, PREFIX, " ".join(options)))


@pytest.fixture(scope="module")
def cluster():
    """The cluster as somebody made it: units of TORQUE's own, pbs_sched started from a shell."""
    keep = os.environ.get("CKPT_TORQUE_KEEP")  # for work on the test: take the TORQUE that is built, leave the hosts up
    if not keep:
        hosts("down", GROUP)
    cluster = Cluster()
    assert cluster.version == "6.1.3", "build.sh knows how to build 6.1.3"
    head = cluster.nodes["head"]
    source = json.loads(pathlib.Path(cluster.inventory).read_text())["all"]["vars"]["torque_source"]
    for path, name in ((source, "torque.tar"), (TOP / "tests/integration/takeover/build.sh", "build.sh")):
        assert cluster.module("head", "copy", "ansible.builtin", src=str(path), dest="/tmp/" + name).code == 0
    built = head.run("[ -e {2} ] || sh /tmp/build.sh /tmp/torque.tar {0} {1} {2}".format(PREFIX, HOME, ARCHIVE), patience=3600)
    assert built.code == 0, built.out + built.err
    head.ask("ldconfig && echo head > %s/server_name" % HOME)
    for node in (cluster.nodes["node1"], cluster.nodes["node2"]):
        node.ask("apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libxml2 > /dev/null; "
                 "tar -xf %s -C / && ldconfig && echo head > %s/server_name" % (ARCHIVE, HOME))
        node.ask("cat > %s/mom_priv/config << 'END'\n%sEND" % (HOME, CONFIG))
    head.ask(CREATE.format(PREFIX, HOME))
    for node in (cluster.nodes["node1"], cluster.nodes["node2"]):
        node.ask("systemctl daemon-reload; systemctl enable --now pbs_mom")
    head.ask("for _ in $(seq 100); do %s/bin/qmgr -c 'print server' > /dev/null && break; sleep 0.2; done" % PREFIX)
    for line in SERVER:
        head.ask("%s/bin/qmgr -c %s" % (PREFIX, quoted(line)))
    head.ask("%s/sbin/pbs_sched -d %s; install -d -m 755 %s" % (PREFIX, HOME, SHARED))
    head.ask("for _ in $(seq 300); do [ $(%s/bin/pbsnodes | grep -c 'state = free') = 2 ] && exit; sleep 0.2; done; exit 1" % PREFIX)
    yield cluster
    if not keep:
        hosts("down", GROUP)


def programs(node, names):
    """Where the running daemons' programs are (set of str)."""
    return {node.ask("readlink -f /proc/$(pgrep -ox %s)/exe" % name) for name in names}


def print_server(head, directory):
    return head.ask("%s/qmgr -c 'print server'" % directory)


def test_cluster_made_by_hand(cluster, tmp_path):
    head, node1 = cluster.nodes["head"], cluster.nodes["node1"]
    running, held = Found(cluster), Found(cluster)
    running.submit(COUNTS, "-l nodes=node1")
    held.submit("echo 1; exit 5", "-h", "-l nodes=node2")
    head.ask("for _ in $(seq 300); do [ -e %s/up ] && exit; sleep 0.2; done; exit 1" % running.work)
    session = running.session("node1")
    before = print_server(head, PREFIX + "/bin")

    adopted = tmp_path / "adopted"
    done = cluster.playbook("adopt", adopt_directory=str(adopted), adopt_torque_directory=PREFIX + "/bin")
    assert done.code == 0, done.out
    assert print_server(head, PREFIX + "/bin") == before
    for remark in ("queue long has no checkpoint_dir; it will be the store",
                   "root@head is not among the managers of the server; it will be: the roles and torque-ckpt act as root",
                   "root@head is not among the operators of the server; it will be: the roles and torque-ckpt act as root"):
        assert '"%s"' % remark in done.out, done.out

    variables = yaml.safe_load((adopted / "group_vars/all.yml").read_text())
    assert {name: value for name, value in variables.items() if name.startswith(("torque_home", "torque_version", "torque_build"))} == {
        "torque_version": "6.1.3", "torque_home": HOME, "torque_build_options": ["--enable-syslog"]}

    site = tmp_path / "site"
    shutil.copytree(EXAMPLES / "take-over", site)
    shutil.rmtree(site / "host_vars")
    shutil.copytree(adopted / "host_vars", site / "host_vars")
    shutil.copy(adopted / "group_vars/all.yml", site / "group_vars/all/torque.yml")
    inventory = [str(site / "inventory.yml"), cluster.write_inventory(tmp_path / "hosts.json")]
    check = cluster.playbook("site", "--check", "--diff", inventory=inventory)
    assert check.code == 0, check.out
    assert print_server(head, PREFIX + "/bin") == before

    # pbs_sched belongs to no unit: the playbook names it, and goes on when it was stopped.
    scheduler = head.ask("pgrep -x pbs_sched")
    done = cluster.playbook("site", inventory=inventory)
    assert done.code == 2 and "pbs_sched (process %s)" % scheduler in done.out, done.out
    assert running.session("node1") == session
    head.ask("kill " + scheduler)
    done = cluster.playbook("site", inventory=inventory)
    assert done.code == 0, done.out
    for name, daemons in DAEMONS.items():
        assert all(path.startswith("/opt/torque/") for path in programs(cluster.nodes[name], daemons)), name
        assert all("--enable-syslog" in cluster.nodes[name].ask("/proc/$(pgrep -ox %s)/exe --about" % daemon)
                   for daemon in daemons if daemon in ("pbs_server", "pbs_mom")), name
    await_nodes(head)
    after = print_server(head, "/opt/torque/current/bin").splitlines()
    assert set(before.splitlines()) <= set(after)
    assert set(after) - set(before.splitlines()) == {
        "set queue long checkpoint_dir = " + STORE, "set server managers += root@head", "set server operators = root@head"}
    assert set(CONFIG.splitlines()[1:]) <= set(node1.ask("cat %s/mom_priv/config" % HOME).splitlines())

    # The jobs that were found: one runs on, the other is still held and starts.
    assert running.session("node1") == session and held.facts()["job_state"] == "H"
    running.sign("go")
    running.wait("C")  # TORQUE does not learn the status of a job that outlives a restart of a stock pbs_mom
    assert running.counted() > 0
    held.user("/opt/torque/current/bin/qrls " + held.id)
    held.ended("5")

    with Jobs(cluster) as jobs:
        job = jobs.counts()
        job.hold()
        job.release("node2")
        job.finish()
    again = cluster.playbook("site", inventory=inventory)
    assert (again.code, [again.changed(name) for name in cluster.nodes]) == (0, [0, 0, 0]), again.out
