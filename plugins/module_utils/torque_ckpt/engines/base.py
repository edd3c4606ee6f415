"""What an engine is."""

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Optional


class Engine:
    """One checkpoint engine. The methods run as the job's owner, with the capabilities the engine asks for."""

    name: str
    """How configuration and manifest call it."""
    stops = False
    """Whether a job that is to continue is stopped by signals for its image, so that somebody has to resume it."""
    stops_late = False
    """Whether it may still stop the job when its program was killed, because the kernel continues what it has begun."""

    moves_connections = False
    """Whether it writes and restores TCP connections between processes of the tree."""

    @property
    def dump_capabilities(self) -> "tuple[int, ...]":
        """Capabilities that dump needs."""
        return ()

    @property
    def restore_capabilities(self) -> "tuple[int, ...]":
        """Capabilities that restore needs. An image decides what the engine does with them, so as few as can be."""
        return ()

    @property
    def connection_capabilities(self) -> "tuple[int, ...]":
        """Capabilities that dump and restore need beside the others if there are connections that the engine moves (moves_connections)."""
        return ()

    @property
    def keeps_ids(self) -> bool:
        """Whether what is restored has the process ids that it had."""
        return True

    @staticmethod
    def find_difference(manifest: dict, node: dict) -> str:
        """Return why an image of this engine cannot continue on a node, empty if the engine has nothing against it.

        Architecture and CPU have been compared already.

        :param manifest: the image's
        :param node: from compatibility.describe_node() or of that form
        """
        return ""

    @staticmethod
    def probe(options: dict) -> "dict[str, Any]":
        """Return what this node has of the engine, for people and playbooks, with "version" (str), empty if it is not installed.

        :param options: the engine's options; the engine need not be installed
        """
        raise NotImplementedError

    def read_version(self) -> str:
        """Return the engine's version."""
        raise NotImplementedError

    def check_node(self) -> None:
        """Check that this node's kernel can do what the engine needs. Cheap: pbs_mom asks every few minutes.

        :raises HookError: CONFIG when it cannot
        """
        raise NotImplementedError

    def build_command(self, arguments: "list[str]") -> "list[str]":
        """Return the command by which a program is started, so that the engine can dump it; arguments: the program and its own."""
        return arguments

    def dump(self, root: int, directory: str, stop: bool, action_script: "str | None" = None,
             meanwhile: "Optional[Callable[[], None]]" = None, memory: "str | None" = None, removed: "int | None" = None,
             connected: bool = False, leased: bool = False) -> None:
        """Write the tree under root (pid) into directory (path).

        :param stop: leave the tree stopped (True) or running (False)
        :param memory: where the files that hold memory go (path), or None for directory: they are as large as the job. An engine that
            writes more of them than it expected may leave those in directory
        :param removed: how large a removed file that the tree has open may be (bytes), or None for what the engine allows by itself
        :param connected: write TCP connections between processes of the tree; stop must be False then
        :param leased: open no file that the tree has open: it has a lease that this would break
        :param action_script: program (path) to run when the image is written and the tree is frozen, or None; dump fails if that does
        :param meanwhile: called while the engine works, or None; what it raises this raises when the engine has ended well
        :raises HookError: ENGINE; the tree keeps running then
        """
        raise NotImplementedError

    def list_process_ids(self, directory: int) -> "list[int]":
        """Return the ids (sorted) of all processes and threads of the image in directory (descriptor)."""
        raise NotImplementedError

    def find_excess(self, directory: int) -> str:
        """Return what in an image (descriptor) would give a process more than its owner has, who calls this; empty if nothing."""
        return ""

    def find_foreign_connection(self, directory: int) -> str:
        """Return which TCP connection in an image (descriptor) is with something outside it, or that none can be read; empty if none."""
        return ""

    def settle(self, directory: int, connected: bool) -> bool:
        """Have an image (descriptor) keep timers that had expired when it was written, and what is under way in its TCP connections.

        Each connection must be between two of its processes. Return whether it has any: of those that were closed nothing is left in it.

        :param connected: whether its processes had connections
        :raises HookError: REFUSED when one is with something outside; TEMPORARY when one could not be restored, with the cause CARRYING
            when it carried something meanwhile; ENGINE when the image is not as the engine writes it
        """
        return False

    def complete_connections(self, directory: int) -> None:
        """Do what is left to do for the connections of an image (descriptor) when its tree is restored and still stands still.

        :raises HookError: TEMPORARY when that cannot be done on this node; ENGINE when the image is not as the engine writes it
        """

    def list_lost_resources(self, directory: int) -> "list[str]":
        """Return what the processes had and will not have after a restart of the image in directory (descriptor)."""
        return []

    def is_memory(self, name: str) -> bool:
        """Whether the image's file name holds nothing but memory of the job's processes: it steers the engine in nothing."""
        raise NotImplementedError

    def holds_memory(self, name: str) -> bool:
        """Whether memory is in the image's file name, beside other things maybe: it is as large as the job, and worth compressing."""
        return self.is_memory(name)

    def restore(self, directory: str, action_script: "str | None" = None, connected: bool = False, pause: int = 0) -> None:
        """Restore the tree in directory (path); its root becomes an orphan of this process.

        :param action_script: program (path) to run when the tree is restored and still stopped, or None; if it fails, so does this
        :param connected: the image has TCP connections
        :param pause: how long that program may do nothing (seconds)
        :raises HookError: ENGINE or TEMPORARY; nothing of the tree is left then
        """
        raise NotImplementedError
