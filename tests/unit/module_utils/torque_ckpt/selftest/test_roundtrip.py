"""roundtrip: times of the steps, the evidence in a file, the shape of a result."""
import re
import subprocess

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest import roundtrip
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest.workload import Evidence
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system import processes
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.waiting import wait_until


def test_phases_in_the_order_done():
    phases = roundtrip.Phases()
    assert phases.measure("hold", lambda: "image", node="node1") == "image"
    assert phases.measure("restart", lambda: None, node="node2", counter=57) is None
    seconds = [phase.pop("seconds") for phase in phases.done]
    assert all(isinstance(value, float) and value >= 0 for value in seconds)
    assert phases.done == [{"step": "hold", "node": "node1"}, {"step": "restart", "node": "node2", "counter": 57}]


def test_phase_is_noted_when_it_is_over():
    phases = roundtrip.Phases()
    seen = []
    phases.measure("one", lambda: seen.append(len(phases.done)))
    phases.measure("two", lambda: seen.append(len(phases.done)))
    assert seen == [0, 1]


def test_phases_go_on_from_earlier_ones_without_changing_them():
    earlier = [{"step": "hold", "seconds": 0.5}]
    phases = roundtrip.Phases(earlier)
    phases.measure("restart", lambda: None)
    assert [phase["step"] for phase in phases.done] == ["hold", "restart"]
    assert earlier == [{"step": "hold", "seconds": 0.5}]
    assert roundtrip.Phases(None).done == []


def test_failed_step_is_no_phase():
    phases = roundtrip.Phases()

    def work():
        raise roundtrip.RoundTripError("broken")

    with pytest.raises(roundtrip.RoundTripError, match="^broken$"):
        phases.measure("hold", work)
    assert phases.done == []


@pytest.mark.parametrize("text, counter, ended, problems", [
    ("1 1 1 aa\n2 2 2 aa\nend 2\n", 2, True, []),
    ("1 1 1 aa\n2 2 2 a", 1, False, []),
    ("1 1 1", 0, False, []),
    ("", 0, False, []),
    ("1 1 1 aa\n3 3 3 aa\n4 4", 3, False, ["counter 3 follows 1 (gap)"]),
], ids=["whole", "half line", "half first line", "empty", "gap"])
def test_evidence(tmp_path, text, counter, ended, problems):
    (tmp_path / "output").write_text(text)
    evidence = roundtrip.read_evidence(str(tmp_path / "output"))
    assert (evidence.counter, evidence.ended, evidence.problems) == (counter, ended, problems)


def test_evidence_of_no_file(tmp_path):
    evidence = roundtrip.read_evidence(str(tmp_path / "missing"))
    assert (evidence.counter, evidence.ended, evidence.problems) == (0, False, [])


def test_evidence_of_damaged_bytes(tmp_path):
    (tmp_path / "output").write_bytes(b"1 1 1 aa\n\xff\xfe\n2 2 2 aa\n")
    assert roundtrip.read_evidence(str(tmp_path / "output")).problems == ["line 2 is damaged: \ufffd\ufffd"]


def test_evidence_after_the_end(tmp_path):
    (tmp_path / "output").write_text("1 1 1 aa\nend 1\n2 2 2")
    assert roundtrip.read_evidence(str(tmp_path / "output")).problems != []


WHOLE = "1 1 1 aa\n2 2 2 aa\nend 2\n"


def test_judge_of_what_is_as_it_should_be():
    assert roundtrip.check_evidence(Evidence(WHOLE), 7, least=2) is None


@pytest.mark.parametrize("text, status, least, words", [
    ("1 1 1 aa\n3 3 3 aa\nend 3\n", 1, 9, "the tree's output is not whole: counter 3 follows 1 (gap)"),
    ("1 1 1 aa\n", 1, 9, "the tree's output has no end; its last counter is 1"),
    ("", 7, 0, "the tree's output has no end; its last counter is 0"),
    (WHOLE, 1, 3, "the tree ended at 2, but its last image was written at 3: it is not from that image"),
    (WHOLE, 1, 2, "the tree's exit status is 1, expected 7"),
    (WHOLE, 0, 0, "the tree's exit status is 0, expected 7"),
], ids=["gap", "no end", "nothing", "older image", "status", "zero"])
def test_judge_of_what_is_not(text, status, least, words):
    with pytest.raises(roundtrip.RoundTripError) as caught:
        roundtrip.check_evidence(Evidence(text), status, "the tree", least=least)
    assert str(caught.value) == words


def test_judge_calls_the_output_what_it_is_told():
    with pytest.raises(roundtrip.RoundTripError, match="^what was delivered has no end; its last counter is 0$"):
        roundtrip.check_evidence(Evidence(""), 7, output="what was delivered")


def test_result():
    assert roundtrip.build_result("L1", ["node1"], False, "broken", exit_status=3, phases=[]) == {
        "level": "L1", "nodes": ["node1"], "passed": False, "cause": "broken", "exit_status": 3, "phases": []}


def test_where_processes_wait():
    with subprocess.Popen(["sleep", "600"]) as one, subprocess.Popen(["env", "--block-signal=USR1", "sleep", "600"]) as other:
        def read_both():
            return [processes.read_process(process.pid) for process in (one, other)]
        try:
            wanted = r"process %d \(sleep\) is S( in \w+)?; process %d \(sleep\) is S( in \w+)? without signals 200" % (one.pid, other.pid)
            assert wait_until(lambda: re.fullmatch(wanted, roundtrip.describe_processes(read_both())), 20), \
                roundtrip.describe_processes(read_both())
            known = read_both()
        finally:
            one.kill()
            other.kill()
    assert roundtrip.describe_processes(known) == "there is no process of it"
