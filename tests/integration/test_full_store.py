"""A directory of a job's images that is full for a while: what the nodes of the case full_store do."""
import pathlib
import re
import shlex

import pytest
from cluster import STORE

SCRIPT = pathlib.Path(__file__).parents[2] / "playbooks/files/full_store.py"
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


def asks(name, then="", seconds=60, before=""):
    """Return a shell's text that has the node fill what the request names, and then does something; it prints what the node answers.

    :param before: Python that the script runs first
    """
    return ("{script} & runuser -u alice -- sh -c 'echo \"$0\" > {file}' {name}; until [ -s {file}.full ]; do sleep 0.1; done; "
            "cat {file}.full; {then} wait; ls {file}* 2> /dev/null; cat {store}/alice/{own}/image").format(
                script="python3 -I -c %s alice %s %s %d" % (shlex.quote(before + SCRIPT.read_text()), REQUEST, STORE, seconds),
                file=REQUEST, name=shlex.quote(name), then=then, store=STORE, own=NAME)


FULL = "df --output=avail -B 1 {0}/alice/{1} | tail -n 1; ls {0}/alice/{1} | wc -l; ".format(STORE, NAME)


@pytest.mark.parametrize("end", ["rm %s;" % REQUEST, "kill $!;", "sleep 3;"], ids=["request", "stopped", "time"])
def test_directory_is_full_until(node1, end):
    done = node1.ask(asks(NAME, FULL + end, seconds=3 if "sleep" in end else 60))
    assert done.split() == ["65536", "0", "image"]


def test_user_has_no_hold_on_it(node1):
    """Nothing of it is a process of the user's, and she cannot end what is root's."""
    done = node1.ask(asks(NAME, "pgrep -u alice; runuser -u alice -- kill -KILL $! 2>&1; %s rm %s;" % (FULL, REQUEST)))
    assert re.fullmatch(r"kill: .*Operation not permitted\s+65536\n0\nimage", done), done


@pytest.fixture
def closed(node1):
    """Open a directory of alice's again that was closed to everybody; yield it."""
    directory = "%s/alice" % STORE
    mode = node1.ask("stat -c %a " + directory)
    yield directory
    node1.ask("chmod %s %s" % (mode, directory))


def test_user_who_forbids_herself_the_directory_above(node1, closed):
    done = node1.ask(asks(NAME, "%s runuser -u alice -- chmod 000 %s; rm %s;" % (FULL, closed, REQUEST)))
    assert done.split() == ["65536", "0", "image"]


CLOSE = """\
import os
def close_and_open(path, flags, *mode, before=os.open):
    if flags & os.O_PATH:
        os.chmod("..", 0)
    return before(path, flags, *mode)
os.open = close_and_open
"""


def test_user_who_forbids_herself_the_directory_above_at_once(node1, closed):
    """Before anything could be noted of what is mounted: the node says what to unmount."""
    try:
        assert node1.ask(asks(NAME, "umount %s/%s; rm %s;" % (closed, NAME, REQUEST), before=CLOSE)).splitlines() == [
            "a file system was mounted over %s in %s on node1, and alice closed the way to it (Permission denied); unmount it"
            % (NAME, STORE), "image"]
    finally:
        node1.run("umount %s/%s" % (closed, NAME))


# She has a link to another directory where her images are, and her images again, each for a millisecond at most.
ATTACK = """\
import os, random, sys, time
path = sys.argv[1]
os.symlink("/srv/target", path + ".link")
while os.path.exists("/srv/target"):
    for first, second in ((path, path + ".away"), (path + ".link", path), (path, path + ".link"), (path + ".away", path)):
        try:
            os.rename(first, second)
        except OSError:
            pass  # something is mounted there
        time.sleep(random.random() / 1000)
"""
# Requests until one was fulfilled and one refused; what is covered after each answer.
ATTACKED = """\
mkdir -m 1777 /srv/store && mkdir -p /srv/store/alice/{name} /srv/target/{name} && chown -R alice /srv/store/alice /srv/target
runuser -u alice -- timeout 100 python3 -c {attack} {moved} &
for round in $(seq 40); do
  python3 -I -c {script} alice {request} /srv/store 60 2>&1 & node=$!
  runuser -u alice -- sh -c 'echo {name} > {request}'
  until [ -s {request}.full ]; do sleep 0.02; done
  [ -n "$(cat {request}.full)" ] && refused=$(cat {request}.full) || fulfilled=yes
  sed -n 's/^ckpt-torque-validate \\([^ ]*\\) .*/\\1/p' /proc/mounts
  rm {request}
  wait $node
  [ -z "$refused" ] || [ -z "$fulfilled" ] || break
done
rm -r /srv/target
wait
echo "$fulfilled $refused"
"""


@pytest.mark.parametrize("moved", ["/srv/store/alice/" + NAME, "/srv/store/alice"], ids=["directory", "directory above"])
def test_user_who_moves_the_directory(node1, moved):
    try:
        *covered, last = node1.ask(ATTACKED.format(name=NAME, attack=shlex.quote(ATTACK), moved=moved, request=REQUEST,
                                                   script=shlex.quote(SCRIPT.read_text()))).splitlines()
        assert last == "yes alice has no directory %s in /srv/store on node1" % NAME
        assert covered and all(re.match("/srv/store/alice[^/]*/[^/]+$", path) for path in covered), covered
    finally:
        node1.ask("rm -rf /srv/store /srv/target")


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
