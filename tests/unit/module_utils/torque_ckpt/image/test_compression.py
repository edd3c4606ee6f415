"""Images that are compressed, by the real programs; those that fail are scripts."""
import errno
import json
import os
import random
import re

import pytest
from paths import TOP
from core_images import core_image
from engine_scripts import OPEN_FILES
from waiting import LIMIT

from torque_ckpt import errors, units
from torque_ckpt.engines import blcr, criu
from torque_ckpt.errors import HookError
from torque_ckpt.image import compression, compressors, digest, manifest, schema, seal
from torque_ckpt.system import private_dir, privilege, processes
from torque_ckpt.torque import contract

SHOWN = "/shared/ckpt/12.head.CK/ckpt.12.head.1"
ALICE = privilege.User("alice", 1001, 100, "/home/alice")
CALL = contract.Call(4711, "12.head", "alice", None, "/shared/ckpt/12.head.CK", "ckpt.12.head.1", None, None)
KEYS = [("first", b"s" * 32)]
FACTS = {"engine": {"name": "criu", "version": "4.1"}, "root": 7, "pids": [7], "frozen_seconds": 0.25, "spool": []}
NOISE = random.Random(12).getrandbits(8 * 70000).to_bytes(70000, "big")
TEXT = b"what a job has in memory\n" * 20000


def is_pages(name):
    return criu.Criu.is_memory(object.__new__(criu.Criu), name)


class Image:
    """An image on its way. path: pathlib.Path; descriptor: int; private_directory: PrivateDirectory; described: its manifest (dict)"""

    def __init__(self, path):
        self.path = path / "image"
        self.path.mkdir()
        self.descriptor = os.open(str(self.path), os.O_RDONLY)
        self.private_directory = private_dir.PrivateDirectory(str(path / "node"), privilege.User("me", os.geteuid(), os.getegid(), "/"))
        self.described = None

    def put(self, **contents):
        for name, content in contents.items():
            (self.path / (name.replace("_", "-") + ".img")).write_bytes(content)

    def names(self):
        return sorted(os.listdir(str(self.path)))

    def compress(self, program="zstd", level=0, timeout=LIMIT):
        plain = compression.compress_files(self.descriptor, is_pages, program, level, timeout)
        self.described = manifest.write_manifest(self.descriptor, CALL, ALICE, FACTS, lambda body: seal.add_seal(KEYS, body), plain)
        return self.described

    def decompress(self, meanwhile=None, timeout=LIMIT):
        described = manifest.read_manifest(self.descriptor, SHOWN)
        assert described == self.described
        compression.check_decompressible(described, SHOWN, self.private_directory, is_pages)
        manifest.check_files(self.descriptor, described, SHOWN, self.private_directory.descriptor, is_pages)
        if meanwhile:
            meanwhile()
        compression.decompress_files(self.descriptor, described, SHOWN, self.private_directory, timeout)

    def private(self):
        """What is in the private directory (dict of bytes by name)."""
        contents = {}
        for name in os.listdir(self.private_directory.descriptor):
            with open(os.open(name, os.O_RDONLY, dir_fd=self.private_directory.descriptor), "rb") as stream:
                contents[name] = stream.read()
        return contents

    def edit(self, number=0, **change):
        """Change what the manifest says of a plain file."""
        packed = [entry for entry in self.described["files"] if "plain" in entry]
        packed[number]["plain"].update(change)
        (self.path / schema.FILE).write_text(json.dumps(self.described))


@pytest.fixture
def image(tmp_path):
    image = Image(tmp_path)
    yield image
    os.close(image.descriptor)
    image.private_directory.remove()


@pytest.fixture
def instead(program, open_directory, monkeypatch):
    """Return a function that writes a script to be called in the place of all programs; {} in it is the real zstd."""
    real = compressors.find_program("zstd")

    def write(text):
        path = program(text.replace("{}", real), "zstd")
        monkeypatch.setattr(compressors, "DIRECTORIES", (open_directory,))
        return path
    return write


def failure(work, *arguments, **named):
    with pytest.raises(HookError) as caught:
        work(*arguments, **named)
    return caught.value.code, str(caught.value)


# There and back

@pytest.mark.parametrize("program, suffix", [("zstd", ".zst"), ("lz4", ".lz4"), ("gzip", ".gz")])
@pytest.mark.parametrize("level", [0, 1, 99])
def test_what_is_compressed_comes_back(image, program, suffix, level):
    many = os.urandom(5000) * 1000  # several chunks
    image.put(core_7=TEXT, pages_1=TEXT, pages_2=many)
    described = image.compress(program, level)
    assert image.names() == ["core-7.img", "manifest.json", "pages-1.img" + suffix, "pages-2.img" + suffix]
    entry = described["files"][1]
    assert entry["plain"] == {"program": program, "name": "pages-1.img", "size": len(TEXT),
                              "sha256_tree": manifest.hash_named_file(image.descriptor, "core-7.img")[1]}
    assert entry["size"] == (image.path / entry["name"]).stat().st_size < len(TEXT)
    assert (image.path / entry["name"]).stat().st_mode == 0o100600
    assert (described["format"], described["compression"]) == (4, program)
    assert described["plain_bytes"] == 2 * len(TEXT) + len(many)
    assert described["bytes"] == sum(entry["size"] for entry in described["files"])
    image.decompress()
    assert image.private() == {"core-7.img": TEXT, "pages-1.img": TEXT, "pages-2.img": many}
    assert image.names() == ["core-7.img", "manifest.json", "pages-1.img" + suffix, "pages-2.img" + suffix]


@pytest.mark.parametrize("program", compressors.ORDER)
@pytest.mark.parametrize("size", [compression.WORTH, digest.CHUNK - 1, digest.CHUNK, digest.CHUNK + 1, 4 * digest.CHUNK])
def test_sizes_at_the_edges(image, program, size):
    with open(str(image.path / "pages-1.img"), "wb") as stream:
        os.ftruncate(stream.fileno(), size)  # nothing but a hole
    assert image.compress(program)["files"][0]["plain"]["size"] == size
    image.decompress()
    assert image.private() == {"pages-1.img": bytes(size)}


@pytest.mark.parametrize("program", compressors.ORDER)
def test_what_does_not_become_smaller_stays_as_it_is(image, program):
    image.put(pages_1=NOISE)
    described = image.compress(program)
    assert image.names() == ["manifest.json", "pages-1.img"]
    assert described["format"] == 3 and "compression" not in described and "plain_bytes" not in described
    assert (image.path / "pages-1.img").read_bytes() == NOISE


def test_some_of_the_files_only(image):
    small = TEXT[:compression.WORTH - 1]
    image.put(pages_1=NOISE, pages_2=TEXT, pages_3=small, pages_4=b"")
    described = image.compress()
    assert [entry["name"] for entry in described["files"] if "plain" in entry] == ["pages-2.img.zst"]
    image.decompress()
    places = {name: image.path / name for name in ("pages-1.img", "pages-3.img", "pages-4.img")}
    inner = "/proc/self/fd/%d/" % image.private_directory.descriptor
    assert {name: os.readlink(inner + name) for name in places} == {name: SHOWN + "/" + name for name in places}
    with open(inner + "pages-2.img", "rb") as stream:
        assert stream.read() == TEXT


@pytest.mark.parametrize("engine, name, wanted", [
    (criu.Criu, "pages-1.img", True), (criu.Criu, "pages-12.img", True), (criu.Criu, "pagemap-1.img", False),
    (criu.Criu, "core-1.img", False), (criu.Criu, "pages-1.img.zst", False), (criu.Criu, "node-local-1", False),
    (blcr.Blcr, "context", True), (blcr.Blcr, "context.json", False), (blcr.Blcr, "stdout", False)])
def test_where_memory_is(engine, name, wanted):
    assert engine.holds_memory(object.__new__(engine), name) == wanted


def test_no_descriptor_and_no_child_is_left(image):
    image.put(pages_1=TEXT, pages_2=NOISE)
    before = sorted(os.listdir("/proc/self/fd")), processes.list_children(os.getpid())
    image.compress()
    image.decompress()
    assert (sorted(os.listdir("/proc/self/fd")), processes.list_children(os.getpid())) == before


# The programs

def test_program_that_fails(image, instead):
    path = instead("echo 'zstd: error 11 : Allocation error : not enough memory' >&2\nexit 11\n")
    image.put(pages_1=TEXT)
    assert failure(image.compress) == (
        errors.CANNOT_WRITE, "cannot compress pages-1.img of the image: zstd failed with status 11: zstd: error 11 : Allocation error : "
        "not enough memory; the job keeps running; free some space in the store, or set checkpoint_hooks_compression to none")
    assert path == compressors.find_program("zstd")


def test_store_that_becomes_full(image, instead):
    instead("exec {} \"$@\" > /dev/full\n")
    image.put(pages_1=TEXT)
    code, sentence = failure(image.compress)
    assert code == errors.CANNOT_WRITE
    assert sentence.startswith("cannot compress pages-1.img of the image: zstd failed with status ")
    assert sentence.endswith("No space left on device; the job keeps running; free some space in the store, or set "
                             "checkpoint_hooks_compression to none")


def test_program_that_says_nothing(image, instead):
    instead("exit 3\n")
    image.put(pages_1=TEXT)
    assert failure(image.compress)[1].startswith(
        "cannot compress pages-1.img of the image: zstd failed with status 3: it printed nothing; the job keeps running; ")


def test_program_that_is_killed(image, instead):
    instead("kill -KILL $$\n")
    image.put(pages_1=TEXT)
    assert failure(image.compress)[1].startswith(
        "cannot compress pages-1.img of the image: zstd was killed by signal 9; the job keeps running; ")


def test_program_that_takes_too_long(image, instead):
    path = instead("exec sleep 60\n")
    image.put(pages_1=TEXT)
    assert failure(image.compress, timeout=1) == (errors.ENGINE, "%s took longer than 1 seconds and was killed; allow it more time "
                                                                 "(checkpoint_hooks_engine_timeout)" % path)


def test_name_that_is_taken(image):
    image.put(pages_1=TEXT)
    (image.path / "pages-1.img.zst").write_bytes(b"")
    assert failure(image.compress)[1] == (
        "cannot compress pages-1.img of the image: File exists; the job keeps running; free some space in the store, or set "
        "checkpoint_hooks_compression to none")


@pytest.mark.parametrize("make", [lambda path: os.symlink("/etc/services", path), os.mkfifo])
def test_what_is_no_file_is_not_followed(image, make):
    make(str(image.path / "pages-1.img"))
    assert compression.compress_files(image.descriptor, is_pages, "zstd", 0, LIMIT) == {}


# What cannot be decompressed is kept

@pytest.mark.parametrize("change, why", [
    (lambda content: content[:-1], "pages-1.img.zst has {less} bytes, expected {all}"),
    (lambda content: b"", "pages-1.img.zst has 0 bytes, expected {all}"),
    (lambda content: b"\0" + content[1:], "pages-1.img.zst has another content than was written"),
])
def test_damaged_file(image, change, why):
    image.put(pages_1=TEXT)
    image.compress()
    path = image.path / "pages-1.img.zst"
    content = path.read_bytes()
    path.write_bytes(change(content))
    assert failure(image.decompress) == (errors.DATA, "image %s is damaged: %s; take an older image"
                                         % (SHOWN, why.format(less=len(content) - 1, all=len(content))))


def test_file_that_its_owner_changes_after_it_was_verified(image):
    """Another one, that can be decompressed and is as long."""
    image.put(pages_1=TEXT.replace(b"job", b"cat"))
    image.compress()
    forged = (image.path / "pages-1.img.zst").read_bytes()
    for name in image.names():
        (image.path / name).unlink()
    image.put(pages_1=TEXT)
    image.compress()
    assert failure(image.decompress, lambda: (image.path / "pages-1.img.zst").write_bytes(forged)) == (
        errors.DATA, "image %s is damaged: pages-1.img.zst has another content than was written; take an older image" % SHOWN)


@pytest.mark.parametrize("program", compressors.ORDER)
def test_file_that_holds_more_than_the_manifest_says(image, program):
    """No more than that is ever written."""
    image.put(pages_1=bytes(1 << 22))
    image.compress(program)
    image.edit(size=100000)
    assert failure(image.decompress) == (
        errors.DATA, "image %s is damaged: pages-1.img%s has another content than was written; take an older image"
        % (SHOWN, compressors.PROGRAMS[program].suffix))
    assert len(image.private()["pages-1.img"]) <= 100000


@pytest.mark.parametrize("change", [{"size": len(TEXT) + 1}, {"sha256_tree": "00"}])
def test_plain_file_that_is_another(image, change):
    image.put(pages_1=TEXT)
    image.compress()
    image.edit(**change)
    assert failure(image.decompress)[0] == errors.DATA


def test_decompressing_program_has_nothing_of_the_private_directory(image, instead, tmp_path):
    """Its owner could take a descriptor of it, and write what nobody hashes."""
    seen = str(tmp_path / "seen")
    image.put(pages_1=TEXT)
    image.compress()
    instead("listed=$(ls -l /proc/$$/fd)\necho \"$listed\" > %s\nexec {} \"$@\"\n" % seen)
    image.decompress()
    with open(seen) as stream:
        targets = {line.split()[-3]: line.split()[-1] for line in stream if " -> " in line}
    assert targets["0"] == str(image.path / "pages-1.img.zst") and targets["1"].startswith("pipe:") and targets["2"].startswith("pipe:")
    assert not [target for target in targets.values() if image.private_directory.path in target]


def test_decompressing_program_that_takes_too_long(image, instead):
    image.put(pages_1=TEXT)
    image.compress()
    path = instead("exec sleep 60\n")
    assert failure(image.decompress, timeout=1) == (errors.ENGINE, "%s took longer than 1 seconds and was killed; allow it more time "
                                                                   "(checkpoint_hooks_engine_timeout)" % path)


def test_decompressing_program_that_is_slow(image, instead):
    """It goes on as soon as it can, but nobody reads any more."""
    image.put(pages_1=bytes(1 << 22))
    image.compress()
    path = instead("sleep 1.5\nexec {} \"$@\"\n")
    assert failure(image.decompress, timeout=1)[1].startswith("%s took longer than 1 seconds" % path)


def test_private_directory_whose_room_goes_meanwhile(image, monkeypatch):
    image.put(pages_1=TEXT)
    image.compress()
    write = os.write

    def full(descriptor, data):
        if os.readlink("/proc/self/fd/%d" % descriptor).endswith("/pages-1.img"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)
    monkeypatch.setattr(os, "write", full)
    assert failure(image.decompress) == (
        errors.TEMPORARY, "cannot decompress pages-1.img.zst of the image to %s: No space left on device; try again later or on another "
        "node; image kept" % image.private_directory.path)


def test_node_without_room_for_copies(image, monkeypatch):
    """Where memory is to be copied, too; what is compressed counts as it is when it is not."""
    image.put(core_7=TEXT, pages_1=NOISE)
    image.compress()
    file_system = os.statvfs_result((4096, 4096, 9, 8, 7, 6, 5, 4, 0, 255))
    monkeypatch.setattr(os, "fstatvfs", lambda _descriptor: file_system)
    assert failure(compression.check_decompressible, image.described, SHOWN, image.private_directory, lambda _name: False) == (
        errors.TEMPORARY, "image %s needs %s to be copied, %s has 28.0 KiB free; free some space there, name a larger disk of this node in "
        "checkpoint_hooks_private_directory or restart the job on another node; image kept"
        % (SHOWN, units.format_bytes(len(NOISE) + len(TEXT)), image.private_directory.path))


def test_program_that_is_not_on_this_node(image, monkeypatch, tmp_path):
    image.put(pages_1=TEXT)
    image.compress("lz4")
    monkeypatch.setattr(compressors, "DIRECTORIES", ("/nonexistent", "/also"))
    assert failure(image.decompress) == (
        errors.REFUSED, "image %s was compressed by lz4, which is not in /nonexistent or /also on this node; install the package lz4 here "
        "or restart the job on another node; image kept" % SHOWN)
    assert image.private() == {}


def test_program_that_is_not_known(image):
    image.put(pages_1=TEXT)
    image.compress()
    image.edit(program="xz\n")
    assert failure(image.decompress) == (
        errors.REFUSED, "image %s was compressed by 'xz\\n', which these hooks do not know; restart it on a node whose hooks wrote it; "
        "image kept" % SHOWN)


def test_node_without_room(image, monkeypatch):
    image.put(pages_1=TEXT, pages_2=TEXT)
    image.compress()
    image.edit(0, size=3 << 50)
    image.edit(1, size=1 << 50)
    file_system = os.statvfs_result((4096, 4096, 9, 8, 7, 6, 5, 4, 0, 255))
    monkeypatch.setattr(os, "fstatvfs", lambda _descriptor: file_system)
    assert failure(image.decompress) == (
        errors.TEMPORARY, "image %s needs 4096.0 TiB to be decompressed, %s has 28.0 KiB free; free some space there, name a larger disk "
        "of this node in checkpoint_hooks_private_directory or restart the job on another node; image kept" % (
            SHOWN, image.private_directory.path))


def test_node_whose_room_goes_meanwhile(image, instead):
    image.put(pages_1=TEXT)
    image.compress()
    instead("exec {} \"$@\" > /dev/full\n")
    code, sentence = failure(image.decompress)
    assert code == errors.TEMPORARY
    assert sentence.startswith(
        "cannot decompress pages-1.img.zst of the image to %s: zstd failed with status " % image.private_directory.path)
    assert sentence.endswith("No space left on device; try again later or on another node; image kept")


@pytest.mark.parametrize("plain, why", [
    (None, "files[0].plain is not an object"), (7, "files[0].plain is not an object"), ({}, "files[0].plain.program is missing"),
    ({"name": "pages-1.img", "size": "7", "sha256_tree": "", "program": "zstd"},
     "files[0].plain.size is not a whole number from 0 to 9223372036854775807"),
    ({"name": "../x", "size": 7, "sha256_tree": "", "program": "zstd"}, "files has 'pages-1.img.zst'"),
    ({"name": 7, "size": 7, "sha256_tree": "", "program": "zstd"}, "files[0].plain.name is not a text of at most 255 characters")])
def test_manifest_with_nonsense(image, plain, why):
    image.put(pages_1=TEXT)
    described = image.compress()
    described["files"][0]["plain"] = plain
    (image.path / schema.FILE).write_text(json.dumps(described))
    assert failure(manifest.read_manifest, image.descriptor, SHOWN) == (
        errors.DATA, "image %s has a manifest that is not ours: %s; it is kept but cannot be restarted; take an older image" % (SHOWN, why))


@pytest.mark.parametrize("change", [{"compression": 7}, {"plain_bytes": "x"}])
def test_manifest_with_other_nonsense(image, change):
    image.put(pages_1=TEXT)
    (image.path / schema.FILE).write_text(json.dumps(dict(image.compress(), **change)))
    assert failure(manifest.read_manifest, image.descriptor, SHOWN)[0] == errors.DATA


# The hooks

PAGES = b"".join(b"page %d of the memory of a job\n" % number for number in range(20000))

DUMPING = """
case $1 in
dump)
    cat %(top)s/core > $5/core-$3.img; cat %(top)s/pages > $5/pages-1.img
    OPEN_FILES
    kill -STOP $3
    [ $7 = --action-script ] || exit 0
    CRTOOLS_IMAGE_DIR=$5 CRTOOLS_SCRIPT_ACTION=post-dump $8 || exit 1
    kill -CONT $3
    ;;
restore)
    cmp $4/pages-1.img %(top)s/pages && cmp $4/core-*.img %(top)s/core && echo "a $(stat -c %%F $4/pages-1.img)"
    exit 1
    ;;
--version) echo 'Version: 4.1.1' ;;
esac
""".replace("OPEN_FILES", OPEN_FILES)


@pytest.fixture
def criu_site(site, program, open_directory):
    """The Site with a CRIU whose images hold PAGES; its restore fails and says what it has seen."""
    for name, content in (("pages", PAGES), ("core", core_image(site.user))):
        with open(os.path.join(open_directory, name), "wb") as stream:
            stream.write(content)
        os.chmod(stream.name, 0o644)
    program(DUMPING % {"top": open_directory})
    return site


@pytest.fixture
def stand_in(open_directory):
    """Return a function that writes a script for the hooks to be called as zstd; it returns what the hook has to do before, for that.

    {} in it is the real zstd, and out a file into which it may write.
    """
    directory = os.path.join(open_directory, "programs")
    os.mkdir(directory)
    out = os.path.join(open_directory, "out")
    open(out, "w").close()
    os.chmod(out, 0o666)

    def write(text):
        with open(os.path.join(directory, "zstd"), "w") as stream:
            stream.write("#!/bin/sh\n" + text.replace("{}", compressors.find_program("zstd")).replace("{out}", out))
        os.chmod(stream.name, 0o755)
        return "from torque_ckpt.image import compressors; compressors.DIRECTORIES = (%r,)" % directory
    write.out = out
    return write


def written_by(stand_in):
    with open(stand_in.out) as stream:
        return stream.read()


def checkpoint(hook, site, job, signal_number, before="pass"):
    return hook("checkpoint", site.arguments(session=str(job.leader)) + [signal_number, "-"], site.config, before=before)


both = pytest.mark.parametrize("signal_number", ["15", "0"])
all_programs = pytest.mark.parametrize("setting, suffix", [
    ("none", ""), ("zstd", ".zst"), ("lz4", ".lz4"), ("gzip", ".gz"), ("auto", ".zst")])


@pytest.mark.root
@both
@all_programs
def test_criu_job_there_and_back(hook, criu_site, start_job, state_of, wait_until, free_pid, setting, suffix, signal_number):
    job = start_job(user=criu_site.user)
    criu_site.configure(compression=setting, compression_level=2)
    assert checkpoint(hook, criu_site, job, signal_number) == (0, "", "")
    wait_until(lambda: state_of(job.pids[0]) == ("Z" if signal_number == "15" else "S"))
    files = criu_site.content()
    described = json.loads(files["ckpt.12.head.2/manifest.json"].decode())
    assert [entry["name"] for entry in described["files"]] == ["core-%d.img" % job.pids[0], "files.img", "pages-1.img" + suffix]
    assert described.get("compression") == {"none": None, "auto": "zstd"}.get(setting, setting)
    assert (len(files["ckpt.12.head.2/pages-1.img" + suffix]) < len(PAGES)) == bool(suffix)
    criu_site.configure()  # how an image is compressed, the image says
    # On this node the job's process is there still.
    before = "from torque_ckpt.image import manifest; manifest.check_pids_free = lambda _manifest: None"
    kind = "regular file" if suffix else "symbolic link"
    assert hook("restart", criu_site.arguments(), criu_site.config, before=before) == (
        errors.ENGINE, "", "criu restore failed with status 1: a %s; the image is kept; restart the job on another node, or see whether "
                           "torque-ckpt selftest passes on this node (as root)\n" % kind)
    assert os.listdir(os.path.join(criu_site.state_directory, "private")) == []
    assert criu_site.content() == files


@pytest.fixture
def blcr_site(site, open_directory):
    """The Site with the double of BLCR; the job's image is large."""
    directory = os.path.join(open_directory, "bin")
    os.mkdir(directory)
    with open(str(TOP / "tests/unit/helpers/blcr_double.py")) as stream:
        text = "#!/usr/bin/python3\n" + stream.read()
    for name in ("cr_run", "cr_checkpoint", "cr_restart"):
        with open(os.path.join(directory, name), "w") as stream:
            stream.write(text)
        os.chmod(stream.name, 0o755)
    with open(os.path.join(directory, "memory"), "wb") as stream:
        stream.write(PAGES)
    os.chmod(stream.name, 0o644)
    site.blcr = {"engine": "blcr", "engine_options": {"path": directory, "restore_options": ["--no-restore-pid"]}}
    return site


@pytest.mark.root
@both
@all_programs
def test_blcr_job_there_and_back(hook, blcr_site, start_job, state_of, wait_until, program, setting, suffix, signal_number):
    job = start_job(user=blcr_site.user, programs=[program('echo "$3 $$"; read line; exit 7\n', "job")])
    blcr_site.configure(compression=setting, **blcr_site.blcr)
    assert checkpoint(hook, blcr_site, job, signal_number) == (0, "", "")
    wait_until(lambda: state_of(job.pids[0]) == ("Z" if signal_number == "15" else "S"))
    files = blcr_site.content()
    described = json.loads(files["ckpt.12.head.2/manifest.json"].decode())
    assert [entry["name"] for entry in described["files"]] == sorted(["context" + suffix, "context.json"])
    assert (len(files["ckpt.12.head.2/context" + suffix]) < len(PAGES)) == bool(suffix)
    assert described.get("plain_bytes", 0) > (len(PAGES) if suffix else -1)
    blcr_site.configure(**blcr_site.blcr)
    assert hook("restart", blcr_site.arguments(), blcr_site.config).code == 7  # the job's own
    assert os.listdir(os.path.join(blcr_site.state_directory, "private")) == []
    after = blcr_site.content()
    assert after.pop(".incarnation.12.head") != files.pop(".incarnation.12.head")
    assert after == files


@pytest.mark.root
def test_what_cr_restart_reads_nobody_can_write(hook, blcr_site, start_job, wait_until, state_of, program, open_directory):
    """It is the user's process without any right of its own, so his others reach its files by /proc."""
    job = start_job(user=blcr_site.user, programs=[program('echo "$3 $$"; read line\n', "job")])
    blcr_site.configure(**blcr_site.blcr)
    assert checkpoint(hook, blcr_site, job, "15") == (0, "", "")
    wait_until(lambda: state_of(job.pids[0]) == "Z")
    seen = os.path.join(open_directory, "seen")
    open(seen, "w").close()
    os.chmod(seen, 0o666)
    program("{ dd if=/proc/self/fd/$2 bs=8 count=1 of=/dev/null; : >> /proc/self/fd/$2; } 2>&1 | grep -c -e copied -e 'ermission denied' "
            "> %s\nexit 1\n" % seen, "bin/cr_restart")
    assert hook("restart", blcr_site.arguments(), blcr_site.config).code == errors.ENGINE
    with open(seen) as stream:
        assert stream.read() == "2\n"


@pytest.mark.root
@both
def test_job_that_goes_on_does_so_before_anything_is_compressed(hook, criu_site, start_job, stand_in, signal_number):
    """And one that is held stands still until the image is published."""
    job = start_job(user=criu_site.user)
    before = stand_in("cut -d ' ' -f 3 /proc/%d/stat > {out}\nexec {} \"$@\"\n" % job.pids[0])
    criu_site.configure(compression="zstd")
    assert checkpoint(hook, criu_site, job, signal_number, before) == (0, "", "")
    assert written_by(stand_in) == ("T\n" if signal_number == "15" else "S\n")


@pytest.mark.root
def test_program_is_confined(hook, criu_site, start_job, stand_in):
    """It reads what the job's owner can write, so it has no capability and no other file, and is the user's."""
    job = start_job(user=criu_site.user)
    before = stand_in("{ id -un; grep Cap /proc/self/status; ls /proc/self/fd; ulimit -f; } > {out}\nexec {} \"$@\"\n")
    criu_site.configure(compression="zstd")
    assert checkpoint(hook, criu_site, job, "15", before) == (0, "", "")
    lines = written_by(stand_in).splitlines()
    assert lines[0] == criu_site.user.name
    masks = {line.split(":")[0]: int(line.split(":")[1], 16) for line in lines if line.startswith("Cap")}
    assert [masks[name] for name in ("CapInh", "CapPrm", "CapEff")] == [0, 0, 0] and not masks.get("CapAmb")
    assert lines[len(masks) + 1:-1] == ["0", "1", "2", "3"]  # the last one is that of ls
    assert lines[-1] == str(len(PAGES) // 512)


@pytest.mark.root
@both
@pytest.mark.parametrize("text, why", [
    ("echo broken >&2; exit 4", "zstd failed with status 4: broken"),
    ("kill -KILL $$", "zstd was killed by signal 9"),
    ("{} -q -c > /dev/full", r"zstd failed with status \d+: zstd: error .*: No space left on device"),
])
def test_program_that_fails_leaves_job_and_older_image_as_they_were(hook, criu_site, start_job, state_of, wait_until, stand_in, text, why,
                                                                    signal_number):
    job = start_job(user=criu_site.user)
    criu_site.publish("ckpt.12.head.1", 7, [7])
    files = criu_site.content()
    criu_site.configure(compression="auto")
    done = checkpoint(hook, criu_site, job, signal_number, stand_in(text + "\n"))
    assert (done.code, done.stdout) == (errors.CANNOT_WRITE, "")
    assert re.fullmatch(r"cannot compress pages-1\.img of the image: %s; the job keeps running; free some space in the store, or set "
                        r"checkpoint_hooks_compression to none\n" % why, done.stderr)
    wait_until(lambda: state_of(job.pids[0]) == "S")
    assert criu_site.content() == files


@pytest.mark.root
@both
def test_program_that_takes_too_long_for_the_hook(hook, criu_site, start_job, state_of, wait_until, stand_in, signal_number):
    job = start_job(user=criu_site.user)
    criu_site.configure(compression="zstd", engine_timeout=1)
    done = checkpoint(hook, criu_site, job, signal_number, stand_in("exec sleep 60\n"))
    assert done.code == errors.ENGINE and re.fullmatch(r"/\S+/programs/zstd took longer than 1 seconds and was killed; allow it more time "
                                                       r"\(checkpoint_hooks_engine_timeout\)\n", done.stderr)
    wait_until(lambda: state_of(job.pids[0]) == "S")
    assert criu_site.content() == {}


@pytest.mark.root
def test_program_does_not_outlive_its_caller(hook, criu_site, start_job, state_of, wait_until, stand_in):
    """Else a held job would stand still for as long as it takes."""
    job = start_job(user=criu_site.user)
    criu_site.configure(compression="zstd")
    before = stand_in("echo $$ > {out}\nkill -KILL $PPID\nexec sleep 60\n")
    assert checkpoint(hook, criu_site, job, "15", before) == (
        errors.SYSTEM, "", "the part of the hook that runs as nobody died with wait status 9; see in journalctl -k whether memory was "
                           "short, and try again\n")
    wait_until(lambda: state_of(job.pids[0]) == "S")
    assert processes.read_process(int(written_by(stand_in))) is None


@pytest.mark.root
def test_program_that_is_named_and_not_there_stops_no_job(hook, criu_site, start_job, state_of, program):
    job = start_job(user=criu_site.user)
    program("kill -STOP $3\nexit 1\n")
    criu_site.configure(compression="lz4")
    before = "from torque_ckpt.image import compressors; compressors.DIRECTORIES = ('/a', '/b', '/c')"
    assert checkpoint(hook, criu_site, job, "15", before) == (
        errors.CONFIG, "", "lz4, by which checkpoint_hooks_compression has images compressed, is not in /a, /b or /c on this node; run the "
        "role checkpoint_hooks on it\n")
    assert state_of(job.pids[0]) == "S"
    assert criu_site.content() == {}


@pytest.mark.root
def test_small_job_needs_no_program(hook, criu_site, start_job, program, open_directory):
    job = start_job(user=criu_site.user)
    program(DUMPING.replace("cat %(top)s/pages >", "echo small >") % {"top": open_directory})
    criu_site.configure(compression="zstd")
    assert checkpoint(hook, criu_site, job, "15") == (0, "", "")
    assert json.loads(criu_site.content()["ckpt.12.head.2/manifest.json"].decode())["format"] == 3
