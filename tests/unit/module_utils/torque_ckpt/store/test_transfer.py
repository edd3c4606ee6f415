"""$rcpcmd: an image is at the other place whole, or not at all, and nothing that is the only one goes.

sftp and sshd are real ones in tests/integration/test_local_stores.py; here the server's directory is mounted.
"""
import os
import shutil
import signal

import pytest
from waiting import wait_until
from torque_ckpt.errors import HookError, CANNOT_WRITE, DATA, NO_INPUT
from torque_ckpt.hooks import copy
from torque_ckpt.image import manifest, schema
from torque_ckpt.store import generations, server_directory, transfer
from torque_ckpt.system import privilege, processes
from torque_ckpt.torque import contract

JOB = "12.head.CK"
NODE = os.uname().nodename
STAYS = "; it stays on node %s, and its job can be restarted nowhere else; restart it there (qalter -l nodes=NODE:ppn=N, then qrls)" % NODE


class Pair:
    """A node's store and the server's directory; .remote (MountedServer) is how the node reaches the latter."""

    def __init__(self, top):
        self.node, self.server = os.path.join(top, "node", JOB), os.path.join(top, "server", JOB)
        os.makedirs(self.node)
        os.makedirs(self.server)
        self.remote = server_directory.MountedServer(os.path.join(top, "server"))

    def make(self, epoch, content=b"pages", directory=None, generation=1, **more):
        """Lay an image into the node's store; return its path."""
        path = os.path.join(directory or self.node, "ckpt.12.head.%d" % epoch)
        os.mkdir(path, 0o700)
        with open(path + "/pages-1.img", "wb") as stream:
            stream.write(content)
        descriptor = os.open(path, os.O_RDONLY)
        call = contract.Call(1, "12.head", "alice", None, self.node, os.path.basename(path), 0, None)
        user = privilege.User("alice", 1500, 1500, "/")
        facts = {"engine": {"name": "criu", "version": "1"}, "root": 1, "pids": [1], "frozen_seconds": 0.1, "spool": [],
                 "generation": generation, **more}
        manifest.write_manifest(descriptor, call, user, facts, lambda body: dict(body, seal={"key": "k", "hmac": "0"}))
        os.close(descriptor)
        return path

    def put(self, path, keep=2):
        return transfer.copy_to_server(self.remote, path, JOB, os.path.basename(path), keep)

    def get(self, epoch):
        name = "ckpt.12.head.%d" % epoch
        return transfer.fetch_from_server(self.remote, os.path.join(self.node, name), JOB, name)


@pytest.fixture
def pair(open_directory):
    return Pair(open_directory)


def content(path):
    """All files beneath a path, with what they hold (dict)."""
    contents = {}
    for directory, _directories, names in os.walk(path):
        for name in names:
            with open(os.path.join(directory, name), "rb") as stream:
                contents[os.path.relpath(os.path.join(directory, name), path)] = stream.read()
    return contents


def refused(work):
    with pytest.raises(HookError) as caught:
        work()
    return caught.value.code, caught.value.sentence


# What pbs_mom asks for

@pytest.mark.parametrize("names, keep, wanted", [
    ([], 2, []),
    (["ckpt.12.head.5", "ckpt.12.head.7"], 2, []),
    (["ckpt.12.head.5", "ckpt.12.head.7", "ckpt.12.head.10"], 2, ["ckpt.12.head.5"]),
    (["ckpt.12.head.5", "ckpt.12.head.7", "ckpt.12.head.10"], 1, ["ckpt.12.head.7", "ckpt.12.head.5"]),
    (["ckpt.13.head.1", "ckpt.12.head.x", ".ckpt.12.head.3@n:1:1", "core", "ckpt.12.head.10"], 1, []),
    (["ckpt.12.head.11", "ckpt.12.head.12", "ckpt.12.head.10"], 1, ["ckpt.12.head.11"])])
def test_which_are_outdated(names, keep, wanted):
    """Of one generation by their number, not by their text; never the one that has just come."""
    assert transfer.list_outdated(dict.fromkeys(names, 1), "ckpt.12.head.10", keep) == wanted


def test_outdated_by_generation():
    """Clocks of nodes may differ."""
    generations = {"ckpt.12.head.90": 1, "ckpt.12.head.10": 2, "ckpt.12.head.20": 3, "ckpt.12.head.15": 4}
    assert transfer.list_outdated(generations, "ckpt.12.head.15", 2) == ["ckpt.12.head.10", "ckpt.12.head.90"]


def test_what_is_no_image_is_left_to_scp(in_child, open_directory, monkeypatch):
    arguments = os.path.join(open_directory, "arguments")
    program = os.path.join(open_directory, "scp")
    with open(program, "w") as stream:
        stream.write('#!/bin/sh\necho "$@" > %s\nexit 3\n' % arguments)
    os.chmod(program, 0o755)
    monkeypatch.setattr(copy, "SCP", program)
    ended = in_child(lambda: copy.main(["copy", "-rpB", "/spool/12.head.OU", "alice@head:/home/alice/job.o12"], "/nonexistent"))
    assert os.WEXITSTATUS(ended.status) == 3
    assert content(open_directory)["arguments"] == b"-rpB /spool/12.head.OU alice@head:/home/alice/job.o12\n"


# To the server

def test_as_many_are_kept_as_the_job_asked_for(pair):
    """By qsub -c depth=3, at the server and on the node."""
    for epoch in range(1, 6):
        pair.put(pair.make(epoch, generation=epoch, depth=3))
    assert sorted(os.listdir(pair.server)) == ["ckpt.12.head.3", "ckpt.12.head.4", "ckpt.12.head.5"]
    with open(pair.make(6, generation=6, depth=3) + "/" + schema.FILE, "w") as stream:
        stream.write("{")
    pair.put(os.path.join(pair.node, "ckpt.12.head.6"))
    assert "ckpt.12.head.6" in os.listdir(pair.server)


def test_image_goes_to_the_server(pair):
    path = pair.make(7)
    os.utime(path + "/pages-1.img", (1000, 2000))
    assert pair.put(path) == sum(map(len, content(path).values()))
    copied = os.path.join(pair.server, "ckpt.12.head.7")
    assert content(copied) == content(path)
    assert os.stat(copied).st_mode & 0o777 == 0o700
    assert os.stat(copied + "/pages-1.img").st_mtime == 2000


def test_image_that_is_there_already(pair):
    """A try whose answer pbs_mom did not get: the second one lays nothing into the first one's directory."""
    path = pair.make(7)
    pair.put(path)
    before = content(pair.server)
    pair.put(path)
    assert content(pair.server) == before


def test_name_that_another_image_has(pair):
    path = pair.make(7)
    other = pair.make(7, b"other", pair.server)
    before = content(other)
    code, sentence = refused(lambda: pair.put(path))
    assert (code, sentence) == (
        CANNOT_WRITE, "image %s cannot be copied to %s: cannot publish image ckpt.12.head.7: what has its name is not an older image; "
        "it is kept; move it away, or try again a second later" % (path, pair.remote.path) + STAYS)
    assert content(other) == before and os.listdir(pair.server) == ["ckpt.12.head.7"]
    assert content(path)


def test_server_without_a_directory_for_the_job(pair):
    path = pair.make(7)
    os.rmdir(pair.server)
    assert refused(lambda: pair.put(path)) == (
        CANNOT_WRITE, "image %s cannot be copied to %s: No such file or directory" % (path, pair.remote.path) + STAYS)


def test_directory_at_the_server_that_another_user_made_first(pair, somebody):
    path = pair.make(7)
    os.chown(pair.server, somebody.uid, somebody.gid)
    assert refused(lambda: pair.put(path)) == (
        CANNOT_WRITE, "image %s cannot be copied to %s: its directory %s is another user's (%d); remove it" % (
            path, pair.remote.path, JOB, somebody.uid) + STAYS)
    assert os.listdir(pair.server) == []


def test_directory_at_the_server_that_a_stock_pbs_server_made(pair, somebody):
    """It is root's and sticky."""
    path = pair.make(7)
    os.chmod(pair.server, 0o1777)
    for directory in (path, pair.node):
        for name in [""] + os.listdir(directory):
            os.chown(os.path.join(directory, name), somebody.uid, somebody.gid)
    assert privilege.as_user(somebody, lambda: pair.put(path)) > 0
    assert os.listdir(pair.server) == ["ckpt.12.head.7"]


def test_half_an_image(pair, monkeypatch):
    """The second file fails: nothing is left that has a name, or that takes room."""
    path, real = pair.make(7), server_directory._copy_file

    def full(name, *directories):
        if name == schema.FILE:
            raise OSError(28, "No space left on device")
        real(name, *directories)
    monkeypatch.setattr(server_directory, "_copy_file", full)
    assert "No space left on device; it stays on node" in refused(lambda: pair.put(path))[1]
    assert os.listdir(pair.server) == []


@pytest.mark.parametrize("name", ["a b", "x;id", "-rf", "\u00e9"])
def test_strange_file(pair, name):
    path = pair.make(7)
    open(os.path.join(path, name), "w").close()
    assert refused(lambda: pair.put(path)) == (
        CANNOT_WRITE, "image %s cannot be copied to %s: it is no image, it holds %s" % (path, pair.remote.path, ascii(name)) + STAYS)


def test_no_manifest(pair):
    path = pair.make(7)
    os.unlink(os.path.join(path, schema.FILE))
    assert "it is no image, it has no manifest.json; it stays on node" in refused(lambda: pair.put(path))[1]


def test_image_that_is_gone(pair):
    path = pair.node + "/ckpt.12.head.7"
    assert refused(lambda: pair.put(path)) == (
        NO_INPUT, "image %s cannot be copied to %s: No such file or directory; nothing was done; see with torque-ckpt list which images "
                  "the job has, and whether its owner may read them" % (path, pair.remote.path))


def test_newest_images_are_kept_on_both_sides(pair):
    """On the node what the server has, and what is too old; what the server lacks stays."""
    for epoch in (5, 6, 7):
        pair.put(pair.make(epoch))
    assert sorted(os.listdir(pair.server)) == ["ckpt.12.head.6", "ckpt.12.head.7"]
    assert os.listdir(pair.node) == ["ckpt.12.head.7"]  # pbs_mom removes that one
    alone = pair.make(8)
    os.mkdir(pair.node + "/kept")
    pair.put(pair.make(9))
    assert sorted(os.listdir(pair.node)) == ["ckpt.12.head.8", "ckpt.12.head.9", "kept"]
    assert content(alone)


def test_newest_images_are_kept_where_the_clocks_of_nodes_differ(pair):
    for generation, epoch in enumerate((90, 10, 20), 1):
        pair.put(pair.make(epoch, generation=generation))
    assert sorted(os.listdir(pair.server)) == ["ckpt.12.head.10", "ckpt.12.head.20"]
    assert os.listdir(pair.node) == ["ckpt.12.head.20"]


def test_image_that_does_not_tell_its_generation_is_left_alone(pair):
    for epoch in (5, 6, 7):
        pair.make(epoch, directory=pair.server)
    os.unlink(pair.server + "/ckpt.12.head.5/manifest.json")
    pair.put(pair.make(8))
    assert sorted(os.listdir(pair.server)) == ["ckpt.12.head.5", "ckpt.12.head.7", "ckpt.12.head.8"]


@pytest.mark.parametrize("name", ["zz", "manifest.json"])
def test_pipe_in_an_image(pair, name):
    """Whoever opened it would wait for its other end, and pbs_mom and pbs_server for him."""
    path = pair.make(7)
    if name == schema.FILE:
        os.unlink(os.path.join(path, name))
    os.mkfifo(os.path.join(path, name))
    assert refused(lambda: pair.put(path)) == (
        CANNOT_WRITE, "image %s cannot be copied to %s: it is no image, its %s is not a regular file"
        % (path, pair.remote.path, name) + STAYS)
    assert os.listdir(pair.server) == []


def test_pipe_that_comes_after_the_look(pair, monkeypatch):
    path = pair.make(7)
    monkeypatch.setattr(transfer, "_list_files", lambda *_image: os.mkfifo(path + "/zz") or [schema.FILE])
    assert refused(lambda: pair.put(path)) == (
        CANNOT_WRITE, "image %s cannot be copied to %s: Not a regular file" % (path, pair.remote.path) + STAYS)
    assert os.listdir(pair.server) == []


def test_pipe_at_the_server(pair):
    path = pair.make(7)
    pair.put(path)
    shutil.rmtree(path)
    os.mkfifo(pair.server + "/ckpt.12.head.7/zz")
    assert "cannot be fetched from %s: Not a regular file; restart the job" % pair.remote.path in refused(lambda: pair.get(7))[1]
    assert os.listdir(pair.node) == []


def test_what_a_copy_that_was_killed_has_left(pair):
    for owner in (NODE, "elsewhere"):
        os.mkdir("%s/.ckpt.12.head.3@%s:4194305:1" % (pair.server, owner))
    pair.put(pair.make(7))
    assert sorted(os.listdir(pair.server)) == [".ckpt.12.head.3@elsewhere:4194305:1", "ckpt.12.head.7"]


# From the server

def test_image_comes_back(pair):
    path = pair.make(7)
    before = content(path)
    pair.put(path)
    shutil.rmtree(path)
    os.chmod(pair.node, 0o1777)
    assert pair.get(7) == sum(map(len, before.values()))
    assert content(path) == before
    assert os.stat(pair.node).st_mode & 0o7777 == 0o711
    assert os.stat(path).st_mtime == os.stat(path + "/manifest.json").st_mtime


def test_image_that_is_here(pair):
    """It need not be at the server: a copy may have failed before."""
    path = pair.make(7)
    before = content(path)
    assert pair.get(7) == 0
    assert content(path) == before


def test_damaged_image_that_is_here(pair):
    path = pair.make(7)
    before = content(path)
    pair.put(path)
    with open(path + "/pages-1.img", "r+b") as stream:
        stream.write(b"P")
    assert pair.get(7) > 0
    assert content(path) == before
    assert os.listdir(pair.node) == ["ckpt.12.head.7"]


def test_damaged_image_that_is_the_only_one(pair):
    path = pair.make(7)
    with open(path + "/pages-1.img", "r+b") as stream:
        stream.write(b"P")
    before = content(path)
    code, sentence = refused(lambda: pair.get(7))
    assert (code, sentence) == (
        NO_INPUT, "image ckpt.12.head.7 cannot be fetched from %s: No such file or directory; restart the job on the node that has it, or "
        "choose an older image" % pair.remote.path)
    assert content(path) == before and os.listdir(pair.node) == ["ckpt.12.head.7"]


def test_half_an_image_comes_back(pair, monkeypatch):
    path = pair.make(7)
    pair.put(path)
    shutil.rmtree(path)
    os.unlink(pair.server + "/ckpt.12.head.7/manifest.json")
    code, sentence = refused(lambda: pair.get(7))
    assert code == NO_INPUT
    assert "it is no image, it has no manifest.json; restart the job on the node that has it" in sentence
    assert os.listdir(pair.node) == []


def test_no_directory_for_it(pair):
    os.rmdir(pair.node)
    assert refused(lambda: pair.get(7)) == (
        NO_INPUT, "image ckpt.12.head.7 cannot be fetched from %s: directory %s: No such file or directory; let the user have it in this "
        "node's store (checkpoint_store_mode, checkpoint_store_users)" % (pair.remote.path, pair.node))


def test_directory_of_another_user(pair, somebody):
    os.chown(pair.node, somebody.uid, somebody.gid)
    assert refused(lambda: pair.get(7)) == (
        NO_INPUT, "image ckpt.12.head.7 cannot be fetched from %s: directory %s is another user's (%d); remove it"
        % (pair.remote.path, pair.node, somebody.uid))


# The trial

def test_trial(pair):
    cost = transfer.try_transfer(pair.remote, pair.node, JOB)
    assert cost["bytes"] == 1 << 17 and cost["seconds"] > 0
    assert os.listdir(pair.node) == [] and os.listdir(pair.server) == []


def test_trial_of_a_connection_that_changes_images(pair, monkeypatch):
    real = server_directory._copy_file

    def harm(name, source, target):
        real(name, source, target)
        with open(os.open(name, os.O_RDWR, dir_fd=target), "r+b") as stream:
            stream.write(b"\0" * 64)
    monkeypatch.setattr(server_directory, "_copy_file", harm)
    code, sentence = refused(lambda: transfer.try_transfer(pair.remote, pair.node, JOB))
    assert (code, sentence.partition(" ")[2]) == (
        DATA, "was changed on the way to %s and back; check the disks" % pair.remote.path)
    assert os.listdir(pair.node) == []


def test_trial_without_a_store(pair):
    os.rmdir(pair.node)
    code, sentence = refused(lambda: transfer.try_transfer(pair.remote, pair.node, JOB))
    assert code == CANNOT_WRITE
    assert sentence.startswith("trial image %s/ckpt.trial." % pair.node)
    assert sentence.endswith(" of a copy to %s and back cannot be written, read or removed: No such file or directory; see to the space, "
                             "the quota and the rights on both sides" % pair.remote.path)


# sftp: how it is told, as far as no server is needed

def test_server_that_cannot_be_reached(pair, monkeypatch, open_directory):
    config = os.path.join(open_directory, "ssh_config")
    with open(config, "w") as stream:
        stream.write("Host *\n  Port 1\n  BatchMode yes\n")
    path = pair.make(7)
    remote = server_directory.find_server("", config, "alice@127.0.0.1")
    assert refused(lambda: transfer.copy_to_server(remote, path, JOB, "ckpt.12.head.7", 2)) == (
        CANNOT_WRITE, "image %s cannot be copied to 127.0.0.1: ssh: connect to host 127.0.0.1 port 1: Connection refused" % path + STAYS)
    assert content(path)


def test_server_that_does_not_answer(pair, monkeypatch, open_directory, program):
    monkeypatch.setattr(server_directory, "PATIENCE", 1)
    config = os.path.join(open_directory, "ssh_config")
    with open(config, "w") as stream:
        stream.write("Host *\n  BatchMode yes\n  ProxyCommand %s\n"
                     % program("echo $$ >> %s/pids\nexec sleep 1000\n" % open_directory, "p"))
    path = pair.make(7)
    remote = server_directory.find_server("", config, "alice@head")
    assert refused(lambda: transfer.copy_to_server(remote, path, JOB, "ckpt.12.head.7", 2)) == (
        CANNOT_WRITE, "image %s cannot be copied to head: sftp did nothing for 1 seconds and was ended" % path + STAYS)
    assert content(path)
    pid, = open(open_directory + "/pids").read().split()
    wait_until(lambda: processes.read_process(int(pid)) is None)


def test_sftp_whose_ssh_ends_while_it_is_ended(pair, monkeypatch, open_directory, program):
    monkeypatch.setattr(server_directory, "PATIENCE", 1)
    real = processes.list_family

    def list_family(root):
        sftp, ssh, command = members = real(root)
        os.kill(command.pid, signal.SIGKILL)
        wait_until(lambda: processes.read_process(ssh.pid) is None)
        return members
    monkeypatch.setattr(processes, "list_family", list_family)
    config = os.path.join(open_directory, "ssh_config")
    with open(config, "w") as stream:
        stream.write("Host *\n  BatchMode yes\n  ProxyCommand %s\n" % program("exec sleep 1000\n", "p"))
    path = pair.make(7)
    remote = server_directory.find_server("", config, "alice@head")
    assert refused(lambda: transfer.copy_to_server(remote, path, JOB, "ckpt.12.head.7", 2)) == (
        CANNOT_WRITE, "image %s cannot be copied to head: sftp did nothing for 1 seconds and was ended" % path + STAYS)


def test_place_that_is_mounted():
    assert server_directory.find_server("/srv/copies", "/x", "alice@head").path == "/srv/copies"
    assert generations.HIDDEN.fullmatch(generations.hide_name("ckpt.12.head.7"))
