"""Many moves at once, by pbs_sched and by the administrator in the same moment (storm/storm.py)."""
import json
import pathlib
import re
import subprocess

from cluster import STORE
from jobs import BIN, slots

PROGRAM = pathlib.Path(__file__).parents[1] / "storm/storm.py"
DAEMONS = {"head": "pbs_server", "node1": "pbs_mom", "node2": "pbs_mom"}


def processes(cluster):
    """The process ids (str) of TORQUE's daemons, by host."""
    return {host: cluster.nodes[host].ask("systemctl show --value -p MainPID " + daemon) for host, daemon in DAEMONS.items()}


def storm(cluster, moves, jobs, seconds):
    """Move that many jobs so often altogether; return what storm.py counted (dict), after a look at whether anything was lost."""
    head, before = cluster.nodes["head"], processes(cluster)
    directory = STORE + "/alice/storm"
    with slots(head, 2 * jobs):
        head.ask("rm -rf {0}; install -d -o alice {0}; cat > /tmp/storm.py <<'X'\n{1}\nX".format(directory, PROGRAM.read_text()))
        try:
            done = subprocess.run(head.command + ["python3 /tmp/storm.py %d %d node1 node2 %s" % (moves, jobs, directory)],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                                  timeout=seconds, check=False)
            assert done.returncode == 0, done.stderr
            result = json.loads(done.stdout)
            assert not result["wrong"], "; ".join(result["wrong"])
            assert processes(cluster) == before
            return result["count"]
        finally:
            for job in re.findall(r"^(\d+)\S* +\S+ +alice ", head.run(BIN + "/qstat").out, re.MULTILINE):
                head.run("%s/qdel -p %s" % (BIN, job))
            head.run("rm -rf %s /tmp/storm.py" % directory)
