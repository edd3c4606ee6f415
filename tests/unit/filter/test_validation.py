"""What validate.yml tries, and which results its report has."""
import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.ckpt.torque.plugins.filter import validation

PASSED = {"level": "L1", "passed": True}


def node(engine="criu", kernel="6.12.1", build="#1", cpu="sse2", arch="x86_64", libc="glibc 2.41", **more):
    facts = {"kernel": kernel, "kernel_version": build, "arch": arch, "cpu": cpu.split(), "libc": libc}
    return dict({"__validate_node_engine": {"engine": engine, "node": facts},
                 "__validate_engine": PASSED}, **more)


CRIU, OLD, NEWER = node(), node("blcr", "3.10.0"), node(cpu="sse2 avx2")


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


@pytest.mark.parametrize("options, sharers", [
    ({}, {"a": "a", "b": "b", "c": "a", "d": "d"}),
    ({"alone": False}, {"a": "a", "c": "a"}),
    ({"shared": False}, {"a": "a", "b": "b", "c": "c", "d": "d"}),
    ({"shared": False, "alone": False}, {}),
])
def test_sharers(options, sharers):
    hosts = {"a": {}, "b": {"checkpoint_store_path": "/other"}, "c": {}, "d": {"checkpoint_store_id": "third"}, "head": {}}
    assert validation.validation_sharers(hosts, list("abcd"), **options) == sharers


@pytest.mark.parametrize("hosts, classes", [
    ({"a": CRIU}, [["a"]]),
    ({"a": CRIU, "b": node(kernel="5.14.0"), "c": CRIU}, [["a", "b", "c"]]),
    ({"a": CRIU, "b": OLD, "c": OLD}, [["a"], ["b", "c"]]),
    ({"a": OLD, "b": node("blcr", "3.10.1"), "c": node("blcr", "3.10.0", "#2"), "d": OLD}, [["a", "d"], ["b"], ["c"]]),
    ({"a": CRIU, "b": dict(CRIU, checkpoint_store_path="/other"), "c": dict(CRIU, checkpoint_store_id="third")}, [["a"], ["b"], ["c"]]),
    ({"a": CRIU, "b": dict(OLD, __validate_engine={"failed": True}), "c": {}}, [["a"]]),
    ({"a": CRIU, "b": NEWER, "c": CRIU, "d": node(arch="aarch64"), "e": NEWER}, [["a", "c"], ["b", "e"], ["d"]]),
    ({"a": CRIU, "b": node(libc="glibc 2.36"), "c": CRIU}, [["a", "c"], ["b"]]),
    ({}, []),
])
def test_classes(hosts, classes):
    assert validation.validation_classes(hosts, list(hosts)) == classes


def test_nodes():
    hosts = {"a": dict(CRIU, __validate_node_engine={"kernel": "6.12.1"}), "b": {"checkpoint_store_id": "third"}}
    assert validation.validation_nodes(hosts, ["a", "b"], [["a"]]) == [
        {"name": "a", "class": 1, "store": "/shared/ckpt default", "kernel": "6.12.1"},
        {"name": "b", "store": "/shared/ckpt third", "kernel": ""}]


def test_libraries_of_a_class_are_reported():
    hosts = {"a": CRIU, "b": node(libc="glibc 2.36")}
    assert [host["libc"] for host in validation.validation_nodes(hosts, ["a", "b"], [["a"], ["b"]])] == ["glibc 2.41", "glibc 2.36"]
    assert plan(hosts)["trips"] == [legs(*"aa"), legs(*"bb")]  # the hooks do not refuse it


def test_nodes_whose_cpu_lacks_something():
    hosts = {"a": CRIU, "b": NEWER, "c": node(cpu="sse2 avx2 gfni"), "d": {}}
    assert [host.get("lacks") for host in validation.validation_nodes(hosts, list(hosts), [["a"], ["b"], ["c"]])] == [
        "CPU without avx2 gfni", "CPU without gfni", None, None]
    assert all("lacks" not in host for host in validation.validation_nodes(hosts, ["a"], [["a"]]))


def test_newer_cpu_takes_jobs_of_an_older_one():
    """So only the other way round there is something to refuse."""
    trips = plan({"a": CRIU, "b": NEWER})["trips"]
    assert trips == [legs(*"aa"), legs(*"bb"), refusal("b", "a")]


def plan(hosts, run=None, cases=("continue",), **options):
    return validation.validation_plan(hosts, list(hosts), run or list(hosts), list(cases), **options)


def test_plan():
    hosts = {"a": OLD, "b": CRIU, "c": CRIU, "d": CRIU}
    planned = plan(hosts)
    assert planned["classes"] == [["a"], ["b", "c", "d"]]
    assert planned["paths"] == [["a", "a"], ["b", "c", "d", "b"]]
    assert planned["trips"] == [legs(*"aa"), legs(*"bcdb"), refusal("a", "b"), refusal("b", "a")]
    assert planned["jobs"] == [{"path": path, "case": "continue", "number": str(number)} for number, path in enumerate(planned["paths"])]
    assert planned["left_out"] == []
    assert [sorted(turn) for turn in planned["turns"]] == [["a", "b"], ["a", "b", "c"], ["a", "d"], ["a", "b"], ["b"], ["a", "b"]]


def test_plan_with_numbers_as_texts():
    """So -e gives them."""
    hosts = dict.fromkeys("abcdefg", CRIU)
    assert plan(hosts, ring="3", sample="6") == plan(hosts, ring=3, sample=6)


def test_plan_of_one_path():
    """It knows neither rings nor samples, and nothing has to be refused."""
    planned = plan({"a": CRIU, "b": OLD, "c": CRIU}, path=["a", "b", "a"], ring=2, sample=2)
    assert (planned["paths"], planned["trips"], planned["left_out"]) == ([["a", "b", "a"]], [legs(*"aba")], [])


def test_plan_of_a_sample():
    planned = plan(dict.fromkeys("abcdefg", CRIU), sample=3)
    assert (planned["paths"], planned["left_out"]) == ([["a", "d", "g", "a"]], list("bcef"))


def test_plan_of_cases_that_disturb_other_jobs():
    """One job on the first path; the crash comes last."""
    planned = plan(dict.fromkeys("abcd", CRIU), ring=2, cases=["server_away", "move"], crash_node="c")
    assert [(job["case"], job["path"]) for job in planned["jobs"]] == [
        ("server_away", list("aba")), ("move", list("aba")), ("move", list("cdc")), ("node_crash", ["c"])]


def test_node_to_crash_that_is_not_there():
    with pytest.raises(AnsibleFilterError) as error:
        plan({"a": CRIU, "b": CRIU}, run=["a"], crash_node="b")
    assert str(error.value) == "validate_crash_node names b, which is no compute node of this run; no job was submitted"


def test_plan_without_a_class():
    planned = plan({"a": {}}, cases=["continue", "move"])
    assert (planned["paths"], planned["trips"], planned["turns"]) == ([], [], [])
    assert planned["jobs"] == [{"path": [], "case": "continue", "number": "0"}, {"path": [], "case": "move", "number": "1"}]


class Counted(dict):
    """Variables of hosts, which Ansible computes whenever a host's are asked for."""

    asked = 0

    def __getitem__(self, name):
        self.asked += 1
        return super().__getitem__(name)


def test_plan_of_many_nodes_costs_little():
    """Neither the turns nor what the controller computes for each node grow with the number of nodes."""
    hosts = Counted({"n%d" % number: CRIU for number in range(500)})
    planned = plan(hosts)
    assert len(planned["turns"]) == max(map(len, planned["paths"])) == 11
    assert hosts.asked == 2 * 500
    hosts.asked = 0
    assert [validation.validation_leg(planned, turn, "n7", hosts) for turn in range(11) if turn not in (0, 7)] == [{}] * 9
    assert hosts.asked == 0


def test_preflight_of_many_nodes_costs_little():
    """The controller computes the variables of each node once for each part of the report, however many nodes there are."""
    for count in (10, 500):
        hosts = Counted({"n%d" % number: CRIU for number in range(count)})
        looked = validation.validation_preflight(hosts, list(hosts))
        planned = plan(hosts, level="L0")
        moves = validation.validation_moves(hosts, planned, list(hosts))
        validation.validation_results(hosts, list(hosts), planned, moves, "", looked=looked, level="L0")
        validation.validation_nodes(hosts, list(hosts), planned["classes"])
        validation.validation_sharers(hosts, list(hosts))
        assert hosts.asked <= 7 * count


def walk_all(hosts, planned, fail=()):
    """Do all legs of a plan, as the playbook does."""
    for turn in range(len(planned["turns"])):
        for host in hosts:
            leg = validation.validation_leg(planned, turn, host, hosts)
            if leg:
                result = {"level": "L2", "passed": host not in fail, "nodes": leg["state"].get("nodes", []) + [host],
                          "cause": "%s: hold: no" % host if host in fail else ""}
                result["state"] = {"user": "alice", "nodes": result["nodes"]}
                hosts[host].setdefault("__validate_walked", {})[leg["key"]] = result


def test_moves():
    hosts = {name: dict(CRIU) for name in "abcdefg"}
    planned = plan(hosts, ring=3, sample=6)
    assert (planned["paths"], planned["left_out"]) == ([list("abca"), list("degd")], ["f"])
    walk_all(hosts, planned, fail="b")
    moves = validation.validation_moves(hosts, planned, list(hosts))
    assert [(result["passed"], "".join(result["nodes"]), result["cause"]) for result in moves["results"]] == [
        (False, "ab", "b: hold: no"), (True, "degd", ""), (None, "c", "not proven: the job failed before it came to this node"),
        (None, "f", "not proven: left out by validate_sample")]
    assert moves["failed_at"] == ["b"]
    assert moves["remains"] == {"a": [{"user": "alice", "nodes": ["a", "b"]}]}
    assert validation.validation_rounds(planned, moves, list(hosts)) == [{"a": planned["jobs"][1]}]


def test_leg_has_the_state_of_the_one_before():
    hosts = {name: dict(CRIU) for name in "abc"}
    planned = plan(hosts)
    assert validation.validation_leg(planned, 0, "a", hosts) == {
        "node": "a", "steps": ["run", "continue", "hold"], "key": "0.0", "before": [], "state": {}}
    assert validation.validation_leg(planned, 0, "b", hosts) == validation.validation_leg(planned, 1, "b", hosts) == {}
    walk_all(hosts, planned)
    assert validation.validation_leg(planned, 1, "b", hosts)["state"] == {"user": "alice", "nodes": ["a"]}


ASTRAY = {"level": "L2", "passed": False, "nodes": ["a", "b"], "cause": "no token"}
HOOKS = {"level": "L2", "passed": True}
JOB = {"level": "L3", "passed": True}
HOSTS = {"a": node(), "b": node(__validate_engine={"failed": True}, __validate_astray=ASTRAY), "c": {}}
PLAN = {"jobs": [{"path": ["a", "c"], "case": "move", "number": "0"}], "left_out": []}
MOVES = {"results": [HOOKS], "failed_at": []}


def lost(level, host):
    return {"level": level, "passed": False, "nodes": [host], "cause": validation.LOST}


def not_run(cause, *nodes):
    return {"level": "L3", "passed": None, "nodes": list(nodes), "cause": cause}


def not_reached(name):
    return not_run("not proven: the job failed before it came to this node", name)


@pytest.mark.parametrize("jobs, moves, options, last", [
    ({"0": JOB}, {}, {}, [JOB]),
    ({}, {}, {}, [lost("L3", "head"), not_reached("a"), not_reached("c")]),
    ({"0": {"failed": True}}, {}, {}, [lost("L3", "head"), not_reached("a"), not_reached("c")]),
    ({}, {"failed_at": ["c"]}, {}, [not_run(validation.NOT_TRIED, "a", "c")]),
    ({"0": JOB}, {"failed_at": ["b"]}, {}, [JOB]),
    ({"0": JOB}, {}, {"enabled": False}, [not_run(validation.DISABLED)]),
    ({"0": JOB}, {}, {"limited": True}, [not_run("--limit leaves out the server head")]),
])
def test_results(jobs, moves, options, last):
    hosts = dict(HOSTS, a=node(__validate_jobs=jobs))
    assert validation.validation_results(hosts, list("abc"), PLAN, dict(MOVES, **moves), "head", **options) == [
        dict(PASSED, nodes=["a"]), lost("L1", "b"), lost("L1", "c"), ASTRAY, HOOKS] + last


def lower(level, name):
    return dict(not_run("not proven: validate_level is " + level), level=name)


@pytest.mark.parametrize("level, results", [
    ("L0", [lower("L0", "L1"), lower("L0", "L2"), lower("L0", "L3")]),
    ("L1", [dict(PASSED, nodes=["a"]), lost("L1", "c"), lower("L1", "L2"), lower("L1", "L3")]),
    ("L2", [dict(PASSED, nodes=["a"]), lost("L1", "c"), lost("L2", "a"), lower("L2", "L3")]),
])
def test_results_up_to_a_level(level, results):
    """What is above it was not tried, and no node has failed there."""
    hosts = {"a": node(), "c": {}}
    planned = plan(hosts, level=level)
    moves = validation.validation_moves(hosts, planned, list(hosts))
    for result in moves["results"]:
        result["cause"] = result["cause"].replace("a: ", "")
    assert validation.validation_results(hosts, list(hosts), planned, moves, "head", level=level) == results


@pytest.mark.parametrize("variables, names", [
    ({}, ["/shared/ckpt default"]),
    ({"checkpoint_store_id": "own"}, ["/shared/ckpt default", "/shared/ckpt own"]),
    ({"__validate_images": {"stdout": "{}"}}, ["a: /shared/ckpt default", "b: /shared/ckpt default"]),
])
def test_images(variables, names):
    """Only those of a store that was listed; c does not answer."""
    hosts = {"a": {"__validate_images": {"stdout": "{}"}}, "b": dict({"__validate_images": {"skipped": True}}, **variables), "c": {}}
    if "checkpoint_store_id" in variables:
        hosts["b"]["__validate_images"] = {"stdout": "{}"}
    assert [entry["store"] for entry in validation.validation_images(hosts, list("abc"))] == names


def test_job_for_which_there_is_no_time():
    late = validation.validation_late(PLAN["jobs"][0], "600")
    assert late == dict(not_run("not proven: the 600 seconds of validate_time_budget were over", "a", "c"), case="move")
    assert validation.validation_results(dict(HOSTS, a=node(__validate_jobs={"0": late})), ["a"], PLAN, MOVES, "head")[-1] == late


def test_results_without_a_server():
    assert validation.validation_results(HOSTS, ["a"], PLAN, MOVES, "") == [dict(PASSED, nodes=["a"]), HOOKS]


def test_results_without_a_class():
    planned = {"jobs": [{"path": [], "case": case, "number": case} for case in ("continue", "move")], "left_out": []}
    assert validation.validation_results({"c": {}}, ["c"], planned, {"results": [], "failed_at": []}, "head") == [
        lost("L1", "c"), not_run(validation.NOT_TRIED)]


def test_results_of_a_sample():
    """What nobody looked at is a row of each level that was tried, and the report's nodes are not green."""
    hosts = {name: dict(CRIU) for name in "abcd"}
    planned = plan(hosts, sample=2)
    assert (planned["paths"], planned["left_out"]) == ([list("adad")], ["b", "c"])
    walk_all(hosts, planned)
    moves = validation.validation_moves(hosts, planned, list(hosts))
    hosts["a"]["__validate_jobs"] = {"0": dict(JOB, nodes=list("adad"), cause="")}
    rows = [result for result in validation.validation_results(hosts, list(hosts), planned, moves, "head") if result["passed"] is None]
    left_out = "not proven: left out by validate_sample"
    assert rows == [{"level": level, "passed": None, "nodes": [name], "cause": left_out} for level in ("L2", "L3") for name in "bc"]
    disabled = validation.validation_results(hosts, list(hosts), planned, moves, "head", enabled=False)
    assert disabled[-3:] == [rows[0], rows[1], not_run(validation.DISABLED)]


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
             "complaint": "", "stores": [], "config_path": "", "directives": None,
             "service": {"name": "pbs_mom", "wanted": False, "running": False}, "libraries": {}, "user": None, "record_fault": "",
             "clock": 0.0}
    engine = dict(CRIU["__validate_node_engine"], engines={"criu": {"version": "4.2.1"}}, key_ids=[], pids={"max": 9})

    def host(**changes):
        return {"__validate_node_engine": engine, "__validate_preflight": dict(state, **changes)}
    hosts = {"a": host(), "b": host(complaint="it is full; free some space", clock=100.0), "c": {},
             "d": {"__validate_node_engine": engine, "__validate_preflight": {"msg": "node4: preflight_info: it is broken; mend it"}},
             "e": {"__validate_node_engine": {"failed": True, "msg": "node5: no engine; set one"}},
             "f": {"__validate_node_engine": {"unreachable": True, "msg": "Failed to connect"}}}
    assert validation.validation_preflight(hosts, list(hosts), "90") == [
        {"level": "L0", "nodes": ["a"], "passed": True, "cause": ""},
        {"level": "L0", "nodes": ["b"], "passed": False, "cause": "b: it is full; free some space"},
        {"level": "L0", "nodes": ["b"], "passed": False, "cause": "b: its clock is 100 seconds ahead; set it, by NTP for instance"},
        {"level": "L0", "nodes": ["c"], "passed": None, "cause": validation.LOST},
        {"level": "L0", "nodes": ["d"], "passed": False, "cause": "d: preflight_info: it is broken; mend it"},
        {"level": "L0", "nodes": ["e"], "passed": False, "cause": "e: no engine; set one"},
        {"level": "L0", "nodes": ["f"], "passed": None, "cause": validation.LOST}]
    failed = [result["nodes"] for result in validation.validation_preflight(hosts, list(hosts), 100) if result["passed"] is False]
    assert failed == [["b"], ["d"], ["e"]]


def test_results_begin_with_the_preflight():
    looked = [{"level": "L0", "nodes": ["a"], "passed": True, "cause": ""}]
    assert [result["level"] for result in validation.validation_results(HOSTS, ["a"], PLAN, MOVES, "", looked=looked)][:2] == ["L0", "L1"]
