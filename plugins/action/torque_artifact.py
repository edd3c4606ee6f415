# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the host which artifact it needs; send it from the controller's cache where the host has it not yet."""
from __future__ import annotations

import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):

    TRANSFERS_FILES = False  # seldom; a temporary directory costs two executions

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args, archive=None)
        name = arguments.get("name", "torque")
        found = self._execute_module(module_args=arguments, task_vars=task_vars)
        if not found.get("failed"):
            found["path"] = os.path.join(os.path.expanduser(arguments["cache"]), "%s-%s.tar.gz" % (name, found["key"]))
            found["available"] = os.path.isfile(found["path"])
            if not found["installed"] and arguments.get("state") != "asked" and not self._task.check_mode:
                found = dict(self._send(arguments, found, task_vars), path=found["path"], available=True)
        result.update(found)
        return result

    def _send(self, arguments, found, task_vars):
        """Unpack the artifact on the host; return the module's answer (dict)."""
        if not found["available"]:
            raise AnsibleActionFail(
                "there is no TORQUE %s for %s with these patches and options (%s); put a host with that system into the group "
                "torque_builder and run site.yml without --limit; nothing was changed"
                % (arguments["version"], found["platform"], found["path"]))
        archive = self._connection._shell.join_path(self._connection._shell.tmpdir or self._make_tmp_path(), "artifact.tar.gz")
        self._transfer_file(found["path"], archive)
        return self._execute_module(module_args=dict(arguments, archive=archive), task_vars=task_vars)
