# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the host which artifact it needs; search the controller's cache for it."""
from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.ckpt.torque.plugins.plugin_utils import artifact_cache, bundle


class ActionModule(ActionBase):

    TRANSFERS_FILES = False

    def run(self, tmp: "str | None" = None, task_vars: "dict | None" = None) -> dict:
        result = super().run(tmp, task_vars)
        result.update(self._execute_module(module_args=self._task.args, task_vars=task_vars))
        if not result.get("failed"):
            result.update(artifact_cache.locate(self._task.args, result["key"], bundle.find(self._templar, task_vars)))
        return result
