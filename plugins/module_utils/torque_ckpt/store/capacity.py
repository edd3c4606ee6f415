"""Whether there is enough free space for an image, before the job is stopped for it.

estimate_need() asks the kernel, as root, how much memory the job has; check_store() compares, as the user and on the store itself. Both
are estimates: the job may grow, and others write to the store. What an estimate misses, the engine finds, and the job keeps running.
"""
import errno
import os

from ..errors import HookError, CANNOT_WRITE, PRIVATE_CURE
from ..units import format_bytes

MYPY = False  # true for the type checker alone
if MYPY:
    from ..system.private_dir import PrivateDirectory

# What an image holds beside memory. CRIU 4.2.1, trees of 1 to 101 processes: 37 KiB and 7 files for each process, 4.5 KiB and a file for
# each thread; a fiftieth is for what the job does until it stops.
_BASE, _PER_PROCESS, _PER_THREAD, _SHARE = 1 << 20, 48 << 10, 8 << 10, 50
_FILES, _FILES_PER_PROCESS = 24, 8
_PER_FILE = 8 << 10  # of those that do not hold memory

_CANNOT_TRY = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EFBIG, errno.EINVAL)


def _read_kilobytes(path: str) -> "dict[str, int]":
    """Return the numbers (bytes) of a file of /proc with lines "Name: number kB"."""
    sizes = {}
    with open(path, "rb") as stream:
        for line in stream:
            words = line.split()
            if len(words) == 3 and words[2] == b"kB":
                sizes[words[0][:-1].decode()] = int(words[1]) << 10
    return sizes


def measure_memory(pid: int) -> int:
    """Return how much memory (bytes) of a process an image holds: what is not in a file, swapped out or not.

    Engines write private memory for each process, also what parent and child still share; memory that is shared on purpose
    once, so of that the process's part counts. Older kernels report less, and the estimate is higher there.
    """
    try:
        try:
            sizes = _read_kilobytes("/proc/%d/smaps_rollup" % pid)
        except FileNotFoundError:  # before Linux 4.14, or the process has ended
            sizes = {}
        if not sizes:
            sizes = _read_kilobytes("/proc/%d/status" % pid)
            return sizes.get("VmRSS", 0) + sizes.get("VmSwap", 0)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    shared = sizes["Pss_Shmem"] if "Pss_Shmem" in sizes else max(0, sizes["Rss"] - sizes["Anonymous"])
    return sizes["Anonymous"] + shared + sizes.get("Swap", 0) + sizes.get("Private_Hugetlb", 0) + sizes.get("Shared_Hugetlb", 0)


def _count_threads(pid: int) -> int:
    try:
        return len(os.listdir("/proc/%d/task" % pid))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def estimate_need(pids: "list[int]", extra: int = 0) -> "list[int]":
    """Return what an image of these processes takes in a store: [bytes, files]. To be called as root.

    :param pids: the job's processes
    :param extra: what else goes into the image (bytes)
    """
    held, threads = sum(map(measure_memory, pids)) + extra, sum(map(_count_threads, pids))
    return [held + held // _SHARE + _BASE + len(pids) * _PER_PROCESS + threads * _PER_THREAD,
            _FILES + len(pids) * _FILES_PER_PROCESS + threads]


def _try_allocation(directory: int, size: int) -> None:
    """Try to reserve the space for a file of this size (bytes) in a directory (descriptor), and give it back.

    :raises OSError: as fallocate(2) failed
    """
    import ctypes  # only here: it costs a few milliseconds
    name = "reservation"
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        os.unlink(name, dir_fd=directory)  # at once: a hook that is killed leaves nothing
        libc = ctypes.CDLL(None, use_errno=True)
        # Not os.posix_fallocate: where the file system cannot, glibc writes all of it. Mode 0 is the one that NFS 4.2 knows.
        while libc.fallocate64(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(size)) != 0:
            if ctypes.get_errno() != errno.EINTR:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)


def check_store(directory: int, needed: "list[int]", store: str, reserve: int, user: str) -> None:
    """As the user: check that the store has enough free space for what estimate_need() returned.

    :param directory: where the image will be (descriptor)
    :param store: its path, for the sentence
    :param reserve: what must be left free (bytes)
    :param user: the user's name, for the sentence
    :raises HookError: CANNOT_WRITE when it has not; nothing is left in the directory
    """
    size, files = needed
    status = os.fstatvfs(directory)
    free = status.f_bavail * status.f_frsize
    if status.f_blocks and size > free - reserve:  # a file system that does not know its size reports 0
        raise HookError(CANNOT_WRITE, "the image needs %s, store %s has %s free, reserve %s; the job keeps running; free some space or "
                        "lower checkpoint_hooks_reserve" % (format_bytes(size), store, format_bytes(free), format_bytes(reserve)))
    if status.f_files and files > status.f_favail:  # as one without a fixed number of inodes does
        raise HookError(CANNOT_WRITE, "the image needs %d files, store %s has %d free inodes; the job keeps running; remove files there"
                        % (files, store, status.f_favail))
    try:
        _try_allocation(directory, size)
    except OSError as error:
        if error.errno == errno.EDQUOT:
            raise HookError(CANNOT_WRITE, "the image needs %s, the quota of %s on store %s does not allow that much more; the job keeps "
                            "running; remove files of %s there or raise the quota" % (format_bytes(size), user, store, user))
        if error.errno not in _CANNOT_TRY:
            raise HookError(CANNOT_WRITE, "the image needs %s, store %s does not give it: %s; the job keeps running; free some space there"
                            % (format_bytes(size), store, error.strerror))


def check_private(private: "PrivateDirectory", files: int, removed: int = 0) -> None:
    """As the user: check that this node has enough free space for what the engine writes beside memory.

    :param files: how many files that may be, from estimate_need()
    :param removed: what the files have that the job has open and that were removed (bytes)
    :raises HookError: CANNOT_WRITE when it has not
    """
    size, available = files * _PER_FILE + removed, private.get_free_space()
    if available is not None and size > available:
        raise HookError(CANNOT_WRITE, "what the engine writes on this node needs %s, %s has %s free; the job keeps running; %s"
                        % (format_bytes(size), private.path, format_bytes(available), PRIVATE_CURE))


def check_limit(size: int, used: int, limit: int, store: str, user: str) -> None:
    """Check that an image leaves its user within what the site allows him in a store.

    For file systems without quotas: it counts the images present before this one is created, and keeps nobody from writing by other means.

    :param size, used, limit: of the image, of the user's images, and what he may have (bytes)
    :param store: its path, for the sentence
    :param user: the user's name, for the sentence
    :raises HookError: CANNOT_WRITE when it does not
    """
    if used + size > limit:
        raise HookError(CANNOT_WRITE, "the image needs %s, images of %s in store %s have %s of the %s that checkpoint_hooks_user_limit "
                        "allows; the job keeps running; remove some, torque-ckpt list shows them"
                        % (format_bytes(size), user, store, format_bytes(used), format_bytes(limit)))
