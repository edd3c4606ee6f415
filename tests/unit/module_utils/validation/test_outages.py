"""What a case of level L3 waits for after it has stopped and started pbs_server."""
import types

import pytest
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest.roundtrip import RoundTripError
from ansible_collections.ckpt.torque.plugins.module_utils.validation import outages


def make_trip(states):
    """Return a round trip from node1 to node2; the server has these states (iterator of str) of node2, one after the other."""
    def read_node(name):
        return types.SimpleNamespace(states=["free" if name == "node1" else next(states)])
    return types.SimpleNamespace(path=["node1", "node2", "node1"], timeout=2, read_node=read_node)


def test_nodes_of_which_the_server_hears_later():
    states = iter(["down", "free"])
    outages._await_nodes(make_trip(states))
    assert next(states, "none") == "none"


def test_node_of_which_the_server_hears_nothing():
    with pytest.raises(RoundTripError) as caught:
        outages._await_nodes(make_trip(iter(["down"] * 9)))
    assert str(caught.value) == "2 seconds after its start pbs_server.service has not heard of node2; see the log of pbs_mom there"
