"""server: what pbs_server's nodes and jobs are, by what TORQUE's commands print of them."""
import pytest

from torque_ckpt.torque import server

# As qstat of 6.1.3 writes it: cut after 78 columns wherever that is, times and comments with a newline of their own.
HELD = """\
Job Id: 16.head
    Job_Name = validate
    Job_Owner = alice@head
    resources_used.walltime = 00:00:05
    job_state = H
    queue = batch
    Checkpoint = enabled
    ctime = Sat Nov 21 14:19:28 2026
    Error_Path = head:/shared/ckpt/alice/validate-1795270768-4711/stderr
    exec_host = node1/0
    Hold_Types = u
    Resource_List.nodes = node1:ppn=1
    Variable_List = PBS_O_QUEUE=batch,PBS_O_HOME=/home/alice,PBS_O_LOGNAME=alice,
\tPBS_O_PATH=/usr/sbin:/usr/bin:/sbin:/bin,PBS_O_LANG=C,PBS_O_WORKDIR=/,
\tPBS_O_HOST=head,PBS_O_SERVER=head
    comment = Job 16.head was checkpointed and continued to /var/spool/torque/
\tcheckpoint/16.head.CK/ckpt.16.head.1795270775 at Sat Nov 21 14:19:35 2
\t026


    checkpoint_dir = /var/spool/torque/checkpoint/16.head.CK
    checkpoint_name = ckpt.16.head.1795270775
    submit_args = -N validate -c enabled -l nodes=node1 -o /shared/ckpt/alice/vali
\tdate-1795270768-4711/stdout -e /shared/ckpt/alice/validate-1795270768-
\t4711/stderr
    fault_tolerant = False
    job_radix = 0

"""


# attributes

def test_attributes():
    assert server.parse_attributes(HELD) == {
        "Job_Name": "validate", "Job_Owner": "alice@head", "resources_used.walltime": "00:00:05", "job_state": "H", "queue": "batch",
        "Checkpoint": "enabled", "ctime": "Sat Nov 21 14:19:28 2026",
        "Error_Path": "head:/shared/ckpt/alice/validate-1795270768-4711/stderr", "exec_host": "node1/0", "Hold_Types": "u",
        "Resource_List.nodes": "node1:ppn=1",
        "Variable_List": "PBS_O_QUEUE=batch,PBS_O_HOME=/home/alice,PBS_O_LOGNAME=alice,PBS_O_PATH=/usr/sbin:/usr/bin:/sbin:/bin,"
                         "PBS_O_LANG=C,PBS_O_WORKDIR=/,PBS_O_HOST=head,PBS_O_SERVER=head",
        "comment": "Job 16.head was checkpointed and continued to /var/spool/torque/checkpoint/16.head.CK/ckpt.16.head.1795270775 "
                   "at Sat Nov 21 14:19:35 2026",
        "checkpoint_dir": "/var/spool/torque/checkpoint/16.head.CK", "checkpoint_name": "ckpt.16.head.1795270775",
        "submit_args": "-N validate -c enabled -l nodes=node1 -o /shared/ckpt/alice/validate-1795270768-4711/stdout "
                       "-e /shared/ckpt/alice/validate-1795270768-4711/stderr",
        "fault_tolerant": "False", "job_radix": "0",
    }


@pytest.mark.parametrize("text, attributes", [
    ("", {}),
    ("Job Id: 1.head\n", {}),
    ("    a = b\n", {"a": "b"}),
    ("    a = \n", {"a": ""}),
    ("    a = b = c\n", {"a": "b = c"}),
    ("    a = cut before\n\t a space and behind \n\tone", {"a": "cut before a space and behind one"}),
    ("    a = cut at its end\n\t\n    b = c\n", {"a": "cut at its end", "b": "c"}),
    ("    a = b\x0bc\x1cd\u2028e\n", {"a": "b\x0bc\x1cd\u2028e"}),
    ("\tbelongs to nothing\n    a = b\n", {"a": "b"}),
    ("    a = b\nJob Id: 2.head\n\tbelongs to nothing\n", {"a": "b"}),
    ("    a = b\n\n\tbelongs to nothing\n", {"a": "b"}),
    ("    a = two lines\n     b = of a comment\n", {"a": "two lines"}),
    ("    a = b\n    x = y\n    a = c\n\tand d\n", {"a": "b", "x": "y"}),
    ("    a b = c\n", {}),
    ("a = b\n", {}),
])
def test_attributes_in_odd_shapes(text, attributes):
    assert server.parse_attributes(text) == attributes


@pytest.mark.parametrize("text, jobs", [
    ("0/4.head, 1/5.head", {"4.head", "5.head"}), ("0/4.head,1/4.head", {"4.head"}), ("0-1,3/12.head", {"12.head"}),
    ("0-1,3/12.head,4/13[2].head,2,5-6/14.head", {"12.head", "13[2].head", "14.head"}), ("0-1,3/3[5].head", {"3[5].head"}), ("", set())])
def test_jobs_of_a_node(text, jobs):
    """The first line is how 2.5 and 4.2 print them, the others how 5.1 and later do."""
    assert server.parse_node_jobs(text) == jobs


@pytest.mark.parametrize("exec_host, nodes", [
    ("", []), ("n1", ["n1"]), ("n1/0", ["n1"]), ("n1/0+n1/1", ["n1"]), ("n1/0-3+n2/0", ["n1", "n2"]), ("n1/0,2-3+n2/0", ["n1", "n2"]),
    ("n2/1+n1/0+n2/0", ["n2", "n1"]), ("n1.example.org/0", ["n1.example.org"]), ("n1+n2", ["n1", "n2"])])
def test_nodes_of_a_job(exec_host, nodes):
    assert server.parse_exec_host(exec_host) == nodes
    assert server.get_first_node({"exec_host": exec_host}) == (nodes[0] if nodes else "")


@pytest.mark.parametrize("job, runs", [
    ({"job_state": "R", "exec_host": "n1/0+n2/0"}, True), ({"job_state": "R", "exec_host": "n2/0+n1/0"}, True),
    ({"job_state": "R", "exec_host": "n2/0+n11/0"}, False),
    ({"job_state": "Q", "exec_host": "n1/0"}, False), ({"job_state": "R"}, False), ({}, False)])
def test_job_runs_on_its_nodes(job, runs):
    assert server.runs_on(job, "n1") == runs


def test_owner():
    assert (server.get_owner({"Job_Owner": "alice@head"}), server.get_owner({})) == ("alice", "")


@pytest.mark.parametrize("manifest, has", [
    ('{"patches": [{"name": "a", "file": "a-4.2.patch", "state": "applied"}]}', True),
    ('{"patches": [{"name": "a", "file": null, "state": "already upstream"}]}', True),
    ('{"patches": [{"name": "a", "file": null, "state": "not applicable"}]}', False),
    ('{"patches": [{"name": "b", "file": "b.patch", "state": "applied"}]}', False),
    ('{"patches": [{"name": "a"}]}', False), ('{"patches": 1}', False), ("[]", False), ("", False), (None, False)])
def test_patches(tmp_path, manifest, has):
    (tmp_path / "bin").mkdir()
    if manifest is not None:
        (tmp_path / "ckpt-torque.json").write_text(manifest)
    assert server.Server(str(tmp_path / "bin"), "nothing was done").has_patch("a") == has
