"""The hosts of the integration tests, with the programs' Debian packages on both nodes."""
import os
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from cluster import TOP, install_packages
from programs import PROGRAMS

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


@pytest.fixture(scope="session")
def equipped(cluster):
    """The cluster, once both nodes have the packages of the chosen programs."""
    install_packages(cluster, sorted({package for program in choose_programs() for package in program.packages.split()}))
    return cluster
