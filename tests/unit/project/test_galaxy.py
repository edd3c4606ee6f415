"""What Ansible Galaxy, ansible-core and ansible-builder read of the collection agrees with what is in it."""
import re

import pytest
import yaml

from paths import TOP

RUNTIME = yaml.safe_load((TOP / "meta/runtime.yml").read_text())
MODULE = re.compile(r"^ *(?:- )?([a-z_]+\.[a-z_]+)\.[a-z_]+:", re.MULTILINE)


def test_defaults_can_be_given_to_all_modules_at_once():
    assert RUNTIME["action_groups"]["all"] == sorted(path.stem for path in (TOP / "plugins/modules").glob("*.py"))


def test_collections_that_are_used_are_declared():
    used = {name for top in ("roles", "playbooks") for path in (TOP / top).rglob("*.yml") for name in MODULE.findall(path.read_text())}
    declared = yaml.safe_load((TOP / "galaxy.yml").read_text())["dependencies"]
    assert used - {"ansible.builtin", "ckpt.torque"} == set(declared)


def test_execution_environment_needs_nothing_of_the_tests():
    """Without this file ansible-builder would take requirements.txt, which pins ansible-core for the tests."""
    wanted = yaml.safe_load((TOP / "meta/execution-environment.yml").read_text())["dependencies"]
    assert wanted == {"system": "bindep.txt"}


@pytest.mark.parametrize("platform, packages", [("dpkg", {"openssh-client", "gpgv"}), ("rpm", {"openssh-clients", "gnupg2"})])
def test_execution_environment_gets_ssh_and_gpgv(platform, packages):
    """The one connects to the hosts, the other checks the signature of a bundle."""
    assert set(re.findall(r"^([a-z0-9-]+) \[platform:%s\]$" % platform, (TOP / "bindep.txt").read_text(), re.MULTILINE)) == packages


def test_tarballs_that_pages_name():
    """By its version: beside that of another version * would stand for both, and ansible-galaxy would refuse them."""
    named = {page: re.findall(r"ckpt-torque-(\S+)\.tar\.gz", (TOP / page).read_text())
             for page in ("README.md", "docs/install.md", "docs/operate.md")}
    assert all(named.values())
    assert {version for versions in named.values() for version in versions} == {yaml.safe_load((TOP / "galaxy.yml").read_text())["version"]}
