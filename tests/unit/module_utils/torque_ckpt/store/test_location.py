import os
import shutil
import threading
import time

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.image import manifest
from torque_ckpt.store import generations, location
from torque_ckpt.store.draft import Draft
from torque_ckpt.system import command, privilege, processes
from torque_ckpt.torque import contract


@pytest.fixture
def store(tmp_path):
    """A store (dict) that is there."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / location.MARKER).write_text("main\n")
    return {"path": str(tmp_path / "store"), "id": "main"}


@pytest.fixture
def job_directory(store):
    """A descriptor of an empty job directory; .path of the fixture's store + /12.head.CK."""
    descriptor = location.open_job_directory(store, store["path"] + "/12.head.CK", create=True)
    yield descriptor
    os.close(descriptor)


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


# Which store

STORES = [{"path": "/shared/ckpt", "id": "main"}, {"path": "/fast", "id": "fast"}]


@pytest.mark.parametrize("directory, wanted", [
    ("/shared/ckpt/12.head.CK", "main"), ("/shared/ckpt/alice/deeper/12.head.CK", "main"), ("/fast/12.head.CK", "fast")])
def test_configured_finds_the_store_of_a_directory(directory, wanted):
    assert location.find_store(STORES, directory)["id"] == wanted


@pytest.mark.parametrize("directory", [
    "/tmp/12.head.CK", "/shared/ckpt", "/shared/ckpt2/12.head.CK", "/shared", "/fast", "/tmp/shared/ckpt/12.head.CK", "/Shared/ckpt/x"])
def test_configured_refuses_a_directory_elsewhere(directory):
    with pytest.raises(HookError) as caught:
        location.find_store(STORES, directory)
    assert str(caught.value) == ("directory %s is in none of this node's stores (/shared/ckpt, /fast); set the job's checkpoint directory "
                                 "beneath one" % directory)
    assert caught.value.code == errors.REFUSED


# Root makes the job's directory where users may not

def owner_and_mode(path):
    """Owner and mode of a path as (uid, gid, octal str), None when it is not there."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_uid, status.st_gid, "%o" % (status.st_mode & 0o7777)


@pytest.mark.root
def test_root_gives_the_user_a_directory_in_the_store_itself(store, somebody):
    before = descriptors()
    location.give_job_directory(store, store["path"] + "/12.head.CK", somebody)
    assert owner_and_mode(store["path"] + "/12.head.CK") == (somebody.uid, somebody.gid, "711")
    assert descriptors() == before


@pytest.mark.root
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_directory_deeper_in_the_store_is_the_users_to_make(store, somebody, slash):
    os.mkdir(store["path"] + "/alice")
    location.give_job_directory(dict(store, path=store["path"] + slash), store["path"] + "/alice/12.head.CK", somebody)
    assert os.listdir(store["path"] + "/alice") == []


@pytest.mark.root
def test_root_gives_the_user_his_own_directory_in_the_store(store, somebody):
    own = "%s/%s" % (store["path"], somebody.name)
    location.give_job_directory(store, own + "/12.head.CK", somebody)
    assert owner_and_mode(own) == (somebody.uid, somebody.gid, "711")
    assert os.listdir(own) == []
    os.chmod(own, 0o700)
    location.give_job_directory(store, own + "/13.head.CK", somebody)
    assert owner_and_mode(own) == (somebody.uid, somebody.gid, "700")


@pytest.mark.root
def test_root_makes_nobody_elses_directory(store, somebody):
    location.give_job_directory(store, store["path"] + "/somebodyelse/12.head.CK", somebody)
    assert owner_and_mode(store["path"] + "/somebodyelse") is None


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o1777, 0o775, 0o757])
def test_root_makes_nothing_where_others_can_write(store, somebody, mode):
    os.chmod(store["path"], mode)
    location.give_job_directory(store, store["path"] + "/12.head.CK", somebody)
    assert owner_and_mode(store["path"] + "/12.head.CK") is None


@pytest.mark.root
@pytest.mark.parametrize("make", [os.mkdir, lambda path: os.symlink("/etc", path), lambda path: open(path, "w").close()])
def test_what_is_there_already_is_not_given_away(store, somebody, make):
    make(store["path"] + "/12.head.CK")
    before = owner_and_mode(store["path"] + "/12.head.CK")
    location.give_job_directory(store, store["path"] + "/12.head.CK", somebody)
    assert owner_and_mode(store["path"] + "/12.head.CK") == before
    assert os.stat("/etc").st_uid == 0


# Whether it is there

@pytest.mark.parametrize("content", ["main\n", "main", "  main \n\n"])
def test_mounted_store_is_taken(store, content):
    with open(os.path.join(store["path"], location.MARKER), "w") as stream:
        stream.write(content)
    assert location.check_mounted(store) is None


def test_store_without_its_marker_is_not_mounted(store):
    marker = os.path.join(store["path"], location.MARKER)
    os.unlink(marker)
    with pytest.raises(HookError) as caught:
        location.check_mounted(store)
    assert str(caught.value) == "store %s is not usable on this node: %s: No such file or directory; is it mounted?" % (
        store["path"], marker)
    assert caught.value.code == errors.CONFIG


@pytest.mark.parametrize("content, shown", [
    ("other\n", "'other'"), ("", "''"), ("main2\n", "'main2'"), ("a\nb", "'a\\nb'"), ("x" * 99, "'%s'" % ("x" * 80))])
def test_another_store_in_its_place(store, content, shown):
    with open(os.path.join(store["path"], location.MARKER), "w") as stream:
        stream.write(content)
    with pytest.raises(HookError) as caught:
        location.check_mounted(store)
    assert str(caught.value) == ("store %s is another one than configured: its id is %s, expected main; mount the one that is configured"
                                 % (store["path"], shown))
    assert caught.value.code == errors.CONFIG


# The job's directory

@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_job_directory_is_made_searchable_whatever_the_umask(in_child, store, umask):
    def work():
        os.umask(umask)
        os.close(location.open_job_directory(store, store["path"] + "/12.head.CK", create=True))
    in_child(work)
    assert os.stat(store["path"] + "/12.head.CK").st_mode == 0o040711


def test_job_directory_that_is_there_stays_as_it_is(store):
    path = os.path.join(store["path"], "12.head.CK")
    os.mkdir(path)
    os.chmod(path, 0o750)
    for create in (True, False):
        descriptor = location.open_job_directory(store, path, create=create)
        assert os.path.samestat(os.fstat(descriptor), os.stat(path))
        os.close(descriptor)
    assert os.stat(path).st_mode == 0o040750


def test_job_directory_beneath_a_users_own(store):
    os.mkdir(store["path"] + "/alice")
    path = store["path"] + "/alice/12.head.CK"
    os.close(location.open_job_directory(store, path, create=True))
    assert os.path.isdir(path)


def test_only_the_last_component_is_made(store):
    with pytest.raises(HookError) as caught:
        location.open_job_directory(store, store["path"] + "/alice/12.head.CK", create=True)
    assert str(caught.value) == ("cannot use the directory of job images %s/alice: No such file or directory; see to the space, the quota "
                                 "and the rights in the store" % store["path"])
    assert caught.value.code == errors.CANNOT_WRITE
    assert os.listdir(store["path"]) == [location.MARKER]


def test_missing_job_directory_is_not_made_for_reading(store):
    with pytest.raises(HookError) as caught:
        location.open_job_directory(store, store["path"] + "/12.head.CK")
    assert str(caught.value) == ("cannot open the directory of job images %s/12.head.CK: No such file or directory; see with torque-ckpt "
                                 "list which images the job has, and whether its owner may read them" % store["path"])
    assert caught.value.code == errors.NO_INPUT
    assert os.listdir(store["path"]) == [location.MARKER]


@pytest.mark.parametrize("create, words, code, advice", [
    (True, "cannot use the directory", errors.CANNOT_WRITE, errors.STORE_CURE),
    (False, "cannot open the directory", errors.NO_INPUT, location.IMAGES_CURE)])
@pytest.mark.parametrize("link, rest", [("12.head.CK", ""), ("alice", "/12.head.CK")])
def test_links_on_the_way_are_not_followed(store, tmp_path, create, words, code, advice, link, rest):
    (tmp_path / "elsewhere" / "12.head.CK").mkdir(parents=True)
    os.symlink(str(tmp_path / "elsewhere"), os.path.join(store["path"], link))
    with pytest.raises(HookError) as caught:
        location.open_job_directory(store, "%s/%s%s" % (store["path"], link, rest), create=create)
    assert str(caught.value) == "%s of job images %s/%s: Not a directory; %s" % (words, store["path"], link, advice)
    assert caught.value.code == code
    assert os.listdir(str(tmp_path / "elsewhere")) == ["12.head.CK"]


def test_file_in_the_place_of_a_job_directory(store):
    path = os.path.join(store["path"], "12.head.CK")
    open(path, "w").close()
    with pytest.raises(HookError) as caught:
        location.open_job_directory(store, path, create=True)
    assert str(caught.value) == ("cannot use the directory of job images %s: Not a directory; see to the space, the quota and the rights "
                                 "in the store" % path)
    assert caught.value.code == errors.CANNOT_WRITE


def test_job_directory_that_the_user_may_not_make(open_directory, somebody):
    store = {"path": open_directory, "id": "main"}
    os.chmod(open_directory, 0o555)
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: location.open_job_directory(store, open_directory + "/12.head.CK", create=True))
    os.chmod(open_directory, 0o755)
    assert str(caught.value) == ("cannot use the directory of job images %s/12.head.CK: Permission denied; see to the space, the quota and "
                                 "the rights in the store" % open_directory)
    assert caught.value.code == errors.CANNOT_WRITE


@pytest.mark.root
def test_what_another_uid_owns(open_directory, somebody):
    """A user who has another uid on the node where the image was made."""
    store, path = {"path": open_directory, "id": "default"}, open_directory + "/12.head.CK"
    os.makedirs(path + "/ckpt.1")
    os.chmod(path, 0o711)
    os.chown(path, somebody.uid + 1, -1)
    why = "Permission denied; it belongs to uid %d, and the job's user has uid %d on this node; give the user one uid on all nodes" % (
        somebody.uid + 1, somebody.uid)
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: location.open_job_directory(store, path))
    assert str(caught.value) == "cannot open the directory of job images %s: %s" % (path, why)
    os.chmod(path, 0o755)
    os.chmod(path + "/ckpt.1", 0o700)
    os.chown(path + "/ckpt.1", somebody.uid + 1, -1)
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: location.open_image(location.open_job_directory(store, path), "ckpt.1", path + "/ckpt.1"))
    assert str(caught.value) == "image %s/ckpt.1 cannot be opened: %s" % (path, why)


def test_the_way_to_a_users_own_directory_needs_search_permission_only(open_directory, somebody):
    own = os.path.join(open_directory, "alice")
    os.mkdir(own)
    os.chown(own, somebody.uid, somebody.gid)
    os.chmod(open_directory, 0o311)
    store = {"path": open_directory, "id": "main"}
    try:
        privilege.as_user(somebody, lambda: location.open_job_directory(store, own + "/12.head.CK", create=True))
        privilege.as_user(somebody, lambda: location.open_job_directory(store, own + "/12.head.CK"))
    finally:
        os.chmod(open_directory, 0o755)
    assert os.stat(own + "/12.head.CK").st_uid == somebody.uid


@pytest.mark.parametrize("create, words, code, advice", [
    (True, "cannot use the directory", errors.CANNOT_WRITE, errors.STORE_CURE),
    (False, "cannot open the directory", errors.NO_INPUT, location.IMAGES_CURE)])
@pytest.mark.parametrize("make, why", [
    (lambda path: None, "No such file or directory"),
    (lambda path: path.symlink_to("/tmp"), "Not a directory"),
    (lambda path: path.touch(), "Not a directory"),
])
def test_store_that_is_no_directory(tmp_path, create, words, code, advice, make, why):
    path = tmp_path / "store"
    make(path)
    with pytest.raises(HookError) as caught:
        location.open_job_directory({"path": str(path), "id": "main"}, str(path / "12.head.CK"), create=create)
    assert str(caught.value) == "%s of job images %s: %s; %s" % (words, path, why, advice)
    assert caught.value.code == code


def test_no_descriptor_is_left(store):
    os.makedirs(store["path"] + "/a/b")
    before = descriptors()
    os.close(location.open_job_directory(store, store["path"] + "/a/b/c", create=True))
    for path in ("/none", "/a/none/c", "/a/b/none"):
        with pytest.raises(HookError):
            location.open_job_directory(store, store["path"] + path)
    assert descriptors() == before


# Images

def test_open_image_opens_the_directory_of_that_name(job_directory, store):
    path = os.path.join(store["path"], "12.head.CK", "ckpt.1")
    os.mkdir(path)
    descriptor = location.open_image(job_directory, "ckpt.1", "/shown")
    assert os.path.samestat(os.fstat(descriptor), os.stat(path))
    os.close(descriptor)


@pytest.mark.parametrize("make, why", [
    (lambda path: None, "No such file or directory"),
    (lambda path: open(path, "w").close(), "Not a directory"),
    (lambda path: os.symlink("/", path), "Not a directory"),
    (lambda path: os.symlink("/nonexistent", path), "Not a directory"),
])
def test_open_image_of_something_else(job_directory, store, make, why):
    make(os.path.join(store["path"], "12.head.CK", "ckpt.1"))
    with pytest.raises(HookError) as caught:
        location.open_image(job_directory, "ckpt.1", "/shown/ckpt.1")
    assert str(caught.value) == ("image /shown/ckpt.1 cannot be opened: %s; see with torque-ckpt list which images the job has, and "
                                 "whether its owner may read them" % why)
    assert caught.value.code == errors.NO_INPUT


def test_engine_path_leads_a_program_to_the_directory_even_when_it_was_renamed(job_directory, store):
    path = os.path.join(store["path"], "12.head.CK", "ckpt.1")
    os.mkdir(path)
    open(os.path.join(path, "pages.img"), "w").close()
    descriptor = location.open_image(job_directory, "ckpt.1", path)
    os.rename(path, path + ".moved")
    os.mkdir(path)
    assert command.run(["/bin/ls", location.get_engine_path(descriptor)], 10) == (0, "pages.img\n")
    os.close(descriptor)


def test_draft_is_hidden_private_and_empty(job_directory, store):
    draft = Draft(job_directory, "ckpt.1")
    names = os.listdir(job_directory)
    assert len(names) == 1 and names[0] == ".ckpt.1@%s:%d:%d" % (
        os.uname().nodename, os.getpid(), processes.read_process(os.getpid()).start)
    path = os.path.join(store["path"], "12.head.CK", names[0])
    assert os.path.samestat(os.fstat(draft.descriptor), os.stat(path))
    assert os.stat(path).st_mode == 0o040700
    assert os.listdir(path) == []
    draft.discard()


def put(draft, name, content=b"x"):
    """Write a file the way the engine does it: by the draft's path."""
    with open(os.path.join(draft.path(), name), "wb") as stream:
        stream.write(content)


def test_published_draft_is_the_image_with_all_its_files(job_directory, store):
    before = descriptors()
    draft = Draft(job_directory, "ckpt.1")
    for number in range(3):
        put(draft, "pages-%d.img" % number, b"%d" % number)
    draft.publish()
    assert os.listdir(job_directory) == ["ckpt.1"]
    image = location.open_image(job_directory, "ckpt.1", "ckpt.1")
    assert sorted(os.listdir(image)) == ["pages-0.img", "pages-1.img", "pages-2.img"]
    with open(os.path.join(store["path"], "12.head.CK", "ckpt.1", "pages-2.img"), "rb") as stream:
        assert stream.read() == b"2"
    os.close(image)
    assert descriptors() == before


def test_discarded_draft_is_gone_and_older_images_are_not(job_directory):
    before = descriptors()
    for name in ("ckpt.1", "ckpt.2"):
        draft = Draft(job_directory, name)
        put(draft, "pages.img")
        draft.publish()
    draft = Draft(job_directory, "ckpt.3")
    put(draft, "pages.img")
    put(draft, "core.img")
    draft.discard()
    assert sorted(os.listdir(job_directory)) == ["ckpt.1", "ckpt.2"]
    assert descriptors() == before


def test_discard_of_a_draft_that_cannot_go_is_silent(job_directory):
    draft = Draft(job_directory, "ckpt.1")
    os.mkdir(os.path.join(draft.path(), "directory"))
    draft.discard()
    assert os.listdir(job_directory) == [draft.hidden]


def test_what_is_no_image_is_not_replaced(job_directory, store):
    older = Draft(job_directory, "ckpt.1")
    put(older, "pages.img", b"older")
    older.publish()
    draft = Draft(job_directory, "ckpt.1")
    put(draft, "pages.img", b"newer")
    with pytest.raises(HookError) as caught:
        draft.publish()
    assert str(caught.value) == ("cannot publish image ckpt.1: what has its name is not an older image; it is kept; move it away, or try "
                                 "again a second later")
    assert caught.value.code == errors.CANNOT_WRITE
    with open(os.path.join(store["path"], "12.head.CK", "ckpt.1", "pages.img"), "rb") as stream:
        assert stream.read() == b"older"
    assert os.listdir(draft.descriptor) == ["pages.img"]
    draft.discard()
    assert os.listdir(job_directory) == ["ckpt.1"]


def test_file_of_the_same_name_is_not_replaced(job_directory, store):
    path = os.path.join(store["path"], "12.head.CK", "ckpt.1")
    open(path, "w").close()
    draft = Draft(job_directory, "ckpt.1")
    with pytest.raises(HookError) as caught:
        draft.publish()
    assert str(caught.value) == "cannot publish image ckpt.1: Not a directory; see to the space, the quota and the rights in the store"
    assert os.path.isfile(path)
    draft.discard()


def test_draft_with_a_link_is_not_published(job_directory):
    draft = Draft(job_directory, "ckpt.1")
    os.symlink("/etc/passwd", os.path.join(draft.path(), "pages.img"))
    with pytest.raises(HookError) as caught:
        draft.publish()
    assert str(caught.value) == ("cannot publish image ckpt.1: Too many levels of symbolic links; see to the space, the quota and the "
                                 "rights in the store")
    assert caught.value.code == errors.CANNOT_WRITE
    assert os.listdir(job_directory) == [draft.hidden]
    draft.discard()
    assert os.listdir(job_directory) == []
    assert os.path.exists("/etc/passwd")


def test_draft_of_a_name_too_long(job_directory):
    with pytest.raises(HookError) as caught:
        Draft(job_directory, "a" * 255)
    assert str(caught.value) == ("cannot create image %s: File name too long; see to the space, the quota and the rights in the store"
                                 % ("a" * 255))
    assert caught.value.code == errors.CANNOT_WRITE
    assert os.listdir(job_directory) == []


def test_draft_in_a_directory_of_another_user(open_directory, somebody):
    os.chmod(open_directory, 0o555)
    descriptor = os.open(open_directory, os.O_RDONLY)
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: Draft(descriptor, "ckpt.1"))
    os.close(descriptor)
    os.chmod(open_directory, 0o755)
    assert str(caught.value) == "cannot create image ckpt.1: Permission denied; see to the space, the quota and the rights in the store"
    assert caught.value.code == errors.CANNOT_WRITE


def test_failure_after_the_rename_leaves_no_half_image(tmp_path, monkeypatch):
    job, real = os.open(str(tmp_path), os.O_RDONLY), os.fsync

    def fsync(descriptor):
        if descriptor == job:
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(location.os, "fsync", fsync)
    draft = Draft(job, "ckpt.1")
    with open(os.path.join(draft.path(), "pages.img"), "w") as stream:
        stream.write("x")
    with pytest.raises(HookError) as caught:
        draft.publish()
    assert str(caught.value) == "cannot publish image ckpt.1: Input/output error; see to the space, the quota and the rights in the store"
    draft.discard()
    assert os.listdir(str(tmp_path)) == []


# Images and their generations

def drafted(job_directory, name, generation=None, content=b"memory", job_id="12.head"):
    """Return a Draft as the checkpoint hook makes it; without a generation like the hooks that knew none."""
    draft = Draft(job_directory, name)
    put(draft, "pages.img", content)
    call = contract.Call(None, job_id, "alice", None, "/", name, None, None)
    user = privilege.User("alice", os.geteuid(), os.getegid(), "/")
    facts = {"engine": {"name": "criu", "version": "1"}, "root": 7, "pids": [7], "frozen_seconds": 0.5, "spool": []}
    facts = facts if generation is None else dict(facts, generation=generation)
    manifest.write_manifest(draft.descriptor, call, user, facts, lambda body: body)
    return draft


def publish(*arguments, **options):
    drafted(*arguments, **options).publish()


def content(job_directory):
    """What is in the job's directory (dict of what pages.img holds, or None, by name)."""
    contents = {}
    for name in os.listdir(job_directory):
        try:
            with open("/proc/self/fd/%d/%s/pages.img" % (job_directory, name), "rb") as stream:
                contents[name] = stream.read()
        except OSError:
            contents[name] = None
    return contents


def listed(job_directory, **options):
    return [(image.name, image.generation) for image in generations.list_images(job_directory, **options)]


def test_images_are_listed_newest_first(job_directory):
    before = descriptors()
    for name, generation in (("ckpt.3", 2), ("ckpt.1", 10), ("ckpt.2", 9)):
        publish(job_directory, name, generation)
    assert listed(job_directory) == [("ckpt.1", 10), ("ckpt.2", 9), ("ckpt.3", 2)]
    assert generations.next_generation(job_directory, "12.head") == 11
    assert descriptors() == before


def test_images_without_a_generation_are_older_and_count_by_the_epoch_in_their_name(job_directory):
    for name, generation in (("ckpt.12.head.1000", None), ("ckpt.12.head.999", None), ("ckpt.12.head.5", 1)):
        publish(job_directory, name, generation)
    assert listed(job_directory) == [("ckpt.12.head.5", 1), ("ckpt.12.head.1000", 0), ("ckpt.12.head.999", 0)]


def test_image_of_an_older_format(job_directory):
    publish(job_directory, "ckpt.2", 1)
    path = "/proc/self/fd/%d/ckpt.1" % job_directory
    os.mkdir(path)
    with open(path + "/manifest.json", "w") as stream:
        stream.write('{"format": 1, "job_id": "12.head", "files": []}')
    assert listed(job_directory) == [("ckpt.2", 1), ("ckpt.1", 0)]
    assert generations.prune_images(job_directory, "12.head", 1) == ["ckpt.1"]
    assert os.listdir(job_directory) == ["ckpt.2"]


def test_first_generation(job_directory):
    assert generations.next_generation(job_directory, "12.head") == 1
    publish(job_directory, "ckpt.1")
    assert generations.next_generation(job_directory, "12.head") == 1


def test_generation_after_the_newest_was_renamed_or_removed(job_directory):
    publish(job_directory, "ckpt.1", 1)
    publish(job_directory, "ckpt.2", 2)
    os.rename("ckpt.2", "kept", src_dir_fd=job_directory, dst_dir_fd=job_directory)
    assert generations.next_generation(job_directory, "12.head") == 3


@pytest.mark.parametrize("generation", ["7", -1, True, 1.5, [1], {}])
def test_image_with_a_strange_generation_is_none(job_directory, generation):
    publish(job_directory, "ckpt.1", generation)
    assert listed(job_directory) == []


def test_images_of_another_job_in_the_same_directory(job_directory):
    publish(job_directory, "ckpt.12.head.1", 1)
    publish(job_directory, "ckpt.13.head.1", 5, job_id="13.head")
    assert listed(job_directory, job_id="12.head") == [("ckpt.12.head.1", 1)]
    assert listed(job_directory, job_id="13.head") == [("ckpt.13.head.1", 5)]
    assert len(listed(job_directory)) == 2
    assert generations.next_generation(job_directory, "12.head") == 2
    assert generations.prune_images(job_directory, "12.head", 1) == []
    assert len(listed(job_directory)) == 2


def test_what_is_no_image_is_not_listed(job_directory, tmp_path):
    publish(job_directory, "ckpt.1", 1)
    path = "/proc/self/fd/%d/" % job_directory
    os.mkdir(path + "empty")
    open(path + "file", "w").close()
    os.symlink("ckpt.1", path + "link")
    os.mkfifo(path + "pipe")
    shutil.copytree(path + "ckpt.1", path + ".ckpt.2@elsewhere:1:1")
    os.mkdir(path + "newer")
    for number, text in enumerate(('{"format": 99, "job_id": "12.head", "files": []}', "[]", "7", "{", '{"format": 3}',
                                   '{"format": 3, "job_id": "12.head", "files": [7]}')):
        os.mkdir(path + "other%d" % number)
        with open(path + "other%d/manifest.json" % number, "w") as stream:
            stream.write(text)
    os.mkfifo(path + "newer/manifest.json")
    assert listed(job_directory) == [("ckpt.1", 1)]


@pytest.mark.parametrize("damage, whole", [
    (lambda path: None, True),
    (lambda path: open(path, "ab").write(b"x"), False),
    (os.unlink, False),
    (lambda path: (os.rename(path, path + "x"), os.symlink("pages.imgx", path)), False),
    (lambda path: (os.unlink(path), os.mkdir(path)), False),
])
def test_whole_image(job_directory, damage, whole):
    publish(job_directory, "ckpt.1", 1)
    damage("/proc/self/fd/%d/ckpt.1/pages.img" % job_directory)
    assert [image.whole for image in generations.list_images(job_directory)] == [whole]


# What is kept

@pytest.mark.parametrize("keep, left", [(1, [5]), (2, [5, 4]), (4, [5, 4, 3, 2]), (5, [5, 4, 3, 2, 1]), (99, [5, 4, 3, 2, 1])])
def test_prune_keeps_the_newest(job_directory, keep, left):
    before = descriptors()
    for generation in range(1, 6):
        publish(job_directory, "ckpt.%d" % generation, generation)
    gone = ["ckpt.%d" % number for number in range(1, 6) if number not in left]
    assert sorted(generations.prune_images(job_directory, "12.head", keep)) == gone
    assert sorted(os.listdir(job_directory)) == sorted("ckpt.%d" % number for number in left)
    assert generations.prune_images(job_directory, "12.head", keep) == []
    assert descriptors() == before


def test_prune_counts_whole_images_only(job_directory):
    for generation in range(1, 6):
        publish(job_directory, "ckpt.%d" % generation, generation)
    for damaged in (2, 4):
        os.unlink("/proc/self/fd/%d/ckpt.%d/pages.img" % (job_directory, damaged))
    assert generations.prune_images(job_directory, "12.head", 2) == ["ckpt.2", "ckpt.1"]
    assert sorted(os.listdir(job_directory)) == ["ckpt.3", "ckpt.4", "ckpt.5"]


def test_prune_never_takes_the_newest(job_directory):
    for generation in (1, 2):
        publish(job_directory, "ckpt.%d" % generation, generation)
    os.unlink("/proc/self/fd/%d/ckpt.2/pages.img" % job_directory)
    assert generations.prune_images(job_directory, "12.head", 1) == []
    assert sorted(os.listdir(job_directory)) == ["ckpt.1", "ckpt.2"]


def test_prune_counts_an_image_with_two_names_once(job_directory):
    """A job whose restart failed has its image under the name of the hold, too."""
    publish(job_directory, "ckpt.1", 1)
    publish(job_directory, "ckpt.2", 2)
    shutil.copytree("/proc/self/fd/%d/ckpt.2" % job_directory, "/proc/self/fd/%d/ckpt.3" % job_directory)
    publish(job_directory, "ckpt.4", 3)
    assert generations.prune_images(job_directory, "12.head", 2) == ["ckpt.1"]
    assert sorted(os.listdir(job_directory)) == ["ckpt.2", "ckpt.3", "ckpt.4"]


def test_prune_of_images_without_a_generation(job_directory):
    for epoch in (1000, 999, 998):
        publish(job_directory, "ckpt.12.head.%d" % epoch)
    publish(job_directory, "ckpt.12.head.1001", 1)
    assert generations.prune_images(job_directory, "12.head", 2) == ["ckpt.12.head.999", "ckpt.12.head.998"]
    assert sorted(os.listdir(job_directory)) == ["ckpt.12.head.1000", "ckpt.12.head.1001"]


def test_prune_leaves_alone_what_it_does_not_know(job_directory):
    for generation in (1, 2, 3):
        publish(job_directory, "ckpt.%d" % generation, generation)
    path = "/proc/self/fd/%d/" % job_directory
    os.mkdir(path + "mine")
    open(path + "notes", "w").close()
    assert generations.prune_images(job_directory, "12.head", 1) == ["ckpt.2", "ckpt.1"]
    assert sorted(os.listdir(job_directory)) == ["ckpt.3", "mine", "notes"]


def test_image_that_cannot_be_removed_is_hidden_and_swept_later(job_directory):
    for generation in (1, 2):
        publish(job_directory, "ckpt.%d" % generation, generation)
    os.mkdir("/proc/self/fd/%d/ckpt.1/strange" % job_directory)
    with pytest.raises(HookError) as caught:
        generations.prune_images(job_directory, "12.head", 1)
    assert str(caught.value) == "cannot remove the older image ckpt.1: Is a directory; the newer ones are kept; remove it by hand"
    assert caught.value.code == errors.CANNOT_WRITE
    assert sorted(os.listdir(job_directory))[1:] == ["ckpt.2"]
    assert listed(job_directory) == [("ckpt.2", 2)]


def test_prune_in_a_directory_of_another_user(store, somebody):
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes another user")
    os.chmod(store["path"], 0o755)
    directory = location.open_job_directory(store, store["path"] + "/12.head.CK", create=True)
    for generation in (1, 2):
        publish(directory, "ckpt.%d" % generation, generation)
    assert privilege.as_user(somebody, lambda: generations.prune_images(directory, "12.head", 1)) == []  # it cannot read them
    os.close(directory)
    assert sorted(os.listdir(store["path"] + "/12.head.CK")) == ["ckpt.1", "ckpt.2"]


# Two images of one second

def test_image_of_the_same_name_is_superseded(job_directory):
    before = descriptors()
    publish(job_directory, "ckpt.1", 1, b"older")
    publish(job_directory, "ckpt.1", 2, b"newer")
    assert content(job_directory) == {"ckpt.1": b"newer"}
    assert listed(job_directory) == [("ckpt.1", 2)]
    assert descriptors() == before


@pytest.mark.parametrize("existing, mine", [(2, 2), (3, 2), (None, None), (1, None)])
def test_image_of_the_same_name_that_is_not_older_is_kept(job_directory, existing, mine):
    publish(job_directory, "ckpt.1", existing, b"existing")
    draft = drafted(job_directory, "ckpt.1", mine, b"mine")
    with pytest.raises(HookError) as caught:
        draft.publish()
    assert str(caught.value) == ("cannot publish image ckpt.1: what has its name is not an older image; it is kept; move it away, or try "
                                 "again a second later")
    draft.discard()
    assert content(job_directory) == {"ckpt.1": b"existing"}


@pytest.mark.parametrize("number, why", [(22, "Invalid argument"), (38, "Function not implemented")])
def test_same_name_where_the_file_system_cannot_exchange(job_directory, monkeypatch, number, why):
    def exchange(_draft):
        raise OSError(number, why)

    publish(job_directory, "ckpt.1", 1, b"older")
    monkeypatch.setattr(Draft, "_exchange", exchange)
    with pytest.raises(HookError) as caught:
        publish(job_directory, "ckpt.1", 2, b"newer")
    assert str(caught.value) == ("cannot publish image ckpt.1: one of the same second is there, and the store's file system cannot "
                                 "exchange the two (%s); that one is kept; try again a second later" % why)
    assert caught.value.code == errors.CANNOT_WRITE
    assert content(job_directory)["ckpt.1"] == b"older"


def test_failure_after_the_exchange_brings_the_older_image_back(job_directory, monkeypatch):
    publish(job_directory, "ckpt.1", 1, b"older")
    real = os.fsync

    def fsync(descriptor):
        if descriptor == job_directory:
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(location.os, "fsync", fsync)
    draft = drafted(job_directory, "ckpt.1", 2, b"newer")
    with pytest.raises(HookError) as caught:
        draft.publish()
    assert str(caught.value) == "cannot publish image ckpt.1: Input/output error; see to the space, the quota and the rights in the store"
    draft.discard()
    assert content(job_directory) == {"ckpt.1": b"older"}


def test_discard_spares_what_took_the_drafts_place(job_directory):
    draft = Draft(job_directory, "ckpt.2")
    publish(job_directory, "ckpt.1", 1, b"older")
    os.rename(draft.hidden, "moved", src_dir_fd=job_directory, dst_dir_fd=job_directory)
    os.rename("ckpt.1", draft.hidden, src_dir_fd=job_directory, dst_dir_fd=job_directory)
    draft.discard()
    assert content(job_directory) == {draft.hidden: b"older", "moved": None}


# What hooks that are gone left behind

def leave(job_directory, name, age=0.0, entries=("pages.img",)):
    """Make what a hook leaves when it dies, this many seconds ago."""
    path = "/proc/self/fd/%d/%s" % (job_directory, name)
    os.mkdir(path)
    then = os.stat(path).st_mtime - age
    for entry in entries:
        with open(os.path.join(path, entry), "w") as stream:
            stream.write("half")
        os.utime(os.path.join(path, entry), (then, then))
    os.utime(path, (then, then))


def here(pid, start):
    return ".ckpt.1@%s:%d:%d" % (os.uname().nodename, pid, start)


def test_sweep_removes_what_a_dead_process_of_this_node_left(job_directory, free_pid):
    before = descriptors()
    leave(job_directory, here(free_pid, 1))
    mine = processes.read_process(os.getpid())
    leave(job_directory, here(mine.pid, mine.start - 1))  # the number is another process's now
    publish(job_directory, "ckpt.0", 1)
    assert sorted(generations.sweep_leftovers(job_directory, 1e9)) == sorted([here(free_pid, 1), here(mine.pid, mine.start - 1)])
    assert os.listdir(job_directory) == ["ckpt.0"]
    assert descriptors() == before


def test_sweep_spares_what_is_being_made(job_directory):
    draft = Draft(job_directory, "ckpt.1")
    put(draft, "pages.img")
    assert generations.sweep_leftovers(job_directory, 0) == []
    assert os.listdir(job_directory) == [draft.hidden]
    draft.discard()


@pytest.mark.parametrize("age, swept", [(3590, False), (3610, True)])
@pytest.mark.parametrize("node", ["elsewhere", "node-1.example.org", "node_1"])
def test_sweep_judges_what_another_node_left_by_its_age(job_directory, node, age, swept):
    name = ".ckpt.12.head.1@%s:%d:%d" % (node, os.getpid(), processes.read_process(os.getpid()).start)
    leave(job_directory, name, age)
    assert generations.sweep_leftovers(job_directory, 3600) == ([name] if swept else [])
    assert os.listdir(job_directory) == ([] if swept else [name])


def test_sweep_takes_the_last_write_of_another_node(job_directory):
    """An engine writes for hours into files that are there."""
    name = ".ckpt.1@elsewhere:1:1"
    leave(job_directory, name, 9999)
    os.utime("/proc/self/fd/%d/%s/pages.img" % (job_directory, name))
    assert generations.sweep_leftovers(job_directory, 3600) == []
    assert os.listdir(job_directory) == [name]


def test_sweep_goes_by_the_clock_of_the_store(job_directory, monkeypatch):
    leave(job_directory, ".ckpt.1@elsewhere:1:1", 0)
    monkeypatch.setattr("time.time", lambda: 1e12)
    assert generations.sweep_leftovers(job_directory, 3600) == []


@pytest.mark.parametrize("name", [".hidden", ".ckpt.1.4711.1700000000", "ckpt.1@elsewhere:1:1", ".@elsewhere:1:1", ".x@elsewhere:1",
                                  "notes"])
def test_sweep_leaves_alone_what_it_does_not_know(job_directory, name):
    leave(job_directory, name, 9999)
    assert generations.sweep_leftovers(job_directory, 0) == []
    assert os.listdir(job_directory) == [name]


def test_sweep_follows_no_link(job_directory, tmp_path, free_pid):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("precious")
    leave(job_directory, here(free_pid, 1), entries=())
    os.symlink(str(tmp_path / "elsewhere" / "file"), "/proc/self/fd/%d/%s/link" % (job_directory, here(free_pid, 1)))
    os.symlink(str(tmp_path / "elsewhere"), here(free_pid, 2), dir_fd=job_directory)
    open("/proc/self/fd/%d/%s" % (job_directory, here(free_pid, 3)), "w").close()
    assert generations.sweep_leftovers(job_directory, 0) == [here(free_pid, 1)]
    assert sorted(os.listdir(job_directory)) == [here(free_pid, 2), here(free_pid, 3)]
    assert (tmp_path / "elsewhere" / "file").read_text() == "precious"


@pytest.mark.root
def test_sweep_leaves_alone_what_belongs_to_another(job_directory, free_pid, somebody):
    leave(job_directory, here(free_pid, 1))
    os.chown("/proc/self/fd/%d/%s" % (job_directory, here(free_pid, 1)), somebody.uid, -1)
    assert generations.sweep_leftovers(job_directory, 0) == []
    assert content(job_directory) == {here(free_pid, 1): b"half"}


def test_leftover_with_a_directory_in_it_stays(job_directory, free_pid):
    leave(job_directory, here(free_pid, 1))
    os.mkdir("/proc/self/fd/%d/%s/strange" % (job_directory, here(free_pid, 1)))
    assert generations.sweep_leftovers(job_directory, 0) == []


# What must outlive a loss of power

def test_manifest_is_flushed_last_and_the_name_after_all(job_directory, monkeypatch):
    flushed, real = [], os.fsync

    def fsync(descriptor):
        flushed.append(os.path.basename(os.readlink("/proc/self/fd/%d" % descriptor)))
        real(descriptor)

    monkeypatch.setattr(location.os, "fsync", fsync)
    draft = drafted(job_directory, "ckpt.1", 1)
    draft.publish()
    assert flushed == ["pages.img", "manifest.json", ".ckpt.1@%s:%d:%d" % (
        os.uname().nodename, os.getpid(), processes.read_process(os.getpid()).start), "12.head.CK"]
    assert draft.hidden == flushed[2]


def test_large_draft_is_flushed_while_it_is_hashed(job_directory, monkeypatch):
    flushed, real, here = [], os.fsync, threading.get_ident()

    def fsync(descriptor):
        flushed.append((os.path.basename(os.readlink("/proc/self/fd/%d" % descriptor)), threading.get_ident() == here))
        real(descriptor)

    monkeypatch.setattr(location.os, "fsync", fsync)
    draft = drafted(job_directory, "ckpt.1", 1)
    os.truncate(os.path.join(draft.path(), "pages.img"), 1 << 20)
    draft.flush()
    monkeypatch.setattr("torque_ckpt.store.draft._MUCH", 1 << 20)
    assert flushed == []
    draft.flush()
    draft.publish()
    assert flushed[:3] == [("pages.img", False), ("manifest.json", False), ("pages.img", True)]


def test_early_flushing_is_in_nobodys_way(job_directory, monkeypatch):
    """Whoever lists the draft meanwhile sees every file, and each once."""
    draft = Draft(job_directory, "ckpt.1")
    for number in range(2000):
        os.close(os.open("core-%d.img" % number, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=draft.descriptor))
    with open(os.open("pages.img", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=draft.descriptor), "wb") as stream:
        stream.truncate(32 << 20)
    wanted = sorted(os.listdir(draft.descriptor))
    monkeypatch.setattr(location.os, "fsync", lambda descriptor: None)
    for _turn in range(20):
        draft.flush()
        assert sorted(os.listdir(draft.descriptor)) == wanted
        draft._wait()
    draft.discard()


def test_what_early_flushing_met_is_raised(job_directory, monkeypatch):
    """The kernel tells a failed write to the first who asks."""
    failures = [OSError(5, "Input/output error")]

    def fsync(descriptor):
        if failures:
            raise failures.pop()

    monkeypatch.setattr(location.os, "fsync", fsync)
    monkeypatch.setattr("torque_ckpt.store.draft._MUCH", 1)
    draft = drafted(job_directory, "ckpt.1", 1)
    draft.flush()
    with pytest.raises(HookError) as caught:
        draft.publish()
    assert (caught.value.code, str(caught.value)) == (errors.CANNOT_WRITE, "cannot publish image ckpt.1: Input/output error; see to the "
                                                                           "space, the quota and the rights in the store")
    draft.discard()
    assert os.listdir(job_directory) == []


def test_draft_is_not_removed_under_who_flushes_it(job_directory, monkeypatch):
    listings = []

    def fsync(descriptor):
        time.sleep(0.3)
        listings.append(sorted(os.listdir(draft.descriptor)))

    monkeypatch.setattr(location.os, "fsync", fsync)
    monkeypatch.setattr("torque_ckpt.store.draft._MUCH", 1)
    draft = drafted(job_directory, "ckpt.1", 1)
    draft.flush()
    draft.discard()
    assert listings == [["manifest.json", "pages.img"]] * 2
    assert os.listdir(job_directory) == []


def test_new_job_directory_is_flushed_in_its_parent(store, monkeypatch):
    flushed = []
    monkeypatch.setattr(location.os, "fsync", lambda descriptor: flushed.append(os.readlink("/proc/self/fd/%d" % descriptor)))
    path = store["path"] + "/12.head.CK"
    for wanted in (1, 2, 2):  # the second time it could be pbs_mom's, who does not flush
        os.close(location.open_job_directory(store, path, create=True))
        assert flushed == [store["path"]] * wanted
        if wanted == 2:
            os.makedirs(path + "/ckpt.1", exist_ok=True)


@pytest.mark.root
def test_new_job_directory_of_pbs_mom_is_flushed_by_root(store, somebody, monkeypatch):
    flushed = []
    monkeypatch.setattr(location.os, "fsync", lambda descriptor: flushed.append(os.readlink("/proc/self/fd/%d" % descriptor)))
    path = store["path"] + "/12.head.CK"
    os.mkdir(path)
    for wanted in (1, 1):
        location.give_job_directory(store, path, somebody)
        assert flushed == [store["path"]] * wanted
        os.makedirs(path + "/ckpt.1", exist_ok=True)
