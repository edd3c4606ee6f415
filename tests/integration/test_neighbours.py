"""What another user of the node, or the job's owner, can do to a hook that is at work: nothing that lasts, and nothing to anybody else."""
import re
import time

import attackers
import pytest
from cluster import begin, configured

STALL = 4
"""The option stall of CRIU here (seconds)."""


KEPT = "was kept from the job by a process of uid 1501 and was killed; report it to the administrator"
STALLED = ("did nothing for %d seconds and was killed; another process of this node may have interfered with it, or the store does not "
           "answer" % STALL)


@pytest.mark.parametrize("user, why, least", [("bob", KEPT, 1), ("alice", STALLED, STALL)])
@pytest.mark.parametrize("signal", [0, 15])
def test_checkpoint_in_which_a_user_takes_the_place_of_the_job(job, node1, signal, user, why, least):
    """CRIU takes whoever connects to its socket for the job; if it is the owner himself, only the time tells."""
    for _attempt in range(5):
        running = job(node1)
        with configured(node1, engine_options={"stall": STALL}), attackers.attacker(node1, attackers.HIJACK, user) as output:
            started = time.monotonic()
            done = running.checkpoint(signal)
            seconds = time.monotonic() - started
            assert output() == ["connected"]
            if (done.code, done.err) == (0, ""):
                continue  # the job was the first to connect, and he does no harm
            assert (done.code, done.err) == (75, "/opt/criu/current/sbin/criu %s; the job keeps running; try again\n" % why)
            assert least < seconds < 3 * least + 6
            running.progress()
            assert running.generations() == {}
            break
    else:
        raise AssertionError("the job was the first to connect, five times")
    assert running.checkpoint(0).code == 0
    running.progress()


LISTENS = """
import socket
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("\\0/crtools-pr-1-another")
listener.listen(1)
print("listens", flush=True)
connection = listener.accept()[0]
print("accepted", flush=True)
connection.recv(1)
"""
"""What the CRIU of another job of the owner does."""


def test_other_job_of_the_owner_is_not_disturbed(job, node1):
    """A user is connected to the CRIU of one job; the owner's other job is checkpointed meanwhile."""
    running = job(node1)
    with attackers.attacker(node1, LISTENS, "alice") as owner:
        node1.ask("for _ in $(seq 100); do grep -q crtools-pr-1-another /proc/net/unix && exit; sleep 0.1; done; exit 1")
        with attackers.attacker(node1, attackers.HIJACK) as output:
            for _attempt in range(100):
                if "accepted" in owner():
                    break
                time.sleep(0.1)
            assert (owner(), output()) == (["listens", "accepted"], ["connected"])
            assert running.checkpoint(0).code == 0
    running.progress()


def test_restart_that_another_user_disturbs(job, node1, node2):
    """It is tried again, and succeeds when he has gone."""
    held = job(node1, "for i in $(seq 100); do sleep 1000 & done\npython3 job.py; exit $?")
    held.hold()
    before = held.images_digest()
    with configured(node2, engine_options={"stall": STALL}), attackers.attacker(node2, attackers.DISTURB) as output:
        done = held.restart(node2)
        assert output() == ["sent"]
        assert done.code == 75
        assert re.match(r"another process of this node may have interfered with criu "
                        r"\(criu: (Unexpected fle|Can't get fd|Unable to open fd).*\); try again later or on another node; image kept",
                        done.err), done.err
    assert held.images_digest() == before
    held.move(node2)


def test_hold_kills_nobody_who_has_got_the_jobs_number(job, node1):
    """The owner kills his job while its image is written, and has another user's process get its number."""
    held = job(node1)
    root = int(node1.ask("pgrep -P %d" % held.session))
    with attackers.waiting_program(node1):
        hook = begin(held, 15)
        node1.ask("runuser -u alice -- kill -KILL %d; while kill -0 %d 2> /dev/null; do sleep 0.05; done" % (root, held.session))
        node1.ask("cat > /tmp/take.py <<'X'\n%s\nX" % attackers.TAKE_NUMBER)
        assert int(node1.ask("python3 /tmp/take.py %d < /dev/null" % root)) == root
        node1.ask("rm /tmp/dumping; while kill -0 %d 2> /dev/null; do sleep 0.05; done" % hook)
    assert node1.ask("cat /tmp/%s.said" % held.id) == ""
    assert node1.ask("ps -o user=,args= -p %d" % root).split(None, 1) == ["bob", "sleep 4712"]


def test_owner_who_stops_the_part_of_the_hook_that_is_his(job, node1):
    """Root gives it up after half a minute, the job goes on, and its lock is free."""
    running = job(node1)
    with attackers.waiting_program(node1):
        hook = begin(running, 15)
        part = int(node1.ask("pgrep -P %d -u alice" % hook))
        node1.ask("runuser -u alice -- kill -STOP %d" % part)
        started = time.monotonic()
        node1.ask("while kill -0 %d 2> /dev/null; do sleep 0.2; done" % hook)
        seconds = time.monotonic() - started
    assert node1.ask("cat /tmp/%s.said" % running.id) == (
        "the part of the hook that runs as alice was stopped for 30 seconds and was killed; try again")
    assert 25 < seconds < 60
    running.progress()
    assert node1.run("pgrep -u alice -f '/usr/local/bin/lz4|criu'").out == ""
    assert node1.ask("ls /run/ckpt-torque/jobs") == ""
    assert running.checkpoint(0).code == 0
