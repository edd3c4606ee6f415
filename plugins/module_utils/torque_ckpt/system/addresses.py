"""Addresses of IP sockets: 4 or 16 bytes, as they go through the network."""
import _socket  # what socket wraps, whose import takes milliseconds in each hook

_MAPPED = b"\0" * 10 + b"\xff\xff"
"""How the address of an IPv4 host begins that an IPv6 socket has."""


def unmap_address(address: bytes) -> bytes:
    """Return an address as the other end of its connection may have it: that of an IPv4 host in 4 bytes."""
    return address[len(_MAPPED):] if address.startswith(_MAPPED) else address


def format_end(address: bytes, port: int) -> str:
    """Return an address and its port as people write them."""
    address = unmap_address(address)
    if len(address) == 4:
        return "%s:%d" % (_socket.inet_ntop(_socket.AF_INET, address), port)
    return "[%s]:%d" % (_socket.inet_ntop(_socket.AF_INET6, address), port)


def is_loopback(address: bytes) -> bool:
    """Whether an address (of IPv4 in 4 bytes) is of the loopback interface."""
    return address[:1] == b"\x7f" if len(address) == 4 else address == b"\0" * 15 + b"\1"
