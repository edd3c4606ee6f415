# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What package managers print: which packages are installed, and what an installation would remove."""

import collections
import fnmatch
import re

Plan = collections.namedtuple("Plan", "removed downgraded")
"""What an installation would remove or downgrade: sorted names of packages (list of str), each."""

COMMANDS = {
    "apt": {"simulate": ["apt-get", "-s", "-y", "-o", "Debug::NoLocking=true", "--allow-downgrades", "--allow-change-held-packages",
                         "--allow-remove-essential", "install"],
            "install": ["apt-get", "-y", "--no-remove", "-o", "DPkg::Lock::Timeout=60", "-o", "Dpkg::Options::=--force-confdef",
                        "-o", "Dpkg::Options::=--force-confold", "install"],
            "download": ["apt-get", "-q", "-y", "-o", "APT::Sandbox::User=root", "--no-install-recommends", "--download-only", "install"]},
    "dnf": {"simulate": ["dnf", "--assumeno", "install"], "install": ["dnf", "-y", "install"]},
    "yum": {"simulate": ["yum", "--assumeno", "install"], "install": ["yum", "-y", "install"]},
    "zypper": {"simulate": ["zypper", "--non-interactive", "install", "--dry-run"], "install": ["zypper", "--non-interactive", "install"]},
}
"""How each manager simulates an installation, does one, and, if it can, downloads what an installation needs."""

MARKS = {"apt": r"^(\S+ has no installation candidate|E: .+)$", "dnf": "^((?:Error|No match for argument|Problem).*)$",
         "yum": "^((?:Error|No package ).*)$", "zypper": "^((?:Problem|No provider|'|Package ').*)$"}
RPM_SECTIONS = {"Removing": "removed", "Removing dependent packages": "removed", "Removing for dependencies": "removed",
                "Removing unused dependencies": "removed", "Downgrading": "downgraded"}


def find_missing(names: "list[str]", installed: str) -> "list[str]":
    """Return those of the names that no installed package has or provides.

    :param names: as apt-get takes them: NAME, NAME:ARCHITECTURE or NAME=VERSION, where the version may have wildcards
    :param installed: what dpkg-query prints: lines of name, architecture, version, state and provided names, separated by tabs
    """
    versions: "dict[str, list[str]]" = collections.defaultdict(list)
    for line in installed.splitlines():
        fields = line.split("\t")
        if len(fields) < 5 or fields[3] != "installed":
            continue
        versions[fields[0]].append(fields[2])
        versions["%s:%s" % (fields[0], fields[1])].append(fields[2])
        for provided in re.findall(r"([a-z0-9][a-z0-9+.-]+)(?: \(= ([^)]+)\))?", fields[4]):
            versions[provided[0]].append(provided[1])
    return [entry for entry in names if not any(fnmatch.fnmatchcase(version, entry.partition("=")[2] or "*")
                                                for version in versions.get(entry.partition("=")[0], []))]


def read_apt(text: str) -> Plan:
    """Return the Plan in what apt-get prints when it simulates."""
    removed = re.findall(r"^Remv (\S+)", text, re.MULTILINE)
    section = re.search(r"^The following packages will be DOWNGRADED:\n((?:  .*\n)+)", text, re.MULTILINE)
    return Plan(sorted(set(removed)), sorted(set(section.group(1).split())) if section else [])


def read_rpm(text: str) -> Plan:
    """Return the Plan in the table that dnf or yum prints before it asks."""
    names: "dict[str, set[str]]" = {"removed": set(), "downgraded": set()}
    kind = None
    for line in text.splitlines():
        if re.match(r"^[A-Z][A-Za-z ]*:?\s*$", line):
            kind = RPM_SECTIONS.get(line.strip().rstrip(":"))
        replaced = re.match(r"^\s+replacing\s+(\S+?)(?:\.\w+)?\s", line + " ")
        if replaced:
            names["removed"].add(replaced.group(1))
        elif kind and re.match(r"^ \S", line):
            names[kind].add(line.split()[0])
    return Plan(sorted(names["removed"]), sorted(names["downgraded"]))


def read_zypper(text: str) -> Plan:
    """Return the Plan in what zypper prints on a dry run."""
    names: "dict[str, list[str]]" = {"REMOVED": [], "downgraded": []}
    for kind, listed in re.findall(r"^The following (?:\d+ )?packages? (?:is|are) going to be (REMOVED|downgraded):\n((?:  .*\n?)+)",
                                   text, re.MULTILINE):
        names[kind] += listed.split()
    return Plan(sorted(set(names["REMOVED"])), sorted(set(names["downgraded"])))


READERS = {"apt": read_apt, "dnf": read_rpm, "yum": read_rpm, "zypper": read_zypper}


def find_reason(manager: str, text: str) -> str:
    """Return why a manager cannot install (one line), from all it has printed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    unmet = re.search(r"The following packages have unmet dependencies:\n((?: .*\n)+)", text)
    marked = [line for line in lines if re.match(MARKS[manager], line)]
    reasons = [" ".join(unmet.group(1).split())] if unmet else []
    return "; ".join((reasons + marked)[:3] or lines[-1:] or ["it printed nothing"])[:400]


def refuse(manager: str, names: "list[str]", plan: Plan, advice: str) -> str:
    """Return why nothing is installed when a Plan would remove or downgrade packages, empty when it would not."""
    harm = ["%s %s" % (word, ", ".join(packages))
            for word, packages in (("remove", plan.removed), ("downgrade", plan.downgraded)) if packages]
    if not harm:
        return ""
    return "to install %s, %s would %s; %s; nothing was installed or removed" % (" ".join(names), manager, " and ".join(harm), advice)
