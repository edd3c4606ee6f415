"""Each node has a store of its own: pbs_mom copies images to the server and from there, and jobs of the layout before go on."""
import contextlib
import json
import re
import time

import pytest
import storms
from cluster import EXAMPLES, HOOKS, STORE, replaced_hook
from jobs import BIN, Jobs, Qjob, forgotten_at_once, slots
from power import crash, free, start
from refusals import refusal
from trips import Trip, answer

OWN = "/var/lib/ckpt-store"
CHECKPOINTS = "/var/spool/torque/checkpoint"
COPIES = "/etc/ckpt-torque/copies"
MOUNTED = "/srv/copies"
SHARED = {"torque_mom_usecp": ["*:/shared /shared"], "validate_work_path": "/shared/work"}
"""The example's site shares /home, these hosts /shared."""
PORT = {"checkpoint_store_transfer_port": 15033}
BEFORE = {"checkpoint_store_additional_stores": [{"path": STORE, "id": "default"}]}
AFTER = {"checkpoint_store_additional_stores": [{"path": OWN, "id": "local", "shared": False}], "torque_mom_usecp": ["*:/shared /shared"]}
WAY = {"server": "head", "job": "trial.alice.CK"}
LAST = "it stays on node node1, and its job can be restarted nowhere else"


def site(cluster, *arguments, **variables):
    done = cluster.playbook("site", *arguments, **variables)
    assert done.code == 0, done.out
    return done


def unchanged(done):
    assert [done.changed(name) for name in ("head", "node1", "node2")] == [0, 0, 0], done.out


@pytest.fixture(scope="module")
def jobs(cluster):
    """None without TORQUE."""
    if not cluster.torque:
        yield None
        return
    with Jobs(cluster) as jobs:
        yield jobs


@pytest.fixture(scope="module")
def before(cluster, jobs):
    """A job that was held when the store was still shared; None without TORQUE."""
    if not cluster.torque:
        return None
    job = jobs.counts()
    job.hold()
    return job


@pytest.fixture(scope="module")
def layout(cluster, tmp_path_factory):
    """What playbooks are called with for the layout (dict): the inventory of the example local-stores."""
    hosts = cluster.write_inventory(tmp_path_factory.mktemp("inventory") / "hosts.json", **SHARED)
    return {"inventory": [str(EXAMPLES / "local-stores/inventory.yml"), hosts], **PORT}


@pytest.fixture(scope="module", autouse=True)
def local(cluster, before, layout):
    """The cluster with stores of the nodes' own, one of them on btrfs. What the hosts' containers would lay over each other is a disk's
    here."""
    cluster.nodes["node1"].ask("mkdir -p /shared/.disks/node1 {0} && echo '/shared/.disks/node1 {0} none bind 0 0' >> /etc/fstab && "
                               "systemctl daemon-reload && mount {0}".format(OWN))
    cluster.nodes["node2"].ask("command -v mkfs.btrfs || (apt-get -qq update; apt-get -qq install -y btrfs-progs); "
                               "truncate -s 4G /var/tmp/own && "
                               "mkfs.btrfs -fq /var/tmp/own && mkdir -p {0} && mount -o loop /var/tmp/own {0}".format(OWN))
    cluster.nodes["head"].ask("install -d -o alice /shared/work")
    site(cluster, **layout, **BEFORE)
    yield
    site(cluster)
    for name in ("node1", "node2"):
        cluster.nodes[name].ask("umount {0}; sed -i '\\,{0},d' /etc/fstab; rm -f /var/tmp/own".format(OWN))
    cluster.nodes["head"].ask("systemctl disable --now ckpt-torque-copies; rm -rf /shared/.disks /shared/work")


def test_second_run(cluster, layout):
    unchanged(site(cluster, **layout, **BEFORE))
    unchanged(cluster.playbook("site", "--check", **layout, **BEFORE))


def test_sftp_service_reads_what_an_interrupted_run_wrote(cluster, layout):
    process = "systemctl show -P MainPID ckpt-torque-copies"
    before = cluster.nodes["head"].ask("touch %s/nodes.list; %s" % (COPIES, process))
    done = site(cluster, **layout, **BEFORE)
    assert sum(done.changed(name) for name in ("head", "node1", "node2")) == 1, done.out
    assert cluster.nodes["head"].ask(process) != before
    unchanged(site(cluster, **layout, **BEFORE))


def test_one_node(cluster, layout, node1, node2):
    """What the hosts beyond --limit know of each other stays."""
    command = "cat %s/known_hosts %s/ssh/ssh_known_hosts 2> /dev/null || true" % (COPIES, COPIES)
    before = [node.ask(command) for node in cluster.nodes.values()]
    assert all(before)
    for limit in ("node2", "head,node2"):
        done = cluster.playbook("site", "--limit", limit, **layout, **BEFORE)
        assert (done.code, done.changed("node2")) == (0, 0), done.out
    assert [node.ask(command) for node in cluster.nodes.values()] == before


def test_job_of_the_layout_before(cluster, torque, before):
    before.release("node2")
    before.finish()


def left(node):
    """What images there are on a node."""
    return node.ask("find %s -name 'ckpt.*' -o -name '.ckpt.*@*'" % OWN)


def validated(cluster, tmp_path, **variables):
    """Run validate.yml; return the ways that passed."""
    done = cluster.playbook("validate", validate_directory=str(tmp_path), **variables)
    assert done.code == 0, done.out
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    return [[result["level"], result["nodes"]] for result in results if result["passed"] and result["level"] in ("L2", "L3")]


def test_jobs_move(cluster, layout, tmp_path, node1, node2):
    path = ["node1", "node2"] * 2
    assert validated(cluster, tmp_path, **layout) == [["L2", path]] + [["L3", path]] * cluster.torque
    assert left(node1) == "" or cluster.torque  # the job ended on node2
    assert left(node2) == ""
    head = cluster.nodes["head"]
    assert head.ask("stat -c '%%U %%a' %s %s/trial.alice.CK" % (CHECKPOINTS, CHECKPOINTS)).split("\n") == ["root 711", "alice 711"]
    assert head.ask("ls -A %s/trial.alice.CK" % CHECKPOINTS) == ""
    for node in (head, node1, node2):
        strays = node.ask("find %s %s -mindepth 1 '(' -perm /022 -o -user nobody ')' -printf '%%p %%u %%m\\n' 2> /dev/null || true"
                          % (CHECKPOINTS, OWN))
        assert strays == ""


@pytest.mark.parametrize("place", ["node1", "node2"])
def test_job_of_a_node_that_crashes(cluster, torque, jobs, node1, place):
    """It continues from the image that the server has: where it was, or elsewhere while that node stays away."""
    head, job = cluster.nodes["head"], jobs.counts("-l", "nodes=node1")
    name = job.checkpoint()
    head.ask("for _ in $(seq 600); do [ -e %s/%s.CK/%s/manifest.json ] && exit; sleep 0.1; done; exit 1" % (CHECKPOINTS, job.id, name))
    node1.ask("systemctl disable pbs_mom")  # which must know the server's address before it is sent an image
    crash(cluster)
    try:
        if place == "node1":
            start(cluster, service="ssh")
            node1.ask("systemctl enable --now pbs_mom")
            job.continued("node1", name)
        else:
            job.root("qrerun -f " + job.id)
            job.wait("Q")
            job.root("qalter -l nodes=node2 " + job.id)
            job.root("qrun -H node2 " + job.id)
            job.progress("node2")
            assert job.facts()["checkpoint_name"] == name
    finally:
        start(cluster, service="ssh")
        node1.ask("systemctl enable --now pbs_mom")
    free(cluster)
    job.finish()


def test_job_with_nothing_shared(cluster):
    """Level L2 needs no file system that nodes share: its output travels along."""
    trip = Trip(cluster, store_path=OWN, copies=WAY)
    try:
        held = trip("node1", ["run", "hold"])
        assert held["passed"], held["cause"]
        assert cluster.nodes["node1"].ask("ls /tmp | grep ckpt-validate || true") == ""
        ended = trip("node2", ["restart", "finish"], held["state"])
        assert (ended["passed"], ended["exit_status"]) == (True, 7), ended["cause"]
    finally:
        trip.clean()


def test_held_job(cluster, torque, jobs, node1):
    """Its image is at rest with the server, the user's and nobody else's, and torque-ckpt knows it there."""
    head = cluster.nodes["head"]
    job = jobs.counts()
    name = job.hold()["checkpoint_name"]
    where = "%s/%s.CK" % (CHECKPOINTS, job.id)
    # pbs_mom 2.5 copies it, and removes it, a moment after the job is held.
    head.ask("for _ in $(seq 300); do [ -e %s/%s ] && exit; sleep 0.1; done; echo no image has come >&2; exit 1" % (where, name))
    assert head.ask("stat -c '%%U %%a' %s %s/%s" % (where, where, name)).split("\n") == ["alice 711", "alice 700"]
    search = "find %s -name '%s'" % (OWN, name)
    assert node1.ask("for _ in $(seq 600); do %s | grep -q . || break; sleep 0.1; done; %s" % (search, search)) == ""
    listed = json.loads(head.ask("torque-ckpt list --json"))
    assert "%s/%s" % (where, name) in json.dumps(listed)
    assert head.run("runuser -u bob -- ls %s/%s" % (where, name)).code != 0
    job.release("node2")
    job.finish()


WAITS = """\
#!/bin/sh
touch /run/waits
until [ -e /run/go ]; do sleep 0.1; done
exec $0.real "$@"
"""
WAITED = "for _ in $(seq 300); do [ -e /run/waits ] && exit; sleep 0.1; done; echo no copy has begun >&2; exit 1"


@contextlib.contextmanager
def slow_copies(node):
    """Have pbs_mom of a node wait with its copies until /run/go is there; /run/waits is there when it does."""
    node.ask("rm -f /run/go /run/waits")
    with replaced_hook(node, "copy", WAITS):
        try:
            yield
        finally:
            node.ask("touch /run/go")


@pytest.fixture
def slow(node2):
    with slow_copies(node2):
        yield


def test_job_that_is_held_while_its_image_is_fetched(cluster, torque, jobs, node2, slow):
    """It stays held, and runs when it is released (TORQUE 6.1.1 to 6.1.3: patch held-in-copy)."""
    job = jobs.counts()
    job.hold()
    job.send("node2")
    node2.ask(WAITED)
    job.user("%s/qhold %s" % (BIN, job.id))
    assert job.facts()["job_state"] == "H"
    node2.ask("touch /run/go; for _ in $(seq 300); do pgrep -f %s/[c]opy > /dev/null || exit 0; sleep 0.1; done; exit 1" % HOOKS)
    node2.ask("for _ in $(seq 30); do pgrep -u alice && exit 1; sleep 0.1; done; true")
    assert job.facts()["job_state"] == "H"
    job.release("node2")
    job.finish()


def test_images_are_as_many_as_are_to_be_kept(cluster, torque, jobs):
    head, job = cluster.nodes["head"], jobs.counts()
    names, listed = [], "ls %s/%s.CK" % (CHECKPOINTS, job.id)
    for _number in range(3):
        last = job.facts().get("checkpoint_name")
        job.user("%s/qchkpt %s" % (BIN, job.id))
        facts = job.until(lambda facts, last=last: facts.get("checkpoint_name", last) != last, "had no new image")
        names.append(facts["checkpoint_name"])
        head.ask("for _ in $(seq 600); do %s | grep -q %s && break; sleep 0.2; done; sleep 1" % (listed, names[-1]))  # names count seconds
    head.ask("for _ in $(seq 300); do [ \"$(echo $(%s))\" = '%s' ] && exit; sleep 0.2; done; %s >&2; exit 1"
             % (listed, " ".join(names[1:]), listed))  # the copy removes the oldest last
    job.finish()


# What keeps images from the server, on which host: how it is made, how it is undone, and what pbs_mom is told.
HARM = {
    "server's key": ("head", "cd {0}/ssh && mv host_key kept && ssh-keygen -q -t ed25519 -N '' -f host_key && "
                     "systemctl restart ckpt-torque-copies",
                     "cd {0}/ssh && mv kept host_key && systemctl restart ckpt-torque-copies", "Host key verification failed."),
    "node's key": ("node1", "cd /etc/ssh && mkdir kept && mv ssh_host_*_key* kept && ssh-keygen -A",
                   "cd /etc/ssh && mv kept/* . && rmdir kept", "alice@head: Permission denied (hostbased)."),
    "full disk": ("head", "mount -t tmpfs -o size=64k,mode=711 tmpfs {1} && install -d -o alice {1}/trial.alice.CK && "
                  "systemctl restart ckpt-torque-copies", "umount {1} && systemctl restart ckpt-torque-copies",
                  re.compile('write remote ".*": Failure; [0-9]+ KiB are free there')),
    "no server": ("head", "systemctl stop ckpt-torque-copies", "systemctl start ckpt-torque-copies",
                  re.compile("ssh: connect to host head port 15033: Connection refused")),
}


@pytest.fixture(params=sorted(HARM))
def harm(request, cluster):
    """The way to the server is closed; returns what the sentence says, a text or a pattern."""
    host, make, undo, reason = HARM[request.param]
    cluster.nodes[host].ask(make.format(COPIES, CHECKPOINTS))
    yield reason
    cluster.nodes[host].ask(undo.format(COPIES, CHECKPOINTS))


def test_store_that_is_cut_off(cluster, harm):
    """The role would stop before pbs_mom is told."""
    info = answer(cluster.module("node1", "store_info", path=OWN, user="alice", shared=False, copies=WAY))
    begin = r"images would not leave this node: image %s/alice/ckpt\.trial\.node1\.[0-9]+ cannot be copied to head: " % OWN
    end = "; fix that before pbs_mom is configured to copy images"
    reason = harm.pattern if hasattr(harm, "pattern") else re.escape(harm)
    assert len(info["faults"]) == 1 and re.fullmatch(begin + "(%s)" % reason + re.escape(end), info["faults"][0]), info["faults"]


def test_hold_that_is_cut_off(cluster, torque, jobs, node1, harm):
    """The only image is not lost: the job goes on where it is, with all its output."""
    job = jobs.counts()
    image = "%s/%s.CK/%s" % (OWN, job.id, job.hold()["checkpoint_name"])
    lines = node1.ask("for _ in $(seq 600); do journalctl -t ckpt-torque | grep -F '%s cannot be copied' && break; sleep 0.2; done" % image)
    assert LAST in lines
    node1.ask("test -f %s/manifest.json" % image)
    job.release("node1")
    job.finish()


def test_pbs_mom_that_is_killed_before_it_knows_of_a_hold(cluster, torque, jobs, node1):
    """The image could not be copied any more. It stays on its node, and the job goes on there."""
    if cluster.is_older_than(4):
        pytest.skip("2.5 has no held-images")
    job = jobs.counts()
    job.hold_untold("node1")
    node1.ask("systemctl kill --signal=KILL --kill-who=main pbs_mom; sleep 1; systemctl start pbs_mom")
    job.wait("H")
    time.sleep(2)  # pbs_mom removes files of a job that has ended later
    job.release("node1")
    job.finish()


@pytest.mark.parametrize("harm", ["server's key"], indirect=True)
def test_image_that_could_not_leave_its_node_is_not_left_behind(cluster, layout, torque, jobs, node1, harm):
    """remove.yml looks on each node, and once more before it removes the hooks from there."""
    job = jobs.counts()
    image = "%s/%s.CK/%s" % (OWN, job.id, job.hold()["checkpoint_name"])
    node1.ask("for _ in $(seq 600); do journalctl -t ckpt-torque | grep -F '%s cannot be copied' && break; sleep 0.2; done; test -d %s"
              % (image, image))
    pattern = (r"node1: the stores have \d+ images?, of (.*, )?%s; {} remove images without a job \(torque-ckpt prune --orphans\), or set "
               r"remove_images to keep, with which they stay and can be restarted after ckpt\.torque\.site; {}\." % re.escape(job.id))
    refusal(cluster.playbook("remove", **layout, **BEFORE), re.compile(pattern.format("let these jobs end, and", "nothing was changed")))
    again = "Check that no image has come to the node's own store"
    refusal(cluster.playbook("remove", "--limit", "node1", "--start-at-task", again, **layout, **BEFORE),
            re.compile(pattern.format("apply ckpt\\.torque\\.site, let these jobs end, and", "the hooks stay on this node")))
    job.release("node1")
    job.finish()


@pytest.mark.parametrize("harm", ["server's key"], indirect=True)
def test_periodic_image_that_is_due_in_a_hold_that_is_cut_off(cluster, torque, jobs, node1, harm):
    """The hold's image stays. Without the patch one-checkpoint another hook failed, and pbs_mom removed the images with the job."""
    with jobs.due(node1, "qhold") as job:
        pass
    image = "%s/%s.CK/%s" % (OWN, job.id, job.wait("H")["checkpoint_name"])
    node1.ask("for _ in $(seq 300); do journalctl -t ckpt-torque | grep -qF '%s cannot be copied' && break; sleep 0.1; done; "
              "for _ in $(seq 300); do [ -e /var/spool/torque/mom_priv/jobs/%s.JB ] || break; sleep 0.1; done; test -f %s/manifest.json"
              % (image, job.id, image))
    job.release("node1")
    job.finish()


class Others(Qjob):
    """A job of another user's."""

    OWNER = "bob"


def test_pipes_that_the_owner_puts_into_images(cluster, torque, node1):
    """Nobody waits for their other ends, not for ten of them: neither copies to the server nor pbs_server. Without them the jobs go on."""
    head = cluster.nodes["head"]
    with slots(head, 10), Jobs(cluster) as jobs:
        held = [jobs.counts() for _number in range(10)]
        with slow_copies(node1):
            held[0].user("%s/qhold %s" % (BIN, " ".join(job.id for job in held)))
            find = "for _ in $(seq 600); do ls -d %s/%s.CK/ckpt.* 2> /dev/null && exit; sleep 0.1; done; exit 1"
            images = [node1.ask(find % (OWN, job.id)) for job in held]
            node1.ask("for image in %s; do runuser -u alice -- mkfifo $image/zz; done" % " ".join(images))
            with Jobs(cluster, kind=Others) as others:
                others.counts("-l", "nodes=node2").finish()
            node1.ask("touch /run/go")
            sentence = "%s cannot be copied to head: it is no image, its zz is not a regular file; it stays on node node1"
            refused = {sentence % image for image in images}
            for _attempt in range(150):
                head.ask("timeout 10 %s/qstat -f" % BIN)
                lines = node1.run("journalctl -t ckpt-torque -o cat | grep 'cannot be copied'").out
                refused = {text for text in refused if text not in lines}
                if not refused:
                    break
                time.sleep(0.2)
        assert not refused, lines
        for job, image in zip(held, images):
            job.wait("H")
            node1.ask("rm %s/zz" % image)
            job.release("node1")
        for job in held:
            job.finish()


def write_deep_tree(shown, directory):
    """Return commands for sftp (str) that make a tree in a directory, with a path of more than 4096 bytes.

    :param shown: the directory (str), as sftp names it
    :param directory: the same, as pbs_server names it
    """
    # Two chains of directories, since sftp's server takes no path that long; the one is moved to the end of the other.
    moved, other = ["e" * 200] * 9 + ["e" * (4090 - len(directory) - 19 * 201 - 1)], ["d" * 200] * 10
    enter_moved, enter_other = ["".join("mkdir {0}\ncd {0}\n".format(name) for name in chain) for chain in (moved, other)]
    return "cd {0}\n{1}put /etc/hostname {2}\ncd {0}\n{3}rename {4}{5} {5}".format(
        shown, enter_moved, "A" * 255, enter_other, "../" * len(other), moved[0])


def test_tree_that_the_owner_puts_into_the_servers_directory(cluster, torque, jobs, node1):
    """By the service that his images come by. pbs_server removes it with the job, and lives."""
    job = jobs.counts()
    job.hold()
    directory, before = "%s/%s.CK" % (CHECKPOINTS, job.id), storms.processes(cluster)
    job.head.ask("for _ in $(seq 300); do [ -e {0} ] && exit; sleep 0.1; done; exit 1".format(directory))
    node1.ask("runuser -u alice -- sftp -q -F %s/ssh_config -b - alice@head <<'X'\n%s\nX"
              % (COPIES, write_deep_tree("/checkpoint/%s.CK" % job.id, directory)))
    assert int(job.head.ask("find %s -name 'AAA*' | wc -c" % directory)) > 4096
    with forgotten_at_once(job):
        job.root("qdel " + job.id)
        job.head.ask("for _ in $(seq 300); do [ -e {0} ] || exit 0; sleep 0.1; done; exit 1".format(directory))
        assert storms.processes(cluster) == before


def test_directory_that_another_user_made_first(cluster, torque, jobs, node1):
    job = jobs.counts()
    where = "%s/%s.CK" % (OWN, job.id)
    node1.ask("runuser -u bob -- mkdir -m 777 %s" % where)
    job.user("%s/qchkpt %s" % (BIN, job.id))
    job.comment("cannot use the directory of job images %s: it is another user's (1501); remove it" % where)
    node1.ask("rmdir %s" % where)
    job.finish()


NEEDED = ("{node}: where checkpoint_store_shared_enabled is false checkpoint_store_mount must be empty and checkpoint_store_users must "
          "name a user, as whom the transfer of an image to the server and back is tested; nothing was changed.")


@pytest.mark.parametrize("variables, sentence", [
    ({"checkpoint_store_users": []}, NEEDED),
    ({"checkpoint_store_mount": {"src": "nfs1:/srv/ckpt"}}, NEEDED),
    ({"checkpoint_store_mode": "0777"}, "checkpoint_store_path (/var/lib/ckpt-store) must be an absolute path of plain characters at "
     "least two levels deep and checkpoint_store_mode (0777) must let others search but not write, or be 1777; nothing was changed."),
    ({"torque_mom_usecp": ["*:/var /var"]}, "{node}: torque_mom_usecp has *:/var /var, which takes in the server's checkpoint directory "
     "/var/spool/torque/checkpoint: pbs_mom would copy images there on this node, and remove them; name the paths that are meant, and "
     "checkpoint_store_transfer_directory where that directory is mounted; nothing was changed."),
])
def test_bad_input(cluster, layout, variables, sentence):
    if "torque_mom_usecp" in variables and not cluster.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")
    done = cluster.playbook("site", **dict(layout, **variables))
    assert done.code != 0
    for node in ("node1", "node2"):
        assert '"msg": "%s"' % sentence.format(node=node) in done.out, done.out


def test_layout_after(cluster, torque, jobs, tmp_path):
    """A job held among the nodes' own stores goes on when the store is shared again, and is held and moved as before."""
    job = jobs.counts()
    job.hold()
    site(cluster, **AFTER)
    unchanged(site(cluster, **AFTER))
    assert re.search("^%s +alice " % job.id, cluster.nodes["head"].ask("torque-ckpt list"), re.MULTILINE)
    job.release("node2")
    # Without the patch held-in-copy pbs_mom never answers a qhold that comes while it still fetches the image.
    restarted = "journalctl -q -t ckpt-torque | grep -q 'hook=restart .*job=%s .*outcome=restarted'" % job.id
    job.until(lambda facts: cluster.nodes["node2"].run(restarted).code == 0, "was not restarted")
    job.hold()
    job.release("node1")
    job.finish()
    path = ["node1", "node2"] * 2
    assert validated(cluster, tmp_path) == [["L2", path], ["L3", path]]


def test_checkpoint_directory_that_is_mounted(cluster, layout, tmp_path):
    """Nodes reach the server's directory by a path, and copy there without ssh."""
    head = cluster.nodes["head"]
    head.ask("mkdir -p /shared/.disks/server && mount --bind /shared/.disks/server %s" % CHECKPOINTS)
    for name in ("node1", "node2"):
        cluster.nodes[name].ask("mkdir -p {0} && mount --bind /shared/.disks/server {0}".format(MOUNTED))
    variables = dict(layout, checkpoint_store_transfer_directory=MOUNTED)
    try:
        site(cluster, **variables)
        unchanged(site(cluster, **variables))
        head.ask("systemctl stop ckpt-torque-copies")
        path = ["node1", "node2"] * 2
        assert validated(cluster, tmp_path, **variables) == [["L2", path]] + [["L3", path]] * cluster.torque
    finally:
        for name in ("node1", "node2"):
            cluster.nodes[name].ask("umount " + MOUNTED)
        head.ask("umount " + CHECKPOINTS)
