import os

import pytest

from torque_ckpt import errors, identity, private, privilege
from torque_ckpt.errors import HookError


def mine():
    return "%d.%d" % (os.getpid(), identity.process(os.getpid()).start)


def test_only_its_descriptor_leads_there(open_directory, somebody):
    place = private.Place(open_directory + "/run", somebody)
    parent = open_directory + "/run/private"
    assert os.stat(parent).st_mode & 0o7777 == 0o700 and os.stat(parent).st_uid == os.geteuid()
    assert os.fstat(place.descriptor).st_mode & 0o7777 == 0o700 and os.fstat(place.descriptor).st_uid == somebody.uid

    def work():
        os.close(os.open("core.img", os.O_WRONLY | os.O_CREAT, dir_fd=place.descriptor))
        try:
            return os.listdir(parent)
        except PermissionError:
            return os.listdir(place.descriptor)
    assert privilege.as_user(somebody, work) == (["core.img"] if os.geteuid() == 0 else [mine()])
    place.remove()
    assert os.listdir(parent) == []


def test_what_killed_hooks_left_is_removed(open_directory, somebody, free_pid):
    leftovers = ["%d.1" % free_pid, "%d.1" % os.getpid(), "something"]
    os.makedirs(open_directory + "/run/private", mode=0o700)
    for name in leftovers + [mine() + "0"]:
        os.mkdir(open_directory + "/run/private/" + name)
        os.symlink("/etc/passwd", open_directory + "/run/private/" + name + "/core.img")
    place = private.Place(open_directory + "/run", somebody)
    assert os.listdir(open_directory + "/run/private") == [mine()]
    place.remove()
    assert os.path.exists("/etc/passwd")


def test_place_of_a_hook_that_lives_stays(open_directory, somebody, start_job):
    there = identity.process(start_job().leader)
    name = "%d.%d" % (there.pid, there.start)
    os.makedirs(open_directory + "/run/private/" + name, mode=0o700)
    os.chmod(open_directory + "/run/private", 0o700)
    private.Place(open_directory + "/run", somebody).remove()
    assert os.listdir(open_directory + "/run/private") == [name]


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701])
def test_parent_that_others_can_enter(open_directory, somebody, mode):
    os.makedirs(open_directory + "/run/private")
    os.chmod(open_directory + "/run/private", mode)
    with pytest.raises(HookError) as caught:
        private.Place(open_directory + "/run", somebody)
    assert (caught.value.code, str(caught.value)) == (
        errors.SYSTEM, "%s/run/private must be root's and closed to everybody else; remove it and try again; image kept" % open_directory)


def test_place_that_cannot_be_made(open_directory, somebody):
    open(open_directory + "/run", "w").close()
    with pytest.raises(HookError) as caught:
        private.Place(open_directory + "/run", somebody)
    assert (caught.value.code, str(caught.value)) == (
        errors.CONFIG, "%s/run must be a directory of root's that nobody else can write to, because the hooks trust the records in it; "
        "remove it, the next hook makes it anew; nothing was done" % open_directory)
