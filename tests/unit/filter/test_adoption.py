"""A TORQUE that somebody set up, as variables: what the roles would overwrite is named, and all else is left alone."""
import pathlib
import re

import pytest
import yaml

from ansible_collections.ckpt.torque.plugins.filter.adoption import NEEDED, ROLE_ATTRIBUTES, STORE, adoption, parse_build

TOP = pathlib.Path(__file__).resolve().parents[3]
SERVER = {
    "version": "6.1.3",
    "server": {"managers": ["root@head", "eve@head"], "default_queue": "long", "scheduling": "True", "comment": "x"},
    "queues": {"long": {"queue_type": "Execution"}, "old": {"queue_type": "E", "checkpoint_dir": "/ckpt"},
               "route": {"queue_type": "Route"}},
    "nodes": {"node1": {}, "node2": {}, "node9": {}}}


def configuration(directives):
    return {"directives": directives, "resources": [], "faults": []}


def test_attributes_are_those_that_the_role_sets():
    role = yaml.safe_load((TOP / "roles/torque_server/vars/main.yml").read_text())
    always = set(role["__torque_server_common"]) - {"managers", "operators"} | {"note_append_on_error"}
    assert "note_append_on_error" in role["__torque_server_since_6_0_3"]
    assert set(ROLE_ATTRIBUTES) == always and set(NEEDED) <= always


def test_store_is_that_of_the_role():
    role = yaml.safe_load((TOP / "roles/torque_server/defaults/main.yml").read_text())
    assert role["torque_server_queues"]["batch"]["checkpoint_dir"] == STORE


def test_server():
    result = adoption(SERVER, {}, "head", "none")
    attributes = {name: None for name in ROLE_ATTRIBUTES if name != "keep_completed"}
    attributes.update(default_queue="long", scheduling="True")
    assert result["all"] == {
        "torque_version": "6.1.3", "torque_server_scheduler": "none", "torque_server_managers": ["eve@head"], "torque_server_operators": [],
        "torque_server_submit_hosts": [], "torque_server_attributes": attributes,
        "torque_server_queues": {"long": {"checkpoint_dir": STORE}, "old": {}, "route": {}}}
    assert result["hosts"] == {}
    assert result["remarks"][:4] == [
        "the server has no keep_completed; it will be set: level L3 of ckpt.torque.validate and torque-ckpt look at jobs that have ended",
        "root@head is not among the operators of the server; it will be: the roles and torque-ckpt act as root",
        "queue long has no checkpoint_dir; it will be the store",
        "queue old keeps its checkpoint_dir /ckpt; jobs can be restarted only if that is a store (checkpoint_store_path)"]


def test_nodes():
    """What all have is written once; what a node has otherwise is its own."""
    common = {"pbsserver": ["head"], "loglevel": ["7"], "usecp": ["*:/home  /home"], "tmpdir": ["/scratch"], "checkpoint_script": ["/old"]}
    other = dict(common, loglevel=["3"])
    result = adoption(SERVER, {"node1": configuration(common), "node2": configuration(other)}, "head")
    shared = {name: value for name, value in result["all"].items() if name.startswith("torque_mom_")}
    assert shared == {
        "torque_mom_servers": ["head"], "torque_mom_directives": {"tmpdir": "/scratch"}, "torque_mom_resources": [],
        "torque_mom_usecp": "{{ (torque_mom_remote_checkpoint_dirs | map('regex_replace', '^(.*)$', '*:\\1 \\1') | list "
                            "+ ['*:/home /home']) | unique }}"}
    assert result["hosts"] == {"node1": {"torque_mom_loglevel": 7}, "node2": {"torque_mom_loglevel": 3}}
    assert result["remarks"][4:] == [
        "node node9 was not read; it is not in the group torque_mom, or was not reached",
        "node1, node2: $checkpoint_script /old will be replaced by the hooks and the store"]


def test_health_script_and_faults():
    known = dict(configuration({"node_check_script": ["/site/check"], "clienthost": ["a", "b"]}), faults=["line 2: no"], resources=["x 1"])
    result = adoption(SERVER, {"node1": known}, "head")
    assert result["all"]["torque_mom_directives"] == {"node_check_script": "/site/check", "clienthost": ["a", "b"]}
    assert (result["all"]["torque_mom_loglevel"], result["all"]["torque_mom_resources"]) == (0, ["x 1"])
    assert "torque_mom_usecp" not in result["all"]
    assert result["remarks"][-2:] == [
        "node1: $node_check_script /site/check stays; have it call /usr/lib/ckpt-torque/health, else nobody hears of a node that cannot "
        "checkpoint",
        "node1: mom_priv/config: line 2: no"]


ABOUT = """\
package:     TORQUE 6.1.3
sourcedir:   /usr/src/torque-6.1.3
configure:    '--prefix=/usr/local' '--with-server-home=/var/spool/torque' '--with-debug' 'CFLAGS=-O2 -g'
builddate:   Mon Nov  2 10:00:00 UTC 2026
serverhome:  %s
version:     %s
"""


def test_build_as_the_roles_have_it():
    """The options of the role itself and its defaults become no variables."""
    role = yaml.safe_load((TOP / "roles/torque_build/vars/main.yml").read_text())["__torque_build_arguments"]
    options = ["--prefix=/opt/torque/x", "--with-server-home=/var/spool/torque", "--with-rcp=scp",
               *re.findall(r"'(--disable-[^']+|--without-[^']+)'", role)]
    assert {"--disable-gcc-warnings", "--disable-cgroups"} < set(options)
    about = "Configure:  %s\nServerhome:  /var/spool/torque\nVersion:  6.1.3\n" % " ".join("'%s'" % option for option in options)
    result = adoption(SERVER, {"node1": configuration({})}, "head", builds={"node1": about.lower()}, server_build=about)
    assert [name for name in result["all"] if name.startswith(("torque_build", "torque_home"))] == []
    assert not [line for line in result["remarks"] if "pbs_mom" in line]


@pytest.mark.parametrize("options, variables", [
    ("--with-rcp=/usr/bin/scp --enable-cgroups --with-hwloc-path=/opt/hwloc --with-pam=/lib/security --enable-drmaa --enable-munge-auth "
     "--with-sched=no --enable-blcr --libdir=/usr/lib64",
     {"torque_build_remote_copy": "/usr/bin/scp", "torque_build_cgroups_enabled": True, "torque_build_hwloc_path": "/opt/hwloc",
      "torque_build_pam_enabled": True, "torque_build_drmaa_enabled": True, "torque_build_munge_enabled": True,
      "torque_build_scheduler_enabled": False}),
    ("--with-scp --without-sched '--with-mailuser=the admin'",
     {"torque_build_scheduler_enabled": False, "torque_build_options": ["--with-mailuser=the admin"]}),
    ("--with-sched=c --with-rcp=rcp", {"torque_build_remote_copy": "rcp"}),
    ("'--with-debug", {"torque_build_options": ["--with-debug"]}),
    ("", {})])
def test_build_of_a_site(options, variables):
    about = "configure:   %s\nserverhome:  /var/torque/\nversion:     4.2.10\n" % options
    result = adoption(SERVER, {}, "head", server_build=about)
    assert {name: value for name, value in result["all"].items() if name.startswith(("torque_build", "torque_home"))} == {
        "torque_home": "/var/torque", **variables}


def test_home_that_the_daemon_was_started_with():
    assert parse_build("serverhome:  /a\nhome: /b/\n")["home"] == "/b" and parse_build("") == {}


def test_nodes_that_are_another_torque():
    server = ABOUT % ("/var/spool/torque", "6.1.3")
    builds = {"node1": server, "node2": ABOUT % ("/var/spool/torque", "4.2.10"), "node3": ABOUT % ("/var/torque", "4.2.10"), "node4": "",
              "node5": server.replace(" '--with-debug'", "")}
    result = adoption(dict(SERVER, nodes={}), {}, "head", builds=builds, server_build=server)
    assert result["all"]["torque_build_options"] == ["--with-debug"]
    assert result["remarks"][-4:] == [
        "node2, node3: pbs_mom is 4.2.10, the server 6.1.3: site.yml installs the server's version",
        "node3: pbs_mom has its files in /var/torque, the server in /var/spool/torque; torque_home is one for all hosts, so move them "
        "before you run site.yml",
        "node4: pbs_mom does not run, or does not say how it was built: site.yml installs TORQUE there",
        "node5: pbs_mom was built with other options than the server (--prefix=/usr/local --with-server-home=/var/spool/torque): site.yml "
        "builds with those of the server"]
