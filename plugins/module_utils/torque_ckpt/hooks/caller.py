"""The pbs_mom that called this hook, and TORQUE's commands beside it."""
import os

from ..system import processes
from ..torque import names


def find_commands() -> "str | None":
    """Return the directory of TORQUE's commands beside the pbs_mom that called this hook, or None."""
    caller = processes.read_process(os.getppid())
    for pid in (caller.pid, caller.ppid) if caller else ():  # an unpatched one calls the checkpoint hook by a shell
        try:
            mom = os.readlink("/proc/%d/exe" % pid)
        except OSError:
            continue
        commands = os.path.join(os.path.dirname(os.path.dirname(mom)), "bin")
        if os.path.basename(mom) == names.MOM and os.access(os.path.join(commands, "qhold"), os.X_OK):
            return commands
    return None
