"""What the role writes as engine_options: the engine's own, with the paths of the engines' roles, and the hooks take it."""
import json
import os

import playbooks
import pytest
import yaml

from torque_ckpt import config
from torque_ckpt.engines import registry

ROLE = playbooks.TOP / "roles/checkpoint_hooks"
BOTH = {"criu": {"options": ["-v2"], "stall": 20}, "blcr": {"path": "/usr/local/bin", "dump_options": ["--save-private"]}}
CASES = {
    "nothing is set": ({}, {"path": "/opt/criu/current/sbin/criu"}),
    "BLCR, nothing is set": ({"checkpoint_hooks_engine": "blcr"}, {"path": "/opt/blcr/current/bin"}),
    "where the roles put them": ({"criu_prefix": "/opt/ours", "blcr_prefix": "/opt/other"}, {"path": "/opt/ours/current/sbin/criu"}),
    "where the role put BLCR": ({"checkpoint_hooks_engine": "blcr", "blcr_prefix": "/opt/other"}, {"path": "/opt/other/current/bin"}),
    "one of both": ({"checkpoint_hooks_engine_options": BOTH}, {"path": "/opt/criu/current/sbin/criu", "options": ["-v2"], "stall": 20}),
    "the other of both": ({"checkpoint_hooks_engine_options": BOTH, "checkpoint_hooks_engine": "blcr"},
                          {"path": "/usr/local/bin", "dump_options": ["--save-private"]}),
    "an empty one": ({"checkpoint_hooks_engine_options": {"criu": None}}, {"path": "/opt/criu/current/sbin/criu"}),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What hooks.json is in each case (dict)."""
    variables = dict(yaml.safe_load((ROLE / "defaults/main.yml").read_text()), **yaml.safe_load((ROLE / "vars/main.yml").read_text()))
    cases = {name: dict(variables, **given) for name, (given, _wanted) in CASES.items()}
    tasks = [{"ansible.builtin.set_fact": {"answer": "{{ __checkpoint_hooks_settings | ckpt.torque.typed_settings | to_nice_json }}"}}]
    answers = playbooks.answers(tmp_path_factory.mktemp("options"), cases, tasks, {})
    return {name: json.loads(answer) if isinstance(answer, str) else answer for name, answer in answers.items()}


@pytest.mark.parametrize("case", CASES)
def test_options_of_the_engine_alone(written, case, tmp_path):
    assert written[case]["engine_options"] == CASES[case][1]
    path = tmp_path / "hooks.json"
    path.write_text(json.dumps(written[case]))
    path.chmod(0o600)
    loaded = config.load_settings(str(path), owner=os.geteuid())
    assert loaded["engine_options"] == registry.find_entry(written[case]["engine"]).add_defaults(CASES[case][1])
