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
  restart:
    description: Whether it is restarted or reloaded. Without, RV(restart_due) tells that it should be; one that does not run is started.
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
  description: What was done, or would be; empty for nothing.
  returned: success
  type: str
  sample: restart
newer:
  description: Which of O(files) were written after it had started.
  returned: success
  type: list
  elements: str
restart_due:
  description: Whether it should be restarted or reloaded and was not.
  returned: success
  type: bool
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils import daemon

SETTLED = 1.0
"""How long a daemon must run before it counts as running, in seconds: it reports faults of its files after its start only."""


def systemctl(module: AnsibleModule, *arguments: str) -> str:
    """Return what systemctl prints; fail with its error message."""
    status, output, error = module.run_command(["systemctl"] + list(arguments))
    if status != 0:
        module.fail_json(msg="systemctl %s: %s" % (" ".join(arguments), (error or output).strip().rstrip(".")))
    return output


def ask(module: AnsibleModule, name: str) -> "dict[str, str]":
    return daemon.read_state(systemctl(module, "show", name, *["--property=" + field for field in daemon.ASKED]))


def check_start(module: AnsibleModule, name: str) -> None:
    """Fail when the daemon ends right after its start."""
    before = ask(module, name)
    time.sleep(SETTLED)
    after = ask(module, name)
    if after.get("ActiveState") != "active" or after.get("MainPID") != before.get("MainPID"):
        module.fail_json(msg="%s ended right after its start; see journalctl -u %s" % (name, name))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "path", "default": []},
            "reload_files": {"type": "dict", "default": {}},
            "restart": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    params, name = module.params, module.params["name"]
    reloaded = "/run/ckpt-torque-reloaded-" + name
    state = ask(module, name)
    read = daemon.compute_start(state, time.time(), time.monotonic())
    if os.path.exists(reloaded):
        read = max(read, os.stat(reloaded).st_mtime)
    newer = daemon.find_newer(params["files"], read)
    action = daemon.choose_action(state, newer, read, params["reload_files"])
    due = action in ("restart", "reload") and not params["restart"]
    enabled = state.get("UnitFileState") in ("enabled", "enabled-runtime")
    if due:
        action = ""
    if not module.check_mode:
        if state.get("NeedDaemonReload") == "yes" or state.get("LoadState") != "loaded":
            systemctl(module, "daemon-reload")
        if not enabled:
            systemctl(module, "enable", name)
        if action:
            systemctl(module, action, name)
        if action == "reload":
            with open(reloaded, "w"):
                os.utime(reloaded, None)
        elif action:
            check_start(module, name)
    module.exit_json(changed=bool(action) or not enabled, action=action, newer=newer, restart_due=due)


if __name__ == "__main__":
    main()
