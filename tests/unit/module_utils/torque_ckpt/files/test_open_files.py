import fcntl
import mmap
import os
import signal
import socket
import subprocess

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.files import open_files
from torque_ckpt.system import mounts, privilege, processes


@pytest.fixture
def opened_by(keep, tmp_path):
    """Return a function that lets a child open things and returns what it has open: {names below the directory: File}, directories."""
    top = os.path.realpath(str(tmp_path))

    def run(work, directories=None):
        opened = open_files.find_open_files(keep(work), [top] if directories is None else directories)
        files = {tuple(os.path.relpath(name, top) for name in sorted(file.names)): file for file in opened.files
                 if any(mounts.is_beneath(name, top) for name in file.names)}
        return files, sorted(os.path.relpath(path, top) for path in opened.directories if mounts.is_beneath(path, top))
    return run


def how(file):
    return [word for word in ("written", "logged", "read", "held") if getattr(file, word)]


@pytest.mark.parametrize("flags, words, appended", [
    (os.O_RDONLY, ["read", "held"], False),
    (os.O_RDWR, ["written", "held"], False),
    (os.O_WRONLY, ["written", "held"], False),
    (os.O_WRONLY | os.O_APPEND, ["logged", "held"], True),
    (os.O_RDWR | os.O_APPEND, ["written", "held"], False),
])
def test_how_a_file_is_open(opened_by, tmp_path, flags, words, appended):
    (tmp_path / "file").write_text("hello")
    files, _directories = opened_by(lambda: os.open(str(tmp_path / "file"), flags))
    file = files[("file",)]
    assert (how(file), file.is_append_only(), file.status.st_size) == (words, appended, 5)
    assert os.path.samestat(os.stat(file.proc_path) if os.path.exists(file.proc_path) else file.status, file.status)


def test_one_file_opened_twice_is_one(opened_by, tmp_path):
    (tmp_path / "file").write_text("")
    files, _directories = opened_by(lambda: [os.open(str(tmp_path / "file"), flags) for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND)])
    assert [(names, how(file), file.is_append_only()) for names, file in files.items()] == [(("file",), ["logged", "read", "held"], False)]


def test_names_of_a_hard_link_are_kept_straight(opened_by, tmp_path):
    (tmp_path / "one").write_text("")
    os.link(str(tmp_path / "one"), str(tmp_path / "two"))
    os.link(str(tmp_path / "one"), str(tmp_path / "three"))
    files, _directories = opened_by(lambda: [os.open(str(tmp_path / name), os.O_RDONLY) for name in ("one", "two")])
    assert list(files) == [("one", "two")]


def test_children_count_too(opened_by, tmp_path):
    (tmp_path / "file").write_text("")
    ready, ready_in = os.pipe()
    life, life_in = os.pipe()

    def work():
        if os.fork() == 0:
            os.open(str(tmp_path / "file"), os.O_RDWR)
            os.write(ready_in, b"x")
            os.close(life_in)
            os.read(life, 1)  # until the test ends
            os._exit(0)
        os.read(ready, 1)
        os.close(life_in)
    files, _directories = opened_by(work)
    for descriptor in (ready, ready_in, life, life_in):
        os.close(descriptor)
    assert list(files) == [("file",)]


def test_removed_and_replaced_files_are_the_engines(opened_by, tmp_path):
    def work():
        descriptors = [os.open(str(tmp_path / name), os.O_RDWR | os.O_CREAT) for name in ("removed", "replaced")]
        os.unlink(str(tmp_path / "removed"))
        os.rename(str(tmp_path / "replaced"), str(tmp_path / "away"))
        (tmp_path / "replaced").write_text("another")
        os.unlink(str(tmp_path / "away"))
        (tmp_path / "removed (deleted)").write_text("another")
        return descriptors
    assert opened_by(work) == ({}, [])


def test_file_that_lost_its_name_has_its_others(opened_by, tmp_path):
    """Those in the same directory: sem_open(3) removes the name by which it opened, and leaves another."""
    def work():
        descriptors = [os.open(str(tmp_path / name), os.O_RDWR | os.O_CREAT) for name in ("temporary", "elsewhere", "named")]
        (tmp_path / "inner").mkdir()
        for name, other in (("temporary", "name"), ("temporary", "another"), ("elsewhere", "inner/name"), ("named", "second")):
            os.link(str(tmp_path / name), str(tmp_path / other))
        os.unlink(str(tmp_path / "temporary"))
        os.unlink(str(tmp_path / "elsewhere"))
        return descriptors
    files, _directories = opened_by(work)
    assert {names: file.unlinked for names, file in files.items()} == {("another", "name"): True, ("named",): False}


def test_special_files_do_not_count(opened_by, tmp_path):
    paths = [path for path in ("/dev/null", "/proc/self/stat", "/sys/kernel/profiling") if os.path.exists(path)]
    files, _directories = opened_by(lambda: [os.open(path, os.O_RDONLY) for path in paths])
    assert files == {}


def test_named_pipe(opened_by, tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    files, _directories = opened_by(lambda: os.open(str(tmp_path / "pipe"), os.O_RDWR))
    assert list(files) == [("pipe",)]


@pytest.mark.parametrize("prot, flags, words", [
    (mmap.PROT_READ, os.O_RDONLY, ["read", "held"]),
    (mmap.PROT_READ | mmap.PROT_WRITE, os.O_RDWR, ["written", "held"]),
])
def test_shared_mapping_of_a_closed_file(opened_by, tmp_path, prot, flags, words):
    (tmp_path / "file").write_text("hello")

    def work():
        descriptor = os.open(str(tmp_path / "file"), flags)
        mapped = mmap.mmap(descriptor, 5, mmap.MAP_SHARED, prot)
        if os.geteuid() == 0:
            os.close(descriptor)
        return mapped
    # Python's mmap keeps a descriptor of its own, so what is seen is at least that.
    files, _directories = opened_by(work)
    assert how(files[("file",)]) == words


def test_private_mapping_counts_in_the_directories_only(opened_by, tmp_path):
    (tmp_path / "file").write_text("hello")

    def work():
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        descriptor = os.open(str(tmp_path / "file"), os.O_RDONLY)
        address = libc.mmap(None, ctypes.c_size_t(5), mmap.PROT_READ, mmap.MAP_PRIVATE, descriptor, ctypes.c_long(0))
        os.close(descriptor)
        assert address not in (None, ctypes.c_void_p(-1).value)
    files, _directories = opened_by(work)
    assert [(names, how(file)) for names, file in files.items()] == [(("file",), [])]
    assert opened_by(work, []) == ({}, [])


def removed_of(keep, work):
    """What is removed of a child that does work(): {name: MiB, rounded down}, without what it inherits from pytest."""
    inherited = open_files.find_open_files(os.getpid(), []).removed
    opened = open_files.find_open_files(keep(work), [])
    assert opened.count_removed_bytes() == sum(size for size, _path, _pid in opened.removed.values())
    return {os.path.basename(path): size >> 20 for key, (size, path, _pid) in opened.removed.items() if key not in inherited}


def test_removed_files_count_once_and_without_holes(keep, tmp_path):
    for name in ("file", "sparse", "second"):
        (tmp_path / name).write_bytes(b"x" * (3 << 20) if name != "sparse" else b"")
    os.truncate(str(tmp_path / "sparse"), 64 << 20)
    os.link(str(tmp_path / "second"), str(tmp_path / "name"))

    def work():
        opened = [os.open(str(tmp_path / name), os.O_RDONLY) for name in ("file", "file", "sparse", "second")]
        for name in ("file", "sparse", "second"):
            os.unlink(str(tmp_path / name))
        return opened
    assert removed_of(keep, work) == {"file": 3, "sparse": 0}  # the other still has a name


@pytest.mark.root
@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE])
def test_removed_file_that_is_mapped_alone(keep, tmp_path, flags):
    (tmp_path / "library").write_bytes(b"x" * (2 << 20))

    def work():
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        descriptor = os.open(str(tmp_path / "library"), os.O_RDONLY)
        assert libc.mmap(None, ctypes.c_size_t(5), mmap.PROT_READ, flags, descriptor, ctypes.c_long(0)) != ctypes.c_void_p(-1).value
        os.close(descriptor)
        os.unlink(str(tmp_path / "library"))
    assert removed_of(keep, work) == {"library": 2}


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Python before 3.8")
def test_memory_is_no_removed_file(keep):
    def work():
        descriptor = os.memfd_create("some")
        os.ftruncate(descriptor, 4096)
        return descriptor, mmap.mmap(descriptor, 4096), mmap.mmap(-1, 4096)
    assert removed_of(keep, work) == {}


def test_directories(opened_by, tmp_path):
    for name in ("work", "opened", "sockets"):
        (tmp_path / name).mkdir()

    def work():
        os.chdir(str(tmp_path / "work"))
        post = socket.socket(socket.AF_UNIX)
        post.bind(str(tmp_path / "sockets" / "post"))
        return post, os.open(str(tmp_path / "opened"), os.O_RDONLY)
    assert opened_by(work) == ({}, ["opened", "sockets", "work"])


@pytest.mark.parametrize("as_owner", [False, True])
def test_zombie_is_passed_over(site, somebody, wait_until, as_owner):
    """Its owner may not even list its descriptors."""
    path = os.path.join(os.path.realpath(site.directory), "file")
    with subprocess.Popen(["/bin/sh", "-c", "exec 3> %s; true & exec sleep 60" % path],
                          preexec_fn=lambda: privilege.become_user(somebody)) as job:  # noqa: PLW1509 there are no threads
        zombie = wait_until(lambda: processes.list_children(job.pid))[0]
        wait_until(lambda: processes.read_process(zombie).state == "Z")

        def work():
            return [name for file in open_files.find_open_files(job.pid, []).files for name in file.names]
        capabilities = (privilege.CAP_SYS_PTRACE, privilege.CAP_CHECKPOINT_RESTORE)
        names = privilege.as_user(somebody, work, capabilities) if as_owner else work()
        job.kill()
    assert path in names


def test_process_that_is_ending_is_passed_over(start_job, monkeypatch, wait_until):
    """It has lost its memory before it is a zombie; nothing of it is worth a failure."""
    pid, real, state = start_job().pids[0], os.readlink, "S"

    def readlink(path):
        if path == "/proc/%d/exe" % pid:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not open_files._has_memory(pid))
            raise PermissionError(13, "Permission denied")
        return real(path)

    def process(number):  # it has not come to Z
        return processes.Process(number, 1, 1, 1, 1, state, 0, "sh", False)
    monkeypatch.setattr(open_files.os, "readlink", readlink)
    monkeypatch.setattr(open_files.processes, "read_process", process)
    open_files.find_open_files(pid, [])


def test_process_that_may_not_be_looked_into(in_child, somebody, start_job):
    if os.geteuid() != 0:
        pytest.skip("needs root: a process of another user")
    pid = start_job().pids[0]

    def work():
        privilege.become_user(somebody)
        try:
            open_files.find_open_files(pid, [])
        except HookError as error:
            return error.code, str(error)
    assert in_child(work).result == [
        errors.SYSTEM, "cannot see what process %d (sh) of the job has open: Permission denied; the job keeps running; checkpoint the job "
                       "when the process has ended" % pid]


def test_names_that_are_no_text(opened_by, tmp_path):
    name = os.fsdecode(b"a b\n\xff\\012")
    with open(os.path.join(str(tmp_path), name), "w"):
        pass
    files, _directories = opened_by(lambda: os.open(os.path.join(str(tmp_path), name), os.O_RDONLY))
    assert list(files) == [(name,)]


def test_state_sees_every_change(tmp_path):
    path = str(tmp_path / "file")
    with open(path, "w") as stream:
        stream.write("hello")
    seen = {open_files.format_state(os.stat(path))}
    os.chmod(path, 0o640)
    seen.add(open_files.format_state(os.stat(path)))
    with open(path, "r+") as stream:
        stream.write("HELLO")
    os.utime(path, (1, 1))
    seen.add(open_files.format_state(os.stat(path)))
    assert len(seen) == 3


@pytest.mark.parametrize("flags, taken, lease", [
    (os.O_RDWR, fcntl.F_WRLCK, open_files.WRITE_LEASE),
    (os.O_RDONLY, fcntl.F_RDLCK, open_files.READ_LEASE),
    (os.O_RDONLY, fcntl.F_UNLCK, ""),
])
def test_lease(keep, tmp_path, flags, taken, lease):
    (tmp_path / "file").write_text("hello")

    def work():
        descriptor = os.open(str(tmp_path / "file"), flags)
        if taken != fcntl.F_UNLCK:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, taken)
    opened = open_files.find_open_files(keep(work), [])
    assert [file.lease for file in opened.files if str(tmp_path / "file") in file.names] == [lease]
    assert opened.breaking == []


@pytest.mark.parametrize("flags, taken, breaking", [(os.O_RDWR, fcntl.F_WRLCK, os.O_RDONLY), (os.O_RDONLY, fcntl.F_RDLCK, os.O_WRONLY)])
def test_lease_that_is_being_broken(keep, tmp_path, flags, taken, breaking):
    path = str(tmp_path / "file")
    (tmp_path / "file").write_text("hello")

    def work():
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(os.open(path, flags), fcntl.F_SETLEASE, taken)
    pid = keep(work)
    with pytest.raises(BlockingIOError):
        os.open(path, breaking | os.O_NONBLOCK)
    opened = open_files.find_open_files(pid, [])
    assert [file.lease for file in opened.files if path in file.names] == [open_files.WRITE_LEASE]
    assert opened.breaking == [(pid, path)]
