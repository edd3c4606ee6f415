"""The first run of the role criu in check mode, on a node that has a CRIU of its own."""
import playbooks
import pytest


@pytest.mark.root
def test_criu_that_the_node_has_is_taken(tmp_path):
    """It cannot be tried then, and the node needs no artifact."""
    (tmp_path / "criu").write_text("#!/bin/sh\n")
    (tmp_path / "criu").chmod(0o755)
    given = {"criu_path": str(tmp_path / "criu"), "criu_prefix": str(tmp_path / "prefix"), "criu_cache": str(tmp_path / "cache")}
    tasks = [{"ansible.builtin.include_role": {"name": "ckpt.torque.criu", "tasks_from": "auto"}},
             {"ansible.builtin.set_fact": {"answer": "{{ __criu_trial.passed is none }}"}}]
    assert playbooks.answers(tmp_path, {"own": given}, tasks, {}, check=True) == {"own": True}
    assert not (tmp_path / "prefix").exists()
