# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare groups and variables of the inventory with what the roles expect, on the controller."""
from __future__ import annotations

import os

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible_collections.ckpt.torque.plugins.module_utils import inventory
from ansible_collections.ckpt.torque.plugins.module_utils.report.results import LEVELS
from ansible_collections.ckpt.torque.plugins.module_utils.validation import cases
from ansible_collections.ckpt.torque.plugins.plugin_utils import bundle

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Iterator, Mapping

PLAYBOOKS: "dict[str, dict]" = {
    "torque_enabled": {"type": "bool"}, "torque_version": {}, "torque_home": {"type": "path"}, "torque_source": {},
    "torque_source_checksum": {}, "torque_site_nodes": {"plays": True},
    "torque_restart_serial": {"type": "raw", "batches": True, "plays": True}, "checkpoint_engine": {},
    "validate_user": {}, "validate_level": {"choices": list(LEVELS)}, "validate_path": {"type": "list"},
    "validate_ring": {"type": "int", "least": 2}, "validate_sample": {"type": "int", "least": 2},
    "validate_cases": {"type": "list", "elements": "str", "choices": [name for name, case in cases.CASES.items() if not case.crashes]},
    "validate_crash_node": {}, "validate_boot_timeout": {"type": "int", "least": 1}, "validate_memory": {"type": "int", "least": 1},
    "validate_time_budget": {"type": "int", "least": 1}, "validate_work_path": {"type": "path"}, "validate_timeout": {"type": "int"},
    "validate_clock_seconds": {"type": "float"}, "validate_directory": {"type": "path"}, "plan_file": {"type": "path"},
    "plan_page_file": {"type": "path"},
    "drain_nodes": {"type": "raw"}, "drain_state": {"choices": ["drained", "released"]}, "drain_reason": {}, "drain_wait": {"type": "bool"},
    "drain_wait_timeout": {"type": "int"}, "drain_hold_timeout": {"type": "int"}, "drain_start_timeout": {"type": "int"},
    "drain_jobs_at_once": {"type": "int"}, "update_nodes": {"type": "raw"}, "update_jobs": {"choices": ["migrate", "wait", "leave"]},
    "update_wait_timeout": {"type": "int", "least": 0}, "update_serial": {"type": "raw", "batches": True},
    "update_max_fail_percentage": {"type": "int", "least": 0}, "adopt_directory": {"type": "path"},
    "rollback_nodes": {"type": "raw"}, "remove_images": {"choices": ["refuse", "keep"]},
    "adopt_torque_directory": {"type": "path"}, "bundle_source": {"type": "path"}, "bundle_keyring": {"type": "path"},
    "bundle_directory": {"type": "path"}, "bundle_packages": {"type": "list", "elements": "str"},
    "bundle_python_packages": {"type": "list", "elements": "str"}, "bundle_signing_key": {},
}
"""The playbooks' own variables, as argument_specs has those of roles; least is the smallest number, batches says that it is for serial,
plays that plays themselves take it, which know no variables of hosts."""


class ActionModule(ActionBase):

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: "str | None" = None, task_vars: "dict | None" = None) -> dict:
        task_vars = task_vars or {}
        result = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec({"nodes_needed": {"type": "bool", "default": False},
                                                              "keys_needed": {"type": "bool", "default": True}})
        groups, hosts = task_vars["groups"], task_vars["ansible_play_hosts_all"]
        variables = {host: task_vars["hostvars"][host] for host in hosts if self._is_ours(host, groups)}
        faults = list(inventory.find_group_faults(groups, self._required(hosts, task_vars)))
        if arguments["nodes_needed"] and groups.get("torque_mom") and not set(groups["torque_mom"]) & set(hosts):
            faults.append("--limit leaves no host of group torque_mom, so that nothing would be proven; name a node in it")
        options, own, slips = self._options(), [], []
        for host, values in variables.items():
            own += [(host, sentence) for sentence in self._find_value_faults(values, options)]
            slips += [(host, "there is no variable %s; do you mean %s?" % pair) for pair in inventory.find_slips(values, options)]
            keys = self._value(values, "checkpoint_hooks_keys")
            if arguments["keys_needed"] and self._needs_keys(host, groups) and not inventory.are_keys(keys):
                own.append((host, inventory.KEYS))
        own += self._find_store_faults(variables, groups, task_vars["hostvars"], options)
        faults += inventory.join_hosts(own)
        keyring = self._templar.template(task_vars.get("bundle_keyring") or "")
        sources = {self._value(values, "bundle_source") or "" for values in variables.values()} | {bundle.find(self._templar, task_vars)}
        faults += filter(None, [bundle.find_fault(source, keyring) for source in sorted(map(os.path.expanduser, sources - {""}))])
        result.update(changed=False, warnings=inventory.join_hosts(slips))
        if faults:
            result.update(failed=True, faults=faults, msg="; ".join(faults) + "; nothing was changed.")
        return result

    @staticmethod
    def _is_ours(host: str, groups: "dict[str, list[str]]") -> bool:
        return any(host in groups.get(name, []) for name in inventory.MEMBERS)

    @staticmethod
    def _needs_keys(host: str, groups: "dict[str, list[str]]") -> bool:
        """Return whether a host needs the keys: login nodes verify no image."""
        return any(host in groups.get(name, []) for name in ("torque_mom", "torque_server"))

    def _required(self, hosts: "list[str]", task_vars: dict) -> "list[str]":
        """Return the groups without which nothing can be done."""
        first = task_vars["hostvars"][hosts[0]]
        enabled = self._value(first, "torque_enabled")
        try:
            enabled = enabled is None or boolean(enabled)
        except TypeError:  # find_type_fault reports it
            enabled = False
        return ["torque_mom"] + ["torque_server"] * (enabled and "torque_server_name" not in first)

    @staticmethod
    def _options() -> "dict[str, dict]":
        """Return the entries of all roles' argument_specs by the variable's name."""
        top = os.path.join(os.path.dirname(__file__), os.pardir, os.pardir, "roles")
        options = dict(PLAYBOOKS)
        for role in sorted(os.listdir(top)):
            with open(os.path.join(top, role, "meta", "argument_specs.yml"), encoding="utf-8") as stream:
                for entry in yaml.load(stream, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["argument_specs"].values():
                    options.update(entry["options"])
        return options

    @staticmethod
    def _value(values: "Mapping", name: str) -> "Any":
        """Return a variable's value; None when it has none, or one that only a later task makes known."""
        try:
            value = values.get(name)
        except AnsibleError:
            return None
        return None if isinstance(value, str) and "{{" in value else value  # so it is on ansible-core before 2.19

    def _find_store_faults(self, variables: "dict[str, Mapping]", groups: "dict[str, list[str]]", hostvars: "Mapping",
                           options: "dict[str, dict]") -> "Iterator[tuple[str, str]]":
        """Yield (host, sentence) for each compute node with a store that the server does not know."""
        for server in groups.get("torque_server", [])[:1]:
            variable = "checkpoint_hooks_stores" if "checkpoint_hooks_stores" in hostvars[server] else "checkpoint_store_additional_stores"
            known = self._list_stores(hostvars[server], options, variable)
            for host in groups.get("torque_mom", []) if known else []:
                for store in self._list_stores(variables[host], options)[:1] if host in variables else []:
                    fault = inventory.find_store_fault(server, known, store, variable, server in groups.get("checkpoint_store", []))
                    if fault:
                        yield host, fault

    def _list_stores(self, values: "Mapping", options: "dict[str, dict]", variable: str = "") -> "list[dict]":
        """Return a host's stores ("path", "id", "shared"), its own and those of a variable; none if a value is unknown or wrong."""
        path, store_id, shared = (self._value(values, name) if name in values else options[name]["default"]
                                  for name in ("checkpoint_store_path", "checkpoint_store_id", "checkpoint_store_shared_enabled"))
        others = self._value(values, variable) if variable in values else []
        own = [] if variable == "checkpoint_hooks_stores" else [{"path": path, "id": store_id, "shared": shared}]
        try:
            return [{"path": os.path.normpath(store["path"]), "id": str(store["id"]), "shared": boolean(store.get("shared", True))}
                    for store in own + list(others)]
        except (AttributeError, KeyError, TypeError):
            return []

    def _find_value_faults(self, values: "Mapping", options: "dict[str, dict]") -> "Iterator[str]":
        """Yield a sentence for each variable of a host whose value is of another type than the role's, or too small."""
        for name, option in options.items():
            value = self._value(values, name)
            if value is None or name == "checkpoint_hooks_keys":
                continue
            fault = inventory.find_type_fault(name, value, option)
            if fault:
                yield fault
            else:
                wanted = {key: entry for key, entry in option.items() if key in ("type", "elements", "choices", "options")}
                errors = ArgumentSpecValidator({name: wanted}).validate({name: value}).error_messages
                yield from errors or filter(None, [inventory.find_range_fault(name, value, option),
                                                   inventory.find_batch_fault(name, value, option),
                                                   inventory.find_place_fault(name, option, load_extra_vars(self._loader))])
