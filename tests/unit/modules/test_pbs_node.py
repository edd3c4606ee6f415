"""pbs_node: drains and releases, waits, and never touches what others have marked."""

import json
import os
import signal
import subprocess
import sys

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque.nodes import SIGNALS, Interrupted, NodeError, Pbsnodes, set_state
from recorded import VERSIONS, Player, Program

MARK = "ckpt-torque: maintenance"
THEIRS = "disk broken, see #12"
MANAGERS = "; only root on the server's host and the server's managers and operators may do this"
TEXT = "state = %s\nnote = %s\n"


@pytest.fixture
def play(module, tmp_path):
    """Call the module on recorded output: play(version, names, node, check=False, **arguments) returns its answer."""
    def call(version, names, node, check=False, **arguments):
        program = Program(tmp_path, "pbsnodes", version, *["pbsnodes-" + name for name in names])
        answer = module("pbs_node", dict(arguments, node=node, pbsnodes_path=str(program.path)), check=check)
        program.check()
        return answer
    return call


class Cluster:
    """A server with one node, as far as pbsnodes shows it; its jobs end one by one, each look takes one away.

    changes  what was done to the node (list of str)
    """

    def __init__(self, states="free", note="", jobs=(), endless=False):
        self.states, self.note, self.jobs, self.endless = states.split(","), note, list(jobs), endless
        self.looks = 0
        self.changes = []
        self.trouble = {}

    def __call__(self, command, text="", timeout=60):
        options = command[1:-1]
        if not options:
            self.looks += 1
            if self.looks in self.trouble:
                trouble = self.trouble[self.looks]
                if isinstance(trouble, Exception):
                    raise trouble
                trouble()
            if self.looks > 2 and not self.endless and self.jobs:
                self.jobs.pop()
            shown = {"state": ",".join(self.states), "note": self.note, "jobs": ", ".join("0/" + job for job in self.jobs)}
            return 0, "n1\n" + "".join("     %s = %s\n" % pair for pair in shown.items() if pair[1]), ""
        self.changes.append(" ".join(options))
        self.states = [state for state in self.states if state != "offline"] + (["offline"] if "-o" in options else [])
        self.note = "" if "-c" in options else options[2]
        return 0, "", ""


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def signals():
    """Undo what the module does to signals."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def bring(cluster, check=False, **changed):
    """Let the module's set_state() work on a cluster; return (its answer, seconds waited)."""
    clock = Clock()
    params = dict({"state": "drained", "wait": False, "timeout": 30, "poll": 10}, **changed)
    answer = set_state(Pbsnodes("pbsnodes", "n1", cluster), MARK, params, check, clock, clock.sleep)
    return answer, clock() - 1000


def failure(cluster, **changed):
    with pytest.raises(NodeError) as caught:
        bring(cluster, **changed)
    return str(caught.value)


# -- as recorded --

@pytest.mark.parametrize("version", VERSIONS)
def test_drain(play, version):
    answer = play(version, ["busy", "set", "ours-busy"], "node1")
    jobs = answer.pop("jobs")
    assert len(jobs) == 2
    assert answer == {
        "changed": True, "held_by": None, "states": ["offline", "job-exclusive"], "note": MARK,
        "msg": "node node1 is drained; still on it: %s" % ", ".join(jobs),
        "diff": {"before_header": "node1", "after_header": "node1", "before": TEXT % ("job-exclusive", ""),
                 "after": TEXT % ("offline,job-exclusive", MARK)}}


@pytest.mark.parametrize("version", VERSIONS)
def test_check_mode_only_looks(play, version):
    answer = play(version, ["busy"], "node1", check=True, wait=True, timeout=0)
    assert (answer["changed"], answer["note"]) == (True, MARK)
    assert answer["diff"]["after"] == TEXT % ("offline,job-exclusive", MARK)


@pytest.mark.parametrize("version", VERSIONS)
def test_drained_already(play, version):
    answer = play(version, ["ours-free"], "node2", wait=True, timeout=0)
    assert (answer["changed"], answer["held_by"], answer["msg"]) == (False, None, "node node2 is drained")


@pytest.mark.parametrize("version", VERSIONS)
def test_release(play, version):
    answer = play(version, ["ours-busy", "clear", "cleared"], "node1", state="released")
    assert (answer["changed"], answer["held_by"], answer["msg"]) == (True, None, "node node1 is released")
    assert (answer["diff"]["before"], answer["diff"]["after"]) == (
        TEXT % ("offline,job-exclusive", MARK), TEXT % ("job-exclusive", ""))


@pytest.mark.parametrize("version", VERSIONS)
def test_released_already(play, version):
    answer = play(version, ["free"], "node2", state="released")
    assert (answer["changed"], answer["msg"]) == (False, "node node2 is released")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("state", ["drained", "released"])
@pytest.mark.parametrize("name, reason, held_by", [
    ("theirs", "maintenance", THEIRS), ("no-note", "maintenance", "an offline mark without a note"),
    ("ours-free", "other", MARK)])
def test_held_by_others(play, version, state, name, reason, held_by):
    answer = play(version, [name], "node2", state=state, reason=reason)
    assert (answer["changed"], answer["held_by"]) == (False, held_by)
    assert answer["msg"] == "node node2 is offline for somebody else: " + held_by


@pytest.mark.parametrize("version, cause", [
    ("2.5.13", "Error setting note attribute for node1 - Unauthorized Request; "
               "Error marking node node1 - Unauthorized Request"),
    ("6.1.3", "Error setting note attribute for node1 - Unauthorized Request MSG=error in permissions (PERM_OPorMGR)")])
def test_not_allowed(play, version, cause):
    """pbsnodes exits 0 all the same."""
    answer = play(version, ["busy", "set-refused", "busy", "busy"], "node1")
    assert (answer["failed"], answer["msg"]) == (
        True, "pbsnodes did not drain node node1: " + cause + MANAGERS + "; no mark of ours is on it")


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_node(play, version):
    sentence = "the server knows no node nosuch; pbsnodes shows the names it knows"
    assert play(version, ["unknown"], "nosuch") == {"failed": True, "msg": sentence}


@pytest.mark.parametrize("version", VERSIONS)
def test_server_without_nodes(play, version):
    assert play(version, ["fresh"], "node1")["msg"] == "the server knows no node node1; pbsnodes shows the names it knows"


@pytest.mark.parametrize("version, name, cause", [
    ("2.5.13", "no-server", "Cannot connect to default server host 'head' - check pbs_server daemon; "
                            "cannot connect to server head, error=111 (Connection refused)"),
    ("4.2.10", "no-server", "Unable to communicate with head(192.0.2.2); Cannot connect to specified server host 'head'; "
                            "cannot connect to server head, error=111 (Connection refused)"),
    ("6.1.3", "no-trqauthd", "socket_connect_unix failed: 15137; "
                             "cannot connect to server head, error=15137 (could not connect to trqauthd)"),
])
def test_no_answer(play, version, name, cause):
    assert play(version, [name], "node1")["msg"] == (
        "the TORQUE server does not answer pbsnodes on this host: %s; see that pbs_server runs, that trqauthd runs here "
        "(TORQUE 4 and later), and that server_name names the server" % cause)


@pytest.mark.parametrize("given, sentence", [
    ({"node": "-a"}, "'-a' cannot be the name of a node; use letters, digits, '.', '_' and '-'"),
    ({"reason": "a\nb"}, "the reason must be one line of 1 to 243 bytes; nothing was changed"),
    ({"state": "gone"}, "value of state must be one of: drained, released, got: gone"),
    ({"pbsnodes_path": "/nonexistent/pbsnodes"},
     "cannot start /nonexistent/pbsnodes: No such file or directory; install TORQUE's commands on this host"),
])
def test_bad_input(module, tmp_path, program, given, sentence):
    path = program(tmp_path / "pbsnodes", "#!/bin/sh\ntouch \"$0.called\"\n")
    assert module("pbs_node", dict({"node": "node1", "pbsnodes_path": path}, **given))["msg"] == sentence
    assert not (tmp_path / "pbsnodes.called").exists()


class Half(Cluster):
    """Takes the offline mark and never the note."""

    def __call__(self, command, text="", timeout=60):
        note = self.note
        answer = Cluster.__call__(self, command, text, timeout)
        self.note = note
        return answer


def test_change_that_is_half_done(signals):
    assert failure(Half()) == "pbsnodes did not drain node n1: it gave no reason" + MANAGERS + "; no mark of ours is on it"
    assert failure(Half("offline,job-exclusive", MARK), state="released") == (
        "pbsnodes did not release node n1: it gave no reason" + MANAGERS)


# -- waiting --

def test_wait_until_the_last_job_has_ended():
    cluster = Cluster(jobs=["1.h", "2.h"])
    answer, waited = bring(cluster, wait=True)
    assert (answer["changed"], answer["jobs"], answer["msg"]) == (True, [], "node n1 is drained")
    assert (waited, cluster.changes, cluster.states) == (20, ["-o -N " + MARK], ["free", "offline"])


def test_no_wait_for_a_node_without_jobs():
    assert bring(Cluster(), wait=True)[1] == 0


def test_no_wait_when_none_is_asked_for():
    answer, waited = bring(Cluster(jobs=["1.h"]))
    assert (answer["jobs"], waited) == (["1.h"], 0)


def test_no_wait_for_a_release():
    answer, waited = bring(Cluster("offline,job-exclusive", MARK, ["1.h"]), state="released", wait=True)
    assert (answer["changed"], waited) == (True, 0)


def test_timeout_takes_our_mark_back(signals):
    cluster = Cluster(jobs=["1.h", "2.h"], endless=True)
    assert failure(cluster, wait=True) == (
        "node n1 still has jobs after 30 seconds: 1.h, 2.h; end or hold them, or wait longer; our mark was taken back")
    assert (cluster.changes, cluster.note, cluster.states) == (["-o -N " + MARK, "-c -N n"], "", ["free"])
    assert cluster.looks == 7  # before and after the mark, three while waiting, before and after the mark is taken back


def test_timeout_keeps_a_mark_that_was_there_before():
    cluster = Cluster("offline", MARK, ["1.h"], endless=True)
    assert failure(cluster, wait=True) == "node n1 still has jobs after 30 seconds: 1.h; end or hold them, or wait longer"
    assert (cluster.changes, cluster.note) == ([], MARK)


def test_timeout_keeps_the_mark_of_others():
    cluster = Cluster("offline", THEIRS, ["1.h"], endless=True)
    assert failure(cluster, wait=True) == "node n1 still has jobs after 30 seconds: 1.h; end or hold them, or wait longer"
    assert (cluster.changes, cluster.note) == ([], THEIRS)


def test_timeout_keeps_a_mark_that_others_took_over(signals):
    cluster = Cluster(jobs=["1.h"], endless=True)
    cluster.trouble[4] = lambda: setattr(cluster, "note", THEIRS)
    assert failure(cluster, wait=True) == (
        "node n1 still has jobs after 30 seconds: 1.h; end or hold them, or wait longer; no mark of ours is on it")
    assert (cluster.changes, cluster.note) == (["-o -N " + MARK], THEIRS)


def test_server_that_is_away_for_a_while():
    cluster = Cluster(jobs=["1.h"])
    cluster.trouble[3] = NodeError("no answer")
    answer, waited = bring(cluster, wait=True)
    assert (answer["jobs"], waited) == ([], 20)


def test_server_that_stays_away(signals):
    cluster = Cluster(jobs=["1.h"], endless=True)
    cluster.trouble = dict.fromkeys(range(3, 99), NodeError("no answer"))
    assert failure(cluster, wait=True) == (
        "node n1 still has jobs after 30 seconds: 1.h (no answer); end or hold them, or wait longer; "
        "our mark may still be on it (no answer): release it")


def test_interruption_takes_our_mark_back(signals):
    cluster = Cluster(jobs=["1.h"], endless=True)
    cluster.trouble[3] = Interrupted("interrupted by signal 15")
    assert failure(cluster, wait=True) == "interrupted by signal 15; our mark was taken back"
    assert (cluster.note, cluster.states) == ("", ["free"])
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_signal(tmp_path, number):
    """The whole module, as a process, while it waits."""
    states = tmp_path / "states"
    states.write_text("     state = free\n")
    path = tmp_path / "pbsnodes"
    path.write_text("""#!/bin/sh
case $1 in
-o) printf '     state = offline\\n     note = %%s\\n' "$3" > %(file)s;;
-c) printf '     state = free\\n' > %(file)s;;
*) echo n1; cat %(file)s; echo '     jobs = 0/1.h'
   [ -e %(file)s.looked ] && kill -%(number)d $PPID
   grep -q offline %(file)s && : > %(file)s.looked;;
esac
exit 0
""" % {"file": states, "number": number})
    path.chmod(0o755)
    arguments = {"node": "n1", "wait": True, "poll": 0, "timeout": 50, "pbsnodes_path": str(path)}
    name = "ansible_collections.ckpt.torque.plugins.modules.pbs_node"
    done = subprocess.run([sys.executable, "-m", name], input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
                          stdout=subprocess.PIPE, universal_newlines=True, timeout=60, check=False,
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    assert '"msg": "interrupted by signal %d; our mark was taken back"' % number in done.stdout
    assert states.read_text() == "     state = free\n"


def test_player_is_strict():
    """The recordings judge what is asked: another command is a failure."""
    with pytest.raises(AssertionError):
        Pbsnodes("/x/pbsnodes", "node9", Player("6.1.3", "pbsnodes-free")).read()
