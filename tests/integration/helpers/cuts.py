"""A network that carries nothing between two hosts while both live. It needs no firewall, which the hosts do not have."""
import contextlib

WAYS = {
    # What is sent goes to an Ethernet address that nobody has: each side waits for an answer, as behind a firewall that drops.
    "drop": ("ip neigh replace %s lladdr 02:00:00:00:00:99 nud permanent dev eth0", "ip neigh del %s dev eth0"),
    # Each side hears at once that there is no way, as from a firewall that rejects.
    "reject": ("ip route add unreachable %s", "ip route del unreachable %s"),
}


@contextlib.contextmanager
def cut(one, other, way):
    """Have no network between two hosts (Node) within the block.

    :param way: "drop" or "reject"
    """
    begin, end = WAYS[way]
    sides = [(near, near.ask("getent ahostsv4 %s" % far.name).split()[0]) for near, far in ((one, other), (other, one))]
    try:
        for near, address in sides:
            near.ask(begin % address)
        yield
    finally:
        for near, address in sides:
            near.run(end % address)
