# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The page of what plan.yml found: what its template shows, computed here."""
from __future__ import annotations

import collections

from ansible_collections.ckpt.torque.plugins.module_utils.report import outcomes
from ansible_collections.ckpt.torque.plugins.plugin_utils import pages

WORDS = {"passed": "ready", "unproven": "needs something", "failed": "not reached"}
NOT_REACHED, NEEDED, TO_COME = "failure", "open", ""
"""Classes of a card."""


def render_page(nodes: "dict[str, dict]", restarts: str, created: str, version: str) -> str:
    """Return the page as HTML.

    :param nodes: what the filter plan_nodes returned
    :param restarts: what is to be said of restarts of pbs_mom; empty if there are none
    :param created: the time, in UTC
    :param version: of the collection
    """
    rows = [{"name": name, "state": _find_state(node), "restarts": node["restarts"]} for name, node in nodes.items()]
    needed = [row["name"] for row in rows if row["state"] == "unproven"]
    lost = [row["name"] for row in rows if row["state"] == "failed"]
    groups: "dict[tuple[str, str], list[str]]" = collections.defaultdict(list)
    for name, node in nodes.items():
        for sentence in node["why"]:
            groups[NEEDED if node["reached"] else NOT_REACHED, sentence].append(name)
        for sentence in node["warnings"]:
            groups[TO_COME, sentence].append(name)
    ordered = sorted(groups, key=lambda group: (NOT_REACHED, NEEDED, TO_COME).index(group[0]))
    cards = [{"kind": kind, "text": text, "nodes": outcomes.name_nodes(groups[kind, text]), "all_nodes": groups[kind, text]}
             for kind, text in ordered]
    if restarts:
        names = [name for name, node in nodes.items() if node["restarts"]]
        cards.append({"kind": NEEDED, "text": restarts, "nodes": outcomes.name_nodes(names), "all_nodes": names})
    return pages.render(
        "plan.html.j2", title="Plan of ckpt.torque.site", created=created, collection=version, verdict=_describe(len(nodes), needed, lost),
        state_of_all="failed" if lost else "unproven" if needed else "passed", words=WORDS, groups=cards, needed=",".join(needed),
        blocks=pages.cut_blocks(rows))


def _find_state(node: dict) -> str:
    return "failed" if not node["reached"] else "unproven" if node["why"] else "passed"


def _describe(total: int, needed: "list[str]", lost: "list[str]") -> str:
    """Return the result in one sentence."""
    word = "node" if total == 1 else "nodes"
    sentence = "%d of %d %s %s: %s" % (len(needed), total, word, "needs something" if len(needed) == 1 else "need something",
                                       outcomes.name_nodes(needed)) if needed else (
        "%d of %d %s ready" % (total - len(lost), total, word + (" is" if total - len(lost) == 1 else " are")))
    return sentence + ("; not reached: %s." % outcomes.name_nodes(lost) if lost else ".")
