"""The paths over the nodes of a class, the turns in which they are walked, and what is known when a node fails."""

import collections

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.validation import walk


def names(count):
    return ["n%d" % number for number in range(1, count + 1)]


def moves(paths):
    return [pair for path in paths for pair in zip(path, path[1:])]


@pytest.mark.parametrize("count, ring, paths", [
    (1, 10, ["n1 n1"]),
    (2, 10, ["n1 n2 n1 n2"]),
    (2, 2, ["n1 n2 n1 n2"]),
    (3, 10, ["n1 n2 n3 n1"]),
    (3, 2, ["n1 n2 n3 n1"]),  # a ring of two would leave one alone
    (4, 3, ["n1 n2 n1", "n3 n4 n3"]),
    (5, 2, ["n1 n2 n1", "n3 n4 n5 n3"]),
    (10, 10, ["n1 n2 n3 n4 n5 n6 n7 n8 n9 n10 n1"]),
    (11, 10, ["n1 n2 n3 n4 n5 n1", "n6 n7 n8 n9 n10 n11 n6"]),
])
def test_rings(count, ring, paths):
    assert walk.cut_rings(names(count), ring) == [path.split() for path in paths]


@pytest.mark.parametrize("ring", [2, 3, 10, 499, 1000])
@pytest.mark.parametrize("count", [3, 10, 11, 12, 21, 500])
def test_every_node_is_once_source_and_once_target(count, ring):
    paths = walk.cut_rings(names(count), ring)
    assert sorted(source for source, _target in moves(paths)) == sorted(target for _source, target in moves(paths)) == sorted(names(count))
    sizes = [len(path) - 1 for path in paths]
    assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 2 and max(sizes) <= max(ring, 3)
    assert len(paths) == min(-(-count // ring), count // 2)
    assert all(path[0] == path[-1] for path in paths)


@pytest.mark.parametrize("count, most, sample", [
    (5, None, "n1 n2 n3 n4 n5"),
    (5, 5, "n1 n2 n3 n4 n5"),
    (5, 9, "n1 n2 n3 n4 n5"),
    (5, 2, "n1 n5"),
    (5, 3, "n1 n3 n5"),
    (10, 4, "n1 n4 n7 n10"),
    (1, 2, "n1"),
])
def test_sample(count, most, sample):
    assert walk.sample_nodes(names(count), most) == sample.split()


@pytest.mark.parametrize("most", range(2, 500))
def test_sample_is_evenly_spread(most):
    numbers = [int(name[1:]) for name in walk.sample_nodes(names(500), most)]
    gaps = {second - first for first, second in zip(numbers, numbers[1:])}
    assert (len(numbers), numbers[0], numbers[-1]) == (most, 1, 500)
    assert max(gaps) - min(gaps) <= 1 and min(gaps) >= 1


def plan(classes, ring=10):
    paths = [path for nodes in classes for path in walk.cut_rings(nodes, ring)]
    trips = walk.plan_trips(paths, [(nodes[0], others[0]) for nodes in classes for others in classes if others != nodes])
    return paths, trips, walk.plan_turns(trips, [node for nodes in classes for node in nodes])


def test_trips():
    assert walk.plan_trips([["a"], list("bcb")], []) == [
        [{"node": "a", "steps": ["run", "continue", "finish"]}],
        [{"node": "b", "steps": ["run", "continue", "hold"]}, {"node": "c", "steps": ["restart", "hold"]},
         {"node": "b", "steps": ["restart", "finish"]}]]
    assert walk.plan_trips([], [("a", "b"), ("b", "a")]) == [
        [{"node": "a", "steps": ["run", "hold"]}, {"node": "b", "steps": ["refused"]}, {"node": "a", "steps": ["restart", "finish"]}],
        [{"node": "b", "steps": ["run", "hold"]}, {"node": "a", "steps": ["refused"]}, {"node": "b", "steps": ["restart", "finish"]}]]
    assert walk.plan_trips([], []) == []


@pytest.mark.parametrize("count", [3, 10, 11, 12, 21, 100, 500, 2000])
def test_turns_are_those_of_the_longest_ring(count):
    """However many nodes there are: of 500 nodes 50 rings take as long as one of ten."""
    paths, _trips, turns = plan([names(count)])
    assert len(turns) == max(map(len, paths)) <= walk.RING + 1
    assert sum(map(len, turns)) == count + len(paths)


@pytest.mark.parametrize("classes", [
    [names(500)], [["a"], ["b"]], [["a"], ["b", "c"]], [list("abc"), list("defg"), ["h"]], [names(40), ["x%d" % n for n in range(40)]]])
def test_turns_keep_the_order_of_legs(classes):
    """Each leg has its turn, after the one before; no node has two legs in one turn."""
    _paths, trips, turns = plan(classes)
    places = {leg["key"]: (turn, host, leg) for turn, legs in enumerate(turns) for host, leg in legs.items()}
    assert sorted(places) == sorted("%d.%d" % (trip, number) for trip, legs in enumerate(trips) for number in range(len(legs)))
    for trip, legs in enumerate(trips):
        for number, leg in enumerate(legs):
            turn, host, planned = places["%d.%d" % (trip, number)]
            assert (host, planned["node"], planned["steps"]) == (leg["node"], leg["node"], leg["steps"])
            before = "%d.%d" % (trip, number - 1)
            assert planned["before"] == ([places[before][1], before] if number else [])
            assert not number or places[before][0] < turn
    assert all(turns)


def test_refusals_cost_few_turns():
    _paths, trips, turns = plan([names(10), ["x%d" % number for number in range(10)]])
    assert (len(trips), len(turns)) == (4, 11)  # while the rings are on their way


def test_nodes_outside_the_run_are_served_by_its_first_host():
    turns = walk.plan_turns(walk.plan_trips([list("axa")], []), ["a", "b"])
    assert [[(host, leg["node"]) for host, leg in turn.items()] for turn in turns] == [[("a", "a")], [("a", "x")], [("a", "a")]]


LOST = "the host could not be reached or the module failed; see the output of ansible-playbook"


def make_walk(classes, ring=10, broken=(), silent=(), unknown=()):
    """Return paths, trips, what became of them, and how many legs were done, of nodes that fail, do not answer or do not know the user."""
    paths, trips, turns = plan(classes, ring)
    walked = collections.defaultdict(dict)
    legs = 0
    for turn in turns:
        for host, entry in turn.items():
            leg = walk.find_leg(entry, walked)
            if not leg:
                continue
            legs += 1
            nodes = leg["state"].get("nodes", [])
            if host in silent:
                walked[host][leg["key"]] = {"unreachable": True, "msg": "no route"}
                continue
            nodes = nodes if host in unknown else nodes + [host]
            failed = host in broken or host in unknown
            walked[host][leg["key"]] = {
                "level": "L2", "passed": not failed, "nodes": nodes, "cause": "%s: %s: broken" % (host, leg["steps"][0]) if failed else "",
                "state": {"user": "alice", "job_id": leg["key"].split(".")[0], "nodes": nodes}}
    judged = walk.judge_trips(trips, turns, walked)
    return paths, trips, judged, legs


def brief(results):
    return [(result["passed"], " ".join(result["nodes"]), result["cause"]) for result in results]


def test_rings_that_pass():
    paths, _trips, judged, legs = make_walk([names(21)])
    assert brief(walk.list_moves(paths, judged)) == [(True, " ".join(path), "") for path in paths]
    assert [trip["failed_at"] for trip in judged] == [""] * 3
    assert legs == 24


def test_failed_node_stops_its_ring_alone():
    paths, trips, judged, legs = make_walk([names(9)], 3, broken=["n5"])
    assert brief(walk.list_moves(paths, judged)) == [
        (True, "n1 n2 n3 n1", ""), (False, "n4 n5", "n5: restart: broken"), (True, "n7 n8 n9 n7", ""),
        (None, "n6", "not proven: the job failed before it came to this node")]
    assert [trip["failed_at"] for trip in judged] == ["", "n5", ""]
    assert legs == 4 + 2 + 4
    assert walk.find_remains(trips, judged, [names(9)], names(9)) == {"n4": [{"user": "alice", "job_id": "1", "nodes": ["n4", "n5"]}]}


def test_node_that_does_not_answer():
    """It is named, and what its ring's job left is removed by another node."""
    paths, trips, judged, _legs = make_walk([names(9)], 3, silent=["n4", "n8"])
    assert brief(walk.list_moves(paths, judged)) == [
        (True, "n1 n2 n3 n1", ""), (False, "n4", "n4: " + LOST), (False, "n7 n8", "n8: " + LOST)] + [
            (None, node, "not proven: the job failed before it came to this node") for node in ("n5", "n6", "n9")]
    assert walk.find_remains(trips, judged, [names(9)], names(9)) == {"n7": [{"user": "alice", "job_id": "2", "nodes": ["n7"]}]}


def test_first_node_that_dies_on_the_way():
    """Another one that has its store removes what is left."""
    paths, trips, turns = plan([list("abc")])
    walked = {"a": {"0.0": {"level": "L2", "passed": True, "nodes": ["a"], "cause": "", "state": {"user": "alice"}}}}
    judged = walk.judge_trips(trips, turns, walked)
    assert brief(walk.list_moves(paths, judged)) == [
        (False, "a b", "b: " + LOST), (None, "c", "not proven: the job failed before it came to this node")]
    for hosts, able in ((list("abc"), "a"), (list("bc"), "c")):
        assert walk.find_remains(trips, judged, [list("abc")], hosts) == {able: [{"user": "alice"}]}
    assert walk.find_remains(trips, judged, [list("abc")], ["b"]) == {}


def test_node_that_cannot_have_the_job_is_named():
    """It says so before it is one of the job's nodes."""
    paths, _trips, judged, _legs = make_walk([list("abc")], unknown=["b"])
    assert brief(walk.list_moves(paths, judged))[0] == (False, "a b", "b: restart: broken")


def test_remains_of_a_job_that_was_not_refused_are_removed_at_home():
    _paths, trips, judged, _legs = make_walk([list("ab"), list("cd")], broken=["c"])
    home = walk.find_remains(trips, judged, [list("ab"), list("cd")], list("abcd"))
    assert {host: [state["job_id"] for state in states] for host, states in home.items()} == {"c": ["1", "3"], "a": ["2"]}


def job(number, path, case="move"):
    return {"number": str(number), "path": list(path), "case": case}


def test_jobs_of_a_case_run_at_the_same_time():
    jobs = [job(0, "aba"), job(1, "aba", "periodic"), job(2, "cdc"), job(3, "cdc", "periodic")]
    assert walk.assign_jobs(jobs, list("abcd")) == [{"a": jobs[0], "b": jobs[2]}, {"a": jobs[1], "b": jobs[3]}]
    assert walk.assign_jobs(jobs, ["a"]) == [{"a": jobs[number]} for number in (0, 2, 1, 3)]
    assert walk.assign_jobs([], ["a"]) == []


def trip(passed, nodes, cause=""):
    return {"level": "L3", "passed": passed, "nodes": list(nodes), "cause": cause}


def open_node(name):
    return trip(None, [name], "not proven: the job failed before it came to this node")


def test_results_of_jobs():
    jobs = [job(0, "aba"), job(1, "cdefc"), job(2, "ghg")]
    done = {"0": trip(True, "aba"), "1": trip(False, "c", "d: release: lost"), "2": trip(False, "ghg", "clean: job 1 is still there")}
    assert walk.list_jobs(jobs, done, "head") == [
        done["0"], trip(False, "cd", "d: release: lost"), done["2"], open_node("e"), open_node("f")]


def test_server_that_is_down_is_named_once():
    jobs = [job(0, "aba"), job(1, "cdc")]
    assert walk.list_jobs(jobs, {"0": {"unreachable": True}}, "head") == [
        trip(False, ["head"], LOST)] + [open_node(name) for name in "abcd"]
