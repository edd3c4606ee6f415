"""The file of the jobs that a drain holds: written before the hold, read strictly, gone with the last one."""

import json
import os
import stat

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque import held_jobs
from ansible_collections.ckpt.torque.plugins.module_utils.torque.held_jobs import HeldJobs, HeldJobsError


def failure(work):
    with pytest.raises(HeldJobsError) as caught:
        work()
    return str(caught.value)


def enter(path):
    with HeldJobs(str(path)):
        pass


def test_jobs_are_noted_until_the_last_one_is_released(tmp_path):
    path = tmp_path / "state"
    with HeldJobs(str(path)) as held:
        held.add("12.head", "node1")
        held.add("13[2].head", "node2")
        assert json.loads((path / "drain.json").read_text()) == {"jobs": {"12.head": "node1", "13[2].head": "node2"}}
        assert stat.S_IMODE(os.stat(path / "drain.json").st_mode) == 0o600
        held.remove("12.head")
    with HeldJobs(str(path)) as held:
        assert held.nodes == {"13[2].head": "node2"}
        held.remove("13[2].head")
        held.remove("13[2].head")
        assert sorted(os.listdir(path)) == ["drain.lock"]


def test_file_that_somebody_removed_meanwhile(tmp_path):
    with HeldJobs(str(tmp_path)) as held:
        held.add("12.head", "node1")
        (tmp_path / "drain.json").unlink()
        held.remove("12.head")
        assert held.nodes == {}


def test_peek_creates_nothing(tmp_path):
    assert HeldJobs(str(tmp_path / "state")).peek() == {}
    assert os.listdir(tmp_path) == []
    with HeldJobs(str(tmp_path)) as held:
        held.add("12.head", "node1")
        assert HeldJobs(str(tmp_path)).peek() == {"12.head": "node1"}


@pytest.mark.parametrize("text, reason", [
    ("", "Expecting value: line 1 column 1 (char 0)"),
    ("[]", "it is no list of jobs"),
    ('{"jobs": []}', "it is no list of jobs"),
    ('{"jobs": {}, "more": 1}', "it is no list of jobs"),
    ('{"jobs": {"-a": "node1"}}', "it holds something else than jobs and nodes"),
    ('{"jobs": {"12.head": 1}}', "it holds something else than jobs and nodes"),
    ('{"jobs": {"12.head": "-a"}}', "it holds something else than jobs and nodes"),
    ('{"jobs": {"12.head": "node1\\n"}}', "it holds something else than jobs and nodes"),
])
def test_other_content_is_refused(tmp_path, text, reason):
    (tmp_path / "drain.json").write_text(text)
    sentence = ("%s/drain.json cannot be read: %s; look for jobs that a drain held (qselect -h o), release them (qrls -h o JOB) and "
                "remove the file; no job was held" % (tmp_path, reason))
    assert failure(lambda: enter(tmp_path)) == sentence
    assert failure(HeldJobs(str(tmp_path)).peek) == sentence
    assert (tmp_path / "drain.json").read_text() == text


def test_file_that_others_can_write_is_refused(tmp_path):
    (tmp_path / "drain.json").write_text('{"jobs": {"12.head": "node1"}}')
    (tmp_path / "drain.json").chmod(0o666)
    assert "/drain.json cannot be read: others than root can write it; " in failure(lambda: enter(tmp_path))


def test_link_is_refused(tmp_path):
    (tmp_path / "drain.json").symlink_to("/etc/passwd")
    assert "/drain.json cannot be read: Too many levels of symbolic links; " in failure(lambda: enter(tmp_path))


def test_directory_that_others_can_write_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    assert failure(lambda: enter(tmp_path)) == (
        "cannot note the jobs to hold in {0}: {0} must be root's and writable by nobody else; make it a directory of root's that nobody "
        "else can write to; nothing was changed".format(tmp_path))


def test_one_drain_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(held_jobs, "PATIENCE", 0.1)
    with HeldJobs(str(tmp_path)):
        assert failure(lambda: enter(tmp_path)) == "another drain moves jobs on this host; run again when it has ended; no job was held"
    enter(tmp_path)


def test_job_that_cannot_be_noted(tmp_path, monkeypatch):
    """Then it is not held either."""
    def fail(*_names, **_directories):
        raise OSError(28, "No space left on device")

    with HeldJobs(str(tmp_path)) as held:
        monkeypatch.setattr(held_jobs.os, "rename", fail)
        assert failure(lambda: held.add("12.head", "node1")) == "cannot write %s/drain.json: No space left on device" % tmp_path
        assert held.nodes == {}
