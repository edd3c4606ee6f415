"""A program as a job: of TORQUE (level L3), or started as pbs_mom starts it if there is no TORQUE (level L2). Both have the same methods.

start()           start it on node1
printed()         int: how many lines it has printed, -1 if it has ended
hold()            str: the sentence with which the hold was refused, "" if the job is held
release(node)     continue it on a node
finish()          wait for its end; return its Outcome
clean()           remove what it left
"""
import itertools
import time
from collections import namedtuple

from cluster import Job
from jobs import BIN, Qjob

SPOOL = "/var/spool/torque/spool"
NUMBERS = itertools.count(5000)
PATIENCE = 300
"""How long a program may take to its end (seconds)."""
GRACE = 15
"""How long after a job's comment its state may still be that of before (seconds)."""

Outcome = namedtuple("Outcome", "status output errors files starts")
"""What a job left.

status  str: its exit status
output  str: what it printed to stdout
errors  str: what it printed to stderr
files   str: digest and name of each file that is compared
starts  int: how often its script was started
"""


def _digest(node, directory, files):
    return node.ask("cd %s && sha256sum %s" % (directory, files)) if files else ""


class TorqueRun:
    """Submitted by qsub.

    :param program: a Program
    """

    def __init__(self, cluster, program, text):
        self.cluster, self.program, self.text = cluster, program, text
        self.job = Qjob(cluster)
        self.node = "node1"

    def start(self):
        self.job.submit("cd $PBS_O_WORKDIR\n" + self.text, "-c", "enabled", "-l", "nodes=" + self.place("node1"))
        self.job.wait("R", PATIENCE)

    def place(self, first):
        """Return the nodes of the job as qsub takes them, of which this is the first."""
        if self.program.nodes == 1:
            return first
        return "+".join(name + ":ppn=2" for name in [first] + [name for name in ("node1", "node2") if name != first])

    def printed(self):
        facts = self.job.facts()
        assert facts.get("job_state", "C") != "H", "the job was held again: %(comment)s" % facts
        if facts.get("job_state", "C") in "EC":
            return -1
        done = self.cluster.nodes[self.node].run("cat %s/%s.OU" % (SPOOL, self.job.id))
        return done.out.count("\n")

    def hold(self):
        before = self.job.facts().get("comment")
        self.job.user("%s/qhold %s" % (BIN, self.job.id))
        facts = self.job.until(lambda facts: facts.get("job_state", "C") in "HC" or facts.get("comment") != before, "was not held",
                               PATIENCE)
        deadline = time.monotonic() + GRACE
        while facts.get("job_state") not in ("H", "C") and time.monotonic() < deadline:
            time.sleep(0.5)
            facts = self.job.facts()
        if facts.get("job_state") == "H":
            return ""
        assert facts.get("comment") != before, "the job ended while it was held: %s" % facts
        return facts["comment"]

    def release(self, node):
        self.job.PATIENCE = PATIENCE
        self.job.release(self.place(node))
        self.node = node

    def finish(self):
        facts = self.job.wait("CHQ", PATIENCE)
        assert facts.get("job_state", "C") == "C", "job is in state %(job_state)s: %(comment)s" % facts
        return Outcome(facts.get("exit_status", "unknown"), self.job.text("out") + "\n", self.job.text("err"),
                       _digest(self.job.head, self.job.work, self.program.files), self.job.text("starts").count("started"))

    def clean(self):
        self.job.clean()


class HooksRun(Job):
    """Started by the run hook."""

    def __init__(self, cluster, program, text):
        super().__init__(cluster.nodes["node1"], next(NUMBERS))
        self.cluster, self.program, self.text, self.moves = cluster, program, text, 0

    def start(self):
        self.node.ask("install -d -o alice {0} && cat > {0}/program.sh <<'END'\n{1}\nEND".format(self.work, self.text))
        super().start("echo started >> starts; bash program.sh; status=$?; echo $status > status; exit $status")

    def counter(self):
        return int(self.node.ask("wc -l < %s/out" % self.work))

    def progress(self):
        """What has come further is seen by whoever asks for printed()."""

    def printed(self):
        return -1 if self.node.run("[ -e %s/status ]" % self.work).code == 0 else self.counter()

    def hold(self):
        done = self.checkpoint(15)
        return done.err.strip() if done.code else ""

    def release(self, node):
        self.move(self.cluster.nodes[node])
        self.moves += 1

    def finish(self):
        deadline = time.monotonic() + PATIENCE
        while self.node.run("[ -e %s/status ]" % self.work).code != 0:
            assert time.monotonic() < deadline, "job %s does not end: %s" % (self.id, self.complaints())
            time.sleep(0.5)
        status = self.node.ask("cat %s/status" % self.work)
        if self.moves:
            assert str(self.end()) == status, "job %s ended with another status than its program" % self.id
        return Outcome(status, self.node.ask("cat %s/out" % self.work) + "\n", self.node.ask("cat %s/err" % self.work),
                       _digest(self.node, self.work, self.program.files), int(self.node.ask("wc -l < %s/starts" % self.work)))

    def clean(self):
        super().clean([self.cluster.nodes["node1"], self.cluster.nodes["node2"]])
