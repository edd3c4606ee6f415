"""The action plugin validation_report, in a real play: it writes on the controller, although the host cannot be reached."""

import json
import os
import subprocess
import sys

PLAY = """\
- hosts: all
  gather_facts: false
  tasks:
    - {{register: planned, check_mode: true, ckpt.torque.validation_report: &report {{directory: {top}/report, results: [{good}]}}}}
    - {{register: written, ckpt.torque.validation_report: *report}}
    - {{register: refused, ignore_errors: true, ckpt.torque.validation_report: {{directory: {top}/other, results: [{{level: L1}}]}}}}
    - delegate_to: localhost
      vars: {{ansible_connection: local, ansible_python_interpreter: "{{{{ ansible_playbook_python }}}}"}}
      ansible.builtin.copy: {{content: "{{{{ [planned, written, refused] | to_json }}}}", dest: {top}/answers, mode: "0600"}}
"""
GOOD = {"level": "L1", "nodes": ["node1"], "passed": True, "cause": "", "phases": [{"step": "dump", "seconds": 1}]}


def test_report(tmp_path, repository):
    (tmp_path / "ansible_collections/ckpt").mkdir(parents=True)
    (tmp_path / "ansible_collections/ckpt/torque").symlink_to(repository)
    (tmp_path / "play.yml").write_text(PLAY.format(top=tmp_path, good=json.dumps(GOOD)))
    done = subprocess.run([sys.executable, "-m", "ansible", "playbook", "-i", "192.0.2.1,", str(tmp_path / "play.yml")],
                          capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
                          env=dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(tmp_path), ANSIBLE_HOME=str(tmp_path / "home")))
    assert done.returncode == 0, done.stdout + done.stderr
    planned, written, refused = json.loads((tmp_path / "answers").read_text())
    assert (planned["changed"], written["changed"], written["passed"]) == (False, True, True)
    assert written["verdict"] == "1 of 1 node passed L1 (engine); not proven: L2 (hooks), L3 (job)."
    assert sorted(os.listdir(tmp_path / "report")) == ["history.jsonl", "junit.xml", "report.html", "report.txt", "results.json"]
    assert json.loads((tmp_path / "report/results.json").read_text())["results"] == [GOOD]
    assert refused["msg"] == ("result 1 cannot be reported (nodes is missing); pass what the round-trip modules, validation_nodes and "
                              "validation_images returned; nothing was written")
    assert not (tmp_path / "other").exists()
