"""The role checkpoint_hooks against the table of the hooks' settings: it lacks no setting and has none otherwise."""
import inspect
import re

import pytest
import yaml

from paths import TOP
from torque_ckpt import config, settings
from torque_ckpt.engines import registry
from torque_ckpt.image import compatibility

ROLE = TOP / "roles/checkpoint_hooks"
SPECS = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
WRITTEN = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__checkpoint_hooks_settings"]

NO_VARIABLE = {
    "transfer_directory": "the role checkpoint_store has it",
    "transfer_ssh_config": "the role checkpoint_store writes the file, always there",
}
"""Settings that are not the role's to set, and why."""
NOT_WRITTEN = {"transfer_ssh_config"}
COMPUTED = {"stores", "torque_directory", "engine", "multinode"}
"""Settings whose variables get their defaults from other roles, from engine_info, or from TORQUE's version."""
ROWS = [row for row in config.SETTINGS if row.name not in NO_VARIABLE]


def variable(row):
    return "checkpoint_hooks_" + row.name + ("_enabled" if row.type == "bool" else "")


def wanted_types(row):
    """Return the types (set of str) of argument_specs that a row's variable may have."""
    if row.check is settings.check_path:
        return {"path"} if row.default else {"str"}  # an empty path would become the play's directory
    return {"bytes"} if row.unit == "bytes" else {row.type}


def number_of_bytes(text):
    digits, unit = re.fullmatch(r"([0-9]+)([KMGT]?)", text).groups()
    return int(digits) << 10 * " KMGT".index(unit or " ")


def test_the_role_writes_every_setting_and_no_other():
    assert set(WRITTEN) == {row.name for row in config.SETTINGS} - NOT_WRITTEN


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_variable_is_as_the_row(row):
    spec, name = SPECS[variable(row)], variable(row)
    assert name in WRITTEN[row.name]
    assert spec["type"] in wanted_types(row)
    if row.check in (settings.check_texts, settings.check_job_paths):
        assert spec["elements"] == "str"
    assert tuple(spec.get("choices", ())) == (tuple(registry.list_names()) if row.name == "engine" else row.choices)
    if row.name in COMPUTED:
        assert "{{" in DEFAULTS[name]
    else:
        assert (number_of_bytes(DEFAULTS[name]) if row.unit == "bytes" else DEFAULTS[name]) == row.default


@pytest.mark.parametrize("entry", registry.ENGINES, ids=lambda entry: entry.name)
def test_a_role_of_the_engines_name_installs_it(entry):
    """And says for plan.yml what a node lacks; its variable decides the engine's path."""
    role = TOP / "roles" / entry.name
    assert (role / "tasks/main.yml").exists()
    assert (role / "tasks/plan.yml").exists()
    prefix = yaml.safe_load((role / "defaults/main.yml").read_text())[entry.path_variable]
    assert entry.locate(prefix) == entry.add_defaults({})["path"]


@pytest.mark.parametrize("entry", registry.ENGINES, ids=lambda entry: entry.name)
def test_entry_is_whole(entry):
    assert entry.load().name == entry.name
    assert set(inspect.signature(entry.load()).parameters) == {row.name for row in entry.options} | {"timeout"}
    assert not entry.find_fault(entry.add_defaults({}))


ROWS_OF_ALL = config.SETTINGS + tuple(row for entry in registry.ENGINES for row in entry.options)


@pytest.mark.parametrize("row", ROWS_OF_ALL, ids=lambda row: row.name)
def test_row_is_whole(row):
    assert row.help.endswith(".")
    assert row.type != "int" or (row.unit and row.least is not None)
    assert not row.choices or row.default in row.choices
    assert row.name == "stores" or not row.find_fault(row.default)


@pytest.mark.parametrize("row, value, fault", [
    (settings.Setting("a", 3, "", least=1, most=5, unit="seconds"), 6, "sets x.a to more than 5 seconds"),
    (settings.Setting("a", 3, "", least=1, most=5, unit="seconds"), 5, ""),
    (settings.Setting("a", "b", "", choices=("b", "c")), "d", "sets x.a to 'd', which these hooks do not know"),
    (settings.Setting("a", "", "", check=settings.check_path), "", ""),
    (settings.Setting("a", "", "", check=settings.check_path), "b", "names 'b', which is not an absolute path"),
    (settings.Setting("a", [], "", check=settings.check_texts), ["b", 1], "sets x.a to something that is not text"),
])
def test_faults(row, value, fault):
    assert row.find_fault(value, "x.") == fault


def test_record_of_a_node_is_as_its_rows():
    """The template adds these to what engine_info says a node is."""
    added = re.findall(r"'(\w+)': ", (ROLE / "templates/node.json.j2").read_text().rpartition("combine(")[2])
    assert set(added) - {"name", "version"} == {field.name for field in compatibility.RECORD} - set(compatibility.NODE)
