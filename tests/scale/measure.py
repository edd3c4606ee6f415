"""What a program takes: wall time, CPU time and memory, of it and of all that it starts."""
import collections
import os
import pathlib
import re
import subprocess
import threading

INTERVAL = 2
"""Seconds between two looks at the memory of all processes: a look takes some milliseconds for each."""

Cost = collections.namedtuple("Cost", "status seconds cpu main tree")
"""status   int: exit status
seconds  float: wall time
cpu      float: seconds of CPU of all processes
main     int: most bytes that the first process had in memory at a time
tree     int: most bytes that all processes had, what they share counted once (PSS)
"""


def read_kib(path, name):
    """Return a value (bytes) of a file in /proc, 0 if the process has ended."""
    try:
        match = re.search(r"^%s:\s+(\d+) kB" % name, pathlib.Path(path).read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match.group(1)) * 1024 if match else 0


def list_tree(top):
    """Return the ids of a process (int) and of all that descend from it."""
    children = collections.defaultdict(list)
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children[parent].append(int(path.parent.name))
    found = [top]
    for process in found:
        found += children[process]
    return found


class Watch(threading.Thread):
    """Looks at the memory of a process and its descendants until it has ended."""

    def __init__(self, process):
        super().__init__()
        self.process, self.ended, self.main, self.tree = process, threading.Event(), 0, 0

    def run(self):
        while not self.ended.wait(INTERVAL):
            self.main = max(self.main, read_kib("/proc/%d/status" % self.process, "VmHWM"))
            self.tree = max(self.tree, sum(read_kib("/proc/%d/smaps_rollup" % process, "Pss") for process in list_tree(self.process)))


def run(command, log, environment, directory):
    """Run a command (list of str); return its Cost.

    :param log: the file for its output (pathlib.Path)
    :param environment: its variables (dict)
    :param directory: where it runs
    """
    started = os.times().elapsed
    with open(log, "w") as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=environment,
                                   cwd=directory)
    watch = Watch(process.pid)
    watch.start()
    _process, status, usage = os.wait4(process.pid, 0)
    seconds = os.times().elapsed - started
    process.returncode = os.waitstatus_to_exitcode(status)
    watch.ended.set()
    watch.join()
    return Cost(process.returncode, seconds, usage.ru_utime + usage.ru_stime, watch.main, watch.tree)
