"""A third engine, as its file would be in torque_ckpt/engines: for programs that print one number after another.

Its image is the program's command and the last number that it printed; restored, the program is started anew with that number as its last
argument, under another process id. What stops it, sets it going again and ends it are real signals.
"""
import json
import os
import signal
import time

from ..errors import HookError, CONFIG, ENGINE
from ..system import processes
from ..system.command import run
from .base import Engine

IMAGE = "counter.json"


class Toy(Engine):
    """See base.Engine.

    :param path: a file that is there where the engine is installed (str)
    :param greeting: printed by what is restored, before its next number (str)
    :param timeout: seconds (int)
    """

    name = "toy"
    stops = True
    keeps_ids = False

    def __init__(self, path, greeting="", timeout=60):
        self.path, self.greeting, self.timeout = path, greeting, timeout
        if not os.path.exists(path):
            raise HookError(CONFIG, "the toy engine is not at %s on this node; run the role toy" % path)

    @staticmethod
    def find_difference(manifest, node):
        """See Engine."""
        return "was written on %s, and a toy stays at home" % manifest["node"] if manifest["node"] != node["node"] else ""

    @classmethod
    def probe(cls, options):
        """See Engine."""
        return {"path": options["path"], "version": "1" if os.path.exists(options["path"]) else ""}

    def read_version(self):
        """See Engine."""
        return "1"

    def check_node(self):
        """See Engine."""

    def dump(self, root, directory, stop, action_script=None, meanwhile=None, memory=None, removed=None, connected=False,
             leased=False):
        """See Engine."""
        tree = processes.list_tree(root)
        if meanwhile:
            meanwhile()
        try:
            for pid in tree:
                os.kill(pid, signal.SIGSTOP)
            while any(processes.read_process(pid).state not in "TZ" for pid in tree):
                time.sleep(0.001)
            with open("/proc/%d/cmdline" % root) as stream:
                command = stream.read().split("\0")[:-1]
            output = os.readlink("/proc/%d/fd/1" % root)
            with open(output) as stream:
                number = stream.read().split()[-1]
            with open(os.path.join(directory, IMAGE), "x") as stream:
                json.dump({"pids": tree, "command": command, "output": output, "number": number}, stream)
            self._run_action_script(action_script)
        finally:
            if not stop:
                for pid in tree:
                    os.kill(pid, signal.SIGCONT)

    def _run_action_script(self, action_script):
        if action_script and run([action_script], self.timeout)[0] != 0:
            raise HookError(ENGINE, "%s failed; the job keeps running" % action_script)

    def list_process_ids(self, directory):
        """See Engine."""
        with open(os.open(IMAGE, os.O_RDONLY, dir_fd=directory)) as stream:
            return sorted(json.load(stream)["pids"])

    def is_memory(self, name):
        """See Engine."""
        return False

    def restore(self, directory, action_script=None, connected=False, pause=0):
        """See Engine."""
        with open(os.path.join(directory, IMAGE)) as stream:
            image = json.load(stream)
        before = processes.list_children(os.getppid())
        middle = os.fork()
        if middle == 0:
            if os.fork() == 0:
                self._become(image)
            os._exit(0)
        os.waitpid(middle, 0)
        came = [pid for pid in processes.list_children(os.getppid()) if pid not in before]
        while any(processes.read_process(pid).state != "T" for pid in came):
            time.sleep(0.001)
        self._run_action_script(action_script)
        for pid in came:
            os.kill(pid, signal.SIGCONT)

    def _become(self, image):
        """In a process of its own: stand still until the tree may go on, then be the program."""
        os.kill(os.getpid(), signal.SIGSTOP)
        os.setpgid(0, 0)
        os.dup2(os.open(image["output"], os.O_WRONLY | os.O_APPEND), 1)
        os.write(1, self.greeting.encode())
        command = image["command"][:-1] + [image["number"]]
        os.execv(command[0], command)
