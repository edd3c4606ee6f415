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
    "unheard_hold.PATIENCE = 0.2; unheard_hold.PAUSE = 0.05; sys.exit(checkpoint.main(sys.argv, sys.argv.pop(1)))"
SENTENCE = "pbs_server does not answer (qstat: cannot connect to server head (errno=111) Connection refused), and this pbs_mom " \
    "would report it only once that the job is held; the image is kept; the job keeps running; hold it again when pbs_server answers\n"

IMAGE = "ckpt.12.head.2/manifest.json"

MOMS = {
    "patched": '"$@"; exit $?',
    "stock, by popen": '/bin/sh -c \'"$@"; exit $?\' sh "$@"; exit $?',
}
"""How a pbs_mom, which is a shell here, calls the checkpoint script."""


@pytest.fixture
def torque(open_directory):
    """A TORQUE (str, its prefix) whose pbs_mom is a shell, and whose server answers when there is a file "server"."""
    prefix = os.path.join(os.path.realpath(open_directory), "torque")
    for name in ("sbin", "bin"):
        os.makedirs(os.path.join(prefix, name))
    shutil.copy(os.path.realpath("/bin/sh"), prefix + "/sbin/pbs_mom")
    for name in ("qhold", "qstat"):
        with open(os.path.join(prefix, "bin", name), "w") as stream:
            stream.write("#!/bin/sh\necho \"$*\" >> {0}/asked\n[ -e {0}/server ] && exit 0\n"
                         "printf 'qstat: cannot connect to server head\\n(errno=111) Connection refused\\n' >&2; exit 111\n".format(prefix))
        os.chmod(os.path.join(prefix, "bin", name), 0o755)
    open(prefix + "/server", "w").close()
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
    assert (done.communicate()[1], done.returncode) == (SENTENCE, errors.NO_SERVER)
    counters = metrics.read_counters({"state_directory": site.state_directory})
    assert counters.series["ckpt_torque_failures_total", ("checkpoint", "no_server")] == 1
    assert IMAGE in site.content()
    with open(torque + "/asked") as stream:
        assert set(stream.read().splitlines()) == {"-B"}


def test_a_server_that_answers(hold, torque):
    done, _job = hold("stock, by popen", away=False)
    assert (done.communicate()[1], done.returncode) == ("", 0)
    with open(torque + "/asked") as stream:
        assert stream.read() == "-B\n-B\n"


def test_commands_that_do_not_work_on_this_node(hold, torque):
    os.unlink(torque + "/server")
    done, _job = hold("stock, by popen", away=False)
    assert (done.communicate()[1], done.returncode) == ("", 0)


def test_a_pbs_mom_that_repeats_is_believed(hold, torque):
    done, _job = hold("patched", away=True, **{contract.REPEATED: "1"})
    assert (done.communicate()[1], done.returncode) == ("", 0)
    assert not os.path.exists(torque + "/asked")
