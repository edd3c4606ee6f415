import os
import shutil
import subprocess
import sys

import pytest

from engine_scripts import STOPPING
from torque_ckpt import errors
from torque_ckpt.telemetry import metrics
from torque_ckpt.torque import contract

pytestmark = pytest.mark.root

CHECKPOINT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from torque_ckpt.hooks import checkpoint, unheard_hold; " \
    "from torque_ckpt.torque import commands; commands.PATIENCE = 1; unheard_hold.PATIENCE = 0.2; unheard_hold.PAUSE = 0.05; " \
    "sys.exit(checkpoint.main(sys.argv, sys.argv.pop(1)))"
SENTENCE = "pbs_server does not answer (%s), and this pbs_mom would report it only once that the job is held; the image is kept; the " \
    "job keeps running; hold it again when pbs_server answers\n"
AWAY = "qstat: cannot connect to server head\n(errno=111) Connection refused"
NO_TRQAUTHD = "socket_connect_unix failed: 15137\nqstat: cannot connect to server (null) (errno=15137) could not connect to trqauthd\n" \
    "qstat: Error (-15137 - Unknown error -15137) "
REFUSED = "qstat: Access from host not allowed, or unknown host MSG=request not authorized from host node1"

IMAGE = "ckpt.12.head.2/manifest.json"

MOMS = {
    "patched": '"$@"; exit $?',
    "stock, by popen": '/bin/sh -c \'"$@"; exit $?\' sh "$@"; exit $?',
}
"""How a pbs_mom, which is a shell here, calls the checkpoint script."""


def fail(torque, fault):
    """Have qstat fail so when there is no server."""
    with open(torque + "/fault", "w") as stream:
        stream.write(fault + "\n")


def asked(torque):
    with open(torque + "/asked") as stream:
        return stream.read().splitlines()


def say(fault):
    """Return the sentence of a hook to which qstat says this."""
    return SENTENCE % " ".join(fault.split())


@pytest.fixture
def torque(open_directory):
    """A TORQUE (str, its prefix) whose pbs_mom is a shell, and whose server answers when there is a file "server".

    If not, the file "fault" is what qstat prints.
    """
    prefix = os.path.join(os.path.realpath(open_directory), "torque")
    for name in ("sbin", "bin"):
        os.makedirs(os.path.join(prefix, name))
    shutil.copy(os.path.realpath("/bin/sh"), prefix + "/sbin/pbs_mom")
    for name in ("qhold", "qstat"):
        with open(os.path.join(prefix, "bin", name), "w") as stream:
            stream.write("#!/bin/sh\necho \"$*\" >> {0}/asked\n[ -e {0}/server ] && exit 0\ncat {0}/fault >&2; exit 111\n".format(prefix))
        os.chmod(os.path.join(prefix, "bin", name), 0o755)
    open(prefix + "/server", "w").close()
    fail(prefix, AWAY)
    os.chmod(prefix, 0o777)  # the engine, which is the user's, takes the server away
    return prefix


@pytest.fixture
def hold(torque, site, installed, start_job, program):
    """Return a function by which a pbs_mom starts to hold a job: (the process, the job)."""
    job = start_job(user=site.user)
    site.configure(engine_timeout=10)

    def call(mom, away, **variables):
        program(STOPPING.replace("dump)\n", "dump)\n    rm %s/server\n" % torque) if away else STOPPING)
        environment = dict({"PATH": "/bin:/usr/bin"}, **variables)
        if "LD_LIBRARY_PATH" in os.environ:
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        done = subprocess.Popen([torque + "/sbin/pbs_mom", "-c", MOMS[mom], "mom", sys.executable, "-IS", "-c", CHECKPOINT, installed,
                                 site.config] + site.arguments(session=str(job.leader)) + ["15", "-"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, env=environment)
        return done, job
    return call


@pytest.mark.parametrize("mom", sorted(MOMS))
def test_a_hold_of_which_the_server_cannot_hear_leaves_the_job_running(hold, site, torque, state_of, wait_until, mom):
    done, job = hold(mom, away=True)
    wait_until(lambda: IMAGE in site.content() and state_of(job.pids[0]) == "S")  # before the hook has ended
    assert done.poll() is None
    open(torque + "/server", "w").close()
    assert (done.communicate()[1], done.returncode) == (say(AWAY), errors.NO_SERVER)
    counters = metrics.read_counters({"state_directory": site.state_directory})
    assert counters.series["ckpt_torque_failures_total", ("checkpoint", "no_server")] == 1
    assert IMAGE in site.content()
    assert set(asked(torque)) == {"-B"}


def test_a_server_that_answers(hold, site, torque):
    done, _job = hold("stock, by popen", away=False)
    assert (done.communicate()[1], done.returncode) == ("", 0)
    assert asked(torque) == ["-B", "-B"]
    assert os.stat(site.state_directory + "/server_answered").st_mode & 0o777 == 0o600


@pytest.fixture
def answered(site):
    """TORQUE's commands have answered on this node before."""
    os.makedirs(site.state_directory, exist_ok=True)
    open(site.state_directory + "/server_answered", "w").close()


def test_a_server_that_answers_on_a_node_where_it_has_before(hold, torque, answered):
    done, _job = hold("stock, by popen", away=False)
    assert (done.communicate()[1], done.returncode) == ("", 0)
    assert asked(torque) == ["-B"]


def test_a_note_that_cannot_be_written(hold, site):
    os.makedirs(site.state_directory + "/of_others")
    os.chmod(site.state_directory + "/of_others", 0o777)
    site.configure(private_directory=site.state_directory, state_directory=site.state_directory + "/of_others")
    done, _job = hold("stock, by popen", away=False)
    assert (done.communicate()[1], done.returncode) == ("", 0)
    assert os.listdir(site.state_directory + "/of_others") == []


@pytest.mark.parametrize("fault", [AWAY, AWAY.replace("111", "110"), "qstat: cannot connect to server head (errno=113) No route to host"])
def test_a_server_that_is_away_when_the_first_hold_of_a_node_begins(hold, site, torque, state_of, fault):
    os.unlink(torque + "/server")
    fail(torque, fault)
    site.configure(engine_timeout=1)
    done, job = hold("stock, by popen", away=False)
    assert (done.communicate()[1], done.returncode) == (say(fault), errors.NO_SERVER)
    assert IMAGE in site.content() and state_of(job.pids[0]) == "S"
    assert not os.path.exists(site.state_directory + "/server_answered")


def test_a_server_that_does_not_end_the_answer(hold, site, torque, state_of):
    with open(torque + "/bin/qstat", "w") as stream:
        stream.write("#!/bin/sh\nexec sleep 600\n")
    site.configure(engine_timeout=1)
    done, job = hold("stock, by popen", away=False)
    fault = "%s/bin/qstat did not answer within 1 seconds" % torque
    assert (done.communicate()[1], done.returncode) == (say(fault), errors.NO_SERVER)
    assert state_of(job.pids[0]) == "S"


@pytest.mark.parametrize("fault", [AWAY, NO_TRQAUTHD, REFUSED])
def test_commands_that_have_worked_on_this_node(hold, site, torque, answered, state_of, fault):
    """Also without trqauthd: whether the server is there nobody knows then, and a job that ends unheard is lost."""
    os.unlink(torque + "/server")
    fail(torque, fault)
    site.configure(engine_timeout=1)
    done, job = hold("stock, by popen", away=False)
    assert (done.communicate()[1], done.returncode) == (say(fault), errors.NO_SERVER)
    assert state_of(job.pids[0]) == "S"


@pytest.mark.parametrize("fault", [NO_TRQAUTHD, REFUSED])
def test_commands_that_have_never_worked_on_this_node(hold, site, torque, fault):
    os.unlink(torque + "/server")
    fail(torque, fault)
    done, _job = hold("stock, by popen", away=False)
    assert (done.communicate()[1], done.returncode) == ("", 0)
    assert asked(torque) == ["-B"]
    assert not os.path.exists(site.state_directory + "/server_answered")


def test_commands_that_cannot_be_started(hold, torque):
    os.unlink(torque + "/bin/qstat")
    done, _job = hold("stock, by popen", away=False)
    assert (done.communicate()[1], done.returncode) == ("", 0)


def test_a_pbs_mom_that_repeats_is_believed(hold, torque):
    done, _job = hold("patched", away=True, **{contract.REPEATED: "1"})
    assert (done.communicate()[1], done.returncode) == ("", 0)
    assert not os.path.exists(torque + "/asked")
