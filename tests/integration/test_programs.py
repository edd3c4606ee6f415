"""Programs of the site, run by real hooks around real checkpoints and restarts: as the job's owner, and what they refuse."""
import contextlib
import json

import pytest
from cluster import configured

PROGRAMS = "/opt/site-programs"
NOTE = """#!/bin/sh
echo %s $(id -u) $CKPT_EVENT $CKPT_NAME $USER $HOME $PBS_JOBID >> /tmp/site-programs.note
%s
"""


@contextlib.contextmanager
def programs(node, pre="", post="", restart="", **settings):
    """Have a node run programs of the site that note each call; what is given are commands that they run then."""
    for name, text in (("pre", pre), ("post", post), ("restart", restart)):
        node.ask("install -d {0} && cat > {0}/{1} <<'X'\n{2}X\nchmod 755 {0}/{1}".format(PROGRAMS, name, NOTE % (name, text)))
    node.ask("install -m 666 /dev/null /tmp/site-programs.note")
    paths = {name + "_program": "%s/%s" % (PROGRAMS, name) for name in ("pre", "post", "restart")}
    try:
        with configured(node, **dict(paths, **settings)):
            yield
    finally:
        node.ask("rm -rf %s /tmp/site-programs.note" % PROGRAMS)


def notes(node):
    """What the programs have noted since the last time."""
    return node.ask("cat {0} && : > {0}".format("/tmp/site-programs.note")).splitlines()


def note(job, name, event, image=None):
    return "%s 1500 %s %s alice /home/alice %s" % (name, event, image or job.name(), job.id)


def test_hold_and_move(job, node1, node2):
    moved = job(node1)
    with programs(node1), programs(node2):
        for source, target in ((node1, node2), (node2, node1)):
            moved.hold()
            assert notes(source) == [note(moved, "pre", "hold")]
            moved.move(target)
            assert notes(target) == [note(moved, "restart", "restart")]
    assert moved.end() == 5
    lines = moved.lines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


def test_restart_on_the_same_node(job, node1):
    held = job(node1)
    with programs(node1):
        held.hold()
        held.move(node1)
        assert notes(node1) == [note(held, "pre", "hold"), note(held, "restart", "restart")]


def test_checkpoint_of_a_job_that_continues(job, node1):
    running = job(node1)
    with programs(node1):
        done = running.checkpoint(0)
        assert (done.code, done.err) == (0, "")
        assert notes(node1) == [note(running, "pre", "checkpoint"), note(running, "post", "continue")]
    running.progress()


def test_program_is_not_taken_for_the_job(job, node1):
    """It has the job's id in its environment."""
    running = job(node1)
    with programs(node1, pre="/usr/local/bin/torque-ckpt check --json $PBS_JOBID > /tmp/site-programs.note"):
        done = running.checkpoint(0)
        assert (done.code, done.err) == (0, "")
        checked = json.loads("".join(notes(node1)[:-1]))
    assert (checked["pid"], checked["obstacles"]) == (int(node1.ask("pgrep -P %d" % running.session)), [])


@pytest.mark.parametrize("text, how", [("echo no licence >&2; exit 3", "ended with status 3 (no licence)"),
                                       ("setsid sleep 4711 & sleep 4711", "took longer than 2 seconds and was killed")])
def test_program_that_fails_refuses_the_checkpoint(job, node1, text, how):
    running = job(node1)
    with programs(node1, pre=text, program_seconds=2):
        done = running.checkpoint(15)
        assert (done.code, done.err) == (75, "%s/pre %s; the job keeps running; try again, or ask the administrator about "
                                         "checkpoint_hooks_pre_program\n" % (PROGRAMS, how))
        assert notes(node1) == [note(running, "pre", "hold"), note(running, "post", "continue")]
    assert node1.run("pgrep -f 'sleep 4711'").out == ""
    assert running.generations() == {}
    running.progress()


def test_program_that_fails_afterwards_is_logged(job, node1):
    running = job(node1)
    with programs(node1, post="echo server is down >&2; exit 1"):
        done = running.checkpoint(0)
        assert (done.code, done.err) == (0, "")
    logged = node1.ask("journalctl -t ckpt-torque --no-pager -o cat | grep 'job=%s .*outcome=program failed'" % running.id)
    assert "%s/post ended with status 1 (server is down); the job keeps running" % PROGRAMS in logged
    running.progress()


def test_checkpoint_that_fails_after_the_program(job, node1):
    watch = "ctypes.CDLL(None).inotify_add_watch(ctypes.CDLL(None).inotify_init1(0), b'/tmp', 2)"
    running = job(node1, "python3 -c \"import ctypes, time; %s; time.sleep(600)\" &\npython3 job.py; exit $?" % watch)
    watcher = node1.ask("pgrep -u alice -f '^python3 -c'")
    with programs(node1):
        done = running.checkpoint(15)
        sentence = "process %s (python3) watches files" % watcher
        assert (done.code, done.err[:len(sentence)]) == (77, sentence)
        assert notes(node1) == [note(running, "pre", "hold"), note(running, "post", "continue")]
    running.progress()


def test_what_the_program_takes_out_of_the_way_is_no_obstacle(job, node1, node2):
    watch = "ctypes.CDLL(None).inotify_add_watch(ctypes.CDLL(None).inotify_init1(0), b'/tmp', 2)"
    moved = job(node1, "python3 -c \"import ctypes, time; %s; time.sleep(600)\" &\npython3 job.py; exit $?" % watch)
    with programs(node1, pre="pkill -u alice -f '^python3 -c'; sleep 0.5"):
        moved.hold()
    moved.move(node2)


def test_restart_whose_program_fails_is_undone(job, node1, node2):
    """The job continues later, without gap or repeat."""
    moved = job(node1)
    moved.hold()
    before = moved.lines()
    with programs(node2, restart="echo no licence >&2; exit 3"):
        done = moved.restart(node2)
        assert (done.code, done.err) == (75, "%s/restart ended with status 3 (no licence); image kept; try again, or ask the administrator "
                                         "about checkpoint_hooks_restart_program (attempt 1 of 5)\n" % PROGRAMS)
        assert notes(node2) == [note(moved, "restart", "restart")]
    assert node2.run("pgrep -u alice").out == ""
    assert moved.lines() == before
    moved.move(node2)
    assert moved.end() == 5
    lines = moved.lines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


def test_restart_waits_for_a_program_that_takes_long(job, node1, node2):
    """Longer than CRIU may do nothing."""
    moved = job(node1)
    moved.hold()
    before = moved.lines()
    with programs(node2, restart="sleep 45"):
        node2.ask("rm -f /tmp/{0}.exit; cd / && env -i PATH=/bin:/usr/bin setsid --fork sh -c 'setsid --wait /usr/lib/ckpt-torque/restart "
                  "{1} 2> /tmp/{0}.err; echo $? > /tmp/{0}.exit' > /dev/null < /dev/null 2> /dev/null"
                  .format(moved.id, " ".join(map(str, moved.arguments()))))
        node2.ask("sleep 40")
        assert moved.lines() == before
        node2.ask("sleep 8")
        moved.node = node2
        moved.progress()


@pytest.mark.parametrize("harm", ["chown alice {0}", "chmod 777 {0}"])
def test_program_that_a_user_can_change_is_refused(job, node1, harm):
    running = job(node1)
    with programs(node1):
        node1.ask(harm.format(PROGRAMS + "/pre"))
        done = running.checkpoint(15)
        sentence = ("%s/pre must be root's and writable by nobody else, because the checkpoint_hooks_pre_program runs as the owner of each "
                    "job; correct it with chown root and chmod go-w; nothing was done" % PROGRAMS)
        assert (done.code, done.err) == (78, sentence + "\n")
        assert notes(node1) == []
        assert node1.hook("health").out == "ERROR ckpt.torque: " + sentence
    running.progress()
