"""The hooks on a real NFS server, in virtual machines: run by `molecule test -s store_nfs` after site.yml and validate.yml."""
import json
import os
import pathlib
import re
import time

import pytest
from cluster import JOB, STORE, Cluster, Job
from jobs import Jobs, Qjob, quoted
from trips import Trip, answer

GROUP = "store_nfs"
OWN = STORE + "/alice"
EXPORT = "/srv/ckpt"
LARGE = 'bytearray(os.urandom(1 << 20)) * 160'
"""Memory of a job whose image takes a while, even compared with the rest."""


@pytest.fixture(scope="session")
def cluster():
    return Cluster(GROUP, "guests.py")


@pytest.fixture(scope="session")
def server(cluster):
    return cluster.nodes["nfs"]


@pytest.fixture
def trip(cluster):
    trip = Trip(cluster, store_path=STORE, images_path=OWN, timeout=120)
    yield trip
    trip.clean()


def store_info(cluster, node, **options):
    return answer(cluster.module(node, "store_info", path=STORE, user="alice", **options))


def as_alice(script):
    return "setpriv --reuid alice --regid alice --init-groups sh -c " + quoted(script)


def holding(memory):
    """Return the job's program (str) with so much memory (an expression)."""
    return JOB.replace("counter = 0\n", "counter = 0\nheld = %s\n" % memory)


class OwnJob(Job):
    """A job whose images lie in its user's own directory, where root may do nothing."""

    def __init__(self, node, number, memory=""):
        super().__init__(node, number)
        self.work = "%s/%s" % (OWN, self.id)
        self.directory = "%s/%s.CK" % (OWN, self.id)
        self.program = holding(memory) if memory else JOB

    def start(self, script="exec python3 job.py", variables=""):
        pid_file = "/tmp/%s.pid" % self.id
        self.node.ask(as_alice("mkdir %s && cd %s && cat > job.py <<'X'\n%s\nX\nprintf '#!/bin/bash\\n%s\\n' > job.sh && chmod 755 job.sh"
                               % (self.work, self.work, self.program, script)))
        self.session = int(self.node.ask(
            "rm -f {pid_file}; cd /; setsid --fork {alice} < /dev/null > /dev/null 2>&1; "
            "for _ in $(seq 600); do [ -s {pid_file} ] && break; sleep 0.1; done; cat {pid_file}".format(pid_file=pid_file, alice=as_alice(
                "cd %s; echo $$ > %s; PBS_JOBID=%s exec /usr/lib/ckpt-torque/run /bin/bash ./job.sh > out 2> err"
                % (self.work, pid_file, self.id)))))
        self.progress()
        return self

    def end(self):
        self.node.ask(as_alice("touch %s/stop" % self.work))
        status_file = "/tmp/%s.exit" % self.id
        return int(self.node.ask("for i in $(seq 600); do [ -s {0} ] && break; sleep 0.1; done; cat {0}".format(status_file)))

    def published(self):
        """Names of what is in the job's directory of images, beside its incarnation."""
        names = self.node.ask(as_alice("ls -A %s" % self.directory)).split()
        return [name for name in names if not name.startswith(".incarnation.")]

    def clean(self, nodes):
        for node in nodes:
            node.run("pkill -KILL -u alice; rm -f /tmp/%s.*" % self.id)
        self.node.run(as_alice("rm -rf %s %s" % (self.work, self.directory)))


@pytest.fixture
def job(cluster):
    """Return a function that starts an OwnJob."""
    jobs = []

    def make(node, memory=""):
        jobs.append(OwnJob(node, 2000 + len(jobs), memory))
        return jobs[-1].start()
    yield make
    for entry in jobs:
        entry.clean([cluster.nodes["node1"], cluster.nodes["node2"]])


def start_hold(job):
    """Call the checkpoint hook for a hold and do not wait; what it says and its status go to /tmp/ID.said."""
    job.images += 1
    name = job.name()
    arguments = " ".join(map(str, [job.session, job.id, "alice", "alice", job.directory, name, 15, "-"]))
    job.node.ask("rm -f /tmp/{0}.said; cd / && setsid --fork sh -c 'env -i PATH=/bin:/usr/bin /usr/lib/ckpt-torque/checkpoint {1} "
                 "2> /tmp/{0}.said; echo status $? >> /tmp/{0}.said' > /dev/null 2>&1 < /dev/null".format(job.id, arguments))
    return name


def draft(job, server):
    """Wait until the image is being written, and is of some size."""
    for _attempt in range(600):
        usage = server.run("du -sk %s/alice/%s.CK/.ckpt*" % (EXPORT, job.id)).out.split()
        if usage and int(usage[0]) > 20 << 10:
            return
        time.sleep(0.1)
    raise AssertionError("no image is being written: %s" % job.node.run("cat /tmp/%s.said" % job.id).out)


def hook_result(job, seconds=100):
    """Wait until the hook has ended; return what it said and its exit status."""
    for _attempt in range(seconds // 10):
        text = job.node.ask("for i in $(seq 600); do grep -qs ^status {0} && break; sleep 0.1; done; cat {0}".format(
            "/tmp/%s.said" % job.id))
        if "status" in text:
            words, status = text.rsplit("status ", 1)
            return words.strip(), int(status)
    raise AssertionError("the hook has not ended: " + text)


# What the store is

def test_store(cluster):
    for node in ("node1", "node2", "head"):
        info = store_info(cluster, node)
        assert (info["faults"], info["id"]) == ([], "default")
        assert (info["mount"]["type"], info["mount"]["source"], info["mount"]["point"]) == ("nfs4", "nfs:" + EXPORT, STORE)
        assert {"hard", "nosuid", "nodev", "vers=4.2"} <= set(info["mount"]["options"])
        assert info["root"] == {"refusal": "Permission denied", "squashed": True}
        assert info["user"]["uid"] == info["uid"] == 1500


@pytest.mark.parametrize("node", ["node1", "node2"])
def test_apparmor_is_active(cluster, node):
    """The whole of this scenario runs with it, and with the profiles that Debian has loaded."""
    lines = cluster.nodes[node].ask("cat /sys/module/apparmor/parameters/enabled; wc -l < /sys/kernel/security/apparmor/profiles; "
                                    "cat /proc/1/attr/apparmor/current").split()
    assert (lines[0], lines[2]) == ("Y", "unconfined")
    assert int(lines[1]) > 10


def test_token_shows_that_nodes_have_the_same_storage(cluster):
    token = {"path": STORE, "user": "alice", "name": "t1"}
    assert answer(cluster.module("node2", "store_token_info", timeout=0, **token))["seen"] is False
    assert answer(cluster.module("node1", "store_token", **token))["changed"] is True
    try:
        seen = answer(cluster.module("node2", "store_token_info", **token))
        assert (seen["seen"], seen["writer"]) == (True, "node1")
        print("a new file is seen after %s seconds" % seen["seconds"])
    finally:
        answer(cluster.module("node1", "store_token", state="absent", **token))


def test_export(server):
    assert server.ask("cat /etc/exports.d/ckpt-torque.exports").splitlines()[1:] == [
        "/srv/ckpt 192.168.76.0/24(rw,sync,root_squash,no_subtree_check,fsid=76)"]
    assert re.search(r"^/srv/ckpt\s+192.168.76.0/24\(sync,.*root_squash", server.ask("exportfs -v"), re.MULTILINE)


def test_validate_filled_the_store_for_a_job(cluster):
    """Root may not enter the directory over which it mounts."""
    if not cluster.torque:
        pytest.skip("needs TORQUE's source")
    reports = os.environ.get("CKPT_TORQUE_REPORTS") or os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]
    results = json.loads(pathlib.Path(reports, "store_nfs/results.json").read_text())["results"]
    assert [(result["passed"], result["cause"]) for result in results if result.get("case") == "full_store"] == [(True, "")]


def test_store_without_directories_of_users(cluster):
    """Nobody could make the directory of a job there."""
    inventory = os.environ["MOLECULE_INVENTORY_FILE"]
    done = Cluster._ansible("ansible", "-i", inventory, "-e", "checkpoint_store_user_directories_enabled=false", "-m", "include_role", "-a",
                            "name=ckpt.torque.checkpoint_store tasks_from=node", "node1")
    assert done.code != 0
    assert ("node1: root is squashed on /shared/ckpt, so that nobody can make directories of jobs there; set "
            "checkpoint_store_user_directories_enabled, or export it with no_root_squash.") in done.out


# A job

def test_no_image_goes_over_the_head(cluster, job):
    """Nor does one in which pbs_server has a part."""
    if not cluster.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")
    head, node1 = cluster.nodes["head"], cluster.nodes["node1"]
    traffic = "cd /sys/class/net/eth1/statistics && echo $(($(cat rx_bytes) + $(cat tx_bytes)))"
    node1.ask(as_alice("mkdir -p %s/counted && cd %s/counted && cat > job.py <<'X'\n%s\nX"
                       % (OWN, OWN, holding(LARGE))))
    job_id = head.ask(as_alice("cd /tmp && echo 'cd %s/counted && exec python3 job.py > out' | /opt/torque/current/bin/qsub -c enabled "
                               "-l nodes=node1 -o /dev/null -e /dev/null" % OWN))
    try:
        node1.ask("for i in $(seq 600); do [ -s %s/counted/out ] && break; sleep 0.1; done; [ -s %s/counted/out ]" % (OWN, OWN))
        before = int(head.ask(traffic))
        head.ask(as_alice("/opt/torque/current/bin/qhold %s" % job_id))
        head.ask("for i in $(seq 300); do /opt/torque/current/bin/qstat -f %s | grep -q 'job_state = H' && exit 0; sleep 0.2; done; exit 1"
                 % job_id)
        over_the_head = int(head.ask(traffic)) - before
        directory = "%s/alice/%s.CK" % (EXPORT, job_id)
        image = int(cluster.nodes["nfs"].ask("du -sb %s" % directory).split()[0])
        print("image %d bytes, over the head's interface %d" % (image, over_the_head))
        assert image > 160 << 20
        assert over_the_head < image / 20
        assert "checkpoint_dir = %s" % OWN in head.ask("/opt/torque/current/bin/qstat -f %s" % job_id).replace("\n\t", "")
    finally:
        head.run("/opt/torque/current/bin/qdel -p %s" % job_id)
        node1.run(as_alice("rm -rf %s/counted %s/%s.CK" % (OWN, OWN, job_id)))


class SquashedQjob(Qjob):
    """A job of alice's in TORQUE, whose files lie where root may do nothing."""

    PATIENCE = 240  # emulated

    def make_directory(self):
        self.user("mkdir " + self.work)

    def clean(self):
        super().clean()
        self.user("rm -rf %s %s/%s.CK" % (self.work, OWN, self.id))


@pytest.fixture
def qsub(cluster):
    if not cluster.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")
    with Jobs(cluster, kind=SquashedQjob) as jobs:
        yield jobs


def test_held_job_whose_directory_is_closed_to_all_but_its_owner(cluster, qsub):
    """Also to him at first: the job is held then, with the reason. pbs_mom, which may not look, ends no restart for that."""
    job = qsub.counts()
    job.hold()
    directory = "%s/%s.CK" % (OWN, job.id)
    job.user("chmod 0 " + directory)
    job.send("node2")
    facts = job.comment("failure of the restart: ")
    assert "Permission denied" in facts["comment"], facts["comment"]
    assert job.wait("H")["job_state"] == "H"
    job.user("chmod 700 " + directory)
    job.release("node2")
    job.finish()


def test_server_that_is_stopped_in_the_midst_of_a_checkpoint(cluster, server, job):
    """It takes longer; nothing is lost."""
    held = job(cluster.nodes["node1"], LARGE)
    name = start_hold(held)
    draft(held, server)
    server.ask("systemctl stop nfs-server")
    try:
        time.sleep(15)
        assert "status" not in held.node.ask("cat /tmp/%s.said" % held.id)
    finally:
        server.ask("systemctl start nfs-server")
    assert hook_result(held) == ("", 0)
    assert held.published() == [name]
    held.move(cluster.nodes["node2"])
    assert held.end() == 5
    assert_counted(held)


def assert_counted(job):
    lines = [line for line in job.lines() if line != "USR1"]
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


def test_export_that_runs_full_in_the_midst_of_a_checkpoint(cluster, server, job):
    held = job(cluster.nodes["node1"], LARGE)
    start_hold(held)
    draft(held, server)
    server.ask("dd if=/dev/zero of=/srv/ckpt/filler bs=1M status=none || true")
    try:
        words, status = hook_result(held)
        assert status not in (0, 124), words
        print(words)
        assert "No space left on device" in words or "the job keeps running" in words
        held.progress()
        assert held.published() == []
    finally:
        server.ask("rm -f /srv/ckpt/filler")
    start_hold(held)
    assert hook_result(held) == ("", 0)
    held.move(cluster.nodes["node2"])
    assert held.end() == 5
    assert_counted(held)


def test_quota_that_is_too_small(cluster, server, job):
    server.ask("setquota -u alice 0 102400 0 0 /srv/ckpt")
    try:
        held = job(cluster.nodes["node1"], LARGE)
        start_hold(held)
        words, status = hook_result(held)
        print(words, status)
        assert status != 0
        assert "uota" in words and "the job keeps running" in words
        held.progress()
        assert held.published() == []
    finally:
        server.ask("setquota -u alice 0 2097152 0 0 /srv/ckpt")


def test_quota_that_the_role_has_set(cluster):
    info = answer(cluster.module("nfs", "store_info", path=EXPORT, user="bob"))
    assert (info["quota"]["bytes_limit"], info["quota"]["files_limit"]) == (2 << 30, None), info["quota"]


# Other ways to mount and to export

@pytest.fixture
def mounted(cluster, server):
    """Mount the store on the nodes in another way: mounted(options of the mount, root_squash or no_root_squash)."""
    nodes = [cluster.nodes[name] for name in ("node1", "node2")]

    def mount(options, squash):
        server.ask("exportfs -o rw,sync,no_subtree_check,fsid=76,%s 192.168.76.0/24:%s" % (squash, EXPORT))
        for node in nodes:
            node.ask("umount %s && mount -t nfs -o rw,hard,nosuid,nodev,%s nfs:%s %s" % (STORE, options, EXPORT, STORE))
    yield mount
    server.ask("exportfs -ua && exportfs -a")
    for node in nodes:
        node.ask("umount %s && mount %s" % (STORE, STORE))


@pytest.mark.parametrize("version, squash", [("3", "root_squash"), ("3", "no_root_squash"), ("4.2", "no_root_squash")])
def test_other_ways_to_mount_and_export(cluster, trip, mounted, version, squash):
    """A job goes from node to node."""
    mounted("vers=" + version, squash)
    info = store_info(cluster, "node1")
    assert "vers=" + version in info["mount"]["options"]
    assert (info["faults"], info["root"]["squashed"]) == ([], squash == "root_squash")
    result = trip("node1", ["run", "continue", "hold"])
    assert result["passed"], result["cause"]
    result = trip("node2", ["restart", "finish"], result["state"])
    assert (result["passed"], result.get("exit_status")) == (True, 7), result["cause"]


# Why CRIU runs as the job's owner: here root may do all that it may on a node

SECRET, SHOWN = "the secret of root", "what alice may see"
READER = """\
import os, time
held = os.open("data", os.O_RDONLY)
while not os.path.exists("go"):
    time.sleep(0.05)
with open("said", "wb") as stream:
    stream.write(os.pread(held, 100, 0))
"""


@pytest.fixture
def replaced(cluster):
    """A directory of alice's on node1 with a file "data", and what she replaces it by: a link to a file of root's of that size and mode."""
    node = cluster.nodes["node1"]
    node.ask("install -d -o alice -m 755 /srv/reader && cd /srv/reader && echo '%s' > data && chmod 600 data && chown alice data && "
             "(umask 077; echo '%s' > /root/secret)" % (SHOWN, SECRET))
    yield as_alice("ln -sf /root/secret /srv/reader/data")
    node.ask("rm -rf /srv/reader /srv/reader.images /root/secret")


def test_criu_run_by_root_opens_for_a_user_what_he_may_not(cluster, replaced):
    """It restores what root itself wrote, and opens files by their names with root's rights; names belong to users."""
    node = cluster.nodes["node1"]
    pid = node.ask("cd /srv/reader && cat > job.py <<'X'\n%sX\nsetsid --fork %s < /dev/null > /dev/null 2>&1; "
                   "for _ in $(seq 600); do pgrep -u alice -f 'python3 [j]ob.py' && break; sleep 0.1; done; sleep 2"
                   % (READER, as_alice("exec python3 job.py"))).split()[0]
    criu = "/opt/criu/current/sbin/criu %s -D /srv/reader.images -v1 "
    node.ask("install -d -m 700 /srv/reader.images && " + criu % "dump" + "-t " + pid)
    node.ask(replaced + " && " + criu % "restore" + "-d && " + as_alice("touch /srv/reader/go"))
    assert node.ask("for _ in $(seq 600); do [ -s /srv/reader/said ] && break; sleep 0.1; done; cat /srv/reader/said") == SECRET


def test_restart_hook_opens_for_a_user_only_what_he_may(cluster, replaced, job):
    node = cluster.nodes["node1"]
    held = job(node, "open('/srv/reader/data')")
    assert held.checkpoint(15).code == 0
    node.ask(replaced)
    done = held.restart(node)
    assert (done.code, done.err) == (77, "file /srv/reader/data, which the job has open, cannot be found on this node (Permission "
                                     "denied); make it available here or restart the job on another node; image kept\n")
    assert node.run("pgrep -u alice").out == ""


# Last: what all of this has left

def test_nothing_is_nobodys_and_nothing_is_everybodys(server):
    assert server.ask("find /srv/ckpt '(' -user nobody -o -group nogroup -o -nouser -o -perm -002 ')' -ls") == ""
    assert server.ask("cd /srv/ckpt && find . -mindepth 1 | sort").split() == ["./.ckpt-torque-store", "./alice", "./bob", "./lost+found"]
