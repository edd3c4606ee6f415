# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the host which packages it lacks; send it those of the bundle, where a rollout is made from one."""
from __future__ import annotations

import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.ckpt.torque.plugins.plugin_utils import bundle


class ActionModule(ActionBase):

    TRANSFERS_FILES = False  # seldom; a temporary directory costs two executions

    def run(self, tmp: "str | None" = None, task_vars: "dict | None" = None) -> dict:
        result = super().run(tmp, task_vars)
        source = bundle.find(self._templar, task_vars)
        arguments = dict(self._task.args, bundled=bool(source))
        answer = self._execute_module(module_args=arguments, task_vars=task_vars)
        if source and answer.get("missing") and not answer["changed"]:
            repository = self._send_repository(source, answer)
            answer = self._execute_module(module_args=dict(arguments, bundled=False, repository=repository), task_vars=task_vars)
        result.update(answer)
        return result

    def _send_repository(self, source: str, answer: dict) -> str:
        """Send the packages for the host's platform; return where they are on the host."""
        path = os.path.join(source, "packages", answer["platform"] + ".tar")
        if not os.path.isfile(path):
            raise AnsibleActionFail("%s is missing, and bundle_source has no packages for %s (%s); write the bundle with a host of that "
                                    "system; nothing was changed" % (" ".join(answer["missing"]), answer["platform"], path))
        remote = self._connection._shell.join_path(self._connection._shell.tmpdir or self._make_tmp_path(), "packages.tar")
        self._transfer_file(path, remote)
        return remote
