# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The TORQUE server, read and changed through qmgr."""

from . import commands, qmgr
from .qmgr import QmgrError

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Iterable


class Server:
    """The TORQUE server, through qmgr.

    :param path: of qmgr
    :param timeout: seconds to read
    :param run: as commands.run
    """

    def __init__(self, path: str, timeout: int, run: "Callable[..., tuple[int, str, str]]" = commands.run) -> None:
        self.path = path
        self.timeout = timeout
        self.run = run

    def read(self, kinds: "Iterable[str]") -> dict:
        """Return the live state of the kinds.

        The server comes last: qmgr complains of a list that is empty, and its status is the last command's.
        """
        lines = ["list %s @default" % kind for kind in kinds if kind != "server"] + ["list server"]
        status, output, error = self.run([self.path], "".join(line + "\n" for line in lines), self.timeout)
        state = qmgr.parse(output)
        if status != 0 or not state["server"]:
            raise QmgrError(commands.describe_silence("qmgr", commands.join_complaint(error) or "it printed nothing (status %d)" % status))
        return state

    def execute(self, lines: "list[str]") -> "tuple[list[str], str | None]":
        """Run commands of qmgr; stop at the first that fails.

        :returns: (those that were done, None or a sentence on the one that failed)
        """
        try:
            status, output, error = self.run([self.path, "-a", "-e"], "".join(line + "\n" for line in lines),
                                             self.timeout + len(lines))
        except commands.CommandError as failure:
            return [], "%s; how many of %d commands were done is not known: run again, it does what is left" % (
                failure, len(lines))
        if status == 0:
            return lines, None
        failed = max(qmgr.echoed(output, lines) - 1, 0)
        cause = commands.join_complaint(error) or "status %d" % status
        return lines[:failed], "qmgr refused '%s': %s%s; %d of %d commands had been done; fix the cause and run again" % (
            lines[failed], cause, give_advice(cause), failed, len(lines))


def give_advice(cause: str) -> str:
    """Return what to know (may be empty) about an error message of qmgr."""
    if "Unauthorized" in cause or "insufficient permission" in cause:
        return " (only root on the server's host and the server's managers may do this)"
    if "Unknown node" in cause:
        return " (the server's host must resolve a new node's name)"
    if "Bad ACL entry" in cause:
        return " (each host by the name that the server's host resolves it to)"
    return ""
