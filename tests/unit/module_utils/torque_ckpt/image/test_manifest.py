import errno
import hashlib
import json
import os
import re
import threading

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.image import compatibility, digest, manifest, schema, seal
from torque_ckpt.system import privilege
from torque_ckpt.torque import contract

SHOWN = "/shared/ckpt/12.head.CK/ckpt.12.head.1"
ALICE = privilege.User("alice", 1001, 100, "/home/alice")
CALL = contract.Call(4711, "12.head", "alice", None, "/shared/ckpt/12.head.CK", "ckpt.12.head.1", None, None)
KEYS = [("first", b"s" * 32)]
FACTS = {"engine": {"name": "criu", "version": "4.1"}, "root": 7, "pids": [7, 8], "frozen_seconds": 0.25, "spool": []}
FILES = {"core-7.img": b"registers", "empty.img": b"", "pages-1.img": bytes(bytearray(range(256))) * 8193}


def sealed(body):
    return seal.add_seal(KEYS, body)


def prove(described, shown):
    seal.check_seal(KEYS, described, shown)


class Image:
    """An image on its way: .path (str), .descriptor (int)."""

    def __init__(self, path):
        self.path = path
        os.mkdir(path)
        self.descriptor = os.open(path, os.O_RDONLY)
        for name, content in FILES.items():
            self.put(name, content)

    def put(self, name, content):
        with open(os.path.join(self.path, name), "wb") as stream:
            stream.write(content)

    def write(self, **change):
        return manifest.write_manifest(self.descriptor, CALL, ALICE, dict(FACTS, **change), sealed)

    def verify(self, private=None, **change):
        described = manifest.verify_manifest(self.descriptor, CALL._replace(**change), ALICE, SHOWN, prove)
        manifest.check_files(self.descriptor, described, SHOWN, private, lambda name: name.startswith("pages"))
        return described

    def edit(self, **change):
        """Put another manifest in the place of this one, sealed as it must be."""
        path = os.path.join(self.path, schema.FILE)
        with open(path) as stream:
            described = json.load(stream)
        with open(path, "w") as stream:
            json.dump(sealed(dict(described, **change)), stream)

    def refusal(self, **change):
        with pytest.raises(HookError) as caught:
            self.verify(**change)
        return caught.value.code, str(caught.value)


@pytest.fixture
def image(tmp_path):
    image = Image(str(tmp_path / "image"))
    yield image
    os.close(image.descriptor)


# Writing

def leaf(content):
    return hashlib.sha256(content).digest()


def test_written_manifest_says_what_the_image_is(image):
    described = image.write(generation=3)
    assert re.match(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z$", described.pop("created"))
    assert re.match(r"[0-9a-f]{64}$", described.pop("mac"))
    assert described == dict(
        FACTS, format=3, job_id="12.head", user="alice", uid=1001, name="ckpt.12.head.1", generation=3, key="first",
        node_local=[], left=[], open_files=[], bound=False, bound_reason="", affinity=[], lost=[], incarnation="",
        bytes=sum(map(len, FILES.values())), files=[
            {"name": name, "size": len(FILES[name]), "sha256_tree": hashlib.sha256(leaf(FILES[name]) if FILES[name] else b"").hexdigest()}
            for name in sorted(FILES)], **compatibility.describe_node())
    assert described["kernel"] == os.uname().release and described["node"] == os.uname().nodename


def test_manifest_lies_beside_the_files_and_is_the_users_alone(image):
    described = image.write()
    path = os.path.join(image.path, "manifest.json")
    with open(path) as stream:
        assert json.load(stream) == described
    assert os.stat(path).st_mode == 0o100600
    assert sorted(os.listdir(image.path)) == sorted(list(FILES) + ["manifest.json"])


def test_manifest_is_not_written_twice(image):
    image.write()
    with pytest.raises(HookError) as caught:
        image.write()
    assert str(caught.value) == ("cannot write the manifest of image ckpt.12.head.1: File exists; see to the space, the quota and the "
                                 "rights in the store")
    assert caught.value.code == errors.CANNOT_WRITE


@pytest.mark.parametrize("make, why", [
    (lambda path: os.symlink("/etc/passwd", path), "Too many levels of symbolic links"),
    (lambda path: os.symlink("/nonexistent", path), "Too many levels of symbolic links"),
    (os.mkdir, "Not a regular file"),
    (os.mkfifo, "Not a regular file"),
])
def test_manifest_of_something_else_than_files(image, make, why):
    make(os.path.join(image.path, "core-9.img"))
    with pytest.raises(HookError) as caught:
        image.write()
    assert str(caught.value) == ("cannot write the manifest of image ckpt.12.head.1: %s; see to the space, the quota and the rights in the "
                                 "store" % why)
    assert caught.value.code == errors.CANNOT_WRITE
    assert schema.FILE not in os.listdir(image.path)


def test_manifest_where_the_user_may_not_write(open_directory, somebody):
    os.chmod(open_directory, 0o555)
    descriptor = os.open(open_directory, os.O_RDONLY)
    with pytest.raises(HookError) as caught:
        privilege.as_user(somebody, lambda: manifest.write_manifest(descriptor, CALL, ALICE, FACTS, sealed))
    os.close(descriptor)
    os.chmod(open_directory, 0o755)
    assert str(caught.value) == ("cannot write the manifest of image ckpt.12.head.1: Permission denied; see to the space, the quota and "
                                 "the rights in the store")
    assert caught.value.code == errors.CANNOT_WRITE


# What the engine wrote elsewhere

def is_pages(name):
    return name.startswith("pages")


@pytest.fixture
def draft(tmp_path):
    """An image whose steering files are still in a private directory. private: its descriptor"""
    draft = Image(str(tmp_path / "image"))
    os.mkdir(str(tmp_path / "private"))
    for name in ("core-7.img", "empty.img"):
        os.rename(os.path.join(draft.path, name), str(tmp_path / "private" / name))
    draft.private = os.open(str(tmp_path / "private"), os.O_RDONLY)
    yield draft
    os.close(draft.private)
    os.close(draft.descriptor)


def collect(draft, plain=None, **change):
    return manifest.write_manifest(draft.descriptor, CALL, ALICE, dict(FACTS, **change), sealed, plain, draft.private, is_pages)


def test_what_steers_the_engine_is_copied_into_the_image_while_it_is_hashed(draft, tmp_path):
    (tmp_path / "private" / "pages-77.img").write_bytes(b"more than was expected")
    draft.put("stdout", b"line 1")
    draft.put("node-local-1", b"x")
    described = collect(draft, spool=[{"name": "stdout", "path": "/spool/12.head.OU", "mode": 0o600}],
                        node_local=[{"name": "node-local-1"}, {"path": "/tmp/fifo"}])
    assert [entry["name"] for entry in described["files"]] == [
        "core-7.img", "empty.img", "node-local-1", "pages-1.img", "pages-77.img", "stdout"]
    for entry in described["files"]:
        path = os.path.join(draft.path, entry["name"])
        assert manifest.hash_named_file(draft.descriptor, entry["name"]) == (entry["size"], entry["sha256_tree"])
        assert os.stat(path).st_mode & 0o077 == 0 or entry["name"] not in os.listdir(draft.private)


@pytest.mark.parametrize("name", ["core-8.img", "inventory.img", "stats-restore", "node-local-1", "stdout", "x\ny"])
def test_file_that_somebody_else_put_there(draft, name):
    draft.put(name, b"x")
    with pytest.raises(HookError) as caught:
        collect(draft)
    assert (caught.value.code, str(caught.value)) == (
        errors.REFUSED, "somebody else than the engine and the hooks put %s into the image while it was written; the job keeps running; "
                        "stop what writes there and try again"
        % name.replace("\n", "\\n"))
    assert schema.FILE not in os.listdir(draft.path)


def test_file_in_the_place_of_a_steering_one(draft):
    """Put there after the look, it stands in the way; it is never taken for the engine's."""
    draft.put("core-7.img", b"x")
    with pytest.raises(HookError) as caught:
        manifest.write_manifest(draft.descriptor, CALL, ALICE, FACTS, sealed, None, draft.private, lambda _name: True)
    assert (caught.value.code, str(caught.value)) == (
        errors.CANNOT_WRITE, "cannot write the manifest of image ckpt.12.head.1: File exists; see to the space, the quota and the rights "
                             "in the store")


# Verifying

def test_whole_image_is_verified_and_its_manifest_returned(image):
    assert image.write() == image.verify()


def test_group_name_and_signal_of_the_call_do_not_matter(image):
    assert image.write() == image.verify(group="users", session_id=None, signal=15)


@pytest.mark.parametrize("name, content, why", [
    ("core-7.img", b"registerS", "core-7.img has another content than was written"),
    ("core-7.img", b"register", "core-7.img has 8 bytes, expected 9"),
    ("core-7.img", b"", "core-7.img has 0 bytes, expected 9"),
    ("empty.img", b"x", "empty.img has 1 bytes, expected 0"),
    ("pages-1.img", FILES["pages-1.img"][:-1] + b"\0", "pages-1.img has another content than was written"),
    ("pages-1.img", b"\1" + FILES["pages-1.img"][1:], "pages-1.img has another content than was written"),
    ("pages-1.img", FILES["pages-1.img"] + b"x", "pages-1.img has 2097409 bytes, expected 2097408"),
], ids=["a byte", "shorter", "emptied", "no longer empty", "last byte of many", "first byte of many", "longer"])
def test_changed_file(image, name, content, why):
    image.write()
    image.put(name, content)
    assert image.refusal() == (errors.DATA, "image %s is damaged: %s; take an older image" % (SHOWN, why))


def test_missing_file(image):
    image.write()
    os.unlink(os.path.join(image.path, "pages-1.img"))
    assert image.refusal() == (errors.DATA, "image %s is damaged: pages-1.img: No such file or directory; take an older image" % SHOWN)


def test_file_that_became_a_link_to_the_same_content(image, tmp_path):
    image.write()
    os.rename(os.path.join(image.path, "core-7.img"), str(tmp_path / "elsewhere"))
    os.symlink(str(tmp_path / "elsewhere"), os.path.join(image.path, "core-7.img"))
    assert image.refusal() == (
        errors.DATA, "image %s is damaged: core-7.img: Too many levels of symbolic links; take an older image" % SHOWN)


def test_image_without_a_manifest(image):
    assert image.refusal() == (
        errors.DATA, "image %s has no readable manifest (No such file or directory); it is kept but cannot be restarted; take an older "
                     "image" % SHOWN)


def test_manifest_that_is_a_link(image, tmp_path):
    image.write()
    os.rename(os.path.join(image.path, schema.FILE), str(tmp_path / "elsewhere"))
    os.symlink(str(tmp_path / "elsewhere"), os.path.join(image.path, schema.FILE))
    assert image.refusal() == (
        errors.DATA, "image %s has no readable manifest (Too many levels of symbolic links); it is kept but cannot be restarted; take an "
                     "older image" % SHOWN)


def not_ours(why):
    return errors.DATA, ("image %s has a manifest that is not ours: %s; it is kept but cannot be restarted; take an older image"
                         % (SHOWN, why))


@pytest.mark.parametrize("content, why", [
    (b"", "it is not JSON"), (b"{", "it is not JSON"), (b'{"format": 1', "it is not JSON"), (b"\xff", "it is not JSON"),
    (b"null", "it is not an object of at most 100 fields"), (b"[]", "it is not an object of at most 100 fields"),
    (b"7", "it is not an object of at most 100 fields"), (b'"format"', "it is not an object of at most 100 fields"),
    (json.dumps({str(number): 1 for number in range(101)}).encode(), "it is not an object of at most 100 fields"),
    (b"{}", "format is missing"), (b'{"version": 1}', "format is missing"), (b"[" * 200000, "it is nested more than 8 deep"),
    (b'{"format": 3, "x": %s}' % (b"[" * 8 + b"]" * 8), "it is nested more than 8 deep"),
    (b'{"format": %s}' % (b"9" * 100000), "it holds a number of more than 64 bits"),
    (b'{"format": 3, "x": "%s"}' % (b"x" * 4097), "it holds a text of more than 4096 characters"),
    (b'{"%s": 3}' % (b"x" * 4097), "it holds a text of more than 4096 characters"),
    (b'{"format": NaN}', "it holds NaN"), (b'{"format": 1e999}', "it holds a number of more than 64 bits"),
    (b"[" + b"0," * 1000000, "it holds more than 1000000 values"), (b" " * ((16 << 20) + 1), "it is larger than 16777216 bytes"),
], ids=lambda value: value[:30].decode("latin-1") if isinstance(value, bytes) else None)
def test_manifest_that_is_not_ours(image, content, why):
    image.put(schema.FILE, content)
    assert image.refusal() == not_ours(why)


@pytest.mark.parametrize("change, why", [
    ({"generation": "x"}, "generation is not a whole number from 0 to 9223372036854775807"),
    ({"generation": -1}, "generation is not a whole number from 0 to 9223372036854775807"),
    ({"generation": True}, "generation is not a whole number from 0 to 9223372036854775807"),
    ({"generation": 2 ** 63}, "generation is not a whole number from 0 to 9223372036854775807"),
    ({"bytes": 1.5}, "bytes is not a whole number from 0 to 9223372036854775807"),
    ({"depth": [1]}, "depth is not a whole number from 0 to 9223372036854775807"),
    ({"frozen_seconds": "0.1"}, "frozen_seconds is not a number of seconds"),
    ({"frozen_seconds": -1}, "frozen_seconds is not a number of seconds"),
    ({"node": "n" * 256}, "node is not a text of at most 255 characters"),
    ({"uid": 2 ** 32}, "uid is not a whole number from 0 to 4294967295"),
    ({"pids": {"7": 7}}, "pids is not a list"),
    ({"pids": [7, 2 ** 22 + 1]}, "pids[1] is not a whole number from 1 to 4194304"),
    ({"engine": "criu"}, "engine is not an object"), ({"engine": {}}, "engine.name is missing"),
    ({"engine": {"name": "criu", "version": 4}}, "engine.version is not a text of at most 4096 characters"),
    ({"cpu": [["avx"]]}, "cpu[0] is not a text of at most 255 characters"),
    ({"files": [{"name": "x", "size": -1, "sha256_tree": ""}]}, "files[0].size is not a whole number from 0 to 9223372036854775807"),
    ({"files": [{"name": "../x", "size": 1, "sha256_tree": ""}]}, "files has '../x'"),
    ({"node_local": [{"kind": "tree"}]}, "name is missing"),
    ({"open_files": 7}, "a field is of another kind ('int' object is not iterable)"),
    ({"bound": 1}, "a field is of another kind (bound)"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else None)
def test_field_of_another_kind(image, change, why):
    """However well it is sealed."""
    image.write()
    image.edit(**change)
    assert image.refusal() == not_ours(why)


def test_fields_of_newer_hooks_are_left_alone(image):
    image.write()
    image.edit(later={"any": [1, "x"]})
    assert image.verify()["later"] == {"any": [1, "x"]}


@pytest.mark.parametrize("threads, fits", [(90000, True), (200000, False)])
def test_manifest_of_many_threads(image, threads, fits):
    """What could not be read is not written: the job keeps running, instead of being held by an image of no use."""
    files = [{"name": "core-%d.img" % (number + 10 ** 6), "size": 1234, "sha256_tree": "a" * 64} for number in range(threads)]
    body = dict(FACTS, format=3, files=files, pids=list(range(10 ** 6, 10 ** 6 + threads)))
    if fits:
        manifest.write_sealed(image.descriptor, body, "ckpt.12.head.1", sealed)
        assert len(manifest.read_unchecked(image.descriptor)["files"]) == threads
        return
    with pytest.raises(HookError) as caught:
        manifest.write_sealed(image.descriptor, body, "ckpt.12.head.1", sealed)
    assert (caught.value.code, str(caught.value)) == (
        errors.CANNOT_WRITE, "cannot write the manifest of image ckpt.12.head.1: it is larger than 16777216 bytes, so that no hook would "
        "read it; checkpoint the job when it has fewer processes, threads or open files")
    assert schema.FILE not in os.listdir(image.path)


@pytest.mark.parametrize("number", [0, 1, 2, 5, 10, "3", None])
def test_manifest_of_another_format(image, number):
    image.put(schema.FILE, json.dumps({"format": number}).encode())
    assert image.refusal() == (
        errors.REFUSED, "image %s has manifest format %r, these hooks read 3 and 4; restart it on a node whose hooks wrote it; "
        "image kept"
        % (SHOWN, number))


@pytest.mark.parametrize("change", [
    {"uid": 0}, {"job_id": "13.head"}, {"created": "2038-01-19T03:14:07Z"}, {"root": 1}, {"pids": []}, {"bytes": 0}, {"mac": ""},
    {"mac": None}, {"arch": "vax"}, {"files": []}, {"spool": [{"name": "stdout", "path": "/etc/passwd", "mode": 0o600}]}, {"added": 1},
], ids=lambda change: next(iter(change)))
def test_manifest_that_somebody_changed(image, change):
    path = os.path.join(image.path, schema.FILE)
    image.write()
    with open(path) as stream:
        described = json.load(stream)
    with open(path, "w") as stream:
        json.dump(dict(described, **change), stream)
    assert image.refusal() == (
        errors.REFUSED, "image %s has a manifest that root's hooks did not write, or that was changed since; take an older image" % SHOWN)


def test_manifest_laid_out_anew_is_the_same(image):
    path = os.path.join(image.path, schema.FILE)
    described = image.write()
    image.put(schema.FILE, json.dumps(described, indent=None).encode())
    assert image.verify() == described
    assert os.path.exists(path)


def test_image_under_the_name_of_another(image):
    image.write()
    assert image.refusal(name="ckpt.12.head.2") == (
        errors.REFUSED, "image %s was written as ckpt.12.head.1 and has been given another's name since; restart it under its own; image "
        "kept" % SHOWN)


def test_output_is_named_in_the_manifest(image):
    output = [{"name": "stdout", "path": "/spool/12.head.OU", "mode": 0o600}]
    assert image.write(spool=output)["spool"] == output
    assert image.verify()["spool"] == output


@pytest.mark.parametrize("change, why", [
    ({"name": "manifest.json"}, "spool has 'manifest.json'"), ({"name": "../stdout"}, "spool has '../stdout'"),
    ({"path": 7}, "spool[0].path is not a text of at most 4096 characters"),
    ({"mode": "600"}, "spool[0].mode is not a whole number from 0 to 4095"),
])
def test_output_that_is_not_ours(image, change, why):
    image.write(spool=[dict({"name": "stdout", "path": "/spool/12.head.OU", "mode": 0o600}, **change)])
    assert image.refusal() == not_ours(why)


def test_image_of_another_job(image):
    image.write()
    assert image.refusal(job_id="13.head") == (
        errors.REFUSED, "image %s belongs to job 12.head of alice, not to job 13.head of alice; move it back to its own job; image kept"
                        % SHOWN)


def test_image_of_another_user(image):
    image.write()
    image.edit(uid=1002, user="bob")
    assert image.refusal() == (
        errors.REFUSED, "image %s belongs to job 12.head of bob, not to job 12.head of alice; move it back to its own job; image kept"
                        % SHOWN)


def test_image_of_a_user_of_the_same_name_and_another_uid(image):
    image.write()
    image.edit(uid=1002)
    assert image.refusal()[0] == errors.REFUSED


def test_image_of_another_architecture(image):
    image.write()
    image.edit(arch="vax", node="node7")
    assert image.refusal() == (
        errors.REFUSED, "image %s is for vax, this node is %s; restart it on a node like node7; image kept" % (SHOWN, os.uname().machine))


def test_image_of_another_cpu(image):
    image.write()
    image.edit(cpu=compatibility.read_cpu_features() + ["xyz1", "avx1024"], node="node7")
    assert image.refusal() == (
        errors.REFUSED, "image %s was written on a CPU with avx1024 xyz1, which this node's CPU lacks; restart it on a node like node7; "
        "image kept" % SHOWN)
    image.edit(cpu=compatibility.read_cpu_features()[1:])
    image.verify()


# What is restored is what was verified

@pytest.fixture
def private(tmp_path):
    (tmp_path / "private").mkdir()
    descriptor = os.open(str(tmp_path / "private"), os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_files_that_steer_the_engine_are_copied_while_they_are_verified(image, private, tmp_path):
    image.put("large.img", os.urandom(9 * digest.CHUNK + 1))
    image.put("stdout", b"line 1")
    image.write(spool=[{"name": "stdout", "path": "/spool/12.head.OU", "mode": 0o600}])
    image.verify(private)
    copies = tmp_path / "private"
    assert sorted(os.listdir(private)) == ["core-7.img", "empty.img", "large.img", "pages-1.img"]
    for name in ("core-7.img", "empty.img", "large.img"):
        with open(os.path.join(image.path, name), "rb") as stream:
            assert (copies / name).read_bytes() == stream.read()
        assert not (copies / name).is_symlink()
    assert os.readlink(str(copies / "pages-1.img")) == SHOWN + "/pages-1.img"


def test_private_directory_without_room(image, private, monkeypatch):
    def full(_source, _number, target):
        if target is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return b"", 0
    image.write()
    monkeypatch.setattr(digest, "_hash_leaf", full)
    with pytest.raises(HookError) as caught:
        image.verify(private)
    assert (caught.value.code, str(caught.value)) == (
        errors.TEMPORARY, "cannot copy core-7.img of the image to a private directory of this node: No space left on device; free some "
                          "space there, or name another disk of this node in checkpoint_hooks_private_directory; image kept")


def test_private_directory_that_holds_something(image, private):
    image.write()
    image.verify(private)
    with pytest.raises(HookError) as caught:
        image.verify(private)
    assert (caught.value.code, str(caught.value)) == (
        errors.SYSTEM, "cannot copy core-7.img of the image to a private directory of this node: File exists; free some space there, or "
                       "name another disk of this node in checkpoint_hooks_private_directory; image kept")


def test_verifying_changes_nothing_and_leaves_no_descriptor(image):
    image.write()
    before = sorted(os.listdir("/proc/self/fd"))
    files = sorted(os.listdir(image.path))
    image.verify()
    image.put("core-7.img", b"")
    image.refusal()
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert sorted(os.listdir(image.path)) == files


# Process ids

def test_free_process_ids(free_pid):
    assert manifest.check_pids_free({"pids": [free_pid]}) is None
    assert manifest.check_pids_free({"pids": []}) is None


def busy(pids):
    with pytest.raises(HookError) as caught:
        manifest.check_pids_free({"pids": pids})
    assert caught.value.code == errors.TEMPORARY
    return str(caught.value)


def test_the_first_process_id_in_use_is_named(start_job, free_pid):
    job = start_job(programs=["/bin/sh"] * 2)
    assert busy([free_pid] + job.pids) == (
        "process id %d of the image is in use on this node (by 'sh'); try again later or on another node" % job.pids[0])


def test_name_of_the_process_in_use_is_shown_as_ascii(in_child):
    def work():
        with open("/proc/self/comm", "wb") as stream:
            stream.write(b"a\nb'c")
        try:
            manifest.check_pids_free({"pids": [os.getpid()]})
        except HookError as error:
            return str(error).replace(str(os.getpid()), "PID")
    assert in_child(work).result == (
        'process id PID of the image is in use on this node (by "a\\nb\'c"); try again later or on another node')


def test_process_id_in_use_by_a_thread():
    finish = threading.Event()
    before = set(map(int, os.listdir("/proc/self/task")))
    thread = threading.Thread(target=finish.wait)
    thread.start()
    try:
        number = (set(map(int, os.listdir("/proc/self/task"))) - before).pop()
        with open("/proc/%d/comm" % number) as stream:
            name = stream.read().strip()
        words = busy([number])
    finally:
        finish.set()
        thread.join()
    assert words == "process id %d of the image is in use on this node (by %r); try again later or on another node" % (number, name)


def test_pid_in_use_by_a_process_whose_name_is_no_text(in_child):
    def work():
        with open("/proc/self/comm", "wb") as stream:
            stream.write(b"\xff")
        try:
            manifest.check_pids_free({"pids": [os.getpid()]})
        except HookError as error:
            return error.code

    assert in_child(work).result == errors.TEMPORARY


OWN = contract.Call(1, "12.head", "alice", None, "/s/12.head.CK", "c", 15, None)
OWNER = privilege.User("alice", 1, 1, "/")


@pytest.mark.parametrize("content, missing", [
    ('{"format": 3}', "job_id"),
    ('{"format": 3, "job_id": "12.head", "user": "alice", "uid": 1, "arch": "%s", "files": 7}' % os.uname().machine, "name"),
])
def test_manifest_without_its_fields(image, content, missing):
    image.put(schema.FILE, content.encode())
    assert image.refusal() == not_ours("%s is missing" % missing)


def test_file_that_the_manifest_does_not_list(image):
    image.write()
    image.put("stats-restore", b"an earlier restart's")
    image.verify()
    image.put("core-9.img", b"x")
    assert image.refusal() == (errors.DATA, "image %s is damaged: 'core-9.img' is not in its manifest; take an older image" % SHOWN)


def test_manifest_lists_neither_itself_nor_what_an_engine_may_write(image):
    image.write()
    image.edit(files=[{"name": "stats-restore", "size": 0, "sha256_tree": ""}])
    assert image.refusal()[0] == errors.DATA
