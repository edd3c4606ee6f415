"""What an engine is."""


class Engine:
    """One checkpoint engine. The methods run as the job's owner, with the capabilities the engine asks for."""

    name = None
    """str: how configuration and manifest call it."""
    dump_capabilities = ()
    """Capabilities (ints) that dump needs."""
    restore_capabilities = ()
    """Capabilities (ints) that restore needs. An image decides what the engine does with them, so as few as can be."""

    stops = False
    """bool: whether a job that is to continue is stopped by signals for its image, so that somebody has to resume it."""
    stops_late = False
    """bool: whether it may still stop the job when its program was killed, because the kernel continues with what it was told."""
    keeps_ids = True
    """bool: whether what is restored has the process ids that it had."""

    @staticmethod
    def find_difference(manifest, node):
        """Return why an image of this engine cannot continue on a node (str), empty if the engine has nothing against it.

        Architecture and CPU have been compared already.

        :param manifest: the image's (dict)
        :param node: from compatibility.describe_node() or of that form (dict)
        """
        return ""

    @staticmethod
    def probe(options):
        """Return what this node has of the engine (dict), for people and playbooks, with "version" (str), empty if it is not installed.

        :param options: the engine's options (dict); the engine need not be installed
        """
        raise NotImplementedError

    def read_version(self):
        """Return the engine's version (str)."""
        raise NotImplementedError

    def check_node(self):
        """Check that this node's kernel can do what the engine needs. Cheap: pbs_mom asks every few minutes.

        :raises HookError: CONFIG when it cannot
        """
        raise NotImplementedError

    def build_command(self, arguments):
        """Return with what (list of str) a program is started, so that the engine can dump it; arguments: list of str."""
        return arguments

    def dump(self, root, directory, stop, action_script=None, meanwhile=None, memory=None):
        """Write the tree under root (pid) into directory (path, str).

        :param stop: leave the tree stopped (True) or running (False)
        :param memory: where what holds memory goes (path, str), or None for directory: it is as large as the job. What is more than was
            to be expected may be in directory all the same
        :param action_script: program (path, str) to run when the image is written and the tree is frozen, or None; it fails as that does
        :param meanwhile: called while the engine works, or None; what it raises this raises when the engine has ended well
        :raises HookError: ENGINE; the tree keeps running then
        """
        raise NotImplementedError

    def list_process_ids(self, directory):
        """Return the ids (sorted list of int) of all processes and threads of the image in directory (descriptor)."""
        raise NotImplementedError

    def find_excess(self, directory):
        """Return what in an image (descriptor) would give a process more than its owner has, who calls this (str); empty if nothing."""
        return ""

    def list_lost_resources(self, directory):
        """Return what the processes had and will not have after a restart (list of str) of the image in directory (descriptor)."""
        return []

    def is_memory(self, name):
        """Whether the image's file name (str) holds nothing but memory of the job's processes: it steers the engine in nothing."""
        raise NotImplementedError

    def holds_memory(self, name):
        """Whether memory is in the image's file name (str), beside other things maybe: it is as large as the job, and worth compressing."""
        return self.is_memory(name)

    def restore(self, directory, action_script=None):
        """Restore the tree in directory (path, str); its root becomes an orphan of this process.

        :param action_script: program (path, str) to run when the tree is restored and still stopped, or None; if it fails, so does this
        :raises HookError: ENGINE or TEMPORARY; nothing of the tree is left then
        """
        raise NotImplementedError
