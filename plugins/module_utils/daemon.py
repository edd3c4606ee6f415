# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a daemon of systemd's needs so that it runs with the files that are there now."""

import os

ASKED = ("LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload", "ExecMainStartTimestampMonotonic", "MainPID")
RUNNING = ("active", "reloading", "activating")


def read_state(text):
    """Return what systemctl show prints (lines of NAME=VALUE) as a dict of str; what it does not know is missing."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def compute_start(state, wall, monotonic):
    """Return when the daemon started, in seconds since 1970 (float); 0.0 when systemd does not know.

    The wall clock of that moment is of no use: it may have been set since.

    :param state: of read_state
    :param wall: time.time() (float)
    :param monotonic: time.monotonic() of the same moment (float)
    """
    started = int(state.get("ExecMainStartTimestampMonotonic") or 0)
    return wall - monotonic + started / 1e6 if started else 0.0


def find_newer(paths, moment):
    """Return those of the paths (list of str) that were written after a moment (float, seconds since 1970).

    Of a link its own time counts: it is made anew when it is to lead elsewhere. What is not there is not newer.
    """
    found = []
    for path in paths:
        try:
            if os.lstat(path).st_mtime > moment:
                found.append(path)
        except OSError:
            continue
    return found


def choose_action(state, newer, reload_files):
    """Return what the daemon needs (str): "start", "restart", "reload" or "" for nothing.

    :param state: of read_state
    :param newer: what it reads at its start and was written since (list of str)
    :param reload_files: what it reads again when it is told to reload (collection of str)
    """
    if state.get("ActiveState") not in RUNNING:
        return "start"
    if not newer:
        return ""
    return "reload" if set(newer) <= set(reload_files) else "restart"
