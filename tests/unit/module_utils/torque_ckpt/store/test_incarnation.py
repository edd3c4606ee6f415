"""A job that runs twice: only the life that started last writes and removes images."""
import json
import os
import re
import time

import pytest
from engine_scripts import OPEN_FILES

from torque_ckpt import errors
from torque_ckpt.image import seal
from torque_ckpt.job import identity, records
from torque_ckpt.job.records import Records
from torque_ckpt.store import generations, incarnation
from torque_ckpt.system import processes

KEYS = [("first", bytes([0x17]) * 32)]
"""As conftest.Site has them."""

NAME = ".incarnation.12.head"

ENGINE = """
case $1 in
dump)
    echo memory > $5/pages.img
    OPEN_FILES
    [ $7 != --action-script ] || CRTOOLS_IMAGE_DIR=$5 CRTOOLS_SCRIPT_ACTION=post-dump $8
    %s
    ;;
--version) echo 'Version: 4.1.1' ;;
esac
""".replace("OPEN_FILES", OPEN_FILES)


def other(site, keys=None, **values):
    """Return the text of another life's incarnation, which started an hour from now."""
    fields = {"id": "ab" * 16, "job_id": "12.head", "uid": site.user.uid, "node": "node2", "started": time.time() + 3600, "generation": 1,
              "process": []}
    return json.dumps(seal.add_seal(keys or KEYS, dict(fields, **values), b"incarnation"))


def put(site, text):
    path = os.path.join(site.directory, NAME)
    with open(path, "w") as stream:
        stream.write(text)
    os.chown(path, site.user.uid, site.user.gid)
    return path


def written(site):
    with open(os.path.join(site.directory, NAME)) as stream:
        return json.load(stream)


def named(site, name):
    with open(os.path.join(site.directory, name, "manifest.json")) as stream:
        return json.load(stream)["incarnation"]


@pytest.fixture
def job(start_job, program, site):
    program(ENGINE % "")
    return start_job(user=site.user)


@pytest.fixture
def checkpoint(hook, site, job):
    """Return a function that has the checkpoint hook write image number (int) of a job that goes on."""
    def call(number, depth="-"):
        return hook("checkpoint", site.arguments(session=str(job.leader), name="ckpt.12.head.%d" % number) + ["0", depth], site.config)
    return call


def refusal(site, job, elsewhere):
    root = processes.read_process(job.pids[0])
    return ("job 12.head continues on %s since %s; what runs on %s is an older life of it, since %s (if that is wrong, compare the two "
            "clocks and remove %s/%s); nothing was written or removed\n" % (
                elsewhere["node"], shown(elsewhere["started"]), os.uname().nodename, shown(processes.get_start_time(root)),
                site.directory, NAME))


def shown(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


# A checkpoint

@pytest.mark.root
def test_first_image_writes_it_and_the_next_keeps_it(checkpoint, site, job):
    assert checkpoint(1) == (0, "", "")
    first = written(site)
    root = processes.read_process(job.pids[0])
    assert seal.is_sealed(KEYS, first, b"incarnation")
    assert re.fullmatch("[0-9a-f]{32}", first["id"])
    assert abs(first["started"] - processes.get_start_time(root)) < 1
    assert (first["job_id"], first["uid"], first["node"], first["generation"]) == ("12.head", site.user.uid, os.uname().nodename, 0)
    assert first["process"][1:] == [root.pid, root.start]
    status = os.stat(os.path.join(site.directory, NAME))
    assert (status.st_mode, status.st_uid) == (0o100600, site.user.uid)
    assert checkpoint(2) == (0, "", "")
    assert written(site) == first
    assert [named(site, "ckpt.12.head.%d" % number) for number in (1, 2)] == [first["id"]] * 2


@pytest.mark.root
def test_job_that_continues_elsewhere(checkpoint, site, job, state_of):
    """Neither written nor pruned, though there are too many."""
    for number in (1, 2, 3):
        site.publish("ckpt.12.head.%d" % number, 7, [7], generation=number)
    put(site, other(site))
    before = site.content()
    assert checkpoint(4) == (errors.REFUSED, "", refusal(site, job, written(site)))
    assert site.content() == before
    assert state_of(job.pids[0]) == "S"


@pytest.mark.root
def test_restart_elsewhere_while_the_image_is_written(checkpoint, site, job, program):
    site.publish("ckpt.12.head.1", 7, [7])
    text, draft = other(site), os.path.join(site.directory, "new")
    with open(draft, "w") as stream:
        stream.write(text)
    os.chown(draft, site.user.uid, -1)
    program(ENGINE % ("mv %s %s/%s" % (draft, site.directory, NAME)))
    assert checkpoint(2) == (errors.REFUSED, "", refusal(site, job, json.loads(text)))
    assert sorted(os.listdir(site.directory)) == [NAME, "ckpt.12.head.1"]
    assert written(site)["node"] == "node2"


@pytest.mark.root
def test_job_that_started_again_takes_over(checkpoint, site):
    """The images of the life before it do not count as its own, but stay until it has enough."""
    for number in (1, 2):
        site.publish("ckpt.12.head.%d" % number, 7, [7], generation=number)
    put(site, other(site, started=time.time() - 3600))
    assert checkpoint(3) == (0, "", "")
    assert (written(site)["node"], written(site)["generation"]) == (os.uname().nodename, 0)
    assert sorted(os.listdir(site.directory)) == [NAME, "ckpt.12.head.1", "ckpt.12.head.2", "ckpt.12.head.3"]
    assert checkpoint(4) == (0, "", "")
    assert sorted(os.listdir(site.directory)) == [NAME, "ckpt.12.head.3", "ckpt.12.head.4"]


@pytest.mark.root
@pytest.mark.parametrize("change", [
    lambda site: "", lambda site: "no JSON", lambda site: "[" * 4096, lambda site: "{}", lambda site: other(site)[:-2],
    lambda site: other(site).replace("node2", "node3"), lambda site: other(site, job_id="13.head"), lambda site: other(site, uid=7),
    lambda site: other(site, keys=[("first", b"x" * 32)]), lambda site: other(site, started="now"), lambda site: other(site, more=1)],
    ids=["empty", "text", "nested", "object", "cut", "changed", "other job", "other user", "forged", "type", "field"])
def test_file_that_nobody_sealed_for_this_job(checkpoint, site, change):
    """It is as if there was none."""
    put(site, change(site))
    site.publish("ckpt.12.head.1", 7, [7])
    assert checkpoint(2) == (0, "", "")
    assert (written(site)["node"], written(site)["generation"]) == (os.uname().nodename, 1)


@pytest.mark.root
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/etc/passwd", path), lambda path: os.symlink("nowhere", path)],
                         ids=["fifo", "link", "dangling"])
def test_something_else_in_its_place(checkpoint, site, make):
    path = os.path.join(site.directory, NAME)
    make(path)
    os.chown(path, site.user.uid, -1, follow_symlinks=False)
    assert checkpoint(1) == (0, "", "")
    assert written(site)["node"] == os.uname().nodename
    assert not os.path.lexists(os.path.join(site.directory, "nowhere"))


@pytest.mark.root
def test_directory_in_its_place(checkpoint, site, state_of, job):
    os.mkdir(os.path.join(site.directory, NAME))
    assert checkpoint(1) == (errors.CANNOT_WRITE, "", "cannot write .incarnation.12.head of job 12.head: Is a directory; see to the space, "
                                                      "the quota and the rights in the store\n")
    assert sorted(os.listdir(site.directory)) == [NAME]
    assert state_of(job.pids[0]) == "S"


@pytest.mark.root
def test_key_that_this_node_lacks(checkpoint, site):
    put(site, other(site, keys=[("second", b"s" * 32)]))
    before = site.content()
    assert checkpoint(1) == (
        errors.TEMPORARY, "", "the incarnation of job 12.head was sealed with the key 'second', which this node does not have; run "
        "site.yml on this node, or remove %s/%s if that key is gone for good; nothing was written or removed\n" % (site.directory, NAME))
    assert site.content() == before


def rotate(site, *names):
    """Lay these keys on the node; the first one seals."""
    with open(site.key, "w") as stream:
        json.dump({"keys": [{"id": name, "secret": ("17" if name == "first" else "18") * 32} for name in names]}, stream)


@pytest.mark.root
def test_job_outlives_the_key_with_which_it_began(checkpoint, site):
    """Its next image after the rotation renews the seal: then the old key may go."""
    assert checkpoint(1) == (0, "", "")
    first = written(site)
    rotate(site, "second", "first")
    assert checkpoint(2) == (0, "", "")
    renewed = written(site)
    assert dict(renewed, key="first", mac=first["mac"]) == first
    assert renewed["key"] == "second" and seal.is_sealed([("second", bytes([0x18]) * 32)], renewed, b"incarnation")
    rotate(site, "second")
    assert checkpoint(3) == (0, "", "")
    assert written(site) == renewed


@pytest.mark.root
def test_failed_checkpoint_writes_none(checkpoint, site, program):
    program("exit 1\n")
    assert checkpoint(1).code == errors.ENGINE
    assert os.listdir(site.directory) == []


# A restarted job: root's record says which life it is

@pytest.fixture
def restarted(site, job):
    """Note on this node that the job was restarted with an incarnation; return that (dict)."""
    mine = json.loads(other(site, id="cd" * 16, node=os.uname().nodename, started=time.time() - 60, generation=1))
    leader, root = map(processes.read_process, (job.leader, job.pids[0]))
    identity.write_record(Records(site.run_directory, "12.head"), leader, root, incarnation=mine)
    return mine


@pytest.mark.root
def test_restarted_job_is_known_by_its_record(checkpoint, site, restarted):
    put(site, json.dumps(restarted))
    assert checkpoint(2) == (0, "", "")
    assert (written(site), named(site, "ckpt.12.head.2")) == (restarted, restarted["id"])


@pytest.mark.root
@pytest.mark.parametrize("stored", [True, False])
def test_restarted_job_outlives_its_key(checkpoint, site, restarted, stored):
    """Root's record vouches for its life, even if no image was written between the new key and the end of the old one."""
    if stored:
        put(site, json.dumps(restarted))
    rotate(site, "second")
    for number in (2, 3):
        assert checkpoint(number) == (0, "", "")
        renewed = written(site)
        assert dict(renewed, key="first", mac=restarted["mac"]) == restarted
        assert renewed["key"] == "second" and seal.is_sealed([("second", bytes([0x18]) * 32)], renewed, b"incarnation")


@pytest.mark.root
@pytest.mark.parametrize("stored", [None, "damaged", "older"])
def test_restarted_job_writes_its_own_again(checkpoint, site, restarted, stored):
    if stored:
        put(site, stored if stored == "damaged" else other(site, started=restarted["started"] - 1))
    assert checkpoint(2) == (0, "", "")
    assert written(site) == restarted


@pytest.mark.root
def test_restarted_job_that_continues_elsewhere(checkpoint, site, restarted):
    put(site, other(site))
    done = checkpoint(2)
    assert done.code == errors.REFUSED
    assert done.stderr.startswith("job 12.head continues on node2 since ")
    assert "is an older life of it, since %s " % shown(restarted["started"]) in done.stderr


# A restart

@pytest.mark.root
@pytest.mark.parametrize("before", [None, "theirs"])
def test_failed_restart_leaves_the_file_as_it_was(hook, site, free_pid, program, before):
    site.publish("ckpt.12.head.2", free_pid, [free_pid])
    path = os.path.join(site.directory, NAME)
    if before:
        put(site, other(site))
    seen = os.path.join(os.path.dirname(site.store), "seen")
    open(seen, "w").close()
    os.chown(seen, site.user.uid, -1)
    program("cat %s > %s\nexit 1\n" % (path, seen))
    content = site.content()
    assert hook("restart", site.arguments(), site.config).code == errors.ENGINE
    assert site.content() == content
    with open(seen) as stream:  # it was there before the processes were
        new = json.load(stream)
    assert seal.is_sealed(KEYS, new, b"incarnation")
    assert (new["node"], new["generation"], new["process"]) == (os.uname().nodename, 1, [])
    assert Records(site.run_directory, "12.head").read(records.JOB) is None


@pytest.mark.root
def test_failed_restart_leaves_the_file_of_a_life_that_began_meanwhile(hook, site, free_pid, program):
    site.publish("ckpt.12.head.2", free_pid, [free_pid])
    theirs = other(site)
    program("printf %%s '%s' > %s/%s\nexit 1\n" % (theirs, site.directory, NAME))
    assert hook("restart", site.arguments(), site.config).code == errors.ENGINE
    assert written(site) == json.loads(theirs)


@pytest.mark.root
def test_file_that_cannot_be_written_keeps_no_job_from_its_restart(hook, site, free_pid, program):
    site.publish("ckpt.12.head.2", free_pid, [free_pid])
    os.mkdir(os.path.join(site.directory, NAME))
    program("echo reached >&2\nexit 1\n")
    assert hook("restart", site.arguments(), site.config).stderr == ("criu restore failed with status 1: reached; the image is kept; "
                                                                     "restart the job on another node, or see whether torque-ckpt selftest "
                                                                     "passes on this node (as root)\n")


# What belongs to a life

def image(number, life, whole=True):
    return generations.Image("ckpt.12.head.%d" % number, number, number, whole, {"incarnation": life} if life else {})


@pytest.mark.parametrize("number, life, belongs", [(1, "a", True), (2, "a", True), (3, "a", False), (3, "b", True), (4, None, False)])
def test_what_belongs_to_a_life(number, life, belongs):
    """B was restarted from image 2 of A, or of older hooks; what A made afterwards is not B's."""
    assert generations.belongs_to(image(number, life), {"id": "b", "generation": 2}) is belongs
    assert generations.belongs_to(image(number, life), None)


def test_file_is_no_image(tmp_path):
    (tmp_path / NAME).write_text("{}")
    assert incarnation.name_file("12.head") == NAME
    directory = os.open(str(tmp_path), os.O_RDONLY)
    try:
        assert generations.list_images(directory) == []
        assert generations.sweep_leftovers(directory, 0) == []
        assert incarnation.read_incarnation(directory, "12.head") is None
    finally:
        os.close(directory)
    assert os.listdir(str(tmp_path)) == [NAME]
