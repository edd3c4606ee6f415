"""pbs_demux of a job on several nodes: it writes what the processes on all of them print into the job's output. As root."""
import time

from ..errors import HookError, REFUSED
from ..files import connections
from ..job import identity

_SECONDS = 15
"""How long it may take until it has read what processes have printed that have ended."""
_PAUSE = 0.05


def wait_for_output(leader: int) -> None:
    """Wait until pbs_demux has passed on everything that the job's processes on all nodes have printed, as they have ended.

    :param leader: pid of the leader of the job's session
    :raises HookError: REFUSED if there are still processes that print by it
    """
    demux = identity.find_demux(leader)
    deadline = time.monotonic() + _SECONDS
    while demux:
        peers = connections.list_peers(demux.pid)
        if not peers:
            return
        if time.monotonic() > deadline:
            hosts = sorted({peer.rpartition(":")[0] for peer in peers if peer})
            raise HookError(REFUSED, "processes of the job that are in no image still print by pbs_demux (process %d; from %s), though "
                            "ckpt-run's program has ended; the job keeps running; have ckpt-run start a program that ends when it has "
                            "ended on all nodes" % (demux.pid, ", ".join(hosts) or "a new connection"))
        time.sleep(_PAUSE)
