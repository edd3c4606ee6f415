"""The examples: ansible-playbook reads them, and the check that precedes each playbook has nothing to say."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import vault
import yaml

from paths import TOP

EXAMPLES = TOP / "examples"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
BIN = pathlib.Path(sys.executable).parent
PLAYBOOK = [
    {"hosts": "all", "gather_facts": False, "tags": "check", "tasks": [{"ckpt.torque.inventory_check": {}, "run_once": True}]},
    {"import_playbook": "ckpt.torque.site"}]
"""Checks the inventory, and reads site.yml with it; tags keep its tasks from being run."""
COMMAND = re.compile(r"^ansible-playbook -i inventory\.yml (?:--ask-vault-pass )?ckpt\.torque\.([a-z]+)(?: --check --diff)?$", re.MULTILINE)


def check(tmp_path, inventory, *arguments, **environment):
    """Run the check with an inventory; return its exit status (int) and output (str)."""
    (tmp_path / "play.yml").write_text(json.dumps(PLAYBOOK))
    done = subprocess.run([str(BIN / "ansible-playbook"), "-i", str(inventory), "--tags", "check", "--skip-tags", "always", *arguments,
                           str(tmp_path / "play.yml")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, stdin=subprocess.DEVNULL,
                          env=dict(os.environ, ANSIBLE_CONFIG=str(TOP / "ansible.cfg"), ANSIBLE_NOCOLOR="1",
                                   ANSIBLE_COLLECTIONS_PATH=str(TOP / ".cache/checkout"), **environment))
    return done.returncode, done.stdout


def passes(done, *warnings):
    status, output = done
    assert status == 0 and re.findall(r"^\[WARNING\]: (.*)$", output, re.MULTILINE) == list(warnings), output
    assert set(re.findall(r"unreachable=\d", output)) == {"unreachable=0"}


def test_readme_lists_the_examples():
    assert sorted(re.findall(r"^\| \[[a-z-]+\]\(([a-z-]+)/README\.md\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)) == NAMES


NO_STORE = "Could not match supplied host pattern, ignoring: checkpoint_store"


@pytest.mark.parametrize("name", NAMES)
def test_example(tmp_path, name):
    """In every example the commands of the vault's README create a key that the check takes, and hide no other variable."""
    site = tmp_path / "site"
    shutil.copytree(EXAMPLES / name, site)
    password, _secret = vault.create_key(site, tmp_path / "password")
    passes(check(tmp_path, site / "inventory.yml", **password), *[NO_STORE] * (name == "local-stores"))


@pytest.mark.parametrize("page", [EXAMPLES / "README.md"] + [EXAMPLES / name / "README.md" for name in NAMES],
                         ids=lambda page: str(page.relative_to(TOP)))
def test_commands_name_playbooks_that_exist(page):
    lines = [line for line in page.read_text().splitlines() if line.startswith("ansible-playbook")]
    names = COMMAND.findall("\n".join(lines))
    assert len(names) == len(lines) > 0
    assert {name for name in names if not (TOP / "playbooks" / (name + ".yml")).exists()} == set()


def test_inventory_of_the_readme():
    """It is that of the example vault, with more hosts, in one file."""
    text, = re.findall(r"^```yaml\n(torque_server:.*?)^```", (TOP / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    inventory = yaml.safe_load(text)
    assert inventory.pop("all") == {"vars": yaml.safe_load((EXAMPLES / "vault/group_vars/all/main.yml").read_text())}
    assert set(inventory) == set(yaml.safe_load((EXAMPLES / "vault/inventory.yml").read_text()))


def test_take_over_keeps_files_of_the_site(tmp_path):
    """Its commands can be run again after another run of adopt, which needs the directory that it wrote."""
    commands, = re.findall(r"^mkdir .*?(?=^```)", (EXAMPLES / "take-over/README.md").read_text(), re.MULTILINE | re.DOTALL)
    for path, text in (("adopted/group_vars/all.yml", "all: 1\n"), ("adopted/host_vars/node1.yml", "adopted: 1\n"),
                       ("host_vars/node1.yml", "own: 1\n"), ("host_vars/node2.yml", "own: 2\n")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for run, text in (("~1~", "own: 1\n"), ("~2~", "adopted: 1\n")):
        subprocess.run(["bash", "-euc", commands], cwd=tmp_path, check=True)
        assert (tmp_path / ("host_vars/node1.yml." + run)).read_text() == text
        assert (tmp_path / "host_vars/node1.yml").read_text() == "adopted: 1\n" == (tmp_path / "adopted/host_vars/node1.yml").read_text()
        assert (tmp_path / "group_vars/all/torque.yml").read_text() == "all: 1\n"
    assert (tmp_path / "host_vars/node2.yml").read_text() == "own: 2\n"


def test_queues_of_two_classes_send_jobs_to_their_class():
    """Each by default asks for a property that the nodes of one class have, and no others; all nodes have one."""
    variables = yaml.safe_load((EXAMPLES / "two-classes/group_vars/torque_server.yml").read_text())
    properties = {name: node["properties"] for name, node in variables["torque_server_node_attributes"].items()}
    assert properties == {"node1": ["shared"], "node2": ["fast"]}
    queues = {queue["checkpoint_dir"]: queue["resources_default.nodes"] for queue in variables["torque_server_queues"].values()}
    assert queues == {"/shared/ckpt": "1:shared", "/fast/ckpt": "1:fast"}


def test_shared_nfs_is_the_site_of_the_scenario():
    """What `make nfs` sets up: the same groups, and the same variables of the layout; it has keys, accounts and addresses of its own."""
    scenario = yaml.safe_load((TOP / "molecule/store_nfs/molecule.yml").read_text())
    example = EXAMPLES / "shared-nfs"
    groups = yaml.safe_load((example / "inventory.yml").read_text())
    members = {(name.replace("node[1:2]", node), group) for group, entry in groups.items() for name in entry["hosts"]
               for node in ("node1", "node2")}
    assert members == {(host["name"], group) for host in scenario["platforms"] for group in host["groups"]}
    own = {"checkpoint_hooks_keys", "checkpoint_store_users", "criu_source", "validate_user"}
    common, nfs = (yaml.safe_load((example / path).read_text()) for path in ("group_vars/all/main.yml", "host_vars/nfs.yml"))
    inventory = scenario["provisioner"]["inventory"]
    tested = dict({"checkpoint_store_path": "/shared/ckpt"}, **inventory["group_vars"]["all"])  # that is the default
    assert {name: tested.get(name) for name in set(common) - own} == {name: common[name] for name in set(common) - own}
    tested = inventory["host_vars"]["nfs"]
    assert set(nfs) <= set(tested) and nfs["checkpoint_store_path"] == tested["checkpoint_store_path"]
