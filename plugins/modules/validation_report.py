#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: validation_report
short_description: Write the results of round trips as JSON, JUnit XML and a text table
version_added: 0.1.0
description:
  - Takes what the round-trip modules returned and writes C(validation.json), C(validation.xml) and C(validation.txt).
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
    details: Returns the table; no file is written.
  diff_mode:
    support: none
  idempotent:
    support: none
    details: A report holds the time at which it was written.
options:
  results:
    description: What M(ckpt.torque.engine_roundtrip) and M(ckpt.torque.hook_roundtrip) returned.
    type: list
    elements: dict
    required: true
  directory:
    description: Where the files go; created when it is missing.
    type: path
    required: true
  name:
    description: Name of the test suite in the JUnit file.
    type: str
    default: ckpt.torque
"""

EXAMPLES = r"""
- name: Write the report on the controller
  ckpt.torque.validation_report:
    results: "{{ trips }}"
    directory: "{{ inventory_dir }}/report"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
passed:
  description: Whether at least one round trip was run and none failed.
  returned: success
  type: bool
levels:
  description: For each level V(passed), V(FAILED) or V(not run).
  returned: success
  type: dict
  sample: {L1: passed, L2: passed, L3: not run}
failures:
  description: Level, nodes and cause of each failure.
  returned: success
  type: list
  elements: str
table:
  description: The results as text.
  returned: success
  type: str
files:
  description: The files of the report.
  returned: success
  type: list
  elements: str
"""

import datetime
import errno
import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.validation import report

NEEDED = ("level", "nodes", "passed", "cause")


def fault(result: dict) -> str:
    """Return why a result is not a round trip's, empty if it is."""
    missing = [key for key in NEEDED if key not in result]
    if missing:
        return "no " + ", ".join(missing)
    if result["level"] not in report.LEVELS:
        return "level %s" % result["level"]
    engine, phases = result.get("engine", {}), result.get("phases", [])
    good = {
        "passed": result["passed"] is None or isinstance(result["passed"], bool),
        "cause": isinstance(result["cause"], str),
        "case": isinstance(result.get("case", ""), str),
        "compression": isinstance(result.get("compression", ""), str),
        "nodes": isinstance(result["nodes"], list) and all(isinstance(node, str) for node in result["nodes"]),
        "engine": isinstance(engine, dict) and all(isinstance(value, str) for value in engine.values()),
        "phases": isinstance(phases, list) and all(isinstance(phase, dict) and isinstance(phase.get("seconds"), (int, float))
                                                   for phase in phases),
    }
    wrong = [key for key, value in good.items() if not value]
    return "%s %s" % (wrong[0], result.get(wrong[0])) if wrong else ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "results": {"type": "list", "elements": "dict", "required": True},
            "directory": {"type": "path", "required": True},
            "name": {"type": "str", "default": "ckpt.torque"},
        },
        supports_check_mode=True,
    )
    results, directory = module.params["results"], module.params["directory"]
    for number, result in enumerate(results, 1):
        why = fault(result)
        if why:
            module.fail_json(msg="result %d is not a round trip's (%s); pass what the round-trip modules returned; nothing was written"
                             % (number, why))
    summary = report.summary(results)
    table = report.table(results)
    created = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    kept = [{key: value for key, value in result.items() if key not in ("invocation", "changed", "state", "failed")}
            for result in results]
    contents = {
        "validation.json": json.dumps(dict(summary, created=created, results=kept), indent=2, sort_keys=True) + "\n",
        "validation.xml": report.junit(results, module.params["name"]),
        "validation.txt": "%s\n%s\n" % (created, table),
    }
    files = [os.path.join(directory, entry) for entry in sorted(contents)]
    if not module.check_mode:
        try:
            os.makedirs(directory, exist_ok=True)
            for path in files:
                if os.path.isdir(path):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            for path in files:
                with open(path + ".new", "w", encoding="utf-8", errors="replace") as stream:
                    stream.write(contents[os.path.basename(path)])
            for path in files:
                os.rename(path + ".new", path)
        except OSError as error:
            module.fail_json(msg="cannot write the report to %s: %s; name another directory" % (directory, error.strerror))
    module.exit_json(changed=not module.check_mode, table=table, files=files, **summary)


if __name__ == "__main__":
    main()
