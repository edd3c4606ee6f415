"""docs/platforms.md: the engine of each row is the one that a node with its kernel gets, and what has a record is not called NOT RUN."""
import re

import pytest
import yaml
from ansible_collections.ckpt.torque.plugins.module_utils.engine import choice
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.engines import registry
from paths import TOP

PAGE = (TOP / "docs/platforms.md").read_text()
SUITES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13"}


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


def test_platforms_of_the_roles_have_been_run():
    named = {SUITES[suite] for path in TOP.glob("roles/*/meta/main.yml")
             for platform in yaml.safe_load(path.read_text())["galaxy_info"]["platforms"] for suite in platform["versions"]}
    assert named <= {row[0] for row in ROWS if row[3] != "nothing"}
