"""A compute node after site.yml, looked at from outside."""
import json
import pathlib
import re

testinfra_hosts = ["ansible://torque_mom"]

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "plugins/module_utils/torque_ckpt"
FILES = sorted(str(path.relative_to(PACKAGE.parent)) for path in PACKAGE.rglob("*.py"))
PLAIN = ["stores", "engine_timeout", "compression", "compression_level", "run_directory",
         "private_directory", "key_path", "restart_attempts", "restart_backoff", "depth",
         "lock_timeout", "state_directory", "metrics_directory", "torque_directory", "orphan_grace_days",
         "node_down_action", "node_down_seconds", "node_down_share", "node_local_directories", "node_local_trees", "changed_files",
         "refused_devices", "multinode", "environment", "pre_program", "post_program", "restart_program", "program_seconds"]
SWITCHES = ["copy_memory", "truncate_append_only", "environment_reported"]
BYTES = {"0": 0, "1G": 1 << 30, "10G": 10 << 30, "64M": 64 << 20, "100M": 100 << 20}


def test_criu_answers(host, settings):
    done = host.run("%s/current/sbin/criu --version", settings["criu_prefix"])
    assert done.rc == 0, done.stderr
    assert done.stdout.startswith("Version: ")


def test_no_package_was_installed_for_criu(host):
    """Nor was another suite named to apt."""
    assert host.run("dpkg-query -W criu libprotobuf-c1 gcc").stdout == ""
    assert host.check_output("grep -rlE '^(deb |Suites:).*(forky|sid)' /etc/apt || true") == ""


def test_process_ids_start_at_random(host, settings):
    name = "ckpt-torque-random-pids.service"
    journal = host.run("journalctl --no-pager -n 30 -u %s", name).stdout
    unit = host.service(name)
    assert unit.is_enabled == settings["checkpoint_hooks_random_pids_enabled"], journal
    assert unit.is_running == settings["checkpoint_hooks_random_pids_enabled"], journal
    if settings["checkpoint_hooks_random_pids_enabled"]:
        again = "systemctl restart %s && cat /proc/sys/kernel/ns_last_pid"
        starts = [int(host.check_output(again, name)) for _start in range(3)]
        assert min(starts) >= 1000 and max(starts) - min(starts) > 10000, starts
        assert int(host.check_output("cat /proc/sys/kernel/pid_max")) == settings["checkpoint_hooks_pid_max"]


def test_hooks_are_roots_and_complete(host, settings):
    top = settings["checkpoint_hooks_directory"]
    wanted = {"%s/%s" % (top, name): "755" for name in ("run", "checkpoint", "restart", "copy", "health", "torque-ckpt", "action-script")}
    wanted.update({"%s/%s" % (top, name): "644" for name in FILES})
    listing = host.check_output("find %s -type f -not -path '*/__pycache__/*' -printf '%%p %%m %%u:%%g\\n'", top)
    modes = {}
    for line in listing.splitlines():
        path, mode, owner = line.split()
        assert owner == "root:root", line
        modes[path] = mode
    assert modes == wanted
    writable = host.check_output("find %s -perm /022 -not -type l", top)
    assert writable == ""


def test_hooks_are_compiled(host, settings):
    """Users cannot write there, so a hook that is not compiled would compile itself at every start."""
    compiled = host.check_output("find %s -name '*.pyc' -printf '%%P\\n'", settings["checkpoint_hooks_directory"]).splitlines()
    assert sorted(re.sub(r"__pycache__/(.*)\.[^.]*\.pyc", r"\1.py", path) for path in compiled) == FILES


def test_hooks_start_with_the_interpreter(host, settings):
    first = host.check_output("head -n 1 %s/checkpoint", settings["checkpoint_hooks_directory"])
    assert first == "#!%s -IS" % settings["checkpoint_hooks_python"]


def test_configuration(host, settings):
    file = host.file(settings["checkpoint_hooks_config_path"])
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644)
    wanted = {name: settings["checkpoint_hooks_" + name] for name in PLAIN}
    wanted.update(engine="criu", engine_options=dict({"path": settings["criu_prefix"] + "/current/sbin/criu"},
                                                     **settings["checkpoint_hooks_engine_options"].get("criu", {})),
                  **{name: BYTES[settings["checkpoint_hooks_" + name]] for name in ("reserve", "user_limit", "node_local_bytes")},
                  **{name: settings["checkpoint_hooks_%s_enabled" % name] for name in SWITCHES}, transfer_directory="")
    assert json.loads(file.content_string) == wanted


def test_program_that_compresses_is_there(host, settings):
    program = settings["checkpoint_hooks_compression"]
    assert program == "none" or host.exists(program)
    record = json.loads(host.file("%s/nodes/%s.json" % (settings["checkpoint_hooks_config_path"].rpartition("/")[0],
                                                        host.check_output("uname -n"))).content_string)
    assert record["compressors"] == [name for name in ("zstd", "lz4", "gzip") if host.exists(name)]


def test_keys_are_roots_alone(host, settings):
    file = host.file(settings["checkpoint_hooks_key_path"])
    assert (file.user, file.group, file.mode) == ("root", "root", 0o600)
    assert json.loads(file.content_string) == {"keys": settings["checkpoint_hooks_keys"]}


def test_node_sees_the_store(host, settings):
    marker = host.file(settings["checkpoint_store_path"] + "/.ckpt-torque-store")
    assert marker.content_string == settings["checkpoint_store_id"] + "\n"


def test_checkpoint_hook_refuses_other_arguments(host, settings):
    done = host.run("%s/checkpoint 1 2.head alice", settings["checkpoint_hooks_directory"])
    assert done.rc == 64
    assert done.stderr == ("checkpoint: expected 8 arguments (session_id job_id user group directory name signal depth), got 3; "
                           "pbs_mom cuts lines over 1024 bytes, so look for an overlong checkpoint directory; nothing was done\n")


def test_restart_hook_refuses_a_directory_elsewhere(host, settings):
    done = host.run("%s/restart 1 2.head alice alice /tmp/2.head.CK ckpt.2.head.1", settings["checkpoint_hooks_directory"])
    assert done.rc == 77
    stores = ", ".join(store["path"] for store in settings["checkpoint_hooks_stores"])
    assert done.stderr == ("directory /tmp/2.head.CK is in none of this node's stores (%s); "
                           "set the job's checkpoint directory beneath one\n" % stores)


def test_run_hook_must_lead_a_session(host, settings):
    done = host.run("su -s /bin/sh alice -c '%s/run /bin/true'" % settings["checkpoint_hooks_directory"])
    assert done.rc == 64
    assert done.stderr == "run: must be started by pbs_mom as the leader of a session; the job was not started\n"


def test_node_is_noted_on_itself(host, settings):
    top = settings["checkpoint_hooks_config_path"].rpartition("/")[0]
    name = host.check_output("uname -n")
    shared = {"torque_server", "torque_client"} & set(host.ansible.get_variables()["group_names"])  # these know all nodes
    assert json.loads(host.file(top + "/nodes.json").content_string) == {"nodes": ["node1", "node2"] if shared else [name]}
    record = json.loads(host.file("%s/nodes/%s.json" % (top, name)).content_string)
    assert (record["node"], record["kernel"], record["engine"]["name"]) == (name, host.check_output("uname -r"), "criu")
    assert record["stores"] == [store["id"] for store in settings["checkpoint_hooks_stores"]]
