"""adopt.yml run again: what a node had otherwise before does not stay in force."""
import json
import os
import pathlib
import subprocess
import sys

import playbooks
import pytest
import yaml

SERVER = {"version": "6.1.3", "server": {"keep_completed": "300"}, "queues": {}, "nodes": {"node1": {}, "node2": {}, "node3": {}}}
ALIKE = "%s: nothing differs from the other nodes now; host_vars of an earlier run is kept as a backup"


@pytest.fixture
def adopt(tmp_path):
    """Write the variables of nodes with these loglevels ({node: str, None if it was not read}); return what was printed (str)."""
    play = yaml.safe_load((playbooks.TOP / "playbooks/adopt.yml").read_text())[-1]
    (tmp_path / "play.yml").write_text(json.dumps([play]))

    def run(loglevels, *options):
        built = {"stdout": "version: 6.1.3\nserverhome: /var/spool/torque\n"}
        nodes = {name: {"__adopt_config": {"directives": {"loglevel": [level]}, "resources": [], "faults": []}, "__adopt_built": built}
                 if level else {} for name, level in loglevels.items()}
        head = {"ansible_connection": "local", "__adopt_server": SERVER, "__adopt_names": {"stdout_lines": ["head", "pbs_sched"]},
                "__adopt_built": built}
        (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": {
            "torque_server": {"hosts": {"head": head}}, "torque_mom": {"hosts": nodes}}}}))
        done = subprocess.run([str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "-i", str(tmp_path / "hosts.json"),
                               "-e", "adopt_directory=%s/adopted" % tmp_path, *options, str(tmp_path / "play.yml")],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False,
                              stdin=subprocess.DEVNULL, env=dict(os.environ, ANSIBLE_CONFIG=str(playbooks.TOP / "ansible.cfg"),
                                                                 ANSIBLE_COLLECTIONS_PATH=str(playbooks.TOP / ".cache/checkout")))
        assert done.returncode == 0, done.stdout
        return done.stdout
    return run


def test_values_of_an_earlier_run(adopt, tmp_path):
    assert ALIKE.split(":")[1] not in adopt({"node1": "3", "node2": "5", "node3": "7"})
    written = tmp_path / "adopted" / "host_vars"
    (written / "node1.yml").write_text("torque_mom_loglevel: 3\n")  # the administrator's own
    before = {path.name: path.read_text() for path in written.iterdir()}
    assert sorted(before) == ["node1.yml", "node2.yml", "node3.yml"]

    alike = {"node1": "3", "node2": "3", "node3": None}
    assert ALIKE % "node2" in adopt(alike, "--check")
    assert {path.name: path.read_text() for path in written.iterdir()} == before

    assert ALIKE % "node2" in adopt(alike)
    assert yaml.safe_load((written / "node2.yml").read_text()) == {}
    backup, = written.glob("node2.yml.*~")
    assert backup.read_text() == before["node2.yml"]
    for name in ("node1.yml", "node3.yml"):
        assert (written / name).read_text() == before[name]
    assert yaml.safe_load((tmp_path / "adopted" / "group_vars" / "all.yml").read_text())["torque_mom_loglevel"] == 3

    again = adopt(alike)
    assert ALIKE % "node2" not in again and "changed=0" in again
