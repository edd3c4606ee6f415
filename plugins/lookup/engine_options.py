# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the engines' roles install the engines."""
from __future__ import annotations

DOCUMENTATION = r"""
name: engine_options
short_description: Where the engines' roles install the engines
version_added: 1.0.0
author:
  - ckpt.torque contributors (@ckpt-torque)
description:
  - Returns the options of each engine that follow from the variables of its role, by the engine's name, for the module
    M(ckpt.torque.engine_info) and the hooks.
  - An engine whose role's variable is not set has its default, so that a node can be looked at without its roles.
options:
  _terms:
    description: None is taken.
"""

EXAMPLES = r"""
- name: Choose the engine by the node's kernel
  ckpt.torque.engine_info:
    engine_options: "{{ lookup('ckpt.torque.engine_options') }}"
"""

RETURN = r"""
_raw:
  description: One dictionary, in which the engine that is preferred comes first.
  type: list
  elements: dict
  sample: [{criu: {path: /opt/criu/current/sbin/criu}, blcr: {path: /opt/blcr/current/bin}}]
"""

from ansible.plugins.lookup import LookupBase

from ..module_utils.torque_ckpt.engines import registry


class LookupModule(LookupBase):

    def run(self, terms: list, variables: dict | None = None, **kwargs: object) -> list[dict]:
        options = {}
        for entry in registry.ENGINES:
            prefix = self._templar.template((variables or {}).get(entry.path_variable, ""))
            options[entry.name] = {"path": entry.locate(prefix) if prefix else entry.add_defaults({})["path"]}
        return [options]
