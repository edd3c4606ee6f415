"""What reads the variables of all nodes is computed once for a run, not once for each node."""
import re

import pytest
import yaml
from paths import TOP

VARIABLES = yaml.safe_load((TOP / "playbooks/vars/validate.yml").read_text())
COSTLY = sorted(name for name, value in VARIABLES.items() if "hostvars |" in value)


def list_tasks():
    """Yield the tasks of validate.yml in their order, those that it includes among them."""
    for play in yaml.safe_load((TOP / "playbooks/validate.yml").read_text()):
        for task in play["tasks"]:
            yield task
            path = task.get("ansible.builtin.include_tasks")
            if path:
                yield from yaml.safe_load((TOP / "playbooks" / path).read_text())


def test_there_are_such_variables():
    assert COSTLY == ["__validate_looked", "__validate_moves", "__validate_plan", "__validate_sharers"]


@pytest.mark.parametrize("name", COSTLY)
def test_first_use_keeps_it(name):
    """As a fact, for all nodes; what is left out at a lower level is used by tasks that run once."""
    tasks = [task for task in list_tasks() if re.search(name + r"\b", str(task))]
    assert tasks[0]["ansible.builtin.set_fact"] == {name: "{{ %s }}" % name} and tasks[0]["run_once"]


def test_other_tasks_do_not_read_them():
    for task in list_tasks():
        assert "hostvars |" not in str(task) or task.get("run_once") or "ansible.builtin.add_host" in task, task["name"]
