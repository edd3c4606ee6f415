"""`make torque-releases`: every release in the patches' ranges whose source is at hand, built with the patch series and started once.

  releases.py                                all of them
  TORQUE_RELEASES="4.2.8 5.1.3" releases.py  these

A source is CKPT_TORQUE_CACHE/sources/torque-VERSION.tar.gz; what is there is taken, whoever made it. Each release is installed on
three hosts of its own by site.yml; its commands must say that version, and pbs_server must call both nodes free. Rows go into
docs/reference/patches.md as they are done. A run that was broken off continues: what has passed is in .cache/test/releases.json
and is not done again until the role torque_build changes. Output goes to .cache/test/release-VERSION.log.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import time

import matrix
import yaml
from run import COLLECTIONS, LOGS, TOP, environment

BEGIN, END = "<!-- make torque-releases: begin -->", "<!-- make torque-releases: end -->"
STATE = LOGS / "releases.json"
FREE = 180
"""Seconds that nodes may take until the server calls them free."""


def key(version):
    """Return what versions are sorted by (list of tuple): 4.2.10 is newer than 4.2.9, and 6.1.3.h5 than 6.1.3."""
    return [(1, int(part), "") if part.isdigit() else (2, 0, part) for part in version.split(".")]


def series():
    return yaml.safe_load((TOP / "roles/torque_build/files/patches/series.yml").read_text())


def claimed(versions, choose):
    """Return those of the versions (list of str) for which there is a patch, in order.

    :param choose: patches.choose
    """
    patches = series()
    return sorted((version for version in versions if any(choose(patch, version)[0] for patch in patches)), key=key)


def sources():
    """Return the versions (list of str) whose source is at hand."""
    matches = [re.fullmatch(r"torque-([0-9][\w.]*)\.tar\.gz", path.name) for path in matrix.source("0").parent.glob("torque-*.tar.gz")]
    return [match.group(1) for match in matches if match]


def fingerprint():
    """Return what the role torque_build is (str): a release that was done with another one is done again."""
    digest = hashlib.sha256()
    for path in sorted((TOP / "roles/torque_build").rglob("*")):
        if path.is_file() and path.parts[-2] != "meta" and path.suffix != ".md":
            digest.update(str(path.relative_to(TOP)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class Release(matrix.Trial):
    """One release on its hosts."""

    PREFIX = "release"

    def build(self):
        checksum = hashlib.sha256(matrix.source(self.version).read_bytes()).hexdigest()
        return self.site(torque_source_checksum="sha256:" + checksum)

    def start(self):
        """See both nodes free."""
        deadline = time.time() + FREE
        while True:
            listing = self.cluster.nodes["head"].run("/opt/torque/current/bin/pbsnodes -a").out
            states = re.findall(r"^ +state = (.*)$", listing, re.MULTILINE)
            if states == ["free", "free"]:
                return "both nodes free"
            matrix.insist(time.time() < deadline, "after %d s the server calls its nodes %s" % (FREE, " and ".join(states) or "nothing"))
            time.sleep(2)


def merged(text, rows):
    """Return the document (str) with the rows ({version: (day, built, started)}) put in or replaced."""
    part = text[text.index(BEGIN):text.index(END)]
    known = {line.split("|")[1].strip(): line for line in part.splitlines() if re.match(r"\| \d", line)}
    for version, row in rows.items():
        known[version] = "| %s |" % " | ".join([version] + [cell.replace("|", "\\|")[:300] for cell in row])
    table = ["| release | run on | built | started |", "|---|---|---|---|"] + [known[version] for version in sorted(known, key=key)]
    return text[:text.index(BEGIN)] + BEGIN + "\n" + "\n".join(table) + "\n" + text[text.index(END):]


def failures(row):
    """Return whether a cell of the row (list of str) failed (bool)."""
    return any(cell.startswith(matrix.FAILED) for cell in row)


def try_release(version):
    """Return (built, started), a text each; FAILED and why where it is not as it must be."""
    row, release = [matrix.NOT_RUN, matrix.NOT_RUN], None
    try:
        release = Release(version)
        row[0] = release.build()
        row[1] = release.start()
    except (matrix.Failed, AssertionError, subprocess.SubprocessError, OSError) as error:
        row[row.index(matrix.NOT_RUN)] = matrix.FAILED + " ".join(str(error).split())
    if release and not matrix.KEEP:
        release.hosts("down", release.group)
    return row


def main():
    LOGS.mkdir(parents=True, exist_ok=True)
    os.environ.update(environment())
    sys.path[:0] = [str(TOP / "tests/integration/helpers"), str(COLLECTIONS)]
    from ansible_collections.ckpt.torque.plugins.module_utils.build import patches
    at_hand = sources()
    wanted = os.environ.get("TORQUE_RELEASES", "").split() or claimed(at_hand, patches.choose)
    absent = sorted(set(wanted) - set(at_hand), key=key)
    if absent:
        print("releases.py: there is no source of %s in %s" % (", ".join(absent), matrix.source("0").parent), file=sys.stderr)
        return 2
    state = json.loads(STATE.read_text()) if STATE.exists() else {}
    mark, failed = fingerprint(), []
    for version in wanted:
        if state.get(version, {}).get("role") != mark or failures(state[version]["row"]):
            print("==> TORQUE %s; output in .cache/test/release-%s.log" % (version, version), flush=True)
            built, started = try_release(version)
            state[version] = {"role": mark, "row": [time.strftime("%Y-%m-%d", time.gmtime()), built, started]}
            STATE.write_text(json.dumps(state, indent=2))
        row = state[version]["row"]
        matrix.DOCUMENT.write_text(merged(matrix.DOCUMENT.read_text(), {version: row}))
        print("%-10s %s" % (version, "; ".join(row[1:])[:400]), flush=True)
        failed += [version] * failures(row)
    print("releases: %d, failed: %s" % (len(wanted), " ".join(failed) or "none"))
    return 1 if failed or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
