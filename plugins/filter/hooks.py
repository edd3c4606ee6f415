# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the role checkpoint_hooks writes on a host, by what is known of the other hosts."""
from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.ckpt.torque.plugins.module_utils import inventory
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt import config
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.nested import methods


def hook_stores(stores: list[dict], server_directory: str, is_node: bool) -> list[dict]:
    """Return the stores in which the hooks of a host look for images ("path", "id"), each path once.

    :param stores: all stores of the site ("path", "id", "shared", by default true)
    :param server_directory: checkpoint directory of the server, where images lie between nodes that have their own stores
    :param is_node: whether the host is a compute node
    """
    ids: dict[str, str] = {}
    for store in stores:
        own = is_node or boolean(store.get("shared", True))
        ids.setdefault(store["path"] if own else server_directory, store["id"])
    return [{"path": path, "id": store_id} for path, store_id in ids.items()]


def early_key_reason(key_id: str, own: list[str], nodes: dict[str, dict], missing: list[str]) -> str:
    """Return why a key must not seal images on a host yet, the end of a sentence; empty when it may.

    A key may seal when every node can verify what it seals. A node that cannot be reached restarts no job now.

    :param key_id: id of the key
    :param own: ids of the host's keys, that of the one which seals first; empty when it has none
    :param nodes: variables of the compute nodes in this run, by name
    :param missing: names of the other compute nodes
    """
    if not own or own[0] == key_id:
        return ""
    ids = {name: (variables.get("checkpoint_hooks_engine_info") or {}).get("key_ids") or [] for name, variables in nodes.items()}
    if any(node_ids[0] == key_id for node_ids in ids.values() if node_ids):
        return ""
    lacking = [name for name, node_ids in ids.items() if node_ids and key_id not in node_ids]
    if lacking:
        return "%s %s not have it yet" % (", ".join(lacking), "does" if len(lacking) == 1 else "do")
    if missing:
        return "nobody knows whether %s %s it: run site.yml without --limit" % (", ".join(missing), "has" if len(missing) == 1 else "have")
    return ""


def checked_keys(value: list[dict]) -> list[dict]:
    """Return the keys as they are.

    :raises AnsibleFilterError: if they are not what checkpoint_hooks_keys must be; the message shows nothing of them
    """
    if not inventory.are_keys(value):
        raise AnsibleFilterError(inventory.KEYS + "; nothing was changed")
    return value


def checked_methods(value: dict[str, dict]) -> dict[str, dict]:
    """Return methods of ckpt-run as they are.

    :raises AnsibleFilterError: if one is wrong
    """
    for name, parts in value.items():
        fault = methods.find_site_fault(name, parts) if isinstance(parts, dict) else "%s is not a dictionary" % name
        if fault:
            raise AnsibleFilterError("checkpoint_hooks_methods: %s; nothing was changed" % fault)
    return value


def typed_settings(values: dict) -> dict:
    """Return settings of the hooks with numbers for text that ought to be a number.

    So it is before ansible-core 2.19 when an expression comes to a number, and with "-e NAME=3" always.
    """
    numbers = {setting.name for setting in config.SETTINGS if setting.type == "int"}
    return {name: int(value) if name in numbers and isinstance(value, str) and value.isdecimal() else value
            for name, value in values.items()}


class FilterModule:

    def filters(self) -> dict:
        return {"hook_stores": hook_stores, "early_key_reason": early_key_reason, "checked_keys": checked_keys,
                "checked_methods": checked_methods, "typed_settings": typed_settings}
