"""What results mean for each node, and the verdict in one sentence."""

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.report import outcomes


def result(level, passed, *nodes, cause="", **facts):
    return dict(facts, level=level, nodes=list(nodes), passed=passed, cause=cause)


def judge(results, nodes):
    judged = outcomes.judge_nodes(results, nodes)
    return [" ".join(node[key] for key in ("L1", "L2", "L3", "outcome")) for node in judged], outcomes.describe_verdict(results, judged)


def nodes(*names, number=1):
    return [{"name": name, "class": number} for name in names]


L1 = [result("L1", True, name) for name in "abc"]
MOVED = [result("L2", True, "a", "b"), result("L3", True, "a", "b")]


@pytest.mark.parametrize("results, given, states, verdict", [
    (L1 + MOVED, nodes(*"abc"), ["passed passed passed passed"] * 2 + ["passed class class passed"],
     "3 of 3 nodes can checkpoint and restart jobs."),
    (L1[:1] + [result("L2", True, "a"), result("L3", True, "a")], nodes("a"), ["passed passed passed passed"],
     "1 of 1 node can checkpoint and restart jobs."),
    (L1 + MOVED, nodes("a", "b") + nodes("c", number=2), ["passed passed passed passed"] * 2 + ["passed unproven unproven unproven"],
     "2 of 3 nodes can checkpoint and restart jobs; not proven for c."),
    (L1 + MOVED, nodes("a", "b") + [{"name": "c"}], ["passed passed passed passed"] * 2 + ["passed unproven unproven unproven"],
     "2 of 3 nodes can checkpoint and restart jobs; not proven for c."),
    (L1 + MOVED[:1] + [result("L3", None, cause="no job")], nodes(*"abc"), ["passed passed unproven unproven"] * 2 +
     ["passed class unproven unproven"], "3 of 3 nodes passed L1 (engine) and L2 (hooks); not proven: L3 (job)."),
    (L1[:2] + [result("L1", False, "c", cause="gone")] + MOVED, nodes(*"abc"), ["passed passed passed passed"] * 2 +
     ["failed unproven unproven failed"], "1 of 3 nodes cannot checkpoint and restart jobs: c."),
    (L1 + [result("L2", False, "a", "b", cause="b: restart: gone")], nodes(*"abc"),
     ["passed unproven unproven unproven", "passed failed unproven failed", "passed unproven unproven unproven"],
     "1 of 3 nodes cannot checkpoint and restart jobs: b."),
    (L1 + [result("L2", False, "a", "b", cause="gone")], nodes(*"abc"),
     ["passed failed unproven failed"] * 2 + ["passed unproven unproven unproven"],
     "2 of 3 nodes cannot checkpoint and restart jobs: a, b."),
    (L1 + MOVED[:1] + [result("L3", False, "head", cause="it is lost; see the output")], nodes(*"abc"),
     ["passed passed unproven unproven"] * 2 + ["passed class unproven unproven"],
     "A round trip failed: head: it is lost; see the output."),
    (L1[:1] + [result("L2", True, "a", "b", case="refused")], nodes("a"), ["passed unproven unproven unproven"],
     "1 of 1 node passed L1 (engine); not proven: L2 (hooks), L3 (job)."),
    ([result("L1", None, "a", cause="check mode")], nodes("a"), ["unproven unproven unproven unproven"], "Nothing was proven: check mode."),
    ([result("L1", None, cause="not proven: validate_level is L0")], nodes("a"), ["unproven unproven unproven unproven"],
     "Nothing was proven: validate_level is L0."),
    ([], [], [], "Nothing was proven: no round trip was run."),
])
def test_judgement(results, given, states, verdict):
    assert judge(results, given) == (states, verdict)


@pytest.mark.parametrize("looked, states, outcomes_of_nodes, verdict", [
    ([result("L0", True, name) for name in "abc"], ["passed"] * 3, ["passed"] * 3, "3 of 3 nodes can checkpoint and restart jobs."),
    ([], ["unproven"] * 3, ["passed"] * 3, "3 of 3 nodes can checkpoint and restart jobs."),
    ([result("L0", True, "a"), result("L0", False, "b", cause="b: no hooks"), result("L0", False, "b", cause="b: no user")],
     ["passed", "failed", "unproven"], ["passed", "failed", "passed"], "1 of 3 nodes failed the preflight, L0: b."),
])
def test_preflight_decides_about_its_own_node(looked, states, outcomes_of_nodes, verdict):
    judged = outcomes.judge_nodes(looked + L1 + MOVED, nodes(*"abc"))
    assert [node["L0"] for node in judged] == states
    assert [node["outcome"] for node in judged] == outcomes_of_nodes
    assert outcomes.describe_verdict(looked + L1 + MOVED, judged) == verdict


def test_preflight_proves_nothing():
    looked = [result("L0", True, "a")]
    assert outcomes.describe_verdict(looked, outcomes.judge_nodes(looked, nodes("a"))) == "Nothing was proven: no round trip was run."


def test_failure_of_a_round_trip_says_more_than_the_preflight():
    results = [result("L0", False, "a", cause="a: gone"), result("L1", False, "b", cause="b: gone")]
    assert outcomes.describe_verdict(results, outcomes.judge_nodes(results, nodes("a", "b"))) == (
        "2 of 2 nodes cannot checkpoint and restart jobs: a, b.")


def test_nodes_without_a_description_are_those_of_level_1():
    assert [node["name"] for node in outcomes.judge_nodes(L1 + MOVED, [])] == ["a", "b", "c"]


@pytest.mark.parametrize("inventory, host", [("a.example.org", "a"), ("a", "a.example.org"), ("a.one", "a.two")])
def test_host_names_may_be_shorter_or_longer(inventory, host):
    assert judge([result("L1", True, inventory), result("L2", True, host)], nodes(inventory))[0] == ["passed passed unproven unproven"]


def test_sentence_names_ten_nodes():
    assert outcomes.name_nodes(list("abcdefghij")) == "a, b, c, d, e, f, g, h, i, j"
    assert outcomes.name_nodes(list("abcdefghijkl")) == "a, b, c, d, e, f, g, h, i, j and 2 others"


@pytest.mark.parametrize("cause, what, cure", [
    ("it is gone; see the output", "it is gone", "see the output"),
    ("a; b; mount it, or make another; then wait", "a; b", "mount it, or make another; then wait"),
    ("it is gone; if it is mine, give it back; image kept", "it is gone", "if it is mine, give it back; image kept"),
    ("it is gone; if it comes back, the job continues", "it is gone; if it comes back, the job continues",
     "compare the user's account, the store and the installed programs of these nodes"),
    ("it is gone; process 7 (x) is R", "it is gone; process 7 (x) is R",
     "compare the user's account, the store and the installed programs of "
     "these nodes"),
    ("it is gone; address is taken", "it is gone; address is taken", "compare the user's account, the store and the installed programs of "
     "these nodes"),
])
def test_cause_and_cure(cause, what, cure):
    assert outcomes.split_cause(cause, "L2") == (what, cure)


def test_results_with_the_same_cause_are_one_group():
    causes = {"a": "a: gone; see it", "b": "gone; see it", "c": "late; see it"}
    same = [result("L1", False, name, cause=cause) for name, cause in causes.items()]
    assert outcomes.group_results(same) == [
        {"level": "L1", "case": "", "nodes": ["a", "b"], "text": "gone; see it", "cause": "gone", "cure": "see it"},
        {"level": "L1", "case": "", "nodes": ["c"], "text": "late; see it", "cause": "late", "cure": "see it"}]
