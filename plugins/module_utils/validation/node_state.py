# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What decides on a node whether jobs of other nodes can continue there: read, not tried."""

import collections
import hashlib
import json
import os
import pwd
import re
import struct

from ..torque.mom_config import read_config
from ..torque_ckpt import config
from ..torque_ckpt.errors import HookError
from ..torque_ckpt.image import compatibility
from ..torque_ckpt.system.textfile import read_text

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any

LOCALES = "/usr/lib/locale/locale-archive"
"""Mapped by most programs of a job whose locale is not C."""
DIRECTIVES = ("checkpoint_script", "restart_script", "checkpoint_run_exe", "remote_checkpoint_dirs", "usecp")
"""What of mom_priv/config must be alike where a job is checkpointed and where it restarts."""
PROGRAMS = ("run", "checkpoint", "restart", "copy", "health")
"""The hooks' programs that pbs_mom starts."""
_PT_NOTE, _NT_GNU_BUILD_ID = 4, 3
_HEADERS = 1 << 16
"""How much of a program's start holds its headers and notes, in bytes."""


def read_stores(config_path: str) -> "list[dict[str, Any]]":
    """Return path, free and reserve (bytes) of each store of the hooks' configuration; without one, or of a store without a size, nothing.

    :raises OSError: if a store cannot be reached
    """
    try:
        settings = config.load_settings(config_path)
    except HookError:
        return []
    stores = []
    for store in settings["stores"]:
        status = os.statvfs(store["path"])
        if status.f_blocks:
            stores.append({"path": store["path"], "free": status.f_bavail * status.f_frsize, "reserve": settings["reserve"]})
    return stores


def read_build_id(path: str) -> str:
    """Return the build id of a program or library in hexadecimal, empty if it has none or is none (ELF of 64 bits, little endian).

    :raises OSError: if it cannot be read
    """
    with open(path, "rb") as stream:
        head = stream.read(_HEADERS)
    if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:
        return ""
    start, = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    for number in range(count):
        where = start + number * size
        if where + 56 > len(head):
            break
        kind, _flags, offset, _address, _physical, length = struct.unpack_from("<IIQQQQ", head, where)
        if kind == _PT_NOTE:
            identifier = _find_build_id(head[offset:offset + length])
            if identifier:
                return identifier
    return ""


def _find_build_id(notes: bytes) -> str:
    where = 0
    while where + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, where)
        name = notes[where + 12:where + 12 + name_size]
        where += 12 + (name_size + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and name == b"GNU\0":
            return notes[where:where + size].hex()
        where += size + 3 & ~3
    return ""


def list_mapped_files(text: str) -> "list[str]":
    """Return the paths (sorted) of the files that a process has mapped, by the text of its /proc/PID/maps."""
    return sorted(set(re.findall(r" (/\S.*)$", text, re.MULTILINE)))


def describe_files(paths: "list[str]") -> "dict[str, dict]":
    """Return size (bytes) and build id (build_id) of each file that is there, by its path: what CRIU compares before it maps one."""
    files = {}
    for path in paths:
        try:
            files[path] = {"bytes": os.stat(path).st_size, "build_id": read_build_id(path)}
        except OSError:
            continue
    return files


def find_odd_programs(directory: str) -> "list[str]":
    """Return which of the hooks' programs (PROGRAMS) differ from most of them, which are the same but for their names, or are missing."""
    texts = {}
    for name in PROGRAMS:
        text = read_text(os.path.join(directory, name))
        texts[name] = text.replace("torque_ckpt.hooks.%s import" % name, "torque_ckpt.hooks import") or None
    most = collections.Counter(filter(None, texts.values())).most_common(1)
    return [name for name in PROGRAMS if not most or texts[name] != most[0][0]]


def hash_hooks(directory: str) -> "dict[str, str]":
    """Return the SHA-256 (hexadecimal) of each file of the hooks, by its path in their directory; empty without hooks."""
    digests = {}
    for path, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if name != "__pycache__"]
        for name in names:
            full = os.path.join(path, name)
            if os.path.isfile(full):
                with open(full, "rb") as stream:
                    digests[os.path.relpath(full, directory)] = hashlib.sha256(stream.read()).hexdigest()
    return digests


def read_directives(path: str) -> "dict[str, list[str]] | None":
    """Return the values of DIRECTIVES, with one blank where there are several; None if there is no such file.

    :param path: of mom_priv/config
    :raises OSError: if it cannot be read
    """
    text, status = read_config(path)
    if status is None:
        return None
    found = {}  # type: dict[str, list[str]]
    for name, value in re.findall(r"^\s*\$(\w+)[ \t]+([^#\n]*)", text, re.MULTILINE):
        if name in DIRECTIVES:
            found.setdefault(name, []).append(" ".join(value.split()))
    return {name: sorted(values) for name, values in found.items()}


def read_user(name: str) -> "dict[str, Any]":
    """Return name, uid and gid of a user; uid and gid are None if this node does not know him."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return {"name": name, "uid": None, "gid": None}
    return {"name": name, "uid": entry.pw_uid, "gid": entry.pw_gid}


def find_record_fault(config_path: str, node: "dict[str, Any]") -> str:
    """Return in what the node's own record is wrong about it, empty if in nothing or if there is none.

    :param config_path: the hooks' configuration
    :param node: from compatibility.describe_node
    """
    path = os.path.join(os.path.dirname(config_path), "nodes", os.path.basename(node["node"]) + ".json")
    text = read_text(path)
    if not text:
        return ""
    try:
        record = json.loads(text)
        if not isinstance(record, dict) or not all(isinstance(record.get(key), kind) for key, kind in compatibility.RECORD_TYPES.items()):
            raise ValueError
    except ValueError:
        return "%s is not the record of a node" % path
    if record["arch"] != node["arch"]:
        return "%s says that it is %s, it is %s" % (path, record["arch"], node["arch"])
    lacking, alien = sorted(set(node["cpu"]) - set(record["cpu"])), sorted(set(record["cpu"]) - set(node["cpu"]))
    if lacking or alien:
        parts = ["lacks %s, which it has" % " ".join(lacking)] if lacking else []
        parts += ["has %s, which it lacks" % " ".join(alien)] if alien else []
        return "%s says that its CPU %s" % (path, " and ".join(parts))
    return ""
