"""A host that fails or cannot be reached ends bundle.yml before anything is written: a bundle without what it needs would look complete."""
import json
import os
import pathlib
import subprocess
import sys

import playbooks
import pytest
import yaml

NODES = {
    "has no artifact": {"criu_install_method": "artifact"},
    "cannot be reached": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
    "needs none": {"criu_install_method": "package"}}


@pytest.mark.parametrize("node", NODES)
def test_bundle_is_written_only_if_all_hosts_say_what_they_need(tmp_path, node):
    plays = {play["name"]: play for play in yaml.safe_load((playbooks.TOP / "playbooks/bundle.yml").read_text())}
    download, write = plays["Download what each platform needs"], plays["Write the bundle"]
    names = [task["name"] for task in download["tasks"]]
    download["tasks"] = download["tasks"][:names.index("Find what the node needs of the engine") + 1]
    write["tasks"] = [{"ansible.builtin.file": {"path": str(tmp_path / "bundle"), "state": "directory", "mode": "0755"}, "run_once": True}]
    (tmp_path / "play.yml").write_text(json.dumps([download, write]))
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {
        "vars": {"ansible_connection": "local", "ansible_become": False, "torque_enabled": False, "checkpoint_engine": "criu",
                 "criu_cache": str(tmp_path / "cache"), "bundle_directory": str(tmp_path / "bundle")},
        "children": {"torque_server": {"hosts": {"head": {}}}, "torque_mom": {"hosts": {"node": NODES[node]}}}}}))
    done = subprocess.run([str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "-i", str(tmp_path / "hosts.json"),
                           str(tmp_path / "play.yml")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          stdin=subprocess.DEVNULL, env=dict(os.environ, ANSIBLE_CONFIG=str(playbooks.TOP / "ansible.cfg"),
                                                             ANSIBLE_COLLECTIONS_PATH=str(playbooks.TOP / ".cache/checkout")))
    assert ("run ckpt.torque.site on these hosts first; no bundle was written." in done.stdout) == (node == "has no artifact"), done.stdout
    assert ("unreachable=1" in done.stdout) == (node == "cannot be reached"), done.stdout
    assert (done.returncode == 0, (tmp_path / "bundle").exists()) == (node == "needs none",) * 2, done.stdout
