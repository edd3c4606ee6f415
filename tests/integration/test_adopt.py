"""A TORQUE that somebody configured by hand, as variables; site.yml with them changes what checkpointing needs, and jobs run on."""
import re

import pytest
import yaml
from cluster import EXAMPLES, MOM_CONFIG, STORE
from jobs import BIN, COUNTS, Jobs, await_nodes

pytestmark = pytest.mark.usefixtures("torque")

CONFIG = """\
# by hand
$pbsserver head
$usecp *:/home /home
$loglevel %d
$tmpdir /var/tmp
$checkpoint_script /usr/local/sbin/old
size[fs=/tmp]
"""
SERVER = ("unset server keep_completed", "set server node_check_rate = 222", "set server managers += alice@head",
          "set server log_events = 127", "create queue long queue_type=Execution", "set queue long enabled=true",
          "set queue long started=true", "unset queue batch checkpoint_dir", "set server default_queue = long")
NODES = {"node1": 5, "node2": 3}


def qmgr(head, *lines):
    head.ask(" && ".join("%s/qmgr -c '%s'" % (BIN, line) for line in lines))


@pytest.fixture
def by_hand(cluster):
    """The cluster as somebody would have set it up, with a job on node1; afterwards as ever."""
    head = cluster.nodes["head"]
    with Jobs(cluster) as jobs:
        job = jobs(COUNTS, "-c", "enabled", "-l", "nodes=node1")
        job.reach("up")
        qmgr(head, *SERVER)
        for name, loglevel in NODES.items():
            cluster.nodes[name].ask("cat > %s << 'END'\n%sEND\nsystemctl restart pbs_mom" % (MOM_CONFIG, CONFIG % loglevel))
        await_nodes(head)
        try:
            yield job
        finally:
            done = cluster.playbook("site")
            qmgr(head, "delete queue long", "set server managers -= alice@head")
            for node in NODES:
                cluster.nodes[node].ask("rm -f %s.*~" % MOM_CONFIG)
            assert done.code == 0, done.out


def read_variables(directory):
    """Return what the playbook has written (dict by file), and a site has put beside its inventory as group_vars/all/torque.yml."""
    common = directory / "group_vars/all.yml"
    texts = {"all": common if common.exists() else directory / "group_vars/all/torque.yml",
             **{path.name: path for path in sorted((directory / "host_vars").iterdir())}}
    variables = {name: yaml.safe_load(path.read_text()) for name, path in texts.items()}
    variables["all"].pop("torque_version")
    return variables


def test_adopt(cluster, by_hand, tmp_path):
    head, session = cluster.nodes["head"], by_hand.session("node1")
    before = head.ask("%s/qmgr -c 'print server'" % BIN)
    done = cluster.playbook("adopt", adopt_directory=str(tmp_path / "adopted"))
    assert done.code == 0, done.out
    assert head.ask("%s/qmgr -c 'print server'" % BIN) == before
    for remark in ("the server has no keep_completed; it will be set: level L3 of ckpt.torque.validate and torque-ckpt look at jobs that "
                   "have ended", "queue batch has no checkpoint_dir; it will be the store",
                   "queue long has no checkpoint_dir; it will be the store",
                   "node1, node2: $checkpoint_script /usr/local/sbin/old will be replaced by the hooks and the store"):
        assert '"%s"' % remark in done.out, done.out
    assert read_variables(tmp_path / "adopted") == read_variables(EXAMPLES / "take-over")

    configurations = {name: cluster.nodes[name].ask("cat " + MOM_CONFIG).splitlines() for name in NODES}
    site = [str(EXAMPLES / "take-over/inventory.yml"), cluster.write_inventory(tmp_path / "hosts.json", torque_version=cluster.version)]
    check = cluster.playbook("site", "--check", "--diff", inventory=site)
    assert check.code == 0, check.out
    assert head.ask("%s/qmgr -c 'print server'" % BIN) == before
    added = set(re.findall(r"^\+(set .*)$", check.out, re.MULTILINE))
    assert added == {"set server keep_completed = 300"} | {
        "set queue %s checkpoint_dir = %s" % (queue, STORE) for queue in ("batch", "long")}

    done = cluster.playbook("site", inventory=site)
    assert done.code == 0, done.out
    after = head.ask("%s/qmgr -c 'print server'" % BIN).splitlines()
    assert set(before.splitlines()) <= set(after)
    assert set(after) - set(before.splitlines()) == added
    for name, loglevel in NODES.items():
        lines = cluster.nodes[name].ask("cat " + MOM_CONFIG).splitlines()
        assert {"$pbsserver head", "$loglevel %d" % loglevel, "$tmpdir /var/tmp", "$usecp *:/home /home", "size[fs=/tmp]",
                "$usecp *:%s %s" % (STORE, STORE), "$checkpoint_script /usr/lib/ckpt-torque/checkpoint"} <= set(lines)
    # What --check announced is what was done, to each line.
    removed, written = set(), set()
    for name in NODES:
        after_site = cluster.nodes[name].ask("cat " + MOM_CONFIG).splitlines()
        removed |= set(configurations[name]) - set(after_site)
        written |= set(after_site) - set(configurations[name])
    announced = {sign: set(re.findall(r"^\%s(?!%s )(.*)$" % (sign, re.escape(sign * 2)), check.out, re.MULTILINE)) for sign in "+-"}
    assert announced["-"] - announced["+"] - {"(secret)"} == removed  # a line that moves is in both
    assert written | added <= announced["+"]
    assert by_hand.session("node1") == session
    by_hand.hold()
    by_hand.release("node2")
    by_hand.finish()
