"""make torque-releases: which releases it takes, and where it writes what it saw."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / ".cache/checkout"))

import matrix
import releases
import tables
from ansible_collections.ckpt.torque.plugins.module_utils.build import patches

BEGIN, END = tables.mark(releases.TARGET)
PAGE = "%s\n%s\n%s\n%s\n" % (*tables.mark(releases.CURRENT), BEGIN, END)


def test_order():
    assert sorted(["6.1.3.h5", "4.2.10", "6.1.3", "4.2.9", "2.5.13", "4.2.9.h1", "6.1.3.h1a"], key=releases.key) == [
        "2.5.13", "4.2.9", "4.2.9.h1", "4.2.10", "6.1.3", "6.1.3.h1a", "6.1.3.h5"]


def test_what_no_patch_is_for_is_not_claimed():
    assert releases.claimed(["6.1.3", "7.0.0", "4.2.8", "1.0"], patches.choose) == ["4.2.8", "6.1.3"]


ROWS = {"4.2.10": ("0a1b2c3d", "2026-01-03", "8 s", "both nodes free"), "4.2.8": ("0a1b2c3d", "2026-01-02", "FAILED: a | b", "not run")}


def test_rows():
    text = "before\n%s\n%s\nafter\n" % (BEGIN, END)
    text = releases.merged(text, {"4.2.10": ("00000000", "2026-01-01", "9 s", "both nodes free")})
    for version, row in ROWS.items():
        text = releases.merged(text, {version: row})
    assert text == "before\n%s\n%s\n%s\nafter\n" % (BEGIN, "\n".join([
        "| release | built by | run on | built | started |", "|---|---|---|---|---|",
        "| 4.2.8 | 0a1b2c3d | 2026-01-02 | FAILED: a \\| b | not run |",
        "| 4.2.10 | 0a1b2c3d | 2026-01-03 | 8 s | both nodes free |"]), END)


@pytest.mark.parametrize("version, mark, done", [("4.2.10", "0a1b2c3d", True), ("4.2.10", "00000000", False), ("4.2.8", "0a1b2c3d", False),
                                                 ("4.2.9", "0a1b2c3d", False)])
def test_what_is_done(version, mark, done):
    text = releases.merged("%s\n%s\n" % (BEGIN, END), ROWS)
    assert releases.is_done(text, version, mark) is done


def test_fingerprint_is_of_the_patches_for_a_version():
    marks = {version: releases.fingerprint(version, patches.choose) for version in ("2.5.13", "4.2.8", "4.2.9", "6.1.3")}
    assert len(set(marks.values())) == 3
    assert marks["4.2.8"] == marks["4.2.9"]


def test_document_of_this_collection_has_its_place():
    text = matrix.DOCUMENT.read_text()
    assert text.count(BEGIN) == text.count(END) == 1


def test_document_names_the_rows_of_the_present_series():
    """If not: .venv/bin/python tests/releases.py --current."""
    text = matrix.DOCUMENT.read_text()
    assert tables.read(text, releases.CURRENT) == tables.read(releases.name_current(text, patches.choose), releases.CURRENT)


def test_rows_of_an_earlier_series_and_failures_are_not_current():
    text = releases.merged(PAGE, {"4.2.8": (releases.fingerprint("4.2.8", patches.choose), "2026-01-02", "9 s", "both nodes free"),
                                  "4.2.10": (releases.fingerprint("4.2.10", patches.choose), "2026-01-02", "FAILED: a", "not run"),
                                  "6.1.3": ("00000000", "2026-01-02", "9 s", "both nodes free")})
    assert tables.read(releases.name_current(text, patches.choose), releases.CURRENT) == ["4.2.8"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with two sources, and a document."""
    (tmp_path / "sources").mkdir()
    for version in ("4.2.8", "6.1.3"):
        (tmp_path / "sources" / ("torque-%s.tar.gz" % version)).touch()
    (tmp_path / "patches.md").write_text(PAGE)
    monkeypatch.setenv("CKPT_TORQUE_CACHE", str(tmp_path))
    monkeypatch.delenv("TORQUE_RELEASES", raising=False)
    monkeypatch.setattr(releases, "environment", dict)
    monkeypatch.setattr(matrix, "KEEP", "1")
    monkeypatch.setattr(matrix, "DOCUMENT", tmp_path / "patches.md")
    return tmp_path


def test_broken_run_goes_on(cache, monkeypatch, capsys):
    tried = []

    def try_release(version):
        tried.append(version)
        if tried == ["4.2.8", "6.1.3"]:
            raise KeyboardInterrupt
        return ["5 s", "both nodes free"]

    monkeypatch.setattr(releases, "try_release", try_release)
    with pytest.raises(KeyboardInterrupt):
        releases.main()
    assert releases.main() == 0
    assert tried == ["4.2.8", "6.1.3", "6.1.3"]
    assert tables.read(matrix.DOCUMENT.read_text(), releases.CURRENT) == ["4.2.8, 6.1.3"]
    assert capsys.readouterr().out.splitlines()[-1] == "releases: 2, done before: 1, failed: none"
    assert set(releases.parsed(matrix.DOCUMENT.read_text())) == {"4.2.8", "6.1.3"}
    monkeypatch.setattr(releases, "fingerprint", lambda version, choose: "00000000")
    assert releases.main() == 0
    assert tried[3:] == ["4.2.8", "6.1.3"]


def test_failure_is_tried_again(cache, monkeypatch, capsys):
    tried = []
    monkeypatch.setattr(releases, "try_release", lambda version: tried.append(version) or [matrix.FAILED + "no g++", matrix.NOT_RUN])
    assert (releases.main(), releases.main(), len(tried)) == (1, 1, 4)
    assert capsys.readouterr().out.splitlines()[-1] == "releases: 2, done before: 0, failed: 4.2.8 6.1.3"


def test_release_without_a_source(cache, monkeypatch, capsys):
    monkeypatch.setenv("TORQUE_RELEASES", "4.2.8 4.2.9")
    assert releases.main() == 2
    assert capsys.readouterr().err == "releases.py: there is no source of 4.2.9 in %s\n" % (cache / "sources")
