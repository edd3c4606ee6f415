"""`make torque-releases`: every release in the patches' ranges whose source is at hand, built with the patch series and started once.

  releases.py                                all of them
  TORQUE_RELEASES="4.2.8 5.1.3" releases.py  these
  releases.py --current                      none; write which rows are of the present patches and steps, after a change of these

A source is CKPT_TORQUE_CACHE/sources/torque-VERSION.tar.gz; what is there is taken, whoever made it. Each release is installed by
site.yml on the same three hosts, from which the one before was removed; its commands must say that version, and pbs_server must call
both nodes free. Rows go into docs/reference/patches.md as they are done. A run that was broken off continues: a release whose row says
that it was built from the same patches by the same steps is not done again. Output goes to .cache/test/release-VERSION.log.
"""
import hashlib
import os
import re
import subprocess
import sys
import time

import matrix
import tables
import yaml
from run import COLLECTIONS, LOGS, TOP, environment

TARGET, CURRENT = "torque-releases", "torque-releases, current rows"
ROLE = TOP / "roles/torque_build"
STEPS = ["tasks/make.yml", "tasks/unpack.yml", "tasks/patch.yml", "tasks/compile.yml", "vars/main.yml", "defaults/main.yml"]
"""What builds TORQUE, beside its patches."""
FREE = 180
"""Seconds that nodes may take until the server calls them free."""


def key(version):
    """Return what versions are sorted by (list of tuple): 4.2.10 is newer than 4.2.9, and 6.1.3.h5 than 6.1.3."""
    return [(1, int(part), "") if part.isdigit() else (2, 0, part) for part in version.split(".")]


def series():
    return yaml.safe_load((TOP / "roles/torque_build/files/patches/series.yml").read_text())


def claimed(versions, choose):
    """Return those of the versions (list of str) for which there is a patch, in order; the role refuses 4.5.0.

    :param choose: patches.choose
    """
    patches = series()
    return sorted((version for version in versions if version != "4.5.0" and any(choose(patch, version)[0] for patch in patches)), key=key)


def sources():
    """Return the versions (list of str) whose source is at hand."""
    matches = [re.fullmatch(r"torque-([0-9][\w.]*)\.tar\.gz", path.name) for path in matrix.source("0").parent.glob("torque-*.tar.gz")]
    return [match.group(1) for match in matches if match]


def fingerprint(version, choose):
    """Return what builds this version (str): a release that was built by anything else is done again."""
    files = [choose(patch, version)[0] for patch in series()]
    digest = hashlib.sha256()
    for name in STEPS + ["files/patches/" + name for name in files if name]:
        digest.update(name.encode() + b"\0" + (ROLE / name).read_bytes())
    return digest.hexdigest()[:8]


class Release(matrix.Trial):
    """One release on the hosts of all of them."""

    PREFIX = GROUP = "release"

    def clear(self):
        """Remove the release before; have the compiler remember what it has compiled, as most files are the same."""
        for node in self.cluster.nodes.values():
            node.ask("systemctl stop 'pbs_*' trqauthd 2> /dev/null; rm -rf /opt/torque /var/spool/torque")
        self.cluster.nodes["head"].ask(
            "[ -e /usr/local/bin/g++ ] && exit; apt-get -qq update && apt-get -qq install -y ccache > /dev/null 2>&1 && "
            "mkdir -m 1777 /var/cache/compiled && "
            "printf 'cache_dir = /var/cache/compiled\nhash_dir = false\nbase_dir = /var/tmp\numask = 000\n' > /etc/ccache.conf && "
            "for name in gcc g++ cc c++; do ln -s /usr/bin/ccache /usr/local/bin/$name; done")

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


def parsed(text):
    """Return the lines (str) of the document's table by version."""
    return tables.read_rows(text, TARGET)


def merged(text, rows):
    """Return the document (str) with the rows ({version: (fingerprint, day, built, started)}) put in or replaced."""
    known = parsed(text)
    for version, row in rows.items():
        known[version] = tables.format_row([version] + list(row))
    table = tables.format_head(["release", "built by", "run on", "built", "started"])
    return tables.replace(text, TARGET, table + [known[version] for version in sorted(known, key=key)])


def is_done(text, version, mark):
    """Return whether the document says that this version was built by what the fingerprint (str) names, and was started (bool)."""
    line = parsed(text).get(version, "")
    return "| %s |" % mark in line and matrix.FAILED not in line


def name_current(text, choose):
    """Return the document (str) with the names of the releases that what is in the tree now has built."""
    names = [version for version in sorted(parsed(text), key=key) if is_done(text, version, fingerprint(version, choose))]
    return tables.replace(text, CURRENT, [", ".join(names) or "none"])


def try_release(version):
    """Return (built, started), a text each; FAILED and why where it is not as it must be."""
    row, release = [matrix.NOT_RUN, matrix.NOT_RUN], None
    try:
        release = Release(version)
        release.clear()
        row[0] = release.build()
        row[1] = release.start()
    except (matrix.Failed, AssertionError, subprocess.SubprocessError, OSError) as error:
        row[row.index(matrix.NOT_RUN)] = matrix.FAILED + " ".join(str(error).split())
        for node in release.cluster.nodes.values() if release else []:
            (LOGS / ("release-%s.%s.journal" % (version, node.name))).write_text(node.run("journalctl -n 300 --no-pager").out)
            if not matrix.KEEP:  # hosts with a failed unit are not taken for the next release
                node.run("systemctl stop 'pbs_*' trqauthd; systemctl reset-failed")
    return row


def main():
    LOGS.mkdir(parents=True, exist_ok=True)
    os.environ.update(environment())
    sys.path[:0] = [str(TOP / "tests/integration/helpers"), str(COLLECTIONS)]
    from ansible_collections.ckpt.torque.plugins.module_utils.build import patches
    matrix.DOCUMENT.write_text(name_current(matrix.DOCUMENT.read_text(), patches.choose))
    if sys.argv[1:] == ["--current"]:
        return 0
    at_hand = sources()
    wanted = os.environ.get("TORQUE_RELEASES", "").split() or claimed(at_hand, patches.choose)
    absent = sorted(set(wanted) - set(at_hand), key=key)
    if absent:
        print("releases.py: there is no source of %s in %s" % (", ".join(absent), matrix.source("0").parent), file=sys.stderr)
        return 2
    text, failed, done = matrix.DOCUMENT.read_text(), [], 0
    for version in wanted:
        mark = fingerprint(version, patches.choose)
        if is_done(text, version, mark):
            done += 1
            continue
        print("==> TORQUE %s; output in .cache/test/release-%s.log" % (version, version), flush=True)
        row = try_release(version)
        text = merged(matrix.DOCUMENT.read_text(), {version: [mark, time.strftime("%Y-%m-%d", time.gmtime())] + row})
        matrix.DOCUMENT.write_text(name_current(text, patches.choose))
        print("%-10s %s" % (version, "; ".join(row)[:400]), flush=True)
        failed += [version] * any(cell.startswith(matrix.FAILED) for cell in row)
    print("releases: %d, done before: %d, failed: %s" % (len(wanted), done, " ".join(failed) or "none"))
    if not matrix.KEEP:
        import cluster
        cluster.hosts("down", Release.GROUP)
    return 1 if failed or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
