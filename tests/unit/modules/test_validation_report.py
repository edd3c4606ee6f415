"""validation_report: files that can be read, nothing written where nothing may be."""

import json
import os
import re
from xml.etree import ElementTree

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.validation import report

RESULTS = [
    {"level": "L1", "nodes": ["node1"], "passed": True, "cause": "", "engine": {"name": "criu", "version": "4.2.1"},
     "counter_before": 57, "counter_after": 131, "exit_status": 7, "image_bytes": 2048, "phases": [{"step": "dump", "seconds": 0.25}]},
    {"level": "L2", "nodes": ["node1", "node2"], "passed": False, "cause": "node2: restart: \u00fc \x1b[31m<broken> & gone",
     "counters": [57], "phases": [{"step": "hold", "seconds": 1.5, "node": "node1"}]},
    {"level": "L3", "nodes": [], "passed": None, "cause": "no TORQUE source"},
]
REGISTERED = {"changed": False, "failed": False, "state": {"job_id": "5"}, "invocation": {"module_args": {"user": "alice"}}}
FILES = ["validation.json", "validation.txt", "validation.xml"]


def good(**changed):
    return dict(RESULTS[0], **changed)


def test_files(module, tmp_path):
    directory = tmp_path / "new" / "report"
    answer = module("validation_report", {"results": [dict(result, **REGISTERED) for result in RESULTS], "directory": str(directory),
                                          "name": "site"})
    assert sorted(os.listdir(directory)) == FILES
    assert answer["files"] == [str(directory / name) for name in FILES]
    assert answer["changed"] is True
    assert answer["table"] == report.table(RESULTS)
    summary = {"passed": False, "levels": {"L1": "passed", "L2": "FAILED", "L3": "not run"},
               "failures": ["L2 (node1 > node2): " + RESULTS[1]["cause"]]}
    assert {key: answer[key] for key in summary} == summary

    document = json.loads((directory / "validation.json").read_text(encoding="utf-8"))
    created = document.pop("created")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", created)
    assert document == dict(summary, results=RESULTS)  # without what registering added

    root = ElementTree.parse(directory / "validation.xml").getroot()
    assert (root.get("name"), root.get("tests"), root.get("failures"), root.get("skipped")) == ("site", "3", "1", "1")
    assert root[1].find("failure").get("message") == "node2: restart: \u00fc ?[31m<broken> & gone"

    assert (directory / "validation.txt").read_text(encoding="utf-8") == "%s\n%s\n" % (created, report.table(RESULTS))


def test_suite_has_a_name_of_its_own(module, tmp_path):
    module("validation_report", {"results": RESULTS, "directory": str(tmp_path)})
    root = ElementTree.parse(tmp_path / "validation.xml").getroot()
    assert (root.get("name"), root[0].get("classname")) == ("ckpt.torque", "ckpt.torque.L1")


def test_later_report_replaces_the_earlier_one(module, tmp_path):
    (tmp_path / "beside").write_text("the site's own\n")
    for number in (3, 1):
        answer = module("validation_report", {"results": RESULTS[:number], "directory": str(tmp_path)})
        assert answer["passed"] is (number == 1)
        assert len(json.loads((tmp_path / "validation.json").read_text())["results"]) == number
    assert sorted(os.listdir(tmp_path)) == ["beside"] + FILES
    assert (tmp_path / "beside").read_text() == "the site's own\n"


@pytest.mark.parametrize("results", [[], [RESULTS[2]]], ids=["none", "not run"])
def test_nothing_that_was_run_has_not_passed(module, tmp_path, results):
    answer = module("validation_report", {"results": results, "directory": str(tmp_path)})
    assert (answer["passed"], answer["failures"]) == (False, [])
    assert answer["levels"] == {"L1": "not run", "L2": "not run", "L3": "not run"}
    assert json.loads((tmp_path / "validation.json").read_text())["passed"] is False
    assert ElementTree.parse(tmp_path / "validation.xml").getroot().get("tests") == str(len(results))


def test_check_mode_writes_nothing(module, tmp_path):
    directory = tmp_path / "report"
    arguments = {"results": RESULTS, "directory": str(directory)}
    planned = module("validation_report", arguments, check=True)
    assert os.listdir(tmp_path) == []
    assert planned["changed"] is False
    answer = module("validation_report", arguments)
    assert dict(planned, changed=True) == answer


@pytest.mark.parametrize("results, what", [
    ([{"msg": "failed", "failed": True}], "result 1 is not a round trip's (no level, nodes, passed, cause)"),
    ([good(), {"level": "L1", "passed": True, "cause": ""}], "result 2 is not a round trip's (no nodes)"),
    ([good(level="L4")], "result 1 is not a round trip's (level L4)"),
    ([good(), good(), good(level="")], "result 3 is not a round trip's (level )"),
    ([good(level=None)], "result 1 is not a round trip's (level None)"),
], ids=["no result", "no nodes", "other level", "empty level", "no level"])
@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
def test_what_is_no_result(module, tmp_path, results, what, check):
    answer = module("validation_report", {"results": results, "directory": str(tmp_path / "report")}, check=check)
    assert answer["failed"] is True
    assert answer["msg"] == what + "; pass what the round-trip modules returned; nothing was written"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("changed", [{"passed": "yes"}, {"passed": False, "cause": None}, {"nodes": None}, {"nodes": [1]}, {"engine": None},
                                     {"engine": {"name": None}}, {"phases": [{"step": "dump"}]}, {"case": 1}], ids=str)
def test_values_that_are_no_results(module, tmp_path, changed):
    answer = module("validation_report", {"results": [good(**changed)], "directory": str(tmp_path / "report")})
    assert answer["failed"] is True
    assert answer["msg"].startswith("result 1 is not a round trip's (")
    assert os.listdir(tmp_path) == []


def test_directory_that_cannot_be_made(module, tmp_path):
    (tmp_path / "file").write_text("the site's own\n")
    for directory, why in ((tmp_path / "file" / "report", "Not a directory"), (tmp_path / "file", "File exists")):
        answer = module("validation_report", {"results": RESULTS, "directory": str(directory)})
        assert answer["failed"] is True
        assert answer["msg"] == "cannot write the report to %s: %s; name another directory" % (directory, why)
    assert (tmp_path / "file").read_text() == "the site's own\n"


@pytest.mark.root
def test_directory_that_cannot_be_written(module, public_directory, nobody, everyones_python):
    answer = module("validation_report", {"results": RESULTS, "directory": str(public_directory)}, python=everyones_python, user=nobody)
    assert answer["failed"] is True
    assert answer["msg"] == "cannot write the report to %s: Permission denied; name another directory" % public_directory
    assert os.listdir(public_directory) == []


def test_report_that_cannot_be_whole_is_not_written_in_part(module, tmp_path):
    (tmp_path / "validation.xml").mkdir()
    assert module("validation_report", {"results": RESULTS, "directory": str(tmp_path)})["failed"] is True
    assert os.listdir(tmp_path) == ["validation.xml"]
