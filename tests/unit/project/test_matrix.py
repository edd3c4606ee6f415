"""make torque-matrix writes its own rows into docs/reference/patches.md and leaves the others as they are."""
import sys

import pytest

import matrix
import tables

BEGIN, END = tables.mark(matrix.TARGET)
ROW = dict.fromkeys(matrix.COLUMNS, "yes")
OLD = "before\n%s\n%s\nafter\n" % (BEGIN, END)


@pytest.fixture
def document():
    text = matrix.merged(OLD, "6.1.3 ours", ROW, "2026-01-01")
    return matrix.merged(text, "2.5.13 stock", dict(ROW, attacks="FAILED: a | b"), "2026-01-02")


def test_rows_are_in_the_order_of_versions(document):
    assert [line for line in document.splitlines() if "| 2026" in line] == [
        "| 2.5.13 stock | 2026-01-02 | yes | yes | yes | yes | yes | FAILED: a \\| b | yes |",
        "| 6.1.3 ours | 2026-01-01 | yes | yes | yes | yes | yes | yes | yes |"]


def test_partial_run_replaces_its_rows_only(document):
    again = matrix.merged(document, "2.5.13 stock", ROW, "2026-02-03")
    assert "| 2.5.13 stock | 2026-02-03 | yes | yes | yes | yes | yes | yes | yes |" in again
    assert "| 6.1.3 ours | 2026-01-01 |" in again and "2026-01-02" not in again


def test_nothing_else_is_touched(document):
    assert document.startswith("before\n" + BEGIN) and document.endswith(END + "\nafter\n")


def test_document_of_this_collection_has_its_place():
    text = matrix.DOCUMENT.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert set(matrix.parsed(text)) <= {matrix.name_of(version, build) for version in matrix.VERSIONS for build in matrix.BUILDS}


def test_failures_stand_beneath_the_table():
    assert matrix.shown({"2.4.8 ours": {"built": "9 s", "L3": "FAILED: no way"}}).splitlines() == [
        "version     built  site twice  L3      failed restart  other node  attacks  jobs",
        "2.4.8 ours  9 s                FAILED",
        "2.4.8 ours, L3: FAILED: no way"]


def test_unknown_version(monkeypatch, capsys):
    monkeypatch.setenv("TORQUE_MATRIX", "6.1.3 9.9")
    assert matrix.main() == 2
    assert capsys.readouterr().err == "matrix.py: no version 9.9; there are 2.4.8, 2.5.3, 2.5.13, 4.2.10, 6.0.4, 6.1.3, 6.1.3.h5\n"


def test_absent_source(monkeypatch, tmp_path, capsys):
    """It is said, and does not count as good."""
    monkeypatch.setenv("TORQUE_MATRIX", "4.2.10")
    monkeypatch.setenv("CKPT_TORQUE_CACHE", str(tmp_path))
    monkeypatch.setattr(matrix, "environment", dict)
    monkeypatch.setattr(matrix, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert matrix.main() == 1
    assert capsys.readouterr().out == "\n4.2.10: not run: no source at %s/sources/torque-4.2.10.tar.gz\n" % tmp_path


@pytest.mark.parametrize("output, counts", [
    ("....\n=== 61 passed in 1411.70s (0:23:31) ===\n", "61 passed"),
    ("F.s\n1 failed, 60 passed, 2 skipped in 12.3s\n", "1 failed, 60 passed, 2 skipped"),
    ("ERROR: file not found\n", "no test was run")])
def test_counts_of_tests(output, counts):
    assert matrix.count_tests(output) == counts


def test_task_that_compiles_has_the_name_by_which_it_is_known():
    assert "- name: %s " % matrix.COMPILES in (matrix.TOP / "roles/torque_build/tasks/compile.yml").read_text()
