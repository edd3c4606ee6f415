"""The roles' README.md out of their argument_specs, and what must agree between the two files.

  role_docs.py --write   write roles/*/README.md
  role_docs.py --check   fail when a README is stale or specs and defaults differ
"""
import argparse
import json
import pathlib
import re
import sys

import yaml

TOP = pathlib.Path(__file__).resolve().parent.parent


MARKUP = re.compile(r"\b([BCEILMOPUV])\(((?:[^()]|\([^()]*\))*)\)")
"""Ansible's markup of descriptions; what is marked may hold parentheses, as C(proc(5))."""


def markdown(description):
    """Return a description (str) with Ansible's markup as Markdown."""
    def convert(match):
        kind, marked = match.groups()
        if kind == "L":
            words, _comma, address = marked.rpartition(",")
            return "[%s](%s)" % (words.strip(), address.strip())
        return {"B": "**%s**", "I": "*%s*", "U": "<%s>"}.get(kind, "`%s`") % marked.split("#")[0]
    return MARKUP.sub(convert, description)


def text(description):
    """Return a description (str or list of str) as one paragraph of Markdown."""
    return markdown(description if isinstance(description, str) else " ".join(description))


def shown(value):
    return "`%s`" % (value if isinstance(value, str) and value else json.dumps(value))


def rows(options, prefix=""):
    """Yield a table row for each option and its suboptions."""
    for name, option in options.items():
        kind = option["type"] + (" of " + option["elements"] if "elements" in option else "")
        about = text(option["description"])
        if "choices" in option:
            about += " One of " + ", ".join(map(shown, option["choices"])) + "."
        default = "required" if option.get("required") else shown(option["default"]) if "default" in option else "none"
        yield "| `%s%s` | %s | %s | %s |" % (prefix, name, kind, default.replace("|", "\\|"), about.replace("|", "\\|"))
        yield from rows(option.get("options", {}), prefix + name + ("[]." if "elements" in option else "."))


def readme(role, specs):
    lines = ["<!-- generated from meta/argument_specs.yml by `make docs`; edit that file -->", "", "# ckpt.torque.%s" % role, ""]
    for entry, spec in specs.items():
        if len(specs) > 1:
            lines += ["## Entry point `%s`" % entry, ""]
        about = spec["description"]
        lines += [markdown(spec["short_description"]) + ".", ""] + list(map(markdown, [about] if isinstance(about, str) else about)) + [""]
        first = next(name for name, other in specs.items() if other["options"] == spec["options"])
        if first != entry:
            lines += ["The variables are those of `%s`." % first, ""]
            continue
        lines += ["| variable | type | default | meaning |", "|---|---|---|---|"] + list(rows(spec["options"])) + [""]
    return "\n".join(lines)


def complete(options, defaults):
    """Return options with the defaults that argument_specs cannot hold: templates of values that are not text.

    :param options: of an entry point (dict)
    :param defaults: of the role (dict)
    """
    templates = {name: value for name, value in defaults.items() if isinstance(value, str) and "{{" in value}
    return {name: dict(option, default=templates[name]) if option["type"] in ("bool", "dict", "list") and name in templates else option
            for name, option in options.items()}


def faults(role, specs, defaults):
    """Yield a sentence for each disagreement between the specs and the defaults of a role."""
    options = {}
    for spec in specs.values():
        options.update(spec["options"])
    given = {name for name, option in options.items() if "default" not in option}  # by the caller
    for name in sorted((set(options) - given) ^ set(defaults)):
        yield "roles/%s: %s is in %s only" % (role, name, "argument_specs" if name in options else "defaults")
    for name in sorted(set(options) & set(defaults)):
        if options[name].get("default") != defaults[name]:
            yield "roles/%s: %s is %r in defaults, %r in argument_specs" % (role, name, defaults[name], options[name].get("default"))
        if not name.startswith(role + "_"):
            yield "roles/%s: %s does not begin with %s_" % (role, name, role)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    write = parser.parse_args().write
    wrong = []
    for directory in sorted((TOP / "roles").iterdir()):
        specs = yaml.safe_load((directory / "meta/argument_specs.yml").read_text())["argument_specs"]
        defaults = yaml.safe_load((directory / "defaults/main.yml").read_text())
        for spec in specs.values():
            spec["options"] = complete(spec["options"], defaults)
        wrong += faults(directory.name, specs, defaults)
        path, wanted = directory / "README.md", readme(directory.name, specs)
        if write:
            path.write_text(wanted)
        elif not path.exists() or path.read_text() != wanted:
            wrong.append("roles/%s/README.md is stale; run make docs" % directory.name)
    print("\n".join(wrong) or "roles: specs, defaults and README agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
