"""What stands in the way of a checkpoint, by real processes that have it."""
import ctypes
import fcntl
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from torque_ckpt import errors
from torque_ckpt.engines import registry
from torque_ckpt.errors import HookError
from torque_ckpt.files import connections, obstacles, open_files, tcp_sockets
from torque_ckpt.system import addresses, privilege, processes

ALL = tuple(obstacles.KINDS)
LIBC = ctypes.CDLL(None, use_errno=True)


def look(pid, kinds=ALL, devices=(), limit=1 << 30, moves=False):
    return obstacles.find_obstacles(open_files.find_open_files(pid, []), kinds, list(devices), limit, moves)


@pytest.fixture
def seen(keep):
    """Return a function that lets a child do something and returns what stands in the way of its checkpoint: [(kind, resource)]."""
    def run(work, *arguments, **options):
        pid = keep(work)
        found = look(pid, *arguments, **options)
        assert {obstacle.pid for obstacle in found} <= {pid}
        assert all(obstacle.name == processes.read_process(pid).name for obstacle in found)
        assert all(obstacle.advice == obstacles.KINDS[obstacle.kind] for obstacle in found)
        return [(obstacle.kind, obstacle.resource) for obstacle in found]
    return run


def make_io_uring():
    descriptor = LIBC.syscall(425, 1, (ctypes.c_char * 120)())
    if descriptor < 0:
        os._exit(0)
    return descriptor


def test_ordinary_process_has_none(seen, tmp_path):
    def work():
        first, second = socket.socketpair()
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(5)
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.connect(("127.0.0.1", 9))
        return os.pipe(), first, second, listening, datagrams, socket.socket(), open(str(tmp_path / "file"), "w"), open("/dev/null")
    assert seen(work) == []


@pytest.mark.skipif(LIBC.syscall(425, 0, None) < 0 and ctypes.get_errno() in (1, 38), reason="no io_uring here")
def test_io_uring(seen):
    assert seen(make_io_uring) == [("io_uring", "has an io_uring open")]


def watch(path="/tmp"):
    descriptor = LIBC.inotify_init1(0)
    assert LIBC.inotify_add_watch(descriptor, path.encode(), 2) == 1
    return descriptor


def test_inotify(seen):
    assert seen(watch) == [("inotify", "watches files (inotify)")]
    assert seen(watch, ("tcp",)) == []
    assert seen(lambda: LIBC.inotify_init1(0)) == []


@pytest.mark.parametrize("work", [lambda: LIBC.eventfd(0, 0), lambda: LIBC.epoll_create1(0), lambda: LIBC.timerfd_create(1, 0)])
def test_kernel_objects_that_are_none(seen, work):
    assert seen(work) == []


def test_other_kernel_objects(seen, monkeypatch):
    monkeypatch.setattr(obstacles, "_KNOWN_OBJECTS", ())
    assert seen(lambda: LIBC.eventfd(0, 0)) == [("kernel_object", "has a kernel object open (eventfd)")]


def test_packet_pipe(seen):
    assert seen(lambda: os.pipe2(os.O_DIRECT)) == [("packet_pipe", "has a pipe of packets open (O_DIRECT)")]


@pytest.mark.parametrize("patterns, wanted", [
    (["/dev/nvidia*", "/dev/fu*"], [("device", "has the device /dev/full open")]),
    (["/dev/full"], [("device", "has the device /dev/full open")]),
    (["/dev/f"], []), ([], [])])
def test_device(seen, patterns, wanted):
    assert seen(lambda: os.open("/dev/full", os.O_RDONLY), devices=patterns) == wanted


def test_removed_files(seen, tmp_path):
    def work():
        first, second = tempfile.TemporaryFile(dir=str(tmp_path)), open(str(tmp_path / "data"), "w+b")
        first.write(b"x" * (1 << 20))
        second.write(b"x" * (2 << 20))
        first.flush()
        second.flush()
        os.unlink(second.name)
        return first, second
    assert seen(work, limit=4 << 20) == []
    assert [resource for _kind, resource in seen(work, limit=2 << 20)] == [
        "has the removed file %s/data of 2.0 MiB open, and others, 3.0 MiB in all, of which at most 2.0 MiB may be in an image"
        % os.path.realpath(str(tmp_path))]
    assert seen(work, limit=0, kinds=("tcp",)) == []


@pytest.mark.root
@pytest.mark.parametrize("mode, missing, wanted", [
    (0o755, "", True), (0o777, "", False), (0o777, "inner", False), (0o755, "inner", True)])
def test_file_that_was_replaced(keep, open_directory, somebody, mode, missing, wanted):
    """A library that an update has replaced, say: its directory is root's. It is only mapped."""
    directory = os.path.join(open_directory, missing)
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "library")
    with open(path, "wb") as stream:
        stream.write(b"x" * 8192)

    def work():
        privilege.become_user(somebody)
        LIBC.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as after an execve
        with open(path, "rb") as library:
            return mmap.mmap(library.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
    pid = keep(work)
    os.unlink(path)
    if missing:
        os.rmdir(directory)
    os.chmod(open_directory, mode)
    seen = privilege.as_user(somebody, lambda: [[obstacle.kind, obstacle.resource] for obstacle in look(pid)])
    assert seen == [["replaced_file", "has the file %s open, which was removed or replaced, in a directory to which you may not write"
                     % path]] * wanted


def test_directory_of_a_process_that_has_ended(seen):
    def work():
        child = os.fork()
        if child == 0:
            signal.pause()
        os.chdir("/proc/%d" % child)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    (kind, resource), = seen(work)
    assert kind == "dead_process"
    assert re.fullmatch("works in the directory /proc/[0-9]+ of a process that has ended", resource)


def test_process_in_a_namespace_of_its_own(keep):
    if subprocess.run(["unshare", "-u", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("cannot unshare here")
    reader, writer = os.pipe()

    def work():
        if os.fork() == 0:
            LIBC.unshare(0x04000000)  # CLONE_NEWUTS
            os.write(writer, b"x")
            signal.pause()
    pid = keep(work)
    os.read(reader, 1)
    child = processes.list_children(pid)[0]
    assert [(obstacle.kind, obstacle.pid, obstacle.resource) for obstacle in look(pid)] == [
        ("namespace", child, "is in a container (namespaces of its own: uts)")]
    assert look(child) == []  # with all that is in it
    os.kill(child, signal.SIGKILL)


def test_traced_process(keep):
    pid = keep(lambda: None)
    assert LIBC.ptrace(0x4206, pid, None, None) == 0  # PTRACE_SEIZE
    try:
        assert [(obstacle.kind, obstacle.resource) for obstacle in look(pid)] == [
            ("traced", "is traced by process %d (%s)" % (os.getpid(), processes.read_self().name))]
    finally:
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, 0)
        LIBC.ptrace(17, pid, None, None)
        os.kill(pid, signal.SIGCONT)


def test_confined_process(seen):
    def work():
        assert LIBC.prctl(38, 1, 0, 0, 0) == 0

        class Filter(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
        allow = (ctypes.c_uint64 * 1)(0x7fff0000 << 32 | 0x06)
        assert LIBC.prctl(22, 2, ctypes.byref(Filter(1, ctypes.addressof(allow))), 0, 0) == 0
    assert seen(work) == [("seccomp", "is confined by seccomp")]


# Sockets

def connect(host, family=socket.AF_INET):
    """Return both ends of a connection, the listener last."""
    listener = socket.socket(family)
    listener.bind((host, 0))
    listener.listen(5)
    client = socket.socket(family)
    client.connect(listener.getsockname()[:2])
    return client, listener.accept()[0], listener


@pytest.mark.parametrize("host, shown, family", [("127.0.0.1", "127.0.0.1", socket.AF_INET), ("::1", "[::1]", socket.AF_INET6)])
def test_connection_to_itself(keep, host, shown, family):
    ports = tempfile.TemporaryFile("w+")

    def work():
        ends = connect(host, family)
        print(ends[0].getsockname()[1], ends[1].getsockname()[1], file=ports, flush=True)
        return ends
    pid = keep(work)
    ports.seek(0)
    client, server = ports.read().split()
    name = processes.read_process(pid).name
    sentence = "has a TCP connection from %s:%s to %s:%s, which is process %d (%s) of the job"
    assert sorted(obstacle.resource for obstacle in look(pid)) == sorted([
        sentence % (shown, client, shown, server, pid, name), sentence % (shown, server, shown, client, pid, name)])


def read_sockets(pid):
    return connections.list_sockets([processes.read_process(pid)])


def is_inside_only(pid):
    return connections.has_inside_only([pid], read_sockets(pid))


def has_closed(pid):
    return tcp_sockets.has_closed([pid], read_sockets(pid))


@pytest.mark.parametrize("host, family", [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_connection_to_itself_can_be_moved(keep, host, family):
    pid = keep(lambda: connect(host, family))
    assert is_inside_only(pid)
    assert look(pid, moves=True) == []


def connect_dual():
    """Return (IPv4 client, what an IPv6 listener has accepted, listener): a server that serves both."""
    listener = socket.socket(socket.AF_INET6)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", 0))
    listener.listen(5)
    client = socket.socket()
    client.connect(("127.0.0.1", listener.getsockname()[1]))
    return client, listener.accept()[0], listener


def test_connection_of_both_protocols_can_be_moved(keep):
    pid = keep(connect_dual)
    assert is_inside_only(pid)
    assert look(pid, moves=True) == []


def test_half_closed_connection_is_not_moved(keep):
    def work():
        client, server, listener = connect("127.0.0.1")
        client.shutdown(socket.SHUT_WR)
        return client, server, listener
    pid = keep(work)
    assert {obstacle.kind for obstacle in look(pid, moves=True)} == {"tcp"}
    assert [obstacle.resource.split(" from ")[0] for obstacle in look(pid, moves=True)] == ["has a half-closed TCP connection"] * 2


@pytest.mark.parametrize("host, shown, family", [("127.0.0.1", "127.0.0.1", socket.AF_INET), ("::1", "[::1]", socket.AF_INET6)])
def test_connection_whose_other_end_was_closed(keep, host, shown, family):
    """It is moved. The kernel keeps the other end for a minute, here for a second."""
    def work():
        client, server, listener = connect(host, family)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 1)
        server.close()
        return client, listener
    pid = keep(work)

    def describe():
        assert is_inside_only(pid) and look(pid, moves=True) == []
        found, = look(pid)
        return found.kind, re.sub(r":\d+( |,)", r":N\1", found.resource)
    sentence = "has a half-closed TCP connection from %s:N to %s:N, which is " % (shown, shown)
    assert describe() == ("tcp", sentence + "a socket that no process has open")
    deadline = time.monotonic() + 60
    while describe()[1] != sentence + "gone":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_connection_whose_other_end_was_closed_before_all_was_received_is_not_moved(keep):
    def work():
        client, server, listener = connect("127.0.0.1")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                server.send(bytes(65536))
        server.close()
        return client, listener
    pid = keep(work)
    assert not is_inside_only(pid)
    found, = look(pid, moves=True)
    assert found.resource.startswith("has a TCP connection from 127.0.0.1:") and found.resource.endswith(
        ", which is a socket that no process has open")


def test_without_a_connection_nothing_is_to_be_moved(keep):
    assert not is_inside_only(keep(lambda: connect("127.0.0.1")[2]))
    assert not is_inside_only(keep(socket.socketpair))


def test_one_connection_to_somebody_else_is_named_alone(keep):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)

        def work():
            client = socket.socket()
            client.connect(listener.getsockname())
            port = listener.getsockname()[1]
            listener.close()
            return connect("127.0.0.1"), client, port
        pid = keep(work)
        port = listener.getsockname()[1]
        with listener.accept()[0] as there:
            assert not is_inside_only(pid)
            assert [obstacle.resource for obstacle in look(pid, moves=True)] == [
                "has a TCP connection from 127.0.0.1:%d to 127.0.0.1:%d, which is a process of uid %d that is not of the job"
                % (there.getpeername()[1], port, os.getuid())]


def fork_outside(tmp_path):
    """Have a process that is not of the tree any more have open what this one has."""
    pid = os.fork()
    if pid == 0:
        if os.fork():
            os._exit(0)
        (tmp_path / "outside.draft").write_text(str(os.getpid()))
        os.rename(str(tmp_path / "outside.draft"), str(tmp_path / "outside"))
        time.sleep(60)
        os._exit(0)
    os.waitpid(pid, 0)
    while not (tmp_path / "outside").exists():
        time.sleep(0.01)


def test_connection_that_a_process_outside_shares_is_not_moved(keep, tmp_path):
    """Its socket would be in repair mode during the dump, which is a right."""
    def work():
        ends = connect("127.0.0.1")
        fork_outside(tmp_path)
        return ends
    pid = keep(work)
    outside = int((tmp_path / "outside").read_text())
    try:
        assert not is_inside_only(pid)
        found = look(pid, moves=True)
        name = processes.read_process(outside).name
        assert len(found) == 2 and all(obstacle.kind == "tcp" and obstacle.resource.startswith(
            "shares a TCP connection with process %d (%s), which is not of the job: that from 127.0.0.1:" % (outside, name))
            for obstacle in found)
    finally:
        os.kill(outside, signal.SIGKILL)
    wait_for_end(outside)
    assert is_inside_only(pid)


def wait_for_end(pid):
    while os.path.exists("/proc/%d/fd/0" % pid):
        time.sleep(0.01)


TCP_REPAIR = 19


@pytest.mark.root
def test_sockets_in_repair_mode_are_repaired(somebody):
    """An engine that was killed leaves them so; nothing goes through them, and the mode is a right."""
    client, server, listener = connect("127.0.0.1")
    with client, server, listener:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        pid = os.fork()
        if pid == 0:
            os.setuid(somebody.uid)
            time.sleep(60)
            os._exit(0)
        try:
            while processes.read_process(pid).uid != somebody.uid:
                time.sleep(0.01)
            client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
            sockets = set(read_sockets(pid))
            assert len(sockets) >= 3
            for uid, wanted in ((somebody.uid + 1, sockets), (somebody.uid, {"1"})):
                tcp_sockets.end_repair(uid, wanted)
                assert client.getsockopt(socket.IPPROTO_TCP, TCP_REPAIR) == 1
            tcp_sockets.end_repair(somebody.uid, sockets)
            assert client.getsockopt(socket.IPPROTO_TCP, TCP_REPAIR) == 0
            assert server.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
            client.send(b"x")
            assert server.recv(1) == b"x"
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def close_both(client, server):
    for end in (server, client):
        end.shutdown(socket.SHUT_RDWR)
    wait_until_closed(client)


def wait_until_closed(client):
    while client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != b"\7":
        time.sleep(0.01)


@pytest.mark.root
@pytest.mark.parametrize("host, family", [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
@pytest.mark.parametrize("close, closed", [(lambda client, server: None, False), (lambda client, server: server.shutdown(1), False),
                                           (close_both, True)])
def test_connection_that_both_sides_have_closed(keep, host, family, close, closed):
    def work():
        ends = connect(host, family)
        close(*ends[:2])
        return ends, socket.socket()
    assert has_closed(keep(work)) is closed


def use_socket(pid, use):
    """Use the only TCP socket of a process that does not listen, as the process could."""
    for process, number in read_sockets(pid).values():
        with socket.socket(fileno=processes.share_descriptor(processes.get_mark(process), number)) as shared:
            if shared.getsockopt(socket.SOL_SOCKET, 38) == socket.IPPROTO_TCP and not shared.getsockopt(
                    socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return use(shared)
    raise AssertionError("there is none")


@pytest.mark.root
@pytest.mark.parametrize("host, family, shown", [
    ("127.0.0.1", socket.AF_INET, "127.0.0.1"), ("::1", socket.AF_INET6, "[::1]"), ("::ffff:127.0.0.1", socket.AF_INET6, "127.0.0.1")])
def test_connection_that_was_reset(keep, tmp_path, host, family, shown):
    """The one who notices is told once; a socket that was restored would not tell."""
    def work():
        client, server, listener = connect(host, family)
        (tmp_path / "ends").write_text("from %s:%d to %s:%d" % (shown, client.getsockname()[1], shown, server.getsockname()[1]))
        client.send(b"not read")
        server.close()
        wait_until_closed(client)
        return client, listener
    pid = keep(work)
    with pytest.raises(HookError) as caught:
        has_closed(pid)
    assert (caught.value.code, caught.value.sentence) == (
        errors.TEMPORARY, "process %d (%s) has a TCP connection %s that was reset, and no process has noticed that yet; the job keeps "
        "running; try again when one has read from it, or all that have it open have closed it"
        % (pid, processes.read_process(pid).name, (tmp_path / "ends").read_text()))
    with pytest.raises(ConnectionResetError):
        use_socket(pid, lambda shared: shared.recv(1))
    assert has_closed(pid) is True


@pytest.mark.root
def test_closed_connection_that_a_process_outside_shares_is_not_moved(keep, tmp_path):
    """In repair mode, in which it would be during the dump, it could get a port that is in use."""
    def work():
        client, server, listener = connect("127.0.0.1")
        (tmp_path / "ends").write_text("from 127.0.0.1:%d to 127.0.0.1:%d" % (client.getsockname()[1], server.getsockname()[1]))
        close_both(client, server)
        server.close()
        listener.close()
        fork_outside(tmp_path)
        return client
    pid = keep(work)
    outside = int((tmp_path / "outside").read_text())
    try:
        with pytest.raises(HookError) as caught:
            has_closed(pid)
        name = processes.read_process(pid).name
        assert (caught.value.code, caught.value.sentence) == (
            errors.REFUSED, "process %d (%s) has a TCP connection %s that was closed, and shares it with process %d (%s), which is not of "
            "the job; the job keeps running; checkpoint the job when that process has closed it"
            % (pid, name, (tmp_path / "ends").read_text(), outside, name))
    finally:
        os.kill(outside, signal.SIGKILL)
    wait_for_end(outside)
    assert has_closed(pid) is True


@pytest.mark.root
def test_connections_of_a_tree_that_ends_vanish_and_nobody_gets_a_right(keep):
    """A process outside that has one of its sockets has no more of it than before."""
    client, server, listener = connect("127.0.0.1")
    address = listener.getsockname()
    pid = keep(lambda: (client, server, listener))
    server.close()
    listener.close()
    with client:
        with tcp_sockets.drop_silently(processes.read_process(pid)):
            os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)
        assert client.getsockopt(socket.IPPROTO_TCP, TCP_REPAIR) == 0
    with socket.socket() as again:
        again.bind(address)


def test_connection_by_another_address_is_not_moved(keep):
    """What is not loopback another host may be part of."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("no other address here")
        address = probe.getsockname()[0]
    pid = keep(lambda: connect(address))
    assert not is_inside_only(pid)
    assert {obstacle.kind for obstacle in look(pid, moves=True)} == {"tcp"}


def test_connection_that_was_not_accepted_is_not_moved(keep):
    def work():
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        client = socket.socket()
        client.connect(listener.getsockname())
        return connect("127.0.0.1"), listener, client
    assert not is_inside_only(keep(work))


def test_connection_to_another_process(keep):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        port = listener.getsockname()[1]

        def work():
            client = socket.socket()
            client.connect(("127.0.0.1", port))
            listener.close()
            return client
        pid = keep(work)
        sentence = "has a TCP connection from 127.0.0.1:%d to 127.0.0.1:%d, which is "
        (kind, resource), = [(obstacle.kind, obstacle.resource) for obstacle in look(pid)]
        assert kind == "tcp" and resource.endswith(", which is a socket that no process has open")  # not accepted yet
        with listener.accept()[0] as there:
            assert [obstacle.resource for obstacle in look(pid)] == [
                sentence % (there.getpeername()[1], port) + "a process of uid %d that is not of the job" % os.getuid()]


def test_connection_that_is_not_accepted(seen):
    def work():
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        client = socket.socket()
        client.connect(listener.getsockname())
        return listener, client
    assert sorted(kind for kind, _resource in seen(work)) == ["tcp", "tcp_pending"]


def test_unix_connection_to_another_process(seen):
    mine, theirs = socket.socketpair()

    def work():
        mine.close()
        return theirs
    assert seen(work) == [("unix_peer", "is connected to a unix socket without a name, a socket of a process that is not of the job")]


@pytest.mark.parametrize("name, wanted", [
    ("\0/tmp/.X11-unix/X%d" % os.getpid(), ("x11", "has windows on a screen (@/tmp/.X11-unix/X%d)" % os.getpid())),
    ("\0test-%d" % os.getpid(), ("unix_peer", "is connected to @test-%d, a socket of a process that is not of the job" % os.getpid()))])
def test_unix_connection_to_a_name(keep, name, wanted):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen(5)

        def work():
            listener.close()
            client = socket.socket(socket.AF_UNIX)
            client.connect(name)
            return client
        pid = keep(work)
        with listener.accept()[0]:
            assert [(obstacle.kind, obstacle.resource) for obstacle in look(pid)] == [wanted]


def test_unix_connection_that_the_job_has_not_accepted(seen):
    def work():
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0own-%d" % os.getpid())
        listener.listen(5)
        client = socket.socket(socket.AF_UNIX)
        client.connect(listener.getsockname())
        return listener, client
    assert seen(work) == []


def test_socket_of_another_protocol(seen):
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()
    except OSError:
        pytest.skip("no MPTCP here")
    assert seen(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)) == [("socket", "has a socket of the protocol MPTCP open")]


@pytest.mark.parametrize("text, shown", [
    ("0100007F:1F90", "127.0.0.1:8080"), ("0A00A8C0:0016", "192.168.0.10:22"), ("00000000000000000000000001000000:0050", "[::1]:80"),
    ("0000000000000000FFFF00000100007F:0050", "127.0.0.1:80"), ("B80D0120000000000000000001000000:0050", "[2001:db8::1]:80"),
    ("00000000000000000000000000000000:0050", "[::]:80")])
def test_address(text, shown):
    if sys.byteorder == "big":
        pytest.skip("as a little-endian machine prints them")
    assert addresses.format_end(*connections.parse_end(text)) == shown


# All

def test_list_is_in_the_order_of_the_tree(keep):
    reader, writer = os.pipe()

    def work():
        if os.fork() == 0:
            pipes = os.pipe2(os.O_DIRECT)  # noqa: F841 stays open
            os.write(writer, b"x")
            signal.pause()
        return watch()
    pid = keep(work)
    os.read(reader, 1)
    child = processes.list_children(pid)[0]
    assert [(obstacle.pid, obstacle.kind) for obstacle in look(pid)] == [(pid, "inotify"), (child, "packet_pipe")]
    os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("nodes, wanted", [
    ([], []),
    (["node1"], []),
    (["node1", "node2"], ["belongs to a job on 2 nodes (node1, node2)"]),
    (["n%d" % number for number in range(1, 7)], ["belongs to a job on 6 nodes (n1, n2, n3, n4 and 2 more)"]),
])
@pytest.mark.parametrize("kind, advice", [
    ("nodes", "submit it for one node, or start its program by ckpt-run, which lets it write restart files of its own"),
    ("nodes_refused", "submit it for one node; the settings of this node refuse every job on several"),
])
def test_job_on_several_nodes(nodes, wanted, kind, advice):
    listed = obstacles.find_obstacles(open_files.find_open_files(os.getpid(), []), [kind], [], 0, nodes=nodes)
    assert [(obstacle.pid, obstacle.resource, obstacle.advice) for obstacle in listed] == [(os.getpid(), resource, advice)
                                                                                           for resource in wanted]


@pytest.mark.parametrize("setting, nested, more", [("refuse", True, ["nodes_refused"]), ("refuse", False, ["nodes_refused"]),
                                                   ("nested", True, []), ("nested", False, ["nodes"]), ("site", False, [])])
def test_kinds_by_settings(setting, nested, more):
    assert obstacles.select_kinds(("device", "traced"), {"multinode": setting}, nested) == ["device", "traced"] + more


def test_sentence():
    obstacle = obstacles.Obstacle("traced", 7, "a.out", "is traced by process 8 (gdb)", "end it")
    assert obstacles.format_sentence(obstacle, "CRIU") == (
        "process 7 (a.out) is traced by process 8 (gdb); CRIU cannot checkpoint that; end it")
    assert obstacles.format_sentence(obstacle, "CRIU", "the job keeps running") == (
        "process 7 (a.out) is traced by process 8 (gdb); CRIU cannot checkpoint that; the job keeps running; end it")


@pytest.mark.parametrize("entry", registry.ENGINES, ids=lambda entry: entry.name)
def test_engines_know_no_other_kinds(entry):
    assert set(entry.obstacles) <= set(obstacles.KINDS)


def test_lease_that_is_being_broken(keep, tmp_path):
    path = str(tmp_path / "file")
    (tmp_path / "file").write_text("hello")

    def work():
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(os.open(path, os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
    pid = keep(work)
    assert look(pid) == []
    with pytest.raises(BlockingIOError):
        os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    assert [(obstacle.kind, obstacle.resource, obstacle.advice) for obstacle in look(pid)] == [
        ("broken_lease", "has a lease on the file %s that another process is breaking" % path,
         "try again when the process has given the lease up")]
    assert "broken_lease" in registry.get_entry("criu").obstacles
