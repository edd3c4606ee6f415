# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the pages of the reports have in common: their templates, and the collection's version."""
from __future__ import annotations

import datetime
import json
import os

import jinja2
import yaml
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.units import format_bytes

TOP = os.path.normpath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
TEMPLATES = os.path.join(os.path.dirname(__file__), "templates")
BLOCK = 20
"""How many nodes a table has: some of them fit beside each other."""
SIGNS = {"passed": "\u2713", "failed": "\u2717", "class": "\u2248", "unproven": "\u2013", "absent": "\u00b7"}
"""For each state, which is a class of report.css, so that nobody depends on its colour."""


def read_version(top: str = TOP) -> str:
    """Return the version of the collection in this directory: an installed one has another file than a checkout."""
    try:
        with open(os.path.join(top, "MANIFEST.json"), encoding="utf-8") as stream:
            return str(json.load(stream)["collection_info"]["version"])
    except OSError:
        with open(os.path.join(top, "galaxy.yml"), encoding="utf-8") as stream:
            return str(yaml.safe_load(stream)["version"])


def read_clock() -> str:
    """Return the time, in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def cut_blocks(nodes: "list[dict]") -> "list[list[dict]]":
    """Return nodes in lists, each of them for a table."""
    return [nodes[start:start + BLOCK] for start in range(0, len(nodes), BLOCK)]


def render(template: str, **values: object) -> str:
    """Return the page of a template as HTML.

    :param values: those of page.html.j2 (title, created, collection, verdict, state_of_all, words: a text for each state), and its own
    """
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
                                     trim_blocks=True, lstrip_blocks=True)
    environment.filters["bytes"] = format_bytes
    return environment.get_template(template).render(signs=SIGNS, **values)
