"""What the tests ask for. Paths come from the scenario's variables; the defaults are repeated here, not read from the roles."""
import pytest

DEFAULTS = {
    "criu_path": "/usr/sbin/criu",
    "criu_fallback_enabled": True,
    "criu_fallback_suite": "forky",
    "criu_pid_range_enabled": True,
    "criu_pid_max": 4194304,
    "checkpoint_store_path": "/shared/ckpt",
    "checkpoint_store_id": "default",
    "checkpoint_store_group": "root",
    "checkpoint_store_mode": "0755",
    "checkpoint_hooks_path": "/usr/lib/ckpt-torque",
    "checkpoint_hooks_config_path": "/etc/ckpt-torque/hooks.json",
    "checkpoint_hooks_python": "/usr/bin/python3",
    "checkpoint_hooks_stores": [{"path": "/shared/ckpt", "id": "default"}],
    "checkpoint_hooks_criu_options": [],
    "checkpoint_hooks_engine_timeout": 3600,
    "checkpoint_hooks_run_directory": "/run/ckpt-torque",
    "checkpoint_hooks_key_path": "/etc/ckpt-torque/manifest.key",
    "checkpoint_hooks_restart_attempts": 5,
    "checkpoint_hooks_restart_backoff": 10,
    "checkpoint_hooks_depth": 2,
    "checkpoint_hooks_reserve": "1G",
    "checkpoint_hooks_lock_timeout": 120,
    "checkpoint_hooks_state_directory": "/var/lib/ckpt-torque",
    "checkpoint_hooks_metrics_directory": "",
    "checkpoint_hooks_torque_path": "/opt/torque/current/bin",
    "checkpoint_hooks_orphan_grace_days": 7,
    "checkpoint_hooks_orphans_calendar": "daily",
    "checkpoint_hooks_command_path": "/usr/local/bin/torque-ckpt",
    "checkpoint_hooks_share_path": "/usr/local/share",
}


@pytest.fixture
def settings(host):
    """The variables (dict) of the host's roles."""
    return dict(DEFAULTS, **host.ansible.get_variables())
