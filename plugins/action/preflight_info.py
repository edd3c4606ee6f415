# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the node's clock with the controller's: only here is it known when the module was asked and when it answered."""
from __future__ import annotations

import time

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):

    TRANSFERS_FILES = False

    def run(self, tmp: "str | None" = None, task_vars: "dict | None" = None) -> dict:
        result = super().run(tmp, task_vars)
        asked = time.time()
        result.update(self._execute_module(module_args=dict(self._task.args), task_vars=task_vars))
        if "clock" in result:
            result["clock"] = compute_offset(asked, result["clock"], time.time())
        return result


def compute_offset(asked: float, clock: float, answered: float) -> float:
    """Return by how many seconds a clock is ahead at least, negative if it is behind, 0 if it may be right.

    :param asked: the right time before it was read (seconds since 1970)
    :param clock: what it said
    :param answered: the right time afterwards
    """
    return clock - answered if clock > answered else clock - asked if clock < asked else 0.0
