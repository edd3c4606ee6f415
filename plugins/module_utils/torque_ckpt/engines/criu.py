"""CRIU, run as the job's owner with CAP_CHECKPOINT_RESTORE, and for a dump CAP_SYS_PTRACE (kernel >= 5.9)."""
import mmap
import os
import re

from ..errors import HookError, CONFIG, ENGINE, TEMPORARY
from ..privilege import CAP_CHECKPOINT_RESTORE, CAP_SETPCAP, CAP_SYS_PTRACE
from .base import Engine, call

# --shell-job           the tree's session is the hook's, outside the image
# --file-locks          jobs lock files; their locks come back
# --ext-unix-sk         a socket to syslog or the like must not prevent the image
# --link-remap          open files that were removed come back
# --manage-cgroups      pbs_mom owns the job's cgroups
_COMMON = ["--unprivileged", "--shell-job", "--file-locks", "--ext-unix-sk", "--link-remap", "--manage-cgroups=ignore", "-v1"]

_PID_IN_USE = re.compile(r"(?:Can't fork for|Unable to fork|Can't clone).*File exists|Pid \d+ do not match expected", re.IGNORECASE)
_CORE = re.compile(r"core-([0-9]+)\.img")
_MEMORY = re.compile(r"pages-[0-9]+\.img")
_ERROR = re.compile(r"Error \([^)]*\): (.*)")


def _last_capability():
    """Return the highest capability that the kernel knows (int)."""
    with open("/proc/sys/kernel/cap_last_cap") as stream:
        return int(stream.read())


def _is_cut_down():
    """Whether root's bounding set lacks a capability on this node, as it does in most containers."""
    with open("/proc/self/status") as stream:
        bounding = next(int(line.split()[1], 16) for line in stream if line.startswith("CapBnd:"))
    return bounding != (1 << (_last_capability() + 1)) - 1


def reason(output):
    """Return CRIU's own first error (str) out of what it printed."""
    found = [line.strip() for line in _ERROR.findall(output)]
    if found:
        return found[0]
    lines = output.strip().splitlines()
    return lines[-1].strip() if lines else "it printed nothing"


def execmem():
    """Return whether this process may have memory that is writable and executable at once (bool), in which CRIU restores."""
    try:
        mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    except OSError:
        return False
    return True


class Criu(Engine):
    """See base.Engine.

    :param path: criu by absolute path (str)
    :param options: further options for every dump and restore (list of str)
    :param timeout: seconds a call may take (int)
    """

    name = "criu"

    def __init__(self, path, options=(), timeout=3600):
        self.path = path
        self.options = list(options)
        self.timeout = timeout
        if not os.access(path, os.X_OK):
            raise HookError(CONFIG, "criu is not at %s on this node; run the role criu" % path)

    # Beyond Yama's restriction, and for processes that are not dumpable.
    dump_capabilities = (CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE)

    @property
    def restore_capabilities(self):
        """See Engine. CRIU drops the bounding capabilities that a process had lost, for which it needs CAP_SETPCAP."""
        return (CAP_CHECKPOINT_RESTORE,) + ((CAP_SETPCAP,) if _is_cut_down() else ())

    def version(self):
        """See Engine."""
        status, output = call([self.path, "--version"], self.timeout)
        found = re.search(r"Version: *(\S+)", output)
        if status != 0 or not found:
            raise HookError(ENGINE, "%s --version failed: %s" % (self.path, reason(output)))
        return found.group(1)

    def check(self):
        """See Engine."""
        if _last_capability() < CAP_CHECKPOINT_RESTORE:
            raise HookError(CONFIG, "CRIU cannot run as an ordinary user on this node's kernel %s: it needs 5.9 or newer; "
                            "boot a newer kernel" % os.uname().release)
        if not execmem():
            raise HookError(CONFIG, "SELinux refuses memory that is writable and executable on this node, so that CRIU can restore no job; "
                            "allow it: setsebool -P allow_execmem on, or where the policy has deny_execmem: setsebool -P deny_execmem off")

    def dump(self, root, directory, stop, witness=None, meanwhile=None):
        """See Engine."""
        status, output = call([self.path, "dump", "-t", str(root), "-D", directory, "--leave-stopped" if stop else "--leave-running"]
                              + (["--action-script", witness] if witness else []) + _COMMON + self.options, self.timeout, meanwhile)
        if status != 0:
            raise HookError(ENGINE, "criu dump failed with status %d: %s; the job runs on" % (status, reason(output)))

    def process_ids(self, directory):
        """See Engine. CRIU writes one core file for each thread."""
        return sorted(int(found.group(1)) for found in map(_CORE.fullmatch, os.listdir(directory)) if found)

    def is_memory(self, name):
        """See Engine. CRIU copies these into the processes and reads nothing in them."""
        return _MEMORY.fullmatch(name) is not None

    def restore(self, directory, witness=None):
        """See Engine."""
        status, output = call([self.path, "restore", "-d", "-D", directory]
                              + (["--action-script", witness] if witness else []) + _COMMON + self.options, self.timeout)
        if status != 0:
            if _PID_IN_USE.search(output):
                raise HookError(TEMPORARY, "a process id of the image is in use on this node (criu: %s); "
                                "try again later or on another node" % reason(output))
            raise HookError(ENGINE, "criu restore failed with status %d: %s; the image is kept" % (status, reason(output)))
