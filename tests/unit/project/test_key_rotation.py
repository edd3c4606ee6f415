"""A key seals images when every node can verify them."""
import json
import os
import pathlib
import subprocess
import sys

import playbooks
import pytest

TOP = playbooks.TOP
OLD, NEW = {"id": "2025", "secret": "17" * 32}, {"id": "2026", "secret": "18" * 32}


@pytest.fixture
def keys(tmp_path):
    """Return a function: with nodes that hold keys of these ids ({name: list of str, None where it was not asked}) and a list of keys to
    be laid there, it returns the ids that node1 is given (list of str), or what ansible-playbook said (str)."""
    def ask(nodes, given, limit="all"):
        hosts = {name: {"checkpoint_hooks_engine_info": {"key_ids": ids}} if ids is not None else {} for name, ids in nodes.items()}
        (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": {"torque_mom": {"hosts": hosts}}}}))
        (tmp_path / "play.yml").write_text(json.dumps([{
            "hosts": "torque_mom", "gather_facts": False, "vars": {"checkpoint_hooks_keys": given},
            "vars_files": [str(TOP / "roles/checkpoint_hooks/vars/main.yml")],
            "tasks": [{"ansible.builtin.copy": {"dest": str(tmp_path / "{{ inventory_hostname }}.key"), "mode": "0600",
                                                "content": "{{ __checkpoint_hooks_keys }}"}}]}]))
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        done = subprocess.run([program, "-i", str(tmp_path / "hosts.json"), "-c", "local", "-l", limit, str(tmp_path / "play.yml")],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False,
                              stdin=subprocess.DEVNULL, env=dict(os.environ, ANSIBLE_CONFIG=str(TOP / "ansible.cfg"),
                                                                 ANSIBLE_COLLECTIONS_PATH=str(TOP / ".cache/checkout")))
        written = tmp_path / "node1.key"
        if done.returncode == 0:
            return [key["id"] for key in json.loads(written.read_text())["keys"]]
        assert not written.exists()
        return " ".join(done.stdout.replace('\\"', '"').split())  # ansible-core up to 2.18 prints errors as JSON
    return ask


SENTENCE = ("checkpoint_hooks_keys: the key 2026 is to seal images that other nodes could not verify, because %s; rotate in two runs: "
            "append it to the list first, put it in front when all nodes have it; nothing was changed")
BOTH = ["2025", "2026"]


@pytest.mark.parametrize("nodes, given, limit", [
    ({"node1": [], "node2": []}, [NEW], "all"),                         # a new cluster
    ({"node1": ["2025"], "node2": ["2025"]}, [OLD, NEW], "all"),        # the first run
    ({"node1": BOTH, "node2": BOTH}, [NEW, OLD], "all"),                # the second
    ({"node1": BOTH, "node2": []}, [NEW, OLD], "all"),                  # node2 has just been installed
    ({"node1": BOTH, "node2": None}, [NEW, OLD], "all"),                # node2 is down: it restarts nothing
    ({"node1": ["2025"], "node2": ["2026", "2025"]}, [NEW, OLD], "all"),  # node1 was down in both
    ({"node1": ["2026", "2025"], "node2": ["2026", "2025"]}, [NEW], "all"),
    ({"node1": ["2026"], "node2": None}, [NEW], "node1"),
    ({"node1": [], "node2": None}, [NEW], "node1"),                     # node1 is new
    ({"node1": BOTH, "node2": BOTH}, [NEW, OLD], "node1"),              # node2 was asked by an earlier play
], ids=["new", "append", "front", "with a new one", "one is down", "one was down", "take out", "limit", "new with limit", "asked before"])
def test_keys_that_are_taken(keys, nodes, given, limit):
    assert keys(nodes, given, limit) == [key["id"] for key in given]


@pytest.mark.parametrize("nodes, given, limit, why", [
    ({"node1": ["2025"], "node2": ["2025"]}, [NEW, OLD], "all", "node1, node2 do not have it yet"),
    ({"node1": BOTH, "node2": ["2025"]}, [NEW, OLD], "all", "node2 does not have it yet"),
    ({"node1": BOTH, "node2": None}, [NEW, OLD], "node1", "nobody knows whether node2 has it: run site.yml without --limit"),
    ({"node1": BOTH, "node2": ["2025"]}, [NEW, OLD], "node1", "node2 does not have it yet"),
], ids=["all lack it", "one lacks it", "limit", "limit and asked before"])
def test_key_that_seals_too_early(keys, nodes, given, limit, why):
    assert SENTENCE % why in keys(nodes, given, limit)


@pytest.mark.parametrize("given", [
    [], [dict(NEW, id="")], [NEW, dict(OLD, id="2026")], [NEW, dict(OLD, secret="17" * 31)], [NEW, dict(OLD, secret="1x" * 32)],
], ids=["none", "empty id", "same id", "short", "no hexadecimal"])
def test_keys_that_are_refused(keys, given):
    said = keys({"node1": []}, given)
    assert ('checkpoint_hooks_keys must hold at least one key, each with an id of its own and a secret of 32 bytes or more in hexadecimal; '
            'make one with "openssl rand -hex 32" and keep it in the vault; nothing was changed') in said
    assert not [key for key in given if key["secret"] in said]
