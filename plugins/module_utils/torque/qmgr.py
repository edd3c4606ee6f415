# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""TORQUE's server, queues and nodes as data: what qmgr prints, and the commands that make the difference.

A state is {"server": {"": attributes}, "queue": {name: attributes}, "node":
{name: attributes}}, attributes {name: value}. In a state that is read every
value is TORQUE's text; in one that is wanted it is text, a list of texts
(an attribute that is a list) or None (unset), and instead of its attributes
an object can be ABSENT. Pure functions.
"""

import copy
import re
from collections import namedtuple

from ..torque_ckpt.torque.server import parse_node_jobs

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Collection

ABSENT = "absent"
KINDS = ("server", "queue", "node")

NAMES = {
    "queue": ("[A-Za-z][A-Za-z0-9_.-]{0,14}", "a letter and up to 14 more letters, digits, '.', '_' and '-'"),
    "node": ("[A-Za-z0-9][A-Za-z0-9_.-]*", "letters, digits, '.', '_' and '-'"),
}

LISTS = {
    "server": ("acl_group_hosts", "acl_hosts", "acl_roots", "acl_user_hosts", "acl_users", "authorized_users",
               "extra_resc", "gres_modifiers", "managers", "node_submit_exceptions", "operators", "submit_hosts", "tokens"),
    "queue": ("acl_groups", "acl_hosts", "acl_users", "disallowed_types", "hostlist", "route_destinations"),
    "node": ("properties",),
}
"""Attributes that hold a list. The order counts in ORDERED only: TORQUE sorts the others as it likes."""
ORDERED = ("route_destinations",)

REPORTED = {
    "server": ("net_counter", "next_job_number", "pbs_version", "resources_assigned", "sched_version", "server_name",
               "server_state", "state_count", "total_jobs"),
    "queue": ("mtime", "resources_assigned", "state_count", "total_jobs"),
    "node": ("dedicated_cores", "dedicated_numa_nodes", "dedicated_sockets", "dedicated_threads", "gpu_status", "jobs",
             "mic_status", "status", "total_cores", "total_numa_nodes", "total_sockets", "total_threads"),
}
"""What TORQUE reports of itself: never set, never compared."""
HIDDEN = ("numa_board_str", "numa_gpu_node_str", "num_node_boards")
"""Attributes of nodes that TORQUE takes but never shows."""
MARKS = ("note", "power_state", "state")
"""Attributes of nodes that belong to whoever drains them."""

CREATED_WITH = {"queue": "queue_type", "node": "np"}
DOORS = ("acl_hosts", "acl_users", "acl_group_hosts", "acl_user_hosts", "acl_host_enable", "acl_user_enable", "operators",
         "managers")
"""The server's attributes that can shut out whoever sets them: in this order, after everything else."""
SWITCHES = ("acl_group_enable", "acl_host_enable", "acl_user_enable", "enabled", "started")
"""A queue's attributes that make the others count: after these."""

LONGEST = 16000
"""Longest value in one command, in characters; qmgr's line ends at 32768."""
WORDS = {"yes": "True", "no": "False"}
"""What YAML takes for a boolean and TORQUE does not."""
UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
TRUE, FALSE = ("true", "t", "y", "1"), ("false", "f", "n", "0")


class QmgrError(Exception):
    """Something cannot be done; the text says what, why and what to do."""


# -- what qmgr prints ------------------------------------------------------

def parse(text: str) -> dict:
    """Return the state in the output of qmgr's list commands.

    qmgr breaks long values after commas and drops the blanks that follow: they come back without.
    """
    state: "dict[str, dict]" = {kind: {} for kind in KINDS}
    attributes: "dict[str, str]" = {}
    last = None
    for line in text.splitlines():
        header = re.match(r"(Server|Queue|Node) (\S+)$", line)
        pair = re.match(r"\t([^\s=]+) = (.*)$", line)
        if header:
            kind = header.group(1).lower()
            attributes, last = {}, None
            state[kind]["" if kind == "server" else header.group(2)] = attributes
        elif pair:
            last = pair.group(1)
            attributes[last] = pair.group(2).strip()
        elif last and line.startswith("  "):
            attributes[last] += line.strip()
    return state


def jobs(kind: str, attributes: "dict[str, str]") -> "list[str]":
    """Return what keeps a queue or node busy: ["1 Queued", "2 Running"] or job ids."""
    if kind == "node":
        return sorted(parse_node_jobs(attributes.get("jobs", "")))
    counts = re.findall(r"(\w+):(\d+)", attributes.get("state_count", ""))
    return ["%s %s" % (count, name) for name, count in counts if int(count) and name != "Complete"]


# -- what is wanted --------------------------------------------------------

def wanted(server: dict, queues: dict, nodes: dict) -> dict:
    """Return the wanted state for the module's parameters.

    :raises QmgrError: for what TORQUE or its configuration file format cannot hold
    """
    state: "dict[str, dict]" = {"server": {"": _attributes("server", "", server)} if server else {}, "queue": {}, "node": {}}
    for kind, objects in (("queue", queues), ("node", nodes)):
        for name, attributes in objects.items():
            if not re.fullmatch(NAMES[kind][0], name):
                raise QmgrError("'%s' cannot be the name of a %s; use %s" % (name, kind, NAMES[kind][1]))
            if attributes != ABSENT and not isinstance(attributes, dict):
                raise QmgrError("%s %s is neither a dictionary of attributes nor '%s'; write {} for a %s as it is"
                                % (kind, name, ABSENT, kind))
            state[kind][name] = ABSENT if attributes == ABSENT else _attributes(kind, name, attributes)
    return state


def wanted_members(given: dict) -> "dict[str, list[str]]":
    """Return what lists of the server are to contain at least, by attribute.

    :raises QmgrError: for what is no list, and as wanted does
    """
    for attribute in given:
        if attribute not in LISTS["server"]:
            raise QmgrError("server: %s is no list, to which members could be added; set it as a whole; nothing was changed" % attribute)
    return {attribute: list(_value("server", "server", attribute, names) or []) for attribute, names in given.items()}


def add_members(goal: dict, state: dict, members: "dict[str, list[str]]") -> None:
    """Have the goal (from wanted) give lists of the server these members beside those that they have; what it says already stays."""
    for attribute, names in members.items():
        present = [item.strip() for item in state["server"].get("", {}).get(attribute, "").split(",") if item.strip()]
        missing = [name for name in names if name not in present]
        if missing and attribute not in goal["server"][""]:
            goal["server"][""][attribute] = present + missing


def _attributes(kind: str, name: str, given: dict) -> dict:
    """Return an object's attributes, {"a": {"b": 1}} as {"a.b": "1"}."""
    flat = {}
    for attribute, value in given.items():
        flat.update({"%s.%s" % (attribute, resource): each for resource, each in value.items()}
                    if isinstance(value, dict) else {attribute: value})
    return {attribute: _value(kind, ("%s %s" % (kind, name)).strip(), attribute, value) for attribute, value in flat.items()}


def _value(kind: str, where: str, attribute: str, value: object) -> "str | list[str] | None":
    """Return one value as text, list or None."""
    base = attribute.partition(".")[0]
    resource = r"(resources|req_information)_[a-z]+\.[A-Za-z0-9_.+-]+"
    if not re.fullmatch(r"(?!resources_|req_information_)[A-Za-z_]+|" + resource, attribute):
        raise QmgrError("%s: '%s' cannot be an attribute; write it as qmgr does, such as resources_default.walltime"
                        % (where, attribute))
    if base in REPORTED[kind]:
        raise QmgrError("%s: %s cannot be set, TORQUE only reports it; remove it from the data" % (where, attribute))
    if kind == "node" and base in HIDDEN:
        raise QmgrError("%s: %s cannot be compared, TORQUE never shows it; write it into server_priv/nodes" % (where, attribute))
    if kind == "node" and base in MARKS:
        raise QmgrError("%s: %s belongs to whoever drains the node; use ckpt.torque.pbs_node" % (where, attribute))
    if value is None or value == "" or value == []:
        return None
    if base in LISTS[kind]:
        items = value if isinstance(value, list) else str(value).split(",")
        return [_text(where, attribute, item, ",") for item in items]
    return _text(where, attribute, value)


def _text(where: str, attribute: str, value: object, separator: str = "") -> str:
    """Return a scalar as TORQUE would write it."""
    if not isinstance(value, (bool, int, float, str)):
        raise QmgrError("%s: %s cannot hold a %s; write one value" % (where, attribute, type(value).__name__))
    text = str(value).strip()
    if not text or re.search("[\"'\\x00-\\x1f\\x7f]", text) or separator and separator in text:
        raise QmgrError("%s: %s cannot hold %r: empty items, quotes%s and control characters do not pass through qmgr"
                        % (where, attribute, value, ", commas" if separator else ""))
    return WORDS.get(text.lower(), text)


def _distinct(names: "list[str]", others: "list[str]") -> None:
    """Refuse a name that differs from another or one of the others in case or domain only.

    TORQUE would take them for two nodes.
    """
    akin: "dict[str, list[str]]" = {}
    for other in sorted(set(names + others)):
        akin.setdefault(other.lower().partition(".")[0], []).append(other)
    for name in sorted(names):
        for other in akin[name.lower().partition(".")[0]]:
            low, that = name.lower(), other.lower()
            if name != other and (low == that or low.startswith(that + ".") or that.startswith(low + ".")):
                raise QmgrError("nodes %s and %s are the same host; use one name, the one the server knows it by"
                                % tuple(sorted((name, other))))


# -- the difference --------------------------------------------------------

class Change(namedtuple("Change", "verb kind name attribute value")):
    """One thing to do: create or delete an object, set or unset an attribute.

    value  text, list of texts (set) or None
    """

    def lines(self) -> "list[str]":
        """Return the commands: one, except for a list that is longer than qmgr's line."""
        start = " ".join(part for part in (self.verb, self.kind, self.name, self.attribute) if part)
        if self.value is None:
            return [start]
        if self.verb == "create":
            return ["%s=%s" % (start, _quoted(self.value))]
        if not isinstance(self.value, list):
            return ["%s = %s" % (start, _quoted(self.value))]
        parts = [""]
        for item in self.value:
            if parts[-1] and len(parts[-1]) + len(item) > LONGEST:
                parts.append("")
            parts[-1] += ("," if parts[-1] else "") + item
        return ["%s %s %s" % (start, "+=" if index else "=", _quoted(part)) for index, part in enumerate(parts)]


def _quoted(value: str) -> str:
    """Return a value as qmgr's parser takes it whole."""
    return value if re.fullmatch(r"[A-Za-z0-9_.:/@+-]+", value) else '"%s"' % value


def plan(state: dict, goal: dict, purge: "Collection[str]" = ()) -> "list[Change]":
    """Return the changes (in the order to be done) from a state that was read to the wanted one.

    :param purge: kinds ("queue", "node") of which whatever is not wanted is deleted
    :raises QmgrError: when something that is busy would be deleted, or a node has two names
    """
    stay = [name for name in state["node"] if goal["node"].get(name) != ABSENT and "node" not in purge]
    _distinct([name for name, attributes in goal["node"].items() if attributes != ABSENT], stay)
    changes, deletions = [], []
    for kind in KINDS:
        for name, attributes in sorted(goal[kind].items()):
            if attributes != ABSENT:
                changes += _object(kind, name, state[kind].get(name), attributes)
        for name, attributes in sorted(state[kind].items()):
            if goal[kind].get(name) == ABSENT or kind in purge and name not in goal[kind]:
                _idle(kind, name, attributes)
                deletions.append(Change("delete", kind, name, "", None))
    doors = [change for change in changes if change.kind == "server" and change.attribute in DOORS]
    doors.sort(key=lambda change: DOORS.index(change.attribute))
    # Queues before the server's attributes: default_queue may name a new one.
    changes = [change for change in changes if change not in doors]
    changes.sort(key=lambda change: change.kind == "server")
    return changes + deletions + doors


def _object(kind: str, name: str, present: "dict | None", attributes: dict) -> "list[Change]":
    """Return the changes that give one object its attributes."""
    changes, created_with = [], CREATED_WITH.get(kind)
    if present is None:
        present = {}
        if kind != "server":
            value = attributes.get(created_with)
            changes.append(Change("create", kind, name, created_with if value else "", value))
            present = {created_with: value} if value else {}
    for attribute in sorted(attributes, key=lambda each: (each in SWITCHES, each)):
        value = attributes[attribute]
        if value is None and attribute in present:
            changes.append(Change("unset", kind, name, attribute, None))
        elif value is not None and (attribute not in present or not same(present[attribute], value, attribute)):
            changes.append(Change("set", kind, name, attribute, value))
    return changes


def _idle(kind: str, name: str, attributes: "dict[str, str]") -> None:
    """Refuse to delete what jobs are in."""
    busy = jobs(kind, attributes)
    if busy:
        raise QmgrError("%s %s still holds jobs (%s): %s, then run again; nothing was changed" % (
            kind, name, ", ".join(busy), "drain it" if kind == "node" else "let them end or move them with qmove"))


def same(present: str, value: "str | list[str]", attribute: str = "") -> bool:
    """Whether TORQUE's text means the value, however either is written."""
    if isinstance(value, list):
        items = [item.strip() for item in present.split(",")]
        return items == value if attribute in ORDERED else set(items) == set(value)
    if attribute == "queue_type":  # TORQUE takes any beginning of the word
        return present.lower().startswith(value.lower())
    for read in (_boolean, _seconds, _octets, _number):
        meant = read(present, True)
        if meant is not None:
            return meant == read(value, False)
    return re.sub(r",\s+", ",", present) == re.sub(r",\s+", ",", value)


# How TORQUE writes a value shows its type: a site's own resources need no table. strict: only that notation.

def _boolean(text: str, strict: bool) -> "bool | None":
    if strict and text not in ("True", "False"):
        return None
    return True if text.lower() in TRUE else False if text.lower() in FALSE else None


def _seconds(text: str, strict: bool) -> "int | None":
    """Return the seconds in [[DD:]HH:]MM:SS, or in a plain number."""
    if not re.fullmatch(r"\d+(:\d+){1,3}" if strict else r"\d+(:\d+){0,3}", text):
        return None
    parts = [int(part) for part in reversed(text.split(":"))]
    return sum(part * unit for part, unit in zip(parts, (1, 60, 3600, 86400)))


def _octets(text: str, strict: bool) -> "int | None":
    """Return the bytes in a size; a word (w) has 8."""
    match = re.fullmatch(r"(\d+)([kmgtp]?)([bw]?)", text.lower())
    if not match or strict and not match.group(2) + match.group(3):
        return None
    return int(match.group(1)) * (8 if match.group(3) == "w" else 1) << UNITS[match.group(2)]


def _number(text: str, strict: bool) -> "int | None":  # pylint: disable=unused-argument
    return int(text) if re.fullmatch(r"-?\d+", text) else None


# -- before and after ------------------------------------------------------

def apply(state: dict, changes: "list[Change]") -> dict:
    """Return the state that results from a state by the changes."""
    changed = copy.deepcopy(state)
    for change in changes:
        objects = changed[change.kind]
        if change.verb == "delete":
            del objects[change.name]
            continue
        attributes = objects.setdefault(change.name, {})
        if change.verb == "unset":
            del attributes[change.attribute]
        elif change.attribute:
            attributes[change.attribute] = ",".join(change.value) if isinstance(change.value, list) else change.value
    return changed


def find_new_offline(changes: "list[Change]", state: dict) -> "list[str]":
    """Return the commands that put the nodes in service which these changes created.

    pbs_server 4.2 creates a node offline and leaves it so until it is restarted; others do not.

    :param changes: from plan(), done by now
    :param state: as it is now
    """
    created = [change.name for change in changes if (change.verb, change.kind) == ("create", "node")]
    return ["set node %s state -= offline" % name for name in created
            if "offline" in state["node"].get(name, {}).get("state", "").split(",")]


def frees_by_itself(failure: str) -> bool:
    """Whether pbs_server refuses to put a new node in service because it will do that when the node has reported (6.x)."""
    return "will automatically update to free" in failure


def is_setting(kind: str, attribute: str) -> bool:
    """Return whether an attribute is one that people set: the server reports others, and pbsnodes sets the marks of a node."""
    return attribute.partition(".")[0] not in REPORTED[kind] + (MARKS if kind == "node" else ())


def managed(state: dict, goal: dict, purge: "Collection[str]" = ()) -> dict:
    """Return the part of a state that is ours: the attributes that are wanted, and all of an object that is to be deleted."""
    part: "dict[str, dict]" = {}
    for kind in KINDS:
        part[kind] = {}
        for name, attributes in state[kind].items():
            ours = goal[kind].get(name, ABSENT if kind in purge else None)
            if ours is not None:
                part[kind][name] = {attribute: value for attribute, value in attributes.items()
                                    if (attribute in ours if ours != ABSENT else is_setting(kind, attribute))}
    return part


def list_settings(kind: str, attributes: "dict[str, str]") -> "dict[str, str | list[str]]":
    """Return what was set of an object's live attributes, lists as lists."""
    return {name: [item for item in value.split(",") if item] if name in LISTS[kind] else value
            for name, value in attributes.items() if is_setting(kind, name)}


def render(state: dict) -> str:
    """Return a state as qmgr's commands, for people and diffs."""
    lines = []
    for kind in KINDS:
        for name, attributes in sorted(state[kind].items()):
            if kind != "server":
                lines.append("create %s %s" % (kind, name))
            for attribute in sorted(attributes):
                value = attributes[attribute]
                lines += Change("set", kind, name, attribute, value).lines()
    return "".join(line + "\n" for line in lines)


# -- what qmgr complains of ------------------------------------------------

def echoed(output: str, commands: "list[str]") -> int:
    """Return how many of the commands qmgr -e had begun when it ended, by its output."""
    begun = 0
    for line in output.splitlines():
        if begun < len(commands) and line.strip() == commands[begun]:
            begun += 1
    return begun
