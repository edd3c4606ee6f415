"""Which jobs a version of TORQUE would lose, by the files that another one has written."""
import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque import job_files
from ansible_collections.ckpt.torque.plugins.module_utils.torque.version import VersionError

XML, STRUCTURE = b"<job>", b"\2\3\2\0"


@pytest.fixture
def home(tmp_path):
    """A function that makes TORQUE's home: home({path: content}) returns it (str)."""
    def make(files):
        for path, content in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(content)
        return str(tmp_path)
    return make


def write(form, database=b"<server_db>"):
    """What 4.2 (STRUCTURE) or a later version (XML) has on a host with both daemons."""
    return {"server_priv/serverdb": database, "server_priv/jobs/1.head.JB": form, "server_priv/jobs/1.head.SC": b"#!/bin/sh",
            "server_priv/jobs/6-0.head.JB": form, "server_priv/jobs/6.head.TA": form, "server_priv/arrays/6.head.AR": form,
            "mom_priv/jobs/1.head.JB": form, "mom_priv/jobs/2.head.JB": form, "mom_priv/jobs/3.head.JB": b""}


ALL = ["1.head", "2.head", "6[0].head", "6[].head"]


@pytest.mark.parametrize("files, version, lost", [
    (write(STRUCTURE), "4.2.10", []),
    (write(STRUCTURE), "6.0.4", []),
    (write(STRUCTURE), "6.1.0", ["6[].head"]),
    (write(STRUCTURE), "6.1.3.h5", ["6[].head"]),
    (write(XML), "6.1.3", []),
    (write(XML), "4.5.0", []),
    (write(XML), "4.2.10", ALL),
    (write(STRUCTURE, b"\4\0\0\0"), "2.5.13", []),
    (write(STRUCTURE, b"\4\0\0\0"), "4.2.10", ["1.head", "6[0].head", "6[].head"]),
    (write(STRUCTURE, b"\4\0\0\0"), "6.1.3", ["1.head", "6[0].head", "6[].head"]),
    ({"mom_priv/jobs/2.head.JB": XML}, "4.2.10", ["2.head"]),
    ({}, "6.1.3", []), ({}, "2.5.13", []),
])
def test_jobs_that_would_be_lost(home, files, version, lost):
    assert job_files.list_lost(home(files), version) == lost


def test_sentence_on_jobs(home):
    path = home({"server_priv/arrays/6.head.AR": STRUCTURE})
    assert job_files.explain(path, "6.1.3") == (["6[].head"], (
        "6[].head cannot be taken over by TORQUE 6.1.3, since another version has written it: pbs_server would not start, or lose jobs, "
        "and pbs_mom would leave them running on their own; let them end, or delete them, before TORQUE is changed"))
    assert job_files.explain(path, "6.0.4") == ([], "")


def test_sentence_on_many_jobs(home):
    lost, sentence = job_files.explain(home({"mom_priv/jobs/%d.head.JB" % number: XML for number in range(1, 8)}), "4.2.10")
    assert len(lost) == 7
    assert sentence.startswith("1.head, 2.head, 3.head, 4.head, 5.head and 2 others cannot be taken over by TORQUE 4.2.10, since another "
                               "version has written them: ")


def test_sentence_on_one_job_more_than_are_named(home):
    _lost, sentence = job_files.explain(home({"mom_priv/jobs/%d.head.JB" % number: XML for number in range(1, 7)}), "4.2.10")
    assert sentence.startswith("1.head, 2.head, 3.head, 4.head, 5.head and 1 other cannot be taken over by ")


def test_database_of_a_later_version(home):
    path = home({"server_priv/serverdb": b"<server_db>"})
    assert job_files.explain(path, "2.5.13") == ([], (
        "the server's database was written by a later version than TORQUE 2.5.13, which cannot read it; keep that version, or take "
        "%s/server_priv away, with which queues and jobs go" % path))
    assert job_files.explain(path, "4.2.10") == ([], "")


SWITCHES = ("the server's database was written by another version, and TORQUE %s would take each switch in it for off (scheduling, queues "
            "that are enabled and started); keep that version, %sor take %s/server_priv away, with which queues and jobs go")


def test_database_whose_switches_it_takes_for_off(home):
    path = home({"server_priv/serverdb": b"<server_db>\n<attributes>\n<scheduling>true</scheduling>\n"})
    assert job_files.explain(path, "6.0.4") == ([], SWITCHES % ("6.0.4", "", path))
    assert job_files.explain(path, "6.1.2") == ([], "")
    path = home({"server_priv/serverdb": b"<server_db>\n<attributes>\n<scheduling>1</scheduling>\n"})
    assert job_files.explain(path, "6.1.2") == ([], SWITCHES % ("6.1.2", "take one from 6.1.3 on, ", path))
    assert job_files.explain(path, "6.1.3") == ([], "")


def test_no_version(home):
    with pytest.raises(VersionError):
        job_files.list_lost(home({}), "newest")
