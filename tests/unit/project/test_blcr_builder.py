"""Which node builds BLCR, and which packs it: one of all that need the same artifact, and one that can."""
import playbooks
import yaml

NO_HEADERS = "there are no headers of kernel 3.10.0"
NODES = [  # (node, key, installed, cannot_build)
    ("the first", "fresh", False, ""), ("the second", "fresh", False, ""),
    # With a new controller: its cache is empty, the node has what would be built.
    ("converged", "grown", True, ""), ("new", "grown", False, ""),
    ("without headers", "mixed", False, NO_HEADERS), ("with headers", "mixed", False, ""),
    ("old", "done", True, ""), ("older", "done", True, NO_HEADERS),
    ("none", "none", False, NO_HEADERS), ("none either", "none", False, NO_HEADERS),
]
BUILDERS = {"the first", "new", "with headers", "none"}
PACKERS = {"converged", "old"}


def test_builders(tmp_path):
    internal = yaml.safe_load((playbooks.TOP / "roles/blcr/vars/main.yml").read_text())
    for key in ("grown", "done"):
        (tmp_path / key).touch()
    cases = {node: {"__blcr_artifact": {"key": key, "installed": installed, "path": str(tmp_path / key)},
                    "__blcr_node": {"cannot_build": cannot_build}} for node, key, installed, cannot_build in NODES}
    # What failed before it was known which artifact it needs, and what was left out, neither builds nor is in the way.
    cases.update({"failed": {"__blcr_artifact": {"failed": True}, "__blcr_node": {}}, "left out": {}})
    facts = {"builds": "{{ __blcr_builds }}", "packs": "{{ __blcr_packs }}"}
    tasks = [{"ansible.builtin.set_fact": {"answer": facts}, "when": "__blcr_artifact.key is defined"},
             {"ansible.builtin.set_fact": {"answer": {}}, "when": "__blcr_artifact.key is not defined"}]
    answers = playbooks.answers(tmp_path, cases, tasks, internal)
    assert {node for node, answer in answers.items() if answer.get("builds")} == BUILDERS
    assert {node for node, answer in answers.items() if answer.get("packs")} == PACKERS


def test_builder_is_one_of_those_at_hand(tmp_path):
    """update.yml changes some nodes at a time: one of an earlier batch that failed builds nothing for a later one."""
    internal = yaml.safe_load((playbooks.TOP / "roles/blcr/vars/main.yml").read_text())
    cases = {node: {"__blcr_artifact": {"key": "key", "installed": False, "path": "-"}, "__blcr_node": {"cannot_build": ""}}
             for node in ("earlier", "later")}
    tasks = [{"ansible.builtin.set_fact": {"answer": "{{ __blcr_builds }}"}}]
    assert playbooks.answers(tmp_path, cases, tasks, internal, serial=1) == {"earlier": True, "later": True}
