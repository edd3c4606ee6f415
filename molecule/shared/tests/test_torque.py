"""TORQUE after site.yml, looked at from outside; without its source there is none, and none must be there."""
import re

import pytest

testinfra_hosts = ["ansible://torque_server", "ansible://torque_client", "ansible://torque_mom"]
ALL = ["trqauthd", "pbs_server", "pbs_sched", "pbs_mom"]


@pytest.fixture
def torque(host):
    """Whether TORQUE was to be installed (bool)."""
    return str(host.ansible.get_variables()["torque_enabled"]).lower() == "true"


@pytest.fixture
def groups(host):
    """The host's groups (list of str)."""
    return host.ansible.get_variables()["group_names"]


@pytest.fixture
def units(groups, settings, torque):
    """The services (dict) of this host and their prefixes."""
    services = {}
    if "torque_server" in groups or "torque_client" in groups and settings["torque_client_trqauthd_enabled"]:
        services["trqauthd"] = settings["torque_client_prefix"]
    if "torque_server" in groups:
        services["pbs_server"] = settings["torque_server_prefix"]
        if settings["torque_server_scheduler"] == "pbs_sched":
            services["pbs_sched"] = settings["torque_server_prefix"]
    if "torque_mom" in groups:
        services["pbs_mom"] = settings["torque_mom_prefix"]
    return services if torque else {}


def test_services_run_and_start_at_boot(host, units):
    for name in ALL:
        assert host.file("/etc/systemd/system/%s.service" % name).exists == (name in units)
    for name in units:
        unit = host.service(name + ".service")
        journal = host.run("journalctl --no-pager -n 30 -u %s", name).stdout
        assert unit.is_running and unit.is_enabled, journal


def test_services_have_their_paths_and_limits(host, settings, units):
    for name, prefix in units.items():
        text = host.file("/etc/systemd/system/%s.service" % name).content_string
        assert "ExecStart=%s/current/sbin/%s" % (prefix, name) in text
        role = {"pbs_server": "torque_server", "pbs_mom": "torque_mom"}.get(name)
        if role:
            assert " -d %s" % settings[role + "_home"] in text
            limit = host.check_output("systemctl show --property LimitNOFILE --value %s", name)
            assert int(limit) == settings[role + "_limits"]["LimitNOFILE"]


def test_programs_are_roots(host, torque):
    assert host.file("/opt/torque/current").exists == torque
    if torque:
        assert host.file("/opt/torque/current").is_symlink
        assert host.check_output("find /opt/torque/ -not -user root -o -perm /022 -not -type l") == ""


def test_mom_config(host, settings, groups, torque):
    config = host.file(settings["torque_mom_home"] + "/mom_priv/config")
    if not torque or "torque_mom" not in groups:
        assert not config.exists
        return
    assert (config.user, config.mode & 0o022) == ("root", 0)
    wanted = ["$pbsserver " + name for name in settings["torque_mom_servers"]]
    if settings["torque_mom_checkpoint_enabled"]:
        wanted += ["$%s %s/%s" % (directive, settings["torque_mom_hooks_directory"], hook) for directive, hook in (
            ("checkpoint_run_exe", "run"), ("checkpoint_script", "checkpoint"), ("restart_script", "restart"))]
        wanted += ["$checkpoint_interval %d" % settings["torque_mom_checkpoint_interval"]]
    wanted += ["$remote_checkpoint_dirs %s/" % path for path in settings["torque_mom_remote_checkpoint_dirs"]]
    wanted += ["$usecp " + pair for pair in settings["torque_mom_usecp"]]
    wanted += ["$loglevel %d" % settings["torque_mom_loglevel"]]
    if settings["torque_mom_checkpoint_enabled"] and settings["torque_mom_health_check_enabled"]:
        wanted += ["$node_check_script %s/health" % settings["torque_mom_hooks_directory"], "$down_on_error true",
                   "$node_check_interval %s" % settings["torque_mom_health_check_interval"]]
    wanted += ["$%s %s" % pair for pair in settings["torque_mom_directives"].items()]
    wanted += settings["torque_mom_resources"]
    assert sorted(config.content_string.splitlines()[1:]) == sorted(wanted)


def test_commands(host, settings, groups, torque):
    client = torque and bool({"torque_server", "torque_client"} & set(groups))
    profile = host.file("/etc/profile.d/ckpt-torque.sh")
    assert profile.exists == (client and settings["torque_client_profile_enabled"])
    if client:
        assert host.file(settings["torque_client_home"] + "/server_name").content_string == settings["torque_client_server"] + "\n"
    if profile.exists:
        assert host.check_output("bash -lc 'command -v qsub'") == settings["torque_client_prefix"] + "/current/bin/qsub"


def test_server_has_what_was_asked_for(host, settings, groups, torque):
    if not torque or "torque_server" not in groups:
        return
    commands = settings["torque_server_prefix"] + "/current/bin/"
    listing = host.check_output(commands + "pbsnodes -a")
    nodes = dict(re.findall(r"^(\S+)\n((?: .*\n|\n)*)", listing + "\n", re.MULTILINE))
    assert sorted(nodes) == settings["torque_server_nodes"]
    for name, attributes in settings["torque_server_node_attributes"].items():
        assert "np = %d\n" % attributes["np"] in nodes[name]
        assert "properties = %s\n" % ",".join(attributes["properties"]) in nodes[name]
    text = host.check_output(commands + "qmgr -c 'print server'")
    assert re.findall("^create queue (.*)$", text, re.MULTILINE) == sorted(settings["torque_server_queues"])
    for name, attributes in settings["torque_server_queues"].items():
        assert "set queue %s checkpoint_dir = %s\n" % (name, attributes["checkpoint_dir"]) in text
    for name, value in settings["torque_server_attributes"].items():
        assert "set server %s = %s\n" % (name, value) in text
    assert re.findall(r"^set server submit_hosts \+?= (.*)$", text, re.MULTILINE) == settings["torque_server_submit_hosts"]
    for role in ("managers", "operators"):
        names = re.findall(r"^set server %s \+?= (.*)$" % role, text, re.MULTILINE)
        assert sorted(names) == sorted(["root@head"] + settings["torque_server_" + role])


def test_job_runs(host, settings, groups, torque):
    if not torque or "torque_server" not in groups:
        return
    commands = settings["torque_server_prefix"] + "/current/bin/"
    lost = [store["path"] for store in settings["checkpoint_hooks_stores"] if store["id"] == "first"]
    if lost:  # the node says so, and takes no jobs
        ask = commands + "pbsnodes node1"
        listing = host.check_output("for n in $(seq 600); do %s | grep -q 'state = down' && break; sleep 0.2; done; %s" % (ask, ask))
        assert "     state = down\n" in listing
        assert "message=ERROR ckpt.torque: store %s is not usable on this node: " % lost[0] in listing
        return
    job = host.check_output("cd /tmp && echo exit 3 | runuser -u %s -- %sqsub -l nodes=node1 -o /dev/null -e /dev/null"
                            % (settings["validate_user"], commands))
    if settings["torque_server_scheduler"] == "none":
        host.check_output("cd / && %sqrun %s" % (commands, job))
    facts = host.check_output("for n in $(seq 300); do %sqstat -f %s | grep -q 'exit_status = ' && break; sleep 0.2; done; %sqstat -f %s"
                              % (commands, job, commands, job))
    assert "exit_status = 3\n" in facts
