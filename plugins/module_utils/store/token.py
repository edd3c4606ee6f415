# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A token in a store: a file that one node writes and others see if they have the same storage. All of it runs as the user."""

import os
import re
import stat

from ..torque_ckpt.system.waiting import wait_until

PAUSE = 0.1
"""Between two attempts to read a token, in seconds."""


def find_fault(name: str) -> str:
    """Return what is wrong with a token's name, empty when nothing is."""
    return "" if re.match(r"[A-Za-z0-9]{1,64}\Z", name) else "name must be 1 to 64 letters and digits"


def get_path(directory: str, name: str) -> str:
    """Return the path of a token."""
    return os.path.join(directory, ".ckpt-torque-token.%s" % name)


def read_token(directory: str, name: str) -> "dict | None":
    """Return a token, {"writer": str, the node, "written": float, when, by the store's clock}, None when there is none."""
    try:
        descriptor = os.open(get_path(directory, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor) as stream:
        status = os.fstat(descriptor)
        writer = stream.read(256) if stat.S_ISREG(status.st_mode) else ""
    return {"writer": writer, "written": status.st_mtime} if writer else None


def write_token(directory: str, name: str, node: str) -> bool:
    """Write a token that names its writer (node), unless that node's is there; return whether it was written.

    :raises OSError: when it cannot be written, or something else is there
    """
    try:
        descriptor = os.open(get_path(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        token = read_token(directory, name)
        if token and token["writer"] == node:
            return False
        raise
    with os.fdopen(descriptor, "w") as stream:
        stream.write(node)
        stream.flush()
        os.fsync(descriptor)
    return True


def await_token(directory: str, name: str, seconds: float) -> "dict | None":
    """Wait for a token; return it as read_token does, None when it does not appear within seconds."""
    return wait_until(lambda: read_token(directory, name), seconds, PAUSE)


def remove_token(directory: str, name: str) -> bool:
    """Remove a token; return whether there was one."""
    try:
        os.unlink(get_path(directory, name))
    except FileNotFoundError:
        return False
    return True
