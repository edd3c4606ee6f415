"""The mode of TCP sockets in which their connections are made without the other end (TCP_REPAIR): it needs CAP_NET_ADMIN."""
import socket
import struct

REPAIR = 19
_QUEUE, _NUMBER = 20, 21
_NO_QUEUE, _IN_QUEUE, _OUT_QUEUE = 0, 1, 2


def close_end(own: "tuple[bytes, int]", other: "tuple[bytes, int]", next_in: int, next_out: int) -> None:
    """Create one end of a connection whose other end is there, and close it: that has then received all that it ever will.

    :param own: address and port
    :param other: those of the other end, on the loopback interface
    :param next_in: number of the next byte that the other end writes
    :param next_out: number of the next byte that the other end expects
    :raises OSError: when somebody has this end, or this node does not allow it
    """
    family = socket.AF_INET if len(own[0]) == 4 else socket.AF_INET6
    with socket.socket(family) as end:
        end.setsockopt(socket.IPPROTO_TCP, REPAIR, 1)
        end.bind((socket.inet_ntop(family, own[0]), own[1]))
        for queue, number in (_IN_QUEUE, next_in), (_OUT_QUEUE, next_out):
            end.setsockopt(socket.IPPROTO_TCP, _QUEUE, queue)
            end.setsockopt(socket.IPPROTO_TCP, _NUMBER, struct.pack("=I", number))
        end.connect((socket.inet_ntop(family, other[0]), other[1]))
        end.setsockopt(socket.IPPROTO_TCP, _QUEUE, _NO_QUEUE)
        end.setsockopt(socket.IPPROTO_TCP, REPAIR, 0)  # this asks how much the other end takes
