"""What makes a store unfit on a node, and which entries of $usecp would take images past the server."""
import pytest
from ansible_collections.ckpt.torque.plugins.filter import store

FIT = {"id": "default", "mode": "0755", "faults": [], "root": {"refusal": "", "squashed": False}, "uid": 1500}
SQUASHED = dict(FIT, root={"refusal": "no", "squashed": True}, faults=["it is full"])
ROOT = ("root is squashed on /s, so that nobody can make directories of jobs there; set checkpoint_store_user_directories_enabled, or "
        "export it with no_root_squash")


@pytest.mark.parametrize("described, options, faults", [
    (FIT, {}, []),
    (dict(FIT, id="other", faults=["x"]), {}, [
        "/s is another store, its name is other and not default; mount the directory that the host of group checkpoint_store has there, or "
        "correct checkpoint_store_path"]),
    (dict(FIT, id=""), {}, [
        "/s is not the store, it holds no .ckpt-torque-store; mount the directory that the host of group checkpoint_store has there, or "
        "correct checkpoint_store_path"]),
    (dict(FIT, id="", mode="", faults=["/s is no directory"], root=None), {}, ["/s is no directory"]),
    (SQUASHED, {}, ["it is full", ROOT]),
    (SQUASHED, {"user_directories": True}, ["it is full"]),
    (dict(FIT, root={"refusal": "", "squashed": None}), {}, []),
    (dict(FIT, uid=1501), {"users": ["alice", "bob"]}, [
        "user alice has uid 1501 here and 1500 on node1, and images belong to uids; give the user the same uid on all nodes"]),
])
def test_faults(described, options, faults):
    assert store.store_faults(described, FIT, "node1", "/s", "default", **options) == faults


def test_users_are_not_compared_without_one():
    nobody = dict(FIT, uid=None)
    assert store.store_faults(nobody, nobody, "node1", "/s", "default") == []


def test_usecp():
    entries = ["*:/home /home", "*:/var /var", "head:/var/spool/torque/checkpoint/ /x", "*:/var/spool/torque/checkpoint/12 /x",
               {"from": "/var/spool", "to": "/x"}, {"from": "/srv", "to": "/srv"}]
    assert store.usecp_conflicts(entries, "/var/spool/torque/checkpoint") == [entries[1], entries[2], "/var/spool"]
    assert store.usecp_conflicts([], "/var/spool/torque/checkpoint") == []
