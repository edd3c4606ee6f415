"""Real jobs in a real TORQUE, as users and administrators meet them. Needs TORQUE's source; says so where there is none."""
import itertools
import re
import time

import pytest
from conftest import HOOKS, STORE

BIN = "/opt/torque/current/bin"
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module", autouse=True)
def torque(cluster):
    if not cluster.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")


class Qjob(object):
    """A job of alice's; its files are in a directory of its own on the shared file system."""

    def __init__(self, cluster, script, *options, output=True):
        self.head, self.nodes = cluster.nodes["head"], cluster.nodes
        self.place = "%s/alice/test%d" % (STORE, next(NUMBERS))
        self.head.ask("install -d -o alice %s && cat > %s/job.sh <<'X'\n%s\nX" % (self.place, self.place, script))
        where = ["-o", self.place + "/out", "-e", self.place + "/err"] if output else []
        self.id = self.user("cd %s && %s/qsub %s job.sh" % (self.place, BIN, " ".join(["-l nodes=node1"] + where + list(options))))

    def user(self, script):
        return self.head.ask("runuser -u alice -- sh -c %s" % quoted(script))

    def root(self, script):
        return self.head.ask("cd / && %s/%s" % (BIN, script))

    def facts(self):
        """The job's attributes as qstat -f says them."""
        text = self.head.run("%s/qstat -f %s" % (BIN, self.id)).out.replace("\n\t", "")
        return dict(re.findall(r"^    (\S+) = (.*)$", text, re.MULTILINE))

    def wait(self, states, seconds=60):
        """Wait for one of the states; return the attributes."""
        deadline = time.time() + seconds
        while True:
            found = self.facts()
            if found.get("job_state", "C") in states:
                return found
            assert time.time() < deadline, "job %s is in state %s, not %s: %s" % (self.id, found.get("job_state"), states, found)
            time.sleep(0.2)

    def comment(self, words, seconds=60):
        """Wait until the job's comment has these words."""
        deadline = time.time() + seconds
        while words not in self.facts().get("comment", ""):
            assert time.time() < deadline, "no \"%s\" in the comment of job %s: %s" % (words, self.id, self.facts())
            time.sleep(0.2)

    def reach(self, sign, seconds=60):
        """Wait until the job has left this file in its directory."""
        deadline = time.time() + seconds
        while self.head.run("test -e %s/%s" % (self.place, sign)).code:
            assert time.time() < deadline, "job %s never came to %s: %s" % (self.id, sign, self.facts())
            time.sleep(0.1)

    def sign(self, name):
        self.user("touch %s/%s" % (self.place, name))

    def hold(self):
        self.user("%s/qhold %s" % (BIN, self.id))
        return self.wait("H")

    def release(self, node):
        self.root("qalter -l nodes=%s %s" % (node, self.id))
        self.user("%s/qrls %s" % (BIN, self.id))
        found = self.wait("R")
        assert found["exec_host"].startswith(node + "/"), found

    def image(self):
        """The path of the image that the server names."""
        found = self.facts()
        return "%s/%s/%s" % (STORE, self.id + ".CK", found["checkpoint_name"])

    def text(self, name):
        return self.head.ask("cat %s/%s" % (self.place, name))

    def clean(self):
        self.head.run("%s/qdel %s" % (BIN, self.id))
        deadline = time.time() + 30
        while self.facts().get("job_state", "C") != "C" and time.time() < deadline:
            time.sleep(0.2)
        self.head.run("rm -rf %s %s/%s.CK" % (self.place, STORE, self.id))


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.fixture
def qsub(cluster):
    """Submit a job of alice's to node1: qsub(script, option ..., output=True); what it left is removed after the test."""
    made = []

    def submit(script, *options, output=True):
        made.append(Qjob(cluster, script, *options, output=output))
        return made[-1]

    yield submit
    for job in made:
        job.clean()


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
    assert job.wait("C")["exit_status"] == "7"
    assert job.text(names).splitlines() == [str(number) for number in range(1, 10001)]


# -- what fails, fails well -----------------------------------------------------

WAITS = "touch {0}/up; n=0; while [ ! -e {0}/go ]; do n=$((n+1)); echo $n; sleep 0.1; done; exit 5"


def waits(qsub, *options):
    """A job that counts until it is told to end."""
    job = qsub("cd $PBS_O_WORKDIR; " + WAITS.format("."), "-c", "enabled", *options)
    job.reach("up")
    return job


def counted(job):
    lines = job.text("out").splitlines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]
    return len(lines)


def test_hold_that_fails_leaves_the_job_running(qsub, cluster, node1):
    job = waits(qsub)
    node1.ask("cd %s && mv checkpoint checkpoint.away && printf '#!/bin/sh\\necho no room >&2\\nexit 1\\n' > checkpoint "
              "&& chmod 755 checkpoint" % HOOKS)
    try:
        job.user("%s/qhold %s" % (BIN, job.id))
        job.comment("no room")
    finally:
        node1.ask("mv %s/checkpoint.away %s/checkpoint" % (HOOKS, HOOKS))
    found = job.wait("R")
    assert found["Hold_Types"] == "n"
    job.sign("go")
    assert job.wait("C")["exit_status"] == "5"
    assert counted(job) > 0


def test_restart_that_fails_for_good_holds_the_job_and_keeps_image_and_output(qsub, node2):
    job = waits(qsub)
    job.hold()
    image = job.image()
    job.head.ask("mv %s/manifest.json %s/manifest.away" % (image, image))
    job.root("qalter -l nodes=node2 " + job.id)
    job.user("%s/qrls %s" % (BIN, job.id))
    job.comment("no readable manifest")
    job.wait("H")
    job.head.ask("mv %s/manifest.away %s/manifest.json" % (image, image))
    job.release("node2")
    job.sign("go")
    assert job.wait("C")["exit_status"] == "5"
    assert counted(job) > 0


# -- no user becomes root through TORQUE (D1, D2, D7) ----------------------------

ATTACKS = {
    "semicolon": "-c enabled,dir='/tmp/x;id>{0};'",
    "substitution": "-c 'enabled,dir=/tmp/$(id>{0})'",
    "backtick": "-c 'enabled,dir=/tmp/`id>{0}`'",
    "depth": "-c 'enabled,depth=1;id>{0};'",
}


def inert(job, proof):
    """Hold the job, which must go on; nobody has written the proof, and root's hook has said why."""
    job.user("%s/qhold %s" % (BIN, job.id))
    job.comment("nothing was done")
    job.wait("R")
    assert job.nodes["node1"].run("ls -l " + proof).code != 0
    job.sign("go")
    assert job.wait("C")["exit_status"] == "5"


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_text_of_qsub_does_not_become_a_command(qsub, attack):
    proof = "/tmp/proof-" + attack
    job = qsub("cd $PBS_O_WORKDIR; " + WAITS.format("."), ATTACKS[attack].format(proof))
    job.reach("up")
    inert(job, proof)


def test_text_of_qalter_does_not_become_a_command(qsub):
    job = qsub("cd $PBS_O_WORKDIR; " + WAITS.format("."), "-c", "enabled", "-h")
    job.user("%s/qalter -W checkpoint_dir='/tmp/y;id>/tmp/proof-qalter;' %s" % (BIN, job.id))
    job.user("%s/qrls %s" % (BIN, job.id))
    job.reach("up")
    inert(job, "/tmp/proof-qalter")


def test_link_in_the_place_of_the_image_gives_nothing_away(qsub, node2):
    job = waits(qsub)
    job.hold()
    image = job.image()
    node2.ask("echo secret > /etc/victim; chmod 600 /etc/victim")
    job.user("mv %s %s.away && ln -s /etc/victim %s" % (image, image, image))
    job.root("qalter -l nodes=node2 " + job.id)
    job.user("%s/qrls %s" % (BIN, job.id))
    job.comment("cannot be opened")
    job.wait("H")
    assert node2.ask("stat -c '%U %a' /etc/victim") == "root 600"
    node2.ask("rm /etc/victim")


# -- administration ----------------------------------------------------------------

def mom(node):
    return node.ask("systemctl show -p MainPID --value pbs_mom")


def test_jobs_outlive_a_restart_of_pbs_mom(qsub, cluster, node1):
    job = waits(qsub)
    before = mom(node1)
    done = cluster.playbook("site", "--limit", "node1", torque_mom_limits={"LimitNOFILE": 3000, "LimitMEMLOCK": None})
    assert done.code == 0 and "Restart pbs_mom" in done.out, done.out
    assert mom(node1) != before
    job.hold()
    job.release("node2")
    job.sign("go")
    assert job.wait("C")["exit_status"] == "5"
    assert counted(job) > 0
    assert cluster.playbook("site", "--limit", "node1").code == 0


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


def test_foreign_objects_are_left_alone(cluster):
    head = cluster.nodes["head"]
    head.ask("%s/qmgr -c 'create queue theirs queue_type=execution'" % BIN)
    assert cluster.playbook("site", "--limit", "head").changed("head") == 0
    assert cluster.playbook("site", "--limit", "head", torque_server_purge=["queues"]).changed("head") == 1
    assert "theirs" not in head.ask("%s/qmgr -c 'print server'" % BIN)


# -- bad input ------------------------------------------------------------------------

@pytest.mark.parametrize("variables, sentence", [
    ({"torque_version": "7.0"},
     "torque_build_version 7.0 is none that this role can build (2.x, 4.x, 6.0, 6.1); correct torque_version; nothing was done."),
    ({"torque_build_options": ["--enable-blcr"]},
     "--enable-blcr would tie pbs_mom to libcr; the patch engine-neutral gives the server what it needs: leave the option out; "
     "nothing was done."),
    ({"torque_build_prefix": "/opt/torque/"},
     "torque_build_prefix (/opt/torque/) must be an absolute path of plain characters at least two levels deep, without a slash at its "
     "end; nothing was done."),
    ({"torque_source": "/nowhere/torque.tar.gz", "torque_build_options": ["--enable-x"]},
     "torque_source /nowhere/torque.tar.gz is not on the controller; put the tarball there or name a URL; nothing was done."),
])
def test_bad_input_is_refused(cluster, variables, sentence):
    done = cluster.playbook("site", "--limit", "head", **variables)
    assert done.code != 0
    assert sentence in re.sub(r"\s+", " ", done.out), done.out
    assert done.changed("head") == 0
