"""Packages are installed by ckpt.torque.packages alone, which refuses to remove or downgrade others; Ansible's own modules do not."""
import itertools
import json
import pathlib
import re

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3]
TASKS = sorted(itertools.chain(TOP.glob("roles/*/tasks/**/*.yml"), TOP.glob("roles/*/handlers/**/*.yml"), TOP.glob("playbooks/**/*.yml")))
SCRIPTS = sorted(path for path in itertools.chain(TOP.glob("roles/*/files/**/*"), TOP.glob("roles/*/templates/**/*"))
                 if path.is_file() and path.suffix != ".patch")
MANAGERS = {"apk", "apt", "apt_rpm", "dnf", "dnf5", "homebrew", "package", "pacman", "portage", "yum", "zypper"}
RUN = {"command", "expect", "raw", "script", "shell"}
INSTALLS = re.compile(r"\b(apt|apt-get|aptitude|dnf|dnf5|microdnf|yum|zypper)\s([^;&|\n]*\s)?"
                      r"(install|reinstall|upgrade|dist-upgrade|full-upgrade|downgrade|swap|remove|autoremove|purge|erase)\b"
                      r"|\bdpkg\s([^;&|\n]*\s)?(-i|-r|-P|--install|--remove|--purge)\b"
                      r"|\brpm\s([^;&|\n]*\s)?(-[a-zA-Z]*[ieUF][a-zA-Z]*|--install|--upgrade|--erase)\s")


def find_tasks(data):
    """Yield the tasks (dict), those of plays and blocks among them, in what a YAML file holds."""
    for entry in data if isinstance(data, list) else []:
        yield entry
        for key in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"):
            yield from find_tasks(entry.get(key))


def find_modules(task):
    """Yield the modules that a task runs, each with its arguments."""
    for key, arguments in task.items():
        if key in ("action", "local_action", "ansible.builtin.action", "ansible.builtin.local_action"):
            name = arguments.get("module", "") if isinstance(arguments, dict) else arguments
            yield name.partition(" ")[0], arguments
        else:
            yield key, arguments


def find_installations(data):
    """Yield what in a file's tasks installs packages without ckpt.torque.packages."""
    for task in find_tasks(data):
        for name, arguments in find_modules(task):
            collection, _dot, module = name.rpartition(".")
            if collection == "ckpt.torque":
                continue
            if module in MANAGERS or module in RUN and INSTALLS.search(re.sub(r"""["'\[\],\\]+""", " ", json.dumps(arguments))):
                yield name


def test_tasks_install_by_the_module_that_refuses():
    contents = {path.relative_to(TOP).as_posix(): yaml.safe_load(path.read_text()) for path in TASKS}
    assert sum("ckpt.torque.packages" in task for content in contents.values() for task in find_tasks(content)) > 6
    assert not [(path, name) for path, content in contents.items() for name in find_installations(content)]


def test_scripts_install_nothing():
    assert len(SCRIPTS) > 20
    assert not [path.relative_to(TOP).as_posix() for path in SCRIPTS if INSTALLS.search(path.read_text())]


@pytest.mark.parametrize("task, wrong", [
    ("ansible.builtin.apt: {name: criu}", True), ("apt: name=criu", True), ("ansible.builtin.dnf: {name: criu}", True),
    ("ansible.builtin.yum: {name: criu}", True), ("ansible.builtin.package: {name: criu}", True),
    ("community.general.zypper: {name: criu}", True), ("action: package name=criu", True),
    ("local_action: {module: ansible.builtin.dnf, name: criu}", True), ("block: [{ansible.builtin.apt: {name: criu}}]", True),
    ("ansible.builtin.command: apt-get install -y criu", True), ("ansible.builtin.command: {argv: [apt-get, -y, install, criu]}", True),
    ("ansible.builtin.command: {argv: \"{{ ['dnf', '-y', 'install'] + names }}\"}", True),
    ("ansible.builtin.shell: \"cd / && yum -y install criu\"", True), ("ansible.builtin.shell: {cmd: dpkg -i criu.deb}", True),
    ("ansible.builtin.raw: rpm -Uvh criu.rpm", True), ("ansible.builtin.shell: rpm -e criu", True),
    ("ckpt.torque.packages: {name: [criu]}", False), ("ansible.builtin.command: {argv: [apt-get, indextargets]}", False),
    ("ansible.builtin.command: rpm -q criu", False), ("ansible.builtin.command: {argv: [dkms, install, -m, blcr]}", False),
    ("ansible.builtin.package_facts: {}", False), ("ansible.builtin.debug: {msg: run apt-get install criu}", False)])
def test_rules(task, wrong):
    assert bool(list(find_installations([yaml.safe_load(task)]))) is wrong
