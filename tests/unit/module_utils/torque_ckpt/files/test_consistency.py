import fcntl
import os
import shutil
import signal
import subprocess
import time

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.files import consistency, open_files
from torque_ckpt.image import schema
from torque_ckpt.system import mounts


@pytest.fixture
def record(keep, tmp_path):
    """Return a function that lets a child open files ({name: flags}) of five bytes and returns what is recorded below tmp_path."""
    top = os.path.realpath(str(tmp_path))

    def run(files, **options):
        for name in files:
            with open(os.path.join(top, name), "w") as stream:
                stream.write("12345")
        pid = keep(lambda: [os.open(os.path.join(top, name), flags) for name, flags in files.items()])
        entries = consistency.record_open_files(open_files.find_open_files(pid, []), **dict({"excluded": set()}, **options))
        return [entry for entry in entries if entry["path"].startswith(top)]
    return run


APPEND = os.O_WRONLY | os.O_APPEND


def file_system_of(path):
    """What is noted of the file system here, which is the node's own: by its id, which Python 3.6 does not tell."""
    identifier = getattr(os.statvfs(path), "f_fsid", 0)
    return "%x" % identifier if identifier else ""


def test_record(record, tmp_path):
    entries = {os.path.basename(entry.pop("path")): entry for entry in record({"log": APPEND, "data": os.O_RDWR})}
    assert {name: entry.pop("inode") for name, entry in entries.items()} == {
        name: os.stat(str(tmp_path / name)).st_ino for name in ("log", "data")}
    statuses = {name: os.stat(str(tmp_path / name)) for name in entries}
    assert {name: (entry.pop("mtime_ns"), entry.pop("ctime_ns")) for name, entry in entries.items()} == {
        name: (status.st_mtime_ns, status.st_ctime_ns) for name, status in statuses.items()}
    assert {entry.pop("filesystem") for entry in entries.values()} == {file_system_of(str(tmp_path))}
    assert entries == {"log": {"size": 5, "writable": True, "append": True}, "data": {"size": 5, "writable": True, "append": False}}


def test_files_that_travel_are_left_out(record, tmp_path):
    top = os.path.realpath(str(tmp_path))
    assert record({"log": APPEND}, excluded={os.path.join(top, "log")}) == []
    assert record({"log": APPEND}, trees=[top]) == []


def test_script_that_pbs_mom_writes_anew_when_the_job_comes_back(record, tmp_path, monkeypatch):
    """The hook's directory is pbs_mom's mom_priv."""
    (tmp_path / "jobs").mkdir()
    monkeypatch.chdir(str(tmp_path))
    noted, = record({"jobs/12.head.SC": os.O_RDWR})
    assert noted["filesystem"] == ""
    os.utime(str(tmp_path / "jobs/12.head.SC"), (1, 1))
    assert consistency.check_files([noted], False) == ([], [])


@pytest.mark.root
def test_read_only_files_of_root_are_the_engines(record, tmp_path):
    assert record({"data": os.O_RDONLY}) == []
    os.chown(str(tmp_path / "data"), 1234, -1)
    entries = record({"other": APPEND})
    assert [os.path.basename(entry["path"]) for entry in entries] == ["other"]


@pytest.fixture
def entry(tmp_path):
    (tmp_path / "a file").write_text("12345")
    path = str(tmp_path / "a file")
    status = os.stat(path)
    return {"path": path, "size": 5, "writable": True, "append": True, "inode": status.st_ino, "mtime_ns": status.st_mtime_ns,
            "ctime_ns": status.st_ctime_ns, "filesystem": file_system_of(path)}


def refused(entry, allowed=True):
    with pytest.raises(HookError) as caught:
        consistency.check_files([entry], allowed)
    assert caught.value.code == errors.REFUSED
    return str(caught.value)


def test_unchanged(entry):
    assert consistency.check_files([entry], False) == ([], [])


def test_missing(entry):
    os.unlink(entry["path"])
    assert refused(entry) == ("file %s, which the job has open, cannot be found on this node (No such file or directory); make it "
                              "available here or restart the job on another node; image kept" % entry["path"])


def test_shorter(entry):
    os.truncate(entry["path"], 3)
    assert refused(entry) == ("file %s, which the job has open, has become shorter since the image was written (3 bytes, had 5); "
                              "restart the job from another image; image kept" % entry["path"])


GROWN = ("file %s, which the job has open, has grown since the image was written (9 bytes, had 5); cut it back with "
         "\"truncate -s 5 '%s'%s\"%s or restart the job from another image; image kept")
BY_SETTING = ", set checkpoint_hooks_truncate_append_only_enabled"


def touch_of(entry):
    return "touch -d @%d.%09d '%s'" % (entry["mtime_ns"] // 10**9, entry["mtime_ns"] % 10**9, entry["path"])


@pytest.mark.parametrize("change, allowed, setting", [
    ({}, False, BY_SETTING),
    ({"append": False}, True, ""),
    ({"inode": 0}, True, ""),
])
def test_grown(entry, change, allowed, setting):
    os.truncate(entry["path"], 9)
    touch = "" if setting or not entry["filesystem"] else " && " + touch_of(entry)
    assert refused(dict(entry, **change), allowed) == GROWN % (entry["path"], entry["path"], touch, setting)
    del entry["mtime_ns"], entry["ctime_ns"], entry["filesystem"]  # of older hooks
    assert refused(dict(entry, **change), allowed) == GROWN % (entry["path"], entry["path"], "", setting)
    assert os.path.getsize(entry["path"]) == 9


def test_cut_back(entry):
    with open(entry["path"], "a") as stream:
        stream.write("6789")
    assert consistency.check_files([entry], True) == ([entry], [])
    consistency.truncate_files([entry])
    with open(entry["path"]) as stream:
        assert stream.read() == "12345"


@pytest.mark.parametrize("spoil, reason", [
    (os.unlink, "No such file or directory"),
    (lambda path: (os.rename(path, path + ".old"), open(path, "w").close()), "it has just been replaced"),
    (lambda path: (os.rename(path, path + ".old"), os.symlink(path + ".old", path)), "Too many levels of symbolic links"),
])
def test_cut_back_in_vain(entry, spoil, reason):
    spoil(entry["path"])
    with pytest.raises(HookError) as caught:
        consistency.truncate_files([entry])
    assert str(caught.value) == ("file %s, which the job has open for appending, cannot be cut back to its 5 bytes: %s; see to that file "
                                 "or restart the job from another image; image kept"
                                 % (entry["path"], reason))


@pytest.mark.parametrize("key, value", [("path", 1), ("size", "5"), ("writable", 1), ("append", None), ("inode", "x"),
                                        ("mtime_ns", 1.5), ("filesystem", None)])
def test_nonsense(entry, key, value):
    schema.check_fields({"open_files": [entry]}, "open_files")
    with pytest.raises(TypeError):
        schema.check_fields({"open_files": [dict(entry, **{key: value})]}, "open_files")


def test_status_of_the_file_not_what_the_node_remembers_of_it(entry, monkeypatch):
    """On NFS stat(2) says for a while what was before another node wrote."""
    real = os.stat

    def stale(path, *arguments, **options):
        fields = list(real(path, *arguments, **options))
        fields[6] = 3
        return os.stat_result(fields)
    monkeypatch.setattr(consistency.os, "stat", stale)
    assert os.stat(entry["path"]).st_size == 3
    assert consistency.check_files([entry], False) == ([], [])


def test_file_that_may_only_be_written(entry, monkeypatch):
    real = os.open

    def closed(path, flags):
        if not flags & os.O_WRONLY:
            raise PermissionError(13, os.strerror(13))
        return real(path, flags)
    monkeypatch.setattr(consistency.os, "open", closed)
    assert consistency.check_files([entry], False) == ([], [])


def test_fifo_in_the_place_of_a_file(entry):
    """It is not waited for."""
    os.unlink(entry["path"])
    os.mkfifo(entry["path"])
    assert "has become shorter" in refused(entry)


def test_what_was_written_is_flushed(entry, monkeypatch):
    flushed = []
    monkeypatch.setattr(consistency.os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor).st_ino))
    before = os.listdir("/proc/self/fd")
    consistency.flush_files([entry, dict(entry, writable=False), dict(entry, path=entry["path"] + ".gone")], {})
    assert flushed == [entry["inode"]]
    assert os.listdir("/proc/self/fd") == before


def test_what_cannot_be_flushed(entry, monkeypatch):
    def full(descriptor):
        raise OSError(28, os.strerror(28))
    monkeypatch.setattr(consistency.os, "fsync", full)
    with pytest.raises(HookError) as caught:
        consistency.flush_files([entry], {})
    assert (caught.value.code, str(caught.value)) == (errors.CANNOT_WRITE, (
        "what the job wrote to %s could not be flushed: No space left on device; the job keeps running; see to that file system" % (
            entry["path"])))


# The same size

knows_file_systems = pytest.mark.skipif(not file_system_of("/"), reason="needs to know file systems apart: Python 3.7")


def write(path):
    with open(path, "r+") as stream:
        stream.write("54321")
    os.utime(path, (7, 7))


def replace(path):
    with open(path + ".new", "w") as stream:
        stream.write("54321")
    os.utime(path + ".new", (7, 7))
    os.rename(path + ".new", path)


def shown(nanoseconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(nanoseconds // 10**9))


@knows_file_systems
@pytest.mark.parametrize("change, append, how", [(write, False, "written to"), (replace, False, "replaced"), (replace, True, "replaced")])
def test_rewritten(entry, change, append, how):
    change(entry["path"])
    entry["append"] = append
    sentence = "file %s, which the job has open, was %s after the image was written (its time is 1970-01-01T00:00:07Z, was %s)" % (
        entry["path"], how, shown(entry["mtime_ns"]))
    assert refused(entry) == ("%s; if it is as the job needs it, give it its time back with \"%s\", or restart the job from another image; "
                              "image kept" % (sentence, touch_of(entry)))
    assert consistency.check_files([entry], False, consistency.REPORT) == ([], [sentence])
    assert consistency.check_files([entry], False, consistency.IGNORE) == ([], [])
    subprocess.check_call(touch_of(entry), shell=True)
    assert consistency.check_files([entry], False) == ([], [])


@knows_file_systems
def test_moment_is_told_apart(entry):
    """Nanoseconds count."""
    entry["append"] = False
    os.utime(entry["path"], ns=(entry["mtime_ns"] + 1,) * 2)
    assert "was written to after" in refused(entry)


@knows_file_systems
def test_what_the_job_cannot_have_read(entry):
    """Who opened it for appending only."""
    write(entry["path"])
    assert consistency.check_files([entry], False) == ([], [])


def test_file_of_another_file_system(entry):
    """Here is another node's own: its times tell nothing."""
    write(entry["path"])
    entry["append"] = False
    assert consistency.check_files([dict(entry, filesystem="nfs4")], False) == ([], [])
    assert consistency.check_files([dict(entry, filesystem="")], False) == ([], [])


def test_image_of_older_hooks(entry):
    write(entry["path"])
    entry["append"] = False
    del entry["mtime_ns"], entry["ctime_ns"], entry["filesystem"]
    schema.check_fields({"open_files": [entry]}, "open_files")
    assert consistency.check_files([entry], False) == ([], [])


@pytest.mark.parametrize("harmless", [lambda path: os.chmod(path, 0o600), lambda path: os.link(path, path + ".link"),
                                      lambda path: (shutil.copy2(path, path + ".new"), os.rename(path + ".new", path))])
def test_change_that_costs_no_job(entry, harmless):
    """Another mode, another name, a copy with its times."""
    harmless(entry["path"])
    assert os.stat(entry["path"]).st_ctime_ns != entry["ctime_ns"]
    entry["append"] = False
    assert consistency.check_files([entry], False) == ([], [])


@pytest.mark.parametrize("kind, shared", [("nfs4", True), ("lustre", True), ("ext4", False)])
def test_shared_file_system_is_known_by_its_type(record, monkeypatch, tmp_path, kind, shared):
    monkeypatch.setattr(consistency.mounts, "read_mounts", lambda: {"/": mounts.Mount("/", "server:/home", kind, [])})
    noted, = record({"data": os.O_RDWR})
    assert noted["filesystem"] == (kind if shared else file_system_of(str(tmp_path)))


@pytest.mark.root
@pytest.mark.parametrize("kind, noted", [("nfs4", "nfs4"), ("ext4", "")])
def test_what_others_write_on_the_node(keep, monkeypatch, tmp_path, kind, noted):
    """Caches of accounts, say, which processes have open: only on a shared file system is such a file the job's input."""
    path = os.path.realpath(str(tmp_path / "cache"))
    open(path, "w").close()
    os.chown(path, 1234, -1)
    monkeypatch.setattr(consistency.mounts, "read_mounts", lambda: {"/": mounts.Mount("/", "x", kind, [])})
    pid = keep(lambda: os.open(path, os.O_RDONLY))
    entries = consistency.record_open_files(open_files.find_open_files(pid, []), set())
    assert [entry["filesystem"] for entry in entries if entry["path"] == path] == [noted]


def test_times_are_noted_after_the_flush(entry):
    write(entry["path"])
    status = os.stat(entry["path"])
    other = dict(entry, inode=0)
    consistency.note_times([entry, other, dict(entry, path=entry["path"] + ".gone")], {})
    assert (entry["mtime_ns"], entry["ctime_ns"]) == (status.st_mtime_ns, status.st_ctime_ns)
    assert other["mtime_ns"] != status.st_mtime_ns


# Leases

@pytest.fixture
def leased(keep, tmp_path):
    """Return a function that lets a child take a lease on a file: (entry, leases, function that returns whether the lease is unbroken)."""
    def run(flags, taken):
        path = os.path.realpath(str(tmp_path / "leased"))
        with open(path, "w") as stream:
            stream.write("12345")

        def work():
            signal.signal(signal.SIGIO, signal.SIG_IGN)
            fcntl.fcntl(os.open(path, flags), fcntl.F_SETLEASE, taken)
        pid = keep(work)
        opened = open_files.find_open_files(pid, [])
        entry, = [entry for entry in consistency.record_open_files(opened, set()) if entry["path"] == path] or [{"path": path}]
        return entry, consistency.find_leases(opened), lambda: not open_files.find_open_files(pid, []).breaking
    return run


def test_lease_for_writing_is_not_broken(leased, monkeypatch):
    synced = []
    monkeypatch.setattr(consistency.os, "sync", lambda: synced.append(True))
    entry, leases, is_unbroken = leased(os.O_RDWR, fcntl.F_WRLCK)
    os.utime(entry["path"], (7, 7))
    consistency.flush_files([entry], leases)
    consistency.note_times([entry], leases)
    assert is_unbroken()
    assert (synced, entry["mtime_ns"]) == ([True], 7 * 10**9)
    consistency.note_times([entry], {})
    assert not is_unbroken()  # so what broke it would be seen


def test_lease_for_reading_is_not_broken(leased, monkeypatch):
    """A file that can only be opened for writing is left alone."""
    synced, real = [], os.open

    def closed(path, flags):
        if not flags & os.O_WRONLY:
            raise PermissionError(13, os.strerror(13))
        return real(path, flags)
    monkeypatch.setattr(consistency.os, "sync", lambda: synced.append(True))
    entry, leases, is_unbroken = leased(os.O_RDONLY, fcntl.F_RDLCK)
    entry = dict(entry, writable=True, size=5, inode=os.stat(entry["path"]).st_ino)
    consistency.flush_files([entry], leases)
    monkeypatch.setattr(consistency.os, "open", closed)
    consistency.flush_files([entry], leases)
    consistency.note_times([entry], leases)
    assert is_unbroken() and not synced
    consistency.flush_files([entry], {})
    assert not is_unbroken()
