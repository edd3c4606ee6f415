# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The bundle of a site without a network: where it is, and whether it is what was written."""
from __future__ import annotations

import os
import subprocess

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterator
    from ansible.template import Templar

SUMS = "SHA256SUMS"
USED = ("artifacts", "controller", "packages", "sources")
"""The directories of which a rollout, or the set-up of its controller, uses files."""


def find(templar: "Templar", task_vars: "dict | None") -> str:
    """Return the directory of the bundle from which everything is taken, empty when there is none."""
    return os.path.expanduser(templar.template((task_vars or {}).get("bundle_source") or ""))


def find_fault(directory: str, keyring: str) -> str:
    """Return why a bundle must not be used, empty when its files are those that were written, and were signed if that is asked for.

    :param directory: the bundle
    :param keyring: a file with the public keys that may have signed it, as gpgv takes it; empty if it need not be signed
    """
    directory, keyring = os.path.expanduser(directory), os.path.abspath(os.path.expanduser(keyring)) if keyring else ""
    sums = os.path.join(directory, SUMS)
    if not os.path.isfile(sums):
        return "bundle_source %s is no bundle (%s is missing); name the directory that ckpt.torque.bundle has written" % (directory, sums)
    if keyring:
        told = _run(["gpgv", "--keyring", keyring, SUMS + ".sig", SUMS], directory)
        if told:
            return ("bundle_source %s is not signed with a key of bundle_keyring %s (%s); copy it again, or name a keyring that has the "
                    "key of whoever has signed it" % (directory, keyring, told[-1]))
    told = ["%s is not in %s" % (name, SUMS) for name in _find_unlisted(directory, sums)]
    told = told or _run(["sha256sum", "--quiet", "--strict", "--check", SUMS], directory)
    return "bundle_source %s is not what was written (%s); copy it again" % (directory, "; ".join(told[:3])) if told else ""


def _run(command: "list[str]", directory: str) -> "list[str]":
    """Return the lines that a check prints, none when it passes."""
    try:
        done = subprocess.run(command, cwd=directory, env=dict(os.environ, LC_ALL="C"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, check=False)
    except FileNotFoundError:
        return ["there is no %s on this controller" % command[0]]
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return (lines or ["%s exited %d" % (command[0], done.returncode)]) if done.returncode else []


def _find_unlisted(directory: str, sums: str) -> "Iterator[str]":
    """Yield the files and links that might be used and nobody has listed. A package of TORQUE is not used, and may be created here."""
    with open(sums, encoding="utf-8", errors="replace") as stream:
        listed = {line.rstrip("\n").partition("  ")[2] for line in stream}
    for place in USED:
        for path in sorted(_find_entries(os.path.join(directory, place))):
            name = os.path.relpath(path, directory)
            if name not in listed and (place == "controller" or not name.endswith((".deb", ".rpm"))):
                yield name


def _find_entries(top: str) -> "Iterator[str]":
    """Yield the paths of all that is not a directory beneath one; links to directories are not followed."""
    for path, directories, files in os.walk(top):
        yield from (os.path.join(path, name) for name in files)
        yield from (os.path.join(path, name) for name in directories if os.path.islink(os.path.join(path, name)))
