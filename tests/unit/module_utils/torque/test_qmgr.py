"""qmgr: what TORQUE prints is read right, and the commands make exactly the difference."""

import re

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque import qmgr
from recorded import NODES, QUEUES, SERVER, VERSIONS, calls

ALL = {"batch": {}, "fast": {}, "rt": {}}


# What the cluster of the recordings was given (README.md there).
def lines(state, server=None, queues=None, nodes=None, purge=()):
    """Return the commands (list of str) that the difference takes."""
    goal = qmgr.wanted(server or {}, queues or {}, nodes or {})
    return [line for change in qmgr.plan(state, goal, purge) for line in change.lines()]


def live(version, name="list"):
    return qmgr.parse(calls(version)[name].output)


def state(server=None, queues=None, nodes=None):
    return {"server": {"": server or {}}, "queue": queues or {}, "node": nodes or {}}


def refusal(*arguments, **keywords):
    with pytest.raises(qmgr.QmgrError) as caught:
        lines(*arguments, **keywords)
    return str(caught.value)


# -- what qmgr prints --

@pytest.mark.parametrize("version", VERSIONS)
def test_list_says_the_same_as_print(version):
    """print is made to be read back by qmgr: an independent judge of how list is read."""
    printed = {"server": {"": {}}, "queue": {}, "node": {}}
    for name in ("print-server", "print-queue", "print-node"):
        for line in calls(version)[name].output.splitlines():
            command = re.fullmatch(r"set (?:(server)|(queue|node) (\S+)) (\S+) (\+?=) (.*)", line)
            if command:
                kind = command.group(1) or command.group(2)
                attributes = printed[kind].setdefault(command.group(3) or "", {})
                attribute, value = command.group(4), command.group(6)
                attributes[attribute] = attributes[attribute] + "," + value if command.group(5) == "+=" else value
    read = live(version)
    for kind in qmgr.KINDS:
        assert set(read[kind]) == set(printed[kind])
        for name, attributes in printed[kind].items():
            for attribute, value in attributes.items():
                if attribute != "status":
                    assert qmgr.same(read[kind][name][attribute], value, attribute), attribute
    assert len(printed["server"][""]) > 8
    assert printed["queue"]["batch"]["acl_hosts"] == read["queue"]["batch"]["acl_hosts"] == "head,node1"


@pytest.mark.parametrize("version", VERSIONS)
def test_whole_state(version):
    read = live(version)
    counts = "Transit:0 Queued:0 Held:1 Waiting:0 Running:2 Exiting:0" + ("" if version == "2.5.13" else " Complete:0")
    batch = read["queue"]["batch"]
    assert re.fullmatch(r"Sat Nov 21 \d\d:\d\d:\d\d 2026", batch.pop("mtime"))
    assert batch == {
        "queue_type": "Execution", "total_jobs": "3", "state_count": counts, "acl_hosts": "head,node1",
        "resources_max.mem": "1gb",
        "resources_default.nodes": "1:ppn=1", "resources_default.walltime": "01:00:00", "checkpoint_defaults": "enabled",
        "resources_assigned.nodect": "2", "enabled": "True", "started": "True"}
    assert read["server"][""]["pbs_version"] == version
    assert read["server"][""]["comment"] == (
        "it, is # nice; and long: one, two, three, four, five, six,seven, eight, nine, ten, twelve")
    assert list(read["queue"]) == ["batch", "fast", "rt"]
    assert list(read["node"]) == ["node1", "node2"]
    assert re.search(r",uname=Linux node1 6\.12\.0-amd64 #1 SMP PREEMPT_DYNAMIC @0 x86_64,", read["node"]["node1"]["status"])
    assert read["node"]["node2"]["np"] == "3"


@pytest.mark.parametrize("version", VERSIONS)
def test_server_without_queues_and_nodes(version):
    read = live(version, "list-fresh")
    assert (read["queue"], read["node"], read["server"][""]["acl_hosts"]) == ({}, {}, "head")


@pytest.mark.parametrize("text", ["", "Max open servers: 9\n", "list server\nqmgr: Error from server\n"])
def test_output_without_objects(text):
    assert qmgr.parse(text) == {"server": {}, "queue": {}, "node": {}}


def test_value_with_equals_signs_and_echoed_commands():
    read = qmgr.parse("list queue @default\nQueue a\n\tcheckpoint_defaults = enabled,interval=60\n\n"
                      "list server\nServer s\n\tcomment = x = y\n")
    assert read == {"server": {"": {"comment": "x = y"}}, "node": {},
                    "queue": {"a": {"checkpoint_defaults": "enabled,interval=60"}}}


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs(version):
    read = live(version)
    assert qmgr.jobs("queue", read["queue"]["batch"]) == ["1 Held", "2 Running"]
    assert qmgr.jobs("queue", read["queue"]["fast"]) == []
    assert len(qmgr.jobs("node", read["node"]["node1"])) == 2
    assert qmgr.jobs("node", read["node"]["node2"]) == []


@pytest.mark.parametrize("text, jobs", [
    ("0/4.head, 1/5.head", ["4.head", "5.head"]), ("0-1,3/12.head,4/13[2].head", ["12.head", "13[2].head"]),
    ("0/4.head,1/4.head", ["4.head"]), ("", [])])
def test_jobs_of_a_node(text, jobs):
    assert qmgr.jobs("node", {"jobs": text}) == jobs


def test_completed_jobs_do_not_keep_a_queue():
    assert qmgr.jobs("queue", {"total_jobs": "2", "state_count": "Transit:0 Queued:0 Exiting:0 Complete:2"}) == []


# -- values --

@pytest.mark.parametrize("present, value", [
    ("1gb", "1048576kb"), ("1gb", "1024mb"), ("10kw", "80kb"), ("1024b", "1024"), ("2tb", "2048gb"), ("1pb", "1024tb"),
    ("1GB", "1gb"),
    ("01:00:00", "3600"), ("01:00:00", "60:00"), ("100:00:00", "4:04:00:00"), ("01:30:30", "90:30"),
    ("True", "true"), ("True", "t"), ("True", "1"), ("False", "n"), ("False", "0"),
    ("7", "007"), ("-5", "-5"), ("a, b,c", "a,b, c"), ("word", "word"),
])
def test_same(present, value):
    assert qmgr.same(present, value)


@pytest.mark.parametrize("present, value", [
    ("1gb", "1048575kb"), ("1gb", "1"), ("1kb", "1kw"), ("1gb", "much"),
    ("01:00:00", "3601"), ("01:00:00", "1:00"), ("01:00:00", "an hour"),
    ("True", "False"), ("True", "maybe"), ("True", "10"), ("10", "True"), ("1", "True"),
    ("7", "70"), ("7", "7b"), ("word", "Word"), ("a b", "a  b"), ("enabled", "True"), ("1:ppn=2", "1:ppn=1"),
])
def test_not_same(present, value):
    assert not qmgr.same(present, value)


def test_lists_are_sets_unless_their_order_counts():
    assert qmgr.same("b,a", ["a", "b"], "acl_hosts")
    assert qmgr.same("b, a", ["a", "b"], "acl_hosts")
    assert not qmgr.same("b,a", ["a"], "acl_hosts")
    assert not qmgr.same("a", ["a", "b"], "acl_hosts")
    assert qmgr.same("b,a", ["b", "a"], "route_destinations")
    assert not qmgr.same("b,a", ["a", "b"], "route_destinations")


@pytest.mark.parametrize("value, result", [("execution", True), ("e", True), ("Execution", True), ("route", False), ("x", False)])
def test_queue_type_may_be_shortened(value, result):
    assert qmgr.same("Execution", value, "queue_type") is result


# -- commands --

@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_to_do(version):
    given = dict(SERVER)
    assert lines(live(version), given, QUEUES, NODES) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_to_do(version):
    """The commands that made the recorded cluster, on each version."""
    server = dict(SERVER, log_events=77, tcp_timeout=99)
    assert lines(live(version, "list-fresh"), server, QUEUES, NODES) == [
        "create queue batch queue_type=execution",
        'set queue batch acl_hosts = "node1,head"',
        "set queue batch checkpoint_defaults = enabled",
        'set queue batch resources_default.nodes = "1:ppn=1"',
        "set queue batch resources_default.walltime = 3600",
        "set queue batch resources_max.mem = 1gb",
        "set queue batch enabled = True",
        "set queue batch started = True",
        "create queue fast queue_type=e",
        "set queue fast Priority = 7",
        "set queue fast enabled = True",
        "set queue fast started = True",
        "create queue rt queue_type=route",
        'set queue rt route_destinations = "fast,batch"',
        "create node node1 np=2",
        'set node node1 properties = "fast,big"',
        "create node node2 np=3",
        "set node node2 properties = slow",
        'set server comment = "it, is # nice; and long: one, two, three, four, five, six, seven, eight, nine, ten, twelve"',
        "set server default_queue = batch",
        "set server log_events = 77",
        "set server scheduling = True",
        "set server tcp_timeout = 99",
        'set server acl_hosts = "node1,node2,head"',
        'set server managers = "root@head,alice@head"']


@pytest.mark.parametrize("version", VERSIONS)
def test_drift_takes_one_command(version):
    assert lines(live(version, "drift"), queues=QUEUES) == ["set queue batch resources_max.mem = 1gb"]
    assert lines(live(version, "drift-mended"), queues=QUEUES) == []


@pytest.mark.parametrize("attribute, value, command", [
    ("resources_max.mem", None, "unset queue batch resources_max.mem"),
    ("resources_max.mem", "", "unset queue batch resources_max.mem"),
    ("acl_hosts", [], "unset queue batch acl_hosts"),
    ("acl_hosts", ["node1"], "set queue batch acl_hosts = node1"),
    ("acl_hosts", "node1, node3", 'set queue batch acl_hosts = "node1,node3"'),
    ("acl_hosts", "node1,head", None),
    ("acl_hosts", "*", 'set queue batch acl_hosts = "*"'),
    ("resources_max.nodect", None, None),
    ("resources_max", {"mem": "2gb"}, "set queue batch resources_max.mem = 2gb"),
    ("resources_default", {"walltime": "1:00:00"}, None),
    ("Priority", -3, "set queue batch Priority = -3"),
    ("started", False, "set queue batch started = False"),
    ("started", "No", "set queue batch started = False"),
    ("features_required", "a b", 'set queue batch features_required = "a b"'),
    ("checkpoint_defaults", "enabled,interval=60", 'set queue batch checkpoint_defaults = "enabled,interval=60"'),
])
def test_one_attribute(attribute, value, command):
    assert lines(live("6.1.3"), queues={"batch": {attribute: value}}) == ([command] if command else [])


def test_foreign_attributes_and_objects_are_left_alone():
    assert lines(live("6.1.3"), {"scheduling": True}, {"fast": {}}, {"node2": {}}) == []


def test_purge():
    read = live("6.1.3", "drift")
    assert lines(read, queues={"batch": {}}, purge=["queue"]) == ["delete queue fast", "delete queue rt"]
    assert lines(live("6.1.3"), queues=ALL, nodes={"node1": {}}, purge=["node"]) == ["delete node node2"]
    assert lines(live("6.1.3"), queues={"new": {}}, nodes={"node1": {}}, purge=["node"]) == [
        "create queue new", "delete node node2"]


def test_absent():
    read = live("6.1.3")
    assert lines(read, queues={"rt": "absent", "nowhere": "absent"}) == ["delete queue rt"]
    assert lines(read, nodes={"node2": "absent"}) == ["delete node node2"]


def test_order():
    """Objects before what names them, switches after what they switch on, deletions after the server, doors closed last."""
    read = state({"acl_hosts": "head", "default_queue": "old"}, {"old": {}}, {"gone": {}})
    assert lines(read, {"managers": "root@head", "operators": "alice@head", "acl_host_enable": True,
                        "acl_hosts": ["head", "node1"], "default_queue": "new", "node_pack": True},
                 {"new": {"queue_type": "execution", "started": True, "acl_user_enable": True, "acl_users": "alice",
                          "enabled": True}, "old": "absent"},
                 {"here": {"properties": "a", "np": 1}, "gone": "absent"}) == [
        "create queue new queue_type=execution", "set queue new acl_users = alice",
        "set queue new acl_user_enable = True", "set queue new enabled = True", "set queue new started = True",
        "create node here np=1", "set node here properties = a",
        "set server default_queue = new", "set server node_pack = True", "delete queue old", "delete node gone",
        'set server acl_hosts = "head,node1"', "set server acl_host_enable = True", "set server operators = alice@head",
        "set server managers = root@head"]


def test_long_list_is_set_in_pieces():
    names = ["node%04d" % number for number in range(4500)]
    commands = lines(state(), {"submit_hosts": names})
    assert [line[:26] for line in commands] == ["set server submit_hosts = "] + ["set server submit_hosts +="] * 2
    assert all(len(line) < 32768 for line in commands)
    assert [name for line in commands for name in line.split('"')[1].split(",")] == names


# -- what is refused --

@pytest.mark.parametrize("version", VERSIONS)
def test_busy_queue(version):
    sentence = ("queue batch still holds jobs (1 Held, 2 Running): let them end or move them with qmove, then run again; "
                "nothing was changed")
    assert refusal(live(version), {"scheduling": False}, {"batch": "absent"}) == sentence
    assert refusal(live(version), queues={"fast": {}}, purge=["queue"]) == sentence


@pytest.mark.parametrize("version", VERSIONS)
def test_busy_node(version):
    read = live(version)
    jobs = ", ".join(qmgr.jobs("node", read["node"]["node1"]))
    assert refusal(read, nodes={"node2": {}}, purge=["node"]) == (
        "node node1 still holds jobs (%s): drain it, then run again; nothing was changed" % jobs)


BAD_QUEUE = "'%s' cannot be the name of a queue; use a letter and up to 14 more letters, digits, '.', '_' and '-'"


@pytest.mark.parametrize("given, sentence", [
    ({"server": {"total_jobs": 4}}, "server: total_jobs cannot be set, TORQUE only reports it; remove it from the data"),
    ({"server": {"server_name": "head"}}, "server: server_name cannot be set, TORQUE only reports it; remove it from the data"),
    ({"queues": {"batch": {"resources_assigned.mem": "1gb"}}},
     "queue batch: resources_assigned.mem cannot be set, TORQUE only reports it; remove it from the data"),
    ({"queues": {"batch": {"mtime": None}}}, "queue batch: mtime cannot be set, TORQUE only reports it; remove it from the data"),
    ({"nodes": {"node1": {"status": "x"}}}, "node node1: status cannot be set, TORQUE only reports it; remove it from the data"),
    ({"nodes": {"node1": {"state": "free"}}}, "node node1: state belongs to whoever drains the node; use ckpt.torque.pbs_node"),
    ({"nodes": {"node1": {"note": None}}}, "node node1: note belongs to whoever drains the node; use ckpt.torque.pbs_node"),
    ({"nodes": {"node1": {"num_node_boards": 2}}},
     "node node1: num_node_boards cannot be compared, TORQUE never shows it; write it into server_priv/nodes"),
    ({"server": {"a = 1, b": 2}},
     "server: 'a = 1, b' cannot be an attribute; write it as qmgr does, such as resources_default.walltime"),
    ({"server": {"log_level\n": 2}},
     "server: 'log_level\n' cannot be an attribute; write it as qmgr does, such as resources_default.walltime"),
    ({"queues": {"batch": {"resources_default": 3600}}},
     "queue batch: 'resources_default' cannot be an attribute; write it as qmgr does, such as resources_default.walltime"),
    ({"server": {"comment": "a\nset server managers = x@y"}},
     "server: comment cannot hold 'a\\nset server managers = x@y': empty items, quotes and control characters "
     "do not pass through qmgr"),
    ({"server": {"comment": 'say "x"'}},
     "server: comment cannot hold 'say \"x\"': empty items, quotes and control characters do not pass through qmgr"),
    ({"server": {"comment": "don't"}},
     "server: comment cannot hold \"don't\": empty items, quotes and control characters do not pass through qmgr"),
    ({"server": {"managers": ["a@b,c@d"]}},
     "server: managers cannot hold 'a@b,c@d': empty items, quotes, commas and control characters do not pass through qmgr"),
    ({"server": {"managers": ["a@b", ""]}},
     "server: managers cannot hold '': empty items, quotes, commas and control characters do not pass through qmgr"),
    ({"server": {"comment": ["a"]}}, "server: comment cannot hold a list; write one value"),
    ({"queues": {"batch": {"resources_default": {"mem": {"a": 1}}}}},
     "queue batch: resources_default.mem cannot hold a dict; write one value"),
    ({"queues": {"batch": None}},
     "queue batch is neither a dictionary of attributes nor 'absent'; write {} for a queue as it is"),
    ({"nodes": {"node1": ["np"]}},
     "node node1 is neither a dictionary of attributes nor 'absent'; write {} for a node as it is"),
    ({"queues": {"1st": {}}}, BAD_QUEUE % "1st"),
    ({"queues": {"longqueuename567": {}}},
     BAD_QUEUE % "longqueuename567"),
    ({"queues": {"a\n": "absent"}}, BAD_QUEUE % "a\n"),
    ({"nodes": {"a,b": {}}}, "'a,b' cannot be the name of a node; use letters, digits, '.', '_' and '-'"),
    ({"nodes": {"-o": {}}}, "'-o' cannot be the name of a node; use letters, digits, '.', '_' and '-'"),
    ({"nodes": {"n1": {}, "N1": {}}}, "nodes N1 and n1 are the same host; use one name, the one the server knows it by"),
    ({"nodes": {"n1": {}, "n1.example.org": {}}},
     "nodes n1 and n1.example.org are the same host; use one name, the one the server knows it by"),
])
def test_input_that_is_refused(given, sentence):
    assert refusal(state(), **given) == sentence


def test_longest_queue_name():
    assert lines(state(), queues={"longqueuename56": {}}) == ["create queue longqueuename56"]


@pytest.mark.parametrize("name", ["NODE1", "node1.example.org"])
def test_node_that_the_server_knows_by_another_name(name):
    assert refusal(live("6.1.3"), nodes={name: {"np": 2}}) == (
        "nodes %s and %s are the same host; use one name, the one the server knows it by" % tuple(sorted((name, "node1"))))


def test_node_that_the_server_knows_by_its_full_name():
    assert refusal(state(nodes={"node1.example.org": {}}), nodes={"node1": {"np": 2}}) == (
        "nodes node1 and node1.example.org are the same host; use one name, the one the server knows it by")


def test_nodes_of_two_domains_and_renamed_ones():
    assert lines(state(), nodes={"n1.a.org": {}, "n1.b.org": {}, "n10": {}}) == [
        "create node n1.a.org", "create node n1.b.org", "create node n10"]
    renamed = ["create node n1.a.org", "delete node n1"]
    assert lines(state(nodes={"n1": {}}), nodes={"n1.a.org": {}, "n1": "absent"}) == renamed
    assert lines(state(nodes={"n1": {}}), nodes={"n1.a.org": {}}, purge=["node"]) == renamed


# -- before and after --

def test_state_after_the_changes():
    read = live("6.1.3", "drift")
    before = live("6.1.3", "drift")
    goal = qmgr.wanted({"comment": None, "managers": ["a@b", "c@d"]},
                       {"batch": {"Priority": 1}, "new": {"queue_type": "e"}, "rt": "absent"}, {})
    after = qmgr.apply(read, qmgr.plan(read, goal))
    assert read == before
    assert "comment" not in after["server"][""]
    assert after["server"][""]["managers"] == "a@b,c@d"
    assert after["queue"]["batch"]["Priority"] == "1"
    assert (after["queue"]["new"], "rt" in after["queue"]) == ({"queue_type": "e"}, False)
    assert qmgr.plan(after, goal) == []


def test_managed_part():
    goal = qmgr.wanted({"scheduling": True}, {"fast": {"Priority": 1, "enabled": None}, "rt": "absent", "new": {}}, {})
    assert qmgr.managed(live("6.1.3"), goal) == {
        "server": {"": {"scheduling": "True"}}, "node": {},
        "queue": {"fast": {"Priority": "7", "enabled": "True"},
                  "rt": {"queue_type": "Route", "route_destinations": "fast,batch"}}}
    goal = qmgr.wanted({}, {}, {"node1": {}})
    assert qmgr.managed(live("6.1.3"), goal, ["node"]) == {
        "server": {}, "queue": {}, "node": {"node1": {}, "node2": {
            "np": "3", "properties": "slow", "ntype": "cluster", "mom_service_port": "15002", "mom_manager_port": "15003"}}}


def test_render():
    assert qmgr.render({"server": {"": {"a": "x y"}}, "queue": {"q": {"b": "1", "a": "2"}}, "node": {"n": {}}}) == (
        'set server a = "x y"\ncreate queue q\nset queue q a = 2\nset queue q b = 1\ncreate node n\n')


# -- errors --

@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name, begun", [("set-stops", 2), ("set-syntax", 1), ("set-done", 4), ("set-refused", 1)])
def test_commands_begun(version, name, begun):
    call = calls(version)[name]
    assert qmgr.echoed(call.output, call.text.splitlines()) == begun


def test_commands_begun_when_readline_echoes_too():
    assert qmgr.echoed("a\na\nout\nb\nb\n", ["a", "b", "c"]) == 2
    assert qmgr.echoed("a\nb\n", ["a"]) == 1


def test_node_that_is_created_offline():
    """As pbs_server 4.2 does; one that an administrator has taken out of service stays so."""
    changes = [qmgr.Change("create", "node", "node1", "np", "2"), qmgr.Change("create", "node", "node2", "np", "2"),
               qmgr.Change("set", "node", "node3", "np", "4")]
    state = {"node": {"node1": {"state": "down,offline"}, "node2": {"state": "down"}, "node3": {"state": "offline"}}}
    assert qmgr.find_new_offline(changes, state) == ["set node node1 state -= offline"]


def test_node_that_the_server_frees_by_itself():
    """In the words of pbs_server 6.1.3."""
    assert qmgr.frees_by_itself("qmgr refused 'set node node1 state -= offline': The updated okclients list hasn't been sent out to the "
                                "cluster yet. The node(s) will automatically update to free once this is done and the mom has reported in")
    assert not qmgr.frees_by_itself("qmgr refused 'set node node1 state -= offline': Unauthorized Request")
