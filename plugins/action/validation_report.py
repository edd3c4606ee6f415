# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the report of a validation on the controller: there are Jinja and the page's template, which no module takes along."""
from __future__ import annotations

import os

from ansible.plugins.action import ActionBase
from ansible_collections.ckpt.torque.plugins.plugin_utils import pages, validation_files


class ActionModule(ActionBase):

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: "str | None" = None, task_vars: "dict | None" = None) -> dict:
        result = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec({
            "results": {"type": "list", "elements": "dict", "required": True},
            "nodes": {"type": "list", "elements": "dict", "default": []},
            "images": {"type": "list", "elements": "dict", "default": []},
            "directory": {"type": "path", "required": True},
            "name": {"type": "str", "default": "ckpt.torque"},
        })
        try:
            document = validation_files.build_document(arguments["results"], arguments["nodes"], pages.read_clock(), pages.read_version(),
                                                       arguments["images"])
            result.update(validation_files.write_report(document, os.path.abspath(arguments["directory"]), arguments["name"],
                                                        self._task.check_mode))
        except validation_files.ReportError as error:
            result.update(failed=True, msg=str(error))
        return result
