"""docs/platforms.md: the engine of each row is the one that a node with its kernel gets, what has a record is not called NOT RUN, and
support.md, the roles' metadata and their scenarios agree with it."""
import re

import pytest
import yaml
from ansible_collections.ckpt.torque.plugins.module_utils.engine import choice
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.engines import registry
from paths import TOP

PAGE = (TOP / "docs/platforms.md").read_text()
SUPPORT = (TOP / "docs/reference/support.md").read_text()
SUITES = {"bullseye": "11", "bookworm": "12", "trixie": "13"}
ROLES = sorted(path.name for path in (TOP / "roles").iterdir())


def read_section(title):
    return PAGE.split("\n## %s\n" % title)[1].split("\n## ")[0]


ROWS = re.findall(r"^\| (.+) \((\d+\.\d+)\) \| (\w+) \| (.+) \| (\S+) \| (.+) \|$", read_section("Distributions"), re.MULTILINE)


def find_engine(kernel):
    """Return the title of the engine of a kernel (str), or "none"."""
    try:
        name = choice.choose(choice.AUTO, kernel)[0]
    except choice.EngineError:
        return "none"
    return next(entry.title for entry in registry.ENGINES if entry.name == name)


def test_every_row_is_read():
    assert len(ROWS) == len(re.findall(r"^\| ", read_section("Distributions"), re.MULTILINE)) - 1


@pytest.mark.parametrize("system, kernel, engine", [row[:3] for row in ROWS], ids=[row[0] for row in ROWS])
def test_engine_of_a_distribution(system, kernel, engine):
    assert find_engine(kernel) == engine


@pytest.mark.parametrize("first, last, engine", [("0.1", "3.4", "none"), ("3.5", "3.17", "BLCR"), ("3.18", "5.8", "none"),
                                                 ("5.9", "7.0", "CRIU")])
def test_kernels(first, last, engine):
    assert [find_engine(first), find_engine(last)] == [engine, engine]
    beside = {"0.1": "before 3.5", "5.9": "5.9 and newer"}.get(first, "%s to %s" % (first, last))
    assert "| %s | %s" % (beside, engine) in read_section("The kernel decides")


@pytest.mark.parametrize("system, kernel, engine, run, day, missing", ROWS, ids=[row[0] for row in ROWS])
def test_what_was_run_has_a_day(system, kernel, engine, run, day, missing):
    assert (run == "nothing") == (day == "-")
    assert run != "nothing" or missing.startswith("NOT RUN")


RUN = {row[0]: row[5] for row in ROWS if not row[5].startswith("NOT RUN")}
"""What is missing (str) by the system on whose nodes the rest was run."""


def test_support_names_the_same_as_not_run():
    section = SUPPORT.split("\n## Not run yet\n")[1]
    releases, = re.findall(r"^- distributions other than Debian (.*), on nodes;$", section, re.MULTILINE)
    assert {"Debian " + release for release in re.findall("[0-9]+", releases)} == {" ".join(name.split()[:2]) for name in RUN}
    assert "\n- Debian 11 with CRIU: %s;\n" % RUN["Debian 11"] in section


def read_releases(role):
    """Return the releases of Debian (list of str) that a role's metadata name; no other system is named."""
    platform, = yaml.safe_load((TOP / "roles" / role / "meta/main.yml").read_text())["galaxy_info"]["platforms"]
    assert platform["name"] == "Debian"
    return [SUITES[suite] for suite in platform["versions"]]


def test_releases_of_the_roles():
    """The page names those of each role, and nodes of each release were run."""
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| ([0-9, ]+) \|$", read_section("Roles"), re.MULTILINE)
    named = {role: releases.split(", ") for roles, releases in rows for role in re.findall("[a-z_]+", roles)}
    assert named == {role: read_releases(role) for role in ROLES}
    assert {"Debian " + release for releases in named.values() for release in releases} <= set(RUN)


@pytest.mark.parametrize("role", sorted(set(ROLES) - {"blcr"}))  # whose scenario has small modules of our own instead of BLCR's
def test_release_of_the_scenario(role):
    env = yaml.safe_load((TOP / "molecule" / role / "molecule.yml").read_text())["provisioner"].get("env", {})
    default, = re.findall('"CKPT_TORQUE_SUITE", "([a-z]+)"', (TOP / "molecule/shared/hosts.py").read_text())
    assert "CKPT_TORQUE_HOSTS" not in env and SUITES[default] in read_releases(role)
