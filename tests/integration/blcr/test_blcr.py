"""BLCR itself, built and loaded by site.yml in a virtual machine with a kernel that it knows: `make blcr-vm`."""
import json
import os
import re

import pytest
from cluster import CONFIG, GROUP, STORE, hosts
from harm import installed, lost_nothing
from jobs import BIN, Jobs, await_nodes
from trips import Trip, answer
from virtual import PROGRAM, SECONDS, build, machines, shared_store

TREE = "/usr/src/linux"
BUILD = "/lib/modules/%s/extra/blcr"


@pytest.fixture(scope="module")
def guest():
    """The guest with site.yml applied; .settings is what the site says of BLCR."""
    with machines() as guest:
        guest.node = guest.nodes["node1"]
        guest.settings = {"blcr_source": os.environ["BLCR_SOURCE"], "blcr_kernel_tree": TREE}
        if guest.torque:
            build("head", "torque_build")
        done = guest.playbook("site", **guest.settings)
        assert done.code == 0, done.out
        yield guest


@pytest.fixture
def steps(guest):
    """Play pbs_mom: steps(names, state) returns the module's answer (dict). What a test leaves is removed."""
    trip = Trip(guest, store_path=STORE)
    yield lambda names, state=(): trip("node1", names, state)
    trip.clean()


@pytest.fixture
def held(steps):
    """A job that is held (the module's answer, dict); .image is where its image is."""
    result = steps(["run", "hold"])
    assert result["passed"], result["cause"]
    result["image"] = os.path.join(result["state"]["directory"], result["state"]["name"])
    return result


@pytest.fixture
def shared(guest):
    """The second machine has the store of the first one."""
    with shared_store(guest):
        yield


def reboot(guest):
    before = guest.node.ask("cat /proc/sys/kernel/random/boot_id")
    done = guest.module("node1", "reboot", collection="ansible.builtin", reboot_timeout=600)
    assert done.code == 0, done.out
    assert guest.node.ask("cat /proc/sys/kernel/random/boot_id") != before


def test_second_run_changes_nothing(guest):
    done = guest.playbook("site", **guest.settings)
    assert (done.code, done.changed("node1")) == (0, 0), done.out


def test_engine_was_chosen_by_the_kernel(guest):
    assert json.loads(guest.node.ask("cat " + CONFIG))["engine"] == "blcr"
    assert guest.node.ask("cut -d ' ' -f 1 /proc/modules").split()[:2] == ["blcr", "blcr_imports"]
    assert guest.node.ask("ls " + BUILD % guest.node.ask("uname -r")).split() == ["blcr.ko", "blcr_imports.ko"]


def test_site_is_set_up_from_a_bundle(guest, tmp_path, monkeypatch):
    """Modules, library and commands come from it; there is no source, no tree of the kernel, and no artifact beside it."""
    done = guest.playbook("bundle", bundle_directory=str(tmp_path / "bundle"), bundle_python_packages=[], **guest.settings)
    assert done.code == 0, done.out
    kernel, place = guest.node.ask("uname -r"), guest.node.ask("readlink -f /opt/blcr/current")
    assert [path.name for path in (tmp_path / "bundle/artifacts").glob("blcr-*.tar.gz")] == ["blcr-%s.tar.gz" % os.path.basename(place)]
    guest.node.ask("rmmod blcr blcr_imports; rm -r %s %s; rm -f /opt/blcr/current; mount -t tmpfs none %s" % (place, BUILD % kernel, TREE))
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("CKPT_TORQUE_CACHE", str(tmp_path / "cache"))
    absent = {"blcr_source": "/nonexistent/blcr.tar.gz", "blcr_kernel_tree": TREE, "torque_source": "/nonexistent/torque.tar.gz"}
    try:
        done = guest.playbook("site", bundle_source=str(tmp_path / "bundle"), **absent)
    finally:
        guest.node.ask("umount " + TREE)
    assert done.code == 0, done.out
    assert not list((tmp_path / "cache").iterdir())
    assert guest.node.ask("readlink -f /opt/blcr/current") == place
    done = guest.playbook("site", **guest.settings)
    assert (done.code, done.changed("node1")) == (0, 0), done.out


def test_rollback(guest):
    """What update.yml changed comes back; BLCR, which is the kernel's, stays as it is loaded."""
    if not guest.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")
    read = "sed -n 's/^.loglevel //p' /var/spool/torque/mom_priv/config; readlink /opt/blcr/current; grep ^blcr /proc/modules"
    before = guest.node.ask(read)
    done = guest.playbook("update", torque_mom_loglevel=5, update_nodes="node1", **guest.settings)
    assert done.code == 0, done.out
    assert guest.node.ask(read).splitlines() == ["5"] + before.splitlines()[1:]
    done = guest.playbook("rollback", rollback_nodes="node1", **guest.settings)
    assert done.code == 0, done.out
    assert guest.node.ask(read) == before
    await_nodes(guest.node)


def test_process_ids_start_at_random(guest):
    """BLCR's jobs, too, come back with the ids they had."""
    again = "systemctl restart ckpt-torque-random-pids && cat /proc/sys/kernel/ns_last_pid"
    starts = [int(guest.node.ask(again)) for _start in range(3)]
    assert min(starts) >= 1000 and max(starts) - min(starts) > 10000, starts


def test_levels_1_and_2(guest, shared, tmp_path):
    done = guest.playbook("validate", validate_directory=str(tmp_path), validate_path=["node1"] * 4, torque_enabled=False, **guest.settings)
    assert done.code == 0, done.out
    levels = {trip["level"]: trip for trip in json.loads((tmp_path / "results.json").read_text())["results"]}
    assert levels.pop("L3")["passed"] is None  # test_level_3
    assert levels.pop("L0")["passed"] is True
    assert [(level, trip["passed"], trip["engine"]["name"]) for level, trip in sorted(levels.items())] == [
        ("L1", True, "blcr"), ("L2", True, "blcr")]


@pytest.mark.parametrize("case", ["continue", "periodic", "older_image", "failed_hold", "failed_restart"])
def test_level_3(guest, case):
    """Jobs submitted with qsub."""
    if not guest.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")
    result = answer(guest.module("node1", "job_roundtrip", path=["node1"] * 3, case=case, user="alice", work_path=STORE + "/alice",
                                 timeout=SECONDS))
    assert result["passed"], result["cause"]
    assert (result["engine"]["name"], result["exit_status"]) == ("blcr", 7)


def test_job_on_two_nodes_is_refused(guest):
    """As with CRIU: the restart would have dead sockets, and the processes on the second node would be lost."""
    if not guest.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")
    with Jobs(guest) as qsub:
        await_nodes(guest.node)
        job = qsub.counts("-l", "nodes=node1+node2")
        job.user("%s/qhold %s" % (BIN, job.id))
        job.comment("belongs to a job on 2 nodes (node1, node2); BLCR cannot checkpoint that; the job keeps running; submit it ", SECONDS)
        job.until(lambda facts: (facts["job_state"], facts["Hold_Types"]) == ("R", "n"), "kept its hold", SECONDS)
        job.progress("node1")
        job.finish(SECONDS)


def test_job_of_a_machine_that_crashes(guest):
    """As on containers, but what was not written to the disk is gone, and the server crashes with its node."""
    if not guest.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")
    with Jobs(guest) as qsub:
        job = qsub.counts()
        guest.node.ask("sync")  # as of a job that has run for long
        name = job.checkpoint(SECONDS)
        guest.node.ask("sleep 10")  # ext4 has written the names of new files then, but not what is in them
        hosts("crash", GROUP, program=PROGRAM)
        hosts("up", GROUP, program=PROGRAM)
        job.continued("node1", name, SECONDS)
        job.finish(SECONDS)
    assert job.id not in guest.node.ask("ls /var/spool/torque/mom_priv/jobs /var/spool/torque/spool")


def test_job_goes_on_in_the_next_boot(guest, steps, held):
    """And the modules are loaded there."""
    reboot(guest)
    result = steps(["restart", "continue", "hold"], held["state"])
    assert result["passed"], result["cause"]
    result = steps(["restart", "finish"], result["state"])
    assert result["passed"], result["cause"]
    assert result["exit_status"] == 7
    assert result["counters"] == sorted(set(result["counters"])) and len(result["counters"]) == 4


def test_compressed_image(guest, steps):
    """BLCR has no compression, and refuses pipes."""
    done = guest.playbook("site", checkpoint_hooks_compression="gzip", **guest.settings)
    assert done.code == 0, done.out
    try:
        result = steps(["run", "continue", "hold"])
        assert result["passed"], result["cause"]
        image = json.loads(guest.node.ask("cat %s/%s/manifest.json" % (result["state"]["directory"], result["state"]["name"])))
        assert "context.gz" in [entry["name"] for entry in image["files"]]
        assert (result["compression"], image["bytes"] < image["plain_bytes"]) == ("gzip", True)
        result = steps(["restart", "finish"], result["state"])
        assert (result["passed"], result.get("exit_status")) == (True, 7), result["cause"]
    finally:
        done = guest.playbook("site", **guest.settings)
    assert done.code == 0, done.out


@pytest.mark.parametrize("harm, why", [
    ("truncate -s -8 {0}/context", "context has [0-9]+ bytes, expected [0-9]+; take an older image"),
    ("dd if=/dev/zero of={0}/context bs=1 count=64 seek=100000 conv=notrunc status=none",
     "context has another content than was written; take an older image"),
    ("rm {0}/context", "context: No such file or directory; take an older image"),
    ("sed -i 's/pids/sdip/' {0}/context.json", "context.json has another content than was written; take an older image"),
])
def test_image_that_was_harmed(guest, steps, held, harm, why):
    """BLCR itself would restart the second silently, and of the first run the job on after it has failed."""
    guest.node.ask(harm.format(held["image"]))
    result = steps(["restart", "finish"], held["state"])
    assert not result["passed"]
    assert re.search(r"status 65: .*image \S+ is damaged: " + why, result["cause"]), result["cause"]


def test_process_id_in_use(guest, steps, held):
    """A passing reason: the job is tried again, and not lost."""
    root = json.loads(guest.node.ask("cat %s/manifest.json" % held["image"]))["root"]
    guest.node.ask("for try in 1 2 3 4 5 6 7 8 9; do echo %d > /proc/sys/kernel/ns_last_pid; setsid sleep 600 > /dev/null 2>&1 & "
                   "[ $! = %d ] && exit 0; kill $!; done; exit 1" % (root - 1, root))
    result = steps(["restart", "finish"], held["state"])
    guest.node.ask("kill %d" % root)
    assert "status 75: " in result["cause"] and "process id %d of the image is in use on this node (by 'sleep')" % root in result["cause"]


def test_library_that_was_replaced(guest, steps, held):
    """BLCR maps whatever is there, and the program crashes."""
    library = guest.node.ask("ls /lib/x86_64-linux-gnu/libpthread-*.so")
    guest.node.ask("cp --preserve {0} /root/kept && cp {0} /root/other && printf x >> /root/other && mv /root/other {0}".format(library))
    try:
        result = steps(["restart", "finish"], held["state"])
    finally:
        guest.node.ask("mv /root/kept %s" % library)
    assert "status 77: " in result["cause"] and "%s, which the job has mapped, is not on this node as it was" % library in result["cause"]


def test_modules_that_are_not_loaded(guest, steps):
    guest.node.ask("rmmod blcr blcr_imports")
    try:
        result = steps(["run", "hold"])
        assert "BLCR's kernel modules are not loaded on this node" in result["cause"], result["cause"]
    finally:
        done = guest.playbook("site", **guest.settings)
    assert (done.code, done.changed("node1")) == (0, 1), done.out


@pytest.mark.parametrize("case, count, seen", [("kill", 8, ["killed"]), ("full", 6, ["refused before", "refused"])])
def test_faults(guest, case, count, seen):
    """As with CRIU in the fault suite: the job keeps running, and no image is lost."""
    with installed(guest.node, "e2fsprogs"):
        counts = lost_nothing(guest.node, case, limit=SECONDS, ballast=8, count=count)["seen"]
    assert set(seen) <= set(counts), counts


def test_job_moves_to_another_machine(guest, shared):
    """By the hooks, and as a job of TORQUE: the restart on another node is what it was all begun for."""
    trip = Trip(guest, store_path=STORE)
    try:
        result = trip("node1", ["run", "hold"])
        for node, names in (("node2", ["restart", "continue", "hold"]), ("node1", ["restart", "finish"])):
            assert result["passed"], result["cause"]
            result = trip(node, names, result["state"])
        assert (result["passed"], result.get("exit_status")) == (True, 7), result["cause"]
    finally:
        trip.clean()
    if guest.torque:
        await_nodes(guest.node)
        result = answer(guest.module("node1", "job_roundtrip", path=["node1", "node2", "node1"], case="continue", user="alice",
                                     work_path=STORE + "/alice", timeout=SECONDS))
        assert result["passed"], result["cause"]
        assert (result["engine"]["name"], result["exit_status"]) == ("blcr", 7)


def test_nodes_get_another_kernel_and_engine(guest, monkeypatch):
    """Last, since there is no way back: docs/operate.md, "Change the engine or the kernel of nodes", with a job that was forgotten."""
    if not guest.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")
    build("node1", "criu")
    with Jobs(guest) as qsub:
        forgotten = qsub.counts("-l", "nodes=node1")
        forgotten.hold()
        guest.node.ask("sync")
        hosts("crash", GROUP, program=PROGRAM)
        monkeypatch.setenv("CKPT_TORQUE_GUEST_BOOT", "debian")
        hosts("up", GROUP, program=PROGRAM)
        done = guest.playbook("site")
        assert done.code == 0, done.out
        assert [json.loads(node.ask("cat " + CONFIG))["engine"] for node in (guest.nodes["node1"], guest.nodes["node2"])] == ["criu"] * 2
        for node in (guest.nodes["node1"], guest.nodes["node2"]):
            node.ask("systemctl restart pbs_mom")  # or they are down until it looks at their health the next time
        await_nodes(guest.node)
        forgotten.user("%s/qrls %s" % (BIN, forgotten.id))
        told = forgotten.comment(" was written by BLCR on kernel ", SECONDS)["comment"]
        assert told.endswith("; restart it on a node like node1; image kept"), told
        forgotten.wait("H", SECONDS)
        assert "blcr" in guest.node.ask("torque-ckpt list | grep '%s '" % forgotten.id)
        job = qsub.counts("-l", "nodes=node1")
        job.hold()
        job.release("node1")
        job.progress("node1")
        job.finish(SECONDS)
    done = guest.playbook("site")
    assert (done.code, done.changed("node1")) == (0, 0), done.out
