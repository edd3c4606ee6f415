import json
import os

import pytest

from torque_ckpt import config, errors
from torque_ckpt.errors import HookError
from torque_ckpt.files import consistency
from torque_ckpt.job import site_programs

STORES = [{"path": "/shared/ckpt", "id": "main"}]


@pytest.fixture
def write(tmp_path):
    def write(content, mode=0o644):
        path = tmp_path / "hooks.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode("utf-8"))
        path.chmod(mode)
        return str(path)
    return write


def refusal(path, owner=None):
    with pytest.raises(HookError) as caught:
        config.load_settings(path, owner=os.geteuid() if owner is None else owner)
    assert caught.value.code == errors.CONFIG
    beginning, end = "configuration %s " % path, "; run the role checkpoint_hooks on this node"
    assert str(caught.value).startswith(beginning) and str(caught.value).endswith(end)
    return str(caught.value)[len(beginning):-len(end)]


def test_what_is_not_set_has_its_default(write):
    assert config.load_settings(write({"stores": STORES}), owner=os.geteuid()) == {
        "engine": "criu", "stores": STORES, "engine_options": {"path": "/opt/criu/current/sbin/criu", "options": [], "stall": 30},
        "engine_timeout": 3600, "compression": "none", "compression_level": 0,
        "run_directory": "/run/ckpt-torque", "private_directory": "", "key_path": "/etc/ckpt-torque/manifest.key",
        "restart_attempts": 5, "restart_backoff": 10,
        "depth": 2, "reserve": 1 << 30, "lock_timeout": 120, "state_directory": "/var/lib/ckpt-torque", "metrics_directory": "",
        "torque_directory": "/opt/torque/current/bin", "orphan_grace_days": 7,
        "node_down_action": "none", "node_down_seconds": 900, "node_down_share": 25,
        "node_local_directories": ["/tmp", "/var/tmp", "/dev/shm", "$TMPDIR"], "node_local_trees": [], "node_local_bytes": 1 << 30,
        "user_limit": 0, "transfer_directory": "", "transfer_ssh_config": "/etc/ckpt-torque/copies/ssh_config",
        "changed_files": "refuse", "truncate_append_only": False, "copy_memory": False,
        "refused_devices": ["/dev/nvidia*", "/dev/kfd", "/dev/dri/*", "/dev/accel/*", "/dev/infiniband/*", "/dev/hfi1*", "/dev/xpmem",
                            "/dev/knem"],
        "multinode": "nested", "environment": {}, "environment_reported": True,
        "pre_program": "", "post_program": "", "restart_program": "", "program_seconds": 60}


def test_what_is_set_counts(write):
    wanted = {"engine": "blcr", "stores": STORES,
              "engine_options": {"path": "/opt/blcr", "dump_options": ["--save-exe"], "restore_options": ["--no-restore-pid"]},
              "engine_timeout": 5, "compression": "lz4", "compression_level": 3,
              "run_directory": "/run/elsewhere", "private_directory": "/scratch", "key_path": "/etc/elsewhere",
              "restart_attempts": 1, "restart_backoff": 0,
              "depth": 5, "reserve": 0, "lock_timeout": 1, "state_directory": "/var/elsewhere", "metrics_directory": "/var/metrics",
              "torque_directory": "/usr/bin", "orphan_grace_days": 0,
              "node_down_action": "restart", "node_down_seconds": 60, "node_down_share": 50,
              "node_local_directories": ["/scratch"], "node_local_trees": ["$TMPDIR", "$TMPDIR/x"], "node_local_bytes": 0,
              "truncate_append_only": True, "refused_devices": ["/dev/x*"], "multinode": "site",
              "environment": {"UCX_TLS": None, "I_MPI_FABRICS": "shm"}, "environment_reported": False,
              "pre_program": "/opt/site/pre", "post_program": "/opt/site/post", "restart_program": "/opt/site/restart",
              "program_seconds": 5, "changed_files": "report",
              "user_limit": 5, "transfer_directory": "/srv/copies", "transfer_ssh_config": "/etc/other",
              "copy_memory": True}
    assert config.load_settings(write(wanted), owner=os.geteuid()) == wanted


def test_loading_leaves_the_defaults_alone(write):
    before = json.dumps(config.DEFAULTS, sort_keys=True)
    config.load_settings(write({"stores": STORES, "engine": "blcr", "engine_options": {"dump_options": ["-v4"]}}), owner=os.geteuid())
    assert json.dumps(config.DEFAULTS, sort_keys=True) == before


def test_options_of_an_unknown_engine_are_left_alone(write):
    """registry.load_engine() says which engines there are."""
    wanted = {"stores": STORES, "engine": "dmtcp", "engine_options": {"any": 1}}
    assert config.load_settings(write(wanted), owner=os.geteuid())["engine_options"] == {"any": 1}


def test_text_is_utf8_whatever_the_locale(write):
    path = write('{"stores": [{"path": "/ck\u00fc", "id": "main"}]}'.encode("utf-8"))
    assert config.load_settings(path, owner=os.geteuid())["stores"][0]["path"] == "/ck\u00fc"


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o644, 0o444, 0o755])
def test_a_file_that_only_its_owner_may_write_is_taken(write, mode):
    assert config.load_settings(write({"stores": STORES}, mode), owner=os.geteuid())["stores"] == STORES


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o620, 0o602])
def test_a_file_that_others_may_write_is_refused(write, mode):
    assert refusal(write({"stores": STORES}, mode)) == "must be root's and writable by nobody else"


def test_a_file_of_another_owner_is_refused(write):
    assert refusal(write({"stores": STORES}), owner=os.geteuid() + 1) == "must be root's and writable by nobody else"


def test_the_owner_is_root_when_nobody_says_otherwise(write, somebody):
    path = write({"stores": STORES})
    os.chown(path, somebody.uid, -1)
    with pytest.raises(HookError) as caught:
        config.load_settings(path)
    assert str(caught.value) == ("configuration %s must be root's and writable by nobody else; run the role checkpoint_hooks on this node"
                                 % path)
    assert caught.value.code == errors.CONFIG


def test_the_owner_is_judged_before_the_content(write):
    assert refusal(write(b"not JSON"), owner=os.geteuid() + 1) == "must be root's and writable by nobody else"


def test_a_missing_file(tmp_path):
    assert refusal(str(tmp_path / "none.json")) == "cannot be read (No such file or directory)"


def test_a_directory_in_its_place(tmp_path):
    assert refusal(str(tmp_path)) == "cannot be read (Is a directory)"


@pytest.mark.parametrize("content, why", [
    (b"", "Expecting value: line 1 column 1 (char 0)"),
    (b"engine = criu\n", "Expecting value: line 1 column 1 (char 0)"),
    (b'{"engine": "criu"', "Expecting ',' delimiter: line 1 column 18 (char 17)"),
    (b'{}\n{}', "Extra data: line 2 column 1 (char 3)"),
    (b'\xff{}', "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
])
def test_content_that_is_not_json(write, content, why):
    assert refusal(write(content)) == "is not JSON (%s)" % why


@pytest.mark.parametrize("content", [None, [], [STORES], "criu", 7, True])
def test_content_that_is_not_an_object(write, content):
    assert refusal(write(content)) == "has unknown settings: (not an object)"


def test_unknown_settings_are_all_named_in_order(write):
    assert refusal(write({"stores": STORES, "timeout": 1, "Engine": "criu"})) == "has unknown settings: Engine, timeout"


@pytest.mark.parametrize("key, value, wanted", [
    ("engine", 1, "str"), ("engine", None, "str"), ("engine", ["criu"], "str"),
    ("stores", "/shared/ckpt", "list"), ("stores", {"path": "/shared/ckpt", "id": "main"}, "list"),
    ("engine_options", [], "dict"), ("engine_options", None, "dict"),
    ("engine_timeout", "3600", "int"), ("engine_timeout", 1.5, "int"), ("engine_timeout", None, "int"),
    ("compression", None, "str"), ("compression_level", "9", "int"),
    ("run_directory", False, "str"), ("depth", "2", "int"), ("reserve", "1G", "int"), ("lock_timeout", 0.5, "int"),
])
def test_settings_of_another_type(write, key, value, wanted):
    assert refusal(write(dict({"stores": STORES}, **{key: value}))) == "sets %s to something that is not a %s" % (key, wanted)


@pytest.mark.parametrize("path, wanted", [("/fast", "/fast"), ("/fast/", "/fast"), ("/fast//", "/fast"), ("/a/b/", "/a/b"), ("/", "/")])
def test_path_of_a_store_ends_without_a_slash(write, path, wanted):
    stores = [{"path": path, "id": "fast"}, {"path": "/shared/ckpt", "id": "main"}]
    assert config.load_settings(write({"stores": stores}), owner=os.geteuid())["stores"] == [dict(stores[0], path=wanted), stores[1]]


@pytest.mark.parametrize("content", [{}, {"stores": []}, {"engine": "criu"}])
def test_no_store(write, content):
    assert refusal(write(content)) == "names no store"


@pytest.mark.parametrize("change, why", [
    ({"stores": ["/x"]}, "names a store that is not a path and an id"),
    ({"stores": [{"path": "/x"}]}, "names a store that is not a path and an id"),
    ({"stores": [{"path": "/x", "id": 7}]}, "names a store that is not a path and an id"),
    ({"stores": [{"path": "x", "id": "a"}]}, "names 'x', which is not an absolute path"),
    ({"engine_options": {"path": "criu"}}, "names 'criu', which is not an absolute path"),
    ({"engine_options": {"path": ["/criu"]}}, "sets engine_options.path to something that is not a str"),
    ({"engine_options": {"options": None}}, "sets engine_options.options to something that is not a list"),
    ({"engine_options": {"dump_options": [], "criu": {}}}, "has unknown settings: engine_options.criu, engine_options.dump_options"),
    ({"engine": "blcr", "engine_options": {"stall": 5}}, "has unknown settings: engine_options.stall"),
    ({"engine": "blcr", "engine_options": {"restore_options": [1]}}, "sets engine_options.restore_options to something that is not text"),
    ({"run_directory": "run"}, "names 'run', which is not an absolute path"),
    ({"engine_options": {"options": [1]}}, "sets engine_options.options to something that is not text"),
    ({"engine_timeout": True}, "sets engine_timeout to something that is not a number of seconds"),
    ({"engine_timeout": 0}, "sets engine_timeout to something that is not a number of seconds"),
    ({"engine_options": {"stall": 0}}, "sets engine_options.stall to something that is not a number of seconds"),
    ({"engine_options": {"stall": True}}, "sets engine_options.stall to something that is not a number of seconds"),
    ({"engine_options": {"stall": 61}}, "sets engine_options.stall to more than 60 seconds"),
    ({"changed_files": "warn"}, "sets changed_files to 'warn', which these hooks do not know"),
    ({"compression": "xz"}, "sets compression to 'xz', which these hooks do not know"),
    ({"compression": ""}, "sets compression to '', which these hooks do not know"),
    ({"compression_level": -1}, "sets compression_level to something that is not a number of levels"),
    ({"compression_level": True}, "sets compression_level to something that is not a number of levels"),
    ({"lock_timeout": 0}, "sets lock_timeout to something that is not a number of seconds"),
    ({"environment": {"A": 1}}, "sets environment to something that is not names of variables, each with a text or null"),
    ({"environment": {"A": "x\0"}}, "sets environment to something that is not names of variables, each with a text or null"),
    ({"environment": {"A=B": "x"}}, "sets environment to something that is not names of variables, each with a text or null"),
    ({"environment": {"": "x"}}, "sets environment to something that is not names of variables, each with a text or null"),
    ({"environment": ["A"]}, "sets environment to something that is not a dict"),
    ({"pre_program": "pre"}, "names 'pre', which is not an absolute path"),
    ({"restart_program": ["/bin/true"]}, "sets restart_program to something that is not a str"),
    ({"program_seconds": 0}, "sets program_seconds to something that is not a number of seconds"),
    ({"depth": 0}, "sets depth to something that is not a number of images"),
    ({"depth": True}, "sets depth to something that is not a number of images"),
    ({"reserve": -1}, "sets reserve to something that is not a number of bytes"),
])
def test_elements(tmp_path, change, why):
    path = tmp_path / "hooks.json"
    path.write_text(json.dumps(dict({"stores": [{"path": "/x", "id": "a"}]}, **change)))
    path.chmod(0o644)
    with pytest.raises(HookError) as caught:
        config.load_settings(str(path), owner=os.geteuid())
    assert (caught.value.code, str(caught.value)) == (
        errors.CONFIG, "configuration %s %s; run the role checkpoint_hooks on this node" % (path, why))


@pytest.mark.parametrize("key", ["node_local_directories", "node_local_trees"])
@pytest.mark.parametrize("name", ["relative", "", 7, "$HOME/x", "$TMPDIRX", "/tmp/../etc"])
def test_directories_that_are_none(write, key, name):
    assert refusal(write({"stores": STORES, key: ["/tmp", name]})) == (
        "sets %s to something that is not a list of absolute paths, or paths in $TMPDIR" % key)


@pytest.mark.parametrize("value", [-1, True])
def test_limit_that_is_none(write, value):
    assert refusal(write({"stores": STORES, "node_local_bytes": value})) == (
        "sets node_local_bytes to something that is not a number of bytes")


def test_programs_of_the_site():
    assert config.PROGRAMS == (site_programs.PRE, site_programs.POST, site_programs.RESTART)


def test_what_can_be_done_about_changed_files():
    assert config.CHANGED_FILES == (consistency.REFUSE, consistency.REPORT, consistency.IGNORE)
