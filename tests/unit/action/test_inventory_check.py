"""The playbooks with inventories that cannot do: refused on the controller, before any host is reached."""

import json
import os
import pathlib
import subprocess
import sys

import playbooks
import pytest
from ansible_collections.ckpt.torque.plugins.module_utils.validation import cases

KEYS = [{"id": "a", "secret": "0123456789abcdef" * 4}]
NO_KEYS = ('checkpoint_hooks_keys must hold at least one key, each with an id of its own and a secret of 32 bytes or more in hexadecimal; '
           'make one with "openssl rand -hex 32" and keep it in the vault')
HOSTS = {"node1": {}, "node2": {}}
SERVER = {"head": {}}
UNREACHED = {"ansible_host": "192.0.2.1", "ansible_ssh_common_args": "-o ConnectTimeout=1"}  # whoever tries fails


@pytest.fixture
def play(tmp_path, repository):
    """Run a playbook: play(name, groups, variables, *arguments) returns its exit status (int) and output (str)."""
    collection = tmp_path / "ansible_collections" / "ckpt"
    collection.mkdir(parents=True)
    (collection / "torque").symlink_to(repository)

    def run(name, groups, variables, *arguments):
        children = {group: {"hosts": hosts} for group, hosts in groups.items()}
        inventory = {"all": {"vars": dict(UNREACHED, **variables), "children": children}}
        (tmp_path / "hosts.json").write_text(json.dumps(inventory))
        done = subprocess.run([str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "-i", str(tmp_path / "hosts.json"),
                               "ckpt.torque." + name] + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, ANSIBLE_CONFIG=str(repository / "ansible.cfg"), ANSIBLE_NOCOLOR="1",
                                       ANSIBLE_COLLECTIONS_PATH=str(tmp_path)))
        return done.returncode, done.stdout

    return run


SLIP = ({"torque_moms": HOSTS, "torque_server": SERVER}, {},
        "the inventory has a group torque_moms, but none that is called torque_mom (the compute nodes); rename it; nothing was changed.")


@pytest.mark.parametrize("groups, variables, sentence", [
    SLIP,
    ({"torque_mom": {}, "torque_server": SERVER}, {}, "group torque_mom has no hosts; put the compute nodes into it; nothing was changed."),
    ({"torque_mom": HOSTS, "site": SERVER}, {},
     "the inventory has no group torque_server; put the host that runs pbs_server into it; nothing was changed."),
    ({"torque_mom": HOSTS, "torque_server": SERVER}, {"torque_enabled": "maybe", "checkpoint_store_users": "alice"},
     'node1 and 2 other hosts: torque_enabled is the text "maybe"; set it to true or false; node1 and 2 other hosts: '
     'checkpoint_store_users is the text "alice"; write it as a list, on the command line in JSON: '
     """-e '{"checkpoint_store_users": ["alice"]}'; nothing was changed."""),
    ({"torque_mom": dict(HOSTS, node2={"checkpoint_hooks_pid_max": "many"}), "torque_server": SERVER}, {},
     'node2: checkpoint_hooks_pid_max is the text "many"; set it to a whole number; nothing was changed.'),
])
def test_refused_before_any_host_is_reached(play, groups, variables, sentence, name="site"):
    status, output = play(name, groups, dict(variables, checkpoint_hooks_keys=KEYS))
    assert status == 2, output
    assert json.dumps(sentence)[1:-1] in output
    assert "UNREACHABLE" not in output and "unreachable=1" not in output


@pytest.mark.parametrize("patch, sentence", [
    ({"name": "ours", "variant": []}, "torque_build_site_patches.variant. Supported parameters include: name, purpose, variants."),
    ({"name": "ours", "variants": [{"from": "6.1", "under": "6.2", "file": "/srv/ours.patch"}]},
     "torque_build_site_patches.variants.under. Supported parameters include: below, file, from."),
])
def test_misspelt_key_of_a_patch(play, patch, sentence):
    status, output = play("site", {"torque_mom": HOSTS, "torque_server": SERVER},
                          {"checkpoint_hooks_keys": KEYS, "torque_build_site_patches": [patch]})
    assert status == 2 and sentence in output and "unreachable=1" not in output, output


@pytest.mark.parametrize("name", sorted(path.stem for path in playbooks.TOP.glob("playbooks/*.yml")))
def test_every_playbook_refuses(play, name):
    test_refused_before_any_host_is_reached(play, *SLIP, name=name)


@pytest.mark.parametrize("groups, arguments, sentence", [
    ({"torque_mom": HOSTS, "torque_server": SERVER}, ["--limit", "node1"],
     "adopt reads the server first, and --limit leaves it out; name it there, too; nothing was written."),
    ({"torque_mom": HOSTS}, [],
     "adopt reads the server first, and the inventory has none; name it in the group torque_server; nothing was written."),
])
def test_adopt_needs_the_server(play, groups, arguments, sentence):
    status, output = play("adopt", groups, {"torque_server_name": "head"}, *arguments)
    assert status == 2 and sentence in output, output


@pytest.mark.parametrize("name, variable, value", [
    ("site", "torque_restart_serial", 1), ("site", "torque_site_nodes", "node1"), ("plan", "torque_restart_serial", "5%"),
    ("update", "torque_restart_serial", [1, 5]), ("remove", "torque_restart_serial", 1),
])
def test_batches_in_the_inventory_are_refused(play, name, variable, value):
    """There they would be ignored, and all the more nodes restarted at a time."""
    groups = {"torque_mom": HOSTS, "torque_server": SERVER}
    sentence = ("node1 and 2 other hosts: %s is set in the inventory, where it has no effect: hosts and batches of a play are chosen "
                "before variables of hosts are known; give it to ansible-playbook by -e; nothing was changed." % variable)
    status, output = play(name, groups, {"checkpoint_hooks_keys": KEYS, variable: value})
    assert status == 2 and json.dumps(sentence)[1:-1] in output and "nreachable" not in output.replace("unreachable=0", ""), output


def test_batches_on_the_command_line(play):
    _status, output = play("plan", {"torque_mom": {"node1": {}}, "torque_server": SERVER}, {"checkpoint_hooks_keys": KEYS}, "-e",
                           "torque_restart_serial=1")
    assert "where it has no effect" not in output and "UNREACHABLE" in output, output  # further than the check


@pytest.mark.parametrize("keys", [{}, {"checkpoint_hooks_keys": [{"id": "a", "secret": "12"}]}])
def test_keys_are_asked_for_first(play, keys):
    status, output = play("site", {"torque_mom": HOSTS, "torque_server": SERVER, "torque_client": {"login": {}}}, keys)
    assert status == 2 and json.dumps("node1 and 2 other hosts: %s; nothing was changed." % NO_KEYS)[1:-1] in output, output
    assert play("validate", {"torque_mom": HOSTS, "torque_server": SERVER}, keys)[0] == 4  # proves what is installed: it needs none


FAST = {"checkpoint_store_path": "/fast/ckpt", "checkpoint_store_id": "fast"}
UNKNOWN = ("node2: the server head does not know the store /fast/ckpt (fast), so that ckpt.torque.remove, node-down and torque-ckpt there "
           "would overlook its images; mount it there, and add {path: /fast/ckpt, id: fast} to %s in group torque_server; nothing was "
           "changed.")


@pytest.mark.parametrize("node, server, sentence", [
    (FAST, {}, UNKNOWN % "checkpoint_store_additional_stores"),
    (FAST, {"checkpoint_store_additional_stores": [{"path": "/fast/ckpt", "id": "fast", "shared": "no"}]},
     UNKNOWN % "checkpoint_store_additional_stores"),
    (FAST, {"checkpoint_hooks_stores": [{"path": "/shared/ckpt", "id": "default"}]}, UNKNOWN % "checkpoint_hooks_stores"),
    ({"checkpoint_store_id": "fast"}, {"checkpoint_store_additional_stores": [{"path": "/shared/ckpt", "id": "fast"}]},
     "node2: the server head knows the store /shared/ckpt as default, not as fast; give each store a path and an id of its own; nothing "
     "was changed."),
])
def test_store_that_the_server_does_not_know(play, node, server, sentence):
    groups = {"torque_mom": dict(HOSTS, node2=node), "torque_server": {"head": server}}
    status, output = play("site", groups, {"checkpoint_hooks_keys": KEYS})
    assert status == 2 and json.dumps(sentence)[1:-1] in output, output


def test_stores_that_the_server_need_not_know(play):
    """Those of a node's own, and those that only a later task makes known. The first host is tried."""
    nodes = {"node1": dict(FAST, checkpoint_store_shared_enabled=False), "node2": dict(FAST, checkpoint_store_path="/fast/ckpt/"),
             "node3": {"checkpoint_store_path": "{{ __later }}"}}
    server = {"checkpoint_store_additional_stores": [{"path": "/fast/ckpt", "id": "fast"}]}
    status, output = play("site", {"torque_mom": nodes, "torque_server": {"head": server}}, {"checkpoint_hooks_keys": KEYS})
    assert status == 4 and "failed=1" not in output, output
    status, output = play("site", {"torque_mom": nodes}, {"checkpoint_hooks_keys": KEYS, "torque_enabled": False})
    assert status == 4 and "failed=1" not in output, output


def test_server_that_is_the_file_server_has_the_store_at_another_path(play):
    groups = {"torque_mom": HOSTS, "torque_server": {"head": {"checkpoint_store_path": "/srv/ckpt"}}, "checkpoint_store": {"head": {}}}
    status, output = play("site", groups, {"checkpoint_hooks_keys": KEYS})
    assert status == 4 and "failed=1" not in output, output
    status, output = play("site", dict(groups, torque_mom=dict(HOSTS, node2=FAST)), {"checkpoint_hooks_keys": KEYS})
    assert status == 2 and json.dumps(UNKNOWN % "checkpoint_store_additional_stores")[1:-1] in output, output


DRAIN = {"torque_mom": HOSTS, "torque_server": SERVER}


@pytest.mark.parametrize("variables, arguments, sentence", [
    ({}, (), "drain_nodes names no node; name compute nodes of the group torque_mom, as in -e drain_nodes=node17,node18; nothing was "
             "changed."),
    ({"drain_nodes": "node1,node3"}, (),
     "drain_nodes has node3, but the group torque_mom does not; correct the name, or add the node to the inventory; nothing was changed."),
    ({"drain_nodes": ["node1"]}, ("--limit", "node1"),
     "--limit leaves out head, where the jobs are moved; run without --limit: only the nodes in drain_nodes are drained; nothing was "
     "changed."),
    ({"drain_nodes": "node1", "drain_wait": "perhaps"}, (),
     'node1 and 2 other hosts: drain_wait is the text "perhaps"; set it to true or false; nothing was changed.'),
    ({"drain_nodes": "node1", "drain_jobs_at_once": "many"}, (),
     'node1 and 2 other hosts: drain_jobs_at_once is the text "many"; set it to a whole number; nothing was changed.'),
    ({"drain_nodes": "node1", "drain_state": "drain"}, (),
     "node1 and 2 other hosts: value of drain_state must be one of: drained, released, got: drain; nothing was changed."),
])
def test_drain_is_refused_before_any_host_is_reached(play, variables, arguments, sentence):
    status, output = play("drain", DRAIN, variables, *arguments)
    assert status == 2, output
    assert json.dumps(sentence)[1:-1] in output, output
    assert "UNREACHABLE" not in output and "unreachable=1" not in output


def test_store_stays_while_nodes_have_the_hooks(play):
    """Also in a run without the server and the login nodes."""
    groups = {"torque_mom": HOSTS, "torque_server": SERVER, "checkpoint_store": {"files": {}}}
    status, output = play("remove", groups, {}, "--limit", "files")
    assert status == 2 and "unreachable=1" not in output, output
    assert "the hooks are still on node1, node2, so the store keeps its export and its directories; run this again." in output


def test_drain_begins_on_the_server(play):
    status, output = play("drain", DRAIN, {"drain_nodes": "node2"})
    assert (status, output.count("UNREACHABLE")) == (4, 1) and "fatal: [head]: UNREACHABLE" in output, output


def test_validate_within_a_limit_without_nodes(play):
    status, output = play("validate", {"torque_mom": HOSTS, "torque_server": SERVER}, {}, "--limit", "head")
    assert status == 2
    assert "--limit leaves no host of group torque_mom, so that nothing would be proven; name a node in it; nothing was changed." in output


def numbers(sentence):
    return "node1 and 2 other hosts: validate_" + sentence + "; nothing was changed."


@pytest.mark.parametrize("variables, sentence", [
    ({"validate_ring": "ten"}, numbers('ring is the text "ten"; set it to a whole number')),
    ({"validate_ring": 1}, numbers("ring is 1; set it to a whole number of 2 or more")),
    ({"validate_sample": "0"}, numbers("sample is 0; set it to a whole number of 2 or more")),
    ({"validate_level": "L4"},
     "node1 and 2 other hosts: value of validate_level must be one of: L0, L1, L2, L3, got: L4; nothing was changed."),
    ({"validate_memory": 0}, numbers("memory is 0; set it to a whole number of 1 or more")),
    ({"validate_time_budget": "an hour"}, numbers('time_budget is the text "an hour"; set it to a whole number')),
    ({"validate_cases": ["move", "sideways"]},
     "node1 and 2 other hosts: value of validate_cases must be one or more of: %s. Got no match for: sideways; nothing was changed."
     % ", ".join(name for name in cases.CASES if name != "node_crash")),
])
def test_what_is_validated_is_checked_first(play, variables, sentence):
    status, output = play("validate", {"torque_mom": HOSTS, "torque_server": SERVER}, variables)
    assert status == 2, output
    assert json.dumps(sentence)[1:-1] in output, output
    assert "UNREACHABLE" not in output and "unreachable=1" not in output


def test_ring_and_sample_may_be_texts(play):
    """So -e gives them; the nodes are tried, and cannot be reached."""
    words = ["-e", "validate_ring=10", "-e", "validate_sample=20"]
    status, output = play("validate", {"torque_mom": HOSTS, "torque_server": SERVER}, {}, *words)
    assert status == 4 and "failed=1" not in output, output


@pytest.mark.parametrize("name, slip, meant", [
    ("plan", "checkpoint_hooks_depht", "checkpoint_hooks_depth"), ("adopt", "adopt_directroy", "adopt_directory"),
])
def test_slip_of_a_variable_is_told(play, name, slip, meant):
    _status, output = play(name, {"torque_mom": HOSTS, "torque_server": SERVER}, {slip: "/srv", "checkpoint_hooks_keys": KEYS})
    assert "node1 and 2 other hosts: there is no variable %s; do you mean %s?" % (slip, meant) in " ".join(output.split()), output


def test_good_inventory_passes(play):
    """On to the first host, which cannot be reached; without TORQUE no server is needed."""
    for variables in ({}, {"torque_enabled": "no", "checkpoint_store_shared_enabled": "yes"}):
        groups = {"torque_mom": HOSTS} if variables else {"torque_mom": HOSTS, "torque_server": SERVER}
        status, output = play("site", groups, dict(variables, checkpoint_hooks_keys=KEYS))
        assert status == 4 and "failed=1" not in output, output
