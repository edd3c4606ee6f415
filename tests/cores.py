"""`make cores`: each minor release of ansible-core from the oldest of meta/runtime.yml to the newest of PyPI, in an environment of its own.

  cores.py                    all of them
  CORES="2.16 2.21" cores.py  these

An environment is .cache/cores/RELEASE, with the newest Python of this machine that the release is for and the test tools of
requirements-test.txt. In each: ansible-test sanity; the unit tests that import ansible; the syntax of all playbooks, and
site.yml in check mode on new hosts. With the oldest and the newest release site.yml is then applied to these hosts, applied again, and
validate.yml proves L1 to L3. Rows go into docs/reference/support.md as they are done; output goes to .cache/test/core-RELEASE*.log.
"""
import json
import os
import re
import subprocess
import sys
import time

import matrix
import run
import tables
import yaml
from run import COLLECTIONS, INSTALLED, LEVELS, LOGS, PYTHON, TOP, environment

DOCUMENT = TOP / "docs/reference/support.md"
TARGET = "cores"
DIRECTORY = TOP / ".cache/cores"
TOOLS = ("pytest", "hypothesis", "markdown-it-py")
"""What the unit tests need beside ansible-core."""
COLUMNS = ["python", "sanity", "unit", "check mode", "rollout"]
NOT_RUN, FAILED = "NOT RUN", matrix.FAILED


class NotRun(Exception):
    """A cell cannot be filled here, or need not be; the text says why."""


def key(release):
    """Return what releases ("2.16", str) are sorted by (list of int)."""
    return [int(part) for part in release.split(".")]


def oldest():
    """Return the oldest release (str) that the collection is for."""
    required = yaml.safe_load((TOP / "meta/runtime.yml").read_text())["requires_ansible"]
    return re.match(r">=(\d+\.\d+)", required).group(1)


def releases(listing, least):
    """Return the minor releases (list of str) from the least one on that `pip index versions` lists (str), oldest first."""
    versions = re.search(r"^Available versions: (.*)$", listing, re.MULTILINE).group(1).split(", ")
    minors = {".".join(version.split(".")[:2]) for version in versions}
    return sorted((minor for minor in minors if key(minor) >= key(least)), key=key)


def available():
    done = subprocess.run([PYTHON, "-m", "pip", "index", "versions", "--ignore-requires-python", "ansible-core"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
    if done.returncode:
        raise matrix.Failed("PyPI does not list ansible-core: " + " ".join(done.stderr.split())[-300:])
    return releases(done.stdout, oldest())


def describe(release):
    """Return (version, Pythons) of the newest ansible-core of this release: what PyPI has of it (str, set of tuple)."""
    report = ["--quiet", "--dry-run", "--ignore-installed", "--ignore-requires-python", "--no-deps", "--report", "-"]
    done = subprocess.run([PYTHON, "-m", "pip", "install"] + report + ["ansible-core==%s.*" % release], stdout=subprocess.PIPE,
                          universal_newlines=True, check=True)
    metadata = json.loads(done.stdout)["install"][0]["metadata"]
    pythons = re.findall(r":: Python :: (\d+)\.(\d+)$", "\n".join(metadata["classifier"]), re.MULTILINE)
    return metadata["version"], {(int(major), int(minor)) for major, minor in pythons}


def pinned(names, requirements):
    """Return the lines of requirements-test.txt (str) that pin these packages (list of str)."""
    return [line for line in requirements.splitlines() if re.split("[=<>;]", line)[0].strip() in names]


def named(version):
    """Return a version (tuple of int) as text."""
    return ".".join(map(str, version))


class Core:
    """One release of ansible-core. Each cell returns what was seen (str) or raises Failed, AssertionError or what a process raises.

    :param release: "2.16" (str)
    :param is_rolled_out: whether its row has a rollout
    """

    def __init__(self, release, is_rolled_out):
        self.release, self.is_rolled_out, self.directory = release, is_rolled_out, DIRECTORY / release
        self.interpreter = str(self.directory / "bin/python")
        self.version, self.pythons = describe(release)
        self.site = None

    def log(self, name):
        return LOGS / ("core-%s-%s.log" % (self.release, name))

    def call(self, name, command):
        """Run a command with this release's programs first; return (whether it succeeded, what it printed)."""
        done = subprocess.run(command, cwd=str(TOP), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              universal_newlines=True, check=False)
        with open(self.log(name), "a") as stream:
            stream.write("== %s\n%s" % (" ".join(map(str, command)), done.stdout))
        return done.returncode == 0, done.stdout

    def python(self):
        """Create the environment, unless it is there."""
        usable = {version: path for version, path in run.interpreters().items() if version in self.pythons}
        if not usable:
            raise NotRun("this machine has no Python %s" % " or ".join(map(named, sorted(self.pythons))))
        wanted = ["ansible-core==" + self.version] + pinned(TOOLS, (TOP / "requirements-test.txt").read_text())
        recipe, ready = " ".join([named(max(usable))] + wanted), self.directory / ".ready"
        if not ready.exists() or ready.read_text() != recipe:
            subprocess.run([usable[max(usable)], "-m", "venv", "--clear", str(self.directory)], check=True)
            subprocess.run([self.interpreter, "-m", "pip", "install", "--quiet"] + wanted, check=True)
            ready.write_text(recipe)
        os.environ["PATH"] = "%s/bin:%s" % (self.directory, environment()["PATH"])
        return named(max(usable))

    def sanity(self):
        passed, output = self.call("sanity", run.sanity_in(self.directory / "sanity"))
        findings = re.findall(r"^ERROR: Found (\d+) (\S+) issue", output, re.MULTILINE)
        matrix.insist(passed, ", ".join("%s %s" % pair for pair in findings) or output[-300:])
        return "%d tests pass" % len(re.findall(r"^Running sanity test ", output, re.MULTILINE))

    def unit(self):
        command = run.as_root(os.environ["PATH"]) + [self.interpreter] + run.PYTEST + run.WITH_ANSIBLE
        passed, output = self.call("unit", command)
        failed = re.findall(r"^(?:FAILED|ERROR) \S+::(\S+)", output, re.MULTILINE)
        matrix.insist(passed, "%s: %s" % (matrix.count_tests(output), ", ".join(failed)))
        return re.sub(r", \d+ warnings?$", "", matrix.count_tests(output))

    def check_mode(self):
        playbooks = sorted((INSTALLED / "playbooks").glob("*.yml"))
        for path in playbooks:
            passed, output = self.call("syntax", ["ansible-playbook", "--syntax-check", str(path)])
            matrix.insist(passed, "%s: %s" % (path.name, output[-300:]))
        self.site = matrix.Site("core" + self.release.replace(".", ""), "core-" + self.release, afresh=not matrix.KEEP)
        self.site.playbook("site", "--check")
        return "%d playbooks parse; site.yml passes on %s" % (len(playbooks), self.system())

    def is_for_modules(self, python):
        """Whether this release runs modules on a Python (str), by its own list."""
        words = ("from ansible_test._util.target.common.constants import *; "
                 "print(*REMOTE_ONLY_PYTHON_VERSIONS, *CONTROLLER_PYTHON_VERSIONS)")
        done = subprocess.run([self.interpreter, "-c", words], stdout=subprocess.PIPE, universal_newlines=True, check=True)
        return python in done.stdout.split()

    def system(self):
        """Return what the hosts are (str), and whether this release is for their Python."""
        debian, python = self.site.cluster.nodes["node1"].ask(
            ". /etc/os-release; echo $VERSION_ID; python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").split()
        return "Debian %s, Python %s%s" % (debian, python, "" if self.is_for_modules(python) else ", which %s does not list" % self.release)

    def rollout(self):
        if not self.is_rolled_out:
            raise NotRun("only with the oldest and the newest")
        if not run.torque_source():
            raise NotRun("there is no TORQUE source; name a tarball in TORQUE_SOURCE")
        cells = ["TORQUE %s on %s" % (self.site.version, self.system()), self.site.site(), "second run " + self.site.twice()]
        results = {}
        for result in self.site.validated():
            results.setdefault(result["level"], []).append(result["passed"])
        unproven = [level for level in LEVELS if not results.get(level) or not all(results[level])]
        matrix.insist(not unproven, "validate.yml has not proven %s" % ", ".join(unproven))
        return "; ".join(cells + ["%s pass" % ", ".join(LEVELS)])

    def fill(self, done):
        """Do everything; call done(row) after each cell ({column: text})."""
        row = dict.fromkeys(COLUMNS, NOT_RUN)
        for path in LOGS.glob("core-%s*.log" % self.release):
            path.unlink()
        for column, work in zip(COLUMNS, (self.python, self.sanity, self.unit, self.check_mode, self.rollout)):
            print("    %-6s %-10s " % (self.release, column), end="", flush=True)
            started = time.time()
            try:
                row[column] = work()
            except NotRun as reason:
                row[column] = "%s: %s" % (NOT_RUN, reason)
            except (matrix.Failed, AssertionError, subprocess.SubprocessError, OSError) as error:
                row[column] = FAILED + " ".join(str(error).split())
            print("%s (%.0f s)" % (row[column][:400], time.time() - started), flush=True)
            done(row)
            if row["python"].startswith((FAILED, NOT_RUN)) or column == "check mode" and not self.site:
                return
        if not matrix.KEEP:
            self.site.hosts("down", self.site.group)


# -- the table -----------------------------------------------------------------------


def parsed(text):
    """Return the rows of the generated part of a document (str): {release: line}."""
    lines = tables.read_rows(text, TARGET)
    return {".".join(version.split(".")[:2]): line for version, line in lines.items()}


def merged(text, version, row, day):
    """Return the document (str) with the row of a version's release put in or replaced; the other rows stay as they are.

    :param row: {column: text}
    :param day: when it was run (str)
    """
    rows = parsed(text)
    rows[".".join(version.split(".")[:2])] = tables.format_row([version] + [row[column] for column in COLUMNS] + [day])
    table = tables.format_head(["ansible-core"] + COLUMNS + ["run on"]) + [rows[release] for release in sorted(rows, key=key)]
    return tables.replace(text, TARGET, table)


def main():
    try:
        known = available()
    except matrix.Failed as failure:
        print("cores.py: %s" % failure, file=sys.stderr)
        return 2
    wanted = os.environ.get("CORES", "").split() or known
    unknown = [release for release in wanted if release not in known]
    if unknown:
        print("cores.py: no release %s; there are %s" % (", ".join(unknown), ", ".join(known)), file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    os.environ.update(environment())
    sys.path[:0] = [str(TOP / "tests/integration/helpers"), str(COLLECTIONS)]
    failed = []
    for release in wanted:
        core = Core(release, is_rolled_out=release in (known[0], known[-1]))
        print("==> ansible-core %s; output in .cache/test/core-%s*.log" % (core.version, release), flush=True)

        def done(row, version=core.version):
            DOCUMENT.write_text(merged(DOCUMENT.read_text(), version, row, time.strftime("%Y-%m-%d", time.gmtime())))

        core.fill(done)
        failed += [release] * any(FAILED in line for line in [parsed(DOCUMENT.read_text())[release]])
    print("releases of ansible-core: %d, failed: %s" % (len(wanted), " ".join(failed) or "none"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
