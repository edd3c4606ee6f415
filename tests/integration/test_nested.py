"""Programs that write restart files of their own, started by ckpt-run: what CRIU cannot write moves, and nothing of their work is lost."""
import pytest
from cluster import begin, configured, long_dump
from jobs import Jobs
from restartable import script, whole


def program(node):
    """The pid (str) of the program on a node."""
    return node.ask("pgrep -u alice -f '^python3 program.py'")


def test_program_that_cannot_be_checkpointed_moves(job, node1, node2):
    moved = job(node1, script())
    for node in (node2, node1, node2):
        moved.hold()
        assert moved.node.run("pgrep -u alice").out == ""
        before = moved.counter()
        moved.move(node)
        assert moved.counter() > before
    assert moved.end() == 5
    assert whole(moved.lines())
    assert moved.complaints() == ""


def test_program_that_continues_by_another_command(job, node1, node2):
    """It is asked for each checkpoint itself, and not a shell that started it: SIGUSR1 would end that, and the program's work were lost."""
    moved = job(node1, script("--signal USR1 --restart '{command} again'").replace("SIGTERM", "SIGUSR1"))
    for node in (node2, node1, node2):
        moved.hold()
        moved.move(node)
        assert node.ask("ps -o args= -p " + program(node)) == "python3 program.py again"
    assert moved.end() == 5
    assert whole(moved.lines())
    assert moved.complaints() == ""


def test_checkpoint_of_a_job_that_continues(job, node1):
    running = job(node1, script())
    for _turn in range(2):
        first = program(node1)
        done = running.checkpoint(0)
        assert (done.code, done.err) == (0, "")
        running.progress()
        assert program(node1) != first
    assert whole(running.lines())


def test_program_that_does_not_end_keeps_running(job, node1):
    running = job(node1, script("--signal TERM --seconds 2", "stubborn"))
    first = program(node1)
    done = running.checkpoint(15)
    runner = node1.ask("pgrep -u alice -x ckpt-run")
    assert (done.code, done.err) == (75, "ckpt-run (process %s): python3, asked by the method rerun, did not end within 2 seconds; the job "
                                     "keeps running; look into its output, or allow it more time by ckpt-run --seconds\n" % runner)
    running.progress()
    assert program(node1) == first
    assert whole(running.lines())


def test_obstacle_outside_ckpt_run_is_named_before_the_program_ends(job, node1):
    watch = "ctypes.CDLL(None).inotify_add_watch(ctypes.CDLL(None).inotify_init1(0), b'/tmp', 2)"
    running = job(node1, "python3 -c \"import ctypes, time; %s; time.sleep(600)\" &\n" % watch + script())
    first, watcher = program(node1), node1.ask("pgrep -u alice -f '^python3 -c'")
    done = running.checkpoint(15)
    sentence = "process %s (python3) watches files" % watcher
    assert (done.code, done.err[:len(sentence)]) == (77, sentence)
    assert program(node1) == first
    assert sentence in node1.run("torque-ckpt check " + running.id).out


def test_program_whose_restart_files_would_stay_on_the_node(job, node1, node2):
    """Unless the directory travels."""
    moved = job(node1, "mkdir -p /tmp/scratch && cd /tmp/scratch || exit 1\n" + script())
    first = program(node1)
    try:
        done = moved.checkpoint(15)
        assert (done.code, done.err) == (
            77, "process %s (python3) works in /tmp/scratch, which only this node has: its restart files would stay here; the job keeps "
                "running; have it work in a shared directory, or have the administrator name that directory in "
                "checkpoint_hooks_node_local_trees\n" % first)
        assert program(node1) == first
        with configured(node1, node_local_trees=["/tmp/scratch"]):
            moved.hold()
        before = moved.counter()
        moved.move(node2)
        node2.ask("touch /tmp/scratch/stop")
        assert moved.end() == 5
        lines = moved.lines()
        assert whole(lines) and len(lines) > before
    finally:
        for node in (node1, node2):
            node.run("rm -rf /tmp/scratch")


def test_check_counts_nothing_of_the_program(job, node1):
    running = job(node1, script())
    done = node1.run("torque-ckpt check " + running.id)
    assert (done.code, done.err) == (0, ""), done.out


def test_hook_that_is_killed_lets_the_program_continue(job, node1):
    running = job(node1, script())
    with long_dump(node1):
        hook = begin(running, 15)
        node1.ask("for _ in $(seq 300); do [ -e /tmp/dumping ] && exit; sleep 0.1; done; exit 1")
        assert node1.run("pgrep -u alice -f '^python3 program.py'").out == ""
        node1.ask("kill -KILL %d; pkill -KILL -f '[c]kpt-torque/checkpoint'; pkill -KILL -f '^/bin/sh /tmp/lon[g]' || true" % hook)
        running.progress()
    assert whole(running.lines())


WATCHES = """
import ctypes, os, signal, sys, time
libc, watch = ctypes.CDLL(None), -1
def stop(*_arguments):
    os.close(watch)
def start(*_arguments):
    global watch
    watch = libc.inotify_init1(0)
    libc.inotify_add_watch(watch, b"/tmp", 2)
signal.signal(signal.SIGUSR1, stop)
signal.signal(signal.SIGUSR2, start)
start()
counter = 0
while not os.path.exists("stop"):
    counter += 1
    os.write(1, b"%d\\n" % counter)
    time.sleep(0.01)
sys.exit(5)
"""
BEFORE = "kill -USR1 $CKPT_RUN_PID; sleep 0.5; echo before >> events"
AFTER = "kill -USR2 $CKPT_RUN_PID; echo $CKPT_RUN_EVENT >> events"


def keep(before=BEFORE, after=AFTER, options=""):
    """Return a job script: a program that watches files, started by ckpt-run, which has it stop watching before a checkpoint."""
    return "cat > watches.py <<'Y'%sY\n/usr/local/bin/ckpt-run --before '%s' --after '%s' %s -- python3 watches.py\nexit $?" % (
        WATCHES, before, after, options)


def events(job, count):
    """What the commands have noted, when it is so many lines."""
    return job.node.ask("for _ in $(seq 600); do [ $(cat {0}/events | wc -l) -ge {1} ] && break; sleep 0.1; done; cat {0}/events"
                        .format(job.work, count)).splitlines()


def test_program_that_is_kept_moves(job, node1, node2):
    """Also back to the node where it was, and on the same one."""
    moved, wanted = job(node1, keep()), []
    for node in (node2, node1, node1):
        moved.hold()
        moved.move(node)
        wanted += ["before", "restart"]
        assert events(moved, len(wanted)) == wanted
    done = moved.checkpoint(0)
    assert (done.code, done.err) == (0, "")
    assert events(moved, len(wanted) + 2) == wanted + ["before", "continue"]
    moved.progress()
    assert moved.end() == 5
    lines = moved.lines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


def test_programs_of_both_kinds_in_a_job(job, node1, node2):
    """What the command before a checkpoint takes out of the way keeps no other program from ending."""
    beside = keep().replace("python3 watches.py\nexit $?", "python3 watches.py > kept &\n")
    moved = job(node1, beside + script())
    moved.hold()
    moved.move(node2)
    assert events(moved, 2) == ["before", "restart"]
    assert moved.end() == 5
    assert whole(moved.lines())
    kept = node2.ask("cat %s/kept" % moved.work).splitlines()
    assert whole(kept) and len(kept) > 10


def test_obstacle_of_a_program_that_is_kept(job, node1):
    """Its command did not take it out of the way."""
    running = job(node1, keep(before="echo before >> events", after="echo $CKPT_RUN_EVENT >> events"))
    watcher = node1.ask("pgrep -u alice -f '^python3 watches'")
    done = running.checkpoint(15)
    sentence = "process %s (python3) watches files" % watcher
    assert (done.code, done.err[:len(sentence)]) == (77, sentence)
    assert events(running, 2) == ["before", "continue"]
    assert sentence in node1.run("torque-ckpt check " + running.id).out
    running.progress()


def test_command_before_a_checkpoint_that_is_too_slow(job, node1):
    running = job(node1, keep(before="sleep 4712", options="--seconds 2"))
    runner = node1.ask("pgrep -u alice -x ckpt-run-keep")
    done = running.checkpoint(15)
    assert (done.code, done.err) == (75, "ckpt-run (process %s): the command before a checkpoint of python3 took longer than 2 seconds and "
                                     "was killed; the job keeps running; allow it more time by ckpt-run --seconds\n" % runner)
    assert events(running, 1) == ["continue"]
    assert node1.run("pgrep -fx 'sleep 4712'").out == ""
    running.progress()


@pytest.fixture
def qsub(cluster, torque):
    with Jobs(cluster) as jobs:
        yield jobs


def test_program_that_cannot_be_checkpointed_moves_in_torque(qsub):
    job = qsub("cd $PBS_O_WORKDIR\n" + script(), "-c", "enabled")
    job.progress("node1")
    for node in ("node2", "node1", "node2"):
        job.hold()
        job.release(node)
        job.progress(node, int(job.text("state")))  # how far it had come when it ended for the hold
    job.sign("stop")
    job.ended("5")
    assert whole(job.text("out").splitlines())
    assert job.text("err") == ""


def test_qdel_while_the_program_has_ended(qsub, node1):
    """Nothing is left of the job."""
    job = qsub("cd $PBS_O_WORKDIR\n" + script(), "-c", "enabled")
    job.reach("program.py")
    with long_dump(node1):
        job.user("/opt/torque/current/bin/qchkpt %s" % job.id)
        node1.ask("for _ in $(seq 300); do [ -e /tmp/dumping ] && exit; sleep 0.1; done; exit 1")
        job.user("/opt/torque/current/bin/qdel %s" % job.id)
        node1.ask("touch /tmp/go")
        job.wait("C")
        node1.ask("for _ in $(seq 300); do pgrep -u alice > /dev/null || exit 0; sleep 0.1; done; ps -fu alice >&2; exit 1")
