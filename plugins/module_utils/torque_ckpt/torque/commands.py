"""Requests to pbs_server, sent by TORQUE's commands."""
import os
import re

from ..errors import HookError, NO_SERVER

PATIENCE = 60
"""How long one of TORQUE's commands may take (seconds)."""

SERVER_CURE = "see that pbs_server runs, that trqauthd runs here (TORQUE 4 and later), and that server_name names the server"
"""What to do if pbs_server does not answer."""

_AWAY = re.compile(r"\(errno=\d{1,3}\)|did not answer within")
"""A number of three digits is an error of the system's, here of the network; TORQUE's own (no trqauthd, no permission) are above 15000."""


def is_away(fault: str) -> bool:
    """Whether what one of the commands said of its failure means that pbs_server cannot be reached; else it may only not work here."""
    return bool(_AWAY.search(fault))


class Commands:
    """TORQUE's commands on this host.

    :param path: their directory
    :param consequence: what was not done when one of them fails, for the sentence, such as "nothing was removed"
    """

    def __init__(self, path: str, consequence: str) -> None:
        self.path, self.consequence = path, consequence

    def run(self, command: str, *arguments: str) -> "tuple[int, str, str]":
        """Run a command; return its exit status, stdout and stderr.

        :raises HookError: NO_SERVER when it cannot be started or takes longer than PATIENCE
        """
        import subprocess  # costs as much as the whole dump of a small job, and most hooks send no request
        path = os.path.join(self.path, command)
        try:
            # pylint: disable-next=ansible-bad-function  # the hooks have no AnsibleModule
            process = subprocess.run([path] + list(arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, cwd="/", timeout=PATIENCE, check=False)
        except OSError as error:
            reason = os.strerror(error.errno)  # type: ignore[arg-type]  # all that subprocess raises have a number
            raise HookError(NO_SERVER, "%s cannot be started: %s; set checkpoint_hooks_torque_directory to the directory of TORQUE's "
                            "commands; %s" % (path, reason, self.consequence))
        except subprocess.TimeoutExpired:
            raise HookError(NO_SERVER, "%s did not answer within %d seconds; %s; %s" % (path, PATIENCE, SERVER_CURE, self.consequence))
        return process.returncode, process.stdout.decode("utf-8", "replace"), process.stderr.decode("utf-8", "replace")

    def make_error(self, command: str, status: int, error: str) -> HookError:
        """Return the HookError for a command that ended with this status and stderr."""
        return HookError(NO_SERVER, "pbs_server does not answer (%s exited %d: %s); %s; %s"
                         % (command, status, " ".join(error.split()) or "it printed nothing", SERVER_CURE, self.consequence))
