"""The init scripts for hosts without systemd, as the role writes them."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
DAEMONS = ("trqauthd", "pbs_server", "pbs_sched", "pbs_mom")

pytestmark = pytest.mark.root


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False,
                          stdin=subprocess.DEVNULL, env=dict(os.environ, ANSIBLE_CONFIG=str(TOP / "ansible.cfg"),
                                                             ANSIBLE_COLLECTIONS_PATH=str(TOP / ".cache/checkout")))
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Where the scripts are (pathlib.Path); TORQUE's prefix and home would be beside them."""
    directory = tmp_path_factory.mktemp("sysv") / "init.d"
    variables = {"torque_build_sysv_directory": str(directory), "torque_build_prefix": str(directory.parent / "torque"),
                 "torque_home": str(directory.parent / "spool"), "torque_mom_limits": {"LimitNOFILE": 4096}}
    status, output, error = run(str(pathlib.Path(sys.executable).parent / "ansible"), "localhost", "-i", "localhost,", "-c", "local",
                                "-m", "include_role", "-a", "name=ckpt.torque.torque_build tasks_from=sysv", "-e", json.dumps(variables))
    assert status == 0, output + error
    return directory


def test_scripts(directory):
    assert sorted(path.name for path in directory.iterdir()) == sorted(DAEMONS)
    assert {path.stat().st_mode & 0o7777 for path in directory.iterdir()} == {0o755}


@pytest.mark.parametrize("name", DAEMONS)
def test_shells_can_read_it(directory, name):
    assert run("sh", "-n", str(directory / name)) == (0, "", "")
    assert run("bash", "-n", str(directory / name)) == (0, "", "")
    if shutil.which("shellcheck"):
        assert run("shellcheck", "-s", "sh", str(directory / name)) == (0, "", "")


@pytest.mark.parametrize("name", DAEMONS)
def test_header(directory, name):
    """What chkconfig and insserv read."""
    lines = (directory / name).read_text().splitlines()
    assert any(line.startswith("# chkconfig: 345 ") for line in lines)
    header = lines[lines.index("### BEGIN INIT INFO") + 1:lines.index("### END INIT INFO")]
    assert header[0] == "# Provides:          " + name
    assert {line.split(":")[0][2:] for line in header} == {"Provides", "Required-Start", "Required-Stop", "Default-Start", "Default-Stop",
                                                           "Short-Description", "Description"}


@pytest.mark.parametrize("name", DAEMONS)
def test_daemon_that_does_not_run(directory, name):
    script, program = str(directory / name), directory.parent / "torque/current/sbin" / name
    assert run(script, "status") == (3, "%s does not run\n" % name, "")
    assert run(script, "stop") == (0, "%s does not run\n" % name, "")
    assert run(script, "try-restart") == (0, "", "")
    assert run(script, "start") == (5, "", "%s is missing; install TORQUE first\n" % program)
    assert run(script, "begin") == (2, "", "usage: %s {start|stop|restart|force-reload|try-restart|status}\n" % script)
    assert not (directory.parent / "spool").exists()


def test_pbs_mom_makes_what_it_insists_on(directory):
    """The list is that of the role torque_mom, with its limits; jobs outlive its end."""
    text = (directory / "pbs_mom").read_text()
    for path, mode in (("/spool", "1777"), ("/mom_priv", "0751"), ("/mom_priv/jobs", "0751")):
        assert "install -d -o root -g root -m %s %s/spool%s\n" % (mode, directory.parent, path) in text
    assert "ulimit -n 4096\n" in text and "ulimit -l unlimited\n" in text
    assert '"$PROGRAM" -p -d %s/spool < /dev/null' % directory.parent in text
    assert "kill -KILL" not in text
