"""A node that is not reached in the midst of its update or rollback counts as one that failed, and is named at the end."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import playbooks
import pytest
import yaml

DOWN = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
UP = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False,
      "__plan_node": {"reached": True, "why": [], "restarts": False}}
CHANGE = [{"name": "Connect to the node", "ansible.builtin.ping": None},
          {"name": "Fail on some", "ansible.builtin.fail": {"msg": "broken"}, "when": "broken | default(false)"}]
BROKEN = {"broken": True}


@pytest.fixture
def run(tmp_path):
    """Run the plays of update.yml or rollback.yml from batches on, where changing a node is to connect to it; return (status, output)."""
    shutil.copytree(playbooks.TOP / "playbooks", tmp_path / "playbooks")

    def run(playbook, nodes, *arguments, servers=None, **variables):
        path = tmp_path / "playbooks" / (playbook + ".yml")
        plays = yaml.safe_load(path.read_text())
        first, = [number for number, play in enumerate(plays) if play["name"].endswith(", some at a time")]
        due = {"hosts": "torque_mom", "gather_facts": False, "vars_files": ["vars/update.yml"], "tasks": [
            {"ansible.builtin.add_host": {"name": "{{ item }}", "groups": "__update_due"}, "loop": "{{ ansible_play_hosts }}"},
            {"ansible.builtin.import_tasks": "tasks/update_batches.yml"}]}
        path.write_text(json.dumps([due] + [play for play in plays[first:] if "hosts" in play]))
        (tmp_path / "playbooks/tasks" / (playbook + "_node.yml")).write_text(json.dumps(CHANGE))
        (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": dict(UP, **variables), "children": {
            "torque_mom": {"hosts": nodes}, "torque_server": {"hosts": servers or {}}}}}))
        done = subprocess.run([str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "-i", str(tmp_path / "hosts.json"), str(path),
                               *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False,
                              stdin=subprocess.DEVNULL, env=dict(os.environ, ANSIBLE_CONFIG=str(playbooks.TOP / "ansible.cfg"),
                                                                 ANSIBLE_COLLECTIONS_PATH=str(playbooks.TOP / ".cache/checkout")))
        return done.returncode, done.stdout
    return run


def read_lines(output):
    return json.loads(re.search(r"TASK \[Show what became of the nodes\].*?\"msg\": (\[.*?\n    \])", output, re.DOTALL).group(1))


LOST, BEFORE, FAILED = "not reached during the update", "too many nodes failed before", "see the output of ansible-playbook"


@pytest.mark.parametrize("nodes, variables, lines, rest", [
    # By default a batch is one node, then a share.
    ({"node1": DOWN, "node2": {}}, {}, ["node1: not updated: " + LOST, "node2: not updated: " + BEFORE],
     "not reached during the update: node1; not begun, as too many nodes failed: node2"),
    ({"node1": BROKEN, "node2": {}}, {}, ["node1: not updated: " + FAILED, "node2: not updated: " + BEFORE],
     "failed: node1; not begun, as too many nodes failed: node2"),
    # Others of its batch are updated.
    ({"node1": {}, "node2": DOWN, "node3": {}}, {"update_serial": [2]},
     ["node1: updated", "node2: not updated: " + LOST, "node3: not updated: " + BEFORE],
     "not reached during the update: node2; not begun, as too many nodes failed: node3"),
    # One that failed and one that was lost are two of two, more than half of them.
    ({"node1": BROKEN, "node2": DOWN, "node3": {}}, {"update_serial": 2, "update_max_fail_percentage": 50},
     ["node1: not updated: " + FAILED, "node2: not updated: " + LOST, "node3: not updated: " + BEFORE],
     "failed: node1; not reached during the update: node2; not begun, as too many nodes failed: node3"),
    ({"node1": DOWN, "node2": DOWN, "node3": {}}, {"update_serial": "2", "update_max_fail_percentage": "100"},
     ["node1: not updated: " + LOST, "node2: not updated: " + LOST, "node3: updated"], "not reached during the update: node1, node2"),
])
def test_update(run, nodes, variables, lines, rest):
    status, output = run("update", nodes, **variables)
    assert status != 0 and read_lines(output) == lines, output
    assert rest + "; run this playbook again later" in output


def test_nodes_that_are_reached(run):
    status, output = run("update", {"node1": {}, "node2": {}, "node3": {}})
    assert status == 0 and read_lines(output) == ["node1: updated", "node2: updated", "node3: updated"], output


def test_server_that_is_not_reached(run):
    """It is where nodes are drained: Ansible gives up the node for which it connects to the server."""
    status, output = run("update", {"node1": {}, "node2": {}}, servers={"head": DOWN})
    assert status != 0 and read_lines(output) == ["node1: not updated: " + LOST, "node2: not updated: " + BEFORE], output


def test_batch_within_a_limit(run):
    """No host ends it but its nodes: what Ansible does not give up continues."""
    status, output = run("update", {"node1": {}, "node2": DOWN, "node3": {}}, "--limit", "node1,node2", update_serial=[2])
    assert status != 0 and "not reached during the update: node2; run this playbook again later" in output, output


def test_rollback(run):
    status, output = run("rollback", {"node1": DOWN, "node2": {}})
    assert status != 0 and ("not reached during the rollback: node1; not begun, as too many nodes failed: node2; run this playbook again "
                            "later") in output, output
