# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare what the module says with the controller: its clock, and its files of the hooks' package."""
from __future__ import annotations

import os
import time

from ansible.plugins.action import ActionBase
from ansible_collections.ckpt.torque.plugins.module_utils.validation import node_state

PACKAGE = os.path.join(os.path.dirname(__file__), os.pardir, "module_utils")
NAME = "torque_ckpt"


class ActionModule(ActionBase):

    TRANSFERS_FILES = False

    def run(self, tmp: "str | None" = None, task_vars: "dict | None" = None) -> dict:
        result = super().run(tmp, task_vars)
        asked = time.time()
        result.update(self._execute_module(module_args=dict(self._task.args), task_vars=task_vars))
        if "clock" in result:
            result["clock"] = compute_offset(asked, result["clock"], time.time())
            result["changed_hooks"] = find_changed(result["hooks"]) if result["hooks"] else []
        return result


def find_changed(hooks: "dict[str, str]") -> "list[str]":
    """Return which files of the hooks' package (paths) are not those of the controller, or are missing.

    :param hooks: what hash_hooks returned on the node
    """
    right = {os.path.join(NAME, path): digest for path, digest in node_state.hash_hooks(os.path.join(PACKAGE, NAME)).items()}
    installed = {path: digest for path, digest in hooks.items() if path.startswith(NAME + os.sep)}
    return sorted(path for path in set(right) | set(installed) if right.get(path) != installed.get(path))


def compute_offset(asked: float, clock: float, answered: float) -> float:
    """Return by how many seconds a clock is ahead at least, negative if it is behind, 0 if it may be right.

    :param asked: the right time before it was read (seconds since 1970)
    :param clock: what it said
    :param answered: the right time afterwards
    """
    return clock - answered if clock > answered else clock - asked if clock < asked else 0.0
