"""make cores: which releases of ansible-core it takes, and what it writes into docs/reference/support.md."""
import re

import pytest

import cores
import tables

BEGIN, END = tables.mark(cores.TARGET)
ROW = dict.fromkeys(cores.COLUMNS, "yes")
OLD = "before\n%s\n%s\nafter\n" % (BEGIN, END)
LISTING = "ansible-core (2.21.5)\nAvailable versions: 2.21.5, 2.21.0, 2.16.19, 2.16.0, 2.9.1\n  INSTALLED: 2.19.14\n"


@pytest.fixture
def document():
    text = cores.merged(OLD, "2.21.5", ROW, "2026-01-01")
    return cores.merged(text, "2.9.27", dict(ROW, unit="FAILED: a | b"), "2026-01-02")


@pytest.fixture
def core(monkeypatch, tmp_path):
    """A release for Python 3.12 (Core), its directories under tmp_path."""
    monkeypatch.setattr(cores, "describe", lambda release: (release + ".19", {(3, 12)}))
    monkeypatch.setattr(cores, "DIRECTORY", tmp_path)
    monkeypatch.setattr(cores, "LOGS", tmp_path)
    return cores.Core("2.16", is_rolled_out=True)


def test_releases_are_the_minor_ones_from_the_least_on():
    assert cores.releases(LISTING, "2.10") == ["2.16", "2.21"]


def test_least_release_is_that_of_the_collection(repository):
    assert "requires_ansible: \">=%s.0\"" % cores.oldest() in (repository / "meta/runtime.yml").read_text()


def test_rows_are_in_the_order_of_releases(document):
    assert [line for line in document.splitlines() if "| 2026" in line] == [
        "| 2.9.27 | yes | yes | FAILED: a \\| b | yes | yes | 2026-01-02 |",
        "| 2.21.5 | yes | yes | yes | yes | yes | 2026-01-01 |"]


def test_newer_version_replaces_the_row_of_its_release_only(document):
    again = cores.merged(document, "2.9.28", ROW, "2026-02-03")
    assert "| 2.9.28 | yes | yes | yes | yes | yes | 2026-02-03 |" in again
    assert "| 2.21.5 |" in again and "2.9.27" not in again


def test_nothing_else_is_touched(document):
    assert document.startswith("before\n" + BEGIN) and document.endswith(END + "\nafter\n")


def test_document_of_this_collection_has_its_place():
    text = cores.DOCUMENT.read_text()
    assert text.count(BEGIN) == text.count(END) == 1


def test_tools_are_those_that_make_test_pins(repository):
    lines = cores.pinned(cores.TOOLS, (repository / "requirements-test.txt").read_text())
    assert [re.split("==", line)[0] for line in lines] == sorted(cores.TOOLS)


def test_unknown_release(monkeypatch, capsys):
    monkeypatch.setenv("CORES", "2.16 2.99")
    monkeypatch.setattr(cores, "available", lambda: ["2.16", "2.17"])
    assert cores.main() == 2
    assert capsys.readouterr().err == "cores.py: no release 2.99; there are 2.16, 2.17\n"


def test_machine_without_its_python(monkeypatch, core):
    """It is said, in each cell, and nothing else is tried."""
    monkeypatch.setattr(cores.run, "interpreters", lambda: {(3, 11): "/usr/bin/python3.11"})
    rows = []
    core.fill(rows.append)
    assert rows == [dict.fromkeys(cores.COLUMNS, "NOT RUN") | {"python": "NOT RUN: this machine has no Python 3.12"}]


def test_failed_cell_names_its_cause_and_the_next_is_tried(monkeypatch, core):
    def fail():
        raise cores.matrix.Failed("3 issues\nof metaclass")
    for name, work in (("python", lambda: "3.12"), ("sanity", fail), ("unit", lambda: "9 passed"), ("check_mode", fail)):
        monkeypatch.setattr(core, name, work)
    rows = []
    core.fill(lambda row: rows.append(dict(row)))
    assert rows[-1] == {"python": "3.12", "sanity": "FAILED: 3 issues of metaclass", "unit": "9 passed",
                        "check mode": "FAILED: 3 issues of metaclass", "rollout": "NOT RUN"}
    assert rows[0]["sanity"] == "NOT RUN"


@pytest.mark.parametrize("status, answer", [("yes", 0), ("FAILED: x", 1)])
def test_exit_status(monkeypatch, tmp_path, capsys, status, answer):
    document = tmp_path / "support.md"
    document.write_text(OLD)
    for name, value in (("DOCUMENT", document), ("LOGS", tmp_path), ("environment", dict), ("available", lambda: ["2.16"]),
                        ("describe", lambda release: ("2.16.19", {(3, 12)}))):
        monkeypatch.setattr(cores, name, value)
    monkeypatch.setattr(cores.sys, "path", list(cores.sys.path))
    monkeypatch.setattr(cores.Core, "fill", lambda self, done: done(dict(ROW, unit=status)))
    monkeypatch.delenv("CORES", raising=False)
    assert cores.main() == answer
    assert "| 2.16.19 | yes | yes | %s | yes | yes |" % status in document.read_text()
