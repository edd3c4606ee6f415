"""Where the roles that build keep sources and artifacts on the controller: one place for all of them."""
import os

import playbooks
import pytest
import yaml

VARIABLES = ("torque_build_cache", "criu_cache", "blcr_cache")
CASES = {
    "nothing is set": ({}, "", os.path.expanduser("~/.cache/ckpt-torque")),
    "by the environment": ({}, "/srv/cache", "/srv/cache"),
    "by a variable": ({"torque_build_cache": "/srv/cluster"}, "/srv/cache", "/srv/cluster"),
}


@pytest.mark.parametrize("case", CASES)
def test_all_roles_that_build_have_one_cache(case, tmp_path, monkeypatch):
    """Each role by itself: none sees the defaults of another."""
    given, environment, wanted = CASES[case]
    monkeypatch.setenv("CKPT_TORQUE_CACHE", environment)
    roles = {name: yaml.safe_load((playbooks.TOP / "roles" / name.replace("_cache", "") / "defaults/main.yml").read_text())[name]
             for name in VARIABLES}
    tasks = [{"ansible.builtin.set_fact": {"answer": "{{ lookup('ansible.builtin.vars', variable) | expanduser }}"}}]
    answers = playbooks.answers(tmp_path, {name: dict({name: value}, variable=name, **given) for name, value in roles.items()}, tasks, {})
    assert answers == dict.fromkeys(VARIABLES, wanted)
