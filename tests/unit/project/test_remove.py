"""The role's removal of the hooks takes what is theirs, and leaves what others have in the same directories."""
import pathlib
import subprocess

import pytest
import yaml

import playbooks
import waiting
from ansible_collections.ckpt.torque.plugins.module_utils.torque import held_jobs
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.cli import node_down, orphans
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.telemetry import metrics

ROLE = playbooks.TOP / "roles/checkpoint_hooks"
TASKS = ("Remove the hooks, their configuration and what they keep", "Remove the directories that are empty")
WRITTEN = {
    "run": ["health.lock", "jobs/12.head.json"],
    "state": [held_jobs.NAME, held_jobs.DRAFT, held_jobs.LOCK, metrics.STATE, metrics.STATE + ".lock", node_down.STATE, "node-down.lock",
              orphans.STATE, "private/17.4/memory", "prune.lock", "snapshots/open/files"],
    "scratch": ["private/17.4/memory"], "metrics": [metrics.FILE],
    "etc": ["hooks.json", "methods.json", "nodes.json", "nodes/n1.json", "manifest.key"],
    "share": ["man/man1/torque-ckpt.1", "man/man7/ckpt-torque.7", "bash-completion/completions/torque-ckpt"],
}
"""What hooks and playbooks write in each directory."""


FOREIGN = {"run": ["site.pid"], "state": ["site.json"], "scratch": ["alice/results", "jobs/1", "snapshots/1"], "etc": ["site.conf"],
           "metrics": ["node.prom"], "share": ["man/man7/site.7"]}
"""What others have beside it, also under names that the hooks use elsewhere."""
SHARED = ["share/bash-completion/completions", "share/man/man1", "share/man/man7"]
"""Directories of the distribution, which stay."""


def write(site, files):
    for directory, names in files.items():
        for name in names:
            path = site / directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def set_directories(site):
    """Return the role's variables for directories beneath one (pathlib.Path)."""
    return {"checkpoint_hooks_" + name: str(site / path) for name, path in (
        ("run_directory", "run"), ("state_directory", "state"), ("private_directory", "scratch"), ("metrics_directory", "metrics"),
        ("config_path", "etc/hooks.json"), ("key_path", "etc/manifest.key"), ("directory", "lib"), ("command_path", "bin/torque-ckpt"),
        ("share_directory", "share"))}


def find_rest(site):
    """Return the files and the empty directories beneath a directory (sorted list of str)."""
    return sorted(str(path.relative_to(site)) for path in site.rglob("*") if not path.is_dir() or not list(path.iterdir()))


def test_only_files_of_the_hooks_are_removed(tmp_path):
    """Their directories go as well, unless others have files there."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    write(own, WRITTEN)
    write(shared, WRITTEN)
    write(shared, FOREIGN)
    tasks = [task for task in yaml.safe_load((ROLE / "tasks/remove.yml").read_text()) if task["name"] in TASKS]
    assert len(tasks) == len(TASKS)
    playbooks.answers(tmp_path, {site.name: set_directories(site) for site in (own, shared)},
                      [{"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")}, *tasks,
                       {"ansible.builtin.set_fact": {"answer": ""}}], {"__checkpoint_hooks_unit_files": {"files": []}})
    assert find_rest(own) == ["metrics", *SHARED]  # node_exporter's, and everybody's
    assert find_rest(shared) == sorted(["%s/%s" % (directory, name) for directory, names in FOREIGN.items() for name in names]
                                       + [name for name in SHARED if name != "share/man/man7"])


def test_only_directories_of_users_and_jobs_leave_the_store(tmp_path):
    """The store's own directory goes if nothing else is in it."""
    kept = ["lost+found", "bob", "alice/1.head.CK/ckpt.1.head.7"]
    for store, directories in (("foreign", ["carol", "2.head.CK", *kept]), ("own", ["alice", "carol", "2.head.CK"])):
        for directory in directories:
            (tmp_path / store / directory).mkdir(parents=True)
        (tmp_path / store / ".ckpt-torque-store").touch()
    task, = [task for task in yaml.safe_load((playbooks.TOP / "roles/checkpoint_store/tasks/remove_store.yml").read_text())
             if task["name"] == "Remove empty directories of users and jobs, and an empty store"]
    playbooks.answers(tmp_path, {store: {"checkpoint_store_path": str(tmp_path / store)} for store in ("foreign", "own")},
                      [task, {"ansible.builtin.set_fact": {"answer": ""}}], {"checkpoint_store_users": ["alice", "carol"]})
    assert find_rest(tmp_path / "foreign") == sorted([".ckpt-torque-store", *kept])
    assert not (tmp_path / "own").exists()


@pytest.fixture
def busy(tmp_path):
    """The directory of hooks one of which runs (str), and its process id."""
    directory = str(tmp_path / "busy")
    with subprocess.Popen(["bash", "-c", "exec -a %s/run sleep 60" % directory]) as process:
        try:
            command = pathlib.Path("/proc/%d/cmdline" % process.pid)
            waiting.wait_until(lambda: command.read_text().startswith(directory))
            yield directory, process.pid
        finally:
            process.kill()


SENTENCE = ("%s: the hooks cannot be removed, jobs that they started run here (processes %d); let them end and run this again, or apply "
            "ckpt.torque.site, with which all nodes have the hooks again; the hooks stay as they are.")


def test_job_that_needs_the_hooks(tmp_path, busy):
    """Its administrator is not told to move it: other nodes may have lost their hooks."""
    directory, pid = busy
    looks = {"block": yaml.safe_load((ROLE / "tasks/remove_preflight.yml").read_text()),
             "rescue": [{"ansible.builtin.set_fact": {"answer": "{{ ansible_failed_result.msg }}"}}]}
    cases = {"busy": {"checkpoint_hooks_directory": directory}, "free": {"checkpoint_hooks_directory": directory + "2"}}
    assert playbooks.answers(tmp_path, cases, [{"ansible.builtin.set_fact": {"answer": ""}}, looks], {}) == {
        "busy": SENTENCE % ("case0", pid), "free": ""}


def test_job_that_started_since_the_first_check(tmp_path, busy):
    """Its node is left alone before pbs_mom is configured; those that come after it are done."""
    play, = [play for play in yaml.safe_load((playbooks.TOP / "playbooks/remove.yml").read_text())
             if play["name"] == "Remove the hooks from compute nodes"]
    names = [task["name"] for task in play["tasks"]]
    check, configure = (names.index(name) for name in ("Leave a node with a job alone", "Configure and restart pbs_mom without the hooks"))
    assert check == configure - 2
    cases = {"busy": {"checkpoint_hooks_directory": busy[0]}, "free": {"checkpoint_hooks_directory": busy[0] + "2"}}
    tasks = [{"ansible.builtin.set_fact": {"answer": "left alone"}}, *play["tasks"][check:configure],
             {"ansible.builtin.set_fact": {"answer": "done"}}]
    assert playbooks.answers(tmp_path, cases, tasks, {}, serial=1) == {"busy": "left alone", "free": "done"}
