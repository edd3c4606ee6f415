"""TORQUE after site.yml, looked at from outside; without its source there is none, and none must be there."""
import pytest

testinfra_hosts = ["ansible://torque_server", "ansible://torque_mom"]

TOP = "/opt/torque"


@pytest.fixture
def torque(host):
    """Whether TORQUE was to be installed (bool)."""
    return str(host.ansible.get_variables()["torque_enabled"]).lower() == "true"


def units(host):
    groups = host.ansible.get_variables()["group_names"]
    return ["trqauthd", "pbs_server", "pbs_sched"] if "torque_server" in groups else ["pbs_mom"]


def test_services_run_and_start_at_boot(host, torque):
    for name in units(host):
        assert host.file("/etc/systemd/system/%s.service" % name).exists == torque
        if torque:
            unit = host.service(name + ".service")
            journal = host.run("journalctl --no-pager -n 30 -u %s", name).stdout
            assert unit.is_running and unit.is_enabled, journal


def test_programs_are_roots(host, torque):
    assert host.file(TOP).exists == torque
    if torque:
        assert host.file(TOP + "/current").is_symlink
        assert host.check_output("find %s/ -not -user root -o -perm /022 -not -type l", TOP) == ""


def test_nobody_but_root_writes_what_root_runs(host, torque):
    config = host.file("/var/spool/torque/mom_priv/config")
    if torque and "torque_mom" in host.ansible.get_variables()["group_names"]:
        assert (config.user, config.mode & 0o022) == ("root", 0)
        assert config.content_string.splitlines()[1] == "$pbsserver head"
        assert "$checkpoint_script /usr/lib/ckpt-torque/checkpoint" in config.content_string
    else:
        assert not config.exists


def test_server_knows_the_nodes(host, torque):
    if torque and "torque_server" in host.ansible.get_variables()["group_names"]:
        listing = host.check_output(TOP + "/current/bin/pbsnodes")
        assert [line for line in listing.splitlines() if line and not line.startswith(" ")] == ["node1", "node2"]
