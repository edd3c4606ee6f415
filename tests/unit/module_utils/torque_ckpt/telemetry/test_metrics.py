import json
import os
import pathlib
import syslog
import re
import threading
import time

import pytest
from paths import TOP

from torque_ckpt import errors
from torque_ckpt.telemetry import metrics

HELD = {"outcome": "held", "bytes": 1000, "seconds": 1.5, "frozen_seconds": 0.25, "job": "12.head",
        "phases": {"dump": 0.25, "publish": 1.0}}
FAILED = {"outcome": "failed", "code": errors.CANNOT_WRITE, "sentence": "no room", "job": "12.head", "phases": {}}


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "metrics").mkdir()
    return {"engine": "criu", "state_directory": str(tmp_path / "state"), "metrics_directory": str(tmp_path / "metrics")}


@pytest.fixture(autouse=True)
def as_root(monkeypatch):
    """Who runs the tests owns what root owns on a node."""
    if os.geteuid():
        pytest.skip("needs root: users count nothing")


@pytest.fixture
def lines(monkeypatch):
    """What went to the system log (list of str)."""
    logged = []
    monkeypatch.setattr(syslog, "syslog", logged.append)
    return logged


def text(settings):
    return pathlib.Path(settings["metrics_directory"], "ckpt_torque.prom").read_text()


def samples(written):
    """Parse Prometheus' text format strictly; return {name: {labels (tuple of pairs): value}}."""
    values, kinds = {}, {}
    assert written.endswith("\n")
    for line in written.splitlines():
        head = re.fullmatch(r"# (HELP|TYPE) ([a-z_]+) (.+)", line)
        if head:
            if head.group(1) == "TYPE":
                assert head.group(2) not in kinds and head.group(3) in ("counter", "gauge")
                kinds[head.group(2)] = head.group(3)
            continue
        sample = re.fullmatch(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\]|\\["\\n])*",?)*)\} ([0-9.e+-]+)', line)
        assert sample, line
        name, labels, value = sample.groups()
        assert name in kinds and (kinds[name] != "counter" or name.endswith("_total")), line
        key = tuple(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', labels))
        assert key not in values.setdefault(name, {}), line
        values[name][key] = float(value)
    return values


def test_counters_go_on_from_call_to_call(settings):
    for _time in range(3):
        assert metrics.count_call(settings, "checkpoint", HELD)
    metrics.count_call(settings, "checkpoint", dict(HELD, outcome="continued", frozen_seconds=0.5))
    values = samples(text(settings))
    engine = (("engine", "criu"),)
    assert values["ckpt_torque_checkpoints_total"] == {engine + (("outcome", "held"),): 3, engine + (("outcome", "continued"),): 1}
    assert values["ckpt_torque_written_bytes_total"] == {engine: 4000}
    assert values["ckpt_torque_checkpoint_seconds_total"] == {engine: 6}
    assert values["ckpt_torque_frozen_seconds_total"] == {engine: 1.25}
    assert values["ckpt_torque_frozen_seconds_last"] == {engine: 0.5}
    assert values["ckpt_torque_phase_seconds_total"] == {(("hook", "checkpoint"), ("phase", "dump")): 1,
                                                         (("hook", "checkpoint"), ("phase", "publish")): 4}
    assert abs(values["ckpt_torque_last_success_timestamp_seconds"][(("hook", "checkpoint"),)] - time.time()) < 60


def test_restarts_are_counted_by_themselves(settings):
    metrics.count_call(settings, "restart", {"outcome": "restarted", "bytes": 10, "seconds": 0.5, "phases": {"verify": 0.1}})
    values = samples(text(settings))
    assert values["ckpt_torque_restarts_total"] == {(("engine", "criu"), ("outcome", "restarted")): 1}
    assert values["ckpt_torque_restored_bytes_total"] == {(("engine", "criu"),): 10}
    assert "ckpt_torque_written_bytes_total" not in values


def test_every_exit_code_has_a_cause_of_its_own():
    codes = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int) and name != "LONGEST"}
    assert set(errors.CAUSES) == codes
    assert len(set(errors.CAUSES.values())) == len(codes)


@pytest.mark.parametrize("code, cause", [
    (errors.USAGE, "arguments"), (errors.DATA, "image_damaged"), (errors.NO_INPUT, "image_missing"), (errors.NO_USER, "account"),
    (errors.GONE, "job_not_here"), (errors.ENGINE, "engine"), (errors.SYSTEM, "system"), (errors.CANNOT_WRITE, "store"),
    (errors.TEMPORARY, "temporary"), (errors.REFUSED, "refused"), (errors.CONFIG, "configuration"), (99, "other")])
def test_failures_by_cause(settings, code, cause):
    metrics.count_call(settings, "restart", dict(FAILED, code=code))
    values = samples(text(settings))
    assert values["ckpt_torque_failures_total"] == {(("hook", "restart"), ("cause", cause)): 1}
    assert values["ckpt_torque_restarts_total"] == {(("engine", "criu"), ("outcome", "failed")): 1}
    assert "ckpt_torque_last_success_timestamp_seconds" not in values


def test_failure_with_a_cause_of_its_own(settings):
    for more in ({}, {"cause": "no_server"}):
        metrics.count_call(settings, "checkpoint", dict(FAILED, code=errors.NO_SERVER, **more))
    assert samples(text(settings))["ckpt_torque_failures_total"] == {
        (("hook", "checkpoint"), ("cause", cause)): 1 for cause in ("job_not_here", "no_server")}


def test_no_label_holds_a_job(settings):
    metrics.count_call(settings, "checkpoint", HELD)
    metrics.count_call(settings, "checkpoint", FAILED)
    assert "12.head" not in text(settings)


def test_last_failures_are_remembered_with_their_sentences(settings):
    for number in range(metrics.KEPT + 5):
        metrics.count_call(settings, "checkpoint", dict(FAILED, sentence="number %d" % number))
    failures = metrics.read_counters(settings).failures
    assert [entry["sentence"] for entry in failures] == ["number %d" % number for number in range(5, metrics.KEPT + 5)]
    assert sorted(failures[0]) == ["code", "hook", "job", "sentence", "time"]


def test_files_are_whole_readable_and_roots(settings):
    metrics.count_call(settings, "checkpoint", HELD)
    assert os.listdir(settings["metrics_directory"]) == ["ckpt_torque.prom"]
    assert os.stat(settings["metrics_directory"] + "/ckpt_torque.prom").st_mode & 0o777 == 0o644
    assert os.stat(settings["state_directory"] + "/metrics.json").st_mode & 0o777 == 0o600
    assert sorted(os.listdir(settings["state_directory"])) == ["metrics.json", "metrics.json.lock"]


def test_many_hooks_at_once_lose_no_count(settings):
    def work():
        for _time in range(20):
            assert metrics.count_call(settings, "checkpoint", HELD)
    children = []
    for _child in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    assert samples(text(settings))["ckpt_torque_checkpoints_total"] == {(("engine", "criu"), ("outcome", "held")): 80}


def test_readers_never_see_half_a_file(settings):
    metrics.count_call(settings, "checkpoint", HELD)
    over, seen = threading.Event(), []

    def read():
        while not over.is_set():
            seen.append(samples(text(settings)))
    reader = threading.Thread(target=read)
    reader.start()
    for _time in range(50):
        metrics.count_call(settings, "checkpoint", HELD)
    over.set()
    reader.join()
    assert seen and all("ckpt_torque_checkpoints_total" in values for values in seen)


def test_off_by_default(settings):
    settings["metrics_directory"] = ""
    assert metrics.count_call(settings, "checkpoint", HELD)
    assert os.listdir(settings["state_directory"])  # torque-ckpt status shows it all the same


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"series": 3}', '{"series": [["ckpt_torque_unknown", [], 1]]}'])
def test_state_that_is_not_ours_begins_anew(settings, broken):
    os.mkdir(settings["state_directory"])
    with open(settings["state_directory"] + "/metrics.json", "w") as stream:
        stream.write(broken)
    assert metrics.count_call(settings, "checkpoint", HELD)
    assert samples(text(settings))["ckpt_torque_checkpoints_total"] == {(("engine", "criu"), ("outcome", "held")): 1}


def test_directory_that_others_can_write(settings, lines):
    os.chmod(settings["metrics_directory"], 0o777)
    assert not metrics.count_call(settings, "checkpoint", HELD)
    assert os.listdir(settings["metrics_directory"]) == []
    assert lines == ["hook=metrics outcome=not counted reason=%s must be root's and writable by nobody else"
                     % settings["metrics_directory"]]


def test_directory_that_is_missing_is_made(settings):
    settings["metrics_directory"] += "/deep/er"
    mask = os.umask(0o077)  # the hooks'
    try:
        assert metrics.count_call(settings, "checkpoint", HELD)
    finally:
        os.umask(mask)
    for path in (settings["metrics_directory"], os.path.dirname(settings["metrics_directory"])):
        assert os.stat(path).st_mode & 0o777 == 0o755


def test_directory_that_is_none(settings, lines):
    open(settings["metrics_directory"] + "/file", "w").close()
    settings["metrics_directory"] += "/file"
    assert not metrics.count_call(settings, "checkpoint", HELD)
    assert lines == ["hook=metrics outcome=not counted reason=File exists"]


def test_lock_that_is_not_given_up(settings, lines, monkeypatch):
    import fcntl
    monkeypatch.setattr(metrics, "PATIENCE", 0)
    os.mkdir(settings["state_directory"])
    with open(settings["state_directory"] + "/metrics.json.lock", "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert not metrics.count_call(settings, "checkpoint", HELD)
    assert lines == ["hook=metrics outcome=not counted reason=another hook counts for more than 0 seconds"]


def test_full_disk_fails_no_hook(settings, lines, monkeypatch):
    def full(*_arguments, **_descriptors):
        raise OSError(28, "No space left on device")
    metrics.count_call(settings, "checkpoint", HELD)
    before = text(settings)
    monkeypatch.setattr(metrics.os, "rename", full)
    assert not metrics.count_call(settings, "checkpoint", HELD)
    assert text(settings) == before and os.listdir(settings["metrics_directory"]) == ["ckpt_torque.prom"]
    assert lines == ["hook=metrics outcome=not counted reason=No space left on device"]


def test_labels_are_escaped():
    counters = metrics.Counters()
    counters.add("ckpt_torque_frozen_seconds_last", ('a"b\\c\nd',), 0.5)
    assert counters.format_text().splitlines()[-1] == 'ckpt_torque_frozen_seconds_last{engine="a\\"b\\\\c\\nd"} 0.5'


def test_all_that_is_declared_can_be_written():
    counters = metrics.Counters()
    for name, (_kind, labels, _about) in metrics.METRICS.items():
        counters.add(name, ["x"] * len(labels), 2)
    assert set(samples(counters.format_text())) == set(metrics.METRICS)
    assert metrics.Counters(json.loads(json.dumps(counters.dump()))).format_text() == counters.format_text()


# The dashboard

DASHBOARD = TOP / "docs" / "grafana-dashboard.json"


def test_dashboard_asks_for_what_is_written_only():
    board = json.loads(DASHBOARD.read_text())
    asked = {}
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            for name in re.findall(r"\bckpt_torque_[a-z_]+", target["expr"]):
                assert name in metrics.METRICS, (panel["title"], name)
                asked.setdefault(name, set()).update(re.findall(r"by \(([a-z_, ]+)\)", target["expr"]))
    assert set(asked) == set(metrics.METRICS), "the dashboard leaves out %s" % sorted(set(metrics.METRICS) - set(asked))
    for name, groups in asked.items():
        labels = set(metrics.METRICS[name][1]) | {"instance"}
        for group in groups:
            assert set(group.split(", ")) <= labels, (name, group)
