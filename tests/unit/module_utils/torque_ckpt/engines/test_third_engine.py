"""A third engine takes its file and its entry in the registry, and no other edit, to move a job by the real hooks (level L2)."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from paths import MODULE_UTILS, TOP, ACTION_SCRIPT
from torque_ckpt import errors
from torque_ckpt.selftest import roundtrip
from torque_ckpt.system import processes
from torque_ckpt.telemetry import metrics
from waiting import wait_until

ENTRY = '''
def _load_toy():
    from .toy import Toy
    return Toy


ENGINES += (Entry("toy", "TOY", _load_toy, (2, 6), (9, 9), (
    Setting("path", "/usr/bin/toy", "The engine.", check=check_path),
    Setting("greeting", "", "What is said at a restart."),
), path_variable="toy_path"),)
'''

COUNTER = """\
#!/usr/bin/python3 -IS
import os, sys, time
number = int(sys.argv[-1])
while not os.path.exists(sys.argv[-2]):
    number += 1
    os.write(1, b"%d\\n" % number)
    time.sleep(0.005)
os.write(1, b"end\\n")
os._exit(5)
"""


@pytest.fixture(scope="module")
def installed():
    """The hooks' code with the engine in it, in the place of the one that all other tests share."""
    path = tempfile.mkdtemp(prefix="ckpt-torque-code-")
    os.chmod(path, 0o755)
    shutil.copytree(str(MODULE_UTILS / "torque_ckpt"), os.path.join(path, "torque_ckpt"))
    shutil.copy(str(ACTION_SCRIPT), path)
    shutil.copy(str(TOP / "tests/unit/helpers/toy_engine.py"), os.path.join(path, "torque_ckpt/engines/toy.py"))
    with open(os.path.join(path, "torque_ckpt/engines/registry.py"), "a") as stream:
        stream.write(ENTRY)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def toy_site(site, open_directory):
    """The Site whose engine is the third one."""
    site.engine = os.path.join(open_directory, "toy")
    open(site.engine, "w").close()
    site.set = lambda **options: site.configure(engine="toy", engine_options=dict({"path": site.engine}, **options))
    site.set()
    return site


class Counter:
    """A job 12.head that counts: output (str, a path) and leader (pid)."""

    def __init__(self, code, site, directory):
        self.output, self.stop = os.path.join(directory, "out"), os.path.join(directory, "stop")
        program = os.path.join(directory, "count")
        with open(program, "w") as stream:
            stream.write(COUNTER)
        os.chmod(program, 0o755)
        start = "import sys; sys.path.insert(0, %r); from torque_ckpt.hooks.run import main; sys.exit(main(sys.argv, %r))"
        null, output = os.open(os.devnull, os.O_RDONLY), os.open(self.output, os.O_CREAT | os.O_WRONLY, 0o600)
        os.chown(self.output, site.user.uid, site.user.gid)
        self.leader = roundtrip.start_process("/usr/bin/python3", ["-IS", "-c", start % (code, site.config), program, self.stop, "0"],
                                              {"PATH": "/bin:/usr/bin", "PBS_JOBID": "12.head"}, "/", [null, output, output], site.user)
        os.close(null)
        os.close(output)
        self.status = None

    def lines(self):
        with open(self.output) as stream:
            return stream.read().split("\n")[:-1]

    def end(self):
        open(self.stop, "w").close()

    def wait(self):
        """Wait for the leader's end, within LIMIT."""
        wait_until(lambda: self.status is not None or self._reap())

    def _reap(self):
        pid, self.status = os.waitpid(self.leader, os.WNOHANG)
        self.status = self.status if pid else None
        return pid

    def clean(self):
        self.end()
        if self.status is None:
            for pid in reversed(processes.list_tree(self.leader)):
                os.kill(pid, signal.SIGKILL)
        self.wait()


@pytest.fixture
def counter(installed, toy_site, open_directory):
    """A Counter that counts."""
    directory = os.path.join(open_directory, "job")
    os.mkdir(directory)
    os.chmod(directory, 0o755)
    running = Counter(installed, toy_site, directory)
    wait_until(lambda: len(running.lines()) > 2)
    yield running
    running.clean()


def checkpoint(hook, site, counter, signal_number):
    return hook("checkpoint", site.arguments(session=str(counter.leader)) + [signal_number, "-"], site.config)


@pytest.mark.root
def test_held_job_is_restarted(hook, toy_site, counter):
    assert checkpoint(hook, toy_site, counter, "15") == (0, "", "")
    counter.wait()
    held = counter.lines()
    assert held == [str(number + 1) for number in range(len(held))]
    manifest = json.loads(toy_site.content()["ckpt.12.head.2/manifest.json"].decode())
    assert manifest["engine"] == {"name": "toy", "version": "1"}
    toy_site.set(greeting="hello\n")
    counter.end()
    done = hook("restart", toy_site.arguments(), toy_site.config)
    assert (done.code, done.stderr) == (5, "")  # the job's own status
    assert counter.lines() == held + ["hello", "end"]


@pytest.mark.root
def test_restarted_job_counts_on(hook, toy_site, counter):
    """Without a gap or a repeat, while the hook is its leader."""
    assert checkpoint(hook, toy_site, counter, "15") == (0, "", "")
    counter.wait()
    held = len(counter.lines())

    def stop_later():
        wait_until(lambda: len(counter.lines()) > held + 5)
        counter.end()
    pid = os.fork()
    if pid == 0:
        try:
            stop_later()
        finally:
            os._exit(0)
    done = hook("restart", toy_site.arguments(), toy_site.config)
    os.waitpid(pid, 0)
    assert (done.code, done.stderr) == (5, "")
    lines = counter.lines()
    assert lines.pop() == "end" and len(lines) > held + 5
    assert lines == [str(number + 1) for number in range(len(lines))]
    assert 'ckpt_torque_restarts_total{engine="toy",outcome="restarted"} 1' in metrics.read_counters(
        {"state_directory": toy_site.state_directory}).format_text()


@pytest.mark.root
def test_checkpoint_leaves_the_job_going(hook, toy_site, counter):
    assert checkpoint(hook, toy_site, counter, "0") == (0, "", "")
    now = len(counter.lines())
    wait_until(lambda: len(counter.lines()) > now + 2)
    assert "ckpt.12.head.2/counter.json" in toy_site.content()


@pytest.mark.root
def test_nodes_are_compared_by_the_engine(hook, toy_site, counter, installed):
    assert checkpoint(hook, toy_site, counter, "15") == (0, "", "")
    code = ("import sys, json; sys.path.insert(0, %r); from torque_ckpt.image import compatibility\n"
            "manifest = json.loads(sys.stdin.read())\n"
            "for node in (manifest['node'], 'node7'):\n"
            "    print(compatibility.find_incompatibility(manifest, dict(manifest, node=node)))" % installed)
    differences = subprocess.run([sys.executable, "-IS", "-c", code], input=toy_site.content()["ckpt.12.head.2/manifest.json"],
                                 stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    assert differences == ["", "was written on %s, and a toy stays at home" % os.uname().nodename]


@pytest.mark.root
def test_health_and_configuration_go_by_the_entry(hook, toy_site):
    assert hook("health", [], toy_site.config) == (0, "", "")
    toy_site.configure(engine="toy", engine_options={"greeting": 7})
    assert hook("health", [], toy_site.config) == (
        errors.CONFIG, "ERROR ckpt.torque: configuration %s sets engine_options.greeting to something that is not a str; run the role "
        "checkpoint_hooks on this node" % toy_site.config, "")
    os.unlink(toy_site.engine)
    toy_site.set()
    assert hook("health", [], toy_site.config).stdout == (
        "ERROR ckpt.torque: the toy engine is not at %s on this node; run the role toy" % toy_site.engine)
