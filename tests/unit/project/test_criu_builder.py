"""Which node builds CRIU, and which packs it: one of all that need the same artifact, and have it not."""
import playbooks
import yaml

VARIABLES = yaml.safe_load((playbooks.TOP / "roles/criu/vars/main.yml").read_text())
NODES = [  # (node, key, installed)
    ("the first", "fresh", False), ("the second", "fresh", False),
    # Another version is in use on both, and the controller's cache is empty: only one still has what would be built.
    ("had it", "back", True), ("new", "back", False),
    ("old", "done", True), ("older", "done", True),
]


def test_builders(tmp_path):
    for key in ("back", "done"):
        (tmp_path / key).touch()
    cases = {node: {"__criu_artifact": {"key": key, "installed": installed, "path": str(tmp_path / key)}} for node, key, installed in NODES}
    # What failed before it was known which artifact it needs, and what needs none, neither builds nor is in the way.
    cases.update({"failed": {"__criu_artifact": {"failed": True}}, "converged": {}})
    facts = {"builds": "{{ __criu_builds }}", "packs": "{{ __criu_packs }}"}
    tasks = [{"ansible.builtin.set_fact": {"answer": facts}, "when": "__criu_artifact.key is defined"},
             {"ansible.builtin.set_fact": {"answer": {}}, "when": "__criu_artifact.key is not defined"}]
    answers = playbooks.answers(tmp_path, cases, tasks, VARIABLES)
    assert {node for node, answer in answers.items() if answer.get("builds")} == {"the first", "new"}
    assert {node for node, answer in answers.items() if answer.get("packs")} == {"had it", "old"}


def test_builder_is_one_of_those_at_hand(tmp_path):
    """update.yml changes some nodes at a time: one of an earlier batch that failed builds nothing for a later one."""
    cases = {node: {"__criu_artifact": {"key": "key", "installed": False, "path": "-"}} for node in ("earlier", "later")}
    tasks = [{"ansible.builtin.set_fact": {"answer": "{{ __criu_builds }}"}}]
    assert playbooks.answers(tmp_path, cases, tasks, VARIABLES, serial=1) == {"earlier": True, "later": True}
