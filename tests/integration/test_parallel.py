"""MPI on one node: what the run hook sets is enough for it to move, at levels L2 and L3. Nothing of it is set by the job itself."""
import contextlib
import time

import pytest
from cluster import STORE, TOP, install_packages
from jobs import Jobs
from module_trip import Trip

SCRIPTS = TOP / "tests/apps/scripts"
UNDER_CKPT_RUN = (SCRIPTS / "on-node.sh", TOP / "tests/integration/helpers/mpich-restart.sh")
STEPS = 700
RANKS = "until [ -e ranks.sh ]; do sleep 0.1; done; sh ./ranks.sh > ranks.out"
WAY = ("node2", "node1", "node2", "node1", "node2")
SET = ("run: set so that this job can be checkpointed: UV_USE_IO_URING=0 UCX_TLS=posix,self HYDRA_IFACE=lo PMIX_MCA_ptl_base_if_include=lo "
       "OMPI_MCA_pml=ob1 OMPI_MCA_btl=^tcp,openib,ofi,uct,usnic (a job script may set others)")


def write_program(node, directory, start=(SCRIPTS / "mpich.sh",)):
    """Have alice's directory contain the program of four MPICH ranks, which exchange and sum up, and print what they have."""
    text = "STEPS=%d\n" % STEPS + "".join(path.read_text() for path in (SCRIPTS / "mpi-program.sh",) + start)
    node.ask("install -d -o alice {0} && cat > {0}/ranks.sh <<'END'\n{1}\nEND".format(directory, text))


def list_packages(node):
    return set(node.ask("dpkg-query -W -f '${binary:Package}\\n'").splitlines())


@contextlib.contextmanager
def installed(cluster, packages):
    """Have packages (list of str) on both nodes; remove what was installed for them: other tests need nodes without a compiler."""
    nodes = [cluster.nodes[name] for name in ("node1", "node2")]
    before = [list_packages(node) for node in nodes]
    install_packages(cluster, packages)
    try:
        yield nodes[0]
    finally:
        for node, names in zip(nodes, before):
            new = sorted(list_packages(node) - names)
            if new:
                node.ask("dpkg --purge " + " ".join(new))


def run_undisturbed(node, start, variables):
    """Return what the program prints when nobody disturbs it, and digests of its files (str).

    :param start: the script that starts it (pathlib.Path)
    :param variables: what the run hook would set, as env takes it
    """
    directory = STORE + "/alice/undisturbed"
    write_program(node, directory, (start,))
    node.ask("cd %s && runuser -u alice -- env %s sh ./ranks.sh > %s/ranks.out" % (directory, variables, directory))
    text = node.ask("cat %s/ranks.out; cd %s && sha256sum result.*" % (directory, directory))
    node.ask("rm -r " + directory)
    assert text.count("\n") == STEPS + 3
    return text


@pytest.fixture(scope="module")
def mpich(cluster):
    """Have MPICH on both nodes; return what the program prints when nobody disturbs it (str)."""
    with installed(cluster, ["mpich", "libmpich-dev", "gcc", "libc6-dev"]) as node:
        yield run_undisturbed(node, SCRIPTS / "mpich.sh", "UCX_TLS=posix,self HYDRA_IFACE=lo")


@pytest.fixture(scope="module")
def open_mpi(cluster):
    """The same of Open MPI."""
    with installed(cluster, ["openmpi-bin", "libopenmpi-dev", "gcc", "libc6-dev"]) as node:
        yield run_undisturbed(node, SCRIPTS / "openmpi.sh", "OMPI_MCA_pml=ob1")


def await_steps(node, directory):
    """Wait until the program has made three steps more."""
    count = "cat %s/ranks.out 2> /dev/null | wc -l" % directory
    wanted, deadline = int(node.ask(count)) + 3, time.monotonic() + 60
    while True:
        steps = int(node.ask(count))
        assert steps < STEPS, "the program ended before it had moved five times"
        if steps >= wanted:
            return
        assert time.monotonic() < deadline, "the program stopped at step %d" % steps
        time.sleep(0.1)


def moves_by_the_hooks(cluster, job, start, undisturbed):
    """The program, started by a script (pathlib.Path), moves five times and leaves what it leaves undisturbed."""
    running = job(cluster.nodes["node1"], "(%s) &\npython3 job.py; code=$?; wait; exit $code" % RANKS)
    write_program(running.node, running.work, (start,))
    for node in WAY:
        await_steps(running.node, running.work)
        running.hold()
        running.move(cluster.nodes[node])
    running.node.ask("for _ in $(seq 600); do [ $(ls %s | grep -c result) = 4 ] && ! pgrep -u alice program && exit; sleep 0.2; done; "
                     "exit 1" % running.work)
    assert running.end() == 5
    assert running.node.ask("cd %s && cat ranks.out && sha256sum result.*" % running.work) == undisturbed
    assert running.complaints() == ""


def test_mpich_moves_five_times_by_the_hooks(cluster, mpich, job):
    moves_by_the_hooks(cluster, job, SCRIPTS / "mpich.sh", mpich)


def test_mpich_moves_five_times_in_torque(cluster, torque, mpich):
    with Jobs(cluster) as qsub:
        job = qsub("cd $PBS_O_WORKDIR; %s" % RANKS, "-c", "enabled", "-l", "nodes=node1:ppn=2")
        write_program(job.head, job.work)
        for node in WAY:
            await_steps(job.head, job.work)
            job.hold()
            job.release(node)
        facts = job.wait("C", 180)
        assert facts["exit_status"] == "0", facts
        assert job.head.ask("cd %s && cat ranks.out && sha256sum result.*" % job.work) == mpich
        assert (job.text("out"), job.text("err")) == ("", SET)


def ranks_by_node(job):
    """How many ranks run on node1 and node2."""
    return [int(job.nodes[node].run("pgrep -u alice -c -x program").out) for node in ("node1", "node2")]


def test_mpich_on_two_nodes_moves_by_its_restart_files(cluster, torque, mpich):
    """By ckpt-run, three times, with the nodes in another order each time."""
    with Jobs(cluster) as qsub:
        job = qsub("cd $PBS_O_WORKDIR; %s" % RANKS, "-c", "enabled", "-l", "nodes=node1:ppn=2+node2:ppn=2")
        write_program(job.head, job.work, UNDER_CKPT_RUN)
        for nodes in (("node2", "node1"), ("node1", "node2"), ("node2", "node1")):
            await_steps(job.head, job.work)
            assert ranks_by_node(job) == [2, 2]
            job.hold()
            assert ranks_by_node(job) == [0, 0]
            job.release("+".join(node + ":ppn=2" for node in nodes))
        assert job.wait("C", 180)["exit_status"] == "0"
        assert job.head.ask("cd %s && cat ranks.out && sha256sum result.*" % job.work) == mpich
        assert (job.text("out"), job.text("err")) == ("", "")


def passes(cluster, case):
    """The case of validate.yml passes, from the first node to the second one and back."""
    answer = Trip(cluster, case=case, path=["node1", "node2", "node1"]).answer()
    assert [(phase["step"], phase["node"]) for phase in answer["phases"]] == [
        ("probe", "node1"), ("probe", "node2"), ("submit", "node1"), ("continue", "node1"), ("hold", "node1"), ("release", "node2"),
        ("hold", "node2"), ("release", "node1"), ("finish", "node1")]
    assert answer["counters"] == sorted(set(answer["counters"])) and len(answer["counters"]) == 4


def test_validation_case_of_mpich(cluster, torque, mpich):
    passes(cluster, "mpi_mpich")


def test_validation_case_without_a_compiler(cluster, torque, mpich, node1):
    """The MPI is there, but the compiler that it calls is not."""
    node1.ask("mv /usr/bin/gcc /usr/bin/gcc.away")
    try:
        result = Trip(cluster, case="mpi_mpich").read_result()
    finally:
        node1.ask("mv /usr/bin/gcc.away /usr/bin/gcc")
    assert result["passed"] is None
    assert result["cause"].startswith("not proven: mpicc.mpich on node1 cannot compile a program: "), result["cause"]


def test_open_mpi_moves_five_times_by_the_hooks(cluster, open_mpi, job):
    moves_by_the_hooks(cluster, job, SCRIPTS / "openmpi.sh", open_mpi)


def test_validation_case_of_open_mpi(cluster, torque, open_mpi):
    passes(cluster, "mpi_openmpi")
