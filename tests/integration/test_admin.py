"""torque-ckpt on real hosts; with TORQUE, the images of jobs that are gone."""
import json
import time

import pytest
from cluster import CONFIG, HOOKS, STORE
from jobs import BIN, Jobs, await_nodes

STATE = "/var/lib/ckpt-torque"


@pytest.fixture
def head(cluster):
    return cluster.nodes["head"]


def ckpt(node, arguments, user=None, code=0):
    """Run torque-ckpt --json; return what it said (dict)."""
    done = node.run("%storque-ckpt %s --json" % ("runuser -u %s -- " % user if user else "", arguments))
    assert done.code == code, done.err
    return json.loads(done.out)


def configured(node, **settings):
    """Change the configuration of a host; return the shell text that puts it back."""
    node.ask("""test -e {0}.good || cp -p {0} {0}.good; python3 - <<'X'
import json
settings = json.load(open("{0}"))
settings.update({1})
json.dump(settings, open("{0}", "w"))
X""".format(CONFIG, settings))
    return "mv {0}.good {0}".format(CONFIG)


# -- images ------------------------------------------------------------------------------------------------------------

def test_an_image_is_seen_from_the_servers_host_by_root_and_its_owner(job, node1, head):
    held = job(node1)
    held.hold()
    path = "%s/%s" % (held.directory, held.name())
    for user, authentic in ((None, True), ("alice", None)):
        image, = ckpt(head, "verify " + held.id, user)["images"]
        assert (image["path"], image["state"], image["owner"], image["node"]) == (path, "whole", "alice", "node1")
        assert image["authentic"] is authentic
    assert [entry["job"] for entry in ckpt(head, "list")["images"]] == [held.id]
    assert ckpt(head, "list", "bob")["images"] == []
    assert head.run("runuser -u bob -- torque-ckpt verify " + path).code == 66
    nodes = ckpt(head, "show " + path)["nodes"]
    assert nodes == [{"node": name, "fits": True, "why": ""} for name in ("node1", "node2")]


def test_a_changed_byte_is_found_from_another_host(job, node1, head):
    held = job(node1)
    held.hold()
    pages = "%s/%s/pages-1.img" % (held.directory, held.name())
    node1.ask("printf X | dd of=%s bs=1 seek=4096 conv=notrunc status=none" % pages)
    done = head.run("torque-ckpt verify " + held.id)
    assert done.code == 65
    assert done.out == ("{0}: damaged: image {0} is damaged: pages-1.img has another content than was written; take an older image\n"
                        .format("%s/%s" % (held.directory, held.name())))


BAD = {
    "another type": "dict(manifest, generation='x')",
    "a number of 401 digits": "dict(manifest, plain_bytes=10 ** 400)",
    "200,000 brackets": "'[' * 200000",
    "a text of 10 MiB": "dict(manifest, node='x' * (10 << 20))",
}
WRITE = """\
import json, sys
manifest = json.load(open(sys.argv[1]))
content = %s
open(sys.argv[2], "w").write(content if isinstance(content, str) else json.dumps(content))
"""


def rewrite(node, path, content):
    """Have alice write what BAD says (str) in the place of a manifest of hers."""
    node.ask("runuser -u alice -- sh -c '[ -e {0}.kept ] || cp {0} {0}.kept; chmod u+w {0}; python3 - {0}.kept {0}' <<'X'\n{1}\nX"
             .format(path, WRITE % content))


def test_manifests_that_one_user_writes_keep_nobody_from_the_other_images(job, node1, head):
    """Such an image is listed as damaged, and stays."""
    other, held = job(node1), job(node1)
    other.hold()
    held.hold()
    path = "%s/%s/manifest.json" % (held.directory, held.name())
    for name, content in BAD.items():
        rewrite(node1, path, content)
        assert {image["job"]: image["state"] for image in ckpt(head, "list")["images"]} == {other.id: "whole", held.id: "damaged"}, name
        done = head.run("torque-ckpt prune")
        assert (done.code, done.err) == (0, ""), name
        assert head.run("test -e " + path).code == 0, name


def test_what_a_killed_hook_leaves_is_removed(job, node1, head):
    running = job(node1)
    left = "%s/.ckpt.%s.9@node1:1:1" % (running.directory, running.id)
    assert running.checkpoint(0).code == 0
    node1.ask("runuser -u alice -- sh -c 'mkdir %s && touch %s/pages-1.img'" % (left, left))
    assert [image["state"] for image in ckpt(node1, "list")["images"]] == ["leftover", "whole"]
    assert [(fact["kind"], fact["path"], fact["action"]) for fact in ckpt(node1, "prune --dry-run")["removed"]] == [
        ("leftover", left, "would be removed")]
    assert [fact["action"] for fact in ckpt(node1, "prune")["removed"]] == ["removed"]
    assert [image["state"] for image in ckpt(head, "list")["images"]] == ["whole"]


def test_engine_is_proven(node1, head):
    result = ckpt(node1, "selftest --user alice")
    assert result["passed"] and result["counter_after"] > result["counter_before"] > 0 and result["exit_status"] == 7
    assert head.run("torque-ckpt selftest").code == 1  # no engine there


def test_status_tells_of_jobs_and_failures(job, node1, node2):
    held = job(node1)
    held.hold()
    held.move(node2)
    jobs = ckpt(node2, "status")["jobs"]
    assert [(entry["job"], entry["owner"]) for entry in jobs] == [(held.id, "alice")]
    node2.hook("checkpoint", 1, "77.head", "alice", "-", "/tmp/77.head.CK", "ckpt.77.head.1", 15, "-")
    last = ckpt(node2, "status")["failures"][-1]
    assert (last["hook"], last["job"], last["code"]) == ("checkpoint", "77.head", 77)
    assert last["sentence"].startswith("directory /tmp/77.head.CK is in none of this node's stores")
    assert "failures" in ckpt(node2, "status", "alice") and ckpt(node2, "status", "alice")["failures"] == []


def test_metrics_and_the_line_in_the_journal(job, node1):
    back = configured(node1, metrics_directory="/var/lib/ckpt-metrics")
    try:
        running = job(node1)
        assert running.checkpoint(0).code == 0
        text = node1.ask("cat /var/lib/ckpt-metrics/ckpt_torque.prom")
        assert 'ckpt_torque_checkpoints_total{engine="criu",outcome="continued"}' in text and running.id not in text
        line = node1.ask("journalctl -t ckpt-torque --no-pager -o cat | grep job=%s | tail -n 1" % running.id)
        facts = dict(word.split("=", 1) for word in line.split())
        assert (facts["hook"], facts["outcome"], facts["node"], facts["engine"]) == ("checkpoint", "continued", "node1", "criu")
        for phase in ("admit", "dump", "manifest", "publish"):
            assert float(facts[phase + "_seconds"]) <= float(facts["seconds"])
        assert int(facts["bytes"]) > 100000
    finally:
        node1.ask("%s; rm -rf /var/lib/ckpt-metrics" % back)


def test_command_manuals_and_completion_are_there(node1, head):
    for host in (node1, head):
        assert host.ask("cmp %s/torque-ckpt /usr/local/bin/torque-ckpt && head -n 1 /usr/local/share/man/man1/torque-ckpt.1" % HOOKS)
        assert host.ask("head -n 1 /usr/local/share/man/man7/ckpt-torque.7")
        words = host.ask("bash -c '. /usr/local/share/bash-completion/completions/torque-ckpt; COMP_WORDS=(torque-ckpt pr); COMP_CWORD=1; "
                         "_shtab_torque_ckpt; echo ${COMPREPLY[@]}'")
        assert words == "prune"


# -- images of jobs that are gone ----------------------------------------------------------------------------------------

@pytest.fixture
def gone(cluster, head):
    """Return a function that removes orphans; the grace time is over at once, and jobs that ended are forgotten at once."""
    if not cluster.torque:
        pytest.skip("there is no TORQUE source; name a tarball in TORQUE_SOURCE")
    back = configured(head, orphan_grace_days=0)
    head.ask("%s/qmgr -c 'set server keep_completed = 0'" % BIN)
    yield lambda *arguments: [(fact["job"], fact["action"]) for fact in ckpt(head, " ".join(("prune --orphans",) + arguments))["removed"]
                              if fact["kind"] == "orphan"]
    head.ask("systemctl start pbs_server pbs_sched; %s" % back)  # the one is stopped with the other
    head.ask("for _ in $(seq 300); do %s/qmgr -c 'set server keep_completed = 300' && exit; sleep 0.2; done; exit 1" % BIN)
    await_nodes(head)


@pytest.fixture
def held(cluster):
    """A real job of alice's that was held."""
    with Jobs(cluster) as jobs:
        job = jobs.counts()
        job.hold()
        yield job


def forgotten(job):
    """Let the job end; wait until the server knows it no more."""
    job.release("node2")
    job.sign("go")
    deadline = time.time() + 60
    while job.facts():
        assert time.time() < deadline, job.facts()
        time.sleep(0.2)


def content(node):
    return node.ask("find %s -name '*.CK' -exec find {} + | sort" % STORE)


def test_images_of_a_job_go_when_the_server_has_forgotten_it(gone, held, head):
    before = content(head)
    assert held.id + ".CK" in before
    assert gone() == []  # it is held
    assert content(head) == before
    forgotten(held)
    assert gone("--dry-run") == [(held.id, "would be removed")]
    assert held.id + ".CK" in content(head)
    assert gone() == [(held.id, "removed")]
    assert content(head) == ""
    line = head.ask("journalctl -t ckpt-torque --no-pager -o cat | tail -n 1")
    assert line.startswith("hook=prune action=removed bytes=") and "job=%s kind=orphan owner=alice" % held.id in line


def test_grace_time(gone, held, head):
    forgotten(held)
    configured(head, orphan_grace_days=7)
    (job, action), = gone()
    assert job == held.id and action.startswith("waits until ")
    assert held.id + ".CK" in content(head)
    assert list(json.loads(head.ask("cat %s/orphans.json" % STATE))["unknown"]) == ["%s/%s.CK" % (STORE, held.id)]
    assert head.ask("stat -c '%%U %%a' %s/orphans.json" % STATE) == "root 600"


def test_timer_does_it(gone, held, head):
    assert head.ask("systemctl is-enabled ckpt-torque-orphans.timer; systemctl is-active ckpt-torque-orphans.timer") == "enabled\nactive"
    forgotten(held)
    head.ask("systemctl start ckpt-torque-orphans.service")
    assert content(head) == ""


def test_timer_does_it_beside_manifests_that_one_user_writes(gone, held, head):
    """His image stays, the orphan of another user is removed."""
    path, orphan = held.image() + "/manifest.json", STORE + "/9999.head.CK"
    for name, text in BAD.items():
        rewrite(head, path, text)
        head.ask("install -d -o bob -g bob {0} {0}/x".format(orphan))
        head.ask("systemctl start ckpt-torque-orphans.service")
        assert head.ask("ls -d %s/*.CK" % STORE) == "%s/%s.CK" % (STORE, held.id), name
        assert [image["state"] for image in ckpt(head, "list")["images"]] == ["damaged"], name


def test_timer_goes_by_what_an_interrupted_run_wrote(cluster, torque, head):
    """systemd has not read it when the next run begins."""
    timer, times = "/etc/systemd/system/ckpt-torque-orphans.timer", "systemctl show -P TimersCalendar ckpt-torque-orphans.timer"
    head.ask("cp {0} /run/timer && sed -i 's/^OnCalendar=.*/OnCalendar=2099-01-01/' {0} && systemctl daemon-reload && cp /run/timer {0}; "
             "rm /run/timer".format(timer))
    assert "2099" in head.ask(times)
    done = cluster.playbook("site")
    assert (done.code, done.changed("head")) == (0, 0), done.out
    assert "2099" not in head.ask(times)


STOP = "timeout 300 sh -c 'while :; do pkill -STOP -u alice -x torque-ckpt; done'"
"""Stop whatever of the hooks runs as alice; to be run by her."""


def test_user_who_stops_the_timers_part_that_is_his_keeps_nobody_waiting(gone, head):
    """The unit leaves root the right to kill that part (CAP_KILL); the unit tests show how that part is told from others."""
    alices, bobs = ("999%d.head.CK" % number for number in range(2))
    head.ask("cd {0}; install -d -o alice -g alice {1} {1}/x; install -d -o bob -g bob {2}; "
             "cd {1}/x; seq 20000 | xargs touch; chown -R alice .".format(STORE, alices, bobs))
    try:
        head.ask("nohup runuser -u alice -- %s > /dev/null 2>&1 & until pgrep -u alice -x pkill > /dev/null; do :; done" % STOP)
        assert head.run("systemctl start ckpt-torque-orphans.service", 300).code != 0  # 30 seconds for each part that she catches
        head.ask("pkill -u alice -x timeout")
        left = content(head)
        assert alices in left and bobs not in left
        journal = head.ask("journalctl -q -o cat -u ckpt-torque-orphans.service | tail -n 20")
        assert "runs as alice was stopped for 30 seconds and was killed; try again" in journal, journal
        assert head.run("pgrep -u alice -x torque-ckpt").code == 1
        head.ask("systemctl start ckpt-torque-orphans.service")
        assert content(head) == ""
    finally:
        head.run("pkill -u alice -x timeout; systemctl reset-failed; rm -rf {0}/{1} {0}/{2}".format(STORE, alices, bobs))


def test_nothing_goes_while_the_server_does_not_answer(gone, held, head):
    forgotten(held)
    before = content(head)
    head.ask("systemctl stop pbs_server")
    done = head.run("torque-ckpt prune --orphans")
    assert (done.code, done.out) == (69, "")
    assert done.err.startswith("torque-ckpt: pbs_server does not answer (qstat -B -f exited ")
    assert done.err.endswith("; nothing was removed\n") and done.err.count("\n") == 1
    assert content(head) == before
    assert head.run("systemctl start ckpt-torque-orphans.service").code != 0  # it is seen in systemctl --failed
    head.ask("systemctl reset-failed")
    assert content(head) == before
