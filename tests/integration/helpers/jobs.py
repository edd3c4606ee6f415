"""Real jobs in a real TORQUE, submitted by alice on the head node."""
import contextlib
import itertools
import re
import time

from cluster import STORE, hurried, long_dump

BIN = "/opt/torque/current/bin"
NUMBERS = itertools.count(1)
COUNTS = "cd $PBS_O_WORKDIR; touch up; n=0; while [ ! -e go ]; do n=$((n+1)); echo $n; sleep 0.1; done; exit 5"
"""Counts on stdout until it is told to end."""
LARGE = """\
cd $PBS_O_WORKDIR
exec python3 -c '
import os, sys, time
held = os.urandom(256 << 20)
open("up", "w").close()
counter = 0
while not os.path.exists("go"):
    counter += 1
    os.write(1, b"%d\\n" % counter)
    time.sleep(0.1)
sys.exit(5)
'
"""
"""Counts as COUNTS does; its image takes a second or more."""
IN_PLACE = """\
exec python3 -c '
import os, time
data = os.open("data", os.O_RDWR | os.O_CREAT)
counter = 0
while not (os.path.exists("go") or os.path.exists("stop")):
    counter += 1
    os.pwrite(data, b"%09d" % counter, 0)
    if counter == 1:
        open("up", "w").close()
    time.sleep(0.02)
raise SystemExit(5)
'
"""
"""Keeps its only file of one size."""
STARTED = "echo started >> $PBS_O_WORKDIR/starts"
"""The first line of each job's script: a job that TORQUE starts anew prints and ends as one that it restarts from its image."""


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def seconds(text):
    """Return a time as qstat prints it in seconds (int)."""
    hours, minutes, rest = map(int, text.split(":"))
    return 3600 * hours + 60 * minutes + rest


def await_nodes(head):
    """Wait until pbs_server answers and has heard of all nodes: what is submitted before, pbs_sched may look at again ten minutes later."""
    head.ask("for _ in $(seq 300); do nodes=$(%s/pbsnodes -a 2> /dev/null) && "
             "! echo \"$nodes\" | grep -Eq '^ +state = .*(down|offline|unknown)' && exit 0; sleep 0.2; done; "
             "echo some nodes do not come up >&2; exit 1" % BIN)


@contextlib.contextmanager
def slots(head, count):
    """Have pbs_server run so many jobs (int) at a time on each node."""
    await_nodes(head)
    head.ask("{0}/qmgr -c 'set server auto_node_np = False'; for node in node1 node2; do {0}/qmgr -c \"set node $node np = {1}\"; done"
             .format(BIN, count))
    try:
        yield
    finally:
        head.ask("for node in node1 node2; do {0}/qmgr -c \"set node $node np = $(nproc)\"; done; "
                 "{0}/qmgr -c 'set server auto_node_np = True'".format(BIN))


class Qjob:
    """A job of alice's, once submit() has returned; its files are in a directory of its own on the shared file system."""

    OWNER = "alice"
    PATIENCE = 60
    """How long what is awaited may take (seconds)."""

    def __init__(self, cluster):
        self.head, self.nodes = cluster.nodes["head"], cluster.nodes
        self.work = "%s/%s/test%d" % (STORE, self.OWNER, next(NUMBERS))
        self.id = None

    def submit(self, script, *options, output=True):
        self.make_directory()
        self.user("cat > %s/job.sh <<'X'\n%s\n%s\nX" % (self.work, STARTED, script))
        where = ["-o", self.work + "/out", "-e", self.work + "/err"] if output else []
        self.id = self.user("cd %s && %s/qsub %s job.sh" % (self.work, BIN, " ".join(["-l nodes=node1"] + where + list(options))))

    def make_directory(self):
        self.head.ask("install -d -o %s %s" % (self.OWNER, self.work))

    def user(self, script):
        return self.head.ask("runuser -u %s -- sh -c %s" % (self.OWNER, quoted(script)))

    def root(self, script):
        return self.head.ask("cd / && %s/%s" % (BIN, script))

    def facts(self):
        """The job's attributes as qstat -f says them."""
        text = self.head.run("%s/qstat -f %s" % (BIN, self.id)).out.replace("\n\t", "")
        return dict(re.findall(r"^    (\S+) = (.*)$", text, re.MULTILINE))

    def until(self, reached, what, seconds=None):
        """Wait until reached(attributes) is true; return the attributes."""
        seconds = seconds or self.PATIENCE
        deadline = time.monotonic() + seconds
        while True:
            facts = self.facts()
            if reached(facts):
                return facts
            assert time.monotonic() < deadline, "job %s: %s within %d seconds; its state is %s, its comment: %s" % (
                self.id, what, seconds, facts.get("job_state", "unknown"), facts.get("comment", "none"))
            time.sleep(0.2)

    def wait(self, states, seconds=None):
        """Wait for one of the states; return the attributes."""
        return self.until(lambda facts: facts.get("job_state", "C") in states, "did not come to state %s" % states, seconds)

    def comment(self, words, seconds=None):
        """Wait until the job's comment has these words; return the attributes."""
        return self.until(lambda facts: words in facts.get("comment", ""), "did not get \"%s\" into its comment" % words, seconds)

    def reach(self, sign, seconds=None):
        """Wait until the job has left this file in its directory."""
        self.until(lambda _facts: self.user("[ ! -e %s/%s ] || echo there" % (self.work, sign)) != "", "never came to " + sign, seconds)

    def sign(self, name):
        self.user("touch %s/%s" % (self.work, name))

    def hold(self):
        self.user("%s/qhold %s" % (BIN, self.id))
        return self.wait("H")

    def hold_untold(self, node):
        """Have pbs_server know of the image of a hold, but not of the job's end: pbs_mom stands still. Return the image's name."""
        node = self.nodes[node]
        with long_dump(node):
            self.user("%s/qhold %s" % (BIN, self.id))
            node.ask("for _ in $(seq 300); do [ -e /tmp/dumping ] && exit; sleep 0.1; done; echo no dump has begun >&2; exit 1")
            node.ask("systemctl kill --signal=STOP --kill-who=main pbs_mom; touch /tmp/go")
            return self.comment("was checkpointed and terminated")["checkpoint_name"]

    def send(self, node):
        """Release the job to a node."""
        self.root("qalter -l nodes=%s %s" % (node, self.id))
        self.user("%s/qrls %s" % (BIN, self.id))

    def release(self, nodes):
        """Release the job to a node, or several (as qsub takes them), and see it start there."""
        self.send(nodes)
        facts = self.wait("R")
        assert list(dict.fromkeys(re.findall(r"([^+/]+)/", facts["exec_host"]))) == re.findall(r"(?:^|\+)([^:+]+)", nodes), facts

    def checkpoint(self, seconds=None):
        """Have an image made while the job keeps running; return its name."""
        self.user("%s/qchkpt %s" % (BIN, self.id))
        return self.until(lambda facts: "checkpoint_name" in facts, "got no image", seconds)["checkpoint_name"]

    def continued(self, node, name, seconds=90):
        """See that the job runs on a node, restarted from an image after its node had crashed."""
        facts = self.until(lambda facts: facts["job_state"] == "R" and facts.get("exit_status") == "-5" or facts["job_state"] == "C",
                           "was not restarted", seconds)
        assert (facts["job_state"], facts["exec_host"].split("/")[0], facts["checkpoint_name"]) == ("R", node, name), facts
        log = "journalctl -t ckpt-torque -o cat --no-pager | grep 'hook=restart.* job=%s .*outcome=restarted'" % self.id
        self.nodes[node].ask("for _ in $(seq 600); do %s && exit; sleep 0.1; done; exit 1" % log)

    def progress(self, node, beyond=None):
        """See that the job counts on in its node's spool, beyond a number (int) or from where it is; return the one it has come to."""
        def shown():
            return int(self.nodes[node].ask("tail -n 1 /var/spool/torque/spool/%s.OU 2> /dev/null | grep . || echo 0" % self.id))

        before = shown() if beyond is None else beyond
        self.until(lambda _facts: shown() > before + 2, "did not count on after %d" % before)
        return shown()

    def session(self, node):
        """The job's session id (str), of the only one that runs on this node; a pbs_server 2.x hears of it late."""
        return self.nodes[node].ask("ps -o sess= -p $(pgrep -u alice -o)").strip()

    def image(self):
        """The path of the image that the server names."""
        facts = self.facts()
        return "%s/%s/%s" % (STORE, self.id + ".CK", facts["checkpoint_name"])

    def text(self, name):
        return self.user("cat %s/%s" % (self.work, name))

    def counted(self):
        """How far a job that COUNTS has come by its output, in which no number may be missing or twice."""
        lines = self.text("out").splitlines()
        assert lines == [str(number) for number in range(1, len(lines) + 1)], "the output of job %s is not whole: %s" % (self.id, lines)
        return len(lines)

    def ended(self, status, seconds=None, starts=1):
        """See that the job ends with this exit status (str), and was not started anew where it had to continue from its image.

        :param starts: how often its script must have been started (int): more than once only if there was no image of it
        """
        seen = self.wait("C", seconds).get("exit_status")
        assert seen == status, "the exit status of job %s is %s, not %s" % (self.id, seen, status)
        count = len(self.text("starts").splitlines())
        assert count == starts, "the script of job %s was started %d times, not %d" % (self.id, count, starts)

    def finish(self, seconds=None, starts=1):
        """Let a job that COUNTS end, and see that nothing of it was lost."""
        self.sign("go")
        self.ended("5", seconds, starts)
        assert self.counted() > 0

    def clean(self):
        if self.id:
            deadline = time.monotonic() + 30
            while self.facts().get("job_state", "C") != "C" and time.monotonic() < deadline:
                self.head.run("%s/qdel %s" % (BIN, self.id))  # one that reaches a job while it is queued again does nothing
                time.sleep(0.5)
        self.head.run("rm -rf %s %s/%s.CK" % (self.work, STORE, self.id))


class Jobs:
    """Submits jobs to node1: jobs(script, option ..., output=True); what they left is removed on leaving the block.

    :param elsewhere: where they may restart (str): a pbs_server that knows nothing of migration takes them to their node only
    :param kind: the class of the jobs
    """

    def __init__(self, cluster, elsewhere="node2", kind=Qjob):
        self.cluster, self.elsewhere, self.kind = cluster, elsewhere, kind
        self.submitted = []

    def __call__(self, script, *options, output=True):
        job = self.kind(self.cluster)
        self.submitted.append(job)
        job.submit(script, *options, output=output)
        return job

    def counts(self, *options, checkpoint="enabled"):
        """A job that COUNTS, once it does."""
        job = self(COUNTS, "-c", checkpoint, *options)
        job.reach("up")
        return job

    @contextlib.contextmanager
    def due(self, node, command):
        """A job of which pbs_mom sees that a periodic image is due while the checkpoint that a command (str) began lasts.

        That is until /tmp/go is there, which is made after the block at the latest. pbs_mom has come to the job when the block begins.
        """
        job, later = [self.counts(checkpoint="enabled,periodic,interval=1") for _number in range(2)]
        with long_dump(node), hurried(node) as see:
            job.user("%s/%s %s" % (BIN, command, job.id))
            node.ask("for _ in $(seq 300); do [ -e /tmp/dumping ] && exit; sleep 0.1; done; echo no dump has begun >&2; exit 1")
            see()
            later.until(lambda facts: "checkpoint_name" in facts, "got no periodic image")
            yield job

    def made_to_come_back(self):
        """A job that COUNTS, held on node1 and released there again."""
        job = self.counts()
        job.hold()
        job.release("node1")
        return job

    def purge(self, job):
        """Remove a job on node1 that TORQUE itself cannot end."""
        self.submitted.remove(job)
        job.root("qdel -p " + job.id)
        self.cluster.nodes["node1"].ask("systemctl stop pbs_mom; rm -rf /var/spool/torque/mom_priv/jobs/*; systemctl start pbs_mom")
        job.head.run("rm -rf %s %s/%s.CK" % (job.work, STORE, job.id))

    def __enter__(self):
        await_nodes(self.cluster.nodes["head"])
        return self

    def __exit__(self, *error):
        for job in self.submitted:
            job.clean()


@contextlib.contextmanager
def forgotten_at_once(job):
    """Have pbs_server forget the job as soon as it has ended, and remove its directory of images there."""
    keep_completed = job.head.ask("%s/qmgr -c 'print server' | sed -n 's/.* keep_completed = //p'" % BIN)
    job.root("qmgr -c 'set server keep_completed = 0'")
    try:
        yield
    finally:
        job.root("qmgr -c 'set server keep_completed = %s'" % keep_completed)
        job.head.run("rm -rf /var/spool/torque/checkpoint/%s.CK" % job.id)
