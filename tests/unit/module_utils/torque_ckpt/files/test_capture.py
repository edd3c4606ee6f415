import errno
import fcntl
import os
import signal
import stat
import subprocess

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.files import capture, open_files, restore
from torque_ckpt.image import schema
from torque_ckpt.system import mounts, processes

ME = os.getuid()
NODE = os.uname().nodename
TRAVELS = ("node_local", "left", "bound", "bound_reason")
"""Fields of the manifest that capture writes."""


class Trip:
    """A directory from which files travel, an image, and what happens between them.

    top    str: that directory
    image  int: descriptor of the image
    """

    def __init__(self, path, keep):
        self.top = os.path.join(path, "node")
        self.keep = keep
        os.makedirs(self.top)
        self.image_path = os.path.join(path, "image")
        os.mkdir(self.image_path)
        self.image = os.open(self.image_path, os.O_RDONLY)
        self.settings = {"node_local_directories": [self.top], "node_local_trees": [], "node_local_bytes": 1 << 30}

    def path(self, *names):
        return os.path.join(self.top, *names)

    def write(self, name, text="hello", mode=0o600):
        with open(self.path(name), "w") as stream:
            stream.write(text)
        os.chmod(self.path(name), mode)

    def read(self, name):
        with open(self.path(name)) as stream:
            return stream.read()

    def load(self, work, output=(), uid=ME):
        """Look at a child that has done work()."""
        pid = self.keep(work)
        places = capture.NodeLocal(self.settings, pid)
        return capture.Load(open_files.find_open_files(pid, places.directories), places, output, uid)

    def save(self, work, between=lambda: None, known=None, **options):
        """Carry what a child that has done work() has open; return what the manifest says."""
        copying = capture.Capture(self.image, self.load(work, **options), self.settings["node_local_bytes"], known)
        copying.while_frozen()
        between()
        return dict(copying.after_thaw(), node="elsewhere", left=[])

    def put_back(self, manifest, uid=ME):
        putting = restore.Restoration(self.image, manifest, self.settings, uid)
        putting.restore()
        return putting

    def empty(self):
        """Be another node."""
        for parent, directories, files in os.walk(self.top, topdown=False):
            for name in files:
                os.unlink(os.path.join(parent, name))
            for name in directories:
                full = os.path.join(parent, name)
                (os.unlink if os.path.islink(full) else os.rmdir)(full)

    def listing(self):
        entries = {}
        for parent, directories, files in os.walk(self.top):
            for name in directories + files:
                status = os.lstat(os.path.join(parent, name))
                size = status.st_size if stat.S_ISREG(status.st_mode) else None
                entries[os.path.relpath(os.path.join(parent, name), self.top)] = (stat.filemode(status.st_mode), status.st_nlink, size)
        return entries


@pytest.fixture
def trip(tmp_path, keep):
    trip = Trip(os.path.realpath(str(tmp_path)), keep)
    yield trip
    os.close(trip.image)


def raised(work):
    with pytest.raises(HookError) as caught:
        work()
    return caught.value.code, str(caught.value)


# Where files travel from

@pytest.fixture
def places_of(wait_until):
    """Return a function that makes the Places of a job whose root process has these variables."""
    def make(settings, **variables):
        with subprocess.Popen(["/bin/sleep", "60"], env=dict(variables, READY="yes")) as process:
            wait_until(lambda: processes.read_variable(process.pid, "READY") == b"yes")
            places = capture.NodeLocal(settings, process.pid)
            process.kill()
        return places
    return make


def test_directories_are_resolved_and_outermost(tmp_path, places_of):
    top = os.path.realpath(str(tmp_path))
    os.makedirs(top + "/real/inner")
    os.symlink(top + "/real", top + "/link")
    places = places_of({"node_local_directories": [top + "/link", top + "/real/inner", "$TMPDIR", "$TMPDIR/x"],
                       "node_local_trees": ["$TMPDIR/tree"]}, TMPDIR=top + "/tmpdir")
    assert (places.directories, places.trees) == ([top + "/real", top + "/tmpdir"], [top + "/tmpdir/tree"])
    assert places.find_directory(top + "/real/inner/file") == top + "/real"
    assert places.find_directory(top + "/realistic") is None
    assert places.find_directory(top + "/tmpdir/tree/file") is None


@pytest.mark.parametrize("variables", [{}, {"TMPDIR": ""}, {"TMPDIR": "relative"}])
def test_no_tmpdir(places_of, variables):
    places = places_of({"node_local_directories": ["$TMPDIR", "$TMPDIR/x"], "node_local_trees": ["$TMPDIR", "$TMPDIR/x"]}, **variables)
    assert (places.directories, places.trees) == ([], [])


@pytest.mark.parametrize("kind, local", [("ext4", True), ("tmpfs", True), ("overlay", True), ("nfs4", False), ("lustre", False),
                                         ("fuse.sshfs", False), ("gpfs", False)])
def test_what_other_nodes_see_is_not_carried(places_of, monkeypatch, kind, local):
    mounted = {point: mounts.Mount(point, "x", each, []) for point, each in (("/", "ext4"), ("/scratch", kind))}
    monkeypatch.setattr(mounts, "read_mounts", lambda: mounted)
    places = places_of({"node_local_directories": ["/scratch", "/scratchy"], "node_local_trees": ["/scratch/tree"]})
    assert places.directories == (["/scratch"] if local else []) + ["/scratchy"]
    assert places.trees == (["/scratch/tree"] if local else [])


# There and back

def test_files_come_back(trip):
    os.mkdir(trip.path("deep"), 0o750)
    for name in ("data", "deep/log", "constant"):
        trip.write(name, "hello " + name, 0o640)
    os.utime(trip.path("data"), ns=(10 ** 18 + 1, 10 ** 18 + 1))
    flags = {"data": os.O_RDWR, "deep/log": os.O_WRONLY | os.O_APPEND, "constant": os.O_RDONLY}
    manifest = trip.save(lambda: [os.open(trip.path(name), how) for name, how in flags.items()])
    assert {os.path.relpath(entry["path"], trip.top): entry["opened"] for entry in manifest["node_local"]} == {
        "data": "write", "deep/log": "append", "constant": "read"}
    schema.check_fields(manifest, *TRAVELS)
    before = trip.listing()
    trip.empty()
    trip.put_back(manifest)
    assert trip.listing() == dict(before, deep=("drwx------", 2, None))
    assert [trip.read(name) for name in flags] == ["hello " + name for name in flags]
    assert os.stat(trip.path("data")).st_mtime_ns == 10 ** 18 + 1


def test_directories_and_pipes_come_back(trip):
    for name in ("a", "a/b", "other"):
        os.mkdir(trip.path(name), 0o700)
    os.mkfifo(trip.path("a", "b", "pipe"))
    os.chmod(trip.path("a", "b", "pipe"), 0o620)
    os.chmod(trip.path("a", "b"), 0o500)

    def work():
        os.chdir(trip.path("a", "b"))
        return os.open("pipe", os.O_RDWR)
    manifest = trip.save(work)
    os.chmod(trip.path("a", "b"), 0o700)
    trip.empty()
    trip.put_back(manifest)
    assert trip.listing() == {"a": ("drwx------", 3, None), "a/b": ("dr-x------", 2, None), "a/b/pipe": ("prw--w----", 1, None)}
    os.chmod(trip.path("a", "b"), 0o700)


def test_hard_links_come_back_as_such(trip):
    trip.write("one")
    for name in ("two", "unknown"):
        os.link(trip.path("one"), trip.path(name))
    manifest = trip.save(lambda: [os.open(trip.path(name), os.O_RDONLY) for name in ("one", "two")])
    assert len(os.listdir(trip.image_path)) == 1
    trip.empty()
    trip.put_back(manifest)
    assert trip.listing() == {"one": ("-rw-------", 2, 5), "two": ("-rw-------", 2, 5)}
    for name in ("two", "one"):
        os.unlink(trip.path(name))
        trip.put_back(manifest)
        assert os.path.samefile(trip.path("one"), trip.path("two"))


@pytest.mark.parametrize("known, left", [(None, {"name", "engines"}), ({"name"}, {"name"})])
def test_names_that_the_engine_gave_travel_and_are_removed(trip, known, left):
    """Of a file that lost the name by which it was opened."""
    def work():
        descriptor = os.open(trip.path("temporary"), os.O_RDWR | os.O_CREAT, 0o600)
        for name in ("name", "engines"):
            os.link(trip.path("temporary"), trip.path(name))
        os.unlink(trip.path("temporary"))
        return descriptor
    manifest = trip.save(work, known=known and {trip.path(name) for name in known})
    assert set(trip.listing()) == left
    trip.put_back(manifest)
    assert set(trip.listing()) == {"name", "engines"} and os.path.samefile(trip.path("name"), trip.path("engines"))


def test_what_grows_after_the_image_is_cut_off(trip):
    trip.write("log", "before ")

    def grow():
        with open(trip.path("log"), "a") as stream:
            stream.write("after")
    manifest = trip.save(lambda: os.open(trip.path("log"), os.O_WRONLY | os.O_APPEND), grow)
    trip.empty()
    trip.put_back(manifest)
    assert trip.read("log") == "before "


def test_only_what_the_job_may_change_is_copied_while_it_stands_still(trip):
    trip.write("data", "hello")
    manifest = trip.save(lambda: os.open(trip.path("data"), os.O_RDWR), lambda: trip.write("data", "HELLO"))
    with open(os.path.join(trip.image_path, manifest["node_local"][0]["name"])) as stream:
        assert stream.read() == "hello"


def test_removed_at_once_is_carried_all_the_same(trip):
    trip.write("data")
    manifest = trip.save(lambda: os.open(trip.path("data"), os.O_RDONLY), lambda: os.unlink(trip.path("data")))
    trip.put_back(manifest)
    assert trip.read("data") == "hello"


def test_becoming_shorter_fails(trip):
    trip.write("log")
    assert raised(lambda: trip.save(lambda: os.open(trip.path("log"), os.O_WRONLY | os.O_APPEND),
                                    lambda: os.truncate(trip.path("log"), 1))) == (
        errors.CANNOT_WRITE, "%s became shorter while it was copied into the image (1 bytes, had 5); the job keeps running; try again" % (
            trip.path("log")))


def test_store_that_takes_no_more(trip):
    trip.write("data")
    with open(os.path.join(trip.image_path, "node-local-1"), "w"):
        pass
    assert raised(lambda: trip.save(lambda: os.open(trip.path("data"), os.O_RDWR))) == (
        errors.CANNOT_WRITE, "cannot copy %s into the image: File exists; the job keeps running; see to the rights on it, and to the space "
                             "and the quota in the store" % trip.path("data"))


def test_other_owners_and_output_are_left(trip):
    trip.write("data")

    def work():
        return os.open(trip.path("data"), os.O_RDONLY)
    assert trip.load(work, uid=ME + 1).files == []
    assert trip.load(work, output=[trip.path("data")]).files == []
    assert len(trip.load(work).files) == 1


# Too much

def test_limit(trip):
    trip.write("small")
    trip.write("large", "x" * 100000)

    def work():
        return [os.open(trip.path(name), os.O_RDONLY) for name in ("small", "large")]
    trip.settings["node_local_bytes"] = 100004
    manifest = trip.save(work)
    assert (manifest["node_local"], manifest["bound"], manifest["bound_reason"]) == (
        [], True, "97.7 KiB (%s, %s) lie on this node's own file systems, above the limit of 97.7 KiB (checkpoint_hooks_node_local_bytes)"
        % (trip.path("large"), trip.path("small")))
    assert os.listdir(trip.image_path) == []
    pid = trip.keep(work)
    places = capture.NodeLocal(trip.settings, pid)
    opened = open_files.find_open_files(pid, places.directories)
    assert capture.estimate_need(opened, places, 100004, [], ME) == [0, 0]
    trip.settings["node_local_bytes"] = 100005
    assert trip.save(work)["bound"] is False
    assert capture.estimate_need(opened, places, 100005, [], ME) == [100005, 2]


def test_holes_do_not_count(trip):
    trip.write("sparse")
    os.truncate(trip.path("sparse"), 1 << 40)
    if os.stat(trip.path("sparse")).st_blocks * 512 > 1 << 20:
        pytest.skip("this file system knows no holes")
    assert trip.load(lambda: os.open(trip.path("sparse"), os.O_RDONLY)).bytes < 1 << 20


def test_file_that_is_rewritten_while_it_is_copied(trip):
    """What it has open for reading only, and writes by another descriptor later: the content would not be that of its memory."""
    trip.write("data", "A" * 100)

    def rewrite():
        os.utime(trip.path("data"), (1, 1))
    os.utime(trip.path("data"), (0, 0))
    assert raised(lambda: trip.save(lambda: os.open(trip.path("data"), os.O_RDONLY), rewrite)) == (
        errors.TEMPORARY, "%s was changed while it was copied into the image; the job keeps running; try again" % trip.path("data"))


def test_file_that_others_append_to_while_it_is_copied(trip):
    trip.write("data", "A" * 100)
    manifest = trip.save(lambda: os.open(trip.path("data"), os.O_RDONLY), lambda: trip.write("data", "A" * 101))
    assert manifest["node_local"][0]["size"] == 100


def test_file_that_cannot_be_read(trip):
    """A descriptor for writing only, say; root, who may read everything, sees the same where the way to the file is gone."""
    trip.write("data", mode=0o200)
    load = trip.load(lambda: os.open(trip.path("data"), os.O_WRONLY))
    if os.geteuid() == 0:
        load.files[0][0].proc_path = trip.path("gone")
    copying = capture.Capture(trip.image, load, 1 << 30)
    copying.while_frozen()
    assert copying.after_thaw() == {"node_local": [], "bound": True, "bound_reason": "%s cannot be read (%s)" % (
        trip.path("data"), os.strerror(errno.ENOENT if os.geteuid() == 0 else errno.EACCES))}
    assert os.listdir(trip.image_path) == []


def test_bound_image_elsewhere():
    manifest = {"bound": True, "bound_reason": "3.0 GiB lie there", "node": "elsewhere"}
    assert raised(lambda: restore.check_node(manifest, "/store/ckpt.1")) == (
        errors.REFUSED, "image /store/ckpt.1 restarts on elsewhere only: when it was written, 3.0 GiB lie there; restart the job there; "
        "image kept")
    restore.check_node(dict(manifest, node=NODE), "/store/ckpt.1")
    restore.check_node(dict(manifest, bound=False), "/store/ckpt.1")


# What stands in the way

@pytest.fixture
def manifest(trip):
    """What the manifest says of two files and a directory, on another node."""
    os.mkdir(trip.path("deep"))
    for name in ("deep/first", "second"):
        trip.write(name)

    def work():
        os.chdir(trip.path("deep"))
        return [os.open(trip.path(name), os.O_RDWR) for name in ("deep/first", "second")]
    manifest = trip.save(work)
    trip.empty()
    return manifest


def test_the_same_is_left_alone(trip, manifest):
    trip.write("second")
    before = os.stat(trip.path("second"))
    putting = trip.put_back(manifest)
    assert open_files.format_state(os.stat(trip.path("second"))) == open_files.format_state(before)
    putting.remove_created()
    assert trip.listing() == {"second": ("-rw-------", 1, 5)}


REFUSAL = "%s, which the image carries, %s; move it away or restart the job on another node; image kept"


@pytest.mark.parametrize("text, mode, why", [
    ("HELLO", 0o600, "is there already with another content (5 bytes)"),
    ("longer", 0o600, "is there already with 6 bytes, in the image it has 5"),
    ("hello", 0o644, "is there already with another mode (5 bytes)"),
])
def test_another_file(trip, manifest, text, mode, why):
    trip.write("second", text, mode)
    before = trip.listing()
    assert raised(lambda: trip.put_back(manifest)) == (errors.REFUSED, REFUSAL % (trip.path("second"), why))
    assert (trip.listing(), trip.read("second")) == (before, text)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/etc/passwd", path)])
def test_something_else(trip, manifest, make):
    make(trip.path("second"))
    before = trip.listing()
    assert raised(lambda: trip.put_back(manifest)) == (
        errors.REFUSED, REFUSAL % (trip.path("second"), "is something else or another user's on this node"))
    assert trip.listing() == before


@pytest.mark.root
def test_directory_of_another_user(trip, manifest):
    os.mkdir(trip.path("deep"))
    os.chown(trip.path("deep"), 1234, -1)
    assert raised(lambda: trip.put_back(manifest)) == (
        errors.REFUSED, "%s, which the image carries, is something else or another user's on this node; move it away or restart the job on "
        "another node; image kept" % trip.path("deep"))
    manifest["node_local"] = [entry for entry in manifest["node_local"] if entry["kind"] == "file"]
    assert raised(lambda: trip.put_back(manifest)) == (
        errors.REFUSED, "the directory %s, which files of the image belong into, is another user's on this node; move it away or restart "
        "the job on another node; image kept" % trip.path("deep"))
    assert list(trip.listing()) == ["deep"]


def test_link_on_the_way(trip, manifest, tmp_path):
    (tmp_path / "precious").mkdir()
    os.symlink(str(tmp_path / "precious"), trip.path("deep"))
    manifest["node_local"] = [entry for entry in manifest["node_local"] if entry["kind"] == "file"]
    assert raised(lambda: trip.put_back(manifest)) == (
        errors.REFUSED, "the directory %s, which files of the image belong into, is a link or a file on this node; move it away or restart "
        "the job on another node; image kept" % trip.path("deep"))
    assert os.listdir(str(tmp_path / "precious")) == []


def test_nothing_is_made_above_the_carried_directory(trip, manifest):
    os.rmdir(trip.top)
    assert raised(lambda: trip.put_back(manifest)) == (
        errors.SYSTEM, "cannot put back %s: No such file or directory; see to that file system, or restart the job on another node; image "
                       "kept" % trip.path("deep"))
    assert not os.path.exists(trip.top)


def test_no_room_takes_back_what_was_made(trip, manifest, monkeypatch):
    def full(_descriptor, _data):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "write", full)
    code, sentence = raised(lambda: trip.put_back(manifest))
    assert (code, sentence) == (errors.TEMPORARY, "cannot put back %s: No space left on device; see to that file system, or restart the "
                                                  "job on another node; image kept" % trip.path("deep", "first"))
    assert trip.listing() == {}


def test_file_system_without_nameless_files(trip, manifest, monkeypatch):
    real = os.open

    def without(path, flags, *arguments, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return real(path, flags, *arguments, **options)
    monkeypatch.setattr(os, "open", without)
    trip.put_back(manifest)
    assert sorted(trip.listing()) == ["deep", "deep/first", "second"]
    assert (trip.listing()["second"], trip.read("second")) == (("-rw-------", 1, 5), "hello")


def test_undone_by_what_was_noted(trip, manifest):
    """As root's part of the hook has it done, when the restored job is not there."""
    created = trip.put_back(manifest).created
    trip.write("second", "the restored job wrote to it")
    trip.write("new", "another's")
    os.rename(trip.path("new"), trip.path("deep", "first"))
    restore.undo_restore(created, trip.settings, ME)
    assert sorted(trip.listing()) == ["deep", "deep/first"]
    assert trip.read("deep/first") == "another's"


# What the job itself left on a node it was on

def there_and_back(trip, touch):
    """A file comes from this node, goes on elsewhere, and is to come back; touch() is what happens to it here meanwhile."""
    trip.write("data", "first")
    first = dict(trip.save(lambda: os.open(trip.path("data"), os.O_RDWR)), node=NODE)
    touch()
    os.unlink(os.path.join(trip.image_path, "node-local-1"))
    with open(os.path.join(trip.image_path, "node-local-1"), "w") as stream:
        stream.write("later, longer")
    entry = dict(first["node_local"][0], size=13, state="elsewhere's")
    return {"node_local": [entry], "left": capture.list_left_files(first), "node": "elsewhere"}


def test_own_leavings_are_replaced(trip):
    trip.put_back(there_and_back(trip, lambda: None))
    assert trip.read("data") == "later, longer"


def test_own_leavings_that_somebody_touched_are_not(trip):
    manifest = there_and_back(trip, lambda: trip.write("data", "FIRST"))
    assert raised(lambda: trip.put_back(manifest)) == (
        errors.REFUSED, REFUSAL % (trip.path("data"), "is there already with 5 bytes, in the image it has 13"))
    assert trip.read("data") == "FIRST"


def test_what_was_left_is_remembered_for_each_node_once():
    def manifest(node, state, left):
        return {"node": node, "left": left, "node_local": [
            {"kind": "file", "path": "/tmp/x", "links": [["/tmp/y", "/tmp"]], "state": state}, {"kind": "directory", "path": "/tmp/d"}]}
    one = capture.list_left_files(manifest("node1", "1", []))
    assert one == [{"node": "node1", "path": "/tmp/x", "state": "1"}, {"node": "node1", "path": "/tmp/y", "state": "1"}]
    two = capture.list_left_files(manifest("node2", "2", one))
    three = capture.list_left_files(manifest("node1", "3", two))
    assert [(entry["node"], entry["path"], entry["state"]) for entry in three] == [
        ("node2", "/tmp/x", "2"), ("node2", "/tmp/y", "2"), ("node1", "/tmp/x", "3"), ("node1", "/tmp/y", "3")]
    many = [{"node": "node3", "path": "/tmp/%d" % number, "state": ""} for number in range(2000)]
    assert len(capture.list_left_files(manifest("node1", "1", many))) == 1000


# Manifests that say nonsense

@pytest.mark.parametrize("change", [{"kind": "socket"}, {"path": "relative"}, {"path": "/tmp/../etc/x"}, {"path": "/etc/x"},
                                    {"name": "../x"}, {"size": "5"}, {"mode": None}, {"links": [["/etc/x", "/tmp"]]}])
def test_nonsense(change):
    entry = {"kind": "file", "path": "/tmp/x", "beneath": "/tmp", "name": "node-local-1", "size": 5, "mode": 0o600, "gid": 0, "mtime_ns": 1,
             "state": "", "links": []}
    rest = {"left": [], "bound": False, "bound_reason": ""}
    schema.check_fields(dict(rest, node_local=[entry]), *TRAVELS)
    with pytest.raises((KeyError, TypeError, ValueError)):
        schema.check_fields(dict(rest, node_local=[dict(entry, **change)]), *TRAVELS)
    for bad in ({"left": [{"node": 1, "path": "", "state": ""}]}, {"bound": 1}, {"bound_reason": None}):
        with pytest.raises(TypeError):
            schema.check_fields(dict(dict(rest, node_local=[]), **bad), *TRAVELS)


def take_lease(path, flags, taken):
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(os.open(path, flags), fcntl.F_SETLEASE, taken)


def test_file_with_a_lease_for_writing_binds_the_image(trip):
    """Opening it would break the lease."""
    trip.write("leased")
    pid = trip.keep(lambda: take_lease(trip.path("leased"), os.O_RDWR, fcntl.F_WRLCK))
    places = capture.NodeLocal(trip.settings, pid)
    copying = capture.Capture(trip.image, capture.Load(open_files.find_open_files(pid, places.directories), places, (), ME), 1 << 30)
    copying.while_frozen()
    assert copying.after_thaw() == {"node_local": [], "bound": True, "bound_reason": (
        "the job has a lease on %s, so that opening the file would send it a signal" % trip.path("leased"))}
    assert open_files.find_open_files(pid, []).breaking == []


def test_tree_with_a_leased_file_binds_the_image(trip):
    os.mkdir(trip.path("tree"))
    trip.write("tree/leased")
    trip.settings["node_local_trees"] = [trip.path("tree")]
    load = trip.load(lambda: take_lease(trip.path("tree", "leased"), os.O_RDWR, fcntl.F_WRLCK))
    assert (load.trees, load.leased) == ([trip.path("tree")], [trip.path("tree", "leased")])


def test_file_with_a_lease_for_reading_travels(trip):
    trip.write("leased")
    saved = trip.save(lambda: take_lease(trip.path("leased"), os.O_RDONLY, fcntl.F_RDLCK))
    assert (saved["bound"], [entry["path"] for entry in saved["node_local"]]) == (False, [trip.path("leased")])
