"""job_migration as a process, with TORQUE's commands played: its answer, check mode, bad input, signals and SIGKILL."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from ansible_collections.ckpt.torque.plugins.modules import job_migration
from torque_double import Programs

NAME = "ansible_collections.ckpt.torque.plugins.modules.job_migration"
OFFLINE = "n1: offline (ckpt-torque: x), "


@pytest.fixture
def play(module, tmp_path):
    """Call the module: play(jobs, check=False, signal=0, when="qhold", **arguments) returns its answer; play.programs are the commands."""
    (tmp_path / "bin").mkdir()

    def call(jobs=None, check=False, signal=0, when="qhold", **arguments):
        if jobs is not None:
            call.programs = Programs(tmp_path / "bin", jobs, signal, when)
        answer = module("job_migration", call.arguments(**arguments), check=check)
        return answer

    call.arguments = lambda **arguments: dict({
        "nodes": ["n1"], "poll": 0, "torque_directory": str(tmp_path / "bin"), "state_directory": str(tmp_path / "state")}, **arguments)
    call.note = tmp_path / "state" / "drain.json"
    return call


@pytest.fixture
def process(play, tmp_path):
    """Run the module as a process that a command may kill; return its exit status and stdout."""
    def run(**arguments):
        done = subprocess.run([sys.executable, "-m", NAME], input=json.dumps({"ANSIBLE_MODULE_ARGS": play.arguments(**arguments)}),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=60, check=False,
                              env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        return done.returncode, done.stdout

    return run


JOBS = {"1.h": {"dump": 0, "start": 0}, "2.h": {"Checkpoint": "u"}}


def test_jobs_move(play):
    answer = play(JOBS)
    seconds = answer["jobs"][0].pop("seconds")
    assert answer == {
        "changed": True,
        "jobs": [{"job": "1.h", "owner": "alice", "node": "n1", "action": "moved", "reason": "", "to": "n2"},
                 {"job": "2.h", "owner": "alice", "node": "n1", "action": "stays", "reason": "it was submitted without qsub -c enabled",
                  "to": "", "seconds": None}],
        "nodes": [{"name": "n1", "states": ["offline"], "note": "ckpt-torque: x", "jobs": ["2.h"]}],
        "lines": ["1.h (alice): moved from n1 to n2, off n1 after %.1f seconds" % seconds,
                  "2.h (alice): stays on n1: it was submitted without qsub -c enabled", OFFLINE + "still on it: 2.h"],
        "msg": "jobs are still on n1 (2.h)"}
    assert play.programs.read()["done"] == ["qhold 1.h", "qrls 1.h"]
    assert play()["changed"] is False


def test_check_mode_only_looks(play):
    answer = play(JOBS, check=True, wait=True)
    assert (answer["changed"], answer["lines"]) == (True, ["1.h (alice): would be held and released, to start on another node",
                                                           "2.h (alice): stays on n1: it was submitted without qsub -c enabled"])
    assert (play.programs.read()["done"], play.note.parent.exists()) == ([], False)
    assert play({"2.h": {"Checkpoint": "u"}}, check=True)["changed"] is False


def test_wait_that_is_over(play):
    answer = play(JOBS, wait=True, wait_timeout=0)
    assert (answer["failed"], answer["changed"], len(answer["lines"])) == (True, True, 3)
    assert answer["msg"] == "jobs are still on n1 (2.h) after 0 seconds; end them or wait longer; the nodes stay offline"


def test_wait_that_moves_nothing(play):
    answer = play({"1.h": {"dump": 0, "start": 0}}, move=False, wait=True, wait_timeout=0)
    assert (answer["failed"], answer["changed"], answer["jobs"], answer["nodes"][0]["jobs"]) == (True, False, [], ["1.h"])
    assert play.programs.read()["done"] == []
    assert play(check=True, move=False)["changed"] is False


def test_wait_for_nothing(play):
    answer = play({}, wait=True)
    assert (answer["changed"], answer["lines"], answer["msg"]) == (False, [OFFLINE + "no jobs"], "no job is left on n1")


def test_no_nodes(play):
    answer = play({}, nodes=[])
    assert (answer["changed"], answer["lines"], answer["msg"]) == (False, [], "no job is left on any node")


@pytest.mark.parametrize("given, sentence", [
    ({"jobs_at_once": 0}, "jobs_at_once is 0, but must be at least 1; nothing was changed"),
    ({"hold_timeout": 0}, "hold_timeout is 0, but must be at least 1; nothing was changed"),
    ({"start_timeout": -1}, "start_timeout is -1, but must be at least 0; nothing was changed"),
    ({"wait_timeout": -1}, "wait_timeout is -1, but must be at least 0; nothing was changed"),
    ({"nodes": ["n1", "-a"]}, "'-a' cannot be the name of a node; use letters, digits, '.', '_' and '-'; nothing was changed"),
    ({"nodes": ["n9"]}, "the server knows no node n9; pbsnodes shows the names it knows"),
    ({"nodes": ["n1", "n2"]}, "n2: not offline, so that jobs would come back; drain it first (ckpt.torque.pbs_node); no job was held"),
    ({"torque_directory": "/nonexistent"},
     "/nonexistent has no pbsnodes, qhold, qrls, qstat; run on the host of pbs_server, or correct torque_directory; nothing was changed"),
])
def test_bad_input(play, given, sentence):
    answer = play(JOBS, **given)
    assert (answer["failed"], answer["msg"]) == (True, sentence)
    assert play.programs.read()["done"] == []


def test_killed_run_leaves_a_hold_that_the_next_one_takes_off(play, process):
    play({"1.h": {"dump": 0, "start": 0}}, check=True)
    play.programs.change(signal=signal.SIGKILL)
    assert process()[0] == -signal.SIGKILL
    assert (json.loads(play.note.read_text()), play.programs.read()["done"]) == ({"jobs": {"1.h": "n1"}}, ["qhold 1.h"])
    play.programs.change(signal=0)
    assert play(nodes=[], check=True)["lines"] == ["1.h (alice): would be released: an earlier drain held it"]
    assert play(nodes=[])["lines"] == ["1.h (alice): moved from n1 to n2, off n1"]
    assert play.programs.read()["done"] == ["qhold 1.h", "qrls 1.h"]
    assert not play.note.exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_signal_releases_what_is_held(play, process, number):
    play({"1.h": {"dump": 0, "start": 0}, "2.h": {"dump": 0}}, check=True)
    play.programs.change(signal=number)
    status, output = process(jobs_at_once=1)
    answer = json.loads(output)
    assert (status, answer["msg"]) == (1, "interrupted by signal %d; no job is held" % number)
    line = r"1\.h \(alice\): off n1 after \d+\.\d seconds, queued: it was not followed any further"
    assert re.fullmatch(line, answer["lines"][0]), answer
    assert (play.programs.read()["done"], play.note.exists()) == (["qhold 1.h", "qrls 1.h"], False)


def test_hold_that_stays_fails_the_module():
    answer = {"jobs": [{"job": "1.h", "action": "unreleased", "reason": "qrls: no; run again to release it"}], "nodes": [], "msg": ""}
    assert job_migration.find_failure(answer, {"wait": False}) == "still held: 1.h (qrls: no; run again to release it)"
