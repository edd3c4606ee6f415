"""The hooks' configuration: one JSON file, written by the role checkpoint_hooks. SETTINGS describes its content.

A setting is one row here. Beside it stand the role's variable (defaults, meta/argument_specs.yml, vars), which a test compares with the
row, and docs/reference/hooks-json.md, which is generated.
"""
import json
import os
import stat

from .engines import registry
from .errors import HookError, CONFIG
from .image import compressors
from .settings import Setting, check_job_paths, check_path, check_texts, check_variables, find_faults

CHANGED_FILES = ("refuse", "report", "ignore")
"""What a restart can do about files that were changed (files: consistency.py)."""

PROGRAMS = ("pre_program", "post_program", "restart_program")
"""The settings that name programs of the site (job/site_programs.py)."""

NODE_DOWN_ACTIONS = NONE, REPORT, RESTART = "none", "report", "restart"
"""What torque-ckpt node-down may do for the jobs of a node that is down."""


def _check_stores(_name: str, value: list) -> str:
    if not value:
        return "names no store"
    for store in value:
        if not isinstance(store, dict) or sorted(store) != ["id", "path"] or not all(isinstance(text, str) for text in store.values()):
            return "names a store that is not a path and an id"
        if not os.path.isabs(store["path"]):
            return "names %s, which is not an absolute path" % ascii(store["path"])
    return ""


SETTINGS = (
    Setting("engine", registry.list_names()[0], "The engine, by the name that it has in the registry of engines."),
    Setting("stores", [], "Where images may be: at least one `{\"path\": str, \"id\": str}`, the path absolute; images lie beneath these.",
            check=_check_stores),
    Setting("engine_options", {}, "The options of that engine, below."),
    Setting("engine_timeout", 3600, "How long one call of the engine may take; a slower one is killed.", least=1, unit="seconds"),
    Setting("compression", "none", "The program that compresses what holds memory in an image. auto: the first of them that the node has.",
            choices=("none", "auto") + compressors.ORDER),
    Setting("compression_level", 0, "The level of that program; 0 for its own default.", least=0, unit="levels"),
    Setting("run_directory", "/run/ckpt-torque", "Root's records of restarted jobs, and its locks.", check=check_path),
    Setting("private_directory", "", "Where a restart copies what nobody may change any more, and decompresses memory: as large as an "
            "image. Empty: state_directory.", check=check_path),
    Setting("key_path", "/etc/ckpt-torque/manifest.key", "The keys that seal and verify manifests (image/seal.py).", check=check_path),
    Setting("restart_attempts", 5, "So many restarts in a row may fail on this node for a temporary reason; then the job is held.",
            least=1, unit="attempts"),
    Setting("restart_backoff", 10, "The pause after the first of them, doubled after each further one.", least=0, unit="seconds"),
    Setting("depth", 2, "How many generations of a job's images are kept when TORQUE names no depth.", least=1, unit="images"),
    Setting("reserve", 1 << 30, "What an image must leave free in the store.", least=0, unit="bytes"),
    Setting("user_limit", 0, "What the images of one user may take in a store; 0 for no limit.", least=0, unit="bytes"),
    Setting("lock_timeout", 120, "How long a hook waits for another hook of the same job.", least=1, unit="seconds"),
    Setting("state_directory", "/var/lib/ckpt-torque", "Root's counters, which jobs torque-ckpt has seen unknown to the server, and "
            "whether TORQUE's commands have answered here.",
            check=check_path),
    Setting("metrics_directory", "", "Where the hooks write their counters for Prometheus. Empty: nowhere.", check=check_path),
    Setting("torque_directory", "/opt/torque/current/bin", "TORQUE's commands, which torque-ckpt runs.", check=check_path),
    Setting("orphan_grace_days", 7, "How long the images of a job that the server does not know are kept.", least=0, unit="days"),
    Setting("node_down_action", NONE, "What torque-ckpt node-down does with the jobs of a node that is down.", choices=NODE_DOWN_ACTIONS),
    Setting("node_down_seconds", 900, "How long a node must have been down without a report before. Longer than two reports are apart "
            "(45 seconds).", least=0, unit="seconds"),
    Setting("node_down_share", 25, "Nothing is done while more of the nodes are down. One may always be down, if another is up.",
            least=0, unit="percent"),
    Setting("node_local_directories", ["/tmp", "/var/tmp", "/dev/shm", "$TMPDIR"], "Open files beneath these travel with the image. A name "
            "may begin with $TMPDIR, the job's own.", check=check_job_paths),
    Setting("node_local_trees", [], "Directories that travel whole. A name may begin with $TMPDIR, the job's own.", check=check_job_paths),
    Setting("node_local_bytes", 1 << 30, "The most that travels with one image.", least=0, unit="bytes"),
    Setting("refused_devices", ["/dev/nvidia*", "/dev/kfd", "/dev/dri/*", "/dev/accel/*", "/dev/infiniband/*", "/dev/hfi1*", "/dev/xpmem",
                                "/dev/knem"],
            "A job that has one of these devices open cannot be checkpointed, because what is in a graphics processor or a network adapter "
            "is in no image; `*` stands for any text.", check=check_texts),
    Setting("multinode", "nested", "Whether a job on several nodes can be checkpointed: an image has its processes on its first node only. "
            "nested: it can if ckpt-run has started a program of it. site: it can, the site takes care of the other nodes. refuse: it "
            "cannot.", choices=("refuse", "nested", "site")),
    Setting("environment", {}, "Variables that a checkpointable job on one node starts with, beside those of the engine, unless it has set "
            "them itself: `{\"NAME\": str}`. null: the engine's variable of that name is not set either.", check=check_variables),
    Setting("environment_reported", True, "Whether the standard error of such a job with several processors begins with a line that "
            "names these variables."),
    Setting("transfer_directory", "", "Where this node has the server's checkpoint directory mounted. Empty: images are copied there by "
            "sftp.", check=check_path),
    Setting("transfer_ssh_config", "/etc/ckpt-torque/copies/ssh_config", "How sftp reaches it.", check=check_path),
    Setting("pre_program", "", "Program of the site that runs as the job's owner before a checkpoint, for instance to return licences; if "
            "it fails, the job is not checkpointed. Empty: none.", check=check_path),
    Setting("post_program", "", "Program of the site that runs as the job's owner when the job continues after that, also if the "
            "checkpoint failed. Empty: none.", check=check_path),
    Setting("restart_program", "", "Program of the site that runs as the job's owner at a restart, before the job continues; if it fails, "
            "the job is queued again. Empty: none.", check=check_path),
    Setting("program_seconds", 60, "How long each of these programs may take; a slower one is killed.", least=1, unit="seconds"),
    Setting("changed_files", "refuse", "What a restart does about a file of unchanged size that the job had open and that was written to "
            "or replaced since. report: log it and continue, unless the job was held.", choices=CHANGED_FILES),
    Setting("truncate_append_only", False, "Whether a restart truncates files that were open for appending only and have grown."),
    Setting("copy_memory", False, "Whether a restart copies memory, too, to a private directory of the node before it uses it."),
)

DEFAULTS = {setting.name: setting.default for setting in SETTINGS}


def _make_error(path: str, why: str) -> HookError:
    return HookError(CONFIG, "configuration %s %s; run the role checkpoint_hooks on this node" % (path, why))


def load_settings(path: str, owner: int = 0) -> dict:
    """Read the configuration.

    :param path: the file
    :param owner: uid that must own it; others may not write to it
    :returns: every key of DEFAULTS; engine_options has every option of the engine; no store's path ends with a slash
    :raises HookError: CONFIG when it cannot be read, or a setting is unknown or wrong
    """
    try:
        with open(path, "rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_uid != owner or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise _make_error(path, "must be root's and writable by nobody else")
            content = json.loads(stream.read().decode("utf-8"))
    except OSError as error:
        raise _make_error(path, "cannot be read (%s)" % error.strerror)
    except ValueError as error:
        raise _make_error(path, "is not JSON (%s)" % error)
    unknown = sorted(set(content) - set(DEFAULTS)) if isinstance(content, dict) else ["(not an object)"]
    if unknown:
        raise _make_error(path, "has unknown settings: %s" % ", ".join(unknown))
    values = dict(DEFAULTS, **content)
    for fault in find_faults(SETTINGS, values):
        raise _make_error(path, fault)
    values["stores"] = [dict(store, path=store["path"].rstrip("/") or "/") for store in values["stores"]]
    engine = registry.find_entry(values["engine"])  # registry.load_engine() reports an unknown one
    if engine:
        fault = engine.find_fault(values["engine_options"])
        if fault:
            raise _make_error(path, fault)
        values["engine_options"] = engine.add_defaults(values["engine_options"])
    return values
