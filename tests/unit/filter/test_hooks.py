"""Where the hooks of a host look for images, and when a key may seal them; test_key_rotation.py asks the role."""
import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.ckpt.torque.plugins.filter import hooks

SHARED, OWN = {"path": "/shared/ckpt", "id": "default", "shared": True}, {"path": "/scratch/ckpt", "id": "local", "shared": False}
SERVER = "/var/spool/torque/checkpoint"


@pytest.mark.parametrize("stores, is_node, expected", [
    ([SHARED, OWN], True, [("/shared/ckpt", "default"), ("/scratch/ckpt", "local")]),
    ([SHARED, OWN], False, [("/shared/ckpt", "default"), (SERVER, "local")]),
    ([OWN, dict(OWN, id="other")], False, [(SERVER, "local")]),
    ([dict(OWN, shared="no")], False, [(SERVER, "local")]),
    ([{"path": "/x", "id": "x"}], False, [("/x", "x")]),
    ([SHARED, dict(SHARED, id="again")], True, [("/shared/ckpt", "default")]),
])
def test_stores(stores, is_node, expected):
    assert hooks.hook_stores(stores, SERVER, is_node) == [{"path": path, "id": store_id} for path, store_id in expected]


def ask(own, nodes, missing=()):
    variables = {name: {} if ids is None else {"checkpoint_hooks_engine_info": {"key_ids": ids}} for name, ids in nodes.items()}
    return hooks.early_key_reason("2026", own, variables, list(missing))


@pytest.mark.parametrize("own, nodes, missing, reason", [
    ([], {"node1": [], "node2": ["2025"]}, [], ""),
    (["2026", "2025"], {"node1": ["2025"]}, ["node2"], ""),
    (["2025"], {"node1": ["2025"], "node2": ["2025"]}, ["node3"], "node1, node2 do not have it yet"),
    (["2025", "2026"], {"node1": ["2025", "2026"], "node2": ["2025"]}, [], "node2 does not have it yet"),
    (["2025", "2026"], {"node1": ["2025"], "node2": ["2026", "2025"]}, [], ""),
    (["2025", "2026"], {"node1": ["2025", "2026"], "node2": None}, [], ""),
    (["2025", "2026"], {"node1": ["2025", "2026"]}, ["node2"], "nobody knows whether node2 has it: run site.yml without --limit"),
    (["2025", "2026"], {}, ["node1", "node2"], "nobody knows whether node1, node2 have it: run site.yml without --limit"),
])
def test_key_that_is_to_seal(own, nodes, missing, reason):
    assert ask(own, nodes, missing) == reason


def test_node_that_reported_nothing():
    assert hooks.early_key_reason("2026", ["2025"], {"node1": {"checkpoint_hooks_engine_info": {"failed": True}}}, []) == ""


def test_keys_that_are_right():
    value = [{"id": "2026", "secret": "0123456789abcdef" * 4}]
    assert hooks.checked_keys(value) == value


def test_keys_that_are_wrong():
    with pytest.raises(AnsibleFilterError) as caught:
        hooks.checked_keys([{"id": "", "secret": "0123456789abcdef" * 4}])
    assert str(caught.value) == (
        'checkpoint_hooks_keys must hold at least one key, each with an id of its own and a secret of 32 bytes or more in hexadecimal; '
        'make one with "openssl rand -hex 32" and keep it in the vault; nothing was changed')


def test_methods_that_are_right():
    value = {"own": {"signal": "USR1", "seconds": 60}}
    assert hooks.checked_methods(value) == value


@pytest.mark.parametrize("value, fault", [
    ({"own": {"file": "state"}},
     "own has a file or a restart command, but neither a signal nor a checkpoint command, which end the program"),
    ({"own": {}}, "own has neither a signal nor a checkpoint command, which end the program, nor a command before or after a checkpoint"),
    ({"own": "TERM"}, "own is not a dictionary")])
def test_methods_that_are_wrong(value, fault):
    with pytest.raises(AnsibleFilterError) as caught:
        hooks.checked_methods(value)
    assert str(caught.value) == "checkpoint_hooks_methods: %s; nothing was changed" % fault


@pytest.mark.parametrize("name, value, written", [
    ("reserve", "1073741824", 1073741824), ("depth", 3, 3), ("depth", "three", "three"), ("depth", "-1", "-1"), ("pre_program", "3", "3"),
    ("copy_memory", True, True), ("copy_memory", "1", "1"), ("of_newer_hooks", "3", "3")])
def test_number_that_is_written_as_text(name, value, written):
    """What is none stays, so that the hooks refuse it."""
    answer = hooks.typed_settings({name: value})[name]
    assert (answer, type(answer)) == (written, type(written))
