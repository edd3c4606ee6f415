"""The programs that pbs_mom starts, while the package that they load is replaced."""
import os
import subprocess
import sys
import time

import jinja2
import playbooks
import pytest
import yaml
from paths import TOP
from waiting import wait_until

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.torque import contract
from ansible_collections.ckpt.torque.plugins.module_utils.validation import node_state

ROLE = TOP / "roles/checkpoint_hooks"
ENTRY = ROLE / "templates/entry.py.j2"
MAIN = """\
import os
from torque_ckpt.errors import NAME

def main(argv, config_path):
    print(NAME, argv[1:], config_path, sorted(set(os.environ) - {'LC_CTYPE'}))  # Python itself sets that one
    return 3
"""
BROKEN = "raise AttributeError('old\\nand new')\n"
COMPLAINT = ("Temporary failure of the restart: the hooks cannot be loaded (%r); image kept; run site.yml for this node if it happens "
             "again\n" % AttributeError("old\nand new"))


def render(room, **variables):
    """Render the entry that runs a room (str)."""
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)  # as Ansible's
    return environment.from_string(ENTRY.read_text()).render(variables, __checkpoint_hooks_room=room, ansible_managed="Ansible managed")


@pytest.fixture
def entry(tmp_path):
    """Install an entry whose package is broken: entry(room) returns its path; entry.complete() repairs it."""
    package = tmp_path / "torque_ckpt"

    def install(room, pause="1"):
        modules = {"__init__": "", "errors": BROKEN, room.split(".")[0] + "/__init__": "", room.replace(".", "/"): MAIN}
        for name, text in modules.items():
            path = package / (name + ".py")
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text)
        text = render(room, checkpoint_hooks_python=sys.executable, checkpoint_hooks_directory=str(tmp_path),
                      checkpoint_hooks_config_path="/etc/hooks.json")
        assert text.count("time.sleep(1)") == 1
        path = tmp_path / room.split(".")[1]
        path.write_text(text.replace("time.sleep(1)", "time.sleep(%s)" % pause))
        path.chmod(0o755)
        return str(path)

    def complete():
        (tmp_path / "draft").write_text("NAME = 'whole'\n")
        os.rename(tmp_path / "draft", package / "errors.py")
    install.complete = complete
    return install


def test_each_program_runs_its_room(tmp_path):
    """One lookup of a template renders all: each copies all variables of the host."""
    variables = dict(yaml.safe_load((ROLE / "defaults/main.yml").read_text()), **yaml.safe_load((ROLE / "vars/main.yml").read_text()))
    assert variables["__checkpoint_hooks_programs"].count("ansible.builtin.template") == 1
    for directory in ("files", "templates"):
        (tmp_path / directory).symlink_to(ROLE / directory)
    task = {"ansible.builtin.set_fact": {"answer": "{{ __checkpoint_hooks_programs }}"}}
    texts = playbooks.answers(tmp_path, {"": {}}, [task], variables)[""]
    assert texts.pop("action-script") == (ROLE / "files/action-script").read_text()
    rooms = dict({name: "hooks." + name for name in ("run", "checkpoint", "restart", "copy", "health")}, **{
        "torque-ckpt": "cli.main", "/usr/local/bin/torque-ckpt": "cli.main", "/usr/local/bin/ckpt-run": "ckpt_run.main"})
    assert texts == {name: render(room, **variables) for name, room in rooms.items()}


def start(path, environment):
    return subprocess.Popen([path, "12.head", "-"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            universal_newlines=True)


@pytest.mark.parametrize("room", ["hooks." + hook for hook in ("run", "checkpoint", "restart", "copy", "health")]
                         + ["cli.main", "ckpt_run.main"])
def test_entry_waits_until_its_package_is_whole(entry, room):
    process = start(entry(room, "0.5"), {"PATH": "/bin"})
    time.sleep(0.3)
    entry.complete()
    output, errors = process.communicate(timeout=60)
    assert (output, errors) == ("whole ['12.head', '-'] /etc/hooks.json ['PATH']\n", "")
    assert process.returncode == 3


def test_entries_differ_in_their_names_only(entry, tmp_path):
    """Level L0 of validate.yml finds one that was changed so."""
    for name in node_state.PROGRAMS:
        entry("hooks." + name)
    assert node_state.find_odd_programs(str(tmp_path)) == []


@pytest.mark.parametrize("room", ["hooks.run", "hooks.restart", "cli.main"])
def test_entry_of_a_package_that_stays_broken_fails(entry, room):
    process = start(entry(room, "0.01"), {})
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (1, "")
    assert errors.endswith("AttributeError: old\nand new\n")


def test_restart_that_cannot_be_loaded_queues_the_job_again(entry, tmp_path):
    status = tmp_path / "12.head.RS"
    process = start(entry("hooks.restart", "0.01"), {contract.STATUS: str(status)})
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert status.read_text() == COMPLAINT
    assert status.stat().st_mode & 0o777 == 0o600


def test_restart_that_is_killed_while_it_waits_has_the_job_queued_again(entry, tmp_path):
    status = tmp_path / "12.head.RS"
    process = start(entry("hooks.restart"), {contract.STATUS: str(status)})
    wait_until(lambda: status.exists() and status.read_text() == COMPLAINT)
    process.kill()
    process.communicate()
    assert status.read_text() == COMPLAINT


@pytest.mark.root
def test_restart_without_a_place_for_its_status_waits_all_the_same(entry):
    process = start(entry("hooks.restart", "0.5"), {contract.STATUS: "/dev/full"})
    time.sleep(0.3)
    entry.complete()
    assert process.communicate(timeout=60)[0].startswith("whole ")
