"""What is wrong with an inventory, in sentences."""

import json

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils import inventory

GOOD = {"all": ["a", "b"], "ungrouped": [], "torque_mom": ["a"], "torque_server": ["b"]}


@pytest.mark.parametrize("changed, faults", [
    ({}, []),
    ({"torque_mom": None}, ["the inventory has no group torque_mom; put the compute nodes into it"]),
    ({"torque_mom": []}, ["group torque_mom has no hosts; put the compute nodes into it"]),
    ({"torque_mom": None, "torque_moms": ["a"]},
     ["the inventory has a group torque_moms, but none that is called torque_mom (the compute nodes); rename it"]),
    ({"torque_server": None}, ["the inventory has no group torque_server; put the host that runs pbs_server into it"]),
    ({"checkpoint_stores": ["b"]}, ["the inventory has a group checkpoint_stores, but none that is called checkpoint_store (one host that "
                                    "may create directories in the store); rename it"]),
    ({"torque-client": ["b"]},
     ["the inventory has a group torque-client, but none that is called torque_client (the hosts where users submit); rename it"]),
    ({"torque_mom_rack7": ["a"], "torque_moms": ["a"], "site": ["a"]}, []),
])
def test_groups(changed, faults):
    groups = {name: hosts for name, hosts in dict(GOOD, **changed).items() if hosts is not None}
    assert list(inventory.find_group_faults(groups, ["torque_mom", "torque_server"])) == faults


def test_server_is_not_needed_by_all():
    assert list(inventory.find_group_faults({"torque_mom": ["a"]}, ["torque_mom"])) == []


@pytest.mark.parametrize("value, option, fault", [
    ("maybe", {"type": "bool"}, 'v is the text "maybe"; set it to true or false'),
    ("no", {"type": "bool"}, ""),
    ("False", {"type": "bool"}, ""),
    (False, {"type": "bool"}, ""),
    ("alice", {"type": "list"}, """v is the text "alice"; write it as a list, on the command line in JSON: -e '{"v": ["alice"]}'"""),
    (["alice"], {"type": "list"}, ""),
    ("a=b", {"type": "dict"}, """v is the text "a=b"; write it as a dictionary, on the command line in JSON: -e '{"v": {}}'"""),
    ("3", {"type": "int"}, ""),
    ("three", {"type": "int"}, 'v is the text "three"; set it to a whole number'),
    ("text", {}, ""),
])
def test_types(value, option, fault):
    assert inventory.find_type_fault("v", value, option) == fault


@pytest.mark.parametrize("value, fault", [
    (2, ""), ("10", ""), (500, ""), (1, "v is 1; set it to a whole number of 2 or more"),
    ("-3", "v is -3; set it to a whole number of 2 or more"), (True, "v is True; set it to a whole number of 2 or more"),
])
def test_number_that_is_too_small(value, fault):
    assert inventory.find_range_fault("v", value, {"type": "int", "least": 2}) == fault
    assert inventory.find_range_fault("v", value, {"type": "int"}) == ""


@pytest.mark.parametrize("value, right", [
    (1, True), ("10%", True), ("100%", True), ([1, "10%"], True), ("25", True), (0, False), ("0", False), (-1, False), ("0%", False),
    ([1, 0], False), ([], False), (True, False), ("101%", False), ("ten", False)])
def test_batches(value, right):
    fault = inventory.find_batch_fault("v", value, {"type": "raw", "batches": True})
    assert fault == ("" if right else "v is %s; set it to a whole number of 1 or more, a share such as 10%%, or a list of these: with 0, "
                     "all nodes are taken at once" % json.dumps(value))
    assert inventory.find_batch_fault("v", value, {"type": "raw"}) == ""


def test_variable_that_plays_take():
    option = {"type": "raw", "plays": True}
    assert inventory.find_place_fault("v", option, []) == (
        "v is set in the inventory, where it has no effect: hosts and batches of a play are chosen before variables of hosts are known; "
        "give it to ansible-playbook by -e")
    assert inventory.find_place_fault("v", option, ["v"]) == inventory.find_place_fault("v", {"type": "raw"}, []) == ""


def test_slips():
    known = ["checkpoint_hooks_depth", "torque_mom_home", "adopt_directory"]
    names = ["checkpoint_hooks_depht", "torque_mom_home", "torque_mom_rack", "inventory_hostname", "checkpoint_hooks", "adopt_directroy",
             "my_adopt_directory"]
    assert inventory.find_slips(names, known) == [("adopt_directroy", "adopt_directory"),
                                                  ("checkpoint_hooks_depht", "checkpoint_hooks_depth")]


SECRET = "0123456789abcdef" * 4


@pytest.mark.parametrize("keys, good", [
    ([{"id": "a", "secret": SECRET}], True),
    ([{"id": "a", "secret": SECRET}, {"id": "b", "secret": SECRET}], True),
    ([{"id": "a", "secret": SECRET}, {"id": "a", "secret": SECRET}], False),
    ([{"id": "a", "secret": SECRET[:-2]}], False),
    ([{"id": "a", "secret": SECRET + "g"}], False),
    ([{"secret": SECRET}], False), ([{"id": "", "secret": SECRET}], False), ([SECRET], False), (SECRET, False), ([], False), (None, False),
])
def test_keys(keys, good):
    assert inventory.are_keys(keys) is good


def test_same_fault_of_many_hosts():
    assert inventory.join_hosts([("a", "x"), ("b", "x"), ("c", "y"), ("c", "x"), ("d", "z"), ("e", "z")]) == [
        "a and 2 other hosts: x", "c: y", "d and 1 other host: z"]
