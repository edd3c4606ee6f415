# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is wrong with an inventory: groups that are missing or empty, values of the wrong type."""

import difflib
import json
import re

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Collection, Iterable, Iterator

MEMBERS = {"torque_mom": "the compute nodes", "torque_server": "the host that runs pbs_server",
           "checkpoint_store": "one host that may create directories in the store", "torque_client": "the hosts where users submit",
           "torque_builder": "one host for each operating system"}
"""The groups that the playbooks know, and who is in them."""

SIMILAR = 0.85
"""From this ratio (of difflib) on, one name is a misspelling of another."""

TRUE_OR_FALSE = {"y", "yes", "on", "1", "true", "t", "n", "no", "off", "0", "false", "f", "1.0", "0.0"}
"""What the filter bool knows, as str."""

KEYS = ('checkpoint_hooks_keys must hold at least one key, each with an id of its own and a secret of 32 bytes or more in hexadecimal; '
        'make one with "openssl rand -hex 32" and keep it in the vault')


def find_group_faults(groups: "dict[str, list[str]]", required: "Collection[str]") -> "Iterator[str]":
    """Yield a sentence for each group that is missing, empty or misspelt.

    :param groups: names of hosts by name of the group
    :param required: the groups without which nothing can be done; of the others only misspelt names are reported
    """
    for name, members in MEMBERS.items():
        slips = [] if name in groups else [other for other in sorted(groups) if other not in MEMBERS
                                           and difflib.SequenceMatcher(None, name, other).ratio() >= SIMILAR]
        if slips:
            yield "the inventory has a group %s, but none that is called %s (%s); rename it" % (slips[0], name, members)
        elif name in required and not groups.get(name):
            lack = "group %s has no hosts" if name in groups else "the inventory has no group %s"
            yield "%s; put %s into it" % (lack % name, members)


def find_slips(names: "Iterable[str]", known: "Collection[str]") -> "list[tuple[str, str]]":
    """Return (name, what it was meant to be) of variables that resemble a known one, but are none."""
    slips, prefixes = [], {name.split("_")[0] for name in known}
    for name in sorted(set(names) - set(known)):
        if name.split("_")[0] in prefixes:
            meant = difflib.get_close_matches(name, known, 1, 0.93)
            if meant:
                slips.append((name, meant[0]))
    return slips


def find_type_fault(name: str, value: object, option: dict) -> str:
    """Return what is wrong with a text if a list, dictionary, number or boolean is meant; empty for other values.

    Ansible accepts such a text as a value of the type and continues with the text.

    :param option: the variable's entry in argument_specs
    """
    if not isinstance(value, str):
        return ""
    kind = option.get("type", "str")
    if kind == "bool" and value.strip().lower() not in TRUE_OR_FALSE:
        return "%s is the text %s; set it to true or false" % (name, json.dumps(value))
    if kind == "int" and not re.match(r"\s*[-+]?[0-9]+\s*$", value):
        return "%s is the text %s; set it to a whole number" % (name, json.dumps(value))
    if kind in ("list", "dict"):
        return "%s is the text %s; write it as a %s, on the command line in JSON: -e '%s'" % (
            name, json.dumps(value), "list" if kind == "list" else "dictionary",
            json.dumps({name: [value] if kind == "list" else {}}))
    return ""


def find_range_fault(name: str, value: "str | int", option: dict) -> str:
    """Return that a number is too small, empty if it is not.

    :param value: of the option's type, or a text that is one
    :param option: the variable's entry in PLAYBOOKS
    """
    if "least" in option and int(value) < option["least"]:
        return "%s is %s; set it to a whole number of %d or more" % (name, value, option["least"])
    return ""


def find_batch_fault(name: str, value: object, option: dict) -> str:
    """Return that Ansible would not make batches of this, but take all hosts at once; empty if it is right.

    :param value: numbers of hosts or shares of them, one or a list
    :param option: the variable's entry in PLAYBOOKS
    """
    sizes = value if isinstance(value, list) else [value]
    if not option.get("batches") or sizes and all(
            not isinstance(size, bool) and re.match(r"([1-9][0-9]*|([1-9]|[1-9][0-9]|100)%)\Z", str(size)) for size in sizes):
        return ""
    return ("%s is %s; set it to a whole number of 1 or more, a share such as 10%%, or a list of these: with 0, all nodes are taken at once"
            % (name, json.dumps(value)))


def find_place_fault(name: str, option: dict, given: "Collection[str]") -> str:
    """Return that a variable has no effect where it is set, empty if it has.

    :param option: the variable's entry in PLAYBOOKS
    :param given: the names of the variables of the command line
    """
    if not option.get("plays") or name in given:
        return ""
    return ("%s is set in the inventory, where it has no effect: hosts and batches of a play are chosen before variables of hosts are "
            "known; give it to ansible-playbook by -e" % name)


def find_store_fault(server: str, known: "list[dict]", store: dict, variable: str, is_file_server: bool) -> str:
    """Return that the server would overlook the images of a compute node's store, empty if it knows the store or each node has its own.

    :param server: name of the server
    :param known: its stores ("path", "id", "shared"); of several with one path the first counts, as in the hooks' configuration
    :param store: the node's store
    :param variable: the server's variable to which a store is added
    :param is_file_server: whether the server has stores at paths of its own, so that their ids count
    """
    if is_file_server and any(entry["shared"] and entry["id"] == store["id"] for entry in known):
        return ""
    ids = {entry["path"]: entry["id"] for entry in reversed(known) if entry["shared"]}
    path, name = store["path"], store["id"]
    if not store["shared"] or ids.get(path) == name:
        return ""
    if path in ids:
        return "the server %s knows the store %s as %s, not as %s; give each store a path and an id of its own" % (
            server, path, ids[path], name)
    return ("the server %s does not know the store %s (%s), so that ckpt.torque.remove, node-down and torque-ckpt there would overlook its "
            "images; mount it there, and add {path: %s, id: %s} to %s in group torque_server" % (server, path, name, path, name, variable))


def are_keys(keys: object) -> bool:
    """Return whether this is what checkpoint_hooks_keys must be."""
    if not isinstance(keys, list) or not keys or not all(isinstance(key, dict) for key in keys):
        return False
    return (len({str(key.get("id")) for key in keys if key.get("id")}) == len(keys)
            and all(re.match("([0-9A-Fa-f]{2}){32,}$", str(key.get("secret"))) for key in keys))


def join_hosts(faults: "Iterable[tuple[str, str]]") -> "list[str]":
    """Return sentences, each once, with the hosts that have the fault.

    :param faults: (host, sentence) of each
    """
    hosts: "dict[str, list[str]]" = {}
    for host, sentence in faults:
        hosts.setdefault(sentence, []).append(host)
    return ["%s: %s" % (names[0] if len(names) == 1 else "%s and %d other host%s" % (names[0], len(names) - 1, "s" * (len(names) > 2)),
                        sentence) for sentence, names in hosts.items()]
