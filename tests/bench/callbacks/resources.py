"""Writes which managed resources a run has compared with what they are to be: a line of JSON, [host, kind, name], for each time.

The file is named by BENCH_RESOURCES.
"""
from __future__ import annotations

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: resources
type: aggregate
short_description: Writes which managed resources a run has compared
description: For make bench-site.
"""

COMPARED = {
    "ansible.builtin.apt": ("package", "name"),
    "ansible.builtin.copy": ("path", "dest"),
    "ansible.builtin.file": ("path", "path"),
    "ansible.builtin.group": ("group", "name"),
    "ansible.builtin.package": ("package", "name"),
    "ansible.builtin.service": ("service", "name"),
    "ansible.builtin.systemd_service": ("service", "name"),
    "ansible.builtin.template": ("path", "dest"),
    "ansible.builtin.user": ("user", "name"),
    "ckpt.torque.packages": ("package", "name"),
}
"""Action: kind of what it compares, and the argument that has its name or a list of names."""
NOTHING = {"ansible.builtin." + name for name in (
    "assert", "command", "debug", "fail", "gather_facts", "group_by", "include_role", "include_tasks", "include_vars", "ping", "set_fact",
    "setup", "shell", "stat", "validate_argument_spec")} | {
    "ckpt.torque." + name for name in ("engine_info", "engine_roundtrip", "inventory_check", "store_info")}
"""Actions that only read, or of which nobody knows what they compare."""
UNKNOWN = "unknown"
"""The kind of an action that is in neither."""


def list_resources(action, arguments):
    """Return what a task has compared: list of (kind, name). What is installed as a package is one, however many files it has.

    :param action: its full name
    :param arguments: what it was given (dict)
    """
    if action == "ckpt.torque.installed_files":
        paths = list(arguments.get("files", {})) + list(arguments.get("secrets", {}))
        return [("path", os.path.join(arguments.get("path") or "/", path)) for path in paths] + (
            [("package", arguments["package"])] if arguments.get("package") else [])
    if action in NOTHING:
        return []
    if action not in COMPARED:
        return [(UNKNOWN, action)]
    kind, argument = COMPARED[action]
    names = arguments[argument]
    return [(kind, name) for name in ([names] if isinstance(names, str) else names)]


class CallbackModule(CallbackBase):

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "resources"

    def v2_runner_on_ok(self, result):
        if not result.task.loop:  # each of its items has come by itself
            self.v2_runner_item_on_ok(result)

    def v2_runner_item_on_ok(self, result):
        with open(os.environ["BENCH_RESOURCES"], "a", encoding="utf-8") as stream:
            for kind, name in list_resources(result.task.resolved_action, result.task_fields["args"]):
                stream.write(json.dumps([result.host.get_name(), kind, name]) + "\n")
