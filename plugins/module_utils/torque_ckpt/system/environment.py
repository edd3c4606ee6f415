"""What a hook does first: check that only root can change its code, and discard what it inherits from pbs_mom."""
import os
import resource
import stat

from .. import __file__ as _PACKAGE
from ..errors import HookError, CONFIG

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterable, Iterator

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
"""The whole environment of the root hooks and of what they start, except the variables that are addressed to them."""


def _list_beneath(directory: str) -> "Iterator[str]":
    for entry in os.scandir(directory):
        yield entry.path
        if entry.is_dir(follow_symlinks=False):
            yield from _list_beneath(entry.path)


def _list_parents(path: str) -> "Iterator[str]":
    while path != "/":
        path = os.path.dirname(path)
        yield path


def check_code(config_path: str) -> None:
    """Check that nobody but root (or the user of this process) can change the hooks or their configuration.

    This finds a wrongly configured node; it cannot find changes that somebody has already made to the hooks.

    :raises HookError: CONFIG, naming the first path that somebody else can change
    """
    code = os.path.dirname(os.path.dirname(os.path.abspath(_PACKAGE)))  # the programs are in it, too
    settings = os.path.dirname(os.path.abspath(config_path))
    owners = (0, os.geteuid())
    for path in [code, settings] + list(_list_beneath(code)):
        try:
            status = os.stat(path)
        except FileNotFoundError:  # reported elsewhere
            continue
        if status.st_uid not in owners or status.st_mode & 0o022:
            raise _wrong(path)
    for path in _list_open_parents(code, settings):
        raise _wrong(path)


def _list_open_parents(*paths: str) -> "Iterator[str]":
    """Yield the directories above paths, also above where their links lead, in which somebody else could replace what is root's."""
    starts = [start for path in paths for start in (path, os.path.realpath(path))]
    for path in {parent for start in starts for parent in _list_parents(start)}:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue
        # In a sticky directory others cannot change root's files.
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            yield path


def check_programs(settings: dict, names: "Iterable[str]") -> None:
    """Check that nobody but root can change the programs that a site has the hooks run as jobs' owners.

    :param settings: from config.load_settings
    :param names: those that name a program, or are empty
    :raises HookError: CONFIG
    """
    for name in names:
        path = settings[name]
        try:
            status = os.stat(path) if path else None
        except OSError as error:
            raise HookError(CONFIG, "%s, the checkpoint_hooks_%s, cannot be run: %s; install it on this node; nothing was done"
                            % (path, name, error.strerror))
        if status is None:
            continue
        if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o111:
            raise HookError(CONFIG, "%s, the checkpoint_hooks_%s, is not an executable file; correct it with chmod 755; nothing was done"
                            % (path, name))
        wrong = [path] if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022 else list(_list_open_parents(path))
        if wrong:
            raise HookError(CONFIG, "%s must be root's and writable by nobody else, because the checkpoint_hooks_%s runs as the owner of "
                            "each job; correct it with chown root and chmod go-w; nothing was done" % (wrong[0], name))


def _wrong(path: str) -> HookError:
    return HookError(CONFIG, "%s must be root's and writable by nobody else, or others could change the hooks; "
                     "run the role checkpoint_hooks on this node; nothing was done" % path)


def close_descriptors() -> None:
    """Close the descriptors that pbs_mom leaks; open those that it should have provided."""
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


def disable_core_dumps() -> None:
    """Have this process, and those it starts from now on, write no core dump; a restored job has the limit of its image."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    # With 0 a dump would still go to the program in core_pattern; to the kernel 1 means none at all.
    # The hard limit stays: without privileges CRIU could not give the job back a higher one.
    resource.setrlimit(resource.RLIMIT_CORE, (1 if hard else 0, hard))


def clear_environment(*names: str) -> None:
    """Reduce the environment to ENVIRONMENT and the variables of these names, if they are set."""
    kept = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.clear()
    os.environ.update(ENVIRONMENT, **kept)


def isolate_hook(*names: str) -> None:
    """Give a root hook its own environment, umask, limits and descriptors, whatever it inherited.

    :param names: the variables that are addressed to this hook
    """
    clear_environment(*names)
    os.umask(0o077)
    close_descriptors()
    disable_core_dumps()
