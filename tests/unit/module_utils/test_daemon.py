"""What a daemon needs, from what systemd and the files say."""
import os
import time

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils import daemon

SHOWN = """\
MainPID=4711
ExecMainStartTimestampMonotonic=100250000
LoadState=loaded
ActiveState=active
UnitFileState=enabled
NeedDaemonReload=no
"""


def test_start_is_told_by_the_clock_that_nobody_sets():
    state = daemon.read_state(SHOWN)
    assert state["MainPID"] == "4711"
    assert daemon.compute_start(state, wall=2000.0, monotonic=150.0) == 1950.25
    assert daemon.compute_start({}, 2000.0, 150.0) == 0.0
    assert daemon.compute_start({"ExecMainStartTimestampMonotonic": "0"}, 2000.0, 150.0) == 0.0


def test_newer(tmp_path):
    old, new, target, link = [str(tmp_path / name) for name in ("old", "new", "target", "link")]
    now = time.time()
    for path, moment in ((old, now - 10), (new, now + 10), (target, now + 10)):
        open(path, "w").close()
        os.utime(path, (moment, moment))
    os.symlink(target, link)
    os.utime(link, (now - 10, now - 10), follow_symlinks=False)
    assert daemon.find_newer([old, new, link, str(tmp_path / "missing")], now) == [new]
    os.unlink(link)
    os.symlink(target, link)  # leads to the same, but was made anew
    assert daemon.find_newer([link], now - 5) == [link]


@pytest.mark.parametrize("active, newer, reload_files, action", [
    ("inactive", [], {}, "start"), ("failed", ["config"], {}, "start"), ("active", [], {"config": 9.5}, ""),
    ("active", ["config"], {}, "restart"), ("active", ["config"], {"config": 9.5}, "reload"),
    ("active", ["config", "link"], {"config": 9.5}, "restart"),
    ("activating", [], {}, ""), ("reloading", ["link"], {}, "restart"),
    ("active", ["config"], {"config": 10.0}, "reload"),
    ("active", ["config"], {"config": 10.5}, "restart"),  # of an earlier change, after which nobody restarted it
])
def test_action(active, newer, reload_files, action):
    assert daemon.choose_action({"ActiveState": active}, newer, 10.0, reload_files) == action


def test_unit_that_is_not_there():
    assert daemon.choose_action({"LoadState": "not-found", "ActiveState": "inactive"}, [], 0.0, {}) == "start"


@pytest.mark.parametrize("changed, wanted", [(None, False), ("unit", True), ("drop-in", True)])
def test_unit_that_was_changed(tmp_path, changed, wanted):
    now = time.time()
    paths = {name: str(tmp_path / name) for name in ("unit", "drop-in", "other")}
    for name, path in paths.items():
        open(path, "w").close()
        moment = now + 10 if name == changed else now - 10
        os.utime(path, (moment, moment))
    state = {"FragmentPath": paths["unit"], "DropInPaths": "%s %s" % (paths["other"], paths["drop-in"])}
    assert daemon.is_unit_changed(state, now) is wanted
    assert daemon.is_unit_changed(dict(state, NeedDaemonReload="yes"), now) is True  # a new drop-in, which systemd has not read
    assert daemon.is_unit_changed({}, now) is False


@pytest.mark.parametrize("read, unread", [
    ("/usr/lib/systemd/system/systemd-journald.service", ["/etc/systemd/system/systemd-journald.service"]),
    ("/run/systemd/generator.late/systemd-journald.service", ["/etc/systemd/system/systemd-journald.service"]),
    ("/etc/systemd/system/systemd-journald.service", []), ("/run/systemd/transient/systemd-journald.service", []), ("", []),
    ("/usr/lib/systemd/system/other.service", [])])
def test_unit_that_comes_before_the_one_that_was_read(monkeypatch, read, unread):
    monkeypatch.setattr(daemon.os.path, "exists", lambda path: True)
    files = ["/etc/systemd/system/systemd-journald.service", "/opt/torque/current"]
    assert daemon.list_unread_units({"FragmentPath": read}, files) == unread


def test_unit_that_is_not_written(monkeypatch):
    monkeypatch.setattr(daemon.os.path, "exists", lambda path: False)
    assert daemon.list_unread_units({"FragmentPath": "/usr/lib/systemd/system/a.service"}, ["/etc/systemd/system/a.service"]) == []


def test_signals_that_a_process_catches():
    mask = "Name:\tpbs_mom\nSigIgn:\t%s\nSigCgt:\t0000000008000001\n" % ("f" * 16)
    assert [name for name in ("SIGHUP", "SIGINT", "SIGTERM", "SIGWINCH") if daemon.catches_signal(mask, name)] == ["SIGHUP", "SIGWINCH"]
    assert daemon.catches_signal("", "SIGHUP") is False  # it has ended
