"""render: the same results as a table, a summary and JUnit XML."""

from xml.etree import ElementTree

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.report import report

PASSED = {
    "level": "L1", "nodes": ["node1"], "passed": True, "cause": "", "engine": {"name": "criu", "version": "4.2.1"},
    "counter_before": 57, "counter_after": 131, "exit_status": 7, "image_bytes": 9856614,
    "phases": [{"step": "dump", "seconds": 0.25}, {"step": "restore", "seconds": 0.5}],
}
FAILED = {
    "level": "L2", "nodes": ["node1", "node2"], "passed": False, "cause": "node2: restart: <broken> & \"gone\"",
    "counters": [57, 131, 200], "image_bytes": 2048, "phases": [{"step": "hold", "seconds": 1.5, "node": "node1"}],
    "engine": {"name": "criu", "version": "4.2.1"},
}
NOT_RUN = {"level": "L3", "nodes": [], "passed": None, "cause": "no TORQUE source"}


def result(level="L1", passed=True, cause="", nodes=("node1",), **facts):
    return dict(facts, level=level, nodes=list(nodes), passed=passed, cause=cause)


def parsed(results, suite="site"):
    return ElementTree.fromstring(report.junit(results, suite).encode("utf-8"))


def test_table():
    assert report.table([PASSED, FAILED, NOT_RUN]).splitlines() == [
        "LEVEL      RESULT   NODES          ENGINE      COUNTER         EXIT  IMAGE    SECONDS",
        "L1 engine  passed   node1          criu 4.2.1  57 > 131        7     9.4 MiB  0.75",
        "L2 hooks   FAILED   node1 > node2  criu 4.2.1  57 > 131 > 200  -     2.0 KiB  1.50",
        "L3 job     not run  -              -           -               -     -        0.00",
        "L2 FAILED: node1 > node2: node2: restart: <broken> & \"gone\"",
        "L3 not run: -: no TORQUE source",
    ]


def test_table_of_jobs():
    """Level L3 as job_roundtrip returns it; what only it has does not disturb."""
    moved = {
        "level": "L3", "nodes": ["node1", "node2", "node2"], "passed": True, "cause": "", "job_id": "12.head", "torque": "6.1.3",
        "counters": [35, 71, 108, 144], "exit_status": 7, "output_lines": 145, "walltime": 9, "image_bytes": 471859, "compression": "zstd",
        "engine": {"name": "criu", "version": "4.2.1"}, "comments": ["Job 12.head was checkpointed", "", ""],
        "phases": [{"step": "submit", "node": "node1", "seconds": 1.25, "counter": 11}, {"step": "hold", "node": "node1", "seconds": 0.5}],
    }
    lost = {"level": "L3", "nodes": ["node1", "node2"], "passed": False, "job_id": "13.head", "counters": [], "comments": [], "phases": [],
            "cause": "node1: submit: job 13.head is in state Q, not R, after 120 seconds; its comment: none"}
    assert report.table([moved, lost]).splitlines() == [
        "LEVEL   RESULT  NODES                  ENGINE      COUNTER              EXIT  IMAGE           SECONDS",
        "L3 job  passed  node1 > node2 > node2  criu 4.2.1  35 > 71 > 108 > 144  7     460.8 KiB zstd  1.75",
        "L3 job  FAILED  node1 > node2          -           -                    -     -               0.00",
        "L3 FAILED: node1 > node2: " + lost["cause"],
    ]
    assert report.summary([moved, lost]) == {"passed": False, "levels": {"L0": "not run", "L1": "not run", "L2": "not run", "L3": "FAILED"},
                                             "failures": ["L3 (node1 > node2): " + lost["cause"]]}
    assert [case.attrib["classname"] for case in parsed([moved, lost])] == ["site.L3", "site.L3"]


def test_case_of_a_job_is_named():
    """The usual one is not."""
    usual, lost = result("L3", case="continue"), result("L3", False, "late", case="failed_hold")
    assert report.table([usual, lost]).splitlines()[1:] == [
        "L3 job              passed  node1  -       -        -     -      0.00",
        "L3 job failed_hold  FAILED  node1  -       -        -     -      0.00",
        "L3 failed_hold FAILED: node1: late",
    ]
    assert report.summary([usual, lost])["failures"] == ["L3 failed_hold (node1): late"]
    assert [case.attrib["name"] for case in parsed([usual, lost])] == ["node1", "node1 failed_hold"]


def test_table_columns_are_aligned():
    lines = report.table([PASSED, FAILED, NOT_RUN]).splitlines()[:4]
    head = ("LEVEL", "RESULT", "NODES", "ENGINE", "COUNTER", "EXIT", "IMAGE", "SECONDS")
    for column in head:
        start = lines[0].index(column)
        for line in lines:
            assert line[start] != " " and (start == 0 or line[start - 2:start] == "  "), (column, line)
    assert not any(line.endswith(" ") for line in lines)


def test_table_of_nothing():
    assert report.table([]) == "LEVEL  RESULT  NODES  ENGINE  COUNTER  EXIT  IMAGE  SECONDS"


def test_exit_status_zero_is_shown():
    assert report.table([result(exit_status=0)]).splitlines()[1].split()[-3:] == ["0", "-", "0.00"]


@pytest.mark.parametrize("facts, text", [
    ({}, "-"),
    ({"counters": []}, "-"),
    ({"counters": [57]}, "57"),
    ({"counters": [57, 131, 200]}, "57 > 131 > 200"),
    ({"counter_before": 57}, "57"),
    ({"counter_before": 57, "counter_after": 131}, "57 > 131"),
    ({"counter_before": 0, "counter_after": 5}, "0 > 5"),
    ({"counters": [], "counter_before": 1, "counter_after": 2}, "1 > 2"),
])
def test_counters(facts, text):
    assert report.counters(result(**facts)) == text


@pytest.mark.parametrize("facts, text", [
    ({}, "-"), ({"engine": {}}, "-"), ({"engine": {"name": "criu"}}, "criu"),
    ({"engine": {"name": "criu", "version": "4.2.1"}}, "criu 4.2.1"),
])
def test_engine(facts, text):
    assert report.engine(result(**facts)) == text


@pytest.mark.parametrize("facts, total", [
    ({}, 0), ({"phases": None}, 0), ({"phases": []}, 0), ({"phases": [{"seconds": 0.25}, {"seconds": 1.5}]}, 1.75),
])
def test_seconds(facts, total):
    assert report.seconds(result(**facts)) == total


@pytest.mark.parametrize("nodes, text", [([], "-"), (["node1"], "node1"), (["node1", "node2", "node1"], "node1 > node2 > node1")])
def test_name(nodes, text):
    assert report.name(result(nodes=nodes)) == text


@pytest.mark.parametrize("passed, text", [(True, "passed"), (False, "FAILED"), (None, "not run")])
def test_verdict(passed, text):
    assert report.verdict(result(passed=passed)) == text


# name, results as (level, passed, cause), passed, levels L1 to L3, failures
SUMMARIES = [
    ("nothing", [], False, ("not run", "not run", "not run"), []),
    ("only not run", [("L1", None, "check mode"), ("L2", None, "check mode")], False, ("not run", "not run", "not run"), []),
    ("one passed", [("L1", True, "")], True, ("passed", "not run", "not run"), []),
    ("all passed", [("L1", True, ""), ("L2", True, ""), ("L3", True, "")], True, ("passed", "passed", "passed"), []),
    ("one level not run", [("L1", True, ""), ("L3", None, "no TORQUE")], True, ("passed", "not run", "not run"), []),
    ("half a level not run", [("L1", True, ""), ("L1", None, "no node")], True, ("not run", "not run", "not run"), []),
    ("one failed", [("L1", True, ""), ("L2", False, "broken")], False, ("passed", "FAILED", "not run"), ["L2 (node1): broken"]),
    ("failed wins", [("L1", True, ""), ("L1", None, "no node"), ("L1", False, "one"), ("L1", False, "two")], False,
     ("FAILED", "not run", "not run"), ["L1 (node1): one", "L1 (node1): two"]),
    ("only looked at", [("L0", True, "")], False, ("not run", "not run", "not run"), []),
    ("failed without a cause", [("L3", False, "")], False, ("not run", "not run", "FAILED"), ["L3 (node1): "]),
]


@pytest.mark.parametrize("given, passed, levels, failures", [case[1:] for case in SUMMARIES], ids=[case[0] for case in SUMMARIES])
def test_summary(given, passed, levels, failures):
    summary = report.summary([result(level, verdict, cause) for level, verdict, cause in given])
    looked = "passed" if given and given[0][0] == "L0" else "not run"
    assert summary == {"passed": passed, "levels": dict(zip(("L1", "L2", "L3"), levels), L0=looked), "failures": failures}


def test_junit():
    root = parsed([PASSED, FAILED, NOT_RUN])
    assert root.tag == "testsuite"
    assert root.attrib == {"name": "site", "tests": "3", "errors": "0", "failures": "1", "skipped": "1", "time": "2.250"}
    assert [case.attrib for case in root] == [
        {"classname": "site.L1", "name": "node1", "time": "0.750"},
        {"classname": "site.L2", "name": "node1 > node2", "time": "1.500"},
        {"classname": "site.L3", "name": "-", "time": "0.000"},
    ]
    assert [[(child.tag, child.attrib) for child in case] for case in root] == [
        [("system-out", {})],
        [("failure", {"message": FAILED["cause"]}), ("system-out", {})],
        [("skipped", {"message": "no TORQUE source"}), ("system-out", {})],
    ]
    assert [case.find("system-out").text for case in root] == [report.table([one]) for one in (PASSED, FAILED, NOT_RUN)]


def test_junit_begins_with_its_encoding():
    text = report.junit([PASSED], "site")
    assert text.startswith('<?xml version="1.0" encoding="utf-8"?>\n<testsuite ')
    assert text.endswith("</testsuite>\n")


def test_junit_of_nothing():
    root = parsed([])
    assert root.attrib == {"name": "site", "tests": "0", "errors": "0", "failures": "0", "skipped": "0", "time": "0.000"}
    assert len(root) == 0


def test_junit_of_what_was_not_run():
    root = parsed([NOT_RUN, dict(NOT_RUN, level="L2")])
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("2", "0", "2")
    assert [[child.tag for child in case] for case in root] == [["skipped", "system-out"]] * 2


@pytest.mark.parametrize("passed, tag", [(False, "failure"), (None, "skipped")])
def test_junit_control_characters(passed, tag):
    """Whatever a program printed last, the file can be read; only what XML cannot hold is replaced."""
    controls = "".join(map(chr, range(32)))
    root = parsed([result(passed=passed, cause="a" + controls + "z \u00fc\u2713\U0001f600 \x7f")])
    wanted = "a?????????\t\n?????????????????????z \u00fc\u2713\U0001f600 \x7f"
    assert root[0].find(tag).get("message") == wanted
    assert root[0].find("system-out").text.endswith(wanted)


@pytest.mark.parametrize("character", ["\ud800", "\ufffe", "\uffff"], ids=ascii)
def test_junit_other_characters_that_xml_cannot_hold(character):
    assert parsed([result(passed=False, cause="a%sz" % character)])[0].find("failure").get("message") == "a?z"


def test_junit_control_characters_in_names():
    root = parsed([result(nodes=["node\x01"])], "site\x02")
    assert (root.get("name"), root[0].get("name")) == ("site?", "node?")


def test_printable():
    assert report.make_printable("tab\t line\n bell\x07 return\r") == "tab\t line\n bell? return?"
