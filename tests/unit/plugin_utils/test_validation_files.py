"""The files of a report: they can be read, nothing is written where nothing may be."""

import json
import os
import pwd
import re
from xml.etree import ElementTree

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.report import history, report, results
from ansible_collections.ckpt.torque.plugins.plugin_utils import validation_files
from ansible_collections.ckpt.torque.plugins.plugin_utils.validation_files import ReportError

CREATED = "2026-11-25T04:20:14Z"
RESULTS = [
    {"level": "L1", "nodes": ["node1"], "passed": True, "cause": "", "engine": {"name": "criu", "version": "4.2.1"},
     "counter_before": 57, "counter_after": 131, "exit_status": 7, "image_bytes": 2048, "phases": [{"step": "dump", "seconds": 0.25}]},
    {"level": "L2", "nodes": ["node1", "node2"], "passed": False, "cause": "node2: restart: \u00fc \x1b[31m<broken> & gone",
     "counters": [57], "phases": [{"step": "hold", "seconds": 1.5, "node": "node1"}]},
    {"level": "L3", "nodes": [], "passed": None, "cause": "no TORQUE source"},
]
REGISTERED = {"changed": False, "failed": False, "state": {"job_id": "5"}, "invocation": {"module_args": {"user": "alice"}}}
FILES = ["history.jsonl", "junit.xml", "report.html", "report.txt", "results.json"]


def good(**changed):
    return dict(RESULTS[0], **changed)


def write(directory, entries, nodes=(), check=False, suite="site", created=CREATED, version="0.2.0"):
    document = validation_files.build_document(entries, list(nodes), created, version)
    return validation_files.write_report(document, str(directory), suite, check)


def read(directory, name):
    return (directory / name).read_text(encoding="utf-8")


def test_files(tmp_path):
    directory = tmp_path / "new" / "report"
    answer = write(directory, [dict(result, **REGISTERED) for result in RESULTS],
                   [{"name": "node1", "class": 1}, {"name": "node2", "class": 1}])
    assert sorted(os.listdir(directory)) == FILES
    assert answer["files"] == [str(directory / name) for name in FILES[1:]]
    assert (answer["changed"], answer["warnings"]) == (True, [])
    verdict = "1 of 2 nodes cannot checkpoint and restart jobs: node2."
    assert answer["table"] == verdict + "\n" + report.table(RESULTS)
    summary = {"passed": False, "levels": {"L0": "not run", "L1": "passed", "L2": "FAILED", "L3": "not run"}, "verdict": verdict,
               "failures": ["L2 (node1 > node2): " + RESULTS[1]["cause"]]}
    assert {key: answer[key] for key in summary} == summary

    document = json.loads(read(directory, "results.json"))
    assert results.find_fault(document, results.DOCUMENT) == ""
    states = {"L0": "unproven", "L1": "passed", "L2": "unproven", "L3": "unproven", "outcome": "unproven", "name": "node1", "class": 1,
              "engine": "criu 4.2.1"}
    assert document == dict(summary, schema=1, created=CREATED, collection="0.2.0", results=RESULTS, images=[], nodes=[
        states, dict(states, name="node2", L1="unproven", L2="failed", outcome="failed", engine="-")])

    root = ElementTree.parse(directory / "junit.xml").getroot()
    assert (root.get("name"), root.get("tests"), root.get("failures"), root.get("skipped")) == ("site", "3", "1", "1")
    assert root[1].find("failure").get("message") == "node2: restart: \u00fc ?[31m<broken> & gone"
    assert read(directory, "report.txt") == "%s\n%s\n%s\n" % (CREATED, verdict, report.table(RESULTS))
    assert "&lt;broken&gt; &amp; gone" in read(directory, "report.html")
    run = json.loads(read(directory, "history.jsonl"))
    assert history.find_fault(run) == "" and run["nodes"]["node2"]["outcome"] == "failed"


def test_page_is_text_whatever_the_names_are(tmp_path):
    hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    facts = {"engine": {"name": hostile, "version": hostile}, "phases": [{"step": hostile, "node": hostile, "seconds": 1}], "case": hostile,
             "compression": hostile}
    entries = [dict(facts, level=level, nodes=[hostile], passed=passed, cause=hostile) for level in ("L1", "L2", "L3")
               for passed in (True, False, None)]
    write(tmp_path, entries, [{"name": hostile, "class": 1, "store": hostile, "kernel": hostile}], version=hostile)
    page = read(tmp_path, "report.html")
    assert page.count("&lt;script&gt;alert(1)") > 20
    assert re.findall(r"<(?:script|img)", page) == []
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in page
    assert re.findall(r"(?:src|href)=\"(?!results\.json|junit\.xml|report\.txt|history\.jsonl)", page) == []


def test_page_of_many_nodes(tmp_path):
    names = ["node%03d" % number for number in range(500)]
    write(tmp_path, [good(nodes=[name]) for name in names], [{"name": name, "class": 1} for name in names])
    page = read(tmp_path, "report.html")
    assert len(re.findall('<th scope="row" title="node', page)) == 500
    assert len(page) < 500000


def test_page_of_a_sample(tmp_path):
    """Nodes that were left out are one sentence, and no round trips of which there are further ones."""
    names = ["node%d" % number for number in range(1, 41)]
    rows = [{"level": level, "nodes": [name], "passed": None, "cause": "not proven: left out by validate_sample"}
            for level in ("L2", "L3") for name in names[1:-1]]
    results = [good(nodes=[name]) for name in names] + [good(level=level, nodes=[names[0], names[-1]]) for level in ("L2", "L3")] + rows
    document = validation_files.build_document(results, [{"name": name, "class": 1} for name in names], CREATED, "0.2.0")
    assert document["verdict"] == ("2 of 40 nodes can checkpoint and restart jobs; not proven for "
                                   "node2, node3, node4, node5, node6, node7, node8, node9, node10, node11 and 28 others.")
    assert [(node["L1"], node["L2"], node["L3"], node["outcome"]) for node in document["nodes"][:2]] == [
        ("passed", "passed", "passed", "passed"), ("passed", "unproven", "unproven", "unproven")]
    assert (document["passed"], document["levels"]) == (True, {"L0": "not run", "L1": "passed", "L2": "not run", "L3": "not run"})
    write(tmp_path, results, document["nodes"])
    page = read(tmp_path, "report.html")
    assert page.count("not proven: left out by validate_sample") == 2
    assert "further round trips" not in page


def test_history_grows_and_names_what_changed(tmp_path):
    write(tmp_path, [good(engine={"name": "criu", "version": "4.1"})], created="2026-11-23T00:00:00Z")
    for day in (24, 25):
        write(tmp_path, [good(passed=False, cause="node1: broken")], created="2026-11-%dT00:00:00Z" % day, version="0.3.0")
    assert len(read(tmp_path, "history.jsonl").splitlines()) == 3
    assert ("<b>node1</b>: stopped passing since 2026-11-24T00:00:00Z; passed last 2026-11-23T00:00:00Z; what changed: "
            "collection 0.2.0 -&gt; 0.3.0, engine criu 4.1 -&gt; criu 4.2.1</p>") in read(tmp_path, "report.html")


def test_line_of_the_history_that_is_broken(tmp_path):
    write(tmp_path, [good()])
    with open(tmp_path / "history.jsonl", "a") as stream:
        stream.write('{"schema":1}\n{"sch')
    answer = write(tmp_path, [good()])
    path = tmp_path / "history.jsonl"
    assert answer["warnings"] == ["%s: line 2: time is missing; it was left out" % path,
                                  "%s: line 3: it is not JSON; it was left out" % path]
    assert "2 lines of history.jsonl could not be read and were left out" in read(tmp_path, "report.html")
    lines = path.read_text().splitlines()
    assert lines[1:3] == ['{"schema":1}', '{"sch'] and history.find_fault(json.loads(lines[3])) == ""


def test_later_report_replaces_the_earlier_one(tmp_path):
    (tmp_path / "beside").write_text("the site's own\n")
    for number in (3, 1):
        answer = write(tmp_path, RESULTS[:number])
        assert answer["passed"] is (number == 1)
        assert len(json.loads(read(tmp_path, "results.json"))["results"]) == number
    assert sorted(os.listdir(tmp_path)) == ["beside"] + FILES
    assert (tmp_path / "beside").read_text() == "the site's own\n"


@pytest.mark.parametrize("entries, why", [([], "no round trip was run"), ([RESULTS[2]], "no TORQUE source")], ids=["none", "not run"])
def test_nothing_that_was_run_has_not_passed(tmp_path, entries, why):
    answer = write(tmp_path, entries)
    assert (answer["passed"], answer["failures"], answer["verdict"]) == (False, [], "Nothing was proven: %s." % why)
    assert answer["levels"] == {"L0": "not run", "L1": "not run", "L2": "not run", "L3": "not run"}
    assert json.loads(read(tmp_path, "results.json"))["passed"] is False
    assert ElementTree.parse(tmp_path / "junit.xml").getroot().get("tests") == str(len(entries))


def test_check_mode_writes_nothing(tmp_path):
    planned = write(tmp_path / "report", RESULTS, check=True)
    assert os.listdir(tmp_path) == []
    assert planned["changed"] is False
    assert dict(planned, changed=True) == write(tmp_path / "report", RESULTS)


@pytest.mark.parametrize("entries, what", [
    ([{"msg": "failed", "failed": True}], "result 1 cannot be reported (level is missing)"),
    ([good(), {"level": "L1", "passed": True, "cause": ""}], "result 2 cannot be reported (nodes is missing)"),
    ([good(), good(), good(level="L4")], "result 3 cannot be reported (level is not one of L0, L1, L2, L3)"),
    ([good(passed="yes")], "result 1 cannot be reported (passed is not true, false or null)"),
    ([good(cause=None)], "result 1 cannot be reported (cause is not a text)"),
    ([good(nodes=None)], "result 1 cannot be reported (nodes is not a list)"),
    ([good(nodes=[1])], "result 1 cannot be reported (nodes[0] is not a text)"),
    ([good(engine=None)], "result 1 cannot be reported (engine is not an object)"),
    ([good(engine={"name": None})], "result 1 cannot be reported (engine.name is not a text)"),
    ([good(phases=[{"step": "dump"}])], "result 1 cannot be reported (phases[0].seconds is missing)"),
    ([good(case=1)], "result 1 cannot be reported (case is not a text)"),
    ([good(image_bytes="many")], "result 1 cannot be reported (image_bytes is not a whole number or null)"),
])
def test_what_is_no_result(tmp_path, entries, what):
    with pytest.raises(ReportError) as caught:
        write(tmp_path / "report", entries)
    assert str(caught.value) == what + ("; pass what the round-trip modules, validation_nodes and validation_images returned; nothing was "
                                        "written")
    assert os.listdir(tmp_path) == []


def test_what_is_no_node():
    with pytest.raises(ReportError, match=r"^node 1 cannot be reported \(name is missing\); "):
        validation_files.build_document([], [{"class": 1}], CREATED, "0.2.0")


def test_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("the site's own\n")
    for directory, why in ((tmp_path / "file" / "report", "Not a directory"), (tmp_path / "file", "File exists")):
        with pytest.raises(ReportError) as caught:
            write(directory, RESULTS)
        assert str(caught.value) == "cannot write the report to %s: %s; name another directory" % (directory, why)
    assert (tmp_path / "file").read_text() == "the site's own\n"


@pytest.mark.root
def test_directory_that_cannot_be_written(public_directory, nobody):
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(pwd.getpwnam(nobody.pw_name).pw_gid)
        os.setuid(nobody.pw_uid)
        try:
            write(public_directory, RESULTS)
        except ReportError as error:
            os._exit(0 if str(error).endswith(": Permission denied; name another directory") else 1)
        os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.listdir(public_directory) == []


@pytest.mark.parametrize("name", FILES)
def test_report_that_cannot_be_whole_is_not_written_in_part(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ReportError):
        write(tmp_path, RESULTS)
    assert os.listdir(tmp_path) == [name]
