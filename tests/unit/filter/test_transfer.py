"""What the server knows of the nodes that copy images to it."""
from ansible_collections.ckpt.torque.plugins.filter import transfer


def test_host_keys():
    assert transfer.transfer_host_keys({
        "node1": ["generating new host keys", "names node1,10.0.0.1", "key ssh-ed25519 AAAA root@node1", "key ssh-rsa BBBB"],
        "node2": ["names node2"]}) == {"node1": "node1,10.0.0.1 ssh-ed25519 AAAA\nnode1,10.0.0.1 ssh-rsa BBBB\n", "node2": "\n"}
