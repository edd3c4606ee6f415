"""$rcpcmd: what pbs_mom copies.

pbs_mom calls it as the job's user with scp's arguments: an image goes to the server when it has been written, and comes from there
before a restart (transfer.py). What is no image, the job's output, is left to scp.
"""
import os
import time

from .. import config
from ..errors import HookError, USAGE
from ..store import server_directory, transfer
from ..telemetry.report import Report
from ..torque import contract, names

SCP = "/usr/bin/scp"


def main(argv: "list[str]", config_path: str) -> int:
    """Copy as pbs_mom asks to; return the exit code.

    :param argv: what scp would be given
    :param config_path: the hooks' configuration
    """
    copy = contract.parse_copy(argv)
    if copy is None:
        os.execv(SCP, [SCP] + argv[1:])
    with Report("copy", names.find_job_id(copy.directory)) as report:
        if copy.out == copy.back:
            raise HookError(USAGE, "copy: one of source and target must be on this node; nothing was done")
        started, settings = time.monotonic(), config.load_settings(config_path)
        server = server_directory.find_server(settings["transfer_directory"], settings["transfer_ssh_config"], copy.account)
        if copy.out:
            size = transfer.copy_to_server(server, copy.source, copy.directory, copy.name, settings["depth"])
        else:
            size = transfer.fetch_from_server(server, copy.target, copy.directory, copy.name)
        report.log_success(outcome="copied" if size else "here", direction="out" if copy.out else "in", image=copy.name, bytes=size,
                           seconds=round(time.monotonic() - started, 3))
    return report.code
