"""TCP connections in CRIU's images: with whom they are, and what is under way in them.

The image of open files has an entry for each socket (images/fdinfo.proto, images/sk-inet.proto of CRIU; read of version 4.2). That of a
connection has one entry (images/tcp-stream.proto), then what the socket has received and the process has not read, then what the process
has written and the other end has not confirmed. A socket whose connection was closed has one, too.

CRIU sends what was written while it restores a socket, when the other end may not be there yet; then the connection is lost. As both
ends are in the image here, it is put where it goes: it is then what the other end has received.

A socket whose other end was closed has no other one in the image: the kernel alone had that, or nobody. CRIU needs a raw socket to restore
that it was closed. So it is put back in the image as if that were still to come, and the restart creates the other end and closes it.

The numbers of bytes show what the kernel has carried between the moments in which CRIU read the two ends; not what came to an empty queue
between two system calls of CRIU's (length, number of the next byte).
"""
from collections import namedtuple

from ..system import tcp_repair
from ..system.addresses import format_end, is_loopback, unmap_address
from .criu_files import OpenFiles, name_image
from .criu_wire import (BYTES, COMMON, FIRST, LENGTH, NUMBER, Unreadable, get_number, get_only_value, parse_fields, read_image,
                        replace_values, write_image)

_LARGEST_STREAM = 1 << 30
"""How long the image of a connection may be (bytes): what both queues of a socket have."""

_STREAM_NAME, _TCP_STREAM = "tcp-stream-%x.img", 0x51465506
_INET = 4
_INODE, _TYPE, _STATE, _SOURCE_PORT, _TARGET_PORT, _SOURCE, _TARGET, _SHUTDOWN = 2, 4, 6, 7, 8, 11, 12, 19
_STREAM = 1
_ESTABLISHED, _CLOSED, _CLOSE_WAIT, _LISTENING = 1, 7, 8, 10
_HALF_CLOSED = (4, 5, 8, 9, 11)
"""FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING."""
_READ = 1
"""The bit that says that a socket was shut down for reading."""
_IN_LENGTH, _IN_NEXT, _OUT_LENGTH, _OUT_NEXT, _UNSENT, _WINDOW, _IN_WINDOW, _IN_SHOWN = 1, 2, 3, 4, 12, 14, 16, 17
"""Of a stream: bytes received and not read, number of the next one that it expects; bytes written and not confirmed, number of the next
one that the process writes; how many of those were not sent; how many after the confirmed ones the other end takes; how many this
end takes after which one."""

End = namedtuple("End", "inode state source target")
"""A TCP socket: its inode and state (int), its own and the other end's address (bytes) and port (0 for one that was never connected)."""


def _get_address(data: bytes, field: int) -> bytes:
    """Return an address, 4 or 16 bytes, of the entry of a socket."""
    words = []
    for number, kind, value in parse_fields(data):
        if number == field:
            if kind != NUMBER or value >= 1 << 32:
                raise Unreadable("an address in it is of another kind")
            words.append(LENGTH.pack(value))
    address = b"".join(words)
    if len(address) not in (4, 16):
        raise Unreadable("an address in it has %d bytes" % len(address))
    return unmap_address(address)


def list_ends(files: OpenFiles) -> "list[End]":
    """Return the TCP sockets among the open files of an image.

    :raises Unreadable: when the image is not as CRIU writes it
    """
    ends = []
    with name_image():
        for entry in files.entries:
            socket = get_only_value(entry, _INET, BYTES)
            if socket is None or get_only_value(socket, _TYPE, NUMBER) != _STREAM:
                continue
            inode, state, *ports = (get_number(socket, field) for field in (_INODE, _STATE, _SOURCE_PORT, _TARGET_PORT))
            source, target = (_get_address(socket, field) for field in (_SOURCE, _TARGET))
            ends.append(End(inode, state, (source, ports[0]), (target, ports[1])))
    return ends


def _name(end: End) -> str:
    """Return which connection an end is of, for a sentence."""
    return "that from %s to %s" % (format_end(*end.source), format_end(*end.target))


def _is_connected(end: End) -> bool:
    return end.state not in (_CLOSED, _LISTENING)


def has_connection(ends: "list[End]") -> bool:
    """Return whether one of these sockets has a connection."""
    return any(map(_is_connected, ends))


def _list_connected(ends: "list[End]") -> "set[tuple]":
    """Return (source, target) of those that have a connection."""
    return {(end.source, end.target) for end in ends if _is_connected(end)}


def _list_lone_ends(ends: "list[End]", state: int) -> "list[End]":
    """Return those in this state that are on the loopback interface, and whose other ends are not among these sockets."""
    connected = _list_connected(ends)
    return [end for end in ends if end.state == state and is_loopback(end.source[0]) and is_loopback(end.target[0])
            and (end.target, end.source) not in connected]


def list_left_ends(ends: "list[End]") -> "list[End]":
    """Return those of an image that CRIU has written whose other ends were closed."""
    return _list_lone_ends(ends, _CLOSE_WAIT)


def list_ends_to_leave(ends: "list[End]") -> "list[End]":
    """Return those of an image in which put_back() has put that their other ends were closed."""
    return _list_lone_ends(ends, _ESTABLISHED)


def find_foreign_connection(ends: "list[End]", lone: "list[End]") -> str:
    """Return which connection is not between two of these sockets on the loopback interface; empty if none.

    :param lone: ends that need no other one
    """
    connected = _list_connected(ends)
    for source, target in sorted(connected.difference((end.source, end.target) for end in lone)):
        if not is_loopback(source[0]) or not is_loopback(target[0]) or (target, source) not in connected:
            return "a TCP connection from %s to %s" % (format_end(*source), format_end(*target))
    return ""


def find_half_closed_connection(ends: "list[End]", left: "list[End]") -> str:
    """Return which connection was closed by one side; empty if none.

    CRIU needs a raw socket to restore it, to which the job's owner has no right.

    :param left: from list_left_ends()
    """
    for end in ends:
        if end.state in _HALF_CLOSED and end not in left:
            return _name(end) + " is half-closed"
    return ""


def _disconnect(entry: bytes) -> bytes:
    """Return the entry of an open file; that of a socket whose connection both sides have closed without it."""
    socket = get_only_value(entry, _INET, BYTES)
    if (socket is None or get_only_value(socket, _TYPE, NUMBER) != _STREAM or get_number(socket, _STATE) != _CLOSED
            or not get_number(socket, _TARGET_PORT)):
        return entry
    if not (get_only_value(socket, _SHUTDOWN, NUMBER) or 0) & _READ:
        raise Unreadable("a closed connection in it can be read")
    return replace_values(entry, {_INET: replace_values(socket, {_SOURCE_PORT: 0, _TARGET_PORT: 0})})


def drop_closed_connections(directory: int, files: OpenFiles, ends: "list[End]") -> str:
    """Have sockets that a process has open after both sides closed their connection be restored without one.

    CRIU needs a raw socket to restore such a connection, too. For its process the socket is the same without: nothing can be read or
    written. But the address that it had is lost.

    Return which cannot, since it has received what its process has not read; empty if all can. Nothing was changed then.

    :param directory: of the image (descriptor)
    :param files: of the image; saved by the caller
    :param ends: from list_ends()
    :raises Unreadable: when an image is not as CRIU writes it
    """
    closed = [end for end in ends if end.state == _CLOSED and end.target[1]]
    for end in closed:
        if _read_stream(directory, end).has_received():
            return _name(end) + " was closed, and a process has not read all that came"
    if closed:
        files.change(_disconnect)
    return ""


class Stream:
    """What is under way at one end of a connection.

    :param data: the end's image
    :raises Unreadable: when it is not as CRIU writes it
    """

    def __init__(self, data: bytes) -> None:
        if len(data) < FIRST.size:
            raise Unreadable("it has %d bytes" % len(data))
        common, stream, length = FIRST.unpack_from(data)
        if (common, stream) != (COMMON, _TCP_STREAM) or length > len(data) - FIRST.size:
            raise Unreadable("it is not the image of a connection")
        position = FIRST.size + length
        self._entry = data[FIRST.size:position]
        self._numbers = {field: get_number(self._entry, field) for field in (_IN_LENGTH, _IN_NEXT, _OUT_LENGTH, _OUT_NEXT)}
        self._window = get_only_value(self._entry, _WINDOW, NUMBER)
        received, written = self._numbers[_IN_LENGTH], self._numbers[_OUT_LENGTH]
        if len(data) - position != received + written:
            raise Unreadable("it has %d bytes for %d received and %d written" % (len(data) - position, received, written))
        self._received, self._written = data[position:position + received], data[position + received:]
        self.is_changed = False

    def has_received(self) -> bool:
        """Whether this end has received something that its process has not read."""
        return bool(self._received)

    def deliver(self, other: "Stream") -> bool:
        """Put what the process has written and the other end has not received there.

        Return whether all of it is in the image: the kernel may have carried bytes after CRIU had read the other end, and before it read
        this one.
        """
        missing = (self._numbers[_OUT_NEXT] - other._numbers[_IN_NEXT]) % (1 << 32)
        if missing > len(self._written):
            return False
        if self._written:
            if self._window is not None:
                self._window = max(0, self._window - len(self._written))
            other._received += self._written[len(self._written) - missing:]
            other._numbers[_IN_NEXT] = self._numbers[_OUT_NEXT]
            self._written = b""
            self.is_changed = other.is_changed = True
        return True

    def put_back(self) -> bool:
        """Have this end not know yet that the other one was closed; return whether that can be: nothing that was written is under way."""
        for field, change in ((_IN_NEXT, -1), (_IN_WINDOW, 1), (_IN_SHOWN, -1)):
            self._numbers[field] = ((get_only_value(self._entry, field, NUMBER) or 0) + change) % (1 << 32)
        return not self._written

    def close_other(self, end: End) -> None:
        """Close the other end of this one's connection; raise what tcp_repair.close_end() does."""
        tcp_repair.close_end(end.target, end.source, self._numbers[_OUT_NEXT], self._numbers[_IN_NEXT])

    def build_image(self) -> bytes:
        """Return the image of this end (bytes)."""
        numbers = dict(self._numbers)
        numbers.update({_IN_LENGTH: len(self._received), _OUT_LENGTH: len(self._written), _UNSENT: 0})
        if self._window is not None:
            numbers[_WINDOW] = self._window
        entry = replace_values(self._entry, numbers)
        return FIRST.pack(COMMON, _TCP_STREAM, len(entry)) + entry + self._received + self._written


def _read_stream(directory: int, end: End) -> Stream:
    """Return what is under way at an end of a connection of the image in directory (descriptor).

    :raises Unreadable: when its image is not as CRIU writes it
    """
    name = _STREAM_NAME % end.inode
    try:
        return Stream(read_image(directory, name, _LARGEST_STREAM))
    except Unreadable as error:
        raise Unreadable("%s: %s" % (name, error))
    except FileNotFoundError:
        raise Unreadable("%s does not exist" % name)


def settle(directory: int, ends: "list[End]") -> str:
    """Put what is under way between these sockets where it goes, in the images in directory (descriptor).

    Return which connection cannot be restored, and why; empty if all can.

    :raises Unreadable: when an image is not as CRIU writes it
    """
    established = {(end.source, end.target): end for end in ends if end.state == _ESTABLISHED}
    for (source, target), end in sorted(established.items()):
        peer = established.get((target, source))
        if peer is None or source > target:
            continue  # without a peer it is foreign; with one it is looked at from the other side
        streams = {one: _read_stream(directory, one) for one in (end, peer)}
        if not streams[end].deliver(streams[peer]) or not streams[peer].deliver(streams[end]):
            return _name(end) + " still carried bytes"
        for one, stream in streams.items():
            if stream.is_changed:
                write_image(directory, _STREAM_NAME % one.inode, stream.build_image())
    return ""


def put_back(directory: int, files: OpenFiles, left: "list[End]") -> str:
    """Have the other ends of these ones be closed by the restart, in the images in directory (descriptor).

    Return which cannot, and why; empty if all can.

    :param files: of the image; saved by the caller
    :param left: from list_left_ends()
    :raises Unreadable: when an image is not as CRIU writes it
    """
    for end in left:
        stream = _read_stream(directory, end)
        if not stream.put_back():
            return _name(end) + " is half-closed"
        write_image(directory, _STREAM_NAME % end.inode, stream.build_image())
    inodes = {end.inode for end in left}

    def reopen(entry: bytes) -> bytes:
        socket = get_only_value(entry, _INET, BYTES)
        if socket is None or get_number(socket, _INODE) not in inodes:
            return entry
        return replace_values(entry, {_INET: replace_values(socket, {_STATE: _ESTABLISHED})})
    if left:
        files.change(reopen)
    return ""


def close_other_ends(directory: int) -> str:
    """Close the other ends of connections that were restored, as far as they were closed; the tree stands still. With CAP_NET_ADMIN.

    Return which could not be, and why; empty if all could.

    :param directory: of the image (descriptor), on which put_back() has worked
    :raises Unreadable: when an image is not as CRIU writes it
    """
    for end in list_ends_to_leave(list_ends(OpenFiles(directory))):
        try:
            _read_stream(directory, end).close_other(end)
        except OSError as error:
            return "%s: %s" % (_name(end), error.strerror)
    return ""
