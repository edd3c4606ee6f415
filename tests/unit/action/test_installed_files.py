"""The action plugin installed_files, in a real play: what it reads on the controller and hands to the module."""

import json
import os
import shutil
import subprocess
import sys

import pytest

PLAY = """\
- hosts: localhost
  gather_facts: false
  tasks:
    - ckpt.torque.installed_files:
        path: {root}
        package: torque_ckpt
        python: "{{{{ ansible_playbook_python }}}}"
        files: {{run: "#!/bin/sh\\n"}}
        executables: [run]
        contents: {{intruder.py: "not from the collection"}}
      register: installed
    - ckpt.torque.installed_files:
        files: {{"{unit}": "[Unit]\\n"}}
      register: plain
    - ckpt.torque.installed_files:
        path: {root}
        package: torque_ckpt
        python: "{{{{ ansible_playbook_python }}}}"
        files: {{run: "#!/bin/sh\\n"}}
        executables: [run]
      register: again
    - ckpt.torque.installed_files:
        path: {root}
        package: torque_other
      register: missing
      ignore_errors: true
    - ansible.builtin.copy:
        content: "{{{{ [installed, plain, missing, again] | to_json }}}}"
        dest: {answers}
        mode: "0600"
"""


def sources(top):
    """Return the files (dict: relative path to bytes) beneath top, compiled ones left out."""
    contents = {}
    for directory, subdirectories, names in os.walk(top):
        subdirectories[:] = [name for name in subdirectories if name != "__pycache__"]
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as stream:
                contents[os.path.relpath(path, top)] = stream.read()
    return contents


@pytest.fixture(scope="module")
def played(tmp_path_factory, repository):
    """The directory (pathlib.Path) of the play and the answers (list of dict) of its four tasks.

    It is played with a copy of the collection whose package also holds what does not belong on a node. Its module notes in the
    file `sent` how many texts of the package it was given.
    """
    top = tmp_path_factory.mktemp("play")
    collection = top / "ansible_collections" / "ckpt" / "torque"
    shutil.copytree(repository / "plugins", collection / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    package = collection / "plugins" / "module_utils" / "torque_ckpt"
    (package / "letters.py").write_bytes(b"NAME = '\xc3\xbc'\n")
    (package / "engines" / "notes.txt").write_text("notes\n")
    for directory in (package, package / "engines"):
        (directory / "__pycache__").mkdir()
        (directory / "__pycache__" / "letters.py").write_text("compiled\n")
    module = collection / "plugins" / "modules" / "installed_files.py"
    note = "    with open(%r, 'a') as stream:\n        stream.write('%%d\\n' %% len(module.params['contents']))\n" % str(top / "sent")
    module.write_text(module.read_text().replace("    os.umask(", note + "    os.umask(", 1))
    (top / "play.yml").write_text(PLAY.format(
        root=top / "lib" / "hooks", unit=top / "etc" / "example.service", answers=top / "answers.json"))
    (top / "ansible.cfg").write_text("")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    environment.update(ANSIBLE_CONFIG=str(top / "ansible.cfg"), ANSIBLE_HOME=str(top / "home"), ANSIBLE_LOCALHOST_WARNING="false",
                       ANSIBLE_COLLECTIONS_PATH=str(top), ANSIBLE_NOCOLOR="1")
    done = subprocess.run([sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local",
                           "-e", "ansible_python_interpreter=" + sys.executable, str(top / "play.yml")],
                          env=environment, cwd=top, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return top, json.loads((top / "answers.json").read_text())


@pytest.mark.root
def test_package_is_read_on_the_controller(played, repository):
    """All of the package's Python files and nothing else, whatever the task says the contents are."""
    top, (installed, _plain, _missing, _again) = played
    package = sources(repository / "plugins" / "module_utils" / "torque_ckpt")
    wanted = {"torque_ckpt/" + name: text for name, text in package.items() if name.endswith(".py")}
    wanted.update({"torque_ckpt/letters.py": b"NAME = '\xc3\xbc'\n", "run": b"#!/bin/sh\n"})
    assert {"torque_ckpt/__init__.py", "torque_ckpt/hooks/run.py", "torque_ckpt/engines/criu.py"} < set(wanted)
    assert sources(top / "lib" / "hooks") == wanted
    assert installed["changed"] is True
    assert installed["written"] == sorted(str(top / "lib" / "hooks" / name) for name in wanted)


@pytest.mark.root
def test_files_without_a_package(played):
    top, (_installed, plain, _missing, _again) = played
    assert (plain["changed"], plain["written"], plain["removed"]) == (True, [str(top / "etc" / "example.service")], [])
    assert (top / "etc" / "example.service").read_text() == "[Unit]\n"


@pytest.mark.root
def test_package_is_not_there(played):
    _top, (_installed, _plain, missing, _again) = played
    assert (missing["failed"], missing["msg"]) == (
        True, "installed_files: torque_other is not a Python package of this collection's module_utils")


@pytest.mark.root
def test_package_is_sent_where_it_differs(played):
    """To the node that has none in a second execution; where it is already the digests are sufficient."""
    top, (installed, _plain, _missing, again) = played
    assert (top / "sent").read_text().split() == ["0", str(len(installed["written"]) - 1), "0", "0"]
    assert (again["changed"], "contents_needed" in installed) == (False, False)
