import mmap
import os
import signal
import subprocess
import tempfile
import threading

import pytest

from torque_ckpt import errors
from torque_ckpt.store import capacity
from torque_ckpt.system import privilege
from torque_ckpt.store import catalog  # noqa: F401 pylint: disable=unused-import; by root: users may not be able to read this interpreter
from torque_ckpt.errors import HookError
from torque_ckpt.system import private_dir

MIB = 1 << 20


# How much an image takes

def filled(size, flags):
    area = mmap.mmap(-1, size, flags=flags | mmap.MAP_ANONYMOUS)
    for offset in range(0, size, 4096):
        area[offset] = 1
    return area


def private(size):
    return filled(size, mmap.MAP_PRIVATE)


def grown(pid, base):
    return (capacity.measure_memory(pid) - capacity.measure_memory(base)) / MIB


@pytest.fixture
def base(keep):
    """A process (pid) with nothing of its own."""
    return keep(lambda: None)


def test_private_memory_counts(keep, base):
    assert 63 <= grown(keep(lambda: private(64 * MIB)), base) <= 66


def test_memory_that_was_never_written_does_not_count(keep, base):
    assert -1 <= grown(keep(lambda: mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)), base) <= 1


def test_file_in_memory_does_not_count(keep, base):
    with tempfile.TemporaryFile(dir="/var/tmp") as data:  # what is mapped of a tmpfs, which /tmp may be, is taken for shared memory
        for _piece in range(256):  # what is freed of one large piece may stay in this process, and so be the child's, too
            data.write(b"x" * (64 << 10))
        data.flush()

        def work():
            area = mmap.mmap(data.fileno(), 0, prot=mmap.PROT_READ)
            assert sum(area[offset] for offset in range(0, 16 * MIB, 4096))
            return area
        assert -1 <= grown(keep(work), base) <= 1


def test_memory_that_is_shared_on_purpose_counts_once(keep, base):
    area = filled(32 * MIB, mmap.MAP_SHARED)

    def work():
        for offset in range(0, 32 * MIB, 4096):
            area[offset] = 2
    sharers = [keep(work) for _turn in range(3)]
    area.close()
    assert 30 <= sum(grown(pid, base) for pid in sharers) <= 36


def test_memory_that_parent_and_child_still_share_counts_for_each(keep):
    """Engines write it for each."""
    held = private(32 * MIB)
    pids = [keep(lambda: None) for _turn in range(3)]
    assert all(capacity.measure_memory(pid) > 32 * MIB for pid in pids)
    held.close()


def test_process_that_has_ended_takes_nothing(free_pid):
    assert capacity.measure_memory(free_pid) == 0


def without(*excluded):
    """Return capacity._read_kilobytes of a kernel that does not tell these."""
    real = capacity._read_kilobytes

    def kilobytes(path):
        if os.path.basename(path) in excluded:
            raise FileNotFoundError
        return {name: size for name, size in real(path).items() if name not in excluded}
    return kilobytes


def test_kernels_that_tell_less_let_it_count_more(keep, base, monkeypatch):
    pid = keep(lambda: (private(16 * MIB), filled(16 * MIB, mmap.MAP_SHARED)))
    exact = capacity.measure_memory(pid)
    assert exact > 32 * MIB
    for excluded in (["Pss_Shmem"], ["smaps_rollup"]):
        monkeypatch.setattr(capacity, "_read_kilobytes", without(*excluded))
        assert exact <= capacity.measure_memory(pid) <= exact + 32 * MIB
        monkeypatch.undo()


def test_need_adds_what_an_image_has_beside_the_memory(base, keep):
    memory = capacity.measure_memory(base)
    assert capacity.estimate_need([base]) == [memory + memory // 50 + MIB + 56 * 1024, 33]
    held = 2 * memory + 100 * MIB
    assert capacity.estimate_need([base, base], 100 * MIB)[0] == held + held // 50 + MIB + 2 * 56 * 1024
    assert capacity.estimate_need([base, base])[1] == 42
    threaded = keep(lambda: [threading.Thread(target=signal.pause, daemon=True).start() for _turn in range(9)])
    assert capacity.estimate_need([threaded])[1] == 42


def test_need_of_a_process_that_has_ended(free_pid):
    assert capacity.estimate_need([free_pid]) == [MIB + 48 * 1024, 32]


# Whether there is room

@pytest.fixture
def mounted(tmp_path):
    """Return a function that mounts a file system and returns a descriptor of it."""
    mounts = []

    def mount(*arguments):
        path = str(tmp_path / ("mounted%d" % len(mounts)))
        os.mkdir(path)
        done = subprocess.run(["mount"] + list(arguments) + [path], stderr=subprocess.PIPE, check=False)
        if done.returncode:
            pytest.skip("cannot mount: %s" % done.stderr.decode().strip())
        mounts.append((path, os.open(path, os.O_RDONLY)))
        return mounts[-1][1]

    yield mount
    for path, descriptor in mounts:
        os.close(descriptor)
        subprocess.run(["umount", path], check=True)


def tmpfs(mounted, options="size=64m,nr_inodes=100"):
    return mounted("-t", "tmpfs", "-o", options, "none")


def check(directory, size, files=10, reserve=0):
    capacity.check_store(directory, [size, files], "/shared/ckpt", reserve, "alice")


def refusal(*arguments, **options):
    before = os.listdir(arguments[0]), sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(HookError) as caught:
        check(*arguments, **options)
    assert caught.value.code == errors.CANNOT_WRITE
    assert (os.listdir(arguments[0]), sorted(os.listdir("/proc/self/fd"))) == before
    return str(caught.value)


def test_room_enough(mounted):
    directory = tmpfs(mounted)
    for size, reserve in ((0, 0), (1, 0), (64 * MIB, 0), (60 * MIB, 4 * MIB), (0, 64 * MIB)):
        check(directory, max(size, 1), reserve=min(reserve, 64 * MIB - max(size, 1)))
    assert os.listdir(directory) == []
    assert os.fstatvfs(directory).f_bavail * os.fstatvfs(directory).f_frsize == 64 * MIB


def test_store_too_full(mounted):
    directory = tmpfs(mounted)
    assert refusal(directory, 65 * MIB) == (
        "the image needs 65.0 MiB, store /shared/ckpt has 64.0 MiB free, reserve 0 B; the job keeps running; "
        "free some space or lower checkpoint_hooks_reserve")


def test_reserve_is_left_free(mounted):
    directory = tmpfs(mounted)
    assert refusal(directory, 40 * MIB, reserve=30 * MIB) == (
        "the image needs 40.0 MiB, store /shared/ckpt has 64.0 MiB free, reserve 30.0 MiB; the job keeps running; "
        "free some space or lower checkpoint_hooks_reserve")


def test_files_too_many(mounted):
    directory = tmpfs(mounted)
    free = os.fstatvfs(directory).f_favail
    check(directory, MIB, files=free)
    assert refusal(directory, MIB, files=free + 1) == (
        "the image needs %d files, store /shared/ckpt has %d free inodes; the job keeps running; remove files there" % (free + 1, free))


def test_file_system_that_knows_neither_its_size_nor_allocation(mounted):
    directory = mounted("-t", "ramfs", "none")
    check(directory, 1 << 50, reserve=1 << 40)
    assert os.listdir(directory) == []


@pytest.mark.parametrize("number, sentence", [
    (122, "the image needs 1.0 MiB, the quota of alice on store /shared/ckpt does not allow that much more; the job keeps running; "
          "remove files of alice there or raise the quota"),
    (28, "the image needs 1.0 MiB, store /shared/ckpt does not give it: No space left on device; the job keeps running; free some space "
         "there"),
    (5, "the image needs 1.0 MiB, store /shared/ckpt does not give it: Input/output error; the job keeps running; free some space there"),
])
def test_what_only_the_attempt_shows(tmp_path, monkeypatch, number, sentence):
    """Real quotas are in the integration tests."""
    def allocate(_directory, _size):
        raise OSError(number, os.strerror(number))
    monkeypatch.setattr(capacity, "_try_allocation", allocate)
    directory = os.open(str(tmp_path), os.O_RDONLY)
    assert refusal(directory, MIB) == sentence
    os.close(directory)


def test_attempt_really_asks_for_the_room(mounted):
    with pytest.raises(OSError) as caught:
        capacity._try_allocation(tmpfs(mounted), 65 * MIB)
    assert caught.value.errno == 28


def test_private_directory_without_room(open_directory, somebody, monkeypatch):
    directory = private_dir.PrivateDirectory(open_directory + "/run", somebody)
    monkeypatch.setattr(directory, "get_free_space", lambda: 32 << 13)
    capacity.check_private(directory, 32)
    with pytest.raises(HookError) as caught:
        capacity.check_private(directory, 33)
    assert (caught.value.code, str(caught.value)) == (
        errors.CANNOT_WRITE, "what the engine writes on this node needs 264.0 KiB, %s/run/private has 256.0 KiB free; the job keeps "
        "running; free some space there, or name another disk of this node in checkpoint_hooks_private_directory" % open_directory)
    capacity.check_private(directory, 16, 16 << 13)
    with pytest.raises(HookError) as caught:
        capacity.check_private(directory, 17, 16 << 13)
    assert str(caught.value).startswith("what the engine writes on this node needs 264.0 KiB, ")
    monkeypatch.setattr(directory, "get_free_space", lambda: None)  # of a file system that does not know its size
    capacity.check_private(directory, 33)
    directory.remove()


def test_directory_of_another_user(open_directory, somebody):
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes another user")
    directory = os.open(open_directory, os.O_RDONLY)
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: check(directory, MIB))
    os.close(directory)
    assert str(caught.value) == ("the image needs 1.0 MiB, store /shared/ckpt does not give it: Permission denied; the job keeps running; "
                                 "free some space there")
