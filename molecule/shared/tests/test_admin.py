"""torque-ckpt after site.yml, as root and as a user, on nodes and on the server's host."""
import json

import pytest

testinfra_hosts = ["ansible://torque_server", "ansible://torque_mom"]


@pytest.fixture
def ckpt(host, settings):
    """Call torque-ckpt, as root or as a user."""
    def call(arguments, user=None):
        command = "%s %s" % (settings["checkpoint_hooks_command_path"], arguments)
        return host.run("runuser -u %s -- %s" % (user, command) if user else command)
    return call


def is_node(host):
    return "torque_mom" in host.ansible.get_variables()["group_names"]


def missing(settings):
    """What is said of the stores that are configured but not there."""
    return ["store {0} is not usable on this node: {0}/.ckpt-torque-store: No such file or directory; is it mounted?".format(store["path"])
            for store in settings["checkpoint_hooks_stores"] if store["id"] == "first"]


@pytest.mark.parametrize("as_user", [False, True])
def test_list_works_for_root_and_users(host, settings, ckpt, as_user):
    done = ckpt("list --json", settings["checkpoint_store_users"][0] if as_user else None)
    assert json.loads(done.stdout) == {"images": [], "problems": missing(settings)}
    assert done.rc == (1 if missing(settings) else 0)


def test_status_knows_engine_store_and_keys(host, settings, ckpt):
    status = json.loads(ckpt("status --json").stdout)
    assert status["problems"] == missing(settings)
    assert status["engine"]["name"] == ("criu" if is_node(host) else None)
    assert [(store["path"], store["usable"]) for store in status["stores"]] == [
        (store["path"], store["id"] != "first") for store in settings["checkpoint_hooks_stores"]]
    assert status["key"]["ids"] == [key["id"] for key in settings["checkpoint_hooks_keys"]]
    assert json.loads(ckpt("status --json", settings["checkpoint_store_users"][0]).stdout)["key"]["ids"] is None


def test_users_see_the_methods_of_ckpt_run(host, settings):
    command = settings["checkpoint_hooks_command_path"].rpartition("/")[0] + "/ckpt-run"
    done = host.run("runuser -u %s -- %s --list", settings["checkpoint_store_users"][0], command)
    assert (done.rc, done.stderr) == (0, "")
    names = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert names == sorted(["dmtcp", "gromacs", "keep", "lammps", "ompi", "rerun"] + list(settings["checkpoint_hooks_methods"]))


def test_manuals_and_completion(host, settings):
    share = settings["checkpoint_hooks_share_directory"]
    for page in ("man1/torque-ckpt.1", "man7/ckpt-torque.7"):
        assert host.file(share + "/man/" + page).content_string.startswith(".\\\"")
    assert host.run("bash -n %s/bash-completion/completions/torque-ckpt", share).rc == 0


def test_timer_runs_on_the_servers_host_only(host, settings):
    timer = host.service("ckpt-torque-orphans.timer")
    file = host.file("/etc/systemd/system/ckpt-torque-orphans.timer")
    if "torque_server" not in host.ansible.get_variables()["group_names"]:
        assert not file.exists
        return
    wanted = str(settings.get("checkpoint_hooks_orphans_enabled", settings["torque_enabled"])).lower() == "true"
    assert (timer.is_enabled, timer.is_running) == (wanted, wanted)
    assert "OnCalendar=%s\n" % settings["checkpoint_hooks_orphans_calendar"] in file.content_string
    service = host.file("/etc/systemd/system/ckpt-torque-orphans.service").content_string
    assert "ExecStart=%s/torque-ckpt prune --orphans\n" % settings["checkpoint_hooks_directory"] in service
    assert host.run("systemd-analyze verify --man=no ckpt-torque-orphans.timer ckpt-torque-orphans.service").rc == 0


def test_timer_for_nodes_that_are_down(host, settings):
    timer = host.service("ckpt-torque-node-down.timer")
    service = host.file("/etc/systemd/system/ckpt-torque-node-down.service")
    if "torque_server" not in host.ansible.get_variables()["group_names"]:
        assert not service.exists
        return
    wanted = settings["checkpoint_hooks_node_down_action"] != "none"
    assert (timer.is_enabled, timer.is_running) == (wanted, wanted)
    assert "ExecStart=%s/torque-ckpt node-down\n" % settings["checkpoint_hooks_directory"] in service.content_string
    assert host.run("systemd-analyze verify --man=no ckpt-torque-node-down.timer ckpt-torque-node-down.service").rc == 0


def test_servers_host_knows_all_nodes(host, settings):
    if {"torque_server", "torque_client"} & set(host.ansible.get_variables()["group_names"]):
        top = settings["checkpoint_hooks_config_path"].rpartition("/")[0]
        assert json.loads(host.file(top + "/nodes.json").content_string) == {"nodes": ["node1", "node2"]}
        for name in ("node1", "node2"):
            assert json.loads(host.file("%s/nodes/%s.json" % (top, name)).content_string)["node"] == name
