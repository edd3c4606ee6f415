"""The engines: one entry each. base.py defines what an engine is.

A further engine is a file in this directory, its entry here, and a role that installs it. What chooses, configures and tries engines uses
the entry; what the role checkpoint_hooks takes as its options and docs/reference/hooks-json.md are generated.
"""
import os

from ..errors import HookError, CONFIG
from ..settings import Setting, check_path, check_texts, find_faults

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable
    from .base import Engine
    from .blcr import Blcr
    from .criu import Criu


class Entry:
    """One engine.

    :param name: how configuration, manifest and the role that installs it are called
    :param title: its name in sentences
    :param load: called when the engine is used; returns its class, whose parameters are the options and "timeout". It imports the class
        itself, in a statement: a hook loads no other engine, and Ansible finds by the statement what a module needs
    :param first, last: the kernels on which it runs, as (major, minor); last is None if there is no end
    :param options: what a site may set of it, engine_options in hooks.json; one is its path
    :param path_variable: the variable of its role that decides the option path
    :param path_beneath: what of the path lies beneath the value of that variable, or empty
    :param mode: how it runs there, for sentences, if that is why it does not run on older kernels
    :param notes: names of files that it may add to an image when it restores it; it never reads them
    :param socketless_library: what LD_PRELOAD holds in a job that can have no sockets, as the engine restores none, or empty
    :param variables: (name, value): what the run hook sets in the environment of a job on one node, so that programs and MPI libraries do
        without what the engine cannot write; what the job has set itself is left as it is
    :param obstacles: what it cannot write into an image, kinds of files/obstacles.py
    :param words: pieces of what it prints about them, each with the kind
    """

    def __init__(self, name: str, title: str, load: "Callable[[], type[Engine]]", first: "tuple[int, int]", last: "tuple[int, int] | None",
                 options: "tuple[Setting, ...]", path_variable: str, path_beneath: str = "", mode: str = "",
                 notes: "tuple[str, ...]" = (), socketless_library: str = "", variables: "tuple[tuple[str, str], ...]" = (),
                 obstacles: "tuple[str, ...]" = (), words: "tuple[tuple[str, str], ...]" = ()) -> None:
        self.name, self.title, self.load = name, title, load
        self.first, self.last = first, last
        self.options = options
        self.path_variable, self.path_beneath = path_variable, path_beneath
        self.mode, self.notes, self.socketless_library = mode, notes, socketless_library
        self.variables, self.obstacles, self.words = variables, obstacles, words

    def runs_on(self, kernel: "tuple[int, int]") -> bool:
        """Whether it runs on a kernel, a (major, minor)."""
        return self.first <= kernel and (self.last is None or kernel <= self.last)

    def find_kind(self, text: str) -> "str | None":
        """Return the kind of obstacle about which this text of the engine is, or None."""
        return next((kind for piece, kind in self.words if piece in text), None)

    def add_defaults(self, options: dict) -> "dict[str, Any]":
        """Return options with the defaults of those that it lacks."""
        return dict({option.name: option.default for option in self.options}, **options)

    def locate(self, prefix: str) -> str:
        """Return the option path where the engine's role has installed it.

        :param prefix: the value of path_variable
        """
        return os.path.join(prefix, self.path_beneath) if self.path_beneath else prefix

    def find_fault(self, options: dict) -> str:
        """Return what is wrong with options, as settings.Setting.find_fault does."""
        unknown = sorted(set(options) - {option.name for option in self.options})
        if unknown:
            return "has unknown settings: %s" % ", ".join("engine_options." + name for name in unknown)
        return next(find_faults(self.options, self.add_defaults(options), "engine_options."), "")


def _load_criu() -> "type[Criu]":
    from .criu import Criu
    return Criu


def _load_blcr() -> "type[Blcr]":
    from .blcr import Blcr
    return Blcr


ENGINES = (
    # As an ordinary user CRIU needs CAP_CHECKPOINT_RESTORE, which is Linux 5.9.
    Entry("criu", "CRIU", _load_criu, (5, 9), None, (
        Setting("path", "/opt/criu/current/sbin/criu", "CRIU, by absolute path.", check=check_path),
        Setting("options", [], "Appended to every `criu dump` and `criu restore`.", check=check_texts),
        Setting("stall", 30, "How long CRIU may neither use a processor nor read or write before it is killed: another user of the node "
                "may have it wait for something that never comes. A job that was to be checkpointed keeps running then, one that was to be "
                "restarted is queued again. Where CRIU waits for a disk or a file server, which may be starting again, it has the time of "
                "engine_timeout.", least=1, most=60, unit="seconds"),
    ), path_variable="criu_prefix", path_beneath="current/sbin/criu", mode="as an ordinary user", notes=("stats-restore",),
        variables=(
            ("UV_USE_IO_URING", "0"),  # libuv, so Node.js, uses io_uring otherwise, which CRIU cannot write
            ("UCX_TLS", "posix,self"),  # UCX, so MPICH: no System V memory, no network
            ("HYDRA_IFACE", "lo"),  # MPICH's launcher: connections on loopback move
            ("PMIX_MCA_ptl_base_if_include", "lo"),  # Open MPI 5 the same
            ("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "^tcp,openib,ofi,uct,usnic")),  # shared memory, whose name differs in 4 and 5
        obstacles=("io_uring", "kernel_object", "inotify", "fanotify", "packet_pipe", "device", "sysv_memory", "removed_file",
                   "replaced_file", "dead_process", "namespace",
                   "traced", "seccomp", "tcp", "tcp_pending", "unix_peer", "x11", "socket", "broken_lease"),
        words=(("io_uring", "io_uring"), ("send_fds failed (-22)", "io_uring"),  # which Linux lets nobody pass on since 6.7
               ("(anon ", "kernel_object"), ("(chr ", "device"), ("Can't dump that handle", "inotify"),
               ("packetized mode for pipes", "packet_pipe"), ("SysVIPC shmem", "sysv_memory"), ("increase limit", "removed_file"),
               ("nested user namespace", "namespace"), ("suspending seccomp failed", "seccomp"), ("Connected TCP socket", "tcp"),
               ("In-flight connection (l)", "tcp_pending"), ("half of stream unix connection", "unix_peer"),
               ("Unsupported proto", "socket"), ("Unknown socket", "socket"))),
    # BLCR 0.8.6_b4 ends at 3.17 (0.8.5 at 3.7). It begins at 2.6, but the hooks need what Linux has since 3.5: child subreapers, and the
    # lists of children in /proc.
    Entry("blcr", "BLCR", _load_blcr, (3, 5), (3, 17), (
        Setting("path", "/opt/blcr/current/bin", "The directory of cr_run, cr_checkpoint and cr_restart.", check=check_path),
        Setting("dump_options", [], "Appended to every `cr_checkpoint`, for instance `--save-private`, which puts programs and libraries "
                "into the image.", check=check_texts),
        Setting("restore_options", [], "Appended to every `cr_restart`, for instance `--relocate` and `OLD=NEW`. With `--no-restore-pid` a "
                "job comes back with other process ids, so that none can be in use; programs that know their own ids break.",
                check=check_texts),
    ), path_variable="blcr_prefix", path_beneath="current/bin", socketless_library="libcr_run", obstacles=("device", "traced")),
)
"""In the order in which "auto" prefers them."""


def list_names() -> "list[str]":
    """Return the names of all engines, preferred ones first."""
    return [entry.name for entry in ENGINES]


def find_entry(name: str) -> "Entry | None":
    """Return the Entry of an engine, or None if these hooks do not know it."""
    return next((entry for entry in ENGINES if entry.name == name), None)


def get_entry(name: str) -> Entry:
    """Return the Entry of an engine that these hooks know."""
    return next(entry for entry in ENGINES if entry.name == name)


def load_engine(configuration: dict) -> "Engine":
    """Return the configured Engine.

    :param configuration: with engine, engine_timeout and maybe engine_options, as from config.load_settings
    :raises HookError: CONFIG for an engine that these hooks do not know, or that is not on this node
    """
    entry = find_entry(configuration["engine"])
    if entry is None:
        raise HookError(CONFIG, "engine %s is not known to these hooks (known: %s); set checkpoint_hooks_engine"
                        % (ascii(configuration["engine"]), ", ".join(sorted(list_names()))))
    options = entry.add_defaults(configuration.get("engine_options", {}))
    engine: "Callable[..., Engine]" = entry.load()  # each class has parameters of its own
    return engine(timeout=configuration["engine_timeout"], **options)
