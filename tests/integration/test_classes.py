"""Nodes of several engines in one cluster: a job restarts within its class and is refused outside of it."""
import json
import pathlib

import pytest
from cluster import EXAMPLES, HOOKS, STORE, TOP, Cluster, configured

PROGRAMS = "/root/blcr"
FAST_STORE = "/fast/ckpt"


def answer(done):
    return json.loads(done.out[done.out.index("{"):])


@pytest.fixture
def blcr_node(cluster, node2):
    """node2 set up for BLCR, whose commands are there; they are not called where an image is refused."""
    node2.ask("mkdir -p {0} && cd {0} && touch cr_run cr_checkpoint cr_restart && chmod 755 cr_*".format(PROGRAMS))
    with configured(node2, engine="blcr", engine_options={"path": PROGRAMS}):
        yield node2
    node2.ask("rm -r " + PROGRAMS)


def roundtrip(cluster, host, steps, state):
    return answer(cluster.module(host, "hook_roundtrip", steps=steps, state=state, store_path=STORE, user="alice"))


def test_job_of_another_engine_is_refused_and_goes_on_at_home(cluster, blcr_node):
    held = roundtrip(cluster, "node1", ["run", "hold"], {})
    assert held["passed"], held["cause"]
    refused = roundtrip(cluster, "node2", ["refused"], held["state"])
    assert refused["passed"], refused["cause"]
    image = "%s/%s" % (held["state"]["directory"], held["state"]["name"])
    assert refused["refusals"] == ["node2: image %s was written by criu, this node has blcr; restart it on a node like node1; "
                                   "image kept" % image]
    ended = roundtrip(cluster, "node1", ["restart", "finish"], refused["state"])
    assert (ended["passed"], ended["case"], ended["nodes"]) == (True, "refused", ["node1", "node2", "node1"]), ended["cause"]


def test_job_that_is_not_refused(cluster, node2):
    """The step sees that, too: it is no formality."""
    held = roundtrip(cluster, "node1", ["run", "hold"], {})
    result = roundtrip(cluster, "node2", ["refused"], held["state"])
    assert not result["passed"]
    assert result["cause"].startswith("node2: refused: the job did not end within 60 seconds"), result["cause"]
    assert node2.run("pgrep -u alice").out == ""


@pytest.fixture
def classes(cluster, tmp_path):
    """The site of the example two-classes: node2 has a store of its own and a queue that leads there; returns its inventories."""
    for name in ("head", "node2"):
        cluster.nodes[name].ask("mkdir -p /shared/.disks/fast /fast && mount --bind /shared/.disks/fast /fast")
    yield [str(EXAMPLES / "two-classes/inventory.yml"), cluster.write_inventory(tmp_path / "hosts.json")]
    if cluster.torque:
        # qmgr cannot take back a node's property, and the role leaves alone what it does not name.
        cluster.nodes["head"].ask("cd /opt/torque/current/bin && ./qmgr -c 'delete queue fast' && "
                                  "./qmgr -c 'unset queue batch resources_default.nodes'")
    done = cluster.playbook("site")
    assert done.code == 0, done.out
    for name in ("head", "node2"):
        cluster.nodes[name].ask("umount /fast && rmdir /fast")
    cluster.nodes["head"].ask("rm -rf /shared/.disks")


def validate_without_node2(cluster, classes, tmp_path):
    """The hooks of node2 fail; the other class is proven all the same, also by a job."""
    node2 = cluster.nodes["node2"]
    node2.ask("cd %s && cp -p checkpoint checkpoint.good && printf '#!/bin/sh\nexit 1\n' > checkpoint" % HOOKS)
    try:
        done = cluster.playbook("validate", validate_directory=str(tmp_path), inventory=classes)
    finally:
        node2.ask("cd %s && mv checkpoint.good checkpoint" % HOOKS)
    assert done.code != 0, done.out
    report = json.loads((tmp_path / "results.json").read_text())
    fault = "%s: checkpoint hook exited 1: it printed nothing on stderr"
    assert report["failures"] == ["L0 (node2): the hooks' checkpoint is not as the others are; run site.yml on it"] + [
        "L2 (node2): " + fault % step for step in ("continue", "hold")]
    assert [[result["level"], result["nodes"], result["passed"]] for result in report["results"] if result["level"] in ("L2", "L3")] == [
        ["L2", ["node1"], True], ["L2", ["node2"], False], ["L2", ["node1", "node2", "node1"], True], ["L2", ["node2"], False],
    ] + ([["L3", ["node1", "node1"], True], ["L3", ["node2", "node2"], None]] if cluster.torque else [["L3", [], None]])
    assert cluster.nodes["head"].ask("ls -d /shared/ckpt/*.CK /shared/ckpt/alice/* %s/*.CK %s/alice/* 2> /dev/null || true"
                                     % (FAST_STORE, FAST_STORE)) == ""


def run_where_the_store_is(head, command, queue, nodes, node, store):
    job_id = head.ask("cd /tmp && runuser -u alice -- sh -c 'echo sleep 60 | %sqsub -q %s -c enabled -o /dev/null -e /dev/null'"
                      % (command, queue))
    try:
        attributes = head.ask("for i in $(seq 600); do {0}qstat -f {1} | grep exec_host && break; sleep 0.2; done; "
                              "{0}qstat -f {1}".format(command, job_id))
        assert "Resource_List.nodes = %s\n" % nodes in attributes
        assert "exec_host = %s/0" % node in attributes and "checkpoint_dir = %s" % store in attributes
    finally:
        head.ask("{0}qdel {1}; {0}qdel -p {1} > /dev/null 2>&1 || true".format(command, job_id))


def test_nodes_with_a_store_of_their_own(cluster, classes, tmp_path):
    """Jobs move among nodes with their store, others refuse them, and a queue keeps them where their store is."""
    done = cluster.playbook("site", inventory=classes)
    assert done.code == 0, done.out
    done = cluster.playbook("validate", validate_directory=str(tmp_path), inventory=classes)
    assert done.code == 0, done.out
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    ways = sorted([result["level"], result["nodes"], result.get("case", "")] for result in results if result["level"] in ("L2", "L3"))
    assert ways == sorted([["L2", ["node1"], ""], ["L2", ["node2"], ""], ["L2", ["node1", "node2", "node1"], "refused"],
                           ["L2", ["node2", "node1", "node2"], "refused"]]
                          + ([["L3", [name, name], "continue"] for name in ("node1", "node2")] if cluster.torque else [["L3", [], ""]]))
    refusals = [words for result in results for words in result.get("refusals", [])]
    seen, hidden = refusals  # node2 has /shared, too; node1 has no /fast
    assert seen.startswith("node2: directory ") and seen.endswith(
        "is in none of this node's stores (%s); set the job's checkpoint directory beneath one" % FAST_STORE), seen
    assert hidden.startswith("node1: pbs_mom finds no image %s/" % FAST_STORE), hidden
    validate_without_node2(cluster, classes, tmp_path)
    stores = json.loads(cluster.nodes["head"].ask("cat /etc/ckpt-torque/hooks.json"))["stores"]
    assert stores == [{"path": STORE, "id": "default"}, {"path": FAST_STORE, "id": "fast"}]
    if cluster.torque:
        head, command = cluster.nodes["head"], "/opt/torque/current/bin/"
        run_where_the_store_is(head, command, "batch", "1:shared", "node1", STORE)
        run_where_the_store_is(head, command, "fast", "1:fast", "node2", FAST_STORE)


def test_node_in_neither_class(cluster, tmp_path):
    """It is left as it was, with the reason; the others are not held up."""
    inventory = json.loads(pathlib.Path(cluster.inventory).read_text())
    here = {"checkpoint_store_path": "/shared/third/ckpt", "checkpoint_store_id": "third"}
    inventory["all"]["children"]["torque_mom"]["hosts"]["node2"] = here
    path = tmp_path / "inventory.json"
    path.write_text(json.dumps(inventory))
    done = cluster.playbook("site", inventory=str(path))
    assert done.code != 0 and "node2: the server head does not know the store /shared/third/ckpt (third), so that " in done.out, done.out
    assert "changed=1" not in done.out, done.out
    inventory["all"]["children"]["torque_server"]["hosts"]["head"] = {
        "checkpoint_store_additional_stores": [{"path": here["checkpoint_store_path"], "id": here["checkpoint_store_id"]}]}
    path.write_text(json.dumps(inventory))
    try:
        done = cluster.playbook("site", inventory=str(path))
    finally:
        assert cluster.playbook("site").code == 0
    assert done.code != 0
    assert ('"msg": "node2: store /shared/third/ckpt is not a directory on this node; mount it or create it (role checkpoint_store)."'
            in done.out), done.out
    assert (done.changed("node1"), done.changed("node2")) == (0, 0)


def node(engine, kernel, cpu="sse2", **more):
    return dict({"ansible_connection": "local", "__validate_node_engine": {"engine": engine, "node": {
        "kernel": kernel, "kernel_version": "#1", "arch": "x86_64", "libc": "", "cpu": cpu.split()}},
        "__validate_engine": {"level": "L1"}}, **more)


CRIU, OLD, OTHER = node("criu", "6.12.1"), node("blcr", "3.10.0"), node("blcr", "3.10.1")


def legs(*path):
    """There and back as the playbook plans it."""
    steps = [["run", "continue", "hold"]] + [["restart", "hold"]] * (len(path) - 2) + [["restart", "finish"]]
    return [{"node": name, "steps": each} for name, each in zip(path, steps)]


def refusal(mine, theirs):
    return [{"node": mine, "steps": ["run", "hold"]}, {"node": theirs, "steps": ["refused"]},
            {"node": mine, "steps": ["restart", "finish"]}]


@pytest.mark.parametrize("nodes, variables, trips", [
    ({"a": CRIU}, {}, [legs(*"aa")]),
    ({"a": CRIU, "b": node("criu", "5.14.0")}, {}, [legs(*"abab")]),
    ({"a": CRIU, "b": node("criu", "5.14.0"), "c": CRIU}, {}, [legs(*"abca")]),
    ({"a": CRIU, "b": CRIU, "c": OLD, "d": CRIU, "e": CRIU}, {"validate_ring": "2"}, [
        legs(*"aba"), legs(*"ded"), legs(*"cc"), refusal("a", "c"), refusal("c", "a")]),
    ({"a": CRIU, "b": CRIU, "c": CRIU, "d": CRIU, "e": CRIU}, {"validate_sample": "3"}, [legs(*"acea")]),
    ({"a": CRIU, "b": OLD, "c": OLD}, {}, [legs(*"aa"), legs(*"bcbc"), refusal("a", "b"), refusal("b", "a")]),
    ({"a": CRIU, "b": node("criu", "6.12.1", "avx2 sse2")}, {}, [legs(*"aa"), legs(*"bb"), refusal("b", "a")]),
    ({"a": OLD, "b": OTHER}, {}, [legs(*"aa"), legs(*"bb"), refusal("a", "b"), refusal("b", "a")]),
    ({"a": CRIU, "b": dict(CRIU, checkpoint_store_path="/other/ckpt"), "c": dict(CRIU, checkpoint_store_id="third")}, {},
     [legs(*"aa"), legs(*"bb"), legs(*"cc")] + [refusal(*pair) for pair in ("ab", "ac", "ba", "bc", "ca", "cb")]),
    ({"a": CRIU, "b": OLD}, {"validate_path": ["a", "b"]}, [legs(*"ab")]),
    ({"a": CRIU, "b": dict(OLD, __validate_engine={"failed": True})}, {}, [legs(*"aa")]),
])
def test_which_trips_are_made(tmp_path, nodes, variables, trips):
    """As validate.yml plans them, by what the nodes have said of themselves."""
    inventory, play, result = (tmp_path / name for name in ("inventory.json", "play.yml", "result.json"))
    inventory.write_text(json.dumps({"torque_mom": {"hosts": nodes}}))
    copy = {"content": "{{ [__validate_plan.trips, __validate_plan.jobs] | to_json }}", "dest": str(result)}
    play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [{"ansible.builtin.copy": copy}],
                                 "vars_files": [str(TOP / "playbooks/vars/validate.yml")]}]))
    done = Cluster._ansible("ansible-playbook", "-i", str(inventory), "-e", json.dumps(variables), str(play))
    assert done.code == 0, done.out
    planned, jobs = json.loads(result.read_text())
    assert planned == trips
    paths = [trip for trip in trips if trip[0]["steps"] != ["run", "hold"]]
    assert jobs == [{"path": [leg["node"] for leg in trip], "case": "continue", "number": str(number)} for number, trip in enumerate(paths)]
