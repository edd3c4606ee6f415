"""site.yml and validate.yml as a site meets them: what they cost, what they repair, what they say when something is broken."""
import json
import pathlib
import re

import pytest
from cluster import CONFIG, GROUP, HOOKS, STORE, Cluster, hosts, started
from jobs import BIN

NODES = ("node1", "node2")


def failure(done):
    """Return the text (str) with which a playbook failed."""
    assert done.code != 0, done.out
    texts = re.findall(r'"?msg"?: "?(.*?)"?$', done.out, re.MULTILINE)
    return " ".join(texts)


# -- what a run costs -------------------------------------------------------

def test_converged_nodes_cost(cluster):
    """Nothing changes, at exactly these numbers of remote executions and tasks."""
    done = cluster.playbook("site", "-vvv")
    assert done.code == 0, done.out
    addresses = {node.command[-1].split("@")[1]: name for name, node in cluster.nodes.items()}
    executions = dict.fromkeys(cluster.nodes, 0)
    for address in re.findall(r"^<(\S+)> (?:SSH: EXEC|PUT|FETCH)", done.out, re.MULTILINE):
        executions[addresses[address]] += 1
    tasks = {}
    for name, ok, skipped in re.findall(r"^(\w+)\s+: ok=(\d+).* skipped=(\d+)", done.out, re.MULTILINE):
        tasks[name] = int(ok) + int(skipped)
        assert done.changed(name) == 0
    if cluster.torque:
        assert executions == {"head": 19, "node1": 10, "node2": 10}
        assert tasks == {"head": 62, "node1": 25, "node2": 25}  # seven of them, for nodes and login nodes, are skipped on the head
    else:
        assert executions == {"head": 8, "node1": 6, "node2": 6}
        assert tasks == {"head": 37, "node1": 25, "node2": 25}


def find_roles(done):
    """Return the roles (set of str) of which a playbook has run tasks, the check of their arguments apart."""
    starts = re.split(r"^TASK \[", done.out, flags=re.MULTILINE)[1:]
    return {start.split(" : ")[0] for start in starts if " : " in start.splitlines()[0] and " : Validating arguments" not in start
            and re.search(r"^(ok|changed): ", start, re.MULTILINE)}


def test_tag_runs_a_part(cluster):
    """A setting of the hooks is brought to all hosts by the tag hooks, and nothing else is looked at."""
    depth = "sed -n 's/.*\"depth\": \\([0-9]*\\).*/\\1/p' %s" % CONFIG
    for value in (3, 2):
        done = cluster.playbook("site", "--tags", "hooks", checkpoint_hooks_depth=value)
        assert done.code == 0, done.out
        assert find_roles(done) == {"ckpt.torque.checkpoint_hooks"}
        assert [node.ask(depth) for node in cluster.nodes.values()] == [str(value)] * 3
    assert [cluster.playbook("site").changed(name) for name in cluster.nodes] == [0, 0, 0]


def test_no_maui(cluster):
    """The site has to install it before."""
    head = cluster.nodes["head"]
    units = "ls /etc/systemd/system; systemctl is-active pbs_sched maui; systemctl is-enabled pbs_sched"
    before = head.run(units).out
    sentence = ("head: there is no /opt/none/sbin/maui, or no /opt/none/log of the user maui; install Maui, which is no part of this "
                "collection, or correct maui_prefix, maui_home and maui_user; the scheduler was not changed.")
    assert sentence in failure(cluster.role("head", "maui", maui_prefix="/opt/none"))
    if cluster.torque:  # the whole run, too, leaves pbs_sched as it is
        assert sentence in failure(cluster.playbook("site", "--limit", "head", torque_server_scheduler="maui", maui_prefix="/opt/none"))
    assert head.run(units).out == before


def test_check_mode_changes_nothing(cluster, node1):
    node1.ask("chmod 600 %s" % CONFIG)
    done = cluster.playbook("site", "--check", "--diff")
    assert done.code == 0, done.out
    assert (done.changed("node1"), done.changed("node2"), done.changed("head")) == (1, 0, 0)
    assert node1.ask("stat -c %%a %s" % CONFIG) == "600"
    assert cluster.playbook("site", "--limit", "node1").changed("node1") == 1


def test_check_of_new_hosts_can_be_read():
    """For three of them it takes at most 300 lines, and 400 with TORQUE."""
    new = Cluster(GROUP + "new")
    try:
        done = new.playbook("site", "--check", "--diff")
    finally:
        hosts("down", GROUP + "new")
    assert done.code == 0, done.out
    assert "torque_ckpt" not in done.out and len(done.out.splitlines()) <= (400 if new.torque else 300), done.out


def test_validate_in_check_mode_runs_nothing(cluster, tmp_path):
    done = cluster.playbook("validate", "--check", validate_directory=str(tmp_path))
    assert done.code == 0, done.out
    assert list(tmp_path.iterdir()) == []


# -- drift is repaired --------------------------------------------------------

@pytest.mark.parametrize("drift", [
    "echo 'exit 1' > %s/checkpoint" % HOOKS,
    "rm %s/torque_ckpt/engines/criu.py" % HOOKS,
    "chmod 777 %s/run" % HOOKS,
    "chown alice %s/torque_ckpt" % HOOKS,
    "touch %s/torque_ckpt/extra.py" % HOOKS,
    "ln -sf /tmp/x %s" % CONFIG,
])
def test_drift_is_repaired_by_one_change(cluster, node1, drift):
    before = node1.ask("cd / && find %s %s -not -path '*/__pycache__*' -printf '%%p %%m %%u %%l\\n' | sort" % (HOOKS, CONFIG))
    node1.ask(drift)
    done = cluster.playbook("site", "--limit", "node1")
    assert (done.code, done.changed("node1")) == (0, 1), done.out
    after = node1.ask("cd / && find %s %s -not -path '*/__pycache__*' -printf '%%p %%m %%u %%l\\n' | sort" % (HOOKS, CONFIG))
    assert after == before


def test_login_node_that_is_down(cluster, node2, tmp_path):
    """All others are done, and the run fails by its name."""
    inventory = json.loads(pathlib.Path(cluster.inventory).read_text())
    inventory["all"]["hosts"]["login1"] = dict(inventory["all"]["hosts"]["head"], ansible_port=1)
    inventory["all"]["children"]["torque_client"]["hosts"] = {"login1": {}}
    (tmp_path / "inventory.json").write_text(json.dumps(inventory))
    node2.ask("chmod 777 %s/run" % HOOKS)
    done = cluster.playbook("site", inventory=str(tmp_path / "inventory.json"))
    # pbs_server, where there is one, is told that users submit on the login node.
    assert (done.code, done.changed("head"), done.changed("node1"), done.changed("node2")) == (4, int(cluster.torque), 0, 1), done.out
    assert re.search(r"^login1\s.*unreachable=1", done.out, re.MULTILINE)
    if cluster.torque:
        cluster.nodes["head"].ask("%s/qmgr -c 'set server submit_hosts -= login1'" % BIN)
    # Its record is the only change of the next run with the inventory as it was.
    assert cluster.playbook("site").code == 0


@pytest.mark.parametrize("names, other, code, sentence", [
    (["head"], "node2", 2, "head was not reached: the store and the server of this host were not set up; run this playbook again when the "
     "host answers."),
    (["node1"], "node2", 4, ""),
    (["node1", "node2"], "head", 4, "")])
def test_host_that_is_down_stops_no_other(cluster, tmp_path, names, other, code, sentence):
    """The host of the store and the server, a compute node, and all of them."""
    inventory = cluster.write_inventory_without(tmp_path / "inventory.json", *names)
    cluster.nodes[other].ask("chmod 777 %s/health" % HOOKS)
    done = cluster.playbook("site", inventory=inventory)
    assert (done.code, done.changed(other)) == (code, 1), done.out
    for name in names:
        assert re.search(r"^%s\s.*%s=1" % (name, "failed" if sentence else "unreachable"), done.out, re.MULTILINE)
    assert sentence in failure(done)
    again = cluster.playbook("site")
    assert (again.code, [again.changed(other) for other in cluster.nodes]) == (0, [0, 0, 0]), again.out


def test_server_that_is_a_node_and_is_left_out_keeps_its_hooks(cluster, tmp_path):
    """As update.yml leaves it until it is drained: its engine is not known before, and what it had is put back by a rollback."""
    inventory = json.loads(pathlib.Path(cluster.inventory).read_text())
    inventory["all"]["children"]["torque_mom"]["hosts"]["head"] = {}
    (tmp_path / "inventory.json").write_text(json.dumps(inventory))
    done = cluster.playbook("site", inventory=str(tmp_path / "inventory.json"), torque_site_nodes="node1", torque_enabled=False,
                            checkpoint_hooks_depth=3)
    assert done.code == 0, done.out
    changed = (done.changed("head"), done.changed("node1"))
    depths = {name: json.loads(node.ask("cat " + CONFIG))["depth"] for name, node in cluster.nodes.items()}
    assert cluster.playbook("site").code == 0
    assert (changed, depths) == ((0, 1), {"head": 2, "node1": 3, "node2": 2})


# -- a restart that is due is made, in any run, on some nodes at a time -------------

RESTARTED = ("pbs_mom is restarted on %s, 10%% of them at a time; jobs keep running, and without the patch exit-status TORQUE reports exit "
             "status 0 for those that run now")
LINK, UNITS = "/opt/torque/current", "/etc/systemd/system"


def breaks_off(cluster, name, **variables):
    """site.yml fails where it would restart a daemon: everything is written by then."""
    node = cluster.nodes[name]
    node.ask("mv /usr/bin/systemctl /usr/bin/systemctl.away && printf '#!/bin/sh\\ncase \"$*\" in *pbs_*) exit 9; esac; exec "
             "systemctl.away \"$@\"\\n' > /usr/bin/systemctl && chmod 755 /usr/bin/systemctl")
    try:
        done = cluster.playbook("site", "--limit", name, **variables)
    finally:
        node.ask("mv /usr/bin/systemctl.away /usr/bin/systemctl")
    assert done.code == 2 and done.changed(name) == 1, done.out


@pytest.mark.parametrize("name, unit, variables", [
    ("node1", "pbs_mom", {"torque_mom_loglevel": 4}),
    ("head", "pbs_server", {"torque_server_limits": {"LimitNOFILE": 4000}}),
])
def test_restart_outlives_a_run_that_was_broken_off(cluster, torque, name, unit, variables):
    node = cluster.nodes[name]
    before = started(node, unit)
    breaks_off(cluster, name, **variables)
    assert started(node, unit) == before
    done = cluster.playbook("site", "--limit", name, **variables)
    assert (done.code, done.changed(name)) == (0, 1), done.out
    assert started(node, unit) != before
    assert cluster.playbook("site", "--limit", name).changed(name) == 2


def test_new_artifact_restarts_some_nodes_at_a_time(cluster, torque, node1, node2, tmp_path):
    for node in (node1, node2):
        node.ask("ln -sfn $(readlink {0}) {0}".format(LINK))  # as if it led elsewhere before
    before = [started(node1), started(node2)]
    lines, written, _done = plan(cluster, tmp_path)
    assert lines == ["%s: pbs_mom was started before a change of %s" % (name, LINK) for name in ("node1", "node2")] + [
        "needed: node1,node2", RESTARTED % "node1,node2"]
    assert written["restarts"] == ["node1", "node2"]
    node1.ask("mkdir {0}/pbs_mom.service.d && printf '[Service]\nExecStartPre=/bin/false\n' > {0}/pbs_mom.service.d/bad.conf && "
              "systemctl daemon-reload".format(UNITS))
    try:
        done = cluster.playbook("site", torque_restart_serial=1)
        assert done.code == 2 and "node1: systemctl restart pbs_mom.service: Job for pbs_mom.service failed" in done.out, done.out
        assert started(node2) == before[1]
    finally:
        node1.ask("rm -r {0}/pbs_mom.service.d && systemctl daemon-reload".format(UNITS))
    done = cluster.playbook("site", torque_restart_serial=1)
    assert (done.code, done.changed("node2")) == (0, 1), done.out
    assert done.out.count("PLAY [Restart pbs_mom, some nodes at a time]") == 1  # node1's was started at once, by the role or by systemd
    assert started(node1) != before[0] and started(node2) != before[1]
    for node in (node1, node2):
        node.ask("ln -sfn $(readlink {0}) {0}".format(LINK))
    assert cluster.playbook("site", torque_restart_serial=1).out.count("PLAY [Restart pbs_mom, some nodes at a time]") == 2


def test_controller_with_an_empty_cache_builds_nothing(cluster, torque, node2, tmp_path):
    """What all hosts have is not built again; one that has lost it gets it from another."""
    cache = {"torque_build_cache": str(tmp_path)}
    done = cluster.playbook("site", "--check", **cache)
    assert done.code == 0 and "would build" not in done.out, done.out
    assert [done.changed(name) for name in ("head",) + NODES] == [0, 0, 0]
    key = node2.ask("readlink " + LINK)
    command = "cd /opt/torque/%s && find . -printf '%%P %%m %%U %%G %%s %%l\\n' | sort | sha256sum" % key
    before = node2.ask(command)
    node2.ask("mv /opt/torque/%s /opt/torque/away" % key)
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / ("torque-%s.tar.gz.sha256" % key)).write_text("0" * 64)  # of the one that is gone
    try:
        done = cluster.playbook("site", **cache)
        assert done.code == 0 and "building TORQUE" not in done.out, done.out
        assert node2.ask(command) == before
        assert (tmp_path / "artifacts" / ("torque-%s.tar.gz" % key)).is_file()
    finally:
        node2.ask("cd /opt/torque && if [ -e {0} ]; then rm -r away; else mv away {0}; fi".format(key))


def test_node_gets_its_engine_from_another_where_the_cache_is_empty(cluster, node2, tmp_path):
    """What a node has is not built again."""
    cache = {"criu_cache": str(tmp_path), "criu_package_formats": []}
    key = node2.ask("readlink /opt/criu/current")
    command = "cd /opt/criu/%s && find . -printf '%%P %%m %%U %%G %%s %%l\\n' | sort | sha256sum" % key
    before = node2.ask(command)
    node2.ask("mv /opt/criu/%s /opt/criu/away" % key)
    try:
        done = cluster.playbook("site", "--check", **cache)
        assert done.code == 0 and "would build" not in done.out, done.out
        done = cluster.playbook("site", **cache)
        assert done.code == 0 and "building CRIU" not in done.out, done.out
        assert (done.changed("node1"), node2.ask(command)) == (0, before)
        assert [path.name for path in (tmp_path / "artifacts").glob("*.tar.gz")] == ["criu-%s.tar.gz" % key]
    finally:
        node2.ask("cd /opt/criu && if [ -e {0} ]; then rm -r away; else mv away {0}; fi".format(key))


@pytest.mark.parametrize("variables, sentence", [
    ({"criu_source": ""}, "node1: there is no CRIU 4.2.1 for debian13-x86_64 (%s/artifacts/criu-4.2.1-debian13-x86_64-%s.tar.gz), and the "
     "node has no CRIU at /usr/sbin/criu that passes the round trip; name the release tarball in criu_source (a path on the controller, or "
     "an address with criu_source_checksum), and it is built; nothing was built."),
    ({"criu_build_directory": "/dev/shm"}, "head: /dev/shm has less than 200 MiB free; free some space or set criu_build_directory to "
     "another directory; nothing was built."),
    ({"criu_build_directory": "/none"}, "head: there is no directory /none; create it or set criu_build_directory to another directory; "
     "nothing was built.")], ids=["source", "room", "directory"])
def test_engine_that_cannot_be_built_ends_the_run_at_its_beginning(cluster, tmp_path, variables, sentence):
    """No other play runs, TORQUE's build, which takes long, least of all."""
    done = cluster.playbook("site", criu_prefix="/opt/another", criu_cache=str(tmp_path), **variables)
    said = failure(done)
    assert (sentence % (tmp_path, re.search(r"-([0-9a-f]{12})\.tar", said).group(1)) if "%s" in sentence else sentence) in said
    assert re.findall(r"^PLAY \[(.*)\]", done.out, re.MULTILINE)[-1] == "Choose the engines, and find out whether they can be built"
    assert [done.changed(name) for name in cluster.nodes] == [0, 0, 0]


def test_limit_needs_no_other_host(cluster):
    done = cluster.playbook("site", "--limit", "node2")
    assert (done.code, done.changed("node2")) == (0, 0), done.out


# -- plan.yml says what is needed, and changes nothing ------------------------

def plan(cluster, tmp_path, *arguments, **variables):
    """Run plan.yml; return its lines and what it wrote."""
    done = cluster.playbook("plan", *arguments, plan_file=str(tmp_path / "plan.json"), plan_page_file=str(tmp_path / "plan.html"),
                            **variables)
    assert done.code == 0, done.out
    lines = json.loads(re.search(r'"msg": (\[.*?\n    \])', done.out, re.DOTALL).group(1))
    return lines, json.loads((tmp_path / "plan.json").read_text()), done


def test_plan_of_nodes_that_are_ready(cluster, tmp_path):
    lines, written, done = plan(cluster, tmp_path)
    assert lines == ["node1: ready", "node2: ready", "needed: nothing"]
    ready = {"reached": True, "why": [], "restarts": False, "warnings": []}
    assert written == {"nodes": {"node1": ready, "node2": ready}, "needed": [], "restarts": [], "not_reached": []}
    assert "<title>2 of 2 nodes are ready.</title>" in (tmp_path / "plan.html").read_text()
    assert [done.changed(name) for name in NODES] == [0, 0]


def test_plan_names_what_is_missing_and_changes_nothing(cluster, node1, node2, tmp_path):
    node1.ask("mv %s %s.away" % (HOOKS, HOOKS))
    node2.ask("mv /opt/criu/current/sbin/criu /opt/criu/current/sbin/criu.away; touch %s/torque_ckpt/extra.py" % HOOKS)
    command = ("find /usr/lib/ckpt-torque* /etc/ckpt-torque /var/spool/torque/mom_priv/config /opt/criu/current/sbin/criu* "
               "-printf '%p %m %u %T@ %l\\n' | sort")
    before = [node.ask(command) for node in (node1, node2)]
    criu = "criu is not at /opt/criu/current/sbin/criu on this node; run the role criu"
    try:
        lines, written, _done = plan(cluster, tmp_path)
        assert lines == ["node1: the hooks are not installed",
                         "node2: " + criu + "; the hooks differ from the collection's (extra.py)", "needed: node1,node2"]
        assert written["needed"] == ["node1", "node2"]
        assert written["nodes"]["node2"]["why"] == [criu, "the hooks differ from the collection's (extra.py)"]
        assert [node.ask(command) for node in (node1, node2)] == before
    finally:
        node1.ask("mv %s.away %s" % (HOOKS, HOOKS))
        node2.ask("mv /opt/criu/current/sbin/criu.away /opt/criu/current/sbin/criu; rm %s/torque_ckpt/extra.py" % HOOKS)


def test_plan_says_what_only_the_node_itself_knows(cluster, node1, node2, tmp_path):
    node1.ask("mount -t tmpfs none %s" % STORE)
    node2.ask("chown alice %s/torque_ckpt" % HOOKS)
    try:
        assert plan(cluster, tmp_path)[0] == [
            "node1: store %s is not usable on this node: %s/.ckpt-torque-store: No such file or directory; is it mounted?" % (STORE, STORE),
            "node2: the hooks differ from the collection's (owners or modes); %s/torque_ckpt must be root's and writable by nobody "
            "else, or others could change the hooks; run the role checkpoint_hooks on this node; nothing was done" % HOOKS,
            "needed: node1,node2"]
    finally:
        node1.ask("umount %s" % STORE)
        node2.ask("chown root %s/torque_ckpt" % HOOKS)


def test_plan_compares_torque(cluster, torque, node1, tmp_path):
    node1.ask("sed -i 's/^$loglevel .*/$loglevel 7/' /var/spool/torque/mom_priv/config")
    link = node1.ask("readlink /opt/torque/current")
    node1.ask("ln -sfn /opt/torque/another /opt/torque/current")
    try:
        lines = plan(cluster, tmp_path, "--limit", "node1")[0]
        assert lines == ["node1: TORQUE %s is not the one in use; mom_priv/config differs in $loglevel; pbs_mom was started before a "
                         "change of /opt/torque/current, /var/spool/torque/mom_priv/config" % link.rpartition("/")[2], "needed: node1",
                         RESTARTED % "node1"]
    finally:
        node1.ask("ln -sfn %s /opt/torque/current; sed -i 's/^$loglevel .*/$loglevel 3/' /var/spool/torque/mom_priv/config" % link)
        cluster.playbook("site", "--limit", "node1")  # restarts pbs_mom


def test_plan_for_a_kernel_that_no_engine_can_run_on(cluster, node1, tmp_path):
    assert plan(cluster, tmp_path, "--limit", "node1", checkpoint_engine="blcr")[0] == [
        "node1: BLCR cannot run on kernel %s: with these hooks it runs on kernels 3.5 to 3.17; set checkpoint_engine to criu or auto"
        % node1.ask("uname -r"), "needed: node1"]


def test_plan_reports_what_the_role_of_the_engine_reports(cluster, tmp_path):
    later = "cannot after the next boot with kernel 3.10.0-957, which has no modules of BLCR"
    lines, written, _done = plan(cluster, tmp_path, "--limit", "node1", criu_plan={"faults": [], "warnings": [later]})
    assert lines == ["node1: ready; " + later, "needed: nothing"]
    assert written["nodes"]["node1"] == {"reached": True, "why": [], "restarts": False, "warnings": [later]}
    lacking = "kernel 3.10.0-514 has no modules of BLCR"
    lines = plan(cluster, tmp_path, "--limit", "node1", criu_plan={"faults": [lacking], "warnings": []})[0]
    assert lines == ["node1: " + lacking, "needed: node1"]


def test_plan_names_nodes_that_are_not_reached(cluster, tmp_path):
    inventory = cluster.write_inventory_without(tmp_path / "inventory.json", "node2")
    lines, written, _done = plan(cluster, tmp_path, inventory=inventory)
    assert lines[0] == "node1: ready" and lines[1].startswith("node2: not reached: ")
    assert lines[2:] == ["needed: nothing", "not reached: node2"]
    assert (written["needed"], written["not_reached"]) == ([], ["node2"])


def test_plan_without_the_server(cluster, torque, tmp_path):
    lines, written, _done = plan(cluster, tmp_path, inventory=cluster.write_inventory_without(tmp_path / "inventory.json", "head"))
    assert lines == ["node1: ready", "node2: ready", "needed: nothing", "not reached: head"]
    assert (sorted(written["nodes"]), written["needed"], written["not_reached"]) == (["node1", "node2"], [], ["head"])


# -- validate.yml finds what is broken, and names node, level and cause -------

def validate(cluster, tmp_path, *arguments, **variables):
    done = cluster.playbook("validate", *arguments, validate_directory=str(tmp_path), validate_timeout=20, **variables)
    return done, json.loads((tmp_path / "results.json").read_text())


def test_validate_passes(cluster, tmp_path):
    done, report = validate(cluster, tmp_path)
    assert done.code == 0, done.out
    assert report["levels"] == {"L0": "passed", "L1": "passed", "L2": "passed", "L3": "passed" if cluster.torque else "not run"}
    trips = [trip for trip in report["results"] if trip["level"] in ("L2", "L3") and trip["passed"] is not None]
    assert [trip["level"] for trip in trips] == (["L2", "L3"] if cluster.torque else ["L2"])
    for trip in trips:
        assert trip["nodes"] == ["node1", "node2", "node1", "node2"]
        assert trip["counters"] == sorted(set(trip["counters"])) and len(trip["counters"]) == 5
        assert trip["exit_status"] == 7
        assert trip["output_lines"] == trip["counters"][-1] + 1
        written = [phase for phase in trip["phases"] if phase["step"] in ("continue", "hold")]
        assert len(written) == 4 and all(0 < phase["engine_seconds"] < phase["seconds"] for phase in written)
    assert report["verdict"] == "2 of 2 nodes " + (
        "can checkpoint and restart jobs." if cluster.torque else "passed L1 (engine) and L2 (hooks); not proven: L3 (job).")
    assert (tmp_path / "report.html").read_text().count("</html>") == 1


def test_limit_leaves_out_the_server(cluster, tmp_path):
    """Then no job can be submitted, and no job has failed."""
    done, report = validate(cluster, tmp_path, "--limit", "node1,node2")
    assert done.code == 0, done.out
    assert report["levels"] == {"L0": "passed", "L1": "passed", "L2": "passed", "L3": "not run"}
    assert [result["cause"] for result in report["results"]] == [""] * 5 + [
        "--limit leaves out the server head" if cluster.torque else "not proven: torque_enabled is false, so that no job was submitted"]


def test_level_that_is_not_asked_for_is_told(cluster, tmp_path):
    """As in make demo where there is no source of TORQUE."""
    done, report = validate(cluster, tmp_path, "--limit", "node1", torque_enabled=False)
    assert done.code == 0 and report["levels"] == {"L0": "passed", "L1": "passed", "L2": "passed", "L3": "not run"}, done.out
    table = (tmp_path / "report.txt").read_text()
    assert "L3 not run: -: not proven: torque_enabled is false, so that no job was submitted" in table.splitlines()


@pytest.mark.parametrize("level, tried", [("L0", 1), ("L1", 2)])
def test_validate_up_to_a_level(cluster, tmp_path, level, tried):
    done, report = validate(cluster, tmp_path, validate_level=level)
    assert done.code == 0, done.out
    assert report["levels"] == dict(zip(("L0", "L1", "L2", "L3"), ["passed"] * tried + ["not run"] * (4 - tried)))
    left_out = [result["level"] for result in report["results"] if result["cause"] == "not proven: validate_level is " + level]
    assert left_out == ["L1", "L2", "L3"][tried - 1:]


def test_preflight_alone_fails_with_a_fault(cluster, node1, tmp_path):
    node1.ask("echo 'sys.exit(0)' >> %s/checkpoint" % HOOKS)
    try:
        done, report = validate(cluster, tmp_path, validate_level="L0")
    finally:
        node1.ask("sed -i '$d' %s/checkpoint" % HOOKS)
    assert report["failures"] == ["L0 (node1): the hooks' checkpoint is not as the others are; run site.yml on it"]
    assert report["failures"][0] in failure(done)


def moves(report):
    """The result of level L2."""
    return next(result for result in report["results"] if result["level"] == "L2")


def broken(cluster, tmp_path, sentence, *looked, **variables):
    """validate.yml fails with exactly this sentence, after those of level L0, and leaves nothing behind."""
    done, report = validate(cluster, tmp_path, **variables)
    assert report["failures"] == list(looked) + [sentence]
    assert sentence in failure(done).replace("\\n", " ")
    left = cluster.nodes["head"].ask("find %s -mindepth 1 -maxdepth 2 -not -name .ckpt-torque-store -printf '%%P\\n' | sort" % STORE)
    assert left.split() == ["alice", "bob"]
    for name in NODES:
        assert cluster.nodes[name].run("pgrep -u alice").out == ""


def test_broken_hook(cluster, node1, tmp_path):
    node1.ask("printf '#!/bin/sh\\nexit 1\\n' > %s/checkpoint" % HOOKS)
    broken(cluster, tmp_path, "L2 (node1): continue: checkpoint hook exited 1: it printed nothing on stderr",
           "L0 (node1): the hooks' checkpoint is not as the others are; run site.yml on it")
    assert cluster.playbook("site", "--limit", "node1").changed("node1") == 1


def test_hook_that_loses_the_image(cluster, node1, tmp_path):
    """The hook says that all is well, but the image is gone."""
    node1.ask("cd %s && mv checkpoint real && printf '#!/bin/sh\\n%s/real \"$@\" && rm -r \"$5/$6\"\\n' > checkpoint && "
              "chmod 755 checkpoint" % (HOOKS, HOOKS))
    done, report = validate(cluster, tmp_path)
    assert done.code != 0
    trip = moves(report)
    assert re.fullmatch(r"node1: continue: the checkpoint hook exited 0 but there is no image %s/\S+\.CK/ckpt\.\S+" % STORE, trip["cause"])
    assert cluster.playbook("site", "--limit", "node1").changed("node1") == 1


def test_user_unknown_on_one_node(cluster, node2, tmp_path):
    node2.ask("sed -i.good /^alice:/d /etc/passwd")
    try:
        done, report = validate(cluster, tmp_path)
        assert done.code != 0
        sentence = "user alice is not known on this node; compare the account database with the other nodes"
        assert report["failures"] == [
            "L0 (node2): user alice is not known there; create the account as on the other nodes, or name another one in "
            "validate_user",
            "L1 (node2): " + sentence, "L2 (node1 > node2): node2: restart: " + sentence]
    finally:
        node2.ask("mv /etc/passwd.good /etc/passwd")


def test_wrong_user(cluster, tmp_path):
    done, report = validate(cluster, tmp_path, validate_user="root")
    sentence = ("jobs of root are not checkpointed: an image would run with root's rights when it is restarted; submit the job as another "
                "user")
    assert report["failures"] == ["L1 (node1): " + sentence, "L1 (node2): " + sentence, "L2 (node1): run: " + sentence]
    assert done.code != 0


def test_image_deleted_between_two_nodes(cluster, node2, tmp_path):
    """A user, or a broken file system, removes all images after the hold."""
    node2.ask("cd %s && mv restart real && printf '#!/bin/sh\\nrm -r \"$5\"/ckpt.*; exec %s/real \"$@\"\\n' > restart && chmod 755 restart"
              % (HOOKS, HOOKS))
    done, report = validate(cluster, tmp_path)
    assert done.code != 0
    assert re.fullmatch(r"node2: restart: the job ended at counter \d+ with status 66: image \S+ cannot be opened: "
                        r"No such file or directory; see with torque-ckpt list .*", moves(report)["cause"])
    assert cluster.playbook("site", "--limit", "node2").changed("node2") == 1


def test_engine_missing_on_one_node(cluster, node2, tmp_path):
    node2.ask("mv /opt/criu/current/sbin/criu /opt/criu/current/sbin/criu.away")
    try:
        done, report = validate(cluster, tmp_path)
        assert done.code != 0
        missing = "criu is not at /opt/criu/current/sbin/criu on this node; run the role criu"
        assert report["failures"][:2] == ["L0 (node2): " + missing, "L1 (node2): " + missing]
        assert re.fullmatch(r"L2 \(node1 > node2\): node2: restart: the job ended at counter \d+ with status 78: "
                            r"criu is not at /opt/criu/current/sbin/criu on this node; run the role criu \(attempt \d of 5\)",
                            report["failures"][2])
    finally:
        node2.ask("mv /opt/criu/current/sbin/criu.away /opt/criu/current/sbin/criu")


def test_node_that_is_down(cluster, tmp_path):
    """The others are still proven, and the report names the one that is lost."""
    inventory = cluster.write_inventory_without(tmp_path / "inventory.json", "node2")
    done, report = validate(cluster, tmp_path, inventory=inventory)
    assert done.code != 0
    assert report["failures"] == ["L1 (node2): the host could not be reached or the module failed; see the output of ansible-playbook"]
    assert moves(report)["nodes"] == ["node1"]
    assert report["levels"]["L2"] == "passed"


def test_node_with_another_storage(cluster, node2, tmp_path):
    """It has the store's path, name and directories, but nobody else sees what is in it."""
    node2.ask("cp -a {0} /shared/.other && mount --bind /shared/.other {0}".format(STORE))
    try:
        broken(cluster, tmp_path, "L2 (node1 > node2): node2: store %s is not the storage that node1 has there, or a new file is not "
               "seen within 20 seconds; mount the same directory on both, or give them stores of different names (checkpoint_store_id)"
               % STORE, validate_path=["node1", "node1"], torque_enabled=False)
    finally:
        node2.ask("umount %s && rm -r /shared/.other" % STORE)


def test_user_without_a_directory(cluster, tmp_path):
    done, report = validate(cluster, tmp_path, validate_user="nobody")
    assert report["failures"] == ["L2 (node1): run: there is no directory %s/nobody for the job's output; "
                                  "add nobody to checkpoint_store_users or name a work_path" % STORE]


# -- bad input ----------------------------------------------------------------

def refused(cluster, sentence, name="node1", **variables):
    done = cluster.playbook("site", "--limit", name, **variables)
    assert sentence in failure(done)
    assert done.changed(name) == 0


def test_blcr_on_this_kernel(cluster, node1):
    kernel = node1.ask("uname -r")
    refused(cluster, "node1: BLCR cannot run on kernel %s: with these hooks it runs on kernels 3.5 to 3.17; set checkpoint_engine to "
            "criu or auto" % kernel,
            checkpoint_engine="blcr")


def test_key_that_another_node_lacks_is_to_seal_images(cluster):
    """A job that was held with it could not restart there."""
    refused(cluster, "checkpoint_hooks_keys: the key 2026 is to seal images that other nodes could not verify, because node1 does not have "
            "it yet; rotate in two runs: append it to the list first, put it in front when all nodes have it; nothing was changed",
            checkpoint_hooks_keys=[{"id": "2026", "secret": "18" * 32}])


def test_unknown_engine(cluster):
    refused(cluster, "value of engine must be one of: auto, criu, blcr, got: dmtcp", checkpoint_engine="dmtcp")


@pytest.mark.parametrize("path", ["relative/ckpt", "/", "/ckpt", "/shared/../ckpt", "/shared/ck pt"])
def test_store_path(cluster, path):
    refused(cluster, "checkpoint_store_path (%s) must be an absolute path of plain characters at least two levels deep and "
            "checkpoint_store_mode (0755) must let others search but not write; nothing was changed." % path, "head",
            checkpoint_store_path=path)


@pytest.mark.parametrize("mode", ["0777", "01777", "0700", "0772"])
def test_store_mode(cluster, mode):
    refused(cluster, "checkpoint_store_mode (%s) must let others search but not write; nothing was changed." % mode, "head",
            checkpoint_store_mode=mode)


@pytest.mark.parametrize("quota, users", [("plenty", ["alice"]), ("10 GB", ["alice"]), ("-1G", ["alice"]), ("1G", [])])
def test_quota_that_is_none(cluster, quota, users):
    refused(cluster, "checkpoint_store_quota (%s) must be a size, as 100G, or 0 for no limit, and checkpoint_store_users must name those "
            "who have it; nothing was changed." % quota, "head", checkpoint_store_quota=quota, checkpoint_store_users=users)


IN_MEMORY = "is on %s, so its images are lost on a reboot; put it on a disk or a shared file system"


@pytest.mark.parametrize("path, sentence", [
    ("/home/alice/ckpt", "store /home/alice/ckpt " + IN_MEMORY % "overlay" + "; /home/alice is writable by users other than root, who "
     "could replace /home/alice/ckpt with another store; remove that write permission"),
    ("/dev/shm/ckpt", "store /dev/shm/ckpt " + IN_MEMORY % "tmpfs"),
    ("/shared/link/ckpt", "store /shared/link/ckpt is a link or lies behind one; name /shared/ckpt/ckpt, the directory itself, on all "
     "nodes"),
])
def test_place_of_the_store(cluster, path, sentence):
    """Refused before anything is made there."""
    head = cluster.nodes["head"]
    head.ask("ln -s ckpt /shared/link")
    try:
        refused(cluster, "head: %s; nothing was changed." % sentence, "head", checkpoint_store_path=path)
        head.ask("test ! -e %s" % path)
    finally:
        head.ask("rm /shared/link")


def test_store_of_another_name(cluster):
    refused(cluster, "head: %s is the store default, not second, and nodes that use it by that name would refuse it; correct "
            "checkpoint_store_path, or set checkpoint_store_id to default to keep using it; nothing was changed." % STORE, "head",
            checkpoint_store_id="second")


def test_store_without_quotas(cluster):
    done = cluster.playbook("site", "--limit", "head", checkpoint_store_quota="1G")
    assert re.search(r'"msg": "head: no quota can be set for %s: .*; mount its file system with usrquota and switch quotas on, or empty '
                     r'checkpoint_store_quota and set checkpoint_hooks_user_limit; no quota was changed."' % STORE, done.out), done.out


OLD = """\
install -d -m 1777 /shared/old /shared/old/ckpt && cd /shared/old/ckpt && install -d -o alice -m 711 7.head.CK &&
install -d -o alice -m 700 7.head.CK/ckpt.7.head.1 && echo context > 7.head.CK/ckpt.7.head.1/file &&
echo context > 7.head.CK/ckpt.7.head.2 && chown -R alice 7.head.CK && echo text > note && ln -s /nowhere link && chmod 755 /shared/old
"""
LOOK = "cd /shared/old/ckpt && find . -mindepth 1 -not -name .ckpt-torque-store -printf '%p %u %g %m %s %T@ %l\\n' | sort"


def test_directory_with_images_becomes_a_store(cluster):
    """Nothing in it is touched, whoever made it; it is closed to others and gets its name."""
    head = cluster.nodes["head"]
    head.ask(OLD)
    try:
        before = head.ask(LOOK)
        done = cluster.role("head", "checkpoint_store", checkpoint_store_path="/shared/old/ckpt", checkpoint_store_users=[])
        assert done.code == 0, done.out
        assert head.ask(LOOK) == before
        assert head.ask("cd /shared/old/ckpt && stat -c '%U %a' . .ckpt-torque-store").split("\n") == ["root 755", "root 644"]
    finally:
        head.ask("rm -r /shared/old")


def test_export_that_is_not_wanted_any_more(cluster):
    head = cluster.nodes["head"]
    head.ask("install -d /etc/exports.d && echo '%s 192.0.2.1(ro)' > /etc/exports.d/ckpt-torque.exports && "
             "printf '#!/bin/sh\\necho \"$@\" > /run/exportfs\\n' > /usr/sbin/exportfs && chmod 755 /usr/sbin/exportfs" % STORE)
    try:
        named = cluster.role("head", "checkpoint_store", checkpoint_store_path="/shared/new/ckpt",
                             checkpoint_store_additional_stores=[{"path": STORE, "id": "default"}])
        assert named.code == 0, named.out
        assert head.ask("cat /etc/exports.d/ckpt-torque.exports") == (
            "# Written by the role ckpt.torque.checkpoint_store.\n%s 192.0.2.1(ro)" % STORE)
        done = cluster.playbook("site", "--limit", "head")
        assert (done.code, done.changed("head")) == (0, 2), done.out
        assert head.ask("ls /etc/exports.d; cat /run/exportfs") == "-r"
    finally:
        head.ask("rm -rf /etc/exports.d /usr/sbin/exportfs /shared/new")


def test_store_that_is_not_mounted(cluster, node1):
    node1.ask("mount -t tmpfs none %s" % STORE)
    try:
        refused(cluster, "node1: %s is not the store, it holds no .ckpt-torque-store; mount the directory that the host of group "
                "checkpoint_store has there, or correct checkpoint_store_path." % STORE)
        node1.ask("echo other > %s/.ckpt-torque-store" % STORE)
        refused(cluster, "node1: %s is another store, its name is other and not default; mount the directory that the host of group "
                "checkpoint_store has there, or correct checkpoint_store_path." % STORE)
    finally:
        node1.ask("umount %s" % STORE)


def test_mount_without_a_source(cluster):
    refused(cluster, "node1: checkpoint_store_mount has no src; name what is to be mounted, for instance nfs1:/srv/ckpt; nothing was "
            "changed.", checkpoint_store_mount={"fstype": "nfs"})


def test_store_that_is_unfit(cluster, node1):
    node1.ask("mount -t tmpfs -o mode=755 none {0} && echo default > {0}/.ckpt-torque-store && install -d -o alice {0}/alice".format(STORE))
    try:
        refused(cluster, "node1: store %s is on tmpfs, so its images are lost on a reboot; put it on a disk or a shared file system."
                % STORE)
        node1.ask("mount -o remount,ro %s" % STORE)
        refused(cluster, "; store {0} is mounted read-only; mount {0} for writing; user alice cannot create images in {0}/alice: Read-only "
                "file system; create that directory and give it to alice (checkpoint_store_users).".format(STORE))
    finally:
        node1.ask("umount %s" % STORE)


def test_job_of_a_user_whose_uid_differs(cluster, job, node1, node2):
    """The image is another's there; the restart says why, and keeps it."""
    started_job = job(node1)
    started_job.hold()
    node2.ask("usermod -u 1600 alice")
    try:
        done = started_job.restart(node2)
    finally:
        node2.ask("usermod -u 1500 alice")
    assert done.code == 66, done.err
    assert ("Permission denied; it belongs to uid 1500, and the job's user has uid 1600 on this node; give the user one uid on all nodes"
            in done.err), done.err
    started_job.move(node2)


def test_user_whose_number_differs(cluster, node2):
    node2.ask("usermod -u 1600 alice")
    try:
        done = cluster.playbook("site", "--limit", "node1,node2")
        assert ("user alice has uid 1600 here and 1500 on node1, and images belong to uids; give the user the same uid on all nodes."
                in failure(done))
        assert done.changed("node2") == 0
    finally:
        node2.ask("usermod -u 1500 alice")


@pytest.mark.parametrize("user", ["../alice", "ali ce", "", "-f", "a/b"])
def test_user_whose_name_is_no_directory(cluster, user):
    refused(cluster, "checkpoint_store_users has %s, which cannot be the name of a directory; name users by letters, digits, dots, dashes "
            "and underscores; nothing was changed." % json.dumps(user).replace('"', '\\"'), "head", checkpoint_store_users=["alice", user])


def test_interpreter_that_is_missing(cluster):
    refused(cluster, "/opt/python cannot be executed on this node; install Python 3.6 or newer or set checkpoint_hooks_python; "
            "nothing was changed", checkpoint_hooks_python="/opt/python")


def test_hooks_path_that_would_empty_a_system_directory(cluster):
    refused(cluster, "path /usr would be emptied of everything else; name a directory of its own, at least two levels deep; "
            "nothing was changed", checkpoint_hooks_directory="/usr")
