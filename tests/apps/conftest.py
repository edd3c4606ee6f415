"""The hosts of the integration tests, with the programs' Debian packages on both nodes."""
import os
import subprocess
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from cluster import TOP, install_packages
from programs import PROGRAMS, find_source

pytest.register_assert_rewrite("runs")

_spec = spec_from_file_location("integration_fixtures", TOP / "tests/integration/conftest.py")
_fixtures = module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)
cluster = _fixtures.cluster


def choose_programs():
    """Return the programs (list) that APPS names, or all.

    :raises pytest.UsageError: if it names one that is not in the table
    """
    names = os.environ.get("APPS", "").split()
    unknown = sorted(set(names) - {program.name for program in PROGRAMS})
    if unknown:
        raise pytest.UsageError("APPS: no program %s; choose from %s" % (
            ", ".join(unknown), ", ".join(program.name for program in PROGRAMS)))
    return [program for program in PROGRAMS if not names or program.name in names]


def pytest_generate_tests(metafunc):
    if "program" in metafunc.fixturenames:
        metafunc.parametrize("program", choose_programs(), ids=lambda program: program.name)


def build_program(cluster, program):
    """Build a program's tarball on node1, and copy what it has installed to node2; nothing if it is there."""
    prefix = "/opt/" + program.source.partition("-")[0]
    node1, node2 = cluster.nodes["node1"], cluster.nodes["node2"]
    if node2.run("[ -e %s ]" % prefix).code == 0:
        return
    with find_source(program).open("rb") as stream:
        subprocess.run(node1.command + ["rm -rf /tmp/build; mkdir /tmp/build && tar -xzf - -C /tmp/build"], stdin=stream, check=True)
    configure = "./configure --prefix=%s %s" % (prefix, program.options)
    done = node1.run("cd /tmp/build/%s && (%s && make -j2 && make install && tar -cf /shared/built.tar %s) "
                     "> /tmp/build/log 2>&1 || { tail -n 30 /tmp/build/log; exit 1; }" % (program.source, configure, prefix), 1800)
    assert done.code == 0, "%s was not built: %s" % (program.source, done.out)
    node2.ask("tar -xf /shared/built.tar -C /; rm /shared/built.tar")


@pytest.fixture(scope="session")
def equipped(cluster):
    """The cluster, once both nodes have the packages of the chosen programs, and those whose source is at hand."""
    programs = choose_programs()
    install_packages(cluster, sorted({package for program in programs for package in program.packages.split()}))
    for program in programs:
        if program.source and find_source(program).exists():
            build_program(cluster, program)
    return cluster
