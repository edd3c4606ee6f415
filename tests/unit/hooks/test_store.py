import os
import re

import pytest

from torque_ckpt import errors, privilege, store
from torque_ckpt.engines import base
from torque_ckpt.errors import HookError


@pytest.fixture
def place(tmp_path):
    """A store (dict) that is there."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / store.MARKER).write_text("main\n")
    return {"path": str(tmp_path / "store"), "id": "main"}


@pytest.fixture
def job_directory(place):
    """A descriptor of an empty job directory; .path of the fixture's store + /12.head.CK."""
    descriptor = store.open_job_directory(place, place["path"] + "/12.head.CK", create=True)
    yield descriptor
    os.close(descriptor)


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


# Which store

STORES = [{"path": "/shared/ckpt", "id": "main"}, {"path": "/fast/", "id": "fast"}]


@pytest.mark.parametrize("directory, wanted", [
    ("/shared/ckpt/12.head.CK", "main"), ("/shared/ckpt/alice/deeper/12.head.CK", "main"), ("/fast/12.head.CK", "fast")])
def test_configured_finds_the_store_of_a_directory(directory, wanted):
    assert store.configured(STORES, directory)["id"] == wanted


@pytest.mark.parametrize("directory", [
    "/tmp/12.head.CK", "/shared/ckpt", "/shared/ckpt2/12.head.CK", "/shared", "/fast", "/tmp/shared/ckpt/12.head.CK", "/Shared/ckpt/x"])
def test_configured_refuses_a_directory_elsewhere(directory):
    with pytest.raises(HookError) as caught:
        store.configured(STORES, directory)
    assert str(caught.value) == ("directory %s is in none of this node's stores (/shared/ckpt, /fast/); set the job's checkpoint directory "
                                 "beneath one" % directory)
    assert caught.value.code == errors.REFUSED


# Root makes the job's directory where users may not

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: directories are given away")


def found(path):
    """Owner and mode of a path as (uid, gid, octal str), None when it is not there."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_uid, status.st_gid, "%o" % (status.st_mode & 0o7777)


@needs_root
def test_root_gives_the_user_a_directory_in_the_store_itself(place, somebody):
    before = descriptors()
    store.give_job_directory(place, place["path"] + "/12.head.CK", somebody)
    assert found(place["path"] + "/12.head.CK") == (somebody.uid, somebody.gid, "711")
    assert descriptors() == before


@needs_root
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_directory_deeper_in_the_store_is_the_users_to_make(place, somebody, slash):
    os.mkdir(place["path"] + "/alice")
    store.give_job_directory(dict(place, path=place["path"] + slash), place["path"] + "/alice/12.head.CK", somebody)
    assert os.listdir(place["path"] + "/alice") == []


@needs_root
@pytest.mark.parametrize("mode", [0o1777, 0o775, 0o757])
def test_root_makes_nothing_where_others_can_write(place, somebody, mode):
    os.chmod(place["path"], mode)
    store.give_job_directory(place, place["path"] + "/12.head.CK", somebody)
    assert found(place["path"] + "/12.head.CK") is None


@needs_root
@pytest.mark.parametrize("make", [os.mkdir, lambda path: os.symlink("/etc", path), lambda path: open(path, "w").close()])
def test_what_is_there_already_is_not_given_away(place, somebody, make):
    make(place["path"] + "/12.head.CK")
    before = found(place["path"] + "/12.head.CK")
    store.give_job_directory(place, place["path"] + "/12.head.CK", somebody)
    assert found(place["path"] + "/12.head.CK") == before
    assert os.stat("/etc").st_uid == 0


# Whether it is there

@pytest.mark.parametrize("content", ["main\n", "main", "  main \n\n"])
def test_mounted_store_is_taken(place, content):
    with open(os.path.join(place["path"], store.MARKER), "w") as stream:
        stream.write(content)
    assert store.check_mounted(place) is None


def test_store_without_its_marker_is_not_mounted(place):
    marker = os.path.join(place["path"], store.MARKER)
    os.unlink(marker)
    with pytest.raises(HookError) as caught:
        store.check_mounted(place)
    assert str(caught.value) == "store %s is not usable on this node: %s: No such file or directory; is it mounted?" % (
        place["path"], marker)
    assert caught.value.code == errors.CONFIG


@pytest.mark.parametrize("content, shown", [
    ("other\n", "'other'"), ("", "''"), ("main2\n", "'main2'"), ("a\nb", "'a\\nb'"), ("x" * 99, "'%s'" % ("x" * 80))])
def test_another_store_in_its_place(place, content, shown):
    with open(os.path.join(place["path"], store.MARKER), "w") as stream:
        stream.write(content)
    with pytest.raises(HookError) as caught:
        store.check_mounted(place)
    assert str(caught.value) == "store %s is another one than configured: its id is %s, expected main" % (place["path"], shown)
    assert caught.value.code == errors.CONFIG


# The job's directory

@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_job_directory_is_made_searchable_whatever_the_umask(in_child, place, umask):
    def work():
        os.umask(umask)
        os.close(store.open_job_directory(place, place["path"] + "/12.head.CK", create=True))
    in_child(work)
    assert os.stat(place["path"] + "/12.head.CK").st_mode == 0o040711


def test_job_directory_that_is_there_stays_as_it_is(place):
    path = os.path.join(place["path"], "12.head.CK")
    os.mkdir(path)
    os.chmod(path, 0o750)
    for create in (True, False):
        descriptor = store.open_job_directory(place, path, create=create)
        assert os.path.samestat(os.fstat(descriptor), os.stat(path))
        os.close(descriptor)
    assert os.stat(path).st_mode == 0o040750


def test_job_directory_beneath_a_users_own(place):
    os.mkdir(place["path"] + "/alice")
    path = place["path"] + "/alice/12.head.CK"
    os.close(store.open_job_directory(dict(place, path=place["path"] + "/"), path, create=True))
    assert os.path.isdir(path)


def test_only_the_last_component_is_made(place):
    with pytest.raises(HookError) as caught:
        store.open_job_directory(place, place["path"] + "/alice/12.head.CK", create=True)
    assert str(caught.value) == "cannot use the directory of job images %s/alice: No such file or directory" % place["path"]
    assert caught.value.code == errors.CANNOT_WRITE
    assert os.listdir(place["path"]) == [store.MARKER]


def test_missing_job_directory_is_not_made_for_reading(place):
    with pytest.raises(HookError) as caught:
        store.open_job_directory(place, place["path"] + "/12.head.CK")
    assert str(caught.value) == "cannot open the directory of job images %s/12.head.CK: No such file or directory" % place["path"]
    assert caught.value.code == errors.NO_INPUT
    assert os.listdir(place["path"]) == [store.MARKER]


@pytest.mark.parametrize("create, words, code", [
    (True, "cannot use the directory", errors.CANNOT_WRITE), (False, "cannot open the directory", errors.NO_INPUT)])
@pytest.mark.parametrize("link, rest", [("12.head.CK", ""), ("alice", "/12.head.CK")])
def test_links_on_the_way_are_not_followed(place, tmp_path, create, words, code, link, rest):
    (tmp_path / "elsewhere" / "12.head.CK").mkdir(parents=True)
    os.symlink(str(tmp_path / "elsewhere"), os.path.join(place["path"], link))
    with pytest.raises(HookError) as caught:
        store.open_job_directory(place, "%s/%s%s" % (place["path"], link, rest), create=create)
    assert str(caught.value) == "%s of job images %s/%s: Not a directory" % (words, place["path"], link)
    assert caught.value.code == code
    assert os.listdir(str(tmp_path / "elsewhere")) == ["12.head.CK"]


def test_file_in_the_place_of_a_job_directory(place):
    path = os.path.join(place["path"], "12.head.CK")
    open(path, "w").close()
    with pytest.raises(HookError) as caught:
        store.open_job_directory(place, path, create=True)
    assert str(caught.value) == "cannot use the directory of job images %s: Not a directory" % path
    assert caught.value.code == errors.CANNOT_WRITE


def test_job_directory_that_the_user_may_not_make(open_directory, somebody):
    place = {"path": open_directory, "id": "main"}
    os.chmod(open_directory, 0o555)
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: store.open_job_directory(place, open_directory + "/12.head.CK", create=True))
    os.chmod(open_directory, 0o755)
    assert str(caught.value) == "cannot use the directory of job images %s/12.head.CK: Permission denied" % open_directory
    assert caught.value.code == errors.CANNOT_WRITE


def test_the_way_to_a_users_own_directory_needs_search_permission_only(open_directory, somebody):
    own = os.path.join(open_directory, "alice")
    os.mkdir(own)
    os.chown(own, somebody.uid, somebody.gid)
    os.chmod(open_directory, 0o311)
    place = {"path": open_directory, "id": "main"}
    try:
        privilege.as_user(somebody, lambda: store.open_job_directory(place, own + "/12.head.CK", create=True))
        privilege.as_user(somebody, lambda: store.open_job_directory(place, own + "/12.head.CK"))
    finally:
        os.chmod(open_directory, 0o755)
    assert os.stat(own + "/12.head.CK").st_uid == somebody.uid


@pytest.mark.parametrize("create, words, code", [
    (True, "cannot use the directory", errors.CANNOT_WRITE), (False, "cannot open the directory", errors.NO_INPUT)])
@pytest.mark.parametrize("make, why", [
    (lambda path: None, "No such file or directory"),
    (lambda path: path.symlink_to("/tmp"), "Not a directory"),
    (lambda path: path.touch(), "Not a directory"),
])
def test_store_that_is_no_directory(tmp_path, create, words, code, make, why):
    path = tmp_path / "store"
    make(path)
    with pytest.raises(HookError) as caught:
        store.open_job_directory({"path": str(path), "id": "main"}, str(path / "12.head.CK"), create=create)
    assert str(caught.value) == "%s of job images %s: %s" % (words, path, why)
    assert caught.value.code == code


def test_no_descriptor_is_left(place):
    os.makedirs(place["path"] + "/a/b")
    before = descriptors()
    os.close(store.open_job_directory(place, place["path"] + "/a/b/c", create=True))
    for path in ("/none", "/a/none/c", "/a/b/none"):
        with pytest.raises(HookError):
            store.open_job_directory(place, place["path"] + path)
    assert descriptors() == before


# Images

def test_open_image_opens_the_directory_of_that_name(job_directory, place):
    path = os.path.join(place["path"], "12.head.CK", "ckpt.1")
    os.mkdir(path)
    descriptor = store.open_image(job_directory, "ckpt.1", "/shown")
    assert os.path.samestat(os.fstat(descriptor), os.stat(path))
    os.close(descriptor)


@pytest.mark.parametrize("make, why", [
    (lambda path: None, "No such file or directory"),
    (lambda path: open(path, "w").close(), "Not a directory"),
    (lambda path: os.symlink("/", path), "Not a directory"),
    (lambda path: os.symlink("/nonexistent", path), "Not a directory"),
])
def test_open_image_of_something_else(job_directory, place, make, why):
    make(os.path.join(place["path"], "12.head.CK", "ckpt.1"))
    with pytest.raises(HookError) as caught:
        store.open_image(job_directory, "ckpt.1", "/shown/ckpt.1")
    assert str(caught.value) == "image /shown/ckpt.1 cannot be opened: %s" % why
    assert caught.value.code == errors.NO_INPUT


def test_engine_path_leads_a_program_to_the_directory_even_when_it_was_renamed(job_directory, place):
    path = os.path.join(place["path"], "12.head.CK", "ckpt.1")
    os.mkdir(path)
    open(os.path.join(path, "pages.img"), "w").close()
    descriptor = store.open_image(job_directory, "ckpt.1", path)
    os.rename(path, path + ".moved")
    os.mkdir(path)
    assert base.call(["/bin/ls", store.engine_path(descriptor)], 10) == (0, "pages.img\n")
    os.close(descriptor)


def test_draft_is_hidden_private_and_empty(job_directory, place):
    draft = store.Draft(job_directory, "ckpt.1")
    found = os.listdir(job_directory)
    assert len(found) == 1 and re.match(r"\.ckpt\.1\.%d\.[0-9]+$" % os.getpid(), found[0])
    path = os.path.join(place["path"], "12.head.CK", found[0])
    assert os.path.samestat(os.fstat(draft.descriptor), os.stat(path))
    assert os.stat(path).st_mode == 0o040700
    assert os.listdir(path) == []
    draft.discard()


def put(draft, name, content=b"x"):
    """Write a file the way the engine does it: by the draft's path."""
    with open(os.path.join(draft.path(), name), "wb") as stream:
        stream.write(content)


def test_published_draft_is_the_image_with_all_its_files(job_directory, place):
    before = descriptors()
    draft = store.Draft(job_directory, "ckpt.1")
    for number in range(3):
        put(draft, "pages-%d.img" % number, b"%d" % number)
    draft.publish()
    assert os.listdir(job_directory) == ["ckpt.1"]
    image = store.open_image(job_directory, "ckpt.1", "ckpt.1")
    assert sorted(os.listdir(image)) == ["pages-0.img", "pages-1.img", "pages-2.img"]
    with open(os.path.join(place["path"], "12.head.CK", "ckpt.1", "pages-2.img"), "rb") as stream:
        assert stream.read() == b"2"
    os.close(image)
    assert descriptors() == before


def test_discarded_draft_is_gone_and_older_images_are_not(job_directory):
    before = descriptors()
    for name in ("ckpt.1", "ckpt.2"):
        draft = store.Draft(job_directory, name)
        put(draft, "pages.img")
        draft.publish()
    draft = store.Draft(job_directory, "ckpt.3")
    put(draft, "pages.img")
    put(draft, "core.img")
    draft.discard()
    assert sorted(os.listdir(job_directory)) == ["ckpt.1", "ckpt.2"]
    assert descriptors() == before


def test_discard_of_a_draft_that_cannot_go_is_silent(job_directory):
    draft = store.Draft(job_directory, "ckpt.1")
    os.mkdir(os.path.join(draft.path(), "directory"))
    draft.discard()
    assert os.listdir(job_directory) == [draft.hidden]


def test_image_of_the_same_name_is_not_replaced(job_directory, place):
    older = store.Draft(job_directory, "ckpt.1")
    put(older, "pages.img", b"older")
    older.publish()
    draft = store.Draft(job_directory, "ckpt.1")
    put(draft, "pages.img", b"newer")
    with pytest.raises(HookError) as caught:
        draft.publish()
    assert str(caught.value) == "cannot publish image ckpt.1: Directory not empty"
    assert caught.value.code == errors.CANNOT_WRITE
    with open(os.path.join(place["path"], "12.head.CK", "ckpt.1", "pages.img"), "rb") as stream:
        assert stream.read() == b"older"
    assert os.listdir(draft.descriptor) == ["pages.img"]
    draft.discard()
    assert os.listdir(job_directory) == ["ckpt.1"]


def test_file_of_the_same_name_is_not_replaced(job_directory, place):
    path = os.path.join(place["path"], "12.head.CK", "ckpt.1")
    open(path, "w").close()
    draft = store.Draft(job_directory, "ckpt.1")
    with pytest.raises(HookError) as caught:
        draft.publish()
    assert str(caught.value) == "cannot publish image ckpt.1: Not a directory"
    assert os.path.isfile(path)
    draft.discard()


def test_draft_with_a_link_is_not_published(job_directory):
    draft = store.Draft(job_directory, "ckpt.1")
    os.symlink("/etc/passwd", os.path.join(draft.path(), "pages.img"))
    with pytest.raises(HookError) as caught:
        draft.publish()
    assert str(caught.value) == "cannot publish image ckpt.1: Too many levels of symbolic links"
    assert caught.value.code == errors.CANNOT_WRITE
    assert os.listdir(job_directory) == [draft.hidden]
    draft.discard()
    assert os.listdir(job_directory) == []
    assert os.path.exists("/etc/passwd")


def test_draft_of_a_name_too_long(job_directory):
    with pytest.raises(HookError) as caught:
        store.Draft(job_directory, "a" * 255)
    assert str(caught.value) == "cannot create image %s: File name too long" % ("a" * 255)
    assert caught.value.code == errors.CANNOT_WRITE
    assert os.listdir(job_directory) == []


def test_draft_in_a_directory_of_another_user(open_directory, somebody):
    os.chmod(open_directory, 0o555)
    descriptor = os.open(open_directory, os.O_RDONLY)
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: store.Draft(descriptor, "ckpt.1"))
    os.close(descriptor)
    os.chmod(open_directory, 0o755)
    assert str(caught.value) == "cannot create image ckpt.1: Permission denied"
    assert caught.value.code == errors.CANNOT_WRITE


def test_failure_after_the_rename_leaves_no_half_image(tmp_path, monkeypatch):
    job, real = os.open(str(tmp_path), os.O_RDONLY), os.fsync

    def fsync(descriptor):
        if descriptor == job:
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(store.os, "fsync", fsync)
    draft = store.Draft(job, "ckpt.1")
    with open(os.path.join(draft.path(), "pages.img"), "w") as stream:
        stream.write("x")
    with pytest.raises(HookError) as caught:
        draft.publish()
    assert str(caught.value) == "cannot publish image ckpt.1: Input/output error"
    draft.discard()
    assert os.listdir(str(tmp_path)) == []
