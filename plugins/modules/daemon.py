#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: daemon
short_description: Run a daemon with the files that are there now
version_added: 0.3.0
description:
  - Starts a service of systemd's, now and at boot.
  - Restarts it when a file that it reads at its start alone was written after it started, whoever wrote it and whenever. A restart
    that is due outlives a run that was interrupted.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  name:
    description: The unit.
    type: str
    required: true
  files:
    description: What it reads at its start. Of a link its own time counts, not that of what it leads to.
    type: list
    elements: path
    default: []
  reload_files:
    description:
      - Those of O(files) after whose change a reload is enough this time, each with the time when its content before that change
        was written, in seconds since 1970.
      - A daemon that has not read that content is restarted all the same. An earlier change may need more than a reload.
    type: dict
    default: {}
  renew_signal:
    description:
      - A signal at which the daemon executes itself anew, as the same process, so that its children stay its own; or nothing. What it
        puts into its own environment then tells that it did.
      - It gets this instead of a restart if it has a handler for the signal and its unit was not changed. If it does not
        follow within two minutes, it is restarted, and the module warns of it.
    type: str
    default: ""
    version_added: 0.4.0
  restart:
    description: Whether it is restarted, renewed or reloaded. Without, RV(restart_due) tells that it should be; one that does not run is
      started.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Run pbs_mom
  ckpt.torque.daemon:
    name: pbs_mom.service
    files: [/etc/systemd/system/pbs_mom.service, /opt/torque/current, /var/spool/torque/mom_priv/config]
"""

RETURN = r"""
action:
  description: What was done, or would be - C(start), C(restart), C(reload) or C(renew), see O(renew_signal); empty for nothing.
  returned: success
  type: str
  sample: restart
newer:
  description: Which of O(files) were written after it had started.
  returned: success
  type: list
  elements: str
restart_due:
  description: Whether it should be restarted, renewed or reloaded and was not.
  returned: success
  type: bool
"""

import os
import signal
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils import daemon

SETTLED = 1.0
"""How long a daemon must run before it counts as running, in seconds: it reports faults of its files after its start only."""
PATIENCE = 120.0
"""How long a daemon may take until it executes itself anew, in seconds: pbs_mom waits for what it does for its jobs."""

LINES = 3
"""How many lines of a daemon that does not start are shown."""


def read_last_words(module: AnsibleModule, name: str, since: float) -> str:
    """Return what a daemon has written last to the journal since a moment (seconds since 1970), for the end of a sentence."""
    _status, output, _error = module.run_command(["journalctl", "--quiet", "--no-pager", "--output=cat", "--lines=%d" % LINES,
                                                  "--since=@%d" % since, "_SYSTEMD_UNIT=" + (name if "." in name else name + ".service")])
    lines = list(dict.fromkeys(line.strip() for line in output.splitlines() if line.strip()))
    return "; it wrote: " + " / ".join(lines) if lines else ""


def systemctl(module: AnsibleModule, *arguments: str, since: "float | None" = None) -> str:
    """Return what systemctl prints; fail with its error message.

    :param since: a moment (seconds since 1970): say also what the daemon, which is the last argument, has written last since
    """
    status, output, error = module.run_command(["systemctl"] + list(arguments))
    if status != 0:
        words = "" if since is None else read_last_words(module, arguments[-1], since)
        module.fail_json(msg="systemctl %s: %s%s" % (" ".join(arguments), (error or output).strip().rstrip("."), words))
    return output


def ask(module: AnsibleModule, name: str) -> "dict[str, str]":
    return daemon.read_state(systemctl(module, "show", name, *["--property=" + field for field in daemon.ASKED]))


def check_start(module: AnsibleModule, name: str, since: float) -> None:
    """Fail when the daemon ends right after its start, with what it has written last since a moment (seconds since 1970)."""
    before = ask(module, name)
    time.sleep(SETTLED)
    after = ask(module, name)
    if after.get("ActiveState") != "active" or after.get("MainPID") != before.get("MainPID"):
        module.fail_json(msg="%s ended right after its start; see journalctl -u %s%s" % (name, name, read_last_words(module, name, since)))


def read_process(pid: str, name: str) -> str:
    """Return what a file (name) in /proc of a process holds, nothing when it has ended."""
    try:
        with open("/proc/%s/%s" % (pid, name), errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def renew(pid: str, name: str) -> str:
    """Send the signal (name) to a daemon; return why it has not executed itself anew, empty if it has."""
    before = read_process(pid, "environ")
    try:
        os.kill(int(pid), signal.Signals[name])
    except OSError as error:
        return "could not be sent %s: %s" % (name, error.strerror)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        time.sleep(0.1)
        now = read_process(pid, "environ")
        if now and now != before:  # it is empty for a moment of the change
            return ""
        if not os.path.exists("/proc/" + pid):
            return "ended at %s" % name
    return "did not execute itself anew within %d seconds after %s" % (PATIENCE, name)


def mark_read(path: str, moment: float) -> None:
    """Write into the time of a file (path) when (seconds since 1970) a daemon that runs on read its files again."""
    with open(path, "w"):
        os.utime(path, (moment, moment))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "path", "default": []},
            "reload_files": {"type": "dict", "default": {}},
            "renew_signal": {"type": "str", "default": ""},
            "restart": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    params, name = module.params, module.params["name"]
    reloaded = "/run/ckpt-torque-reloaded-" + name
    state = ask(module, name)
    started = read = daemon.compute_start(state, time.time(), time.monotonic())
    if os.path.exists(reloaded):
        read = max(read, os.stat(reloaded).st_mtime)
    unread = daemon.list_unread_units(state, params["files"])
    if unread:
        state["NeedDaemonReload"] = "yes"
    newer = unread + [path for path in daemon.find_newer(params["files"], read) if path not in unread]
    action = daemon.choose_action(state, newer, read, params["reload_files"])
    pid, renewal = state.get("MainPID", "0"), params["renew_signal"]
    if renewal and renewal not in signal.Signals.__members__:
        module.fail_json(msg="renew_signal: %s is not the name of a signal, as SIGHUP is" % renewal)
    if action == "restart" and renewal and not daemon.is_unit_changed(state, started) and daemon.catches_signal(
            read_process(pid, "status"), renewal):
        action = "renew"
    due = action in ("restart", "reload", "renew") and not params["restart"]
    enabled = state.get("UnitFileState") in ("enabled", "enabled-runtime")
    if due:
        action = ""
    if not module.check_mode:
        if state.get("NeedDaemonReload") == "yes" or state.get("LoadState") != "loaded":
            systemctl(module, "daemon-reload")
        if not enabled:
            systemctl(module, "enable", name)
        asked = time.time()  # a file that is written from now on may not have been read
        if action == "renew":
            failure = renew(pid, renewal)
            if failure:
                module.warn("%s %s, so it is restarted" % (name, failure))
                action = "restart"
        if action not in ("", "renew"):
            if state.get("ActiveState") == "failed":
                systemctl(module, "reset-failed", name)  # one that has failed several times systemd would refuse for some seconds
            systemctl(module, action, name, since=asked)
        if action in ("reload", "renew"):
            mark_read(reloaded, asked)
        if action not in ("", "reload"):
            check_start(module, name, asked)
    module.exit_json(changed=bool(action) or not enabled, action=action, newer=newer, restart_due=due)


if __name__ == "__main__":
    main()
