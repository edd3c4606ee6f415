"""An INI inventory, -e NAME=VALUE and AWX give texts where booleans are meant: "false" must not switch anything on."""
import itertools
import pathlib

import jinja2
import playbooks
import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3]
ROLES = TOP / "roles"
CONDITIONS = ("when", "that", "failed_when", "changed_when", "until")
BOOLEANS = {name: role.name for role in sorted(ROLES.iterdir())
            for entry in yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"].values()
            for name, option in entry["options"].items() if option.get("type") == "bool"}


def find_expressions(data, condition=False):
    """Yield the templates (str) in what a YAML file holds."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from find_expressions(value, key in CONDITIONS)
    elif isinstance(data, list):
        for value in data:
            yield from find_expressions(value, condition)
    elif isinstance(data, str) and condition and "{{" not in data:
        yield "{{ %s }}" % data
    elif isinstance(data, str) and ("{{" in data or "{%" in data):
        yield data


class AnyName(dict):
    """Filters and tests by any name: only the tree is looked at."""

    def __contains__(self, name):
        return True


def find_uses(template):
    """Yield (name, whether it is passed through the filter bool) for each boolean that a template uses."""
    environment = jinja2.Environment()
    environment.filters, environment.tests = AnyName(), AnyName()
    todo = [(environment.parse(template), ())]
    while todo:
        node, above = todo.pop()
        if isinstance(node, jinja2.nodes.Name) and node.name in BOOLEANS:
            filters = [parent.name if isinstance(parent, jinja2.nodes.Filter) else "" for parent in reversed(above)]
            yield node.name, next((name for name in filters if name not in ("default", "d")), "") == "bool"
        todo += [(child, above + (node,)) for child in node.iter_child_nodes()]


FILES = [path for path in itertools.chain(ROLES.glob("*/*/*.yml"), ROLES.glob("*/templates/*.j2"), TOP.glob("playbooks/**/*.yml"))
         if path.parts[-2] not in ("meta", "defaults", "patches")]


def test_every_use_asks_what_the_text_means():
    uses, wrong = set(), []
    for path in FILES:
        templates = [path.read_text()] if path.suffix == ".j2" else find_expressions(yaml.safe_load(path.read_text()))
        for template in templates:
            for name, safe in find_uses(template):
                uses.add(name)
                wrong += [] if safe else ["%s: %s in %s" % (path.relative_to(TOP), name, " ".join(template.split())[:100])]
    assert not wrong, "\n".join(sorted(set(wrong)))
    assert uses == set(BOOLEANS)  # so the test looks where they are used


RESULTS = {
    "torque_build": ["__torque_build_arguments", "__torque_build_enabled", "__torque_build_language", "__torque_build_conflicts"],
    "torque_client": ["__torque_client_trqauthd"],
    "torque_mom": ["__torque_mom_health", "__torque_mom_holds", "__torque_mom_copies", "__torque_mom_local"],
    "checkpoint_store": ["__checkpoint_store_copied", "checkpoint_store_mode"],
    "checkpoint_hooks": ["__checkpoint_hooks_stores"],
}
GIVEN = {"torque_version": "6.1.3", "torque_build_version": "6.0.4"}


@pytest.mark.parametrize("role", sorted(RESULTS))
def test_text_gives_what_the_boolean_gives(role, tmp_path):
    """Each boolean of the role as a text and as a boolean, in a real play."""
    names = [name for name in BOOLEANS if name.startswith(role)] + ["checkpoint_store_shared_enabled"]
    values = (False, "false", "no", True, "yes")
    cases = {(name, value): {name: value} for name in names for value in values}
    cases.update({("shared", value): {"checkpoint_store_additional_stores": [{"path": "/b", "id": "b", "shared": value}]}
                  for value in values})
    variables = {}
    for kind in ("defaults", "vars"):
        for path in sorted(ROLES.glob("*/%s/main.yml" % kind)):
            if path.parts[-3] in (role, "checkpoint_store", "torque_build"):
                variables.update(yaml.safe_load(path.read_text()))
    variables.update(GIVEN, role_path=str(ROLES / role))
    for name in names + ["checkpoint_store_additional_stores"]:
        variables.pop(name, None)
    plain = {name: option.get("default") for entry in yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())[
        "argument_specs"].values() for name, option in entry["options"].items()}
    for case in cases.values():
        case.setdefault("checkpoint_store_additional_stores", [{"path": "/b", "id": "b", "shared": False}])
        for name in names:
            case.setdefault(name, plain.get(name, True))
    task = {"ansible.builtin.set_fact": {"answer": {name: "{{ %s }}" % name for name in RESULTS[role]}}}
    answers = playbooks.answers(tmp_path, cases, [task], variables)
    for name in names + ["shared"]:
        for value, texts in ((False, ("false", "no")), (True, ("yes",))):
            for text in texts:
                assert answers[name, text] == answers[name, value], (name, text)
