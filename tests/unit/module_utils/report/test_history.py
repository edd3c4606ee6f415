"""The history: only whole lines of the right form are read, and a change is named."""

import io
import json

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.report import history


def run(day, outcome="passed", engine="criu 4.1", collection="0.2.0", torque="6.1.3", kernel="6.12", name="a"):
    level = {"passed": "passed", "failed": "failed", "unproven": "unproven"}[outcome]
    return {"schema": 1, "time": "2026-11-%02d" % day, "passed": True, "verdict": "fine", "collection": collection, "torque": torque,
            "nodes": {name: {"L1": level, "L2": "passed", "L3": "unproven", "outcome": outcome, "engine": engine, "kernel": kernel}}}


def read(*lines):
    return history.read_runs(io.BytesIO("".join(lines).encode()))


def test_last_runs_are_read():
    runs = [run(day) for day in range(1, 26)]
    assert read(*map(history.format_line, runs)) == (runs[-history.RUNS:], [])
    assert read("") == ([], [])


@pytest.mark.parametrize("line, fault", [
    ("{", "it is not JSON"), ("[]", "it is not an object"), ('"text"', "it is not an object"),
    ("[" * 1000 + "]" * 1000, "it is nested more than 8 deep"),
    (json.dumps(dict(run(1), schema=2)), "schema is 2, not 1"),
    (json.dumps(dict(run(1), nodes={"a": {}})), "a node.L1 is missing"),
    (json.dumps(run(1)).replace('"passed", "L2"', '"maybe", "L2"'),
     "a node.L1 is not one of passed, failed, class, unproven"),
    (json.dumps(dict(run(1), verdict="a" * 5000)), "it holds a text of more than 4096 characters"),
])
def test_line_that_is_left_out(line, fault):
    assert read(history.format_line(run(1)), line + "\n", history.format_line(run(2))) == ([run(1), run(2)], ["line 2: " + fault])


def test_only_the_end_of_a_large_file_is_read(monkeypatch):
    line = history.format_line(run(1))
    monkeypatch.setattr(history, "LARGEST", len(line) * 2 + 10)
    assert read(line * 4, "broken\n") == ([run(1)] * 2, ["line 3 of those read: it is not JSON"])


@pytest.mark.parametrize("runs, sentence", [
    ([run(1), run(2)], ""),
    ([run(1, "failed"), run(2, "failed")], ""),
    ([run(1), run(2, "failed"), run(3)], ""),
    ([run(1), run(2, "failed", engine="criu 4.2", collection="0.3.0"), run(3, "failed", kernel="6.18")],
     "stopped passing since 2026-11-02; passed last 2026-11-01; what changed: collection 0.2.0 -> 0.3.0, engine criu 4.1 -> criu 4.2"),
    ([run(1), run(2, name="b"), run(3, "unproven"), run(4, "failed", torque="", engine="-")],
     "stopped passing since 2026-11-04; passed last 2026-11-01; what changed: nothing that is recorded"),
    ([run(1), run(2, "failed", kernel="6.18")],
     "stopped passing since 2026-11-02; passed last 2026-11-01; what changed: kernel 6.12 -> 6.18"),
])
def test_change_is_named(runs, sentence):
    assert history.describe_change(runs, "a") == sentence
