"""cases: what a case needs."""

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.validation.cases import CASES, PROBE, find_fault


@pytest.mark.parametrize("name, path, copies_path, fault", [
    ("move", ["node1"], None, ""),
    ("older_image", ["node1", "node1"], None, ""),
    ("older_image", ["node1"], None, "case older_image needs a path of two nodes at least (one may come twice)"),
    ("failed_restart", ["node1"], None, "case failed_restart needs a path of two nodes at least (one may come twice)"),
    ("failed_restart", ["node1", "node2"], "/copies", ""),
    ("failed_hold", ["node1"], None, ""),
    ("multinode_output", ["node1", "node1"], None, "case multinode_output needs a path over two different nodes"),
    ("multinode_output", ["node1", "node2"], None, ""),
    ("drain", ["node1"], None, "case drain needs a path of two nodes at least (one may come twice)"),
    ("drain", ["node1", "node1", "node2"], None, "case drain needs a path that leads to another node first"),
    ("drain", ["node1", "node2"], None, ""),
    ("failed_hold", ["node1"], "/copies",
     "case failed_hold needs the nodes' store on this host, which with copies_path sees copies only; leave the case out"),
    ("node_crash", ["node1"], None, "case node_crash needs crash_file, and somebody who crashes the node when that exists"),
    ("full_store", ["node1"], None,
     "case full_store needs full_store_file, and somebody who fills the store of the first node while that exists"),
])
def test_find_fault(name, path, copies_path, fault):
    assert find_fault({"case": name, "path": path, "copies_path": copies_path, "crash_file": None, "full_store_file": None}) == fault


def test_no_two_steps_of_a_case_have_one_name():
    for name, case in CASES.items():
        steps = [step.name for step in [*case.before_submit, *case.on_first_node, *case.on_each_node, *case.after_hold,
                                        *case.before_release, *case.after_end]]
        assert len(steps) == len(set(steps)), name


def test_cases_whose_program_needs_commands_look_for_them_first():
    for name, case in CASES.items():
        assert bool(case.program.needs) == (PROBE in case.before_submit), name
