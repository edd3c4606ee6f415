"""What older versions of ansible-core (2.16 to 2.18) do differently, looked up in the playbooks, since the tests run on one version."""
import pathlib
import re

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3] / "playbooks"
PLAYBOOKS = sorted([*TOP.glob("*.yml"), *TOP.glob("parts/*.yml")])


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_defaults_of_modules_need_nothing_that_a_task_makes_known(path):
    """They are templated for each task of the play, also for the one that sets the variable."""
    plays = [play for play in yaml.safe_load(path.read_text()) if "module_defaults" in play]
    for text in re.findall(r"\{\{.*?\}\}", str([play["module_defaults"] for play in plays])):
        assert "default(" in text, text


def test_there_are_such_defaults():
    assert any("module_defaults" in play for path in PLAYBOOKS for play in yaml.safe_load(path.read_text()))
