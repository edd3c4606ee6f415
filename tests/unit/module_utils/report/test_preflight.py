"""Which faults level L0 finds, by exact text, and that only the node that has one is named."""
import copy

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.report import preflight

LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"


def facts(**state):
    engine = {"engine": "criu", "engines": {"criu": {"version": "4.2.1"}}, "key_ids": ["2026"], "pids": {"max": 4194304}}
    default = {"hooks_directory": "/usr/lib/ckpt-torque", "hooks": {"checkpoint": "aa"}, "changed_hooks": [], "odd_programs": [],
               "complaint": "", "stores": [{"path": "/shared/ckpt", "free": 1073741825, "reserve": 1073741824}],
               "config_path": "/var/spool/torque/mom_priv/config",
               "directives": {"checkpoint_script": ["/c"], "restart_script": ["/r"], "usecp": ["*:/s /s"]},
               "service": {"name": "pbs_mom", "wanted": True, "running": True},
               "libraries": {LIBC: {"bytes": 2003408, "build_id": "58749c528985eab03e6700ebc1469fa5"}},
               "user": {"name": "alice", "uid": 1500, "gid": 1500}, "record_fault": "", "clock": 0.0}
    return {"engine": engine, "state": dict(copy.deepcopy(default), **state)}


def find(nodes, classes=None, seconds=60):
    return preflight.find_faults(nodes, [list(nodes)] if classes is None else classes, seconds)


def three(**state):
    return {"node1": facts(), "node2": facts(**state), "node3": facts()}


def test_nodes_that_are_alike():
    assert find({"node%d" % number: facts() for number in range(500)}) == {"node%d" % number: [] for number in range(500)}
    assert find({}) == {}


@pytest.mark.parametrize("state, sentence", [
    ({"hooks": {}, "complaint": "x"}, "there are no hooks in /usr/lib/ckpt-torque; run site.yml on it"),
    ({"odd_programs": ["checkpoint"]}, "the hooks' checkpoint is not as the others are; run site.yml on it"),
    ({"changed_hooks": list("abcde")}, "the hooks differ from those of the collection (a, b, c and 2 others); run site.yml on it"),
    ({"complaint": "store /shared/ckpt is not mounted; mount it"}, "store /shared/ckpt is not mounted; mount it"),
    ({"stores": [{"path": "/shared/ckpt", "free": 1073741824, "reserve": 1073741824}]},
     "store /shared/ckpt has 1.0 GiB free, of which 1.0 GiB are reserved; free some space there or lower checkpoint_hooks_reserve"),
    ({"stores": [{"path": "/shared/ckpt", "free": 0, "reserve": 0}]},
     "store /shared/ckpt has 0 B free, of which 0 B are reserved; free some space there or lower checkpoint_hooks_reserve"),
    ({"service": {"name": "pbs_mom", "wanted": True, "running": False}},
     "pbs_mom does not run; look at \"journalctl -u pbs_mom\" and start it"),
    ({"directives": None}, "there is no /var/spool/torque/mom_priv/config; run site.yml on it"),
    ({"directives": {"usecp": ["*:/s /s"], "checkpoint_script": ["/c"]}},
     "/var/spool/torque/mom_priv/config names no checkpoint_script or no restart_script; run site.yml on it"),
    ({"user": {"name": "alice", "uid": None, "gid": None}},
     "user alice is not known there; create the account as on the other nodes, or name another one in validate_user"),
    ({"record_fault": "/etc/ckpt-torque/nodes/node2.json says that its CPU lacks avx2, which it has"},
     "/etc/ckpt-torque/nodes/node2.json says that its CPU lacks avx2, which it has, so that \"torque-ckpt show\" is wrong about it; "
     "run site.yml on it"),
])
def test_faults_of_a_node_alone(state, sentence):
    assert find({"node2": facts(**state)}) == {"node2": [sentence]}
    assert find({"node2": facts(**state)}, []) == {"node2": [sentence]}


@pytest.mark.parametrize("state, sentence", [
    ({"directives": {"checkpoint_script": ["/c"], "restart_script": ["/r"], "usecp": ["*:/s /t", "*:/u /u"]}},
     "mom_priv/config has $usecp *:/s /t, *:/u /u, that of node1 and 1 other has $usecp *:/s /s; change it, or run site.yml on it"),
    ({"directives": {"checkpoint_script": ["/c"], "restart_script": ["/r"]}},
     "mom_priv/config has no $usecp, that of node1 and 1 other has $usecp *:/s /s; change it, or run site.yml on it"),
    ({"libraries": {LIBC: {"bytes": 2003400, "build_id": "0123456789abcdef"}}},
     LIBC + " is of 2003400 bytes with build id 0123456789ab, on node1 and 1 other it is of 2003408 bytes with build id 58749c528985; "
     "install the same packages on both, or no job restarts that has mapped it"),
    ({"libraries": {LIBC: facts()["state"]["libraries"][LIBC], "/usr/lib/locale/locale-archive": {"bytes": 5, "build_id": ""}}},
     "/usr/lib/locale/locale-archive is of 5 bytes, on node1 and 1 other it is not there; install the same packages on both, or no job "
     "restarts that has mapped it"),
    ({"user": {"name": "alice", "uid": 1700, "gid": 1500}},
     "the user of the jobs has uid 1700 and gid 1500, on node1 and 1 other uid 1500 and gid 1500; change the account, with all its files, "
     "so that they are the same everywhere"),
    ({"clock": 7200.5}, "its clock is 7200 seconds ahead; set it, by NTP for instance"),
    ({"clock": -61.0}, "its clock is 61 seconds behind; set it, by NTP for instance"),
])
def test_differences(state, sentence):
    assert find(three(**state)) == {"node1": [], "node2": [sentence], "node3": []}


@pytest.mark.parametrize("engine, sentence", [
    ({"engines": {"criu": {"version": "3.19"}}},
     "the engine is criu 3.19, on node1 and 1 other it is criu 4.2.1; install the same version, or run site.yml on it"),
    ({"key_ids": ["2025"]}, "the hooks' keys are 2025, on node1 and 1 other they are 2026, so that images cannot be verified; "
                            "run site.yml on it"),
    ({"key_ids": []},
     "the hooks' keys are none, on node1 and 1 other they are 2026, so that images cannot be verified; run site.yml on it"),
    ({"pids": {"max": 32768}}, "process ids end at 32768, on node1 and 1 other at 4194304, and a job that has a higher one cannot restart "
                               "here; set checkpoint_hooks_pid_max and run site.yml on it"),
])
def test_differences_of_the_engine(engine, sentence):
    nodes = three()
    nodes["node2"]["engine"].update(engine)
    assert find(nodes) == {"node1": [], "node2": [sentence], "node3": []}


@pytest.mark.parametrize("state", [{"clock": 60.0}, {"clock": -59.9}, {"user": None}, {"libraries": {}}])
def test_what_is_no_fault(state):
    assert find(three(**state)) == {"node1": [], "node2": [], "node3": []}


def test_more_process_ids_stop_nothing():
    nodes = three()
    nodes["node2"]["engine"]["pids"]["max"] = 1 << 30
    assert not any(find(nodes).values())


def test_the_first_of_two_is_taken_for_right():
    nodes = {"node1": facts(user={"name": "alice", "uid": 7, "gid": 7}), "node2": facts(clock=3600.0)}
    faults = find(nodes)
    assert faults["node1"] == []
    assert [sentence.split(",")[0] for sentence in faults["node2"]] == ["the user of the jobs has uid 1500 and gid 1500",
                                                                        "its clock is 3600 seconds ahead; set it"]


def test_a_controller_whose_clock_is_wrong_blames_no_node():
    assert not any(find({name: facts(clock=-7200.0) for name in ("node1", "node2", "node3")}).values())


def test_classes_are_not_compared_with_each_other():
    other = {"libraries": {LIBC: {"bytes": 1, "build_id": ""}}}
    nodes = {"node1": facts(), "node2": facts(), "node3": facts(**other), "node4": facts(**other)}
    assert not any(find(nodes, [["node1", "node2"], ["node3", "node4"]]).values())
    assert [name for name, faults in find(nodes).items() if faults] == ["node3", "node4"]


def test_most_nodes_are_right():
    """Also when the first one is not."""
    nodes = {"node%d" % number: facts() for number in range(1, 6)}
    nodes["node1"]["engine"]["key_ids"] = ["1", "2"]
    assert find(nodes) == dict({name: [] for name in nodes}, node1=[
        "the hooks' keys are 1, 2, on node2 and 3 others they are 2026, so that images cannot be verified; run site.yml on it"])
