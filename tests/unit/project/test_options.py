"""The scenario "options" changes what it says it changes; what takes a file server, the scenario "store_nfs"; what takes another
layout of stores, an integration test."""
import ast
import pathlib

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3]
VALUES = [dict(group) for scenario in ("options", "store_nfs")
          for kind, groups in yaml.safe_load((TOP / "molecule" / scenario / "molecule.yml").read_text())["provisioner"]["inventory"].items()
          if kind in ("group_vars", "host_vars") for group in groups.values()]
# torque_build is not among them: each value would be one more TORQUE to build; see test_build_options.py.
ROLES = ("criu", "checkpoint_*", "torque_server", "torque_mom", "torque_client")
DEFAULTS = {name: value for role in ROLES for path in TOP.glob("roles/%s/defaults/main.yml" % role)
            for name, value in yaml.safe_load(path.read_text()).items()}
LAYOUT = {"checkpoint_store_shared_enabled", "checkpoint_store_transfer_directory", "checkpoint_store_transfer_port",
          "checkpoint_store_additional_stores"}
BUILD = {"criu_prefix", "criu_version", "criu_cache", "criu_package_formats"}
"""As those of torque_build: each value would be one more CRIU to build."""
REPEATED = next(ast.literal_eval(node.value) for node in ast.parse((TOP / "molecule/shared/tests/conftest.py").read_text()).body
                if isinstance(node, ast.Assign) and node.targets[0].id == "DEFAULTS")
"""The defaults as the tests of the scenarios' hosts repeat them."""
ONE_CHOICE = {"criu_path", "criu_packages", "criu_state",  # of methods that tests/integration/test_packages.py tries
              "criu_engine_info",  # playbooks pass it
              "checkpoint_hooks_engine",  # the other one needs a kernel of its own
              "torque_mom_restart_enabled"}  # site.yml sets it itself


@pytest.mark.parametrize("name", sorted(name for name in set(DEFAULTS) - LAYOUT - ONE_CHOICE - BUILD if not name.startswith("criu_build_")))
def test_every_public_variable_differs_from_its_default(name):
    overrides = [values[name] for values in VALUES if name in values]
    assert overrides, "%s is not set in molecule/options" % name
    assert [value for value in overrides if value != DEFAULTS[name]]


@pytest.mark.parametrize("name", sorted(LAYOUT))
def test_every_variable_of_another_layout_is_set(name):
    assert name in DEFAULTS
    assert name in (TOP / "tests/integration/test_local_stores.py").read_text()


@pytest.mark.parametrize("name", sorted(name for name in set(REPEATED) - {"torque_server_attributes"} if "{{" not in repr(DEFAULTS[name])))
def test_defaults_that_molecule_repeats(name):
    """Found here, and not after half an hour; torque_server_attributes stands there with what the server sets itself."""
    assert REPEATED[name] == DEFAULTS[name]
