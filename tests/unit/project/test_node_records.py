"""The record of a node, from what the playbook and the engine's role registered on it."""
import json
import pathlib

import playbooks

TEMPLATE = pathlib.Path(__file__).resolve().parents[3] / "roles/checkpoint_hooks/templates/node.json.j2"
INFO = {"compressors": ["gzip"], "node": {"node": "n1"},
        "engines": {"criu": {"path": "/usr/sbin/criu", "version": "4.1"}, "blcr": {"modules": []}}}
CASES = {
    "CRIU that passed the round trip": ("criu", {"criu_selftest": {"engine": {"version": "4.2"}}}, "4.2"),
    "CRIU without a round trip": ("criu", {}, "4.1"),
    "check mode": ("criu", {"criu_selftest": {"skipped": True}}, ""),
    "BLCR beside a CRIU": ("blcr", {"blcr_selftest": {"engine": {"version": "0.8.6_b4"}}, "criu_selftest": {"engine": {"version": "4.2"}}},
                           "0.8.6_b4"),
    "BLCR without a round trip": ("blcr", {}, ""),
}


def test_version_is_that_of_the_engine(tmp_path):
    cases = {name: dict(more, checkpoint_hooks_engine_info=dict(INFO, engine=engine)) for name, (engine, more, _version) in CASES.items()}
    record = "{{ lookup('ansible.builtin.template', '%s', template_vars={'__node': hostvars[inventory_hostname]}) }}" % TEMPLATE
    answers = playbooks.answers(tmp_path, cases, [{"ansible.builtin.set_fact": {"answer": record}}], {})
    for name, (engine, _more, version) in CASES.items():
        answer = answers[name]
        answer = json.loads(answer) if isinstance(answer, str) else answer
        assert answer == {"node": "n1", "engine": {"name": engine, "version": version}, "compressors": ["gzip"],
                          "stores": ["default"]}, name
