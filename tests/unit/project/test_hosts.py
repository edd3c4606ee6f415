"""The test hosts say in one sentence what is missing on a machine, before they do anything."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "molecule/shared/hosts.py"


@pytest.fixture
def script():
    return load_script()


def load_script():
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("hosts", str(SCRIPT))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("failures, reason, removed", [
    (0, "", True), (2, "cannot remove container a as it could not be stopped: given PIDs did not die within timeout", True),
    (9, "cannot remove container a as it could not be stopped: given PIDs did not die within timeout", False),
    (1, "permission denied", False)])
def test_container_whose_processes_end_late(script, monkeypatch, failures, reason, removed):
    """It is removed when they have ended; what fails for another reason fails at once."""
    calls = []

    def podman(*arguments):
        calls.append(arguments)
        if len(calls) <= failures:
            raise script.Failure(reason)
    monkeypatch.setattr(script, "podman", podman)
    monkeypatch.setattr(script, "REMOVAL_PAUSES", (0, 0, 0))
    if removed:
        script.remove_container("a")
        assert len(calls) == failures + 1
    else:
        with pytest.raises(script.Failure, match=reason):
            script.remove_container("a")
        assert len(calls) == (4 if "stopped" in reason else 1)


@pytest.mark.parametrize("count", ["", "2", "16", "40"])
def test_addresses_of_the_hosts(monkeypatch, count):
    """Each has its own, and some more for when podman keeps one back."""
    monkeypatch.setenv("CKPT_TORQUE_NODES", count)
    script = load_script()
    monkeypatch.setattr(script, "podman", lambda *_: '[{"subnets": [{"subnet": "10.89.7.0/24"}]}]')
    places = [script.places_in_network("ring", host) for host in script.HOSTS]
    assert len(places) == 1 + int(count or 2)
    assert len({address for several in places for address in several}) == sum(map(len, places)) <= 254
    assert {len(several) for several in places} == {250 // max(10, len(places))}


@pytest.mark.parametrize("limit, raised", [(128, 1024), (8192, 8192)])
def test_limit_of_inotify_instances(script, monkeypatch, tmp_path, limit, raised):
    """It is raised where the hosts would reach it, and never lowered."""
    monkeypatch.setattr(script, "INOTIFY", tmp_path / "limit")
    script.INOTIFY.write_text("%d\n" % limit)
    script.raise_inotify_limit()
    assert int(script.INOTIFY.read_text()) == raised


def test_limit_that_cannot_be_raised(script, monkeypatch, capsys):
    monkeypatch.setattr(script, "INOTIFY", pathlib.Path("/proc/sys/kernel/ngroups_max"))  # read-only
    monkeypatch.setattr(script, "INOTIFY_INSTANCES", 1 << 30)
    script.raise_inotify_limit()
    assert "hosts: it cannot be raised (Permission denied): no more than 10922 hosts will run" in capsys.readouterr().err


def test_hosts_of_a_scenario(monkeypatch):
    monkeypatch.setenv("CKPT_TORQUE_MEMBERS", "head:torque_server,torque_client node1:torque_mom ")
    assert load_script().HOSTS == {"head": ["torque_server", "torque_client"], "node1": ["torque_mom"]}


def test_only_the_hosts_of_a_group_are_removed(script, monkeypatch):
    names = "ckpt-a-head\nckpt-a-node1\nckpt-a-node16\nckpt-a-b-node1\nckpt-ab-node1\nckpt-a-node1x\n"
    monkeypatch.setattr(script, "podman", lambda *_: names)
    removed = []
    monkeypatch.setattr(script, "remove_container", removed.append)
    monkeypatch.setattr(script, "podman_command", lambda: ["false"])
    monkeypatch.setattr(script, "group_directory", lambda group: pathlib.Path("/nonexistent"))
    script.down("a")
    assert removed == ["ckpt-a-head", "ckpt-a-node1", "ckpt-a-node16"]


@pytest.fixture
def machine():
    """A directory (pathlib.Path) that everybody can read, with the script and a bin directory of its own."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="ckpt-torque-"))
    top.chmod(0o755)
    shutil.copy(SCRIPT, top / "hosts.py")
    (top / "bin").mkdir()
    yield top
    shutil.rmtree(top)


def hosts(machine, *programs, user=None, **environment):
    """Call hosts.py up with only these programs on PATH; return (exit status, what it said)."""
    for program in programs:
        (machine / "bin" / program).symlink_to(shutil.which(program))
    python = os.path.realpath("/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable)
    done = subprocess.run([python, str(machine / "hosts.py"), "up", "unittest"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, env=dict(environment, PATH=str(machine / "bin")), check=False, cwd="/",
                          **({"user": user, "group": user, "extra_groups": []} if user else {}))
    return done.returncode, done.stdout


@pytest.mark.root
def test_no_root(machine):
    assert hosts(machine, user=65534) == (1, "hosts: test hosts need root; run this as root or install sudo\n")


@pytest.mark.root
def test_no_programs(machine):
    assert hosts(machine) == (1, "hosts: mmdebstrap, openssh-client, podman, util-linux missing; "
                                 "run: apt-get install mmdebstrap openssh-client podman util-linux\n")


@pytest.mark.root
def test_no_room(machine):
    (machine / "cache").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "none", str(machine / "cache")], check=True)
    try:
        answer = hosts(machine, "podman", "mmdebstrap", "ssh-keygen", "nsenter", CKPT_TORQUE_CACHE=str(machine / "cache"))
    finally:
        subprocess.run(["umount", str(machine / "cache")], check=True)
    assert answer == (1, "hosts: %s has 0.0 GiB free, the hosts need 3 GiB; free some space or set CKPT_TORQUE_CACHE to another directory\n"
                      % (machine / "cache"))
