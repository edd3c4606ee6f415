#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: validation_report
short_description: Write the results of round trips as a page, JSON, JUnit XML and a text table
version_added: 0.1.0
description:
  - Takes what the round-trip modules returned and writes C(report.html), C(results.json), C(junit.xml) and C(report.txt).
  - The page needs no network and no scripts. C(docs/reference/results-json.md) describes C(results.json).
  - Appends a line to C(history.jsonl) in the same directory. The page shows the last 20 runs and, for a node that passes no more, since
    when and what has changed. Lines that cannot be read are left out with a warning.
  - Runs on the controller alone. No host is reached.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  action:
    description: It is done on the controller.
    support: full
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
  nodes:
    description:
      - What the page is to tell of the nodes, as the filter P(ckpt.torque.validation_nodes#filter) returns it. C(name) is required;
        C(class) (a number from 1), C(store) and C(kernel) may be missing.
      - The default is the nodes of level L1, without classes.
    type: list
    elements: dict
    default: []
  images:
    description:
      - What the page is to tell of the images in the stores, as the filter P(ckpt.torque.validation_images#filter) returns it.
    type: list
    elements: dict
    default: []
    version_added: 0.3.0
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
  run_once: true
"""

RETURN = r"""
passed:
  description: Whether at least one round trip was run and none failed.
  returned: success
  type: bool
verdict:
  description: The result in one sentence.
  returned: success
  type: str
  sample: 12 of 12 nodes can checkpoint and restart jobs.
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
  description: The verdict and the results as text.
  returned: success
  type: str
files:
  description: The files of the report.
  returned: success
  type: list
  elements: str
"""
