# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the package on the controller and hand it to the module: its digests, and its texts to a node that has not the same."""
from __future__ import annotations

import hashlib
import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):

    TRANSFERS_FILES = False

    def run(self, tmp: "str | None" = None, task_vars: "dict | None" = None) -> dict:
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        package = arguments.get("package")
        contents = self._read_package(package) if package else {}
        arguments["contents"] = {}
        arguments["digests"] = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in contents.items()}
        answer = self._execute_module(module_args=arguments, task_vars=task_vars)
        if answer.pop("contents_needed", False):
            answer = self._execute_module(module_args=dict(arguments, contents=contents), task_vars=task_vars)
        result.update(answer)
        return result

    @staticmethod
    def _read_package(package: str) -> "dict[str, str]":
        """Return the package's texts by relative path."""
        top = os.path.join(os.path.dirname(__file__), os.pardir, "module_utils", package)
        if not package.isidentifier() or not os.path.isfile(os.path.join(top, "__init__.py")):
            raise AnsibleActionFail("installed_files: %s is not a Python package of this collection's module_utils" % package)
        contents = {}
        for directory, subdirectories, names in os.walk(top):
            subdirectories[:] = sorted(name for name in subdirectories if name != "__pycache__")
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(directory, name)
                    with open(path, encoding="utf-8") as stream:
                        contents[os.path.relpath(path, top)] = stream.read()
        return contents
