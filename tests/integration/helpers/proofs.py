"""What is proven of a TORQUE with our patches, and of one without, so that the proof is known to be able to fail.

One and the same code plays the user in both; only what is expected differs.
"""
import contextlib
from collections import namedtuple

from cluster import STORE
from jobs import BIN, COUNTS

Outcome = namedtuple("Outcome", "succeeded text")
"""Whether the attack did what its author wants (bool), and what was seen (str)."""

VICTIM = "/etc/ckpt-victim"

# -- no user becomes root through TORQUE, and no text is cut (D1, D2, D7) --------------


def ran_as_root(jobs, proof, qsub="-c enabled", qalter=None):
    """Whether a hold makes root on node1 run the command that a user put into the job's attributes.

    :param proof: the file that the command writes; {} in the texts stands for it
    :param qalter: what the owner changes while the job is queued
    """
    node = jobs.cluster.nodes["node1"]
    node.ask("rm -f " + proof)
    job = jobs(COUNTS, qsub.format(proof), *(["-h"] if qalter else []))
    if qalter:
        job.user("%s/qalter %s %s" % (BIN, qalter.format(proof), job.id))
        job.user("%s/qrls %s" % (BIN, job.id))
    job.reach("up")
    before = job.facts().get("comment")
    job.user("%s/qhold %s" % (BIN, job.id))
    facts = job.until(lambda facts: facts["job_state"] == "H" or facts.get("comment") != before, "the hold did not end")
    written = node.run("stat -c %%U %s && cat %s" % (proof, proof))
    if written.code == 0:
        node.ask("rm " + proof)
        owner, text = written.out.split("\n", 1)
        return Outcome(owner == "root" and "uid=0(root)" in text, "%s's file: %s" % (owner, text.strip()))
    job.wait("R")
    job.finish()
    return Outcome(False, facts["comment"])


def path_is_cut(jobs, length):
    """Whether a path of that many characters (int) arrives shorter than the user wrote it, or not at all."""
    path = "%s/alice/%s" % (STORE, "a" * 200)
    path += "".join("/" + "a" * min(200, length - at - 1) for at in range(len(path), length, 201))
    head = jobs.cluster.nodes["head"]
    head.ask("runuser -u alice -- mkdir -p " + path)
    try:
        try:
            job = jobs(COUNTS, "-c enabled,dir=" + path)
        except AssertionError as refused:
            return Outcome(False, str(refused))
        job.reach("up")
        before = job.facts().get("comment")
        job.user("%s/qhold %s" % (BIN, job.id))
        facts = job.until(lambda facts: facts["job_state"] == "H" or facts.get("comment") != before, "the hold did not end")
        arrived = facts.get("checkpoint_dir", "")
        if head.run("ls %s/%s.CK/ckpt.*/manifest.json" % (path, job.id)).code:
            return Outcome(True, "%d of %d characters are left: %s" % (len(arrived), len(path), facts.get("comment", "no comment")))
        job.wait("H")  # its comment comes first
        job.release(jobs.elsewhere)
        job.finish()
        return Outcome(False, "restarted from an image beneath %d characters" % len(path))
    finally:
        head.run("rm -rf %s/alice/%s" % (STORE, "a" * 200))


def link_gives_away(jobs):
    """Whether root's file becomes the user's who put a link to it in the place of the image."""
    job = jobs.counts()
    job.hold()
    image, node = job.image(), jobs.cluster.nodes[jobs.elsewhere]
    node.ask("echo secret > {0}; chown root:root {0}; chmod 600 {0}".format(VICTIM))
    job.user("mv {0} {0}.away && ln -s {1} {0}".format(image, VICTIM))
    job.send(jobs.elsewhere)
    job.until(lambda facts: "cannot be opened" in facts.get("comment", "") or node.ask("stat -c %U " + VICTIM) != "root", "did not restart")
    owner = node.ask("stat -c '%%U %%a' %s; rm %s" % (VICTIM, VICTIM))
    if owner != "root 600":
        return Outcome(True, "root's file now is %s's" % owner.split()[0])
    comment = job.facts()["comment"]
    job.user("rm {0} && mv {0}.away {0}".format(image))
    job.wait("H", 150)  # without the patch restart-status the hooks try again each minute
    job.release(jobs.elsewhere)
    job.finish()
    return Outcome(False, comment)


Attack = namedtuple("Attack", "play arguments reason since")
"""play(jobs, **arguments) -> Outcome; reason: what is said (str) where it does nothing; since: the first version (str) on which it
can be seen to succeed without our patches."""
Attack.__new__.__defaults__ = ("2",)

ATTACKS = {
    "dir with a semicolon": Attack(
        ran_as_root, {"proof": "/tmp/proof-semicolon", "qsub": "-c enabled,dir='/tmp/x;id>{0};'"}, "is not an absolute path of plain"),
    "dir with $()": Attack(
        ran_as_root, {"proof": "/tmp/proof-dollar", "qsub": "-c 'enabled,dir=/tmp/$(id>{0})'"}, "is not an absolute path of plain"),
    "dir with backticks": Attack(
        ran_as_root, {"proof": "/tmp/proof-backtick", "qsub": "-c 'enabled,dir=/tmp/`id>{0}`'"}, "is not an absolute path of plain"),
    "depth with a semicolon": Attack(
        ran_as_root, {"proof": "/tmp/proof-depth", "qsub": "-c 'enabled,depth=1;id>{0};'"}, "is not a number"),
    "qalter checkpoint_dir": Attack(
        ran_as_root, {"proof": "/tmp/proof-qalter", "qalter": "-W checkpoint_dir='/tmp/y;id>{0};'"}, "is not an absolute path of plain"),
    "link for the image": Attack(link_gives_away, {}, "cannot be opened"),
    "dir of 400 characters": Attack(path_is_cut, {"length": 400}, "restarted from an image beneath 400 characters", "4"),
    "dir of 1500 characters": Attack(path_is_cut, {"length": 1500}, "Illegal attribute or resource value", "4"),
}


def attack(jobs, name):
    """Carry out the attack of that name; return its Outcome."""
    return ATTACKS[name].play(jobs, **ATTACKS[name].arguments)


# -- a restart that fails keeps the job (D10) --------------------------------------------


def damaged_image(jobs):
    """A restart from a damaged image holds the job with image and output; mended, it goes on to its end. Returns the comment."""
    job = jobs.counts()
    job.hold()
    pages = job.head.ask("ls %s/pages-*.img | head -1" % job.image())
    job.head.ask("cp -p {0} /tmp/pages && "
                 "dd if=/dev/zero of={0} bs=4096 count=1 conv=notrunc 2> /dev/null".format(pages))
    job.send(jobs.elsewhere)
    comment = job.comment("Permanent failure of the restart: ")["comment"]
    job.wait("H")
    assert "is damaged" in comment, comment
    job.head.ask("cat /tmp/pages > " + pages)  # in place: the hooks may have given the image a second name
    job.release(jobs.elsewhere)
    job.finish()
    return comment


@contextlib.contextmanager
def take_pid(job, node):
    """A process of a node has the process id of a job's image; await_refusal() waits for what the hook says, and returns it."""
    manifest = "%s/%s.CK/%s/manifest.json" % (STORE, job.id.replace("[0]", "-0"), job.facts()["checkpoint_name"])
    pid = job.head.ask("python3 -c 'import json; print(json.load(open(\"%s\"))[\"root\"])'" % manifest)
    taker = node.ask(TAKE_PID.replace("PID", pid))
    assert taker == pid, "process id %s could not be taken on %s" % (pid, node.name)
    search = "journalctl -q -t ckpt-torque | grep -F 'job=%s ' | grep -o 'process id %s of the image is in use.*'" % (job.id, pid)

    def await_refusal():
        job.until(lambda facts: node.run(search).code == 0, "was not restarted")  # a scheduler soon writes over the comment
        return node.ask(search).splitlines()[0]
    try:
        yield await_refusal
    finally:
        node.ask("kill " + taker)


def taken_pid(jobs):
    """A restart whose process id is taken queues the job, and it runs when the id is free. Returns what the hook said."""
    job = jobs.counts()
    job.hold()
    with take_pid(job, jobs.cluster.nodes[jobs.elsewhere]) as await_refusal:
        job.send(jobs.elsewhere)
        line = await_refusal()
    job.wait("R")
    job.finish()
    return line


# The node's next processes get other numbers than those of the node that the job came from, as on nodes that nobody has meddled with.
TAKE_PID = """python3 - <<'X'
import subprocess
with open("/proc/sys/kernel/ns_last_pid") as stream:
    own = stream.read()
for attempt in range(100):
    with open("/proc/sys/kernel/ns_last_pid", "w") as stream:
        stream.write(str(PID - 1))
    child = subprocess.Popen(["sleep", "300"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if child.pid == PID:
        break
    child.kill()
with open("/proc/sys/kernel/ns_last_pid", "w") as stream:
    stream.write(own)
print(child.pid)
X"""


# -- a job moves (D6) ------------------------------------------------------------------------

REFUSED = ("qrun: Cannot execute at specified host because of checkpoint or stagein files "
           "MSG=allocated nodes must match checkpoint location JOB")
"""What error 15059 looks like; JOB stands for the job's identifier."""


def other_node(jobs):
    """Run a held job on the other node, by qrun; return what that said (str), empty when the job ran to its end there."""
    job, head = jobs.counts(), jobs.cluster.nodes["head"]
    job.hold()
    head.ask("%s/qmgr -c 'set server scheduling = false'" % BIN)
    try:
        job.user("%s/qrls %s" % (BIN, job.id))
        job.wait("Q")
        done = head.run("cd / && %s/qrun -H node2 %s" % (BIN, job.id))
        if done.code:
            state = job.facts()["job_state"]
            assert (done.code, state) == (2, "Q"), "qrun exited %d, job %s is in state %s: %s" % (done.code, job.id, state, done.err)
            return done.err.strip().replace(job.id, "JOB")
        assert job.wait("R")["exec_host"].startswith("node2/")
        job.finish()
        return ""
    finally:
        head.ask("%s/qmgr -c 'set server scheduling = true'" % BIN)
