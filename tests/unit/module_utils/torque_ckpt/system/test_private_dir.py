import os

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.system import private_dir, privilege, processes


def mine():
    return "%d.%d" % (os.getpid(), processes.read_process(os.getpid()).start)


def test_only_its_descriptor_leads_there(open_directory, somebody):
    private = private_dir.PrivateDirectory(open_directory + "/run", somebody)
    parent = open_directory + "/run/private"
    assert os.stat(parent).st_mode & 0o7777 == 0o700 and os.stat(parent).st_uid == os.geteuid()
    assert os.fstat(private.descriptor).st_mode & 0o7777 == 0o700 and os.fstat(private.descriptor).st_uid == somebody.uid

    def work():
        os.close(os.open("core.img", os.O_WRONLY | os.O_CREAT, dir_fd=private.descriptor))
        try:
            return os.listdir(parent)
        except PermissionError:
            return os.listdir(private.descriptor)
    assert privilege.as_user(somebody, work) == (["core.img"] if os.geteuid() == 0 else [mine()])
    private.remove()
    assert os.listdir(parent) == []


@pytest.mark.root
def test_what_root_took_over_cannot_be_opened_for_writing(open_directory, somebody):
    """Not even by a descriptor that somebody else's process has open for reading."""
    private = private_dir.PrivateDirectory(open_directory + "/run", somebody)
    outside = open_directory + "/pages"
    open(outside, "w").close()
    os.chmod(outside, 0o640)

    def attempt(work):
        try:
            return str(work())
        except OSError as error:
            return error.strerror

    def work():
        descriptor = os.open("core.img", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=private.descriptor)
        os.write(descriptor, b"verified")
        os.close(descriptor)
        os.symlink(outside, "pages-1.img", dir_fd=private.descriptor)
        reading = os.open("core.img", os.O_RDONLY, dir_fd=private.descriptor)
        again = "/proc/self/fd/%d" % reading
        before = attempt(lambda: os.close(os.open(again, os.O_RDWR)))
        private_dir.ask_to_take_over()
        return [before, attempt(lambda: os.open(again, os.O_RDWR)), attempt(lambda: os.chmod(again, 0o666)),
                attempt(lambda: os.unlink("core.img", dir_fd=private.descriptor)),
                attempt(lambda: os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=private.descriptor)),
                attempt(lambda: os.rename("core.img", "new", src_dir_fd=private.descriptor, dst_dir_fd=private.descriptor)),
                os.read(reading, 100).decode(), privilege.ask_root("something else")]
    denied, forbidden = "Permission denied", "Operation not permitted"
    assert privilege.as_user(somebody, work, answer=private.build_answer(lambda question: "answer to " + question)) == [
        "None", denied, forbidden, denied, denied, denied, "verified", "answer to something else"]
    assert os.stat(outside).st_mode & 0o777 == 0o640
    private.remove()
    assert os.listdir(open_directory + "/run/private") == []


def test_room(open_directory, somebody):
    private = private_dir.PrivateDirectory(open_directory + "/run", somebody)
    file_system = os.statvfs(open_directory)
    assert abs(private.get_free_space() - file_system.f_bavail * file_system.f_frsize) < 1 << 28
    private.remove()


def test_what_killed_hooks_left_is_removed(open_directory, somebody, free_pid):
    leftovers = ["%d.1" % free_pid, "%d.1" % os.getpid(), "something"]
    os.makedirs(open_directory + "/run/private", mode=0o700)
    for name in leftovers + [mine() + "0"]:
        os.mkdir(open_directory + "/run/private/" + name)
        os.symlink("/etc/passwd", open_directory + "/run/private/" + name + "/core.img")
    private = private_dir.PrivateDirectory(open_directory + "/run", somebody)
    assert os.listdir(open_directory + "/run/private") == [mine()]
    private.remove()
    assert os.path.exists("/etc/passwd")


def test_directory_of_a_hook_that_lives_stays(open_directory, somebody, start_job):
    leader = processes.read_process(start_job().leader)
    name = "%d.%d" % (leader.pid, leader.start)
    os.makedirs(open_directory + "/run/private/" + name, mode=0o700)
    os.chmod(open_directory + "/run/private", 0o700)
    private_dir.PrivateDirectory(open_directory + "/run", somebody).remove()
    assert os.listdir(open_directory + "/run/private") == [name]


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701])
def test_parent_that_others_can_enter(open_directory, somebody, mode):
    os.makedirs(open_directory + "/run/private")
    os.chmod(open_directory + "/run/private", mode)
    with pytest.raises(HookError) as caught:
        private_dir.PrivateDirectory(open_directory + "/run", somebody)
    assert (caught.value.code, str(caught.value)) == (
        errors.SYSTEM, "%s/run/private must be root's and closed to everybody else; remove it and try again; image kept" % open_directory)


def test_place_that_cannot_be_made(open_directory, somebody):
    open(open_directory + "/run", "w").close()
    with pytest.raises(HookError) as caught:
        private_dir.PrivateDirectory(open_directory + "/run", somebody)
    assert (caught.value.code, str(caught.value)) == (
        errors.CONFIG, "%s/run must be a directory of root's that nobody else can write to, because the hooks trust the records in it; "
        "remove it, the next hook creates it again; nothing was done" % open_directory)


def test_what_killed_hooks_left_is_swept_without_a_new_directory(open_directory, somebody, free_pid):
    private_dir.remove_abandoned(open_directory + "/none")
    private = private_dir.PrivateDirectory(open_directory + "/run", somebody)
    parent = open_directory + "/run/private"
    os.mkdir(parent + "/%d.7" % free_pid)
    with open(parent + "/%d.7/pages-1.img" % free_pid, "w") as stream:
        stream.write("memory")
    private_dir.remove_abandoned(open_directory + "/run")
    assert os.listdir(parent) == [mine()]
    private.remove()


def test_directory_that_is_somebody_elses_is_not_swept(open_directory, free_pid):
    os.makedirs(open_directory + "/run/private/%d.7" % free_pid, 0o755)
    os.chmod(open_directory + "/run/private", 0o777)
    private_dir.remove_abandoned(open_directory + "/run")
    assert os.listdir(open_directory + "/run/private") == ["%d.7" % free_pid]
