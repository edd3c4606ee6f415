"""What validate.yml tries, and which results its report has."""
import pytest
from ansible_collections.ckpt.torque.plugins.filter import validation

PASSED = {"level": "L1", "passed": True}


def node(engine="criu", kernel="6.12.1", build="#1", **more):
    return dict({"__validate_node_engine": {"engine": engine, "node": {"kernel": kernel, "kernel_version": build}},
                 "__validate_engine": PASSED}, **more)


CRIU, OLD = node(), node("blcr", "3.10.0")


def legs(*path):
    """There and back."""
    steps = [["run", "continue", "hold"]] + [["restart", "hold"]] * (len(path) - 2) + [["restart", "finish"]]
    return [{"node": name, "steps": each} for name, each in zip(path, steps)]


def refusal(mine, theirs):
    return [{"node": mine, "steps": ["run", "hold"]}, {"node": theirs, "steps": ["refused"]},
            {"node": mine, "steps": ["restart", "finish"]}]


def test_stores():
    hosts = {"a": {}, "b": {"checkpoint_store_path": "/other"}, "c": {"checkpoint_store_id": "third"}, "head": {}}
    assert validation.validation_stores(hosts, "abc") == {"a": "/shared/ckpt default", "b": "/other default", "c": "/shared/ckpt third"}


@pytest.mark.parametrize("hosts, classes", [
    ({"a": CRIU}, [["a"]]),
    ({"a": CRIU, "b": node(kernel="5.14.0"), "c": CRIU}, [["a", "b", "c"]]),
    ({"a": CRIU, "b": OLD, "c": OLD}, [["a"], ["b", "c"]]),
    ({"a": OLD, "b": node("blcr", "3.10.1"), "c": node("blcr", "3.10.0", "#2"), "d": OLD}, [["a", "d"], ["b"], ["c"]]),
    ({"a": CRIU, "b": dict(CRIU, checkpoint_store_path="/other"), "c": dict(CRIU, checkpoint_store_id="third")}, [["a"], ["b"], ["c"]]),
    ({"a": CRIU, "b": dict(OLD, __validate_engine={"failed": True}), "c": {}}, [["a"]]),
    ({}, []),
])
def test_classes(hosts, classes):
    assert validation.validation_classes(hosts, list(hosts)) == classes


def test_nodes():
    hosts = {"a": dict(CRIU, __validate_node_engine={"kernel": "6.12.1"}), "b": {"checkpoint_store_id": "third"}}
    assert validation.validation_nodes(hosts, ["a", "b"], [["a"]]) == [
        {"name": "a", "class": 1, "store": "/shared/ckpt default", "kernel": "6.12.1"},
        {"name": "b", "store": "/shared/ckpt third", "kernel": ""}]


def test_paths():
    assert validation.validation_paths([["a"], ["b", "c", "d"], ["e", "f"]]) == [["a", "a"], ["b", "c", "b", "c"], ["e", "f", "e", "f"]]


def test_trips():
    classes = [["a"], ["b", "c"]]
    assert validation.validation_trips([["a", "a"], ["b", "c", "b", "c"]], classes) == [
        legs(*"aa"), legs(*"bcbc"), refusal("a", "b"), refusal("b", "a")]
    assert validation.validation_trips([["a", "b", "a"]], classes, refusals=False) == [legs(*"aba")]
    assert validation.validation_trips([], []) == []


def test_trip_on_one_node():
    assert validation.validation_trips([["a"]], [["a"]]) == [[{"node": "a", "steps": ["run", "continue", "finish"]}]]


def test_jobs():
    assert validation.validation_jobs([["a", "b"], ["c"]], ["continue", "move"]) == [
        {"path": ["a", "b"], "case": "continue"}, {"path": ["a", "b"], "case": "move"},
        {"path": ["c"], "case": "continue"}, {"path": ["c"], "case": "move"}]
    assert validation.validation_jobs([], ["continue"]) == [{"path": [], "case": "continue"}]


ASTRAY = {"level": "L2", "passed": False, "nodes": ["a", "b"], "cause": "no token"}
HOOKS = {"level": "L2", "passed": True}
JOB = {"level": "L3", "passed": True}
HOSTS = {"a": node(), "b": node(__validate_engine={"failed": True}, __validate_astray=ASTRAY), "c": {}}


def lost(level, host):
    return {"level": level, "passed": False, "nodes": [host], "cause": validation.LOST}


def not_run(cause):
    return {"level": "L3", "passed": None, "nodes": [], "cause": cause}


@pytest.mark.parametrize("jobs, planned, options, last", [
    ([JOB], 1, {}, [JOB]),
    ([JOB], 2, {}, [JOB, lost("L3", "head")]),
    ([{"failed": True}], 1, {}, [lost("L3", "head")]),
    ([{"skipped": True}], 1, {}, [not_run(validation.NOT_TRIED)]),
    ([], 1, {}, [lost("L3", "head")]),
    ([JOB], 1, {"enabled": False}, [not_run(validation.DISABLED)]),
    ([JOB], 1, {"limited": True}, [not_run("--limit leaves out the server head")]),
])
def test_results(jobs, planned, options, last):
    hosts = dict(HOSTS, head={"__validate_jobs": jobs})
    assert validation.validation_results(hosts, list("abc"), [HOOKS], "head", planned, **options) == [
        dict(PASSED, nodes=["a"]), lost("L1", "b"), lost("L1", "c"), ASTRAY, HOOKS] + last


def test_results_without_a_server():
    assert validation.validation_results(HOSTS, ["a"], [HOOKS], "", 1) == [dict(PASSED, nodes=["a"]), HOOKS]


def test_steps_of_a_job():
    assert validation.validation_steps([
        {"step": "run", "node": "node1", "seconds": 0.5, "counter": 3},
        {"step": "hold", "node": "node1", "seconds": 12.345, "engine_seconds": 0.0406, "counter": 12}]) == [
            "run            node1            0.50 s, engine - s, counter 3",
            "hold           node1           12.35 s, engine 0.041 s, counter 12"]
    assert validation.validation_steps([]) == []


def test_preflight():
    """Each fault is a result; a node of which nothing is known has one, too."""
    state = {"hooks_directory": "/h", "hooks": {"checkpoint": "a"}, "changed_hooks": [], "odd_programs": [],
             "complaint": "", "config_path": "", "directives": None,
             "service": {"name": "pbs_mom", "wanted": False, "running": False}, "libraries": {}, "user": None, "record_fault": "",
             "clock": 0.0}
    engine = {"engine": "criu", "engines": {"criu": {"version": "4.2.1"}}, "key_ids": [], "pids": {"max": 9},
              "node": {"kernel": "6.12.1", "kernel_version": "#1"}}

    def host(**changes):
        return {"__validate_node_engine": engine, "__validate_preflight": dict(state, **changes)}
    hosts = {"a": host(), "b": host(complaint="it is full; free some space", clock=100.0), "c": {},
             "d": {"__validate_node_engine": engine, "__validate_preflight": {"msg": "node4: preflight_info: it is broken; mend it"}},
             "e": {"__validate_node_engine": {"failed": True, "msg": "node5: no engine; set one"}}}
    assert validation.validation_preflight(hosts, list(hosts), "90") == [
        {"level": "L0", "nodes": ["a"], "passed": True, "cause": ""},
        {"level": "L0", "nodes": ["b"], "passed": False, "cause": "b: it is full; free some space"},
        {"level": "L0", "nodes": ["b"], "passed": False, "cause": "b: its clock is 100 seconds ahead; set it, by NTP for instance"},
        {"level": "L0", "nodes": ["c"], "passed": None, "cause": validation.LOST},
        {"level": "L0", "nodes": ["d"], "passed": False, "cause": "d: preflight_info: it is broken; mend it"},
        {"level": "L0", "nodes": ["e"], "passed": False, "cause": "e: no engine; set one"}]
    failed = [result["nodes"] for result in validation.validation_preflight(hosts, list(hosts), 100) if not result["passed"]]
    assert failed == [["b"], ["c"], ["d"], ["e"]]


def test_results_begin_with_the_preflight():
    looked = [{"level": "L0", "nodes": ["a"], "passed": True, "cause": ""}]
    assert [result["level"] for result in validation.validation_results({"a": CRIU}, ["a"], [], "", 0, looked=looked)] == ["L0", "L1"]
