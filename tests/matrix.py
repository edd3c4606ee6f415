"""`make torque-matrix`: each version of TORQUE built, installed, proven and attacked on three hosts of its own.

  matrix.py                               the versions whose source is there
  TORQUE_MATRIX="2.5.13 6.1.3" matrix.py  these

A source is CKPT_TORQUE_CACHE/sources/torque-VERSION.tar.gz. Each version is built twice: with the patch series ("ours") and
without any patch ("stock"), so that an attack that fails on ours is seen to succeed on stock. Rows go into docs/reference/patches.md
as they are done; output goes to .cache/test/matrix-VERSION.log.
"""
import json
import os
import re
import subprocess
import sys
import time

import tables
import yaml
from run import COLLECTIONS, LOGS, TOP, environment

VERSIONS = ["2.4.8", "2.5.3", "2.5.13", "4.2.10", "6.0.4", "6.1.3", "6.1.3.h5"]
LEFT_IN = {"2.4.8": ["job-directory"],  # its stock pbs_mom asks for images in the store's own directory, which the hooks refuse
           "6.1.3.h5": ["mom-answer"]}  # without it there is no qhold, so that nothing else could be seen
BUILDS = {"ours": "with the patch series", "stock": "without any patch"}
COLUMNS = ["built", "site twice", "L3", "failed restart", "other node", "attacks", "jobs"]
TESTED = ["2.5.13", "4.2.10", "6.1.3", "6.1.3.h5"]
"""Versions on which the tests of jobs are run, too (twenty minutes each): what makes a cluster lose jobs is cured for them."""
JOB_TESTS = ["tests/integration/test_%s.py" % name for name in ("torque", "crash", "after_restart", "multinode", "cut_off", "rotation")]
COMPILES = "Compile TORQUE"
"""How the task of the role torque_build begins that compiles."""
DOCUMENT = TOP / "docs/reference/patches.md"
TARGET = "torque-matrix"
KEEP = os.environ.get("CKPT_TORQUE_KEEP")  # start from the hosts that are there, leave them up
NOT_RUN = "not run"
FAILED = "FAILED: "


class Failed(Exception):
    """A cell of the table is not as it must be; the text says why."""


def insist(condition, sentence):
    if not condition:
        raise Failed(sentence)


# -- the cells ---------------------------------------------------------------------


class Site:
    """Hosts of a group, the playbooks that run on them, and a log.

    :param name: of the log (str)
    :param afresh: whether hosts of this group that are there are removed first
    """

    def __init__(self, group, name, afresh):
        import cluster  # what the integration tests have of hosts; not where only the table is wanted
        self.group, self.hosts = group, cluster.hosts
        self.log = open(LOGS / (name + ".log"), "w")
        if afresh:
            self.hosts("down", group)
        self.cluster = cluster.Cluster(group)
        self.version = self.cluster.version

    def note(self, text):
        self.log.write(text.rstrip() + "\n")
        self.log.flush()

    def playbook(self, name, *arguments, **variables):
        done = self.cluster.playbook(name, *arguments, **variables)
        self.note("== %s.yml %s\n%s" % (name, " ".join(list(arguments) + [json.dumps(variables)]), done.out))
        if done.code:
            causes = ["%s: %s" % (host, " ".join(re.findall(r'"(?:msg|stderr)": "((?:[^"\\]|\\.)+)"', text)) or "unreachable")
                      for host, text in re.findall(r"^(?:fatal|failed): \[(\S+?)\](.*)$", done.out, re.MULTILINE)]
            raise Failed("%s.yml: %s" % (name, "; ".join(causes) or "exit status %d" % done.code))
        return done

    def site(self, **variables):
        """Apply site.yml; return how long it took and what was built (str)."""
        started = time.time()
        done = self.playbook("site", **variables)
        built = COMPILES in done.out
        output = self.cluster.nodes["head"].ask("/opt/torque/current/bin/qstat --version 2>&1")
        insist(re.search(r"[Vv]ersion: *%s$" % re.escape(self.version), output, re.MULTILINE), "qstat --version says: " + output)
        return "%s%.0f s" % ("" if built else "from the cache, ", time.time() - started)

    def twice(self):
        done = self.playbook("site")
        changed = {name: done.changed(name) for name in self.cluster.nodes}
        insist(not any(changed.values()), "the second run changed %s" % changed)
        return "changed=0"

    def validated(self):
        """Run validate.yml; return its results (list of dict)."""
        directory = LOGS / "reports" / self.group
        self.playbook("validate", validate_directory=str(directory))
        return json.loads((directory / "results.json").read_text())["results"]


class Trial(Site):
    """One version on its hosts. Each cell returns what was seen (str) or raises Failed or AssertionError."""

    PREFIX = "matrix"
    GROUP = None
    """The group of hosts on which all versions are tried, one after the other, or None: each on hosts of its own."""

    def __init__(self, version):
        import jobs  # what the integration tests have of jobs and proofs
        import proofs
        from ansible_collections.ckpt.torque.plugins.module_utils.build import patches
        self.proofs = proofs
        self.jobs = lambda elsewhere="node2": jobs.Jobs(self.cluster, elsewhere)
        os.environ["TORQUE_VERSION"] = version
        os.environ["TORQUE_SOURCE"] = str(source(version))
        super().__init__(self.GROUP or self.PREFIX + re.sub("[^a-z0-9]", "", version), "%s-%s" % (self.PREFIX, version),
                         afresh=not KEEP and not self.GROUP)
        series = yaml.safe_load((TOP / "roles/torque_build/files/patches/series.yml").read_text())
        self.excluded = [patch["name"] for patch in series if patch["name"] not in LEFT_IN.get(version, [])]
        # Without held-job a job that comes back to its node never ends there, so that no failed restart can be seen.
        self.needs_held_job = any(patch["name"] == "held-job" and patches.choose(patch, version)[0] for patch in series)

    def built(self):
        summary = self.site()
        if self.version < "4":  # who the user is, a setuid program tells the server
            for name, node in self.cluster.nodes.items():
                status = node.ask("stat -c '%U %a' /opt/torque/current/sbin/pbs_iff")
                insist(status == "root 4755", "pbs_iff on %s is: %s" % (name, status))
            summary += "; pbs_iff setuid root on 3 hosts"
        return summary

    def level3(self):
        results = [result for result in self.validated() if result["level"] == "L3"]
        insist(len(results) == 1 and results[0]["passed"], "no round trip of level L3 passed: %s" % results)
        insist(results[0]["torque"] == self.version, "it ran on TORQUE %s" % results[0]["torque"])
        insist(results[0]["nodes"] == ["node1", "node2"] * 2, "the way was %s" % results[0]["nodes"])
        return "%s, counter %s" % (" > ".join(results[0]["nodes"]), " > ".join(map(str, results[0]["counters"])))

    def attacks(self, wanted):
        """Carry out every attack; each must succeed (wanted) or must not."""
        wrong, elsewhere = [], "node1" if wanted else "node2"
        table = {name: entry for name, entry in self.proofs.ATTACKS.items() if not wanted or self.version >= entry.since}
        for name, entry in table.items():
            try:
                with self.jobs(elsewhere) as jobs:
                    succeeded, text = self.proofs.attack(jobs, name)
            except AssertionError as error:
                succeeded, text = None, str(error)
            self.note("== attack: %s: %s: %s" % (name, {True: "succeeds", False: "is inert", None: "?"}[succeeded], text))
            if succeeded is not wanted or not wanted and entry.reason not in text:
                wrong.append("%s: %s" % (name, text))
        insist(not wrong, "; ".join(wrong))
        return "all %d %s" % (len(table), "succeed" if wanted else "inert")

    def other_node(self, refused):
        with self.jobs() as jobs:
            answer = self.proofs.other_node(jobs)
        self.note("== other node: " + (answer or "ran there to its end"))
        insist(answer == (self.proofs.REFUSED if refused else ""), "qrun -H node2 said: %s" % (answer or "nothing, and the job ran there"))
        return "15059" if refused else "runs"

    def failed_restarts(self, elsewhere):
        for proof in (self.proofs.damaged_image, self.proofs.taken_pid):
            with self.jobs(elsewhere) as jobs:
                self.note("== failed restart: " + proof(jobs))
        return "H and Q"

    def job_tests(self):
        """Run the tests of jobs on these hosts; return how many passed (str)."""
        done = subprocess.run([sys.executable, "-m", "pytest", "-q"] + JOB_TESTS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, cwd=str(TOP), check=False,
                              env=dict(os.environ, CKPT_TORQUE_GROUP=self.group, CKPT_TORQUE_KEEP="1"))
        self.note("== tests of jobs\n" + done.stdout)
        failed = re.findall(r"^(?:FAILED|ERROR) \S+::(\S+)", done.stdout, re.MULTILINE)
        insist(done.returncode == 0, "%s: %s" % (count_tests(done.stdout), ", ".join(failed) or "exit status %d" % done.returncode))
        return count_tests(done.stdout)

    def never_ends(self):
        """A job that comes back to its node runs to its end there, and the server does not hear of it.

        Unless pbs_mom has forgotten the held job before: by chance, so it is tried with several.
        """
        for number in range(1, 4):
            with self.jobs("node1") as jobs:
                job = jobs.made_to_come_back()
                try:
                    job.finish()
                except AssertionError as error:
                    insist("did not come to state C" in str(error), str(error))
                    return "never ends where it comes back" + (" (job %d)" % number if number > 1 else "")
                finally:
                    jobs.purge(job)
        raise Failed("three jobs that came back ended, each with an exit status of its own")

    def cells(self):
        """Yield (build, column, work): what to do, in this order."""
        yield "ours", "built", self.built
        yield "ours", "site twice", self.twice
        yield "ours", "L3", self.level3
        yield "ours", "failed restart", lambda: self.failed_restarts("node2")
        yield "ours", "other node", lambda: self.other_node(refused=False)
        yield "ours", "attacks", lambda: self.attacks(wanted=False)
        if self.version in TESTED:
            yield "ours", "jobs", self.job_tests
        yield "stock", "built", lambda: self.site(torque_build_patches_excluded=self.excluded)
        yield "stock", "failed restart", self.never_ends if self.needs_held_job else lambda: self.failed_restarts("node1")
        yield "stock", "other node", lambda: self.other_node(refused=True)
        yield "stock", "attacks", lambda: self.attacks(wanted=True)

    def fill(self, done):
        """Do everything; call done(build, {column: text}) when all cells of a build are known."""
        row, last = {}, "ours"
        for build, column, work in self.cells():
            if build != last:
                done(last, row)
                row, last = {}, build
            if row.get("built", "").startswith((FAILED, NOT_RUN)):
                row[column] = NOT_RUN
                continue
            print("    %-8s %-5s %-10s " % (self.version, build, column), end="", flush=True)
            started = time.time()
            try:
                row[column] = work()
            except (Failed, AssertionError, subprocess.SubprocessError, OSError) as error:
                row[column] = FAILED + " ".join(str(error).split())
                self.note("== %s, %s: %s" % (build, column, row[column]))
            print("%s (%.0f s)" % (row[column][:400], time.time() - started), flush=True)
        done(last, row)


# -- the table -----------------------------------------------------------------------


def source(version):
    """Return where the source of a version must be (pathlib.Path)."""
    cache = os.environ.get("CKPT_TORQUE_CACHE") or os.path.expanduser("~/.cache/ckpt-torque")
    return type(TOP)(cache) / "sources" / ("torque-%s.tar.gz" % version)


def count_tests(output):
    """Return the counts (str) in what pytest printed last, "61 passed, 2 skipped"."""
    counts = re.findall(r"^=*\s*((?:\d+ [a-z]+(?:, )?)+) in [0-9.]+s", output, re.MULTILINE)
    return counts[-1] if counts else "no test was run"


def name_of(version, build):
    return "%s %s" % (version, build)


def parsed(text):
    """Return the rows of the generated part of a document (str): {name: line}."""
    return tables.read_rows(text, TARGET)


def merged(text, name, row, day):
    """Return the document (str) with a row put in or replaced; the other rows stay as they are.

    :param row: {column: text}
    :param day: when it was run (str)
    """
    rows = parsed(text)
    rows[name] = tables.format_row([name, day] + [row.get(column, "") for column in COLUMNS])
    order = [name_of(version, build) for version in VERSIONS for build in BUILDS]
    table = tables.format_head(["version", "run on"] + COLUMNS) + [rows[known] for known in order if known in rows]
    return tables.replace(text, TARGET, table)


def shown(rows):
    """Return the table (str) for a terminal; what a cell failed of stands beneath it."""
    short = {name: [FAILED[:-2] if cell.startswith(FAILED) else cell for cell in (row.get(column, "") for column in COLUMNS)]
             for name, row in rows.items()}
    table = [["version"] + COLUMNS] + [[name] + cells for name, cells in short.items()]
    widths = [max(len(line[number]) for line in table) for number in range(len(table[0]))]
    return "\n".join(["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in table] + failures(rows))


def failures(rows):
    return ["%s, %s: %s" % (name, column, row[column]) for name, row in rows.items() for column in COLUMNS
            if row.get(column, "").startswith(FAILED)]


def main():
    wanted = os.environ.get("TORQUE_MATRIX", "").split() or VERSIONS
    unknown = [version for version in wanted if version not in VERSIONS]
    if unknown:
        print("matrix.py: no version %s; there are %s" % (", ".join(unknown), ", ".join(VERSIONS)), file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    os.environ.update(environment())
    sys.path[:0] = [str(TOP / "tests/integration/helpers"), str(COLLECTIONS)]
    rows, absent = {}, []
    for version in wanted:
        if not source(version).is_file():
            absent.append("%s: not run: no source at %s" % (version, source(version)))
            continue
        print("==> TORQUE %s; output in .cache/test/matrix-%s.log" % (version, version), flush=True)
        trial = Trial(version)

        def done(build, row, name=version):
            rows[name_of(name, build)] = row
            DOCUMENT.write_text(merged(DOCUMENT.read_text(), name_of(name, build), row, time.strftime("%Y-%m-%d", time.gmtime())))

        trial.fill(done)
        if not KEEP:
            trial.hosts("down", trial.group)
    print("\n" + "\n".join([shown(rows)] + absent if rows else absent))
    return 1 if failures(rows) or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
