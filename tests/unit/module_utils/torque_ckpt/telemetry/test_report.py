import contextlib
import os
import re
import syslog as system_log

import pytest

from torque_ckpt import errors, phases
from torque_ckpt.errors import HookError
from torque_ckpt.system import privilege
from torque_ckpt.telemetry import metrics, report, syslog
from torque_ckpt.torque import contract

NODE = os.uname().nodename


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Nothing measured, nothing to count with."""
    monkeypatch.setattr(phases, "_spent", {})
    monkeypatch.setattr(phases, "_failed", [])


@pytest.fixture
def lines(monkeypatch):
    """What went to the system log (list of str); it is kept out of the machine's own."""
    logged = []
    monkeypatch.setattr(system_log, "syslog", logged.append)
    return logged


def raising(error):
    def work():
        raise error
    return work


def guard(hook, work, job_id=None):
    """Do work() under a Report; return the exit code."""
    with report.Report(hook, job_id) as reporting:
        work()
    return reporting.code


def test_report_of_work_that_succeeds(lines, capsys):
    assert guard("run", lambda: None) == 0
    assert capsys.readouterr() == ("", "")
    assert lines == []


@pytest.mark.parametrize("code", [errors.USAGE, errors.DATA, errors.TEMPORARY, errors.CONFIG])
def test_report_says_a_failure_in_one_sentence_and_returns_its_code(lines, capsys, code):
    assert guard("checkpoint", raising(HookError(code, "it failed; nothing was done")), "12.head") == code
    assert capsys.readouterr() == ("", "it failed; nothing was done\n")
    assert lines == ["hook=checkpoint code=%d job=12.head node=%s outcome=failed sentence='it failed; nothing was done'" % (code, NODE)]


def test_report_makes_one_line_of_many(lines, capsys):
    guard("restart", raising(HookError(errors.ENGINE, " one\ntwo\r\n\tthree  four\n")), "12.head")
    assert capsys.readouterr() == ("", "one two three four\n")
    assert lines == ["hook=restart code=70 job=12.head node=%s outcome=failed sentence='one two three four'" % NODE]


def test_report_lets_no_control_character_into_the_comment(lines, capsys):
    guard("checkpoint", raising(HookError(errors.REFUSED, "its name is \x1b]2;owned\x07 \u00e9 \u202e!")), "12.head")
    assert capsys.readouterr().err == "its name is \\x1b]2;owned\\x07 \u00e9 \\u202e!\n"


def test_report_without_a_job(lines, capsys):
    guard("run", raising(HookError(errors.USAGE, "no")))
    assert lines == ["hook=run code=64 job=None node=%s outcome=failed sentence='no'" % NODE]


def test_report_tells_where_an_unexpected_error_came_from(lines, capsys):
    def deeper():
        raise ValueError("too bad")

    def work():
        deeper()
    assert guard("run", work) == errors.SYSTEM == 71
    assert capsys.readouterr() == (
        "", "unexpected ValueError: too bad (line %d of test_report.py)\n" % (deeper.__code__.co_firstlineno + 1))
    assert lines == ["hook=run code=71 job=None node=%s outcome=failed "
                     "sentence='unexpected ValueError: too bad (line %d of test_report.py)'" % (NODE, deeper.__code__.co_firstlineno + 1)]


def test_report_takes_an_error_of_the_system_as_unexpected(lines, capsys):
    def work():
        os.mkdir("/")
    assert guard("run", work) == errors.SYSTEM
    assert capsys.readouterr() == (
        "", "unexpected FileExistsError: [Errno 17] File exists: '/' (line %d of test_report.py)\n" % (work.__code__.co_firstlineno + 1))


def test_report_does_not_format_the_error_again(lines, capsys):
    guard("run", raising(HookError(errors.ENGINE, "100% %s %d")))
    assert capsys.readouterr().err == "100% %s %d\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_report_lets_the_end_of_the_program_pass(lines, error):
    with pytest.raises(error):
        guard("run", raising(error()))


def test_success_that_cannot_be_counted_is_one(lines, monkeypatch):
    """Its metrics may be those of hooks that were installed meanwhile."""
    monkeypatch.delattr(metrics, "count_call")
    with report.Report("checkpoint", "12.head") as reporting:
        reporting.settings = {"engine": "criu"}
        reporting.log_success(outcome="held")
    assert reporting.code == 0
    assert lines == ["hook=checkpoint job=12.head node=%s outcome=held" % NODE,
                     "hook=metrics outcome=not counted reason=module 'torque_ckpt.telemetry.metrics' has no attribute 'count_call'"]


def test_log_is_one_line_of_facts_in_order(lines):
    syslog.log_event("checkpoint", job="12.head", bytes=7, seconds=0.5, outcome="held", engine="criu")
    assert lines == ["hook=checkpoint bytes=7 engine=criu job=12.head outcome=held seconds=0.5"]


def test_log_goes_to_the_daemons_log_under_our_name(lines, monkeypatch):
    opened = []
    monkeypatch.setattr(system_log, "openlog", lambda *arguments: opened.append((arguments, list(lines))))
    syslog.log_event("run", outcome="started")
    assert opened == [(("ckpt-torque", system_log.LOG_PID, system_log.LOG_DAEMON), [])]


def test_the_codes_are_those_of_sysexits():
    assert (errors.USAGE, errors.DATA, errors.NO_INPUT, errors.NO_USER, errors.GONE, errors.ENGINE, errors.SYSTEM, errors.CANNOT_WRITE,
            errors.TEMPORARY, errors.REFUSED, errors.CONFIG) == (64, 65, 66, 67, 69, 70, 71, 73, 75, 77, 78)


def test_log_never_raises():
    syslog.log_event("restart", origin="\udcff")


def test_report_survives_a_job_id_that_is_no_text(hook):
    assert hook("checkpoint", ["1", b"\xff"]).code == errors.USAGE


def test_log_cannot_be_forged(monkeypatch):
    lines = []
    monkeypatch.setattr(system_log, "syslog", lines.append)
    syslog.log_event("restart", origin="n1\nhook=restart outcome=restarted")
    assert lines == ["hook=restart origin=n1\\nhook=restart outcome=restarted"]


# What pbs_mom is told of a restart

@pytest.mark.parametrize("code, temporary", [
    (errors.USAGE, False), (errors.DATA, False), (errors.NO_INPUT, False), (errors.NO_USER, False), (errors.GONE, False),
    (errors.ENGINE, False), (errors.SYSTEM, False), (errors.CANNOT_WRITE, False), (errors.TEMPORARY, True), (errors.REFUSED, False),
    (errors.CONFIG, True)])
def test_verdict(code, temporary):
    assert errors.is_temporary(code) == temporary
    assert report.format_verdict(code, "why") == "%s failure of the restart: why" % ("Temporary" if temporary else "Permanent")


def test_report_keeps_the_sentence(lines, capsys):
    with report.Report("restart", "12.head") as reporting:
        raise HookError(errors.DATA, "one\ntwo")
    assert (reporting.code, reporting.sentence) == (errors.DATA, "one two")


def test_told_and_taken_back(monkeypatch, tmp_path):
    monkeypatch.setenv(contract.STATUS, str(tmp_path / "12.head.RS"))
    report.report_restart_failure(errors.SYSTEM, "a long first sentence")
    report.report_restart_failure(errors.TEMPORARY, "why")
    assert (tmp_path / "12.head.RS").read_text() == "Temporary failure of the restart: why\n"
    for _again in range(2):
        report.withdraw_restart_failure()
        assert list(tmp_path.iterdir()) == []


def test_told_through_no_link(monkeypatch, tmp_path, lines):
    (tmp_path / "12.head.RS").symlink_to(tmp_path / "other")
    monkeypatch.setenv(contract.STATUS, str(tmp_path / "12.head.RS"))
    report.report_restart_failure(errors.SYSTEM, "why")
    assert not (tmp_path / "other").exists()
    assert lines == ["hook=restart outcome=not reported path=%s reason=Too many levels of symbolic links" % (tmp_path / "12.head.RS")]


def test_pbs_mom_without_the_patch(monkeypatch, lines):
    monkeypatch.delenv(contract.STATUS, raising=False)
    monkeypatch.delenv(contract.COMMENT, raising=False)
    report.report_restart_failure(errors.SYSTEM, "why")
    report.withdraw_restart_failure()
    assert not report.report_restart_remarks("restarted from another image")
    assert lines == []


def test_remarks_are_one_line_that_replaces_the_former(monkeypatch, tmp_path):
    monkeypatch.setenv(contract.COMMENT, str(tmp_path / "12.head.RC"))
    for remarks in ("restarted from image a", "restarted from image b"):
        assert report.report_restart_remarks(remarks)
    assert [(path.name, path.read_text(), path.stat().st_mode) for path in tmp_path.iterdir()] == [
        ("12.head.RC", "restarted from image b\n", 0o100600)]


def test_remarks_that_cannot_be_written_are_logged(monkeypatch, lines):
    monkeypatch.setenv(contract.COMMENT, "/nonexistent/12.head.RC")
    assert report.report_restart_remarks("restarted from image a")
    assert lines == ["hook=restart outcome=not reported path=/nonexistent/12.head.RC reason=No such file or directory"]


# Phases and counting

def test_phases_are_in_the_line(lines):
    with phases.measure("dump"):
        pass
    report.Report("checkpoint", "12.head").log_success(outcome="held", engine="criu")
    assert lines == ["hook=checkpoint dump_seconds=0.0 engine=criu job=12.head node=%s outcome=held" % NODE]


def test_innermost_phase_that_failed_is_named(lines, capsys):
    def work():
        with phases.measure("admit"), phases.measure("verify"):
            raise HookError(errors.DATA, "no")
    guard("restart", work, "12.head")
    assert [re.sub(r"seconds=0\.\d+", "seconds=0.0", line) for line in lines] == [
        "hook=restart admit_seconds=0.0 code=65 job=12.head node=%s outcome=failed phase=verify sentence='no' verify_seconds=0.0" % NODE]


def test_failure_of_what_was_tried_again_is_forgotten(lines, capsys):
    def work():
        for name in ("settle", "dump"):
            phases.forget_failure()
            with contextlib.suppress(OSError), phases.measure(name):
                raise OSError(name)
        raise HookError(errors.DATA, "no")
    guard("checkpoint", work, "12.head")
    assert " phase=dump " in lines[0]


def test_phases_of_the_part_that_runs_as_the_user_count(somebody):
    def work():
        with phases.measure("dump"):
            pass
        with phases.measure("publish"):
            raise HookError(errors.CANNOT_WRITE, "no")
    with phases.measure("admit"):
        pass
    with pytest.raises(HookError):
        privilege.as_user(somebody, work)
    assert sorted(phases.spent()) == ["admit", "dump", "publish"] and phases.failed() == "publish"


def test_failure_that_was_told_is_not_told_again(lines, capsys):
    error = HookError(errors.DATA, "no")
    error.reported = True
    assert guard("restart", raising(error)) == errors.DATA
    assert lines == []


def test_counted_with_the_configuration_only(lines, monkeypatch):
    counted = []
    monkeypatch.setattr(metrics, "count_call", lambda *arguments: counted.append(arguments))
    reporting = report.Report("checkpoint", "12.head")
    reporting.log_success(outcome="held", engine="criu")
    assert counted == []
    reporting.settings = {"engine": "criu"}
    reporting.log_failure(errors.DATA, "no")
    facts = {"job": "12.head", "outcome": "failed", "code": 65, "sentence": "no", "phases": {}}
    assert counted == [({"engine": "criu"}, "checkpoint", facts)]


@pytest.mark.parametrize("manifest, wanted", [
    ({}, {}), ({"lost": [], "bytes": 7}, {}), ({"lost": ["2 sockets", "1 zombie"]}, {"lost": "2 sockets, 1 zombie"}),
    ({"lost": [], "compression": "lz4", "plain_bytes": 7}, {"compression": "lz4", "plain_bytes": 7}),
    ({"lost": ["1 zombie"], "compression": "lz4", "plain_bytes": 7}, {"lost": "1 zombie", "compression": "lz4", "plain_bytes": 7})])
def test_what_is_said_of_an_image(manifest, wanted):
    assert report.describe_image(manifest) == wanted
