"""The parts of `make test`, one after the other; at the end one line per part, and which levels were proven.

  run.py             all parts
  run.py PART ...    these parts

The output of a part goes to .cache/test/PART.log and is shown when the part
fails (all of it, as it comes, with V=1).
"""
import collections
import concurrent.futures
import functools
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
LOGS = TOP / ".cache/test"
COLLECTIONS = TOP / ".cache/collections"
INSTALLED = COLLECTIONS / "ansible_collections/ckpt/torque"
PYTHON = sys.executable
HOSTS = [PYTHON, str(TOP / "molecule/shared/hosts.py")]
LEVELS = {"L1": "engine", "L2": "hooks", "L3": "job"}


def interpreters():
    """Return each Python >= 3.6 on this machine, as {version: path}."""
    paths = glob.glob("/usr/bin/python3*") + glob.glob("/usr/local/bin/python3*") + glob.glob(
        os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")) + [PYTHON]
    pythons = {}
    for path in paths:
        if re.search(r"python3(\.\d+)?$", path):
            done = subprocess.run([path, "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2])"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True, check=False)
            if done.returncode == 0 and tuple(map(int, done.stdout.split())) >= (3, 6):
                pythons.setdefault(tuple(map(int, done.stdout.split())), path)
    return pythons


def hook_python(version, path):
    """Return the python of a virtual environment with pytest for this interpreter."""
    directory = TOP / ".cache" / ("python%d.%d" % version)
    python = directory / "bin/python"
    if not (directory / ".ready").exists():
        subprocess.run([path, "-m", "venv", "--clear", str(directory)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", str(TOP / "requirements-hooks.txt")], check=True)
        (directory / ".ready").touch()
    return str(python)


def lint():
    yield ["ruff", "check", "."]
    yield ["vermin", "--quiet", "--no-tips", "--target=3.6-", "--violations", "plugins/module_utils", "plugins/modules"]
    yield ["mypy", "plugins/module_utils", "plugins/modules", "plugins/action", "plugins/filter", "plugins/lookup", "plugins/plugin_utils",
           "playbooks/files"]
    yield ["yamllint", "--strict", "."]
    yield [PYTHON, "tools/role_docs.py", "--check"]
    yield [PYTHON, "tools/command_docs.py", "--check"]
    yield [PYTHON, "tools/manual_docs.py", "--check"]
    yield [PYTHON, "tools/reference_docs.py", "--check"]
    yield ["antsibull-changelog", "lint"]
    yield ["bash", "-c", "cd '%s' && ansible-lint --offline --project-dir . -c .ansible-lint" % INSTALLED]


def sanity_in(directory):
    """Copy the collection into a directory (pathlib.Path); return what tests it there (list of str)."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(INSTALLED, directory / "ansible_collections/ckpt/torque", symlinks=True)
    return ["tests/sanity/run", str(directory)]


def sanity():
    yield sanity_in(TOP / ".cache/sanity")


def as_root(path=None):
    """Return what goes before a command (list of str): the hooks, and whoever plays pbs_mom, are root's.

    :param path: the command's PATH (str); without it that of this environment
    """
    if os.geteuid() == 0 or not shutil.which("sudo"):
        return []
    return ["sudo", "--preserve-env=PYTHONDONTWRITEBYTECODE,ANSIBLE_COLLECTIONS_PATH,TORQUE_SOURCE,CRIU_SOURCE,CKPT_TORQUE_FAULTS", "env",
            "PATH=" + (path or environment()["PATH"]),
            "HYPOTHESIS_STORAGE_DIRECTORY=/root/.cache/hypothesis"]  # nothing of root's in the user's clone


class Together(list):
    """Chains of commands (list of list of list of str): chains run at the same time, the commands of one in turn."""


PYTEST = ["-m", "pytest"]
WITH_ANSIBLE = ["-q", "tests/unit", "--ignore=tests/unit/module_utils"]
"""The unit tests that need ansible-core."""


def unit():
    """Mostly waiting for processes: four chains at once, of about the same length."""
    root, pythons = as_root(), interpreters()
    yield Together([[root + [hook_python(version, pythons[version])] + PYTEST + ["-q", "tests/unit/module_utils"]]
                    for version in sorted({min(pythons), max(pythons)})] +
                   [[root + [PYTHON] + PYTEST + WITH_ANSIBLE + ["--ignore=tests/unit/project"]],
                    [root + [PYTHON] + PYTEST + ["-q", "tests/unit/project"]]])


def integration():
    """Mostly waiting: three chains at once, of about the same length, each with hosts of its own."""
    # bad_source comes last: what it installs on node1 may bring a newer libc, and then no job moves to node2.
    jobs = ["torque", "crash", "cut_off", "neighbours", "parallel", "nested", "multinode", "programs", "drain", "update", "adopt",
            "bad_source"]
    if not torque_source():  # then most of these are skipped
        jobs[:0] = ["hooks", "rings"]
    chains = {"jobs": jobs, "playbooks": ["playbooks", "bundle", "daemon"]}
    paths = {name: ["tests/integration/test_%s.py" % entry for entry in entries] for name, entries in chains.items()}
    others = ["tests/integration/" + name for name in ("faults", "blcr", "kernels", "nfs", "storm", "maui", "ring", "takeover", "versions")]
    rest = ["tests/integration"] + ["--ignore=" + path for path in sum(paths.values(), others)]
    yield Together([[["env", "CKPT_TORQUE_GROUP=integration" + name, PYTHON] + PYTEST + ["-v"] + paths[name]] for name in paths] +
                   [[[PYTHON] + PYTEST + ["-v"] + rest]])


def faults():
    """The fault suite: takes its time, so make test does not run it by itself."""
    yield as_root() + [PYTHON] + PYTEST + ["-q", "tests/unit/project/test_fuzz.py"]
    yield [PYTHON] + PYTEST + ["-v", "tests/integration/faults"]


def storm():
    """Hundreds of moves by several at a time: ten minutes and up."""
    yield [PYTHON] + PYTEST + ["-v", "tests/integration/storm"]


def ring():
    """Sixteen nodes, each of which proves all levels: five minutes."""
    yield ["env", "CKPT_TORQUE_GROUP=ring", "CKPT_TORQUE_NODES=%s" % (os.environ.get("RING") or 16), PYTHON] + PYTEST + [
        "-v", "tests/integration/ring"]


def takeover():
    """A cluster that somebody made by hand is taken over: TORQUE is built twice, stock and ours."""
    yield ["env", "CKPT_TORQUE_GROUP=takeover", PYTHON] + PYTEST + ["-v", "tests/integration/takeover"]


def versions():
    """A cluster changes to another version of TORQUE and back: needs the source of an older one."""
    yield ["env", "CKPT_TORQUE_GROUP=versions", PYTHON] + PYTEST + ["-v", "tests/integration/versions"]


def maui():
    """Maui itself preempts jobs; needs its source, so make test cannot run it."""
    yield [PYTHON] + PYTEST + ["-v", "tests/integration/maui"]


def apps():
    """Programs that nobody here wrote, moved as jobs: an hour."""
    yield ["env", "CKPT_TORQUE_GROUP=%s" % os.environ.get("CKPT_TORQUE_GROUP", "apps"), PYTHON] + PYTEST + ["-v", "tests/apps"]


def zdtm():
    """CRIU's own test programs as jobs: some minutes."""
    yield [PYTHON] + PYTEST + ["-v", "-s", "tests/zdtm"]


def guests():
    """Kernel modules, in an emulated machine: half an hour, too much for make test."""
    yield ["molecule", "test", "-s", "blcr"]


def nfs():
    """A store on a real NFS server, in four emulated machines: half an hour and more, too much for make test."""
    yield ["molecule", "test", "-s", "store_nfs"]


def selinux():
    """Layout 3 with SELinux enforcing, in three emulated machines: a quarter of an hour."""
    yield ["molecule", "test", "-s", "selinux"]


def in_two_machines(name, packages=""):
    """Return what runs the tests of a directory in two virtual machines (list of str); the first is the server, too.

    :param packages: what the machines have further (str), besides the caller's CKPT_TORQUE_GUEST_PACKAGES
    """
    return ["env", "CKPT_TORQUE_GROUP=" + (os.environ.get("CKPT_TORQUE_GROUP") or name + "vm"),
            "CKPT_TORQUE_GUEST_PACKAGES=%s %s" % (packages, os.environ.get("CKPT_TORQUE_GUEST_PACKAGES", "")),
            "CKPT_TORQUE_MEMBERS=node1:torque_server,torque_client,torque_mom,checkpoint_store node2:torque_mom,checkpoint_store",
            PYTHON] + PYTEST + ["-v", "tests/integration/" + name]


def blcr():
    """BLCR itself; needs its source and a kernel that it knows, so make test cannot run it."""
    yield in_two_machines("blcr")


def kernels():
    """A node gets a newer kernel of Debian while jobs are held: half an hour, too much for make test."""
    yield in_two_machines("kernels", "nfs-kernel-server nfs-common")


def molecule():
    """Each scenario has hosts of its own."""
    yield Together([[["molecule", "test", "-s", scenario]] for scenario in ("default", "options")])


def roles():
    """Each role by itself (ROLES: these), on hosts that have nothing but what it needs: a minute each once TORQUE is built."""
    emulated = ["blcr"]  # make guests
    names = os.environ.get("ROLES", "").split() or [path.name for path in sorted((TOP / "roles").iterdir()) if path.name not in emulated]
    for name in names:
        if (name.startswith("torque_") or name == "maui") and not torque_source():
            yield ["echo", "SKIPPED scenario %s: there is no TORQUE source; name a tarball in TORQUE_SOURCE" % name]
        elif name == "maui" and not os.environ.get("MAUI_SOURCE"):
            yield ["echo", "SKIPPED scenario maui: name Maui's tarball in MAUI_SOURCE"]
        else:
            yield ["molecule", "test", "-s", name]


def page():
    """The page of a report in Chromium; its screenshots are kept in .cache/test/page."""
    yield [PYTHON] + PYTEST + ["-q", "tests/page"]


PARTS = [[lint, sanity, page], [unit], [integration], [molecule]]
"""Parts in one list run at the same time: each of them keeps no more than one CPU busy."""
FURTHER = [[roles], [guests], [faults], [storm], [ring], [takeover], [versions], [maui], [apps], [zdtm], [nfs], [selinux], [kernels],
           [blcr]]
"""Run only when named."""


def environment():
    path = os.path.dirname(PYTHON) + os.pathsep + os.environ["PATH"]
    variables = dict(os.environ, PATH=path, PYTHONDONTWRITEBYTECODE="1", ANSIBLE_COLLECTIONS_PATH=str(COLLECTIONS),
                     CKPT_TORQUE_REPORTS=str(LOGS / "reports"), HYPOTHESIS_STORAGE_DIRECTORY=str(LOGS.parent / "hypothesis"))
    done = subprocess.run(HOSTS + ["mirror"], stdout=subprocess.PIPE, universal_newlines=True, check=False)
    variables["CKPT_TORQUE_MIRROR"] = done.stdout.strip()
    variables["TORQUE_SOURCE"] = torque_source() or "none"
    variables["CRIU_SOURCE"] = criu_source()
    variables["CKPT_TORQUE_L3"] = "true" if torque_source() else "false"  # for molecule's inventories
    return variables


@functools.lru_cache(maxsize=None)
def criu_source():
    """Return where the tarball of CRIU's release is (str)."""
    return subprocess.run(HOSTS + ["criu"], stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout.strip()


@functools.lru_cache(maxsize=None)
def torque_source():
    """Return where TORQUE's source is (str), empty when it is nowhere to be had; then hosts.py says so."""
    return subprocess.run(HOSTS + ["torque"], stdout=subprocess.PIPE, universal_newlines=True, check=False).stdout.strip()


def counts(log):
    """Return what pytest and molecule said of their counts in a log (str), skips included."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log)
    words = "passed|failed|skipped|errors?|deselected|xfailed|xpassed|warnings?"
    totals = re.findall(r"^=* ?((?:\d+ (?:%s)(?:, )?)+) in " % words, text, re.MULTILINE)
    steps = re.findall(r"^(\w+) +: actions=\d+ +successful=(\d+)", text, re.MULTILINE)
    return totals + ["scenario %s: %s steps" % pair for pair in steps] + re.findall(r"^faults: .*$", text, re.MULTILINE)


def failures(log):
    """Return the lines in which pytest names what failed in a log (list of str), cut."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log)
    return [line[:300] for line in re.findall(r"^(?:FAILED|ERROR) .*$", text, re.MULTILINE)]


class Chain(threading.Thread):
    """Runs commands (list of list of str) in turn, the rest also when one fails; their output goes into a file.

    passed  bool: whether all have ended with 0
    """

    def __init__(self, commands, variables):
        super().__init__()
        self.commands, self.variables, self.passed = commands, variables, False
        self.log = tempfile.NamedTemporaryFile("w+", errors="replace", dir=LOGS, prefix=".output-")
        self.start()

    def run(self):
        self.passed = not [command for command in self.commands if not self._passes(command)]

    def _passes(self, command):
        shown = command[len(as_root()):] if command[:1] == ["sudo"] else command
        print("    %s" % " ".join([os.path.basename(shown[0])] + shown[1:])[:110], flush=True)
        status = subprocess.run(command, cwd=TOP, env=self.variables, stdout=self.log, stderr=subprocess.STDOUT,
                                stdin=subprocess.DEVNULL, check=False).returncode
        if status != 0:
            os.write(self.log.fileno(), ("exit status %d: %s\n" % (status, " ".join(command))).encode())
        return status == 0

    def output(self):
        """Yield the lines that the commands have printed, as they come."""
        with self.log, open(self.log.name, errors="replace") as reader:
            while True:
                ended = not self.is_alive()  # before the last look
                yield from reader
                if ended:
                    return
                time.sleep(0.1)


def run(part, variables):
    """Run a part; return (passed, what to say of it, the lines that name what failed)."""
    log = LOGS / (part.__name__ + ".log")
    started = time.time()
    print("==> %s" % part.__name__, flush=True)
    passed, ends = True, []
    with open(log, "w") as stream:
        commands = part()
        while True:
            try:
                command = next(commands)
            except StopIteration:
                break
            except subprocess.CalledProcessError as error:  # a part that cannot be set up has failed
                passed = False
                ends.append("%s\n" % error)
                stream.write(ends[-1])
                break
            chains = [Chain(chain, variables) for chain in (command if isinstance(command, Together) else [[command]])]
            for chain in chains:  # the second's output waits in its file
                last = collections.deque(maxlen=80)
                for line in chain.output():
                    stream.write(line)
                    last.append(line)
                    if os.environ.get("V"):
                        print(line, end="", flush=True)
                if not chain.passed:
                    passed = False
                    ends.extend(last)
    text = log.read_text(errors="replace")
    for line in re.findall(r"^SKIPPED .*$", text, re.MULTILINE):
        print("    " + line)
    if not passed and not os.environ.get("V"):
        print("".join("    | " + line for line in ends), flush=True)
    summary = ["%.0f s" % (time.time() - started)] + counts(text)
    return passed, "; ".join(summary) + ("" if passed else "; see %s" % log.relative_to(TOP)), [] if passed else failures(text)


def levels():
    """Return a line (str) per level: proven or not, by the reports that this run's validations left."""
    by_level = {}
    for path in sorted((LOGS / "reports").glob("*/results.json")):
        for result in json.loads(path.read_text())["results"]:
            by_level.setdefault(result["level"], []).append((result, path.parent.name))
    for level, meaning in LEVELS.items():
        results = [result for result, source in by_level.get(level, []) if result["passed"] is not None]  # None: it was left out
        if results and all(result["passed"] for result in results):
            engine = results[0]["engine"]
            torque = "TORQUE %s and " % results[0]["torque"] if "torque" in results[0] else ""
            yield "%s %s: proven with %s%s %s, %d round trips, longest way %s" % (
                level, meaning, torque, engine["name"], engine["version"], len(results),
                max((" > ".join(result["nodes"]) for result in results), key=len))
        elif results:
            yield "%s %s: NOT proven: %s" % (level, meaning, "; ".join(result["cause"] for result in results if not result["passed"]))
        elif level == "L3" and not torque_source():
            yield "%s %s: not proven: there is no TORQUE source; name a tarball in TORQUE_SOURCE" % (level, meaning)
        else:
            yield "%s %s: NOT proven: no round trip was run" % (level, meaning)


def show_environment():
    """Print what a shell needs so that molecule finds collection, tools and sources."""
    for name, value in sorted(environment().items()):
        if name == "PATH" or re.match("ANSIBLE_|CKPT_TORQUE_|CRIU_|TORQUE_", name):
            print("export %s=%s" % (name, shlex.quote(value)))


def main(names):
    if names == ["env"]:
        show_environment()
        return 0
    known = [part.__name__ for group in PARTS + FURTHER for part in group]
    unknown = sorted(set(names) - set(known))
    if unknown:
        print("run.py: no part %s; there are %s" % (", ".join(unknown), ", ".join(known)), file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(LOGS / "reports", ignore_errors=True)
    variables, results = environment(), []
    for group in PARTS + FURTHER if names else PARTS:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            results.extend(pool.map(lambda part: (part.__name__,) + run(part, variables),
                                    [part for part in group if not names or part.__name__ in names]))
    proven = list(levels()) if not names or set(names) & {"integration", "molecule"} else []
    print("\n" + "-" * 72)
    for name, passed, summary, failed in results:
        print("%-12s %s  %s" % (name, "passed" if passed else "FAILED", summary))
        for line in failed:
            print("    " + line)
    for line in proven:
        print(line)
    failed = sum(not result[1] for result in results) + (0 if names else sum("NOT proven" in line for line in proven))
    if not names:
        further = ["make " + {"blcr": "blcr-vm"}.get(part.__name__, part.__name__) for part, in FURTHER]
        print("not run, each takes long: %s, make torque-matrix, make cores" % ", ".join(further))
    print("parts: %d passed, %d failed" % (sum(result[1] for result in results), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
