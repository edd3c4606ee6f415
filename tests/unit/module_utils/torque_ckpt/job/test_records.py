import os

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.job import records
from torque_ckpt.job.records import Records


def test_record_is_written_read_and_dropped(tmp_path):
    run = str(tmp_path / "run")
    assert Records(run, "12.head").read(records.JOB) is None
    Records(run, "12.head").write(records.JOB, {"root": [1, 2]})
    Records(run, "12.head").write(records.HOLDING, [3])
    assert Records(run, "12.head").read(records.JOB) == {"root": [1, 2]}
    assert (Records(run, "12.head").read(records.HOLDING), Records(run, "12.head").read(records.FAILED)) == ([3], None)
    assert Records(run, "13.head").read(records.JOB) is None
    assert sorted(os.listdir(os.path.join(run, "jobs"))) == ["12.head.holding", "12.head.json"]
    Records(run, "12.head").write(records.JOB, {})
    assert Records(run, "12.head").read(records.JOB) == {}
    Records(run, "12.head").drop(records.JOB)
    Records(run, "12.head").drop(records.JOB)
    assert os.listdir(os.path.join(run, "jobs")) == ["12.head.holding"]


def test_record_is_where_path_says(tmp_path):
    Records(str(tmp_path), "12[3].head").write(records.ATTEMPTS, {"failed": 1})
    path = Records(str(tmp_path), "12[3].head").get_path(records.ATTEMPTS)
    assert path == str(tmp_path / "jobs" / "12[3].head.attempts")


@pytest.mark.parametrize("kind, mode", [(records.JOB, 0o600), (records.ATTEMPTS, 0o600), (records.FAILED, 0o600), (records.HOLDING, 0o644)])
@pytest.mark.parametrize("umask", [0o077, 0o000])
def test_who_may_read_a_record(tmp_path, in_child, umask, kind, mode):
    """The job's leader is the user's and reads one of them; another names files in private directories."""
    def work():
        os.umask(umask)
        Records(str(tmp_path), "12.head").write(kind, {})
        return os.stat(Records(str(tmp_path), "12.head").get_path(kind)).st_mode & 0o777
    assert in_child(work).result == mode


def test_record_that_cannot_be_written_leaves_the_older_one(tmp_path):
    Records(str(tmp_path), "12.head").write(records.JOB, {"root": 1})
    with pytest.raises(TypeError):
        Records(str(tmp_path), "12.head").write(records.JOB, {"root": object()})
    assert Records(str(tmp_path), "12.head").read(records.JOB) == {"root": 1}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_damaged_record_is_none(tmp_path, content):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "12.head.json").write_bytes(content)
    assert Records(str(tmp_path), "12.head").read(records.JOB) is None


# Where they are

@pytest.mark.parametrize("umask", [0o077, 0o022, 0o000])
def test_directory_of_the_records_is_made(tmp_path, in_child, umask):
    def work():
        os.umask(umask)
        Records(str(tmp_path / "run"), "12.head").make_directory()
        return "made"
    assert in_child(work).result == "made"
    for path in (tmp_path / "run", tmp_path / "run" / "jobs"):
        assert path.stat().st_mode == 0o040755
    Records(str(tmp_path / "run"), "12.head").make_directory()


@pytest.mark.parametrize("which", ["run", "run/jobs"])
@pytest.mark.parametrize("spoil", [
    lambda path: path.chmod(0o775), lambda path: path.chmod(0o757), lambda path: path.chmod(0o1777),
    lambda path: os.chown(str(path), 65534, -1),
    lambda path: (path.rename(str(path) + ".real"), path.symlink_to(str(path) + ".real")),
])
def test_records_that_others_could_have_written_are_refused(tmp_path, which, spoil):
    if os.geteuid() != 0:
        pytest.skip("needs root: gives a directory away")
    Records(str(tmp_path / "run"), "12.head").make_directory()
    spoil(tmp_path / which)
    with pytest.raises(HookError) as caught:
        Records(str(tmp_path / "run"), "12.head").make_directory()
    assert str(caught.value) == ("%s must be a directory of root's that nobody else can write to, because the hooks trust the records "
                                 "in it; remove it, the next hook creates it again; nothing was done" % (tmp_path / which))
    assert caught.value.code == errors.CONFIG


def test_records_that_cannot_be_made(tmp_path):
    with pytest.raises(HookError) as caught:
        Records(str(tmp_path / "no" / "run"), "12.head").make_directory()
    assert str(caught.value) == ("cannot use the directory %s/no/run of the hooks' records: No such file or directory; see to that file "
                                 "system; nothing was done"
                                 % tmp_path)
    assert caught.value.code == errors.CONFIG


def test_file_in_the_place_of_the_records(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(HookError) as caught:
        Records(str(tmp_path / "run"), "12.head").make_directory()
    assert str(caught.value) == ("%s/run must be a directory of root's that nobody else can write to, because the hooks trust the records "
                                 "in it; remove it, the next hook creates it again; nothing was done" % tmp_path)
