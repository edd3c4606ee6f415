"""Real jobs in a real TORQUE, as users and administrators meet them. Needs TORQUE's source; says so where there is none."""
import re
import time

import proofs
import pytest
from conftest import HOOKS, STORE
from jobs import BIN, Jobs


@pytest.fixture(scope="module", autouse=True)
def torque(cluster):
    if not cluster.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")


@pytest.fixture
def qsub(cluster):
    with Jobs(cluster) as jobs:
        yield jobs


# -- output survives a move (D3) ----------------------------------------------

LINES = """\
seq 1 5000
touch %(here)s/half
while [ ! -e %(here)s/go ]; do sleep 0.05; done
seq 5001 10000
exit 7
"""


@pytest.mark.parametrize("options, output, names", [
    ([], True, "out"),
    (["-j", "oe"], True, "out"),
    ([], False, "job.sh.o*"),
    (["-j", "oe"], False, "job.sh.o*"),
])
def test_every_line_of_output_survives_a_move(qsub, options, output, names):
    job = qsub("cd $PBS_O_WORKDIR\n" + LINES % {"here": "."}, "-c", "enabled", *options, output=output)
    job.reach("half")
    job.hold()
    job.release("node2")
    job.sign("go")
    assert job.wait("C")["exit_status"] == "7"
    assert job.text(names).splitlines() == [str(number) for number in range(1, 10001)]


# -- what fails, fails well -----------------------------------------------------

def test_hold_that_fails_leaves_the_job_running(qsub, cluster, node1):
    job = qsub.counts()
    node1.ask("cd %s && mv checkpoint checkpoint.away && printf '#!/bin/sh\\necho no room >&2\\nexit 1\\n' > checkpoint "
              "&& chmod 755 checkpoint" % HOOKS)
    try:
        job.user("%s/qhold %s" % (BIN, job.id))
        job.comment("no room")
    finally:
        node1.ask("mv %s/checkpoint.away %s/checkpoint" % (HOOKS, HOOKS))
    found = job.wait("R")
    assert found["Hold_Types"] == "n"
    job.finish()


def test_restart_that_fails_for_good_holds_the_job_and_keeps_image_and_output(qsub):
    assert "has another content than was written" in proofs.damaged_image(qsub)


def test_restart_that_fails_for_now_queues_the_job_and_keeps_image_and_output(qsub):
    assert "try again later or on another node" in proofs.taken_pid(qsub)


# -- no user becomes root through TORQUE (D1, D2, D7); make torque-matrix shows that without our patches he does -----

@pytest.mark.parametrize("name", sorted(proofs.ATTACKS))
def test_attack_does_nothing_and_says_why(qsub, name):
    succeeded, said = proofs.attack(qsub, name)
    assert not succeeded, said
    assert proofs.ATTACKS[name].reason in said


# -- administration ----------------------------------------------------------------

def mom(node):
    return node.ask("systemctl show -p MainPID --value pbs_mom")


def test_jobs_outlive_a_restart_of_pbs_mom(qsub, cluster, node1):
    job = qsub.counts()
    before = mom(node1)
    done = cluster.playbook("site", "--limit", "node1", torque_mom_limits={"LimitNOFILE": 3000, "LimitMEMLOCK": None})
    assert done.code == 0 and "Restart pbs_mom" in done.out, done.out
    assert mom(node1) != before
    job.hold()
    job.release("node2")
    job.finish()
    assert cluster.playbook("site", "--limit", "node1").code == 0


@pytest.mark.parametrize("drift, command", [
    ("set queue batch enabled = false", "set queue batch enabled = True"),
    ("unset queue batch checkpoint_dir", "set queue batch checkpoint_dir = %s" % STORE),
])
def test_drift_of_the_server_is_repaired_by_one_change(cluster, drift, command):
    head = cluster.nodes["head"]
    head.ask("%s/qmgr -c '%s'" % (BIN, drift))
    done = cluster.playbook("site", "--limit", "head", "-v")
    assert (done.code, done.changed("head")) == (0, 1), done.out
    assert re.search(r'"executed": \["%s"\]' % re.escape(command), done.out), done.out
    assert cluster.playbook("site", "--limit", "head").changed("head") == 0


def test_server_rests_after_a_mail(qsub, cluster):
    """An unpatched pbs_server keeps a CPU busy for ever once sendmail has ended."""
    job = qsub("exit 0", "-m", "abe")
    job.wait("C")
    script = "cat /proc/$(pgrep -x pbs_server)/stat | cut -d' ' -f14,15; cut -d' ' -f1 /proc/uptime"
    time.sleep(2)
    before = cluster.nodes["head"].ask(script).split()
    time.sleep(5)
    after = cluster.nodes["head"].ask(script).split()
    used = (sum(map(int, after[:2])) - sum(map(int, before[:2]))) / 100
    assert used < (float(after[2]) - float(before[2])) / 10, "pbs_server used %.2f s of CPU" % used


def test_foreign_objects_are_left_alone(cluster):
    head = cluster.nodes["head"]
    head.ask("%s/qmgr -c 'create queue theirs queue_type=execution'" % BIN)
    assert cluster.playbook("site", "--limit", "head").changed("head") == 0
    assert cluster.playbook("site", "--limit", "head", torque_server_purge=["queues"]).changed("head") == 1
    assert "theirs" not in head.ask("%s/qmgr -c 'print server'" % BIN)


# -- bad input ------------------------------------------------------------------------

@pytest.mark.parametrize("variables, sentence", [
    ({"torque_version": "7.0"},
     "torque_build_version 7.0 is none that this role can build (2.x, 4.x, 6.0, 6.1); correct torque_version; nothing was done."),
    ({"torque_build_options": ["--enable-blcr"]},
     "--enable-blcr would tie pbs_mom to libcr; the patch engine-neutral gives the server what it needs: leave the option out; "
     "nothing was done."),
    ({"torque_build_prefix": "/opt/torque/"},
     "torque_build_prefix (/opt/torque/) must be an absolute path of plain characters at least two levels deep, without a slash at its "
     "end; nothing was done."),
    ({"torque_source": "/nowhere/torque.tar.gz", "torque_build_options": ["--enable-x"]},
     "torque_source /nowhere/torque.tar.gz is not on the controller; put the tarball there or name a URL; nothing was done."),
])
def test_bad_input_is_refused(cluster, variables, sentence):
    done = cluster.playbook("site", "--limit", "head", **variables)
    assert done.code != 0
    assert sentence in re.sub(r"\s+", " ", done.out), done.out
    assert done.changed("head") == 0
