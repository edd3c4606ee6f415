"""The module job_roundtrip on the head."""
import json
import os
import subprocess

from cluster import STORE, TOP


class Trip:
    """job_roundtrip, at work on the head from now on."""

    def __init__(self, cluster, **arguments):
        self.head = cluster.nodes["head"]
        arguments = dict({"path": ["node1", "node2"], "user": "alice", "work_path": STORE + "/alice"}, **arguments)
        self.process = subprocess.Popen(
            ["ansible", "-i", cluster.inventory, "head", "-m", "ckpt.torque.job_roundtrip", "-a", json.dumps(arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, cwd=TOP,
            env=dict(os.environ, ANSIBLE_CONFIG=str(TOP / "ansible.cfg"), ANSIBLE_NOCOLOR="1"))

    def read_result(self):
        """Return what it says in the end."""
        text = self.process.communicate()[0]
        assert self.process.returncode == 0, text
        return json.JSONDecoder().raw_decode(text[text.index("{"):])[0]

    def answer(self):
        """Return what it says in the end, which must be that all is well."""
        result = self.read_result()
        assert (result["passed"], result["cause"], result.get("exit_status")) == (True, "", 7), result
        assert self.head.run("ls -d %s/%s.CK" % (STORE, result["job_id"].replace("[0]", "-0"))).out == ""
        return result
