import os
import resource
import signal
import subprocess
import sys

import pytest

from torque_ckpt import errors
from torque_ckpt.hooks import run
from torque_ckpt.job import supervisor
from torque_ckpt.job.records import Records
from torque_ckpt.system import processes

# Refusals


def test_without_a_shell(hook):
    assert hook("run", []) == (errors.USAGE, "", "run: expected a shell and its arguments, got none; the job was not started\n")


def test_with_a_shell_that_is_not_absolute(hook):
    assert hook("run", ["sh", "-c", "echo started"]) == (
        errors.USAGE, "", "run: shell 'sh' is not an absolute path; nothing was done\n")


def test_without_a_configuration(hook):
    assert hook("run", ["/bin/sh", "-c", "echo started"]) == (
        errors.CONFIG, "", "configuration /nonexistent/hooks.json cannot be read (No such file or directory); "
        "run the role checkpoint_hooks on this node\n")


@pytest.mark.root
def test_not_as_a_session_leader(hook, site):
    assert hook("run", ["/bin/sh", "-c", "echo started"], site.config, leader=False) == (
        errors.USAGE, "", "run: must be started by pbs_mom as the leader of a session; the job was not started\n")


# Starting the shell, without the configuration

@pytest.fixture
def started(in_child):
    """Return a function that starts a command as the run hook does and returns how the leader Ended."""
    def start(command, before=lambda: None):
        def work():
            before()
            supervisor.block_signals()
            return supervisor.supervise_job(run._start_job(command), Records("/nonexistent", "12.head"))
        return in_child(work)
    return start


@pytest.mark.parametrize("code", [0, 3, 126, 255])
def test_shell_that_exits(started, code):
    assert started(["/bin/sh", "-c", "exit %d" % code]).result == code << 8


def test_shell_that_dies(started):
    assert started(["/bin/sh", "-c", "kill -TERM $$"]).result == signal.SIGTERM


def test_shell_that_is_not_there(started, tmp_path):
    ended = started([str(tmp_path / "sh")])
    assert (ended.result, ended.stderr) == (127 << 8, "run: cannot start %s: No such file or directory\n" % (tmp_path / "sh"))


def test_shell_that_is_no_program(started, tmp_path):
    (tmp_path / "sh").write_text("#!/bin/sh\n")
    ended = started([str(tmp_path / "sh")])
    assert (ended.result, ended.stderr) == (126 << 8, "run: cannot start %s: Permission denied\n" % (tmp_path / "sh"))


def test_arguments_reach_the_shell_as_they_are(started, tmp_path):
    note = str(tmp_path / "note")
    started(["/bin/sh", "-c", 'printf "%s|" "$@" > "$0"', note, "a b", "", "$x;", "*"])
    with open(note) as stream:
        assert stream.read() == "a b||$x;|*|"


def test_shell_has_the_signals_that_it_expects_though_the_leader_holds_them_back(started, tmp_path):
    note = str(tmp_path / "note")
    started(["/bin/sh", "-c", 'cat /proc/self/status > "$0"', note])
    with open(note) as stream:
        fields = dict(line.split(":\t", 1) for line in stream)
    assert int(fields["SigBlk"], 16) == 0
    assert int(fields["SigIgn"], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0


def test_kill_0_in_a_job_script_does_not_reach_the_leader(started):
    ended = started(["/bin/sh", "-c", "trap 'exit 5' TERM; kill 0; exit 6"])
    assert (ended.status, ended.result) == (0, 5 << 8)


def test_daemons_stay_beneath_the_shell(in_child, wait_until):
    """The root process keeps its descendants, whoever of them made them and ended."""
    def work():
        supervisor.block_signals()
        root = run._start_job(["/bin/sh", "-c", "exec 3<&0; (cat <&3 & :); read line"])
        return len(wait_until(lambda: [process for process in map(processes.read_process, processes.list_children(root))
                                       if process and process.name == "cat"]))  # one that has just ended is none
    reader, writer = os.pipe()
    own_stdin = os.dup(0)
    os.dup2(reader, 0)
    try:
        assert in_child(work).result == 1
    finally:
        os.dup2(own_stdin, 0)
        for descriptor in (reader, writer, own_stdin):
            os.close(descriptor)


# The hook as a program

@pytest.mark.root
@pytest.mark.parametrize("text, code", [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", -9), ("kill -TERM $$", -15)])
def test_hook_ends_as_the_job_ends(hook, site, text, code):
    assert hook("run", ["/bin/sh", "-c", "echo out; echo err >&2; %s" % text], site.config) == (code, "out\n", "err\n")


@pytest.mark.root
def test_hook_whose_shell_is_not_there(hook, site):
    assert hook("run", ["/nonexistent/sh"], site.config) == (127, "", "run: cannot start /nonexistent/sh: No such file or directory\n")


@pytest.mark.root
def test_shell_is_in_the_leaders_session_and_in_a_group_of_its_own(hook, site):
    answer = hook("run", ["/bin/sh", "-c", "read -r pid name state ppid group session rest < /proc/$$/stat; echo $$ $ppid $group $session"],
                  site.config)
    pid, ppid, group, session = answer.stdout.split()
    assert (session, group) == (ppid, pid)
    assert pid != ppid


@pytest.mark.root
def test_shell_gets_none_of_the_descriptors_that_pbs_mom_leaks(hook, site):
    leaked = os.open("/", os.O_RDONLY)
    try:
        answer = hook("run", ["/bin/sh", "-c", "exec ls /proc/self/fd"], site.config, pass_fds=[leaked])
    finally:
        os.close(leaked)
    assert answer == (0, "0\n1\n2\n3\n", "")  # 3 is the directory that ls reads


VARIABLE = ["/bin/sh", "-c", "echo ${UV_USE_IO_URING-not set}"]


@pytest.mark.root
@pytest.mark.parametrize("set_by_job, seen", [({}, "0"), ({"UV_USE_IO_URING": "1"}, "1"), ({"UV_USE_IO_URING": ""}, "")])
def test_variable_of_the_engine_is_set_unless_the_job_has_set_it(hook, site, set_by_job, seen):
    assert hook("run", VARIABLE, site.config, variables=set_by_job) == (0, seen + "\n", "")


@pytest.mark.root
@pytest.mark.parametrize("engine", ["blcr", "unknown"])
def test_variable_of_another_engine_is_not_set(hook, site, engine):
    site.configure(engine=engine, engine_options={})
    assert hook("run", VARIABLE, site.config) == (0, "not set\n", "")


MPI = ["/bin/sh", "-c", "echo ${UCX_TLS-not set} ${HYDRA_IFACE-not set} ${PMIX_MCA_ptl_base_if_include-not set} ${OMPI_MCA_pml-not set} "
                        "${OMPI_MCA_btl-not set} ${SITE-not set}"]
PROFILE = "posix,self lo lo ob1 ^tcp,openib,ofi,uct,usnic "


@pytest.fixture
def nodes(tmp_path):
    """Write pbs_mom's file of a job's nodes, one line for each of its processors; return the variable that names it."""
    def write(*names):
        path = tmp_path / "nodes"
        path.write_text("".join(name + "\n" for name in names))
        path.chmod(0o644)
        return {"PBS_NODEFILE": str(path)}
    return write


@pytest.mark.root
@pytest.mark.parametrize("slots", [1, 3])
def test_mpi_stays_on_the_node_of_a_job_on_one_node(hook, site, nodes, slots):
    site.configure(environment_reported=False)
    assert hook("run", MPI, site.config, variables=nodes(*["node1"] * slots)) == (0, PROFILE + "not set\n", "")


@pytest.mark.root
def test_mpi_of_a_job_on_several_nodes_is_left_alone(hook, site, nodes):
    site.configure(environment={"SITE": "x"})
    assert hook("run", MPI, site.config, variables=nodes("node1", "node1", "node2")) == (0, "not set " * 5 + "not set\n", "")


@pytest.mark.root
def test_variables_of_the_site(hook, site):
    """They are set beside the engine's and in their place; null leaves one of the engine's out; the job's own are not touched."""
    site.configure(environment={"SITE": "a b", "HYDRA_IFACE": "eth7", "UCX_TLS": None, "OMPI_MCA_pml": "cm"})
    assert hook("run", MPI, site.config, variables={"OMPI_MCA_pml": "ucx"}) == (
        0, "not set eth7 lo ucx ^tcp,openib,ofi,uct,usnic a b\n", "")


@pytest.mark.root
@pytest.mark.parametrize("slots, own, printed", [
    (2, {}, "run: set so that this job can be checkpointed: SITE=x OMPI_MCA_pml=cm (a job script may set others)\n"),
    (2, {"OMPI_MCA_pml": "ucx"}, "run: set so that this job can be checkpointed: SITE=x (a job script may set others)\n"),
    (2, {"OMPI_MCA_pml": "ucx", "SITE": ""}, ""),
    (1, {}, ""),
])
def test_parallel_job_sees_what_was_set_on_its_standard_error(hook, site, nodes, slots, own, printed):
    site.configure(engine="blcr", engine_options={}, environment={"SITE": "x", "OMPI_MCA_pml": "cm"})
    answer = hook("run", ["/bin/sh", "-c", "echo up >&2"], site.config, variables=dict(nodes(*["node1"] * slots), **own))
    assert answer == (0, "", printed + "up\n")


@pytest.mark.root
def test_full_disk_under_standard_error_does_not_keep_the_job_from_its_start(hook, site, nodes):
    full = "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"
    assert hook("run", ["/bin/sh", "-c", "exit 7"], site.config, before=full, variables=nodes("node1", "node1")) == (7, "", "")


@pytest.mark.root
def test_signal_to_the_hook_reaches_the_shell(hook, site):
    """From a process that is neither pbs_mom nor the hook's parent."""
    text = "trap 'exit 42' USR1; sh -c 'kill -USR1 '$PPID' & wait'; while :; do sleep 0.01; done"
    assert hook("run", ["/bin/sh", "-c", text], site.config) == (42, "", "")


@pytest.mark.root
def test_signal_from_pbs_mom_does_not_reach_the_shell_a_second_time(site, installed):
    """The session's every process is signalled by pbs_mom itself, so that the hook must not hand it on."""
    code = "import sys; sys.path.insert(0, %r); from torque_ckpt.hooks.run import main; sys.exit(main(sys.argv, %r))" % (
        installed, site.config)
    text = "trap 'echo USR1' USR1; echo up; read line; echo $line"
    process = subprocess.Popen([sys.executable, "-IS", "-c", code, "/bin/sh", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               start_new_session=True)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGUSR1)
    assert process.communicate(b"end\n", timeout=30)[0] == b"end\n"
    assert process.returncode == 0


@pytest.mark.root
def test_descriptor_above_a_lowered_limit(hook, site):
    """pbs_mom may leak a descriptor and lower the limit then."""
    some = os.open("/", os.O_RDONLY)
    os.dup2(some, 300)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        answer = hook("run", ["/bin/sh", "-c", "exec ls /proc/self/fd"], site.config, pass_fds=[300],
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard)))
    finally:
        os.close(300)
        os.close(some)
    assert "300" not in answer.stdout.split()
