"""Names of tasks and plays are read on the screen, one line each: a verb in the imperative and its object, in the field's words."""
import itertools
import pathlib
import re

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3]
FILES = sorted(itertools.chain(TOP.glob("roles/*/tasks/*.yml"), TOP.glob("roles/*/handlers/*.yml"), TOP.glob("playbooks/*.yml"),
                               TOP.glob("playbooks/tasks/*.yml"), TOP.glob("molecule/**/*.yml")))
VERBS = re.compile(r"(^|, |\b(and|or|to) )(insist|judge|say|tell|mend|make|give|have|let|wonder)\b", re.IGNORECASE)
PROVE = re.compile(r"\bprove\b(?!.*\bround trips?\b)", re.IGNORECASE)  # proven is what a round trip proves
PRONOUNS = re.compile(r"^(\S+ ){1,2}(it|them|they|these|those)\b", re.IGNORECASE)  # further on, what they stand for is in the name


def find_names(data):
    """Yield the names of plays, tasks and blocks in what a YAML file holds."""
    for entry in data if isinstance(data, list) else []:
        if "name" in entry:
            yield entry["name"]
        for key in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"):
            yield from find_names(entry.get(key))


NAMES = {path.relative_to(TOP).as_posix(): list(find_names(yaml.safe_load(path.read_text()))) for path in FILES}


@pytest.mark.parametrize("rule", [VERBS, PROVE, PRONOUNS], ids=["verbs", "prove", "pronouns"])
def test_words(rule):
    assert sum(map(len, NAMES.values())) > 300
    assert not [(path, name) for path, names in NAMES.items() for name in names if rule.search(name)]


def test_verb_has_an_object():
    assert not [(path, name) for path, names in NAMES.items() for name in names if not re.match(r"[A-Z][a-z]+ \S", name)]


def test_names_differ_within_a_file():
    """So that the output of a run leads to the task."""
    assert not [(path, name) for path, names in NAMES.items() if path.startswith("roles/") for name in names if names.count(name) > 1]


@pytest.mark.parametrize("name, wrong", [
    ("Insist on it", True), ("Make the store", True), ("Tell the server", True), ("Prove level L1", True), ("Load them", True),
    ("Prove level L1 by a round trip", False), ("Remove an earlier export", False), ("Write mom_priv/config", False)])
def test_rules(name, wrong):
    assert any(rule.search(name) for rule in (VERBS, PROVE, PRONOUNS)) is wrong
