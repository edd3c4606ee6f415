"""What package managers printed, see data/packages/README.md."""


import pytest
from paths import DATA

from ansible_collections.ckpt.torque.plugins.module_utils import packages

HERE = DATA / "packages"
MPI = ["ibverbs-providers", "libfabric1", "libibverbs-dev", "libibverbs1", "libnl-3-200", "libnl-3-dev", "libnl-route-3-200",
       "libnl-route-3-dev", "libopenmpi-dev", "libopenmpi40", "librdmacm1t64", "libucx0", "openmpi-bin"]
DOWNGRADE = """\
The following packages will be DOWNGRADED:
  libfirst1 libsecond2:i386
  libthird3
0 upgraded, 0 newly installed, 3 downgraded, 0 to remove and 4 not upgraded.
"""


@pytest.mark.parametrize("manager, name, removed, downgraded", [
    ("apt", "apt-removes", ["criu"] + MPI, []),
    ("apt", "apt-unmet", [], []),
    ("dnf", "dnf-plain", [], []),
    ("dnf", "dnf-replaces", ["old"], []),
    ("dnf", "dnf-downgrades", [], ["lib"]),
    ("dnf", "dnf-conflict", [], []),
    ("zypper", "zypper-plain", [], []),
    ("zypper", "zypper-removes", ["old"], []),
    ("zypper", "zypper-conflict", [], []),
])
def test_what_would_go(manager, name, removed, downgraded):
    assert packages.READERS[manager]((HERE / (name + ".txt")).read_text()) == packages.Plan(removed, downgraded)


def test_apt_downgrades():
    assert packages.read_apt(DOWNGRADE) == packages.Plan([], ["libfirst1", "libsecond2:i386", "libthird3"])


def test_refusal():
    refuse = packages.refuse
    assert refuse("apt", ["criu=4.2.*"], packages.Plan(["openmpi-bin", "ucx"], ["lib"]), "build it yourself") == (
        "to install criu=4.2.*, apt would remove openmpi-bin, ucx and downgrade lib; build it yourself; nothing was installed or removed")
    assert refuse("dnf", ["a", "b"], packages.Plan([], ["lib"]), "wait") == (
        "to install a b, dnf would downgrade lib; wait; nothing was installed or removed")
    assert refuse("dnf", ["a"], packages.Plan([], []), "wait") == ""


@pytest.mark.parametrize("manager, name, reason", [
    ("apt", "apt-unmet", "criu : Depends: libc6 (>= 2.38) but 2.36-9+deb12u14 is to be installed Depends: libgnutls30t64 (>= 3.8.1) but "
     "it is not installable Depends: libnet9 (>= 1.1.2.1) but it is not going to be installed Depends: libnl-3-200 (>= 3.11.0) but "
     "3.7.0-0.2+b1 is to be installed Depends: libcompel1 (= 4.2.1-1) but it is not going to be installed; E: Unable to correct problems, "
     "you have held broken packages."),
    ("dnf", "dnf-unknown", "No match for argument: nosuch; Error: Unable to find a match: nosuch"),
    ("dnf", "dnf-conflict", "Error:; Problem: problem with installed package app-1.0-1.noarch"),
    ("zypper", "zypper-unknown", "'nosuch' not found in package names. Trying capabilities.; No provider of 'nosuch' found."),
    ("zypper", "zypper-conflict", "Problem: 1: the to be installed enemy-1.0-1.noarch conflicts with 'app' provided by the installed "
     "app-1.0-1.noarch"),
])
def test_reason(manager, name, reason):
    assert packages.find_reason(manager, (HERE / (name + ".txt")).read_text()) == reason


def test_reason_that_nobody_knows():
    assert packages.find_reason("apt", "\nReading\nsegmentation fault\n\n") == "segmentation fault"
    assert packages.find_reason("apt", "") == "it printed nothing"


INSTALLED = """\
criu\tamd64\t4.2.1-1\tinstalled\t
libssl3t64\tamd64\t3.5.1-1\tinstalled\tlibssl3 (= 3.5.1-1)
mawk\tamd64\t1.3\tinstalled\tawk
gone\tamd64\t1.0\tconfig-files\t
zstd\ti386\t1.5\tinstalled\t
"""


@pytest.mark.parametrize("name, missing", [
    ("criu", False), ("criu=4.2.*", False), ("criu=4.1.*", True), ("criu:amd64", False), ("criu:i386", True), ("libssl3", False),
    ("libssl3=3.5*", False), ("awk", False), ("gone", True), ("zstd", False), ("nosuch", True), ("g++", True),
])
def test_missing(name, missing):
    assert packages.find_missing([name], INSTALLED) == [name] * missing
