"""job_files_info: what it answers of a home of TORQUE's."""
import os

import pytest


@pytest.fixture
def home(tmp_path):
    (tmp_path / "server_priv/arrays").mkdir(parents=True)
    (tmp_path / "server_priv/arrays/6.head.AR").write_bytes(b"\4\0\0\0")
    return tmp_path


def test_array_of_4_2(module, home):
    answer = module("job_files_info", {"home": str(home), "version": "6.1.3"})
    assert (answer["lost"], answer["changed"]) == (["6[].head"], False)
    assert answer["complaint"].startswith("6[].head cannot be taken over by TORQUE 6.1.3, since another version has written it: ")
    answer = module("job_files_info", {"home": str(home), "version": "6.0.4"}, check=True)
    assert (answer["lost"], answer["complaint"]) == ([], "")


def test_home_that_does_not_exist(module, home):
    answer = module("job_files_info", {"home": str(home / "none"), "version": "6.1.3"})
    assert (answer["lost"], answer["complaint"]) == ([], "")


def test_no_version(module, home):
    assert module("job_files_info", {"home": str(home), "version": "newest"})["msg"] == (
        "%s: version: 'newest' is not a version; name one such as 6.1.3 or 6.1.3.h5" % os.uname().nodename)
