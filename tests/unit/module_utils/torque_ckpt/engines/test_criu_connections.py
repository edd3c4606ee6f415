"""TCP connections in images. The images are built here; those of the real CRIU are read by every test of real hooks with connections."""
import os
import re
import socket
import struct
import tempfile

import pytest
from core_images import message

from torque_ckpt import errors
from torque_ckpt.engines import criu, criu_connections, criu_files, criu_wire

HERE, THERE, WIDE = [0x0100007f], [0x0a00a8c0], [0, 0, 0, 0x01000000]
MAPPED = [0, 0, 0xffff0000, 0x0100007f]


def end(source, source_port, target, target_port, state=1, kind=1, inode=6, shut=None):
    """An entry of the image of open files: one end of a connection, as the word that the kernel has of addresses."""
    fields = [(1, 5), (2, inode), (3, 2), (4, kind), (5, 6), (6, state), (7, source_port), (8, target_port)]
    fields += [(11, word) for word in source] + [(12, word) for word in target] + ([] if shut is None else [(19, shut), (20, b"opts")])
    return message((1, 4), (2, 5), (4, message(*fields)))


def files_image(*entries):
    return struct.pack("<II", 0x54564319, 0x56303138) + b"".join(struct.pack("<I", len(entry)) + entry for entry in entries)


FILE = message((1, 1), (2, 1), (3, message((1, 1))))


def list_ends(data):
    """The ends in an image (bytes) of open files."""
    with tempfile.TemporaryDirectory() as path:
        with open(path + "/files.img", "wb") as stream:
            stream.write(data)
        directory = os.open(path, os.O_RDONLY)
        try:
            return criu_connections.list_ends(criu_files.OpenFiles(directory))
        finally:
            os.close(directory)


def foreign(*entries):
    return criu_connections.find_foreign_connection(list_ends(files_image(*entries)), [])


def half_closed(*entries):
    return criu_connections.find_half_closed_connection(list_ends(files_image(*entries)), [])


@pytest.mark.parametrize("entries, wanted", [
    ([], ""), ([FILE], ""),
    ([end(HERE, 5, HERE, 6), FILE, end(HERE, 6, HERE, 5)], ""),
    ([end(WIDE, 5, WIDE, 6), end(WIDE, 6, WIDE, 5)], ""),
    ([end(MAPPED, 5, MAPPED, 6), end(HERE, 6, HERE, 5)], ""),
    ([end(HERE, 5, HERE, 0, state=10), end(HERE, 5, HERE, 0, state=7), end(THERE, 5, THERE, 6, kind=2)], ""),
    ([end(HERE, 5, HERE, 6)], "a TCP connection from 127.0.0.1:5 to 127.0.0.1:6"),
    ([end(HERE, 5, HERE, 6, state=4)], "a TCP connection from 127.0.0.1:5 to 127.0.0.1:6"),
    ([end(HERE, 5, HERE, 6), end(HERE, 6, HERE, 7)], "a TCP connection from 127.0.0.1:5 to 127.0.0.1:6"),
    ([end(HERE, 5, THERE, 6), end(THERE, 6, HERE, 5)], "a TCP connection from 127.0.0.1:5 to 192.168.0.10:6"),
    ([end(THERE, 5, THERE, 6), end(THERE, 6, THERE, 5)], "a TCP connection from 192.168.0.10:5 to 192.168.0.10:6"),
    ([end(WIDE, 5, WIDE, 6)], "a TCP connection from [::1]:5 to [::1]:6"),
])
def test_connection_with_something_outside_the_image(entries, wanted):
    assert foreign(*entries) == wanted


@pytest.mark.parametrize("data, why", [
    (b"", "it is not the image of open files"), (bytes(8), "it is not the image of open files"),
    (files_image(FILE)[:-1], "an entry in it does not end"), (files_image() + b"123", "an entry in it does not end"),
    (files_image(message((4, 7))), "field 4 is there 1 times or of another kind"),
    (files_image(end([], 5, HERE, 6)), "an address in it has 0 bytes"),
    (files_image(end([1 << 32], 5, HERE, 6)), "an address in it is of another kind"),
    (files_image(message((4, message((4, 1), (6, 1), (7, 5), (8, 6))))), "it has no field 2"),
])
def test_image_of_open_files_that_is_not_as_criu_writes_it(data, why):
    with pytest.raises(criu_wire.Unreadable) as caught:
        list_ends(data)
    assert str(caught.value) == "files.img: " + why


def test_every_bit_of_an_image_of_open_files_is_read_or_refused():
    good = files_image(end(HERE, 5, HERE, 6), FILE, end(HERE, 6, HERE, 5))
    for position in range(8 * len(good)):
        data = bytearray(good)
        data[position // 8] ^= 1 << position % 8
        try:
            assert isinstance(list_ends(bytes(data)), list)
        except criu_wire.Unreadable:
            pass


@pytest.mark.parametrize("state", [4, 5, 8, 9, 11])
def test_half_closed_connection(state):
    good = [end(HERE, 5, HERE, 6), FILE, end(HERE, 6, HERE, 5), end(HERE, 7, HERE, 0, state=10), end(HERE, 7, HERE, 0, kind=2)]
    assert half_closed(*good) == ""
    assert half_closed(*(good + [end(HERE, 8, HERE, 9, state=state)])) == (
        "that from 127.0.0.1:8 to 127.0.0.1:9 is half-closed")


# What is under way

def stream_image(received=b"", in_next=7, written=b"", out_next=9, unsent=0, window=100, **other):
    """The image of an end. in_next and out_next number the bytes after those that it has received and written."""
    fields = [(1, len(received)), (2, in_next), (3, len(written)), (4, out_next), (5, 1), (12, unsent), (13, 3)]
    fields += [(14, window), (15, 999), (16, other.get("takes", 500)), (17, other.get("shown", 7))] * (window is not None)
    entry = message(*fields)
    return struct.pack("<III", 0x54564319, other.get("kind", 0x51465506), len(entry)) + entry + received + written


HOST = b"\x7f\0\0\1"
ENDS = (criu_connections.End(0x1f, 1, (HOST, 5), (HOST, 6)), criu_connections.End(0x20, 1, (HOST, 6), (HOST, 5)))
NAMES = ("tcp-stream-1f.img", "tcp-stream-20.img")


@pytest.fixture
def settle(tmp_path):
    """Return a function that settles what is under way between two ends (bytes each), and returns what was said and both."""
    def settle(*images, ends=ENDS, names=NAMES):
        for name, image in zip(names, images):
            (tmp_path / name).write_bytes(image)
        directory = os.open(str(tmp_path), os.O_RDONLY)
        try:
            said = criu_connections.settle(directory, ends)
        finally:
            os.close(directory)
        return (said,) + tuple((tmp_path / name).read_bytes() for name in names)
    return settle


def test_what_is_under_way_becomes_what_has_arrived(settle):
    """Both ends have written what the other has not received."""
    here = stream_image(b"read me", 50, b"hello", 105, unsent=3)
    there = stream_image(b"", 100, b"world!", 56, unsent=6)
    assert settle(here, there) == (
        "", stream_image(b"read meworld!", 56, b"", 105, window=95), stream_image(b"hello", 105, b"", 56, window=94))


def test_what_has_arrived_and_was_not_confirmed_arrives_once(settle):
    here = stream_image(b"", 50, b"hello", 105)
    there = stream_image(b"hel", 103, b"", 50)
    assert settle(here, there) == ("", stream_image(b"", 50, b"", 105, window=95), stream_image(b"hello", 105, b"", 50))
    all_there = stream_image(b"lo", 105, b"", 50)
    assert settle(here, all_there) == ("", stream_image(b"", 50, b"", 105, window=95), all_there)


def test_numbers_of_bytes_begin_anew_after_the_largest(settle):
    here = stream_image(b"", 50, b"hello", 2)
    there = stream_image(b"", (1 << 32) - 3, b"", 50)
    assert settle(here, there) == ("", stream_image(b"", 50, b"", 2, window=95), stream_image(b"hello", 2, b"", 50))


def test_window_never_is_less_than_nothing_and_may_be_absent(settle):
    there = stream_image(b"", 100, b"", 50)
    assert settle(stream_image(b"", 50, b"hello", 105, window=4), there)[1] == stream_image(b"", 50, b"", 105, window=0)
    assert settle(stream_image(b"", 50, b"hello", 105, window=None), there)[1] == stream_image(b"", 50, b"", 105, window=None)


def test_connection_at_rest_is_not_written(settle, tmp_path):
    images = stream_image(b"x", 50, b"", 105, unsent=1), stream_image(b"", 105, b"", 50)  # it would say 0 if it were
    assert settle(*images) == ("",) + images


def test_connection_of_a_socket_with_itself(settle):
    end = criu_connections.End(0x1f, 1, (HOST, 5), (HOST, 5))
    assert settle(stream_image(b"h", 101, b"ello", 105, unsent=4), ends=[end], names=NAMES[:1]) == (
        "", stream_image(b"hello", 105, b"", 105, window=96))


@pytest.mark.parametrize("here, there", [
    (stream_image(b"", 50, b"", 105), stream_image(b"", 100, b"", 50)),  # sent and confirmed since CRIU had read the other end
    (stream_image(b"", 50, b"lo", 105), stream_image(b"", 100, b"", 50)),
    (stream_image(b"", 49, b"", 105), stream_image(b"", 105, b"", 50)),
    (stream_image(b"", 50, b"hello", 105), stream_image(b"", 106, b"", 50))])
def test_what_was_carried_while_the_image_was_written_is_not_lost(settle, here, there):
    assert settle(here, there) == ("that from 127.0.0.1:5 to 127.0.0.1:6 still carried bytes", here, there)


@pytest.mark.parametrize("image, why", [
    (b"", "it has 0 bytes"), (stream_image(kind=0x55053847), "it is not the image of a connection"),
    (stream_image()[:14], "it is not the image of a connection"), (stream_image() + b"xy", "it has 2 bytes for 0 received and 0 written"),
    (stream_image(b"a", 7, b"bc")[:-1], "it has 2 bytes for 1 received and 2 written"),
    (struct.pack("<III", 0x54564319, 0x51465506, 2) + message((1, 0)), "it has no field 2"),
    (struct.pack("<III", 0x54564319, 0x51465506, 4) + message((1, 0), (1, 0)), "field 1 is there 2 times or of another kind")])
def test_image_of_a_connection_that_is_not_as_criu_writes_it(settle, image, why):
    with pytest.raises(criu_wire.Unreadable) as caught:
        settle(stream_image(), image)
    assert str(caught.value) == "tcp-stream-20.img: " + why


def test_message_with_other_numbers():
    before = message((1, 5), (2, b"text"), (300, 1 << 40)) + b"\x29" + b"12345678" + b"\x35" + b"1234"
    assert criu_wire.replace_values(before, {}) == before
    assert criu_wire.replace_values(before, {1: 1 << 31, 300: 0, 7: 1}) == (
        message((1, 1 << 31), (2, b"text"), (300, 0)) + b"\x29" + b"12345678" + b"\x35" + b"1234")


# The engine

TWO = [end(HERE, 5, HERE, 6, inode=0x1f), end(HERE, 6, HERE, 5, inode=0x20)]


CLOSED = end(HERE, 5, HERE, 6, state=7, inode=0x1f, shut=1)
LEFT = end(HERE, 5, HERE, 6, state=8, inode=0x1f, shut=1)


@pytest.fixture
def engine_settles(tmp_path):
    """Return a function that has the engine settle the connections of an image (content by name); it returns the error, or None."""
    def settle(files):
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        directory = os.open(str(tmp_path), os.O_RDONLY)
        try:
            return criu.Criu.settle(object.__new__(criu.Criu), directory, True)
        except errors.HookError as error:
            return error.code, error.cause, error.sentence
        finally:
            os.close(directory)
    return settle


LOST = ("the TCP connections of the job could not be restored as they were when its image was written (that from 127.0.0.1:5 to "
        "127.0.0.1:6 %s); the job keeps running; try again")
UNREADABLE = ("an image of open files or connections is not as CRIU writes it: %s; the job keeps running; install the version of CRIU that "
              "the role criu builds")


@pytest.mark.parametrize("files, wanted", [
    ({"files.img": files_image()}, False), ({"files.img": files_image(end(HERE, 5, HERE, 0, state=10))}, False),
    ({"files.img": files_image(*TWO), NAMES[0]: stream_image(b"", 7, b"abc", 12), NAMES[1]: stream_image(b"", 9, b"", 7)}, True),
    ({"files.img": files_image(*TWO), NAMES[0]: stream_image(b"", 7, b"", 12), NAMES[1]: stream_image(b"", 9, b"", 7)},
     (errors.TEMPORARY, errors.CARRYING, LOST % "still carried bytes")),
    ({"files.img": files_image(end(HERE, 5, HERE, 6, state=8), TWO[1])}, (errors.TEMPORARY, "", LOST % "is half-closed")),
    ({"files.img": files_image(LEFT), NAMES[0]: stream_image(b"", 7, b"x", 10)}, (errors.TEMPORARY, "", LOST % "is half-closed")),
    ({"files.img": files_image(LEFT)}, (errors.ENGINE, "", UNREADABLE % "tcp-stream-1f.img does not exist")),
    ({"files.img": files_image(end(THERE, 5, THERE, 6, state=8))},
     (errors.REFUSED, "", "the job was connected with something outside it while its image was written (a TCP connection from "
      "192.168.0.10:5 to 192.168.0.10:6); the job keeps running; try again when that connection is closed")),
    ({"files.img": files_image(TWO[0], end(HERE, 6, HERE, 9))},
     (errors.REFUSED, "", "the job was connected with something outside it while its image was written (a TCP connection from "
      "127.0.0.1:5 to 127.0.0.1:6); the job keeps running; try again when that connection is closed")),
    ({"files.img": files_image(CLOSED), NAMES[0]: stream_image(b"x")},
     (errors.TEMPORARY, "", LOST % "was closed, and a process has not read all that came")),
    ({"files.img": files_image(CLOSED)}, (errors.ENGINE, "", UNREADABLE % "tcp-stream-1f.img does not exist")),
    ({"files.img": files_image(end(HERE, 5, HERE, 6, state=7, inode=0x1f, shut=2)), NAMES[0]: stream_image()},
     (errors.ENGINE, "", UNREADABLE % "files.img: a closed connection in it can be read")),
    ({"files.img": b"x"}, (errors.ENGINE, "", UNREADABLE % "files.img: it is not the image of open files")),
    ({}, (errors.ENGINE, "", UNREADABLE % "files.img: it does not exist")),
    ({"files.img": files_image(*TWO), NAMES[0]: stream_image()}, (errors.ENGINE, "", UNREADABLE % "tcp-stream-20.img does not exist"))])
def test_engine_settles_connections(engine_settles, files, wanted):
    assert engine_settles(files) == wanted


def test_socket_whose_connection_was_closed_has_none(engine_settles, tmp_path):
    """CRIU takes it for one that was never connected then; what a process reads and writes is the same."""
    others = [FILE, end(WIDE, 7, HERE, 0, state=7, shut=1), end(THERE, 5, THERE, 6, kind=2, state=7)]  # never connected, and not of TCP
    assert engine_settles({"files.img": files_image(*others, CLOSED, FILE), NAMES[0]: stream_image()}) is False
    assert (tmp_path / "files.img").read_bytes() == files_image(
        *others, end(HERE, 0, HERE, 0, state=7, inode=0x1f, shut=1), FILE)


def test_socket_whose_other_end_was_closed_is_put_back(engine_settles, tmp_path):
    """The restart closes it once more."""
    assert engine_settles({"files.img": files_image(FILE, LEFT), NAMES[0]: stream_image(b"left", 1 << 31, shown=1 << 31)}) is True
    assert (tmp_path / "files.img").read_bytes() == files_image(FILE, end(HERE, 5, HERE, 6, inode=0x1f, shut=1))
    assert (tmp_path / NAMES[0]).read_bytes() == stream_image(b"left", (1 << 31) - 1, shown=(1 << 31) - 1, takes=501)


@pytest.mark.parametrize("data, wanted", [
    (files_image(), ""), (files_image(TWO[0]), ""), (files_image(LEFT), "a TCP connection from 127.0.0.1:5 to 127.0.0.1:6"),
    (files_image(end(THERE, 5, THERE, 6)), "a TCP connection from 192.168.0.10:5 to 192.168.0.10:6"),
    (b"x", "an image of a connection is not as CRIU writes it: files.img: it is not the image of open files")])
def test_engine_finds_foreign_connections(tmp_path, data, wanted):
    (tmp_path / "files.img").write_bytes(data)
    directory = os.open(str(tmp_path), os.O_RDONLY)
    assert criu.Criu.find_foreign_connection(object.__new__(criu.Criu), directory) == wanted
    os.close(directory)


@pytest.fixture
def engine_completes(tmp_path):
    """Return a function that has the engine complete the connections of an image (content by name); it returns the error, or None."""
    def complete(files):
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        directory = os.open(str(tmp_path), os.O_RDONLY)
        try:
            criu.Criu.complete_connections(object.__new__(criu.Criu), directory)
        except errors.HookError as error:
            return error.code, re.sub(r":\d+( |:)", r":N\1", error.sentence)
        finally:
            os.close(directory)
        return None
    return complete


def number_of(socket_, queue):
    socket_.setsockopt(socket.IPPROTO_TCP, 20, queue)
    return struct.unpack("=I", socket_.getsockopt(socket.IPPROTO_TCP, 21, 4))[0]


@pytest.mark.root
def test_restart_closes_other_ends(engine_completes):
    """The kernel's own socket is that of CRIU: in repair mode, with all that had come but the end."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        client = socket.create_connection(listener.getsockname())
        server = listener.accept()[0]
        server.send(b"left")
    ports = client.getsockname()[1], server.getsockname()[1]
    for one in client, server:
        one.setsockopt(socket.IPPROTO_TCP, 19, 1)
    image = {"files.img": files_image(*(TWO + [end(HERE, ports[0], HERE, ports[1], inode=0x21)])), "tcp-stream-21.img": stream_image(
        b"", number_of(client, 1), b"", number_of(client, 2))}
    failed = "the other end of a TCP connection of the image cannot be closed on this node (that from 127.0.0.1:N to 127.0.0.1:N: %s); try "
    failed += "again later or on another node; image kept"
    assert engine_completes(image) == (errors.TEMPORARY, failed % "Cannot assign requested address")
    server.close()  # silently
    assert engine_completes(image) is None
    client.setsockopt(socket.IPPROTO_TCP, 19, 0)
    with client:
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\10"
        assert client.getpeername() == ("127.0.0.1", ports[1])
        assert [client.recv(9), client.recv(9), client.send(b"x")] == [b"left", b"", 1]
        with pytest.raises(BrokenPipeError):
            client.send(b"x")


def test_image_that_is_not_as_criu_writes_it_at_a_restart(engine_completes):
    assert engine_completes({"files.img": files_image(TWO[0])}) == (
        errors.ENGINE, "an image of a connection is not as CRIU writes it: tcp-stream-1f.img does not exist; the image is kept; install "
                       "the version of CRIU that the role criu builds")


@pytest.mark.parametrize("name, most", [("files.img", "criu_files.LARGEST"), (NAMES[1], "criu_connections._LARGEST_STREAM")])
def test_image_that_is_too_long(engine_settles, monkeypatch, name, most):
    monkeypatch.setattr("torque_ckpt.engines." + most, 400)
    files = {"files.img": files_image(*TWO), NAMES[0]: stream_image(), NAMES[1]: stream_image()}
    assert engine_settles(dict(files, **{name: files[name].ljust(401, b"\0")})) == (
        errors.ENGINE, "", UNREADABLE % (name + ": it has more than 400 bytes"))
