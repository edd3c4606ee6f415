"""That a refusal has its exact sentence, and that hosts and controller are afterwards as they were."""
import json
import re

from jobs import BIN

SERVICES = {"head": "trqauthd pbs_server pbs_sched", "node1": "pbs_mom", "node2": "pbs_mom"}
LOOK = """\
cd /; systemctl show -p Id,MainPID,ActiveState %s; ls -A /opt/torque /var/tmp/torque-* 2>&1; readlink /opt/torque/current
sha256sum /etc/systemd/system/pbs_* /etc/systemd/system/trqauthd* /var/spool/torque/mom_priv/config /var/spool/torque/server_name 2>&1
"""
MANAGED = BIN + "/qmgr -c 'print server' | grep -v next_job_number; " + BIN + "/pbsnodes -a | grep -v status"

REST = """\
for n in $(seq 300); do
    nodes=$(%s/pbsnodes -a)
    [ $(echo "$nodes" | grep -c "state = free$") = 2 ] && ! echo "$nodes" | grep -q " jobs = " && exit
    sleep 0.2
done
echo "$nodes" >&2
exit 1
""" % BIN


def state(cluster):
    """What must not change: services, TORQUE, its configuration (list of str). Waits for the end of what earlier tests had running."""
    cluster.nodes["head"].ask(REST)
    return [cluster.nodes[name].run(LOOK % services).out for name, services in SERVICES.items()] + [cluster.nodes["head"].ask(MANAGED)]


def sentences(done):
    """The messages of tasks (list of str), their white space made even."""
    return [" ".join(json.loads(text).split()) for text in re.findall(r'"msg": ("(?:[^"\\]|\\.)*")', done.out)]


def refusal(done, sentence):
    """A role must have said exactly this (str, or a compiled pattern) and failed."""
    assert done.code != 0, done.out
    pattern = re.compile(re.escape(sentence)) if isinstance(sentence, str) else sentence
    assert any(pattern.fullmatch(text) for text in sentences(done)), done.out
