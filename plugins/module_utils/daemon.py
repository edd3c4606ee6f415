# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a daemon of systemd's needs so that it runs with its files as they are now."""

import os
import signal

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Mapping

ASKED = ("LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload", "ExecMainStartTimestampMonotonic", "MainPID", "FragmentPath",
         "DropInPaths")
RUNNING = ("active", "reloading", "activating")
_LATER = ("/usr/", "/lib/", "/run/systemd/system/", "/run/systemd/generator/", "/run/systemd/generator.late/")
"""Where systemd looks for a unit after /etc/systemd/system."""


def read_state(text: str) -> "dict[str, str]":
    """Return what systemctl show prints (lines of NAME=VALUE) as a dict; what it does not know is missing."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def compute_start(state: "dict[str, str]", wall: float, monotonic: float) -> float:
    """Return when the daemon started, in seconds since 1970; 0.0 when systemd does not know.

    The wall clock of that moment is of no use: it may have been set since.

    :param state: of read_state
    :param wall: time.time()
    :param monotonic: time.monotonic() of the same moment
    """
    started = int(state.get("ExecMainStartTimestampMonotonic") or 0)
    return wall - monotonic + started / 1e6 if started else 0.0


def find_newer(paths: "list[str]", moment: float) -> "list[str]":
    """Return those of the paths that were written after a moment (seconds since 1970).

    Of a link its own time counts: it is replaced when it is to lead elsewhere. What does not exist is not newer.
    """
    newer = []
    for path in paths:
        try:
            if os.lstat(path).st_mtime > moment:
                newer.append(path)
        except OSError:
            continue
    return newer


def list_unread_units(state: "dict[str, str]", paths: "list[str]") -> "list[str]":
    """Return those of the paths that are the unit in place of the one that systemd has read; of them NeedDaemonReload tells nothing."""
    read = state.get("FragmentPath", "")
    return [path for path in paths if read.startswith(_LATER) and path.startswith("/etc/systemd/system/")
            and os.path.basename(path) == os.path.basename(read) and os.path.exists(path)]


def choose_action(state: "dict[str, str]", newer: "list[str]", read: float, reload_files: "Mapping[str, float]") -> str:
    """Return what the daemon needs: "start", "restart", "reload" or "" for nothing.

    :param state: of read_state
    :param newer: what it reads at its start and was written since it read its files
    :param read: when it read them (seconds since 1970)
    :param reload_files: what it reads again on a reload, and when that was last written before the change for which a reload is enough.
        A daemon that has not read that content is restarted: an earlier change may need more.
    """
    if state.get("ActiveState") not in RUNNING:
        return "start"
    if not newer:
        return ""
    return "reload" if all(path in reload_files and reload_files[path] <= read for path in newer) else "restart"


def is_unit_changed(state: "dict[str, str]", started: float) -> bool:
    """Return whether the unit of a daemon was changed after it had started: only systemd can start it as the unit says now.

    :param state: of read_state
    :param started: of compute_start
    """
    paths = [state.get("FragmentPath", "")] + state.get("DropInPaths", "").split()
    return state.get("NeedDaemonReload") == "yes" or bool(find_newer(paths, started))


def catches_signal(status: str, name: str) -> bool:
    """Return whether a process has a handler for a signal.

    :param status: its /proc/PID/status
    :param name: the signal's, as in SIGHUP
    """
    masks = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (signal.Signals[name].value - 1) & 1)
