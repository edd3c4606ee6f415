"""Many moves at once, by pbs_sched and by the administrator in the same moment (storm/storm.py)."""
import json
import pathlib
import re
import subprocess

from cluster import STORE
from jobs import BIN, await_nodes

PROGRAM = pathlib.Path(__file__).parents[1] / "storm/storm.py"
DAEMONS = {"head": "pbs_server", "node1": "pbs_mom", "node2": "pbs_mom"}


def processes(cluster):
    """The process ids (str) of TORQUE's daemons, by host."""
    return {host: cluster.nodes[host].ask("systemctl show --value -p MainPID " + daemon) for host, daemon in DAEMONS.items()}


def storm(cluster, moves, jobs, seconds):
    """Move that many jobs so often altogether; return what storm.py counted (dict), after a look at whether anything was lost."""
    head, before = cluster.nodes["head"], processes(cluster)
    directory = STORE + "/alice/storm"
    await_nodes(head)
    slots = {name: head.ask("%s/pbsnodes %s | sed -n 's/^ *np = //p'" % (BIN, name)) for name in ("node1", "node2")}
    head.ask("{0}/qmgr -c 'set server auto_node_np = False'; for node in node1 node2; do {0}/qmgr -c \"set node $node np = {1}\"; done; "
             "rm -rf {2}; install -d -o alice {2}".format(BIN, 2 * jobs, directory))
    head.ask("cat > /tmp/storm.py <<'X'\n%s\nX" % PROGRAM.read_text())
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
        for name, count in slots.items():
            head.run("%s/qmgr -c 'set node %s np = %s'" % (BIN, name, count))
        head.run("%s/qmgr -c 'set server auto_node_np = True'; rm -rf %s /tmp/storm.py" % (BIN, directory))
