"""A bundle is used if it has the files that were written, and no others."""
import os
import re
import subprocess

import pytest

from ansible_collections.ckpt.torque.plugins.plugin_utils import bundle
from paths import TOP

FILES = ["artifacts/torque-6.1.3.tar.gz", "controller/ansible_core-2.19.1-py3-none-any.whl", "controller/collections/a file",
         "packages/debian13-x86_64.tar", "sources/criu.tar.xz"]
FAULT = "bundle_source %s is not what was written (%s is not in SHA256SUMS); copy it again"
ADDED = ["controller/ansible_core-2.19.2-py3-none-any.whl", "controller/collections/ansible_collections/ckpt/torque/plugins/action/x.py",
         "controller/a  wheel.whl", "controller/collections/SHA256SUMS.py", "controller/ansible.deb", "artifacts/torque-6.1.4.tar.gz"]


@pytest.fixture
def directory(tmp_path):
    top = tmp_path / "a bundle"
    for name in FILES:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    with (top / "SHA256SUMS").open("w") as stream:
        subprocess.run(["sha256sum", *FILES], cwd=top, stdout=stream, check=True)
    (top / "SHA256SUMS.sig").touch()
    return top


def add(directory, name):
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).touch()


def test_bundle_as_written(directory):
    add(directory, "artifacts/torque-6.1.3.deb")  # created at the site
    assert bundle.find_fault(str(directory), "") == ""


@pytest.mark.parametrize("name", ADDED)
def test_file_that_nobody_has_listed(directory, name):
    add(directory, name)
    assert bundle.find_fault(str(directory), "") == FAULT % (directory, name)


def test_link_that_nobody_has_listed(directory):
    (directory / "controller/collections/ansible_collections").symlink_to("/tmp")
    assert bundle.find_fault(str(directory), "") == FAULT % (directory, "controller/collections/ansible_collections")


@pytest.fixture
def install(directory, tmp_path):
    """Return a function that runs the commands of install.md, without gpgv and Python; it returns whether they came to use the bundle."""
    programs, used = tmp_path / "bin", tmp_path / "used"
    programs.mkdir()
    for name, line in (("gpgv", "exit 0"), ("python3", "touch '%s'; exit 1" % used)):
        (programs / name).write_text("#!/bin/sh\n%s\n" % line)
        (programs / name).chmod(0o755)
    commands, = re.findall(r"^```\n(cd /srv/bundle .*?)^```", (TOP / "docs/install.md").read_text(), re.MULTILINE | re.DOTALL)
    assert "pip install" in commands.partition("python3 -m venv")[2]

    def run():
        done = subprocess.run(["bash", "-c", commands.replace("/srv/bundle", "'%s'" % directory)], check=False,
                              env=dict(os.environ, PATH="%s:%s" % (programs, os.environ["PATH"])))
        assert done.returncode == 1
        return used.exists()
    return run


def test_commands_use_the_bundle_as_written(install):
    assert install()


@pytest.mark.parametrize("name", [*ADDED, "controller/%s\ncontroller/x" % FILES[1]])
def test_commands_refuse_what_nobody_has_listed(directory, install, name):
    add(directory, name)
    assert not install()


def test_commands_refuse_an_altered_file(directory, install):
    (directory / FILES[1]).write_text("x")
    assert not install()


def test_commands_refuse_a_link(directory, install):
    (directory / "controller/collections/ansible_collections").symlink_to("/tmp")
    assert not install()
