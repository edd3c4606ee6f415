"""The hooks' configuration: one JSON file, written by the role checkpoint_hooks.

keys (all optional but "stores"):
  engine          str, "criu" or "blcr"
  stores          list of {"path": str, "id": str}; images live beneath these
  criu_path       str, "/usr/sbin/criu"; absolute, pbs_mom's PATH has no sbin
  criu_options    list of str, []; appended to every dump and restore
  blcr_directory       str, "/usr/bin"; directory of cr_run, cr_checkpoint and cr_restart
  blcr_dump_options     list of str, []; appended to every cr_checkpoint
  blcr_restore_options  list of str, []; appended to every cr_restart
  engine_timeout  int, seconds, 3600; a slower engine call is killed
  engine_stall    int, seconds, 30, at most 60; so is CRIU when it neither works nor reads or writes for so long
  compression     str, "none"; the program that compresses what holds memory in an image: "zstd", "lz4", "gzip", or "auto", the first of
                  them that the node has
  compression_level  int, 0; of that program, 0 for its own default
  run_directory   str, "/run/ckpt-torque"; root's records of restarted jobs, and its locks
  private_directory str, ""; where a restart copies what nobody may change any more, and decompresses
                  memory: as large as an image; empty: state_directory
  key_path        str, "/etc/ckpt-torque/manifest.key"; see seal.py
  restart_attempts  int, 5; so many restarts in a row may fail on this node for a passing reason, then the job is held
  restart_backoff   int, seconds, 10; pause after the first of them, doubled after each further one
  depth           int, 2; generations of a job's images to keep where TORQUE names no depth
  reserve         int, bytes, 1 GiB; what an image must leave free in the store
  user_limit      int, bytes, 0; what the images of one user may take in a store, 0 for as much as there is
  lock_timeout    int, seconds, 120; how long a hook waits for another hook of the same job
  state_directory   str, "/var/lib/ckpt-torque"; root's counters, and which jobs torque-ckpt has seen unknown to the server
  metrics_directory str, ""; where the hooks lay their counters for Prometheus, nowhere if empty
  torque_directory     str, "/opt/torque/current/bin"; TORQUE's commands, which torque-ckpt asks
  orphan_grace_days int, days, 7; images of a job that the server does not know are kept so much longer
  node_down_action  str, "none"; what torque-ckpt node-down does with jobs of a node that is down: "none", "report" or "restart"
  node_down_seconds int, seconds, 900; so long a node must have been down before
  node_down_share   int, percent, 25; nothing is done while more of the nodes are down; one always may be, if another is up
  node_local_directories  list of str; open files beneath these travel with the image
  node_local_trees   list of str, []; directories that travel whole
  node_local_bytes   int, 1 GiB; most that travels with one image
  transfer_directory  str, ""; where this node has the server's checkpoint directory mounted; empty: images are copied there by sftp
  transfer_ssh_config str, "/etc/ckpt-torque/copies/ssh_config"; how sftp reaches it
  changed_files   str, "refuse"; what a restart does about a file of unchanged size that the job had open and that was written to or
                  replaced since: "refuse"; "report" and go on, unless the job was held; "ignore"
  truncate_append_only  bool, false; whether a restart cuts back files that were open for appending only and have grown
  copy_memory        bool, false; whether a restart copies memory, too, to a private place of the node before it uses it
Names of carried directories and trees may begin with $TMPDIR, the job's own.
"""
import json
import os
import stat

from .errors import HookError, CONFIG
from .image import compressors

CHANGED_FILES = ("refuse", "report", "ignore")
"""What a restart can do about files that were changed (files: consistency.py)."""

DEFAULTS = {
    "engine": "criu",
    "stores": [],
    "criu_path": "/usr/sbin/criu",
    "criu_options": [],
    "blcr_directory": "/usr/bin",
    "blcr_dump_options": [],
    "blcr_restore_options": [],
    "engine_timeout": 3600,
    "engine_stall": 30,
    "compression": "none",
    "compression_level": 0,
    "run_directory": "/run/ckpt-torque",
    "private_directory": "",
    "key_path": "/etc/ckpt-torque/manifest.key",
    "restart_attempts": 5,
    "restart_backoff": 10,
    "depth": 2,
    "reserve": 1 << 30,
    "user_limit": 0,
    "lock_timeout": 120,
    "state_directory": "/var/lib/ckpt-torque",
    "metrics_directory": "",
    "torque_directory": "/opt/torque/current/bin",
    "orphan_grace_days": 7,
    "node_down_action": "none",
    "node_down_seconds": 900,
    "node_down_share": 25,
    "node_local_directories": ["/tmp", "/var/tmp", "/dev/shm", "$TMPDIR"],
    "node_local_trees": [],
    "node_local_bytes": 1 << 30,
    "transfer_directory": "",
    "transfer_ssh_config": "/etc/ckpt-torque/copies/ssh_config",
    "changed_files": "refuse",
    "truncate_append_only": False,
    "copy_memory": False,
}

NODE_DOWN_ACTIONS = NONE, REPORT, RESTART = "none", "report", "restart"
"""What torque-ckpt node-down may do for the jobs of a node that is down."""

_LEAST = {"engine_timeout": (1, "seconds"), "engine_stall": (1, "seconds"), "compression_level": (0, "levels"),
          "restart_attempts": (1, "attempts"), "restart_backoff": (0, "seconds"), "depth": (1, "images"), "reserve": (0, "bytes"),
          "user_limit": (0, "bytes"), "lock_timeout": (1, "seconds"), "orphan_grace_days": (0, "days"), "node_down_seconds": (0, "seconds"),
          "node_down_share": (0, "percent"), "node_local_bytes": (0, "bytes")}
"""The smallest value of each number, and what it counts."""

_LONGEST_STALL = 60
"""So long at most may another user of the node have a job stand still (seconds)."""

_PATHS = ("criu_path", "blcr_directory", "run_directory", "private_directory", "key_path", "state_directory", "metrics_directory",
          "torque_directory", "transfer_directory", "transfer_ssh_config")


def _wrong(path, why):
    return HookError(CONFIG, "configuration %s %s; run the role checkpoint_hooks on this node" % (path, why))


def load(path, owner=0):
    """Read the configuration.

    :param path: the file (str)
    :param owner: uid that must own it (int, default 0); others may not write to it
    :returns: dict with every key of DEFAULTS
    """
    try:
        with open(path, "rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_uid != owner or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise _wrong(path, "must be root's and writable by nobody else")
            found = json.loads(stream.read().decode("utf-8"))
    except OSError as error:
        raise _wrong(path, "cannot be read (%s)" % error.strerror)
    except ValueError as error:
        raise _wrong(path, "is not JSON (%s)" % error)
    unknown = sorted(set(found) - set(DEFAULTS)) if isinstance(found, dict) else ["(not an object)"]
    if unknown:
        raise _wrong(path, "has unknown settings: %s" % ", ".join(unknown))
    values = dict(DEFAULTS, **found)
    for key, default in DEFAULTS.items():
        if not isinstance(values[key], type(default)):
            raise _wrong(path, "sets %s to something that is not a %s" % (key, type(default).__name__))
    if not values["stores"]:
        raise _wrong(path, "names no store")
    for store in values["stores"]:
        if not isinstance(store, dict) or sorted(store) != ["id", "path"] or not all(isinstance(value, str) for value in store.values()):
            raise _wrong(path, "names a store that is not a path and an id")
    for key in ("criu_options", "blcr_dump_options", "blcr_restore_options"):
        if not all(isinstance(option, str) for option in values[key]):
            raise _wrong(path, "sets %s to something that is not text" % key)
    if values["compression"] not in ("none", "auto") + compressors.ORDER:
        raise _wrong(path, "sets compression to %s, which these hooks do not know" % ascii(values["compression"]))
    if values["node_down_action"] not in NODE_DOWN_ACTIONS:
        raise _wrong(path, "sets node_down_action to %s, which is none of %s"
                     % (ascii(values["node_down_action"]), ", ".join(NODE_DOWN_ACTIONS)))
    if values["changed_files"] not in CHANGED_FILES:
        raise _wrong(path, "sets changed_files to %s, which these hooks do not know" % ascii(values["changed_files"]))
    for key, (least, unit) in _LEAST.items():
        if isinstance(values[key], bool) or values[key] < least:
            raise _wrong(path, "sets %s to something that is not a number of %s" % (key, unit))
    if values["engine_stall"] > _LONGEST_STALL:
        raise _wrong(path, "sets engine_stall to more than %d seconds" % _LONGEST_STALL)
    for key in ("node_local_directories", "node_local_trees"):
        for name in values[key]:
            if not isinstance(name, str) or not (name == "$TMPDIR" or name.startswith(("$TMPDIR/", "/"))) or ".." in name.split("/"):
                raise _wrong(path, "sets %s to something that is not a list of absolute paths, or paths in $TMPDIR" % key)
    for name in [values[key] for key in _PATHS if values[key]] + [store["path"] for store in values["stores"]]:
        if not os.path.isabs(name):
            raise _wrong(path, "names %s, which is not an absolute path" % ascii(name))
    return values
