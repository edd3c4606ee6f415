"""A TORQUE that somebody set up, as variables: what the roles would overwrite is named, and all else is left alone."""
import pathlib

import yaml

from ansible_collections.ckpt.torque.plugins.filter.adoption import NEEDED, ROLE_ATTRIBUTES, STORE, adoption

TOP = pathlib.Path(__file__).resolve().parents[3]
SERVER = {
    "version": "6.1.3",
    "server": {"managers": ["root@head", "eve@head"], "default_queue": "long", "scheduling": "True", "comment": "x"},
    "queues": {"long": {"queue_type": "Execution"}, "old": {"queue_type": "E", "checkpoint_dir": "/ckpt"},
               "route": {"queue_type": "Route"}},
    "nodes": {"node1": {}, "node2": {}, "node9": {}}}


def configuration(directives):
    return {"directives": directives, "resources": [], "faults": []}


def test_attributes_are_those_that_the_role_sets():
    role = yaml.safe_load((TOP / "roles/torque_server/vars/main.yml").read_text())
    always = set(role["__torque_server_common"]) - {"managers", "operators"} | {"note_append_on_error"}
    assert "note_append_on_error" in role["__torque_server_since_6_0_3"]
    assert set(ROLE_ATTRIBUTES) == always and set(NEEDED) <= always


def test_store_is_that_of_the_role():
    role = yaml.safe_load((TOP / "roles/torque_server/defaults/main.yml").read_text())
    assert role["torque_server_queues"]["batch"]["checkpoint_dir"] == STORE


def test_server():
    result = adoption(SERVER, {}, "head", "none")
    attributes = {name: None for name in ROLE_ATTRIBUTES if name != "keep_completed"}
    attributes.update(default_queue="long", scheduling="True")
    assert result["all"] == {
        "torque_version": "6.1.3", "torque_server_scheduler": "none", "torque_server_managers": ["eve@head"], "torque_server_operators": [],
        "torque_server_submit_hosts": [], "torque_server_attributes": attributes,
        "torque_server_queues": {"long": {"checkpoint_dir": STORE}, "old": {}, "route": {}}}
    assert result["hosts"] == {}
    assert result["remarks"][:4] == [
        "the server has no keep_completed; it will be set: level L3 of ckpt.torque.validate and torque-ckpt look at jobs that have ended",
        "root@head is not among the operators of the server; it will be: the roles and torque-ckpt act as root",
        "queue long has no checkpoint_dir; it will be the store",
        "queue old keeps its checkpoint_dir /ckpt; jobs can be restarted only if that is a store (checkpoint_store_path)"]


def test_nodes():
    """What all have is written once; what a node has otherwise is its own."""
    common = {"pbsserver": ["head"], "loglevel": ["7"], "usecp": ["*:/home  /home"], "tmpdir": ["/scratch"], "checkpoint_script": ["/old"]}
    other = dict(common, loglevel=["3"])
    result = adoption(SERVER, {"node1": configuration(common), "node2": configuration(other)}, "head")
    shared = {name: value for name, value in result["all"].items() if name.startswith("torque_mom_")}
    assert shared == {
        "torque_mom_servers": ["head"], "torque_mom_directives": {"tmpdir": "/scratch"}, "torque_mom_resources": [],
        "torque_mom_usecp": "{{ (torque_mom_remote_checkpoint_dirs | map('regex_replace', '^(.*)$', '*:\\1 \\1') | list "
                            "+ ['*:/home /home']) | unique }}"}
    assert result["hosts"] == {"node1": {"torque_mom_loglevel": 7}, "node2": {"torque_mom_loglevel": 3}}
    assert result["remarks"][4:] == [
        "node node9 was not read; it is not in the group torque_mom, or was not reached",
        "node1, node2: $checkpoint_script /old will be replaced by the hooks and the store"]


def test_health_script_and_faults():
    known = dict(configuration({"node_check_script": ["/site/check"], "clienthost": ["a", "b"]}), faults=["line 2: no"], resources=["x 1"])
    result = adoption(SERVER, {"node1": known}, "head")
    assert result["all"]["torque_mom_directives"] == {"node_check_script": "/site/check", "clienthost": ["a", "b"]}
    assert (result["all"]["torque_mom_loglevel"], result["all"]["torque_mom_resources"]) == (0, ["x 1"])
    assert "torque_mom_usecp" not in result["all"]
    assert result["remarks"][-2:] == [
        "node1: $node_check_script /site/check stays; have it call /usr/lib/ckpt-torque/health, else nobody hears of a node that cannot "
        "checkpoint",
        "node1: mom_priv/config: line 2: no"]
