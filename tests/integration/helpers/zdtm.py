"""CRIU's own test programs as jobs: each passes under criu alone on one node, and through the hooks from node1 to node2."""
import ast
import collections
import concurrent.futures
import contextlib
import io
import itertools
import json
import lzma
import re
import shlex
import subprocess
import tarfile
import threading

import tables
from cluster import STORE, TOP, hosts

DOCUMENT = TOP / "docs/reference/zdtm.md"
NODE = TOP / "tests/zdtm/node"
PLACE = "/shared/zdtm"
"""The same on all nodes."""
SUITE = PLACE + "/source/test/zdtm/static"
COMPILER, LIBRARIES = "gcc make libc6-dev libaio-dev libcap-dev pkg-config", "libaio1t64 libcap2"
"""Debian packages: what compiles the programs on node1, and what they need on both."""
INSTALL = "{{ dpkg -s {0} || {{ apt-get update && apt-get install -y --no-install-recommends {0}; }}; }} > /dev/null 2>&1"
JOBS = itertools.count(500000)
SHORT = ("file_lease00", "file_locks00", "maps00", "memfd00", "pipe00", "posix_timers", "pthread01", "socket-tcp4v6-local", "socket_listen",
         "sockets01", "unlink_fstat00", "write_read00")
"""A selection for make test, of each kind of resource one."""
AT_ONCE = 3
"""How many programs are tried at the same time: they mostly wait."""

PASSES, REFUSED, WRONG, NO_RESTORE = "passes", "is refused", "is wrong", "does not come back"
"""Outcomes of node/trial.py."""
Trial = collections.namedtuple("Trial", "name bare hooks")
"""What became of a program: bare and hooks are Outcomes."""
Outcome = collections.namedtuple("Outcome", "outcome text")
"""outcome: one of those of node/trial.py; text: what was said about it."""


def asks_for_nothing(description):
    """Whether a program can be a user's job by its description (dict, CRIU's): it needs neither root nor namespaces of its own."""
    flags = description.get("flags", "").split()
    return ("h" in description.get("flavor", "h ns uns").split() and not set(flags) & {"suid", "noauto"}
            and "x86_64" in description.get("arch", "x86_64").split())


class Programs:
    """The test programs, compiled on node1 into a directory that all nodes see.

    :param names: which are wanted (iterable of str), or None: all that ask for nothing
    """

    def __init__(self, cluster, names=None):
        self.cluster = cluster
        self._install()
        self.commands = self._build(names)
        """How each is started (dict of list of str by name), here with paths relative to the suite."""

    def _install(self):
        node = self.cluster.nodes["node1"]
        node.ask("rm -rf {0} && mkdir -p {0}/node && install -d -o alice {0}/source {0}/bare".format(PLACE))
        for name, packages in (("node1", COMPILER), ("node1", LIBRARIES), ("node2", LIBRARIES)):
            self.cluster.nodes[name].ask(INSTALL.format(packages))
        with lzma.open(hosts("criu")) as source:
            subprocess.run(node.command + ["runuser -u alice -- tar -x -C %s/source --strip-components=1" % PLACE], input=source.read(),
                           check=True)
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path in sorted(NODE.glob("*.py")):
                tar.add(str(path), path.name)
        subprocess.run(node.command + ["tar -C %s/node --no-same-owner -xf -" % PLACE], input=archive.getvalue(), check=True)

    def _build(self, names):
        node = self.cluster.nodes["node1"]
        self.descriptions = self._read_descriptions(node)
        make = "runuser -u alice -- make -s -k -j2 -C %s " % SUITE
        subprocess.run(node.command + ["runuser -u alice -- make -s -C %s/../lib && %s %s" % (SUITE, make, " ".join(names or ["all"]))],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)  # some need more
        built = node.ask("cd %s && find . -maxdepth 1 -type f -perm -u+x ! -name '*.*' -printf '%%P\\n'" % SUITE).split()
        wanted = sorted(name for name in built if (name in names if names else asks_for_nothing(self.descriptions.get(name, {}))))
        assert not names or wanted == sorted(names), "these were not built: %s" % ", ".join(sorted(set(names) - set(wanted)))
        starts = node.run("%s -n %s" % (make, " ".join(name + ".pid" for name in wanted))).out
        commands = {}
        for line in starts.splitlines():
            words = shlex.split(line)
            if words and words[0].startswith("./"):
                commands[words[0][2:]] = words[1:]
        return {name: commands[name] for name in wanted if name in commands}  # others have nothing that lives

    @staticmethod
    def _read_descriptions(node):
        """Return CRIU's descriptions of the programs (dict of dict by name); of those that are code only that they run by themselves."""
        text = node.ask("cd %s && for file in *.desc; do echo \"== ${file%%.desc}\"; cat $file; echo; done" % SUITE)
        descriptions = {}
        for part in ("\n" + text).split("\n== ")[1:]:
            name, content = part.split("\n", 1)
            try:
                descriptions[name] = ast.literal_eval(content.strip() or "{}")
            except (SyntaxError, ValueError):
                descriptions[name] = {"flags": "noauto"}
        return descriptions

    def _call(self, node, action, parameters):
        done = subprocess.run(self.cluster.nodes[node].command + ["python3 %s/node/trial.py %s %s" % (
            PLACE, action, shlex.quote(json.dumps(parameters)))], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            universal_newlines=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return Outcome(**json.loads(done.stdout))

    def _try_one(self, name, action, job, store):
        description = self.descriptions.get(name, {})
        common, dump, restore = (description.get(key, "").split() for key in ("opts", "dopts", "ropts"))
        arguments = ["--pidfile=pid", "--outfile=verdict"] + [word for word in self.commands[name]
                                                              if not word.startswith(("--pidfile=", "--outfile="))]
        parameters = {"name": name, "command": ["%s/%s" % (SUITE, name)] + arguments, "job": job, "directory": "%s/work/%s" % (PLACE, job),
                      "store": store, "options": {"dump": common + dump, "restore": common + restore}}
        outcome = self._call("node1", action, parameters)
        if outcome.outcome == "held":
            outcome = self._call("node2", "continue", parameters)
        return outcome

    def try_program(self, name):
        """Return the Trial of a program."""
        number = next(JOBS)
        bare = self._try_one(name, "bare", "bare%d.head" % number, PLACE + "/bare")
        hooks = self._try_one(name, "hold", "%d.head" % number, STORE)
        return Trial(name, bare, hooks)

    def try_all(self, report=print, names=None):
        """Return the Trials of programs, in the order of their names.

        :param report: called with each
        :param names: theirs, or None: all that were compiled
        """
        ports = threading.Lock()

        def work(name):
            with ports if "sock" in name else contextlib.nullcontext():  # many use the same ports
                trial = self.try_program(name)
            report(trial)
            return trial
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(work, sorted(names or self.commands)))

    def remove(self):
        """Remove what this has put on the nodes."""
        for name in ("node1", "node2"):
            self.cluster.nodes[name].run("pkill -KILL -u alice")
        self.cluster.nodes["node1"].ask("rm -rf %s %s/5?????.head.CK" % (PLACE, STORE))


# -- what differs ------------------------------------------------------------------------

_CLOSES = "expects that its connections are closed (`--tcp-close`); the hooks keep them"
_FULL = ("has connections full of bytes: CRIU sends them while it restores a connection, and fails if it has not restored the other end "
         "yet, as it happens; the hooks put them into the other end before")
_CLOSED = ("has closed a connection in which bytes are under way: CRIU sends the end of it while it restores the connection, and fails if "
           "it has not restored the other end yet, as it happens")
REASONS = {
    "socket-dump-tcp-close": _CLOSES, "socket-tcp-close0": _CLOSES, "socket-tcp-close2": _CLOSES,
    "socket-tcp-skip-in-flight": "asks for `--skip-in-flight`, which the hooks do not give to CRIU: a connection that nobody has accepted "
                                 "would be lost",
    "socket-tcp-fin-wait1": _CLOSED, "socket-tcp4v6-fin-wait1": _CLOSED, "socket-tcp6-fin-wait1": _CLOSED,
    "socket-tcpbuf": _FULL, "socket-tcpbuf6": _FULL, "socket-tcpbuf-local": _FULL, "socket-tcpbuf6-local": _FULL,
    "unhashed_proc": "works in the directory in /proc of a process that has ended: CRIU puts a process in its stead into the process group "
                     "of the tree's first process, which leads that group in a job",
}
"""Why a program (name) does otherwise through the hooks than under criu alone."""


def differs(trial):
    """Whether a program did otherwise through the hooks than under criu alone."""
    return trial.bare.outcome != trial.hooks.outcome


def find_faults(trials):
    """Return what must not be (list of str).

    What passes under criu alone passes through the hooks, and nothing comes back wrong or is lost. What has a reason in REASONS is known.
    """
    faults = []
    for trial in trials:
        known = trial.name in REASONS
        if differs(trial) and not known and (trial.bare.outcome == PASSES or trial.hooks.outcome in (WRONG, NO_RESTORE)):
            faults.append("%s: %s under criu alone (%s), %s through the hooks: %s" % (
                trial.name, trial.bare.outcome, trial.bare.text or "nothing was printed", trial.hooks.outcome, trial.hooks.text))
    return faults


def _shorten(text):
    """Return what was said about a program without what differs from run to run."""
    text = re.sub(r"process \d+ ", "process N ", text.split("; the job keeps running")[0].split("; the image is kept")[0])
    return re.sub(r"\d{5,}|0x[0-9a-f]+", "N", text)[:200]


def describe(trials, day):
    """Return the generated part of the document (list of str: lines).

    :param day: when they were run (str)
    """
    counts = collections.Counter((trial.bare.outcome, trial.hooks.outcome) for trial in trials)
    lines = ["%d programs, run on %s:" % (len(trials), day), ""] + tables.format_head(["under criu alone", "through the hooks", "programs"])
    lines += [tables.format_row(outcomes + (str(count),))
              for outcomes, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    lines += ["", "Differences:", ""] + tables.format_head(["program", "under criu alone", "through the hooks", "reason"])
    lines += [tables.format_row(["`%s`" % trial.name, trial.bare.outcome, trial.hooks.outcome,
                                 REASONS.get(trial.name) or _shorten(trial.hooks.text or trial.bare.text)])
              for trial in trials if differs(trial)]
    lines += ["", "The same both ways, but not passed:", ""] + tables.format_head(["program", "outcome", "reason"])
    return lines + [tables.format_row(["`%s`" % trial.name, trial.hooks.outcome, _shorten(trial.hooks.text)])
                    for trial in trials if not differs(trial) and trial.hooks.outcome != PASSES]


def write_document(trials, day):
    """Write the generated part of DOCUMENT."""
    DOCUMENT.write_text(tables.replace(DOCUMENT.read_text(), "zdtm", describe(trials, day)))
