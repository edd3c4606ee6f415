"""The scenarios of molecule: each role has one of its own, whose platforms are the hosts that are created."""
import pathlib

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3]
SCENARIOS = {path.parent.name: yaml.safe_load(path.read_text()) for path in TOP.glob("molecule/*/molecule.yml")}
GROUPS = {"checkpoint_store", "torque_builder", "torque_client", "torque_mom", "torque_server"}


def test_each_role_has_a_scenario():
    roles = {path.name for path in (TOP / "roles").iterdir()}
    assert roles <= set(SCENARIOS)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_platforms(name):
    for platform in SCENARIOS[name]["platforms"]:
        assert platform["groups"] and set(platform["groups"]) <= GROUPS


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_playbooks_are_there(name):
    for playbook in SCENARIOS[name].get("provisioner", {}).get("playbooks", {}).values():
        assert (TOP / "molecule" / name / playbook).is_file()


@pytest.mark.parametrize("name", sorted(name for name in SCENARIOS if (TOP / "roles" / name).is_dir()))
def test_role_is_applied(name):
    """And no other, but for what prepares the hosts."""
    text = (TOP / "molecule" / name / "converge.yml").read_text()
    assert {word for word in text.split() if word.startswith("ckpt.torque.")} == {"ckpt.torque." + name}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_virtual_machines_are_the_platforms(name):
    """Their tests boot them again, and find them by the environment."""
    members = SCENARIOS[name].get("provisioner", {}).get("env", {}).get("CKPT_TORQUE_MEMBERS")
    if members:
        assert members.split() == ["%s:%s" % (platform["name"], ",".join(platform["groups"])) for platform in SCENARIOS[name]["platforms"]]
