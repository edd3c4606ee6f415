"""What a hook does before anything else: trust only root's code, and leave behind what pbs_mom gave it."""
import os
import resource
import stat

from .. import __file__ as _PACKAGE
from ..errors import HookError, CONFIG

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
"""All that the root hooks, and what they start, have; beside the variables that are addressed to them."""


def _beneath(directory):
    for entry in os.scandir(directory):
        yield entry.path
        if entry.is_dir(follow_symlinks=False):
            yield from _beneath(entry.path)


def _above(path):
    while path != "/":
        path = os.path.dirname(path)
        yield path


def check_code(config_path):
    """Prove that nobody but root (or whose process this is) can change the hooks or their configuration.

    This finds a node that was set up wrongly; it cannot find what somebody has done to the hooks already.

    :raises HookError: CONFIG, naming the first path that somebody else can change
    """
    code = os.path.dirname(os.path.dirname(os.path.abspath(_PACKAGE)))  # where the programs are, too
    settings = os.path.dirname(os.path.abspath(config_path))
    mine = (0, os.geteuid())
    for path in [code, settings] + list(_beneath(code)):
        try:
            found = os.stat(path)
        except FileNotFoundError:  # another sentence is for that
            continue
        if found.st_uid not in mine or found.st_mode & 0o022:
            raise _wrong(path)
    for path in {parent for place in (code, settings) for way in (place, os.path.realpath(place)) for parent in _above(way)}:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            continue
        # In a sticky directory others cannot touch what is root's.
        if found.st_uid not in mine or found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            raise _wrong(path)


def _wrong(path):
    return HookError(CONFIG, "%s must be root's and writable by nobody else, or others could change the hooks; "
                     "run the role checkpoint_hooks on this node; nothing was done" % path)


def close_descriptors():
    """Close what pbs_mom leaks; open what it should have given."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2:
            try:
                os.close(descriptor)
            except OSError:
                pass  # the one of the listing
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if descriptor > 2:
            os.close(descriptor)
            return


def no_core_dumps():
    """Let this process and those it starts from now on leave no memory dump; a restored job has the limit of its image."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    # With 0 a dump would still go to a program that the system has for them; the kernel lets 1 mean none at all.
    # The hard limit stays: without privileges CRIU could not give the job back a higher one.
    resource.setrlimit(resource.RLIMIT_CORE, (1 if hard else 0, hard))


def clear_environment(*names):
    """Have no variables but ENVIRONMENT from now on, and those of these names (str), if they are set."""
    kept = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.clear()
    os.environ.update(ENVIRONMENT, **kept)


def settle(*names):
    """Give a root hook its own environment, umask, limits and descriptors, whoever called it.

    :param names: the variables that are addressed to this hook (str)
    """
    clear_environment(*names)
    os.umask(0o077)
    close_descriptors()
    no_core_dumps()
