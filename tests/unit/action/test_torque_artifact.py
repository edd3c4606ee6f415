"""The action plugins of artifacts, in a real play: an artifact goes from the controller's cache to a host that has it not."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.build.artifact import identify_system
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.textfile import read_text

SYSTEM = identify_system(read_text("/etc/os-release"), read_text("/etc/redhat-release"))[0]
PLATFORM = "%s-%s" % (SYSTEM, os.uname().machine)
KEY, OTHER = ["%s-%s-0123456789ab" % (version, PLATFORM) for version in ("6.1.3", "6.1.2")]

PLAY = """\
- hosts: localhost
  gather_facts: false
  module_defaults:
    ckpt.torque.torque_artifact: &artifact {{version: 6.1.3, digest: 0123456789ab, prefix: {prefix}, cache: ~/cache}}
    ckpt.torque.torque_artifact_info: *artifact
  tasks:
    - {{name: asked, register: asked, ckpt.torque.torque_artifact_info: {{}}}}
    - {{name: noted, register: noted, ansible.builtin.find: {{paths: [{cache}], patterns: "torque-6.1.[13]-*.sha256"}}}}
    - {{name: planned, register: planned, check_mode: true, ckpt.torque.torque_artifact: {{}}}}
    - {{name: installed, register: installed, ckpt.torque.torque_artifact: {{archive: /nonexistent}}}}
    - {{name: again, register: again, ckpt.torque.torque_artifact: {{}}}}
    - {{name: asked_again, register: asked_again, ckpt.torque.torque_artifact_info: {{}}}}
    - {{name: planned_other, register: planned_other, check_mode: true, ckpt.torque.torque_artifact: {{version: 6.1.2}}}}
    - {{name: asked_other, register: asked_other, ckpt.torque.torque_artifact_info: {{version: 6.1.2}}}}
    - {{name: missing, register: missing, ignore_errors: true, ckpt.torque.torque_artifact: {{version: 6.1.2}}}}
    - {{name: damaged, register: damaged, ignore_errors: true, ckpt.torque.torque_artifact: {{version: 6.1.1}}}}
    - {{name: changed, register: changed, ignore_errors: true, ckpt.torque.torque_artifact: {{version: 6.1.0}}}}
    - {{name: refused, register: refused, ignore_errors: true, ckpt.torque.torque_artifact: {{prefix: opt}}}}
    - ansible.builtin.copy:
        content: "{{{{ dict(names | zip(names | map('extract', vars))) | to_json }}}}"
        dest: {answers}
        mode: "0600"
      vars:
        names: [asked, noted, planned, installed, again, asked_again, planned_other, asked_other, missing, damaged, changed, refused]
"""


def pack(path, key, prefix):
    """Write an artifact with one program that is setuid."""
    with tarfile.open(str(path), "w:gz") as tar:
        for name, mode in (("ckpt-torque.json", 0o644), ("sbin/pbs_iff", 0o4755)):
            member = tarfile.TarInfo(os.path.join(str(prefix)[1:], key, name))
            member.mode, member.size = mode, 3
            tar.addfile(member, io.BytesIO(b"{}\n"))


@pytest.fixture(scope="module", params=[True, False], ids=["pipelining", "no pipelining"])
def played(request, tmp_path_factory, repository):
    """The directory (pathlib.Path) of the play; by the name of its tasks, their answers (dict) and what was executed (list of str)."""
    top = tmp_path_factory.mktemp("play")
    collection = top / "ansible_collections" / "ckpt"
    collection.mkdir(parents=True)
    (collection / "torque").symlink_to(repository)
    cache = top / "home" / "cache"
    cache.mkdir(parents=True)
    pack(cache / ("torque-%s.tar.gz" % KEY), KEY, top / "opt")
    (cache / ("torque-6.1.1-%s-0123456789ab.tar.gz" % PLATFORM)).write_bytes(b"not an artifact\n")
    changed = "6.1.0-%s-0123456789ab" % PLATFORM
    pack(cache / ("torque-%s.tar.gz" % changed), changed, top / "opt")
    (cache / ("torque-%s.tar.gz.sha256" % changed)).write_text("0" * 64 + "  torque-%s.tar.gz\n" % changed)
    (top / "play.yml").write_text(PLAY.format(prefix=top / "opt", cache=cache, answers=top / "answers.json"))
    (top / "ansible.cfg").write_text("")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    environment.update(ANSIBLE_CONFIG=str(top / "ansible.cfg"), ANSIBLE_HOME=str(top / "ansible"), ANSIBLE_LOCALHOST_WARNING="false",
                       ANSIBLE_COLLECTIONS_PATH=str(top), ANSIBLE_NOCOLOR="1", ANSIBLE_PIPELINING=str(request.param),
                       ANSIBLE_REMOTE_TEMP=str(top / "remote"), HOME=str(top / "home"))
    done = subprocess.run([sys.executable, "-m", "ansible", "playbook", "-vvv", "-i", "localhost,", "-c", "local",
                           "-e", "ansible_python_interpreter=" + sys.executable, str(top / "play.yml")],
                          env=environment, cwd=top, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    executed = {}
    for line in done.stdout.splitlines():
        if line.startswith("TASK ["):
            task = executed.setdefault(line[len("TASK ["):].split("]")[0], [])
        elif " EXEC " in line:
            task.append(line)
    return top, json.loads((top / "answers.json").read_text()), executed


def facts(answer):
    """Return what tells how it stands (dict)."""
    return {name: answer.get(name) for name in ("changed", "installed", "available", "current")}


def test_path_is_the_controllers(played):
    top, answers, _executed = played
    assert {name: answers[name]["path"] for name in ("asked", "planned", "installed", "again", "planned_other")} == dict(
        dict.fromkeys(("asked", "planned", "installed", "again"), str(top / "home" / "cache" / ("torque-%s.tar.gz" % KEY))),
        planned_other=str(top / "home" / "cache" / ("torque-%s.tar.gz" % OTHER)))
    assert {answers[name]["key"] for name in ("asked", "planned", "installed", "again")} == {KEY}


@pytest.mark.parametrize("name, wanted", [
    ("asked", (False, False, True, "")),
    ("planned", (True, False, True, "")),
    ("installed", (True, False, True, "")),
    ("again", (False, True, True, KEY)),
    ("asked_again", (False, True, True, KEY)),
    ("planned_other", (True, False, False, KEY)),
    ("asked_other", (False, False, False, KEY)),
])
def test_answer(played, name, wanted):
    assert facts(played[1][name]) == dict(zip(("changed", "installed", "available", "current"), wanted))


def test_plan_and_deed_are_the_same(played):
    answers = played[1]
    for name in ("path", "available", "changed", "diff", "platform", "family", "key", "current", "installed"):
        assert answers["planned"][name] == answers["installed"][name], name


def test_it_is_installed(played):
    top = played[0]
    assert os.readlink(top / "opt" / "current") == KEY
    assert oct(os.stat(top / "opt" / KEY / "sbin" / "pbs_iff").st_mode) == "0o104755"
    assert sorted(os.listdir(top / "opt")) == sorted([KEY, "current"])


def test_artifact_that_is_not_there(played):
    top, answers, _executed = played
    assert (answers["missing"]["failed"], answers["missing"]["msg"]) == (True, (
        "there is no TORQUE 6.1.2 for %s with these patches and options (%s/home/cache/torque-%s.tar.gz); run site.yml without "
        "--limit, and for TORQUE with a host of that system in the group torque_builder that can be reached; nothing was changed"
        % (PLATFORM, top, OTHER)))


def test_artifact_that_is_damaged(played):
    top, answers, _executed = played
    key = "6.1.1-%s-0123456789ab" % PLATFORM
    assert (answers["damaged"]["failed"], answers["damaged"]["msg"]) == (
        True, "%s: cannot install the artifact %s: not a gzip file; remove it, and the .sha256 beside it, from the controller's cache "
        "and build it again"
        % (os.uname().nodename, key))
    assert answers["damaged"]["path"] == "%s/home/cache/torque-%s.tar.gz" % (top, key)


def test_query_writes_nothing(played):
    assert played[1]["noted"]["files"] == []


def test_sha256_lies_beside_it(played):
    cache = played[0] / "home" / "cache"
    for name in ("torque-%s.tar.gz" % KEY, "torque-6.1.1-%s-0123456789ab.tar.gz" % PLATFORM):
        digest = hashlib.sha256((cache / name).read_bytes()).hexdigest()
        assert (cache / (name + ".sha256")).read_text() == "%s  %s\n" % (digest, name)
        assert oct((cache / (name + ".sha256")).stat().st_mode) == "0o100644"
    assert len(list(cache.iterdir())) == 6
    subprocess.run(["sha256sum", "--check", "--quiet", "torque-%s.tar.gz.sha256" % KEY], cwd=cache, check=True)


def test_artifact_that_is_not_the_one_that_was_built(played):
    top, answers, _executed = played
    key = "6.1.0-%s-0123456789ab" % PLATFORM
    digest = hashlib.sha256((top / "home" / "cache" / ("torque-%s.tar.gz" % key)).read_bytes()).hexdigest()
    assert (answers["changed"]["failed"], answers["changed"]["msg"]) == (
        True, "%s: cannot install the artifact %s: it is not the file that was built: its sha256 is %s, the file beside it in the "
        "controller's cache says %s; remove it, and the .sha256 beside it, from the controller's cache and build it again"
        % (os.uname().nodename, key, digest, "0" * 64))


def test_refusal_of_the_module(played):
    assert (played[1]["refused"]["failed"], played[1]["refused"]["msg"]) == (
        True, "%s: prefix opt is not an absolute path; name it in full; nothing was changed" % os.uname().nodename)


def test_nothing_is_left_on_the_host(played):
    top = played[0]
    remote = top / "remote"
    assert not remote.exists() or os.listdir(remote) == []


@pytest.mark.parametrize("played", [True], indirect=True, ids=["pipelining"])
def test_host_that_has_it_costs_one_execution(played):
    executed = played[2]
    assert {name: len(executed[name]) for name in ("asked", "planned", "again", "asked_again")} == {
        "asked": 1, "planned": 1, "again": 1, "asked_again": 1}
