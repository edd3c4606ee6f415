"""Level L0 on real hosts: one thing is wrong on node2 at a time, and only that node is named, with cause and cure."""
import json
import pathlib
import re

import pytest
import yaml
from cluster import HOOKS, MOM_CONFIG, STORE, TOP, Cluster

RECORD = "/etc/ckpt-torque/nodes/node2.json"
CRIU = "/opt/criu/current/sbin/criu"


@pytest.fixture
def look(cluster, tmp_path):
    """Return a function that runs the play of level L0 of validate.yml and returns its sentences (list of str)."""
    play = next(play for play in yaml.safe_load((TOP / "playbooks/validate.yml").read_text()) if "(level L0)" in play["name"])
    copy = {"content": "{{ __validate_looked | to_json }}", "dest": str(tmp_path / "looked.json")}
    play["tasks"].append({"ansible.builtin.copy": copy, "delegate_to": "localhost", "run_once": True, "become": False})
    play["vars_files"] = [str(TOP / "playbooks/vars/validate.yml")]
    (tmp_path / "play.yml").write_text(json.dumps([play]))

    def run(inventory=cluster.inventory):
        done = Cluster._ansible("ansible-playbook", "-i", inventory, str(tmp_path / "play.yml"))
        assert done.code == 0, done.out
        causes = [result["cause"] for result in json.loads((tmp_path / "looked.json").read_text()) if not result["passed"]]
        assert all(json.dumps(cause) in done.out for cause in causes), done.out
        return causes
    return run


def test_nothing_is_wrong(look):
    assert look() == []


@pytest.mark.parametrize("harm, repair, sentence", [
    ("sed -i '0,/a/s//b/' {0}/torque_ckpt/units.py", "cp -a /root/units.py {0}/torque_ckpt/units.py",
     "the hooks differ from those of the collection (torque_ckpt/units.py); run site.yml on it"),
    ("echo 'sys.exit(0)' >> {0}/checkpoint", "sed -i '$d' {0}/checkpoint",
     "the hooks' checkpoint is not as the others are; run site.yml on it"),
    ("mount -t tmpfs none {1}", "umount {1}",
     "store {1} is not usable on this node: {1}/.ckpt-torque-store: No such file or directory; is it mounted?"),
    ("cp -a {1}/.ckpt-torque-store /root/store && mount -t tmpfs -o size=1M,mode=711 none {1} && cp -a /root/store {1}/.ckpt-torque-store",
     "umount {1}", "store {1} has 1020.0 KiB free, of which 1.0 GiB are reserved; free some space there or lower checkpoint_hooks_reserve"),
    ("usermod -u 1700 alice", "usermod -u 1500 alice",
     "the user of the jobs has uid 1700 and gid 1500, on node1 uid 1500 and gid 1500; change the account, with all its files, so that they "
     "are the same everywhere"),
    ("cp -a {2} /root/record.json; python3 -c 'import json, sys; record = json.load(open(\"{2}\")); record[\"cpu\"].remove(\"sse2\"); "
     "json.dump(record, open(\"{2}\", \"w\"))'", "mv /root/record.json {2}",
     "{2} says that its CPU lacks sse2, which it has, so that \"torque-ckpt show\" is wrong about it; run site.yml on it"),
    ("mv {3} {3}.new; printf '#!/bin/sh\\n[ \"$1\" = --version ] && echo Version: 4.0 && exit\\nexec {3}.new \"$@\"\\n' > {3}; "
     "chmod 755 {3}",
     "mv {3}.new {3}", "the engine is criu 4.0, on node1 it is criu 4.2.1; install the same version, or run site.yml on it"),
    ("cp -a /usr/bin/bash /root/bash; cp /root/bash /usr/bin/bash.new; printf x >> /usr/bin/bash.new; mv /usr/bin/bash.new /usr/bin/bash",
     "mv /root/bash /usr/bin/bash", "/usr/bin/bash is of "),
], ids=["hook", "program", "store", "full_store", "uid", "record", "engine", "library"])
def test_one_node_is_named(look, node2, harm, repair, sentence):
    harm, repair, sentence = [text.format(HOOKS, STORE, RECORD, CRIU) for text in (harm, repair, sentence)]
    node2.ask("cp -a %s/torque_ckpt/units.py /root/units.py" % HOOKS)
    try:
        node2.ask(harm)
        faults = look()
    finally:
        node2.ask(repair)
    assert len(faults) == 1 and faults[0].startswith("node2: " + sentence), faults
    assert look() == []


def test_clock(cluster, look, node2, tmp_path):
    """All containers have one clock: the interpreter of node2 adds two hours to it."""
    node2.ask("mkdir -p /root/clock && echo 'import time; right = time.time; time.time = lambda: right() + 7200' > "
              "/root/clock/sitecustomize.py && printf '#!/bin/sh\\nPYTHONPATH=/root/clock exec /usr/bin/python3 \"$@\"\\n' > "
              "/root/clock/python3 && chmod 755 /root/clock/python3")
    inventory = json.loads(pathlib.Path(cluster.inventory).read_text())
    inventory["all"]["hosts"]["node2"]["ansible_python_interpreter"] = "/root/clock/python3"
    (tmp_path / "inventory.json").write_text(json.dumps(inventory))
    fault, = look(str(tmp_path / "inventory.json"))
    assert re.fullmatch("node2: its clock is 7(200|19[0-9]) seconds ahead; set it, by NTP for instance", fault)


def test_pbs_mom_that_does_not_run(look, torque, node2):
    node2.ask("systemctl stop pbs_mom")
    try:
        assert look() == ["node2: pbs_mom does not run; look at \"journalctl -u pbs_mom\" and start it"]
    finally:
        node2.ask("systemctl start pbs_mom")


def test_configuration_written_by_hand(look, torque, node2):
    node2.ask("cp -a {0} /root/config && sed -i '/restart_script/d' {0}".format(MOM_CONFIG))
    try:
        assert look() == [
            "node2: %s names no checkpoint_script or no restart_script; run site.yml on it" % MOM_CONFIG]
        node2.ask("cp -a /root/config {0} && sed -i 's,^$usecp .*,$usecp *:/home /home,' {0}".format(MOM_CONFIG))
        fault, = look()
        assert fault.startswith("node2: mom_priv/config has $usecp *:/home /home, that of node1 has $usecp ")
    finally:
        node2.ask("mv /root/config " + MOM_CONFIG)
