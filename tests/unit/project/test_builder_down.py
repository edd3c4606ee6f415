"""A build host that is down does not end site.yml: what was built before is in the cache, or installed."""
import json
import os
import pathlib
import subprocess
import sys

import playbooks
import pytest
import yaml

DOWN = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
UP = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False,
      "torque_build_version": "9.9", "torque_build_source": "/nonexistent"}
REFUSED = "torque_build_version 9.9 is not a version that this role can build"


@pytest.fixture
def build(tmp_path):
    """Run the play that builds TORQUE on hosts (dict of their variables), and a later one on another; return (status, output)."""
    play, = [play for play in yaml.safe_load((playbooks.TOP / "playbooks/site.yml").read_text()) if play["name"] == "Build TORQUE, once"]
    later = {"hosts": "torque_server", "gather_facts": False, "tasks": [{"ansible.builtin.debug": {"msg": "later"}}]}
    (tmp_path / "play.yml").write_text(json.dumps([play, later]))

    def run(group, hosts, **variables):
        groups = {"torque_server": {"hosts": {"head": UP}}}
        groups.setdefault(group, {})["hosts"] = hosts
        (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": groups, "vars": variables}}))
        done = subprocess.run([str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "-i", str(tmp_path / "hosts.json"),
                               str(tmp_path / "play.yml")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                              check=False, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, ANSIBLE_CONFIG=str(playbooks.TOP / "ansible.cfg"),
                                       ANSIBLE_COLLECTIONS_PATH=str(playbooks.TOP / ".cache/checkout")))
        return done.returncode, " ".join(done.stdout.split())
    return run


def test_only_build_host_is_down(build):
    status, output = build("torque_builder", {"builder": DOWN})
    assert status == 0 and '"msg": "later"' in output and REFUSED not in output, output


def test_host_that_answers_builds(build):
    status, output = build("torque_builder", {"builder": UP, "other": DOWN})
    assert status == 2 and REFUSED in output, output
    assert "builder : ok" in output and "failed=1" in output, output


def test_server_builds_without_that_group(build):
    """Nothing is asked of it before."""
    status, output = build("torque_server", {"head": UP})
    assert status == 2 and REFUSED in output and '"msg": "later"' not in output, output
