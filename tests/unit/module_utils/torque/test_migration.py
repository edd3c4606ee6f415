"""job_migration's logic: which jobs are held, how each is released, and what is said of it, with TORQUE played."""

import signal

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque import drain as drain_nodes, job_attributes, migration, outcomes
from ansible_collections.ckpt.torque.plugins.module_utils.torque.commands import CommandError, Commands
from ansible_collections.ckpt.torque.plugins.module_utils.torque.held_jobs import HeldJobs
from ansible_collections.ckpt.torque.plugins.module_utils.torque.nodes import SIGNALS, Interrupted, NodeError, Pbsnodes
from torque_double import Job, Torque


@pytest.fixture(autouse=True)
def signals():
    """Undo what an interrupted run does to signals."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def drain(tmp_path):
    """Empty nodes of a Torque: drain(torque, nodes="n1", **params) returns the lines of the module."""
    def run(torque, nodes=("n1",), wait=None, **params):
        clock = torque.clock
        params = dict({"jobs_at_once": 4, "hold_timeout": 30, "start_timeout": 20, "poll": 1}, **params)
        with HeldJobs(str(tmp_path)) as held:
            run.jobs = migration.Migration(Commands("/x", run=torque, clock=clock), held, params, clock, clock.sleep)
            pbsnodes = [Pbsnodes("/x/pbsnodes", name, torque) for name in nodes]
            shown = drain_nodes.empty_nodes(pbsnodes, run.jobs)
            if wait is not None:
                shown = drain_nodes.await_empty_nodes(pbsnodes, run.jobs, wait, 1)
        return outcomes.build_answer(shown, run.jobs.outcomes.values(), run.jobs.changed)["lines"]

    run.path = tmp_path
    run.note = lambda **nodes: _note(tmp_path, {job_id.replace("_", "."): node for job_id, node in nodes.items()})
    return run


def _note(path, nodes):
    with HeldJobs(str(path)) as held:
        for job_id, node in nodes.items():
            held.add(job_id, node)


def failure(work):
    with pytest.raises(NodeError) as caught:
        work()
    return str(caught.value)


EMPTY = "n1: offline (ckpt-torque: x), no jobs"


# -- what the attributes say --

@pytest.mark.parametrize("value, checkpointable", [
    ("enabled", True), ("enabled,periodic,interval=60", True), ("periodic,enabled", True), ("c", True), ("c=60", True), ("s", True),
    ("", False), ("n", False), ("u", False), ("none", False), ("shutdown", False), ("dir=/enabled", False)])
def test_is_checkpointable(value, checkpointable):
    assert job_attributes.is_checkpointable(value) is checkpointable


@pytest.mark.parametrize("request_text, pinned", [
    ("n1", True), ("n1:ppn=2", True), ("2:ppn=1+n1", True), ("1:ppn=2", False), ("n10", False), ("fast:ppn=2", False), ("", False),
    ("1:n1", True), ("1#excl", False)])
def test_is_pinned(request_text, pinned):
    assert job_attributes.is_pinned(request_text, "n1") is pinned


@pytest.mark.parametrize("shown, obstacle", [
    ({}, ""), ({"interactive": "False"}, ""),
    ({"Checkpoint": "u"}, "it was submitted without qsub -c enabled"),
    ({"interactive": "True"}, "it is interactive"),
    ({"job_state": "S"}, "it is in state S"), ({"job_state": "E"}, "it is ending")])
def test_find_obstacle(shown, obstacle):
    assert job_attributes.find_obstacle(Job(**shown).shown) == obstacle


# -- moves --

def test_jobs_move(drain):
    torque = Torque({"1.h": Job(), "2.h": Job(dump=5, comment="Job started"), "3.h": Job(node="n2")})
    assert drain(torque) == ["1.h (alice): moved from n1 to n2, off n1 after 2.0 seconds",
                             "2.h (alice): moved from n1 to n2, off n1 after 5.0 seconds", EMPTY]
    assert torque.done == ["qhold 1.h", "qhold 2.h", "qrls 1.h", "qrls 2.h"]
    assert (drain.jobs.changed, sorted(path.name for path in drain.path.iterdir())) == (True, ["drain.lock"])
    assert drain.jobs.outcomes["1.h"] == {"job": "1.h", "owner": "alice", "node": "n1", "action": "moved", "reason": "", "to": "n2",
                                          "seconds": 2.0}


def test_second_run_changes_nothing(drain):
    torque = Torque({"1.h": Job(), "2.h": Job(Checkpoint="u")})
    drain(torque)
    torque.done.clear()
    assert drain(torque) == ["2.h (alice): stays on n1: it was submitted without qsub -c enabled",
                             "n1: offline (ckpt-torque: x), still on it: 2.h"]
    assert (torque.done, drain.jobs.changed) == ([], False)


@pytest.mark.parametrize("shown, line", [
    ({"exec_host": "n2/0"}, "1.h (alice): off n1 by itself"), ({"job_state": "C"}, "1.h (alice): off n1 by itself"),
    ({"job_state": "H", "Hold_Types": "u"}, "1.h (alice): off n1, held: it had been held before")])
def test_job_that_has_left_by_itself_when_it_is_looked_at(drain, shown, line):
    job = Job()
    torque = Torque({"1.h": job})
    torque.trouble["qstat"] = lambda: job.shown.update(shown)
    assert (drain(torque), torque.done) == ([line, EMPTY], [])


def test_some_at_a_time(drain):
    torque = Torque({"%d.h" % number: Job() for number in range(7)})
    assert len(drain(torque, jobs_at_once=3)) == 8
    assert torque.most == 3


def test_two_nodes(drain):
    torque = Torque({"1.h": Job(to="n3"), "2.h": Job(node="n2", to="n3")}, nodes=("n1", "n2", "n3"))
    assert drain(torque, ("n1", "n2"))[:2] == ["1.h (alice): moved from n1 to n3, off n1 after 2.0 seconds",
                                               "2.h (alice): moved from n2 to n3, off n2 after 2.0 seconds"]


@pytest.mark.parametrize("off, node", [(("n1",), "n1"), (("n2",), "n2"), (("n1", "n2"), "n1")])
def test_job_on_several_nodes(drain, off, node):
    """It is held once, whichever of its nodes it must leave."""
    torque = Torque({"1.h": Job(exec_host="n1/0+n2/0", to="n3/0+n4")}, nodes=("n1", "n2", "n3", "n4"))
    assert drain(torque, off)[0] == "1.h (alice): moved from %s to n3+n4, off %s after 2.0 seconds" % (node, node)
    assert torque.done == ["qhold 1.h", "qrls 1.h"]


def test_job_that_stays_on_several_nodes(drain):
    torque = Torque({"1.h": Job(exec_host="n1/0+n2/0", interactive="True")})
    assert drain(torque, ("n1", "n2")) == ["1.h (alice): stays on n1: it is interactive", "n1: offline (ckpt-torque: x), still on it: 1.h",
                                           "n2: offline (ckpt-torque: x), still on it: 1.h"]


def test_job_that_comes_up_while_others_move(drain):
    """The scheduler started it just before the node was offline."""
    late = Job(job_state="Q", **{"Hold_Types": "n"})
    torque = Torque({"1.h": Job(), "2.h": late})
    torque.trouble["qrls -h o 1.h"] = lambda: late.shown.update(job_state="R")
    assert drain(torque)[1] == "2.h (alice): moved from n1 to n2, off n1 after 2.0 seconds"


@pytest.mark.parametrize("job, line", [
    (Job(start=None), "1.h (alice): off n1 after 2.0 seconds, queued: it had not started after 20 seconds"),
    (Job(**{"Resource_List.nodes": "n1:ppn=1"}),
     "1.h (alice): off n1 after 2.0 seconds, queued: its resource list names n1, for which it waits"),
    (Job(failed_restart="Permanent failure of the\n\t restart: image x is damaged"),
     "1.h (alice): off n1 after 2.0 seconds, held: Permanent failure of the restart: image x is damaged"),
    (Job(to="n1"), "1.h (alice): stays on n1: it was started there again"),
    (Job(end=1001), "1.h (alice): off n1 after 1.0 seconds by itself"),
    (Job(refusal="process 7 (tail) watches files", comment="Job started"), "1.h (alice): stays on n1: process 7 (tail) watches files"),
    (Job(refusal="Job started", comment="Job started"), "1.h (alice): stays on n1: its checkpoint failed; journalctl -t ckpt-torque "
                                                        "on the node says why; its comment, as before: Job started"),
    (Job(refusal=" "), "1.h (alice): stays on n1: its checkpoint failed; journalctl -t ckpt-torque on the node says why; its comment, as "
                       "before: none"),
    (Job(dump=None), "1.h (alice): stays on n1: its checkpoint had not ended after 30 seconds; if it still succeeds, the job continues "
                     "elsewhere"),
    (Job(exec_host="n2/0+n1/0", to="n3/0+n1"), "1.h (alice): stays on n1: it was started there again"),
    (Job(exec_host="n1/0+n2/0", refusal="process 7 (bash) belongs to a job on 2 nodes (n1, n2)"),
     "1.h (alice): stays on n1: process 7 (bash) belongs to a job on 2 nodes (n1, n2)"),
])
def test_job_that_does_not_move(drain, job, line):
    torque = Torque({"1.h": job})
    assert drain(torque)[0] == line
    assert job.shown["job_state"] == "C" or "o" not in job.shown["Hold_Types"]
    assert not (drain.path / "drain.json").exists()


def test_checkpoint_that_fails_is_no_change(drain):
    drain(Torque({"1.h": Job(refusal="no space")}))
    assert drain.jobs.changed is False
    drain(Torque({"1.h": Job(dump=None)}))
    assert drain.jobs.changed is True  # it may still leave


def test_job_whose_user_holds_it_too_stays_held(drain):
    job = Job()
    torque = Torque({"1.h": job})
    torque.trouble["qrls"] = lambda: job.shown.update(Hold_Types="ou")
    assert drain(torque)[0] == "1.h (alice): off n1 after 2.0 seconds, held: its user holds it"
    assert (job.shown["job_state"], job.shown["Hold_Types"]) == ("H", "u")


def test_job_that_is_held_already_is_only_followed(drain):
    """Its user's qhold is under way."""
    job = Job(Hold_Types="u")
    job.due = 1003
    torque = Torque({"1.h": job})
    assert drain(torque)[0] == "1.h (alice): off n1 after 3.0 seconds, held: its user holds it"
    assert (torque.done, drain.jobs.changed) == ([], False)


def test_hold_that_is_under_way_and_fails(drain):
    job = Job(Hold_Types="u", refusal="no space")
    job.due = 1003
    assert drain(Torque({"1.h": job}))[0] == "1.h (alice): stays on n1: no space"


# -- commands that fail --

def test_hold_that_the_server_refuses(drain):
    torque = Torque({"1.h": Job()})
    torque.trouble["qhold -h o 1.h"] = (170, "qhold: Server could not connect to MOM 1.h")
    assert drain(torque)[0] == "1.h (alice): stays on n1: qhold -h o 1.h exited 170: qhold: Server could not connect to MOM 1.h"
    assert (torque.done, (drain.path / "drain.json").exists()) == ([], False)


def test_job_that_ends_while_its_hold_is_refused(drain):
    job = Job()
    torque = Torque({"1.h": job})
    torque.trouble["qhold -h o 1.h"] = lambda: job.shown.update(job_state="C", Hold_Types="o")
    torque.trouble["qhold"] = (1, "qhold: ended")
    assert drain(torque)[0] == "1.h (alice): off n1 by itself"
    assert not (drain.path / "drain.json").exists()


def test_hold_that_is_not_answered_and_set(drain):
    torque = Torque({"1.h": Job()})

    def hold_and_hang():
        del torque.trouble["qhold"]
        torque(["/x/qhold", "-h", "o", "1.h"])
        raise CommandError("qhold got no answer")

    torque.trouble["qhold"] = hold_and_hang
    assert drain(torque)[0] == "1.h (alice): moved from n1 to n2, off n1 after 2.0 seconds"


def test_server_that_is_away_for_a_while(drain):
    torque = Torque({"1.h": Job()})
    looks = []

    def fail_twice():
        looks.append(1)
        if len(looks) in (2, 3):
            raise CommandError("no answer")

    torque.trouble["qstat"] = fail_twice
    assert drain(torque)[0] == "1.h (alice): moved from n1 to n2, off n1 after 2.0 seconds"


def test_release_that_is_refused_at_first(drain):
    torque = Torque({"1.h": Job()})
    tries = []

    def refuse_twice():
        tries.append(1)
        if len(tries) < 3:
            raise CommandError("busy")

    torque.trouble["qrls"] = refuse_twice
    assert drain(torque)[0] == "1.h (alice): moved from n1 to n2, off n1 after 2.0 seconds"
    assert torque.done == ["qhold 1.h", "qrls 1.h"]


def test_release_that_is_always_refused_stays_noted_for_the_next_run(drain):
    torque = Torque({"1.h": Job()})
    torque.trouble["qrls -h o 1.h"] = (1, "qrls: no")
    assert drain(torque)[0] == "1.h (alice): is still held: qrls -h o 1.h exited 1: qrls: no; run again to release it"
    torque.trouble.clear()
    assert drain(torque)[0] == "1.h (alice): moved from n1 to n2, off n1"
    assert not (drain.path / "drain.json").exists()


def test_job_that_cannot_be_read(drain):
    torque = Torque({"1.h": Job(), "2.h": Job()})
    torque.trouble["qstat -f 1.h"] = (1, "qstat: busy")
    assert drain(torque)[:2] == ["1.h (): stays on n1: qstat -f 1.h exited 1: qstat: busy",
                                 "2.h (alice): moved from n1 to n2, off n1 after 2.0 seconds"]


# -- what an earlier run left --

def test_job_that_an_earlier_run_held_is_released(drain):
    drain.note(**{"1_h": "n1"})
    job = Job(job_state="H", Hold_Types="o")
    assert drain(Torque({"1.h": job}), ()) == ["1.h (alice): moved from n1 to n2, off n1"]
    assert (drain.jobs.changed, (drain.path / "drain.json").exists()) == (True, False)


def test_hold_of_an_earlier_run_that_is_under_way(drain):
    drain.note(**{"1_h": "n1"})
    job = Job(Hold_Types="o")
    job.due = 1004
    torque = Torque({"1.h": job})
    assert drain(torque)[0] == "1.h (alice): moved from n1 to n2, off n1"
    assert torque.done == ["qrls 1.h"]


@pytest.mark.parametrize("job", [Job(job_state="H", Hold_Types="u"), Job(node="n2"), Job(job_state="C", Hold_Types="o"), None])
def test_job_that_an_earlier_run_noted_and_that_has_no_such_hold(drain, job):
    drain.note(**{"1_h": "n1"})
    torque = Torque({"1.h": job} if job else {})
    assert drain(torque) == [EMPTY]
    assert (torque.done, drain.jobs.changed, (drain.path / "drain.json").exists()) == ([], False, False)


def test_operators_hold_of_others_is_not_touched(drain):
    job = Job(job_state="H", Hold_Types="o")
    torque = Torque({"1.h": job})
    assert drain(torque) == [EMPTY]
    assert (torque.done, job.shown["Hold_Types"]) == ([], "o")


# -- interruptions --

def interrupted(*_arguments):
    raise Interrupted("interrupted by signal 15")


def test_signal_releases_what_is_held_within_some_seconds(drain):
    torque = Torque({"1.h": Job(dump=6), "2.h": Job(dump=30), "3.h": Job()})
    torque.trouble["qhold -h o 3.h"] = interrupted
    assert failure(lambda: drain(torque)) == "interrupted by signal 15; still held: 2.h; run again to release them"
    assert torque.done == ["qhold 1.h", "qhold 2.h", "qrls 1.h"]
    lines = [outcomes.describe_outcome(outcome) for outcome in drain.jobs.outcomes.values()]
    assert lines == ["3.h (alice): stays on n1: the run was interrupted before the job was held",
                     "1.h (alice): off n1 after 6.0 seconds, queued: it was not followed any further",
                     "2.h (alice): is still held: run again to release it"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    torque.trouble.clear()
    assert drain(torque)[:2] == ["2.h (alice): moved from n1 to n2, off n1", "3.h (alice): moved from n1 to n2, off n1 after 2.0 seconds"]


def test_signal_while_nothing_is_held(drain):
    torque = Torque({"1.h": Job(start=None)})
    torque.trouble["qrls"] = lambda: torque.trouble.update({"qstat": interrupted_later(torque)})
    assert failure(lambda: drain(torque)) == "interrupted by signal 15; no job is held"
    assert drain.jobs.outcomes["1.h"]["action"] == "queued"


def interrupted_later(torque):
    looks = []

    def look():
        looks.append(1)
        if len(looks) == 3:
            torque.trouble.clear()
            interrupted()

    return look


# -- nodes --

def test_node_that_is_not_offline(drain):
    torque = Torque({"1.h": Job()})
    torque.marks["n1"] = ""
    assert failure(lambda: drain(torque)) == (
        "n1: not offline, so that jobs would come back; drain it first (ckpt.torque.pbs_node); no job was held")
    assert torque.done == []


def test_node_that_nobody_knows(drain):
    assert failure(lambda: drain(Torque({}), ("n9",))) == "the server knows no node n9; pbsnodes shows the names it knows"


def test_wait_for_jobs_that_stay(drain):
    torque = Torque({"1.h": Job(), "2.h": Job(Checkpoint="u", end=1020), "3.h": Job(Checkpoint="n", end=1030)})
    assert drain(torque, wait=60) == ["1.h (alice): moved from n1 to n2, off n1 after 2.0 seconds",
                                      "2.h (alice): off n1 after 20.0 seconds by itself",
                                      "3.h (alice): off n1 after 30.0 seconds by itself", EMPTY]


def test_wait_that_is_over(drain):
    torque = Torque({"1.h": Job(Checkpoint="u", end=1020), "2.h": Job(Checkpoint="u")})
    assert drain(torque, wait=60) == ["1.h (alice): off n1 after 20.0 seconds by itself",
                                      "2.h (alice): stays on n1: it was submitted without qsub -c enabled",
                                      "n1: offline (ckpt-torque: x), still on it: 2.h"]


def test_server_that_is_away_during_the_wait(drain):
    torque = Torque({"1.h": Job(Checkpoint="u", end=1020)})
    looks = []

    def fail_later():
        looks.append(1)
        if len(looks) in (4, 5):
            raise CommandError("no answer")

    torque.trouble["pbsnodes"] = fail_later
    assert drain(torque, wait=60)[1] == EMPTY
    torque.trouble["pbsnodes"] = interrupted
    assert failure(lambda: drain(torque, wait=60)) == "interrupted by signal 15"


@pytest.mark.parametrize("job, held, lines", [
    (Job(), {}, ["1.h (alice): would be held and released, to start on another node"]),
    (Job(Checkpoint="n"), {}, ["1.h (alice): stays on n1: it was submitted without qsub -c enabled"]),
    (Job(**{"Resource_List.nodes": "n1"}), {},
     ["1.h (alice): would be held and released; its resource list names n1, for which it would wait"]),
    (Job(job_state="H", Hold_Types="u"), {}, []),
    (Job(job_state="H", Hold_Types="o"), {"1.h": "n1"}, ["1.h (alice): would be released: an earlier drain held it"]),
    (Job(Hold_Types="o"), {"1.h": "n1"}, ["1.h (alice): would be released: an earlier drain held it"]),
    (Job(node="n2"), {"1.h": "n1"}, []),
])
def test_prediction(job, held, lines):
    torque = Torque({"1.h": job})
    nodes = drain_nodes.read_nodes([Pbsnodes("/x/pbsnodes", "n1", torque)])
    predicted = drain_nodes.predict_outcomes(Commands("/x", run=torque), nodes, held)
    assert outcomes.build_answer(nodes, predicted, False, True)["lines"] == lines
    assert torque.done == []
