"""qmgr: one process to look, one to change, one to look again; and what is said when TORQUE does not follow."""

import os

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque.commands import CommandError
from ansible_collections.ckpt.torque.plugins.module_utils.torque.server import Server
from recorded import NODES, QUEUES, SERVER, VERSIONS, Player, Program

MEND = "set queue batch resources_max.mem = 1gb"
BATCH = {"resources_max.mem": "1gb", "resources_default": {"walltime": "60:00"}, "acl_hosts": ["node1", "head"]}
NO_ANSWER = ("the TORQUE server does not answer qmgr on this host: %s; see that pbs_server runs, that trqauthd runs here "
             "(TORQUE 4 and later), and that server_name names the server")
MANAGERS = " (only root on the server's host and the server's managers may do this)"


@pytest.fixture
def play(module, tmp_path):
    """Call the module on recorded output: play(version, names, check=False, **arguments) returns its answer."""
    def call(version, names, check=False, **arguments):
        program = Program(tmp_path, "qmgr", version, *names)
        answer = module("qmgr", dict(arguments, qmgr_path=str(program.path)), check=check)
        program.check()
        return answer
    return call


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
def test_nothing_to_do_costs_one_process(play, version, check):
    answer = play(version, ["list"], check=check, server=SERVER, queues=QUEUES, nodes=NODES)
    assert (answer["changed"], answer["commands"], answer["executed"]) == (False, [], [])
    assert answer["before"] == answer["after"]
    assert answer["before"]["server"]["managers"] == "alice@head,root@head"
    assert answer["before"]["nodes"] == {
        "node1": {"np": "2", "properties": "fast,big"}, "node2": {"np": "3", "properties": "slow"}}
    assert set(answer["before"]["queues"]) == {"batch", "fast", "rt"}
    assert answer["diff"]["before"] == answer["diff"]["after"]


DIFF = """\
create queue batch
set queue batch acl_hosts = "head,node1"
set queue batch resources_default.walltime = 01:00:00
set queue batch resources_max.mem = %s
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_drift_is_mended_by_one_command(play, version):
    before = {"acl_hosts": "head,node1", "resources_default.walltime": "01:00:00", "resources_max.mem": "2gb"}
    assert play(version, ["drift", "drift-mend", "drift-mended"], queues={"batch": BATCH}) == {
        "changed": True, "commands": [MEND], "executed": [MEND],
        "before": {"server": {}, "queues": {"batch": before}, "nodes": {}},
        "after": {"server": {}, "queues": {"batch": dict(before, **{"resources_max.mem": "1gb"})}, "nodes": {}},
        "diff": {"before_header": "qmgr", "after_header": "qmgr", "before": DIFF % "2gb", "after": DIFF % "1gb"}}


@pytest.mark.parametrize("version", VERSIONS)
def test_check_mode_reads_only(play, version):
    answer = play(version, ["drift"], check=True, queues={"batch": BATCH})
    assert (answer["changed"], answer["commands"], answer["executed"]) == (True, [MEND], [])
    assert (answer["diff"]["before"], answer["diff"]["after"]) == (DIFF % "2gb", DIFF % "1gb")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("members, server, commands", [
    ({"managers": ["root@head"]}, {}, []),
    ({"managers": ["bob@head", "root@head"]}, {}, ['set server managers = "alice@head,root@head,bob@head"']),
    ({"submit_hosts": ["login1", "login2"]}, {}, ['set server submit_hosts = "login1,login2"']),
    ({"managers": ["bob@head"]}, {"managers": ["alice@head", "root@head"]}, []), ({"submit_hosts": []}, {}, [])])
def test_members_are_added(play, version, members, server, commands):
    answer = play(version, ["list"], check=True, server=server, server_members=members, queues=QUEUES, nodes=NODES)
    assert answer["commands"] == commands


def test_members_of_what_is_no_list(play):
    assert play("6.1.3", [], server_members={"scheduling": ["True"]})["msg"] == (
        "server: scheduling is no list, to which members could be added; set it as a whole; nothing was changed")


@pytest.mark.parametrize("version", VERSIONS)
def test_purge(play, version):
    answer = play(version, ["drift"], check=True, queues={"batch": {}, "rt": {}}, purge=["queues"])
    assert answer["commands"] == ["delete queue fast"]
    assert answer["before"]["queues"] == {"batch": {}, "rt": {}, "fast": {
        "queue_type": "Execution", "Priority": "7", "enabled": "True", "started": "True"}}
    assert answer["after"]["queues"] == {"batch": {}, "rt": {}}


def test_server_alone_is_asked_for_itself_only(module, tmp_path, program):
    path = program(tmp_path / "qmgr", "#!/bin/sh\ncat > \"$0.asked\"\nprintf 'Server head\\n\\tscheduling = True\\n'\n")
    answer = module("qmgr", {"server": {"scheduling": True}, "qmgr_path": path})
    assert (answer["changed"], (tmp_path / "qmgr.asked").read_text()) == (False, "list server\n")


# -- TORQUE does not follow --

@pytest.mark.parametrize("version", VERSIONS)
def test_error_in_the_middle(play, version):
    commands = ["set queue batch Priority = 5", "set queue batch nosuch = 1", "set queue fast Priority = 6"]
    queues = {"batch": {"Priority": 5, "nosuch": 1}, "fast": {"Priority": 6}}
    assert play(version, ["list", "set-stops"], queues=queues, nodes={"node1": {}}) == {
        "failed": True, "changed": True, "commands": commands, "executed": commands[:1],
        "msg": "qmgr refused 'set queue batch nosuch = 1': Undefined attribute nosuch; 1 of 3 commands had been done; "
               "fix the cause and run again"}


BAD = "root@head,alice@nosuchhost"


@pytest.mark.parametrize("version, name, given, command, cause", [
    ("2.5.13", "set-refused", {"queues": {"batch": {"Priority": 5}}}, "set queue batch Priority = 5",
     "Unauthorized Request" + MANAGERS),
    ("6.1.3", "set-refused", {"queues": {"batch": {"Priority": 5}}}, "set queue batch Priority = 5",
     "Unauthorized Request MSG=error in permissions (PERM_OPorMGR)" + MANAGERS),
    ("6.1.3", "set-syntax", {"server": {"nosuch": 1}}, "set server nosuch = 1",
     "Syntax error - cannot locate attribute; set server nosuch = 1"),
    ("4.2.10", "create-unresolvable-node", {"nodes": {"nosuchhost": {"np": 2}}}, "create node nosuchhost np=2",
     "Unknown node (the server's host must resolve a new node's name)"),
    ("4.2.10", "set-bad-acl", {"server": {"managers": BAD}}, 'set server managers = "%s"' % BAD,
     "Bad ACL entry in host list MSG=First bad host: nosuchhost (each host by the name that the server's host resolves it to)"),
])
def test_command_that_is_refused(play, version, name, given, command, cause):
    everything = dict({"queues": {"batch": {}}, "nodes": {"node2": {}}}, **given)
    assert play(version, ["list", name], **everything) == {
        "failed": True, "changed": False, "commands": [command], "executed": [],
        "msg": "qmgr refused '%s': %s; 0 of 1 commands had been done; fix the cause and run again" % (command, cause)}


def test_value_that_torque_does_not_keep(play):
    """All commands were done, but the second look shows the first value still."""
    answer = play("6.1.3", ["drift", "drift-mend", "drift"], queues={"batch": BATCH})
    assert (answer["failed"], answer["executed"]) == (True, [MEND])
    assert answer["msg"] == ("qmgr did all commands, yet TORQUE holds on to another value; this is left to do: %s; "
                             "write what TORQUE shows in its place" % MEND)


@pytest.mark.parametrize("version, name, cause", [
    ("2.5.13", "no-server", "Cannot connect to default server host 'head' - check pbs_server daemon; "
                            "cannot connect to server (errno=111) Connection refused"),
    ("6.1.3", "no-server", "Unable to communicate with head(192.0.2.2); Cannot connect to specified server host 'head'; "
                           "cannot connect to server (errno=111) Connection refused"),
    ("6.1.3", "no-trqauthd", "socket_connect_unix failed: 15137; "
                             "cannot connect to server (errno=15137) could not connect to trqauthd"),
    ("6.1.3", "bad-server-name", "Can not resolve name for server nosuchhost. (rc = -1 - ); "
                                 "Cannot resolve specified server host 'nosuchhost'; "
                                 "cannot connect to server (errno=15010) Access from host not allowed, or unknown host"),
])
@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
def test_no_answer(play, version, name, cause, check):
    assert play(version, [name], check=check, queues={"batch": {}}, nodes={"node1": {}}) == {
        "failed": True, "changed": False, "msg": NO_ANSWER % cause}


def test_answer_that_is_cut_off(module, tmp_path, program):
    path = program(tmp_path / "qmgr", "#!/bin/sh\nprintf 'Server head\\n'\necho 'qmgr: Error from server' >&2\nexit 2\n")
    assert module("qmgr", {"qmgr_path": path})["msg"] == NO_ANSWER % "Error from server"


def test_silent_qmgr(module, tmp_path, program):
    answer = module("qmgr", {"qmgr_path": program(tmp_path / "qmgr", "#!/bin/sh\nexit 0\n")})
    assert answer["msg"] == NO_ANSWER % "it printed nothing (status 0)"


def test_qmgr_that_hangs(module, tmp_path, program):
    path = program(tmp_path / "qmgr", "#!/bin/sh\nexec sleep 60\n")
    answer = module("qmgr", {"qmgr_path": path, "timeout": 1})
    assert answer["msg"] == "%s got no answer within 1 seconds and was killed; look at the log of pbs_server" % path


def test_qmgr_that_hangs_in_the_middle():
    player = Player("6.1.3", "drift")
    server = Server("/x/qmgr", 7, player)
    server.read(["queue"])
    asked = []

    def hang(command, text, timeout):
        asked.append((command, text, timeout))
        raise CommandError("/x/qmgr got no answer")

    server.run = hang
    assert server.execute(["a", "b"]) == (
        [], "/x/qmgr got no answer; how many of 2 commands were done is not known: run again, it does what is left")
    assert asked == [(["/x/qmgr", "-a", "-e"], "a\nb\n", 9)]


def test_execute_does_all():
    commands = ["set queue batch Priority = 0", "unset queue batch Priority",
                'set server comment = "a, b # c; d"', "unset server comment"]
    assert Server("/x/qmgr", 7, Player("2.5.13", "set-done")).execute(commands) == (commands, None)


# -- nothing is asked, nothing is done --

@pytest.mark.parametrize("given, sentence", [
    ({"purge": ["queues"]},
     "purge of queues with no queues named would delete every one; name those that stay; nothing was changed"),
    ({"purge": ["nodes"], "queues": {"batch": {}}},
     "purge of nodes with no nodes named would delete every one; name those that stay; nothing was changed"),
    ({"server": {"total_jobs": 1}}, "server: total_jobs cannot be set, TORQUE only reports it; remove it from the data"),
    ({"qmgr_path": "/nonexistent/qmgr"},
     "cannot start /nonexistent/qmgr: No such file or directory; install TORQUE's commands on this host"),
    ({"purge": ["server"]}, "value of purge must be one or more of: queues, nodes. Got no match for: server"),
])
def test_bad_input(module, tmp_path, program, given, sentence):
    path = program(tmp_path / "qmgr", "#!/bin/sh\ntouch \"$0.called\"\n")
    answer = module("qmgr", dict({"qmgr_path": path}, **given))
    assert (answer["failed"], answer["msg"]) == (True, sentence)
    assert not (tmp_path / "qmgr.called").exists()


@pytest.mark.parametrize("version", VERSIONS)
def test_busy_queue_stops_the_rest_too(play, version):
    answer = play(version, ["list"], queues={"batch": "absent", "fast": {"Priority": 1}}, nodes={"node1": {"np": 4}})
    assert answer == {"failed": True, "changed": False, "msg": "queue batch still holds jobs (1 Held, 2 Running): "
                      "let them end or move them with qmove, then run again; nothing was changed"}


@pytest.mark.parametrize("name", ["NODE1", "node1.example.org"])
def test_node_with_two_names(play, name):
    answer = play("6.1.3", ["list"], queues={"batch": {}}, nodes={name: {}})
    assert answer["msg"] == "nodes %s and %s are the same host; use one name, the one the server knows it by" % tuple(
        sorted((name, "node1")))


@pytest.mark.skipif(any(os.path.exists(path) for path in ("/opt/torque/current/bin/qmgr", "/usr/bin/qmgr")),
                    reason="TORQUE's commands are installed here")
def test_qmgr_is_nowhere(module):
    assert module("qmgr", {})["msg"] == (
        "qmgr is neither in /opt/torque/current/bin nor in PATH; run the role torque_client or set qmgr_path")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_set_is_read(module, tmp_path, version):
    """It is what qmgr takes: nothing that TORQUE only reports."""
    program = Program(tmp_path, "qmgr", version, "list")
    answer = module("qmgr_info", {"qmgr_path": str(program.path)})
    program.check()
    assert answer["changed"] is False
    assert answer["server"]["managers"] == ["alice@head", "root@head"] and answer["server"]["default_queue"] == "batch"
    assert not {"total_jobs", "pbs_version", "server_state", "state_count"} & set(answer["server"])
    assert answer["version"] == version
    assert set(answer["queues"]) == {"batch", "fast", "rt"} and "state_count" not in answer["queues"]["batch"]
    assert answer["nodes"]["node1"]["properties"] == ["fast", "big"] and "state" not in answer["nodes"]["node1"]
