"""A directory of a job's images that is full for a while: what the nodes of the case full_store do."""
import pathlib
import shlex

import pytest
from cluster import STORE

SCRIPT = pathlib.Path(__file__).parents[2] / "playbooks/files/full_store.sh"
NAME = "7.head.CK"
REQUEST = "/home/alice/request"


@pytest.fixture
def node1(cluster):
    """A node on which alice has a directory of images, with a file in it."""
    node = cluster.nodes["node1"]
    node.ask("runuser -u alice -- sh -c 'mkdir -p {0}/alice/{1} && echo image > {0}/alice/{1}/image'".format(STORE, NAME))
    yield node
    node.ask("rm -rf {0}/alice/{1} {2} {2}.full".format(STORE, NAME, REQUEST))
    assert node.run("grep ckpt-torque-validate /proc/mounts; pgrep -u alice").out == ""


def asks(name, then="", seconds=60):
    """Return a shell's text that has the node fill what the request names, and then does something; it prints what the node answers."""
    return ("{script} & runuser -u alice -- sh -c 'echo \"$0\" > {file}' {name}; until [ -s {file}.full ]; do sleep 0.1; done; "
            "cat {file}.full; {then} wait; ls {file}* 2> /dev/null; cat {store}/alice/{own}/image").format(
                script="sh -c %s full_store.sh alice %s %s %d" % (shlex.quote(SCRIPT.read_text()), REQUEST, STORE, seconds),
                file=REQUEST, name=shlex.quote(name), then=then, store=STORE, own=NAME)


FULL = "df --output=avail -B 1 {0}/alice/{1} | tail -n 1; ls {0}/alice/{1} | wc -l; ".format(STORE, NAME)


@pytest.mark.parametrize("end", ["rm %s;" % REQUEST, "kill $!;", "sleep 3;"], ids=["request", "stopped", "time"])
def test_directory_is_full_until(node1, end):
    done = node1.ask(asks(NAME, FULL + end, seconds=3 if "sleep" in end else 60))
    assert done.split() == ["65536", "0", "image"]


@pytest.mark.parametrize("name, made, answer", [
    ("../../etc", "", "../../etc is no directory of a job's images"),
    (".ssh", "", ".ssh is no directory of a job's images"),
    ("8.head.CK", "", "alice has no directory 8.head.CK in %s on node1" % STORE),
    ("8.head.CK", "ln -s /etc %s/alice/8.head.CK; ", "alice has no directory 8.head.CK in %s on node1" % STORE),
    ("8.head.CK", "ln -s /home/alice %s/alice/8.head.CK; ", "alice has no directory 8.head.CK in %s on node1" % STORE),
], ids=["path", "hidden", "missing", "link to root's", "link to his own"])
def test_request_for_another_directory(node1, name, made, answer):
    node1.ask("runuser -u alice -- sh -c '%s:'" % (made % STORE if made else ""))
    try:
        assert node1.ask(asks(name, "rm %s;" % REQUEST)).splitlines() == [answer, "image"]
    finally:
        node1.ask("rm -f %s/alice/8.head.CK" % STORE)
