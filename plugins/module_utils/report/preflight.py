# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Level L0: what would stop a job on a node, by what nodes of its class have: pure functions.

What most nodes of a class have is taken for right; if there are two of them, what the first has.
"""

import collections
import json

from ..torque_ckpt.units import format_bytes

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Iterator

Fact = collections.namedtuple("Fact", "read describe")
"""A fact that has to be the same on all nodes of a class.

read      returns it by the node's facts (find_faults), None if it is not known
describe  returns what is wrong and what to do, by it, that of most nodes, and the words for these
"""


def find_faults(nodes: "dict[str, dict]", classes: "list[list[str]]", clock_seconds: float) -> "dict[str, list[str]]":
    """Return for each node what would stop a job there (sentences, each with its cure), empty if nothing would.

    :param nodes: engine and state of each node, by its name: what engine_info and preflight_info returned
    :param classes: names of nodes that are to restart each other's jobs; a node may be in none
    :param clock_seconds: by how many seconds clocks may differ
    """
    faults = {name: list(_find_own_faults(facts)) for name, facts in nodes.items()}
    for members in classes:
        for fact in FACTS:
            _compare(fact, [name for name in members if name in nodes], nodes, faults)
    _compare_clocks(nodes, clock_seconds, faults)
    return faults


def _find_own_faults(facts: dict) -> "Iterator[str]":
    """Yield what is wrong with a node, whatever others have."""
    state = facts["state"]
    if not state["hooks"]:
        yield "there are no hooks in %s; run site.yml on it" % state["hooks_directory"]
    else:
        if state["complaint"]:
            yield state["complaint"]
        if state["odd_programs"]:
            yield "the hooks' %s is not as the others are; run site.yml on it" % _list_names(state["odd_programs"])
        if state["changed_hooks"]:
            yield "the hooks differ from those of the collection (%s); run site.yml on it" % _list_names(state["changed_hooks"])
    for store in state["stores"]:
        if store["free"] <= store["reserve"]:
            yield "store %s has %s free, of which %s are reserved; free some space there or lower checkpoint_hooks_reserve" % (
                store["path"], format_bytes(store["free"]), format_bytes(store["reserve"]))
    if state["service"]["wanted"] and not state["service"]["running"]:
        yield "%s does not run; look at \"journalctl -u %s\" and start it" % (state["service"]["name"], state["service"]["name"])
    if state["config_path"] and state["directives"] is None:
        yield "there is no %s; run site.yml on it" % state["config_path"]
    elif state["config_path"] and not _has_scripts(state):
        yield "%s names no checkpoint_script or no restart_script; run site.yml on it" % state["config_path"]
    if state["user"] is not None and state["user"]["uid"] is None:
        yield "user %s is not known there; create the account as on the other nodes, or name another one in validate_user" % (
            state["user"]["name"])
    if state["record_fault"]:
        yield "%s, so that \"torque-ckpt show\" is wrong about it; run site.yml on it" % state["record_fault"]


def _has_scripts(state: dict) -> bool:
    return {"checkpoint_script", "restart_script"} <= set(state["directives"] or [])


def _compare(fact: Fact, members: "list[str]", nodes: "dict[str, dict]", faults: "dict[str, list[str]]") -> None:
    """Add a fault for each member of a class where a fact is not what it is on most of them."""
    holders = collections.OrderedDict()  # type: collections.OrderedDict[str, list[str]]
    values = {}
    for name in members:
        value = fact.read(nodes[name])
        if value is not None:
            key = json.dumps(value, sort_keys=True)
            values[key] = value
            holders.setdefault(key, []).append(name)
    if len(holders) < 2:
        return
    most = max(holders, key=lambda key: len(holders[key]))  # the first of several
    others = _list_names(holders[most], 1)
    for key, names in holders.items():
        sentence = fact.describe(values[key], values[most], others) if key != most else ""
        if sentence:
            for name in names:
                faults[name].append(sentence)


def _compare_clocks(nodes: "dict[str, dict]", limit: float, faults: "dict[str, list[str]]") -> None:
    """Add a fault for each node whose clock differs from that of most; where as many differ, the controller's counts."""
    offsets = {name: facts["state"]["clock"] for name, facts in nodes.items()}
    right = sorted(offsets.values(), key=abs)[(len(offsets) - 1) // 2] if offsets else 0.0
    for name, offset in offsets.items():
        difference = offset - right
        if abs(difference) > limit:
            faults[name].append("its clock is %d seconds %s; set it, by NTP for instance" % (
                abs(difference), "ahead" if difference > 0 else "behind"))


def _list_names(names: "list[str]", most: int = 3) -> str:
    left = len(names) - most
    return ", ".join(names[:most]) + (" and %d %s" % (left, "other" if left == 1 else "others") if left > 0 else "")


def _describe_libraries(own: dict, right: dict, others: str) -> str:
    """Return in what the programs and libraries differ that are on both nodes, or on one alone."""
    names = sorted(path for path in set(own) | set(right) if own.get(path) != right.get(path))
    first = names[0]
    return "%s is %s, on %s it is %s%s; install the same packages on both, or no job restarts that has mapped it" % (
        first, _describe_library(own.get(first)), others, _describe_library(right.get(first)),
        " (and %s)" % _list_names(names[1:]) if names[1:] else "")


def _describe_library(entry: "dict | None") -> str:
    if entry is None:
        return "not there"
    return "of %d bytes" % entry["bytes"] + (" with build id %s" % entry["build_id"][:12] if entry["build_id"] else "")


def _describe_directives(own: dict, right: dict, others: str) -> str:
    name = sorted(name for name in set(own) | set(right) if own.get(name) != right.get(name))[0]
    return "mom_priv/config has %s, that of %s has %s; change it, or run site.yml on it" % (
        _describe_directive(name, own), others, _describe_directive(name, right))


def _describe_directive(name: str, directives: "dict[str, list[str]]") -> str:
    return "$%s %s" % (name, ", ".join(directives[name])) if name in directives else "no $%s" % name


def _describe_pids(own: int, right: int, others: str) -> str:
    """Return what is wrong with the range of process ids; one that is larger stops no job that comes to this node."""
    if own > right:
        return ""
    return "process ids end at %d, on %s at %d, and a job that has a higher one cannot restart here; set checkpoint_hooks_pid_max and " \
        "run site.yml on it" % (own, others, right)


def _read_engine(facts: dict) -> "str | None":
    """Return name and version of the engine; None if it is not there, of which the health check complains."""
    name = facts["engine"]["engine"]
    version = facts["engine"]["engines"][name]["version"]
    return "%s %s" % (name, version) if version else None


def _sentence(text: str) -> "Callable[[Any, Any, str], str]":
    """Return Fact.describe for a text with own, others and right."""
    return lambda own, right, others: text % {"own": own, "others": others, "right": right}


FACTS = (
    Fact(_read_engine,
         _sentence("the engine is %(own)s, on %(others)s it is %(right)s; install the same version, or run site.yml on it")),
    Fact(lambda facts: ", ".join(facts["engine"]["key_ids"]) or "none",
         _sentence("the hooks' keys are %(own)s, on %(others)s they are %(right)s, so that images cannot be verified; run site.yml on it")),
    Fact(lambda facts: facts["engine"]["pids"]["max"], _describe_pids),
    Fact(lambda facts: facts["state"]["directives"] if _has_scripts(facts["state"]) else None, _describe_directives),
    Fact(lambda facts: facts["state"]["libraries"] or None, _describe_libraries),
    Fact(lambda facts: facts["state"]["user"] and facts["state"]["user"]["uid"] is not None and
         "uid %(uid)d and gid %(gid)d" % facts["state"]["user"] or None,
         _sentence("the user of the jobs has %(own)s, on %(others)s %(right)s; change the account, with all its files, so that they are "
                   "the same everywhere")),
)
