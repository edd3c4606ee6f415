"""The database of pbs_server: which versions can read it."""
import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque import database
from ansible_collections.ckpt.torque.plugins.module_utils.torque.version import VersionError

SERVER = """<server_db>
<numjobs>0</numjobs>
<attributes>
<scheduling>%s</scheduling>
<resources_assigned>\t\t<nodect>0</nodect>
</resources_assigned>
<managers>root@head</managers>
<timeout_for_job_delete>120</timeout_for_job_delete>
</attributes>
</server_db>
"""
QUEUE = """<queue>
<name>batch</name>
<attributes>
<queue_type>Execution</queue_type>
<ghost_queue>false</ghost_queue>
</attributes>
</queue>
"""
KNOWN = ["scheduling", "resources_assigned", "managers", "timeout_for_job_delete", "queue_type", "ghost_queue"]


@pytest.fixture
def home(tmp_path):
    """A function that makes TORQUE's home with a database whose switches are written so; it returns its path (str)."""
    (tmp_path / "server_priv/queues").mkdir(parents=True)
    (tmp_path / "server_priv/queues/batch").write_text(QUEUE)

    def make(switch):
        (tmp_path / "server_priv/serverdb").write_text(SERVER % switch)
        return str(tmp_path)
    return make


@pytest.mark.parametrize("switch, versions, wanted", [
    ("1", ["4.2.10", "6.0.4", "6.1.3", "6.1.3.h5"], False), ("1", ["6.1.0", "6.1.1", "6.1.2"], True),
    ("true", ["4.2.10", "6.0.4"], True), ("false", ["6.0.4"], True), ("true", ["6.1.0", "6.1.2", "6.1.3"], False),
])
def test_switches(home, switch, versions, wanted):
    assert [database.has_unreadable_switches(home(switch), version) for version in versions] == [wanted] * len(versions)


def test_home_without_a_database(tmp_path):
    assert database.has_unreadable_switches(str(tmp_path), "newest") is False
    assert database.list_unknown(str(tmp_path), "/nonexistent") == []


def test_no_version(home):
    with pytest.raises(VersionError):
        database.has_unreadable_switches(home("1"), "newest")


@pytest.mark.parametrize("known, unknown", [
    (KNOWN, []), (KNOWN[:3] + KNOWN[4:], ["timeout_for_job_delete"]),
    (KNOWN[:3] + ["queue_type"], ["ghost_queue", "timeout_for_job_delete"]),
    (KNOWN[:3] + ["no_timeout_for_job_delete"] + KNOWN[4:], ["timeout_for_job_delete"]),
])
def test_attributes_that_a_program_does_not_know(home, tmp_path, known, unknown):
    """What is within an attribute, and what is beside them, is none."""
    program = tmp_path / "pbs_server"
    program.write_bytes(b"\x7fELF\0" + b"\0".join(name.encode() for name in known) + b"\0")
    assert database.list_unknown(home("1"), str(program)) == unknown
