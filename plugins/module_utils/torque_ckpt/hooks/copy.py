"""$rcpcmd: what pbs_mom copies.

pbs_mom calls it as the job's user with scp's arguments, -rpB SOURCE TARGET: an image goes to the server when it has been made, and comes
from there before a restart (transfer.py). What is no image, the job's output, is scp's.
"""
import os
import re
import time

from .. import config
from ..errors import HookError, USAGE
from ..store import transfer
from ..telemetry import report

SCP = "/usr/bin/scp"

_REMOTE = re.compile(r"([^@:/]+)@([^:/]+):(/.*)")
_IMAGE = re.compile(r"(?:.*/)?([A-Za-z0-9_.\[\]-]+\.CK)/+(ckpt\.[A-Za-z0-9_.\[\]-]+)")


def main(argv, config_path):
    """Copy as pbs_mom asks to.

    :param argv: list of str: what scp would be given
    :param config_path: the hooks' configuration (str)
    """
    source, target = argv[-2:] if len(argv) > 2 else ("", "")
    out, back = _REMOTE.fullmatch(target), _REMOTE.fullmatch(source)
    image = _IMAGE.fullmatch((out or back).group(3)) if out or back else None
    if image is None:
        os.execv(SCP, [SCP] + argv[1:])
    job, name = image.groups()

    def work():
        if bool(out) == bool(back):
            raise HookError(USAGE, "copy: one of source and target must be on this node; nothing was done")
        started, settings = time.monotonic(), config.load(config_path)
        way = transfer.place(settings["transfer_directory"], settings["transfer_ssh_config"], "%s@%s" % (out or back).group(1, 2))
        size = transfer.put(way, source, job, name, settings["depth"]) if out else transfer.get(way, target, job, name)
        report.done("copy", job=job[:-3], outcome="copied" if size else "here", direction="out" if out else "in", image=name, bytes=size,
                    seconds=round(time.monotonic() - started, 3))
    return report.guard("copy", work, job[:-3])
