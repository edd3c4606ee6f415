"""update.yml on a real TORQUE: nodes are changed, and no job is lost, whatever is wrong with a node."""
import contextlib
import json
import os
import re
import signal
import subprocess
import time

import pytest
from cluster import HOOKS, TOP, started
from jobs import BIN, COUNTS, Jobs, await_nodes

pytestmark = pytest.mark.usefixtures("torque")


@pytest.fixture
def start(cluster):
    """Start a job on node1 that could run on any node: start(*options) returns the Qjob."""
    head = cluster.nodes["head"]
    with Jobs(cluster) as jobs:
        def begin(*options, script=COUNTS):
            head.ask("%s/pbsnodes -o node2" % BIN)
            job = jobs(script, "-l", "nodes=1", *options)
            job.reach("up")
            head.ask("%s/pbsnodes -c node2" % BIN)
            await_nodes(head)
            return job

        yield begin
    head.ask("%s/pbsnodes -c -N n node1 node2" % BIN)
    await_nodes(head)


def update(cluster, *arguments, **variables):
    """Run the playbook; return its Result and the lines that it reports, if it comes to that."""
    done = cluster.playbook("update", *arguments, **variables)
    return done, report(done.out)


def report(output):
    """Return the lines that update.yml reports, if it comes to that."""
    lists = re.findall(r"TASK \[Show what became of the nodes\].*?\"msg\": (\[.*?\n    \])", output, re.DOTALL)
    return json.loads(lists[-1]) if lists else []


def drift(*nodes):
    """Change a byte of a hook; update.yml has to bring it back."""
    for node in nodes:
        node.ask("echo >> %s/health" % HOOKS)


def is_good(node, other):
    return node.ask("sha256sum %s/health | cut -c1-64" % HOOKS) == other.ask("sha256sum %s/health | cut -c1-64" % HOOKS)


def note(cluster, node):
    found = re.search("note = (.*)", cluster.nodes["head"].ask("%s/pbsnodes %s" % (BIN, node)))
    return found.group(1).strip() if found else ""


DIFFERS = "the hooks differ from the collection's (health)"


def test_nothing_is_to_be_done(cluster):
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: ready", "node2: ready"]), done.out
    assert "Drain the node" not in done.out
    assert [done.changed(name) for name in ("head", "node1", "node2")] == [0, 0, 0]


def test_job_leaves_the_node_before_it_is_changed(cluster, start, node1, node2):
    job = start("-c", "enabled")
    drift(node1)
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: updated: " + DIFFERS, "node2: ready"]), done.out
    assert job.facts()["exec_host"].split("/")[0] == "node2"
    assert (is_good(node1, node2), note(cluster, "node1")) == (True, "")
    await_nodes(cluster.nodes["head"])
    job.finish()


def test_job_that_does_not_end_in_time_keeps_its_node_as_it_is(cluster, start, node1, node2):
    job = start()
    drift(node1)
    done, lines = update(cluster, update_jobs="wait", update_wait_timeout=2)
    assert done.code != 0
    assert lines == ["node1: not updated: node node1 still has jobs after 2 seconds: %s; end or hold them, or wait longer" % job.id,
                     "node2: ready"]
    assert "not updated, as their jobs did not end in time: node1; run this playbook again later" in done.out
    assert (is_good(node1, node2), note(cluster, "node1")) == (False, "")
    done, lines = update(cluster, update_jobs="leave")
    assert (done.code, lines[0]) == (0, "node1: updated: " + DIFFERS), done.out
    assert job.facts()["exec_host"].split("/")[0] == "node1"
    assert is_good(node1, node2)
    job.finish()


def test_node_that_fails_stays_drained_and_the_next_run_continues(cluster, node1, node2):
    """The user has no directory in the store, so that no round trip of level L2 is possible."""
    drift(node1, node2)
    done, _lines = update(cluster, validate_user="nobody")
    assert done.code != 0
    reason = "rolled back, which did not help (level L2: node1: run: there is no directory"
    assert "node1 was not updated and stays drained: " + reason in " ".join(done.out.split())
    assert note(cluster, "node1").startswith("ckpt-torque: update: " + reason)
    assert "offline" in cluster.nodes["head"].ask("%s/pbsnodes node1" % BIN)
    assert note(cluster, "node2") == "" and "TASK [Drain the node]" in done.out
    assert node2.run("tail -c 2 %s/health | od -An -c | tr -d ' '" % HOOKS).out.strip() == "\\n\\n", "node2 was changed after node1 failed"
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: updated: " + DIFFERS, "node2: updated: " + DIFFERS]), done.out
    assert note(cluster, "node1") == note(cluster, "node2") == ""
    await_nodes(cluster.nodes["head"])


def test_node_that_an_earlier_run_left_is_not_released_when_its_jobs_stay(cluster, start, node1, node2):
    job = start()
    drift(node1)
    reason = "ckpt-torque: update: rolled back, which did not help"
    head = cluster.nodes["head"]
    head.ask("%s/pbsnodes -o -N '%s' node1" % (BIN, reason))
    done, lines = update(cluster, update_jobs="wait", update_wait_timeout=2)
    assert done.code != 0
    assert lines[0] == "node1: not updated: node node1 still has jobs after 2 seconds: %s; end or hold them, or wait longer" % job.id
    assert "offline" in head.ask("%s/pbsnodes node1" % BIN)
    assert (is_good(node1, node2), note(cluster, "node1")) == (False, reason)
    job.finish()
    done, lines = update(cluster)
    assert (done.code, lines[0]) == (0, "node1: updated: " + DIFFERS), done.out
    assert (is_good(node1, node2), note(cluster, "node1")) == (True, "")
    await_nodes(head)


def test_node_with_a_note_of_somebody_else_stops_no_other_of_its_batch(cluster, node1, node2):
    """It cannot be drained; the one beside it is updated and taken into use again."""
    drift(node1, node2)
    head = cluster.nodes["head"]
    head.ask("%s/pbsnodes -N 'new fan' node2" % BIN)
    try:
        done, _lines = update(cluster, update_serial=[2])
        assert done.code != 0
        assert "node2 was not updated and could not be drained: node node2 carries the note 'new fan' of somebody else" in " ".join(
            done.out.replace("\\'", "'").split())
        assert (is_good(node1, node2), note(cluster, "node1"), note(cluster, "node2")) == (False, "", "new fan")
        assert "offline" not in head.ask("%s/pbsnodes node1" % BIN)
    finally:
        head.ask("%s/pbsnodes -N n node2" % BIN)
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: ready", "node2: updated: " + DIFFERS]), done.out
    assert is_good(node1, node2)


def test_jobs_that_cannot_be_moved_stop_no_run(cluster, node1, node2):
    """Somebody else's drain is at work: the nodes of the batch stay drained with the reason, and the next run continues."""
    drift(node1, node2)
    head = cluster.nodes["head"]
    head.ask("systemd-run --unit=other-drain flock /var/lib/ckpt-torque/drain.lock sleep 600; sleep 1")
    try:
        done, _lines = update(cluster, update_serial=[2])
        assert done.code != 0
        for node in ("node1", "node2"):
            assert re.search("%s was not updated and stays drained: .*another drain" % node, " ".join(done.out.split())), done.out
            assert "another drain" in note(cluster, node)
    finally:
        head.ask("systemctl stop other-drain")
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: updated: " + DIFFERS, "node2: updated: " + DIFFERS]), done.out
    assert note(cluster, "node1") == note(cluster, "node2") == ""
    await_nodes(head)


def read_mom(node):
    """Return $loglevel of pbs_mom's configuration, and what is another after pbs_mom was restarted."""
    return node.ask("sed -n 's/^.loglevel //p' /var/spool/torque/mom_priv/config"), started(node)


BROKEN = {"checkpoint_hooks_pre_program": "/usr/bin/false", "torque_mom_loglevel": 5}
"""Variables that each role takes, and with which no job can be checkpointed."""


def test_node_that_an_update_breaks_gets_back_what_it_had(cluster, node1, node2):
    before = read_mom(node1)
    done, _lines = update(cluster, **BROKEN)
    assert done.code != 0
    failed = "rolled back; level L2: "
    assert "node1 was not updated and stays drained: " + failed in " ".join(done.out.split()), done.out
    assert note(cluster, "node1").startswith("ckpt-torque: update: " + failed)
    loglevel, process = read_mom(node1)
    assert loglevel == before[0] == "3" and process != before[1], "pbs_mom was not restarted with the configuration before"
    assert node1.run("grep bin/false /etc/ckpt-torque/hooks.json").code == 1
    assert node1.ask("stat -c '%a %n' /var/lib/ckpt-torque/snapshots; ls /var/lib/ckpt-torque/snapshots").split()[0] == "700"
    assert node1.run("test -e /var/lib/ckpt-torque/snapshots/open.tar").code == 1
    assert read_mom(node2)[0] == "3" and note(cluster, "node2") == ""
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: updated", "node2: ready"]), done.out
    await_nodes(cluster.nodes["head"])


def roll_back(cluster, nodes="node1", **variables):
    return cluster.playbook("rollback", rollback_nodes=nodes, **variables)


def test_rollback_and_back_again(cluster, start, node1, node2):
    """A job that runs on the node goes on elsewhere."""
    done, lines = update(cluster, torque_mom_loglevel=5)
    assert done.code == 0 and [read_mom(node)[0] for node in (node1, node2)] == ["5", "5"], done.out
    await_nodes(cluster.nodes["head"])
    job = start("-c", "enabled")
    process = read_mom(node1)[1]
    done = roll_back(cluster)
    assert done.code == 0, done.out
    assert '"/var/spool/torque/mom_priv/config"' in done.out.split("TASK [Empty the node]")[0]
    loglevel, restarted = read_mom(node1)
    assert loglevel == "3" and restarted != process and read_mom(node2)[0] == "5"
    assert job.facts()["exec_host"].split("/")[0] == "node2"
    await_nodes(cluster.nodes["head"])
    assert note(cluster, "node1") == ""
    job.finish()
    assert roll_back(cluster).code == 0
    assert read_mom(node1)[0] == "5", "the second rollback does not return"
    done, lines = update(cluster)
    assert done.code == 0 and lines[0].startswith("node1: updated: "), done.out
    assert [read_mom(node)[0] for node in (node1, node2)] == ["3", "3"]


def test_rollback_to_an_older_engine_names_the_images_that_it_may_not_restart(cluster, start, node1):
    """The program of an earlier version is a copy of this one by another name: the version is that of its directory."""
    older = "4.1-older"
    node1.ask("cd /opt/criu && cp -a $(readlink current) %s && ln -sfn %s current" % (older, older))
    done, lines = update(cluster)
    assert done.code == 0 and lines[0].startswith("node1: updated: "), done.out
    await_nodes(cluster.nodes["head"])
    job = start("-c", "enabled")
    job.hold()
    done = roll_back(cluster)
    assert done.code == 0, done.out
    assert ("images that criu newer than 4.1 has written may not restart here (%s); such a job is held if it comes to this node, and its "
            "image is kept" % job.id) in done.out
    assert node1.ask("readlink /opt/criu/current") == older
    await_nodes(cluster.nodes["head"])
    assert update(cluster)[0].code == 0
    node1.ask("rm -r /opt/criu/" + older)
    await_nodes(cluster.nodes["head"])
    job.release("node1")
    job.finish()


def watch(cluster, playbook, task, act, **variables):
    """Run a playbook, and call act(process) when it comes to a task; return its status and what it printed."""
    process = subprocess.Popen(
        ["ansible-playbook", "-i", cluster.inventory, "ckpt.torque." + playbook, "-e",
         json.dumps(dict(variables, torque_mom_health_check_interval="400"))],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, cwd=TOP, start_new_session=True,
        env=dict(os.environ, ANSIBLE_CONFIG=str(TOP / "ansible.cfg"), ANSIBLE_NOCOLOR="1"))
    lines = []
    for line in process.stdout:
        lines.append(line)
        if act and re.match(r"TASK \[(\S+ : )?%s\]" % re.escape(task), line):
            act(process)
            act = None
    return process.wait(), "".join(lines)


def interrupt(cluster, task, **variables):
    """Kill update.yml when it comes to a task."""
    status, output = watch(cluster, "update", task, lambda process: os.killpg(process.pid, signal.SIGKILL), **variables)
    assert status == -signal.SIGKILL, output


@contextlib.contextmanager
def disappearing(cluster, node):
    """Have what this yields, when it is called, end a node's sshd and its connections until the block ends."""
    def disappear(_process):
        node.ask("systemd-run --quiet --collect sh -c 'sleep 0.2; systemctl stop ssh.socket ssh.service; pkill sshd; "
                 "until [ -e /shared/back ]; do sleep 0.2; done; systemctl start ssh.service'")

    head = cluster.nodes["head"]
    try:
        yield disappear
    finally:
        head.ask("touch /shared/back")
        for _attempt in range(100):
            node.disconnect()
            if node.run("true").code == 0:
                break
            time.sleep(0.2)
        head.ask("rm /shared/back")


def test_rollback_after_an_update_that_was_killed(cluster, node1):
    """What the node had before that update is put back, not what it had before the last whole one."""
    interrupt(cluster, "Prove level L1 by a round trip", **BROKEN)
    assert read_mom(node1)[0] == "5" and node1.run("test -e /var/lib/ckpt-torque/snapshots/open.tar").code == 0
    assert "offline" in cluster.nodes["head"].ask("%s/pbsnodes node1" % BIN)
    done = roll_back(cluster)
    assert done.code == 0, done.out
    assert read_mom(node1)[0] == "3" and node1.run("grep bin/false /etc/ckpt-torque/hooks.json").code == 1
    await_nodes(cluster.nodes["head"])
    assert update(cluster)[0].code == 0


def test_update_after_one_that_was_killed_and_whose_node_was_released_by_hand(cluster, node1):
    """Weeks later what the node has now is put back when that update fails, not what it had before the killed one."""
    interrupt(cluster, "Prove level L1 by a round trip", torque_mom_loglevel=4)
    cluster.nodes["head"].ask("%s/pbsnodes -c -N n node1" % BIN)
    assert read_mom(node1)[0] == "4"
    assert update(cluster, **BROKEN)[0].code != 0
    assert read_mom(node1)[0] == "4"
    assert update(cluster)[0].code == 0
    assert read_mom(node1)[0] == "3"


@pytest.mark.parametrize("task", ["Empty the node", "Write mom_priv/config", "Start and hold a job by the hooks",
                                  "Release the node"])
def test_update_that_was_killed_is_run_again(cluster, start, task):
    """It goes on where the killed one was, and no job is lost."""
    job = start("-c", "enabled")
    interrupt(cluster, task, torque_mom_loglevel=5)
    done, lines = update(cluster, torque_mom_loglevel=5)
    assert done.code == 0, done.out
    assert [read_mom(node)[0] for node in (cluster.nodes["node1"], cluster.nodes["node2"])] == ["5", "5"], lines
    await_nodes(cluster.nodes["head"])
    assert [note(cluster, name) for name in ("node1", "node2")] == ["", ""]
    assert cluster.nodes["node1"].run("test -e /var/lib/ckpt-torque/snapshots/open.tar").code == 1
    job.finish()
    assert update(cluster)[0].code == 0


@pytest.mark.parametrize("nodes, sentence", [
    ("node1,node9", "rollback_nodes has node9, but the group torque_mom does not; correct the name, or add the node to the inventory; "
                    "nothing was changed."),
    ("", "rollback_nodes names no node; name those to roll back, such as -e rollback_nodes=node1,node2; nothing was changed."),
])
def test_rollback_of_no_such_node(cluster, nodes, sentence):
    done = roll_back(cluster, nodes)
    assert done.code != 0 and sentence in " ".join(done.out.split()), done.out
    assert "TASK [Empty the node]" not in done.out


@pytest.mark.parametrize("arguments, sentence", [
    (["--limit", "node1"], "--limit leaves out head, the server, which changes before the nodes; run without --limit, and name the nodes "
                           "in update_nodes; nothing was changed."),
    (["--tags", "hooks"], "--tags leaves out the tasks that update nodes; run without --tags, or ckpt.torque.site with them; nothing was "
                          "changed."),
])
def test_update_of_a_part_is_refused(cluster, arguments, sentence):
    done, lines = update(cluster, *arguments, checkpoint_hooks_depth=3)
    assert (done.code != 0, lines) == (True, []) and sentence in " ".join(done.out.split()), done.out
    assert {done.changed(name) for name in re.findall(r"^(\w+)\s+: ok=", done.out, re.MULTILINE)} == {0}


def test_rollback_without_a_snapshot(cluster, node1, node2):
    """node2 is not touched either."""
    node1.ask("mv /var/lib/ckpt-torque/snapshots /var/lib/ckpt-torque/away")
    try:
        done = roll_back(cluster, "node1,node2")
    finally:
        node1.ask("mv /var/lib/ckpt-torque/away /var/lib/ckpt-torque/snapshots")
    assert done.code != 0
    assert ("node1: there is no previous snapshot in /var/lib/ckpt-torque/snapshots; ckpt.torque.update takes one before it changes "
            "a node; nothing was changed") in " ".join(done.out.split()), done.out
    assert "TASK [Empty the node]" not in done.out


def test_node_that_others_drained_stays_drained(cluster, node1, node2):
    head = cluster.nodes["head"]
    head.ask("%s/pbsnodes -o -N 'disk broken' node1" % BIN)
    drift(node1)
    try:
        done, lines = update(cluster)
        assert (done.code, lines[0]) == (0, "node1: updated: " + DIFFERS), done.out
        assert (is_good(node1, node2), note(cluster, "node1")) == (True, "disk broken")
        assert "offline" in head.ask("%s/pbsnodes node1" % BIN)
    finally:
        head.ask("%s/pbsnodes -c -N n node1" % BIN)
        await_nodes(head)


def test_only_the_nodes_that_are_named(cluster, node1, node2):
    drift(node1, node2)
    done, lines = update(cluster, update_nodes="node2")
    assert (done.code, lines) == (0, ["node1: left as it is: " + DIFFERS, "node2: updated: " + DIFFERS]), done.out
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: updated: " + DIFFERS, "node2: ready"]), done.out


def test_server_knows_what_became_of_the_node(cluster, node1, node2):
    """Its torque-ckpt tells by this record where an image can restart."""
    record = "/etc/ckpt-torque/nodes/node1.json"
    head = cluster.nodes["head"]
    before = head.ask("cat " + record)
    head.ask("rm " + record)
    drift(node1, node2)
    done, lines = update(cluster, update_serial=2, update_max_fail_percentage=50,
                         checkpoint_hooks_pre_program="{{ '/usr/bin/false' if inventory_hostname == 'node1' else '' }}")
    assert done.code != 0 and "rolled back; level L2: " in note(cluster, "node1") and lines[1] == "node2: updated: " + DIFFERS, done.out
    assert head.run("test -e " + record).code == 1, "what failed was noted"
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: updated: " + DIFFERS, "node2: ready"]), done.out
    assert head.ask("cat " + record) == before
    assert cluster.playbook("site").changed("head") == 0


def test_key_that_a_node_lacks_is_to_seal_images(cluster, node1):
    """A job that was held with it on node1 could not restart on node2, which this run leaves as it is."""
    path = "/etc/ckpt-torque/manifest.key"
    keys = json.loads(node1.ask("cat " + path))["keys"]
    key = {"id": "2026", "secret": "18" * 32}
    node1.ask("cat > %s <<'E'\n%s\nE" % (path, json.dumps({"keys": keys + [key]})))
    done, _lines = update(cluster, update_nodes="node1", checkpoint_hooks_keys=[key] + keys)
    assert done.code != 0
    assert ("checkpoint_hooks_keys: the key 2026 is to seal images that other nodes could not verify, because node2 does not have it yet; "
            "rotate in two runs: append it to the list first, put it in front when all nodes have it; nothing was changed") in done.out
    assert [entry["id"] for entry in json.loads(node1.ask("cat " + path))["keys"]] == ["hosts", "2026"]
    assert update(cluster)[0].code == 0
    await_nodes(cluster.nodes["head"])


def test_engine_that_cannot_be_built_is_told_before_a_node_is_drained(cluster, tmp_path):
    done, lines = update(cluster, criu_prefix="/opt/another", criu_cache=str(tmp_path), criu_source="")
    assert done.code != 0 and lines == []
    assert "node1: there is no CRIU 4.2.1 for debian13-x86_64 (%s/artifacts/" % tmp_path in done.out
    assert "TASK [Empty the node]" not in done.out
    assert cluster.playbook("site").code == 0  # the server has the settings of that run


def test_node_that_is_down(cluster, node1, node2, tmp_path):
    """The others are updated, and the run fails by its name."""
    inventory = cluster.write_inventory_without(tmp_path / "inventory.json", "node2")
    drift(node1)
    done, lines = update(cluster, inventory=inventory)
    assert done.code != 0
    assert lines[0] == "node1: updated: " + DIFFERS
    assert lines[1].startswith("node2: not reached: "), lines
    assert "not reached: node2; run this playbook again later" in done.out
    assert (is_good(node1, node2), note(cluster, "node1")) == (True, "")


LOST = "not reached during the update"


def test_node_that_is_lost_during_its_update_ends_the_run(cluster, node1, node2):
    """The next batch is not begun, the note says what happened, and a second run continues."""
    drift(node1, node2)
    head = cluster.nodes["head"]
    with disappearing(cluster, node1) as disappear:
        status, output = watch(cluster, "update", "Prove level L1 by a round trip", disappear)
        noted = note(cluster, "node1"), note(cluster, "node2"), "offline" in head.ask("%s/pbsnodes node1" % BIN)
    assert status != 0
    assert noted == ("ckpt-torque: update: " + LOST, "", True), output
    assert report(output) == ["node1: not updated: " + LOST, "node2: not updated: too many nodes failed before"]
    assert "%s: node1; not begun, as too many nodes failed: node2; run this playbook again later" % LOST in output
    done, lines = update(cluster)
    assert (done.code, lines) == (0, ["node1: updated", "node2: updated: " + DIFFERS]), done.out
    assert (note(cluster, "node1"), note(cluster, "node2")) == ("", "")
    await_nodes(head)


def test_lost_node_counts_for_the_share_of_failures(cluster, node1, node2):
    """With half of them allowed to fail, the other node of the batch is updated."""
    drift(node1, node2)
    with disappearing(cluster, node1) as disappear:
        status, output = watch(cluster, "update", "Prove level L1 by a round trip", disappear, update_serial=[2],
                               update_max_fail_percentage=50)
    assert status != 0
    assert report(output) == ["node1: not updated: " + LOST, "node2: updated: " + DIFFERS]
    assert LOST + ": node1; run this playbook again later" in output
    assert (note(cluster, "node1"), note(cluster, "node2")) == ("ckpt-torque: update: " + LOST, "")
    assert update(cluster)[0].code == 0
    await_nodes(cluster.nodes["head"])


def test_node_that_is_lost_during_its_rollback_ends_the_run(cluster, node1):
    """Its snapshot is still open: a second run puts back what the node had."""
    done, _lines = update(cluster, torque_mom_loglevel=5)
    assert done.code == 0, done.out
    await_nodes(cluster.nodes["head"])
    with disappearing(cluster, node1) as disappear:
        status, output = watch(cluster, "rollback", "Prove level L1 by a round trip", disappear, rollback_nodes="node1,node2")
        noted = note(cluster, "node1"), note(cluster, "node2")
    assert status != 0
    assert noted == ("ckpt-torque: update: not reached during the rollback", ""), output
    assert ("not reached during the rollback: node1; not begun, as too many nodes failed: node2; run this playbook again "
            "later") in output
    done = roll_back(cluster, "node1,node2")
    assert done.code == 0, done.out
    assert [read_mom(node)[0] for node in (node1, cluster.nodes["node2"])] == ["3", "3"]
    assert (note(cluster, "node1"), note(cluster, "node2")) == ("", "")
    await_nodes(cluster.nodes["head"])


def test_login_node_that_is_down(cluster, node1, node2, tmp_path):
    """It is the only one: the nodes are updated, and the run fails by its name."""
    inventory = cluster.write_inventory_without(tmp_path / "inventory.json")
    known = json.loads((tmp_path / "inventory.json").read_text())
    known["all"]["hosts"]["login1"] = dict(known["all"]["hosts"]["head"], ansible_port=1)
    known["all"]["children"]["torque_client"]["hosts"] = {"login1": {}}
    (tmp_path / "inventory.json").write_text(json.dumps(known))
    drift(node1)
    done, lines = update(cluster, inventory=inventory)
    assert (done.code != 0, lines) == (True, ["node1: updated: " + DIFFERS, "node2: ready"]), done.out
    assert "not set up: login1; run this playbook again later" in done.out
    assert (is_good(node1, node2), note(cluster, "node1")) == (True, "")
    cluster.nodes["head"].ask("%s/qmgr -c 'set server submit_hosts -= login1'" % BIN)
    assert cluster.playbook("site").code == 0


def test_server_that_is_down(cluster, node1, node2, tmp_path):
    """No node can be drained: none is changed."""
    inventory = cluster.write_inventory_without(tmp_path / "inventory.json", "head")
    drift(node1)
    done, _lines = update(cluster, inventory=inventory)
    assert done.code != 0 and "head was not reached: the store and the server of this host were not set up" in done.out, done.out
    assert "TASK [Empty the node]" not in done.out and not is_good(node1, node2)
    assert update(cluster)[0].code == 0
    assert is_good(node1, node2)
