"""What the roles refuse: each by its exact sentence, and afterwards hosts and controller are as they were."""
import functools
import hashlib
import http.server
import json
import pathlib
import re
import tarfile
import threading

import pytest
from conftest import HOOKS, STORE

BIN = "/opt/torque/current/bin"
SERVICES = {"head": "trqauthd pbs_server pbs_sched", "node1": "pbs_mom", "node2": "pbs_mom"}
LOOK = """\
cd /; systemctl show -p Id,MainPID,ActiveState %s; ls -A /opt/torque /var/tmp/torque-* 2>&1; readlink /opt/torque/current
sha256sum /etc/systemd/system/pbs_* /etc/systemd/system/trqauthd* /var/spool/torque/mom_priv/config /var/spool/torque/server_name 2>&1
"""
MANAGED = BIN + "/qmgr -c 'print server' | grep -v next_job_number; " + BIN + "/pbsnodes -a | grep -v status"

REST = """\
for n in $(seq 300); do
    said=$(%s/pbsnodes -a)
    [ $(echo "$said" | grep -c "state = free$") = 2 ] && ! echo "$said" | grep -q " jobs = " && exit
    sleep 0.2
done
echo "$said" >&2
exit 1
""" % BIN


@pytest.fixture(scope="module", autouse=True)
def torque(cluster):
    if not cluster.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")


@pytest.fixture(scope="session")
def tarball(cluster):
    """TORQUE's source on this machine (pathlib.Path)."""
    variables = json.loads(pathlib.Path(cluster.inventory).read_text())["all"]["vars"]
    path = pathlib.Path(variables["torque_source"])
    if "://" in variables["torque_source"]:
        path = pathlib.Path(cluster.inventory).parents[2] / "sources" / ("torque-%s.tar.gz" % variables["torque_version"])
    if not path.is_file():
        pytest.skip("TORQUE's source is not on this machine; name a tarball in TORQUE_SOURCE")
    return path


def state(cluster):
    """What must not change: services, TORQUE, its configuration (list of str). Waits for the end of what earlier tests had running."""
    cluster.nodes["head"].ask(REST)
    return [cluster.nodes[name].run(LOOK % services).out for name, services in SERVICES.items()] + [cluster.nodes["head"].ask(MANAGED)]


@pytest.fixture(autouse=True)
def untouched(cluster):
    """Hosts are after the test as they were before."""
    before = state(cluster)
    yield
    assert state(cluster) == before


def sentences(done):
    """The messages of tasks (list of str), their white space made even."""
    return [" ".join(json.loads(text).split()) for text in re.findall(r'"msg": ("(?:[^"\\]|\\.)*")', done.out)]


def refusal(done, sentence):
    """A role must have said exactly this (str, or a compiled pattern) and failed."""
    assert done.code != 0, done.out
    pattern = re.compile(re.escape(sentence)) if isinstance(sentence, str) else sentence
    assert any(pattern.fullmatch(said) for said in sentences(done)), done.out


# -- building: on a node without compilers, with a cache of its own ---------------------

@pytest.fixture
def build(cluster, tarball, tmp_path):
    """Apply torque_build on node1, which must fail with this sentence and leave nothing, neither there nor in the cache."""
    cache = tmp_path / "cache"
    (cache / "sources").mkdir(parents=True)

    def refused(sentence, **variables):
        done = cluster.role("node1", "torque_build", **dict({"torque_build_cache": str(cache), "torque_source": str(tarball)}, **variables))
        refusal(done, sentence)
        assert list(cache.rglob("*")) == [cache / "sources"]
        assert cluster.nodes["node1"].run("ls -d /var/tmp/torque-*").code != 0
    return refused


@pytest.fixture
def address(tmp_path):
    """Where a web server gives what is in tmp_path (str)."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield "http://127.0.0.1:%d" % server.server_port
    server.shutdown()
    server.server_close()


SHA256 = hashlib.sha256(b"foo").hexdigest()


def test_wrong_checksum(build, tmp_path):
    (tmp_path / "foo.tar.gz").write_text("foo")
    build("torque_source %s/foo.tar.gz has checksum %s, torque_source_checksum says 1234; it is not the file that is meant: fetch it again "
          "or correct the checksum; nothing was done." % (tmp_path, SHA256),
          torque_source="%s/foo.tar.gz" % tmp_path, torque_source_checksum="sha256:1234")


def test_wrong_checksum_of_a_download(build, tmp_path, address):
    (tmp_path / "foo.tar.gz").write_text("foo")
    build("torque_source %s/foo.tar.gz cannot be had (The checksum did not match 1234; it was %s); correct torque_source or "
          "torque_source_checksum, or put the tarball on the controller and name its path in torque_source; nothing was done."
          % (address, SHA256), torque_source="%s/foo.tar.gz" % address, torque_source_checksum="sha256:1234")


def test_address_that_has_no_source(build, address):
    build("torque_source %s/none.tar.gz cannot be had (Request failed, HTTP Error 404: File not found); correct torque_source or "
          "torque_source_checksum, or put the tarball on the controller and name its path in torque_source; nothing was done." % address,
          torque_source="%s/none.tar.gz" % address)


def test_source_that_is_no_file(build, tmp_path):
    build("torque_source %s is not a file on the controller; put the tarball there or name a URL; nothing was done." % tmp_path,
          torque_source=str(tmp_path))


def test_truncated_tarball(build, tarball, tmp_path):
    short = tmp_path / "short.tar.gz"
    short.write_bytes(tarball.read_bytes()[:1000000])
    build("torque_source %s cannot be unpacked (gzip: stdin: unexpected end of file; tar: Unexpected EOF in archive); is it cut short, or "
          "no tar archive? Remove it and fetch it again; nothing was built." % short, torque_source=str(short))


def test_file_that_is_no_archive(build, tmp_path):
    (tmp_path / "page.tar.gz").write_text("<html>sign in first</html>\n" * 100)
    build("torque_source %s/page.tar.gz cannot be unpacked (tar: This does not look like a tar archive; tar: Skipping to next header); "
          "is it cut short, or no tar archive? Remove it and fetch it again; nothing was built." % tmp_path,
          torque_source="%s/page.tar.gz" % tmp_path)


def test_tree_that_is_not_torque(build, tmp_path):
    with tarfile.open(str(tmp_path / "other.tar.gz"), "w:gz") as archive:
        archive.add(__file__, "other/README")
    build("torque_source %s/other.tar.gz is not a TORQUE source tree, which has src/resmom, src/server and a configure.ac that names "
          "torque; correct torque_source or torque_version; nothing was built." % tmp_path, torque_source="%s/other.tar.gz" % tmp_path)


def test_tree_of_another_version(build, tarball):
    build("torque_source %s holds TORQUE 6.1.3, but 6.1.2 was asked for; correct torque_source or torque_version; nothing was built."
          % tarball, torque_version="6.1.2")


def test_tree_that_was_changed(cluster, build, tarball, tmp_path):
    with tarfile.open(str(tarball)) as old, tarfile.open(str(tmp_path / "changed.tar.gz"), "w:gz", compresslevel=1) as new:
        for member in old:
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
        new.add(__file__, old.getnames()[0].split("/")[0] + "/src/server/more.c")
    build(re.compile(r"torque_source %s/changed\.tar\.gz is not the TORQUE 6\.1\.3 that was released: its content differs "
                     r"\(digest [0-9a-f]{64}\); when it is what you mean, say so with torque_source_checksum; nothing was built\."
                     % tmp_path), torque_source="%s/changed.tar.gz" % tmp_path)


@pytest.mark.parametrize("variables, sentence", [
    ({"torque_version": "7.0"},
     "torque_build_version 7.0 is none that this role can build (2.x, 4.x, 6.0, 6.1); correct torque_version; nothing was done."),
    ({"torque_build_directory": "/var/tmp"},
     "node1: /var/tmp is there and belongs to root; building would empty it: set torque_build_directory to a path that is not there; "
     "nothing was built."),
    ({"torque_build_directory": "/nowhere/build"},
     "node1: there is no directory /nowhere; make it or set torque_build_directory to another place; nothing was built."),
    ({"torque_build_packages": ["patch"]},
     "node1: there is no g++, no make, no autoreconf2.69; install it or correct torque_build_packages; nothing was built."),
])
def test_what_cannot_be_built(build, variables, sentence):
    build(sentence, **variables)


def test_no_room_to_build(build, cluster):
    node = cluster.nodes["node1"]
    node.ask("mount -t tmpfs -o size=64m none /mnt")
    try:
        build("node1: /mnt has less than 1.5 GiB free; make room or set torque_build_directory to another place; nothing was built.",
              torque_build_directory="/mnt/build")
        assert node.ask("ls -A /mnt") == ""
    finally:
        node.ask("umount /mnt")


PATCH = """\
--- a/src/resmom/mom_main.c
+++ b/src/resmom/mom_main.c
@@ -1,3 +1,3 @@
 no such line
-nor this one
+but this one
 nor that one
"""


def test_patch_that_does_not_fit(build, tmp_path):
    (tmp_path / "ours.patch").write_text(PATCH)
    build("patch ours (%s/ours.patch) does not fit this TORQUE 6.1.3: hunk 1 of src/resmom/mom_main.c fails at line 1; unpack the source "
          "afresh, or name a variant made for this version; nothing was changed" % tmp_path, torque_build_packages=["patch"],
          torque_build_site_patches=[{"name": "ours", "variants": [{"from": "6.1", "below": "6.2", "file": "%s/ours.patch" % tmp_path}]}])


# -- the server -----------------------------------------------------------------------

def queues(**more):
    return dict({"batch": {"queue_type": "Execution", "checkpoint_dir": STORE, "enabled": True, "started": True}}, **more)


ILL_SET = ("head: torque_server_scheduler (pbs_sched) must be pbs_sched or none, none where torque_build_scheduler_enabled is false, and "
           "torque_server_queues must hold a queue; nothing was changed.")


@pytest.mark.parametrize("variables, sentence", [
    ({"torque_server_nodes": ["node1", "node2", "nowhere.invalid"]},
     "head: cannot resolve nowhere.invalid to an IPv4 address; add it to DNS or /etc/hosts; nothing was changed."),
    ({"torque_server_nodes": ["node1", "node2", "NODE1"]},
     "nodes NODE1 and node1 are the same host; use one name, the one the server knows it by"),
    ({"torque_server_queues": {}}, ILL_SET),
    ({"torque_build_scheduler_enabled": False}, ILL_SET),
])
def test_server_that_cannot_be(cluster, variables, sentence):
    refusal(cluster.role("head", "torque_server", **variables), sentence)


def test_queue_with_a_running_job_stays(cluster):
    """The job goes on, and nothing else of what was asked for is done."""
    head = cluster.nodes["head"]
    head.ask(BIN + "/qmgr -c 'create queue busy queue_type=execution,enabled=true,started=true'")
    job = head.ask("cd /tmp && echo sleep 600 | runuser -u alice -- %s/qsub -q busy -o /dev/null -e /dev/null" % BIN)
    try:
        head.ask("for n in $(seq 300); do %s/qstat -f %s | grep -q 'job_state = R' && exit; sleep 0.2; done; exit 1" % (BIN, job))
        done = cluster.role("head", "torque_server", torque_server_queues=queues(busy="absent"), torque_server_attributes={"log_level": 1})
        refusal(done, "queue busy still holds jobs (1 Running): let them end or move them with qmove, then run again; nothing was changed")
        assert "job_state = R" in head.ask("%s/qstat -f %s" % (BIN, job))
        assert "log_level" not in head.ask(MANAGED)
    finally:
        head.ask("cd /; %s/qdel -p %s; %s/qmgr -c 'delete queue busy'" % (BIN, job, BIN))


def test_server_that_does_not_answer(cluster):
    head = cluster.nodes["head"]
    head.ask("pkill -STOP -x pbs_server")
    try:
        done = cluster.module("head", "qmgr", qmgr_path=BIN + "/qmgr", server={"log_level": 1}, timeout=2)
        refusal(done, BIN + "/qmgr got no answer within 2 seconds and was killed; look at the log of pbs_server")
    finally:
        head.ask("pkill -CONT -x pbs_server")


# -- a node ---------------------------------------------------------------------------

@pytest.mark.parametrize("variables, sentence", [
    ({"torque_mom_remote_checkpoint_dirs": ["/ckpt%d" % number for number in range(33)], "torque_mom_usecp": []},
     "pbs_mom would not go by this configuration: $remote_checkpoint_dirs has 33 entries, and pbs_mom has room for 32; correct it; "
     "nothing was changed"),
    ({"torque_mom_directives": {"checkpoint_intervall": 5}},
     "pbs_mom would not go by this configuration: $checkpoint_intervall is no directive of pbs_mom, which ignores the line; perhaps "
     "$checkpoint_interval was meant; correct it; nothing was changed"),
    ({"torque_mom_hooks_path": "/nowhere"},
     "pbs_mom would not go by this configuration: %s; correct it; nothing was changed" % "; ".join(
         "$%s /nowhere/%s cannot be used: No such file or directory; pbs_mom would ignore the line and go on without it" % pair
         for pair in (("checkpoint_run_exe", "run"), ("checkpoint_script", "checkpoint"), ("restart_script", "restart")))),
])
def test_configuration_that_pbs_mom_would_not_go_by(cluster, variables, sentence):
    refusal(cluster.role("node1", "torque_mom", **variables), sentence)


def test_configuration_that_somebody_wrote_by_hand(cluster):
    """It is judged line by line; the role puts it right."""
    node, path = cluster.nodes["node1"], "/var/spool/torque/mom_priv/config"
    node.ask("cp -p %s /tmp/config && printf '%%s\n' '$pbsserver head' '$logevel 3' 'checkpoint_script %s/checkpoint' > %s"
             % (path, HOOKS, path))
    try:
        done = cluster.module("node1", "mom_config", state="checked", version="6.1.3")
        refusal(done, "pbs_mom would not go by %s as it stands: line 2: $logevel is no directive of pbs_mom, which ignores the line; "
                "perhaps $loglevel was meant; line 3: checkpoint_script lacks its $; correct it by hand or write it with state present; "
                "nothing was changed" % path)
        assert node.ask("cat " + path).splitlines()[1] == "$logevel 3"
    finally:
        node.ask("mv /tmp/config " + path)


@pytest.mark.parametrize("name, sentence", [
    ("nowhere.invalid", "node2: cannot resolve nowhere.invalid to an IPv4 address; add it to DNS or /etc/hosts; nothing was changed."),
    ("localhost", "node2: localhost resolves to 127.0.0.1 here, which no other host can reach; correct its line in /etc/hosts; nothing was "
     "changed."),
])
def test_server_that_a_new_node_cannot_reach(cluster, name, sentence):
    """Before anything is installed, and again the next time."""
    node = cluster.nodes["node2"]
    node.ask("mv /opt/torque/current /tmp/current")
    try:
        for _run in range(2):
            refusal(cluster.role("node2", "torque_mom", torque_server_name=name), sentence)
            assert node.run("ls -d /opt/torque/current").code != 0
    finally:
        node.ask("mv -T /tmp/current /opt/torque/current")
