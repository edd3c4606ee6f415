import glob
import json
import os
import re
import signal

import pytest
from engine_scripts import OPEN_FILES, STOPPING

from torque_ckpt import errors
from torque_ckpt.job import identity, lock
from torque_ckpt.job.records import Records
from torque_ckpt.store import location
from torque_ckpt.system import processes
from torque_ckpt.telemetry import metrics

ARGUMENTS = ["4711", "12.head", "nobody", "-", "/shared/ckpt/12.head.CK", "ckpt.12.head.1", "15", "-"]

SCRIPTED = """
case $1 in
dump)
    echo memory > $5/pages.img
    OPEN_FILES
    [ $7 = --action-script ] || exit 1
    export CRTOOLS_IMAGE_DIR=$5
    CRTOOLS_SCRIPT_ACTION=pre-dump $8 || exit 1
    CRTOOLS_SCRIPT_ACTION=post-dump $8 || exit 1
    echo "line 2" >> %s
    ;;
--version) echo 'Version: 4.1.1' ;;
esac
""".replace("OPEN_FILES", OPEN_FILES)


# Refusals

@pytest.mark.parametrize("number", [0, 1, 7])
def test_with_too_few_arguments(hook, number):
    assert hook("checkpoint", ARGUMENTS[:number]) == (
        errors.USAGE, "", "checkpoint: expected 8 arguments (session_id job_id user group directory name signal depth), got %d; pbs_mom "
        "cuts lines over 1024 bytes, so look for an overlong checkpoint directory; nothing was done\n" % number)


def test_with_a_malformed_argument(hook):
    assert hook("checkpoint", ARGUMENTS[:4] + ["/tmp/x;id>/tmp/y;"] + ARGUMENTS[5:]) == (
        errors.USAGE, "", "checkpoint: directory '/tmp/x;id>/tmp/y;' is not an absolute path of plain characters without . and ..; nothing "
                          "was done; give the job or its queue another checkpoint directory\n")


def test_without_a_configuration(hook):
    assert hook("checkpoint", ARGUMENTS) == (
        errors.CONFIG, "", "configuration /nonexistent/hooks.json cannot be read (No such file or directory); "
        "run the role checkpoint_hooks on this node\n")


def checkpoint(hook, site, session="-", signal_number="15", cwd=None, depth="-", **values):
    return hook("checkpoint", site.arguments(session=str(session), **values) + [signal_number, depth], site.config, cwd=cwd)


def read_phases(site):
    """Return what was counted for each phase of the checkpoint hook (seconds)."""
    counters = metrics.read_counters({"state_directory": site.state_directory})
    return {labels[1]: seconds for (name, labels), seconds in counters.series.items()
            if name == "ckpt_torque_phase_seconds_total" and labels[0] == "checkpoint"}


@pytest.mark.root
def test_configuration_of_another_owner(hook, site):
    os.chown(site.config, site.user.uid, -1)
    assert checkpoint(hook, site) == (
        errors.CONFIG, "", "configuration %s must be root's and writable by nobody else; run the role checkpoint_hooks on this node\n"
        % site.config)


@pytest.mark.root
def test_user_that_is_not_known(hook, site):
    assert checkpoint(hook, site, user="no_such_user_here") == (
        errors.NO_USER, "", "user no_such_user_here is not known on this node; compare the account database with the other nodes\n")


@pytest.mark.root
def test_job_of_root(hook, site):
    assert checkpoint(hook, site, user="root") == (
        errors.NO_USER, "", "jobs of root are not checkpointed: an image would run with root's rights when it is restarted; submit the job "
                            "as another user\n")


@pytest.mark.root
def test_directory_in_no_store(hook, site):
    assert checkpoint(hook, site, directory="/tmp/12.head.CK") == (
        errors.REFUSED, "", "directory /tmp/12.head.CK is in none of this node's stores (%s); set the job's checkpoint directory beneath "
        "one\n" % site.store)


@pytest.mark.root
def test_store_that_is_not_mounted(hook, site):
    os.unlink(os.path.join(site.store, location.MARKER))
    assert checkpoint(hook, site) == (
        errors.CONFIG, "", "store %s is not usable on this node: %s/.ckpt-torque-store: No such file or directory; is it mounted?\n"
        % (site.store, site.store))


@pytest.mark.root
def test_engine_that_is_not_known(hook, site):
    site.configure(engine="dmtcp")
    assert checkpoint(hook, site) == (
        errors.CONFIG, "", "engine 'dmtcp' is not known to these hooks (known: blcr, criu); set checkpoint_hooks_engine\n")


@pytest.mark.root
def test_engine_that_is_not_there(hook, site):
    os.unlink(site.criu)
    assert checkpoint(hook, site) == (errors.CONFIG, "", "criu is not at %s on this node; run the role criu\n" % site.criu)


@pytest.mark.root
def test_job_that_is_not_here(hook, site, free_pid):
    assert checkpoint(hook, site, free_pid) == (
        errors.GONE, "", "job 12.head has no running process started by the run or restart hook on this node (session %d); "
        "was $checkpoint_run_exe set when it started?\n" % free_pid)
    spent = read_phases(site)
    assert spent["wait"] > 1 and spent["admit"] < spent["wait"]


@pytest.mark.root
@pytest.mark.parametrize("job_id, own", [("13.head", True), ("12.head", False), (None, True)])
def test_process_that_is_not_the_jobs(hook, site, start_job, state_of, job_id, own):
    job = start_job(job_id, user=site.user if own else None)
    assert checkpoint(hook, site, job.leader) == (
        errors.REFUSED, "", "process %d is not job 12.head of nobody (its uid is %d, its PBS_JOBID is %s); it was left alone; see whether "
                            "the job runs on this node, with PBS_JOBID in its environment\n"
        % (job.pids[0], site.user.uid if own else 0, job_id or "not set"))
    assert state_of(job.pids[0]) == "S"
    assert site.content() == {}


# Programs of the site

@pytest.fixture
def noted(site, program, open_directory):
    """Return a function that has the site's programs note in a file when they run, and returns what is in it.

    The one for before does what text says then.
    """
    note = os.path.join(open_directory, "note")
    open(note, "w").close()
    os.chmod(note, 0o666)

    def configure(pre="", post="", **settings):
        for name, text in (("pre", pre), ("post", post)):
            program("echo %s $CKPT_EVENT $CKPT_NAME $(id -un) >> %s\n%s\n" % (name, note, text), name)
        site.configure(pre_program=open_directory + "/pre", post_program=open_directory + "/post", **settings)

    def read():
        with open(note) as stream:
            return stream.read().splitlines()
    configure.read = read
    return configure


PRE = "pre %s ckpt.12.head.2 nobody"
POST = "post continue ckpt.12.head.2 nobody"


@pytest.mark.root
@pytest.mark.parametrize("signal_number, lines", [("0", [PRE % "checkpoint", POST]), ("15", [PRE % "hold"])])
def test_programs_of_the_site_run_around_a_checkpoint(hook, site, program, start_job, noted, signal_number, lines):
    job = start_job(user=site.user)
    program(SCRIPTED % "/dev/null" if signal_number == "0" else STOPPING)
    noted()
    assert checkpoint(hook, site, job.leader, signal_number) == (0, "", "")
    assert noted.read() == lines


@pytest.mark.root
@pytest.mark.parametrize("signal_number, event", [("0", "checkpoint"), ("15", "hold")])
def test_program_of_the_site_runs_after_a_checkpoint_that_failed(hook, site, start_job, state_of, noted, signal_number, event):
    job = start_job(user=site.user)
    noted(post="exit 3")
    assert checkpoint(hook, site, job.leader, signal_number) == (
        errors.ENGINE, "", "criu dump failed with status 1: it would not; the job keeps running; see whether torque-ckpt selftest passes "
                           "on this node (as root)\n")
    assert noted.read() == [PRE % event, POST]
    assert state_of(job.pids[0]) == "S"


@pytest.mark.root
@pytest.mark.parametrize("text, how", [("echo no licence >&2; exit 3", "ended with status 3 (no licence)"),
                                       ("exec sleep 60", "took longer than 1 seconds and was killed")])
def test_program_of_the_site_that_fails_refuses_the_checkpoint(hook, site, program, start_job, state_of, noted, text, how):
    job = start_job(user=site.user)
    program(STOPPING)
    noted(pre=text, program_seconds=1)
    assert checkpoint(hook, site, job.leader) == (
        errors.TEMPORARY, "", "%s/pre %s; the job keeps running; try again, or ask the administrator about checkpoint_hooks_pre_program\n"
        % (os.path.dirname(site.config), how))
    assert noted.read() == [PRE % "hold", POST]
    assert state_of(job.pids[0]) == "S"
    assert sorted(read_phases(site)) == ["admit", "programs"]
    assert site.content() == {}


@pytest.mark.root
def test_program_of_the_site_that_fails_afterwards_changes_nothing(hook, site, program, start_job, noted):
    job = start_job(user=site.user)
    program(SCRIPTED % "/dev/null")
    noted(post="exit 3")
    assert checkpoint(hook, site, job.leader, "0") == (0, "", "")
    assert noted.read() == [PRE % "checkpoint", POST]


@pytest.mark.root
def test_program_of_a_user_is_refused(hook, site, start_job, open_directory, noted):
    job = start_job(user=site.user)
    noted()
    os.chown(open_directory + "/pre", site.user.uid, -1)
    assert checkpoint(hook, site, job.leader) == (
        errors.CONFIG, "", "%s/pre must be root's and writable by nobody else, because the checkpoint_hooks_pre_program runs as the owner "
        "of each job; correct it with chown root and chmod go-w; nothing was done\n" % open_directory)
    assert noted.read() == []


# A checkpoint that fails leaves the job running and the older images as they were

@pytest.mark.root
@pytest.mark.parametrize("signal_number", ["0", "15"])
def test_failed_dump(hook, site, start_job, state_of, signal_number):
    job = start_job(user=site.user)
    site.publish("ckpt.12.head.1", 7, [7])
    before = site.content()
    assert checkpoint(hook, site, job.leader, signal_number) == (
        errors.ENGINE, "", "criu dump failed with status 1: it would not; the job keeps running; see whether torque-ckpt selftest passes "
                           "on this node (as root)\n")
    assert sorted(read_phases(site)) == ["admit", "dump"]
    assert state_of(job.pids[0]) == "S"
    assert site.content() == before


@pytest.mark.root
def test_dump_that_takes_too_long(hook, site, program, start_job, state_of):
    job = start_job(user=site.user)
    program("echo part > $5/pages.img\nexec sleep 60\n")
    site.configure(engine_timeout=1)
    assert checkpoint(hook, site, job.leader) == (errors.ENGINE, "", "%s took longer than 1 seconds and was killed; allow it more time "
                                                                     "(checkpoint_hooks_engine_timeout)\n" % site.criu)
    assert state_of(job.pids[0]) == "S"
    assert site.content() == {}


@pytest.mark.root
def test_hold_whose_engine_then_says_no_version(hook, site, program, start_job, state_of, wait_until):
    job = start_job(user=site.user)
    program(STOPPING.replace("Version: ", ""))
    assert checkpoint(hook, site, job.leader) == (errors.ENGINE, "", "%s --version failed: 4.1.1; run the role criu\n" % site.criu)
    wait_until(lambda: state_of(job.pids[0]) == "S")
    assert site.content() == {}


@pytest.mark.root
def test_hold_whose_image_cannot_be_published(hook, site, program, start_job, state_of, wait_until):
    job = start_job(user=site.user)
    program(STOPPING)
    os.makedirs(site.directory + "/ckpt.12.head.2/something")
    before = site.content()
    assert checkpoint(hook, site, job.leader) == (
        errors.CANNOT_WRITE, "", "cannot publish image ckpt.12.head.2: what has its name is not an older image; it is kept; move it away, "
                                 "or try again a second later\n")
    wait_until(lambda: state_of(job.pids[0]) == "S")
    assert site.content() == before


@pytest.mark.root
def test_failed_hold_of_a_suspended_job_leaves_it_suspended(hook, site, program, start_job, state_of, wait_until):
    job = start_job(user=site.user)
    os.kill(job.pids[0], signal.SIGSTOP)
    wait_until(lambda: state_of(job.pids[0]) == "T")
    program(STOPPING)
    os.makedirs(site.directory + "/ckpt.12.head.2/something")
    assert checkpoint(hook, site, job.leader).code == errors.CANNOT_WRITE
    assert state_of(job.pids[0]) == "T"


@pytest.mark.root
def test_job_directory_that_is_a_link(hook, site, start_job, state_of, open_directory):
    job = start_job(user=site.user)
    os.rmdir(site.directory)
    os.symlink(open_directory, site.directory)
    os.mkdir(site.run_directory)
    before = sorted(os.listdir(open_directory))
    assert checkpoint(hook, site, job.leader) == (
        errors.CANNOT_WRITE, "", "cannot use the directory of job images %s: Not a directory; see to the space, the quota and the rights "
                                 "in the store\n" % site.directory)
    assert state_of(job.pids[0]) == "S"
    assert os.listdir(site.run_directory + "/jobs") == []
    assert sorted(os.listdir(open_directory)) == before


@pytest.mark.root
def test_job_directory_of_another_user(hook, site, start_job, state_of):
    job = start_job(user=site.user)
    os.chown(site.directory, 0, 0)
    assert checkpoint(hook, site, job.leader) == (errors.CANNOT_WRITE, "", "cannot create image ckpt.12.head.2: Permission denied; see to "
                                                                           "the space, the quota and the rights in the store\n")
    assert state_of(job.pids[0]) == "S"
    assert site.content() == {}


# The job's output travels with the image

@pytest.mark.root
def test_hold_takes_the_output_along(hook, site, mom, program, start_job):
    output = mom + "/spool/12.head.OU"
    job = start_job(user=site.user, output=output)
    program(STOPPING)
    assert checkpoint(hook, site, job.leader, cwd=mom + "/mom_priv") == (0, "", "")
    content = site.content()
    assert content["ckpt.12.head.2/stdout"] == b"line 1\n"
    manifest = json.loads(content["ckpt.12.head.2/manifest.json"].decode())
    assert manifest["spool"] == [{"name": "stdout", "path": output, "mode": 0o600}]
    assert [entry["name"] for entry in manifest["files"]] == ["files.img", "pages.img", "stdout"]


@pytest.mark.root
def test_output_elsewhere_stays_where_it_is(hook, site, mom, program, start_job):
    job = start_job(user=site.user, output=site.directory + "/job.o12")
    program(STOPPING)
    assert checkpoint(hook, site, job.leader, cwd=mom + "/mom_priv") == (0, "", "")
    content = site.content()
    assert json.loads(content["ckpt.12.head.2/manifest.json"].decode())["spool"] == []
    assert "ckpt.12.head.2/stdout" not in content


@pytest.mark.root
def test_job_that_goes_on_leaves_what_it_wrote_after_the_image(hook, site, mom, program, start_job):
    output = mom + "/spool/12.head.OU"
    job = start_job(user=site.user, output=output)
    program(SCRIPTED % output)
    assert checkpoint(hook, site, job.leader, "0", cwd=mom + "/mom_priv") == (0, "", "")
    assert site.content()["ckpt.12.head.2/stdout"] == b"line 1\n"
    with open(output) as stream:
        assert stream.read() == "line 1\nline 2\n"


@pytest.mark.root
def test_engine_that_does_not_call_the_witness(hook, site, program, start_job, state_of):
    job = start_job(user=site.user)
    program(SCRIPTED.replace("post-dump", "other") % "/dev/null")
    assert checkpoint(hook, site, job.leader, "0") == (
        errors.SYSTEM, "", "the engine did not call the hook while the job stood still, or the part of the hook it called died; see in "
                           "journalctl -k whether memory was short, and try again\n")
    assert state_of(job.pids[0]) == "S"
    assert site.content() == {}


@pytest.mark.root
def test_output_of_a_restarted_job_is_known_from_the_record(hook, site, mom, program, start_job):
    """The restart hook's own stdout is not the job's."""
    output = mom + "/spool/12.head.OU"
    job = start_job(user=site.user)
    with open(output, "w") as stream:
        stream.write("line 1\n")
    os.chown(output, site.user.uid, -1)
    identity.write_record(Records(site.run_directory, "12.head"), *map(processes.read_process, (job.leader, job.pids[0])), [output])
    program(STOPPING)
    assert checkpoint(hook, site, cwd=mom + "/mom_priv") == (0, "", "")
    assert site.content()["ckpt.12.head.2/stdout"] == b"line 1\n"


# Room

@pytest.mark.root
@pytest.mark.parametrize("signal_number", ["0", "15"])
def test_limit_of_the_user(hook, site, program, start_job, state_of, signal_number):
    job = start_job(user=site.user)
    program("kill -STOP $3\nexit 1\n")
    site.publish("ckpt.12.head.1", 7, [7])
    before = site.content()
    taken = sum(len(text) for text in before.values() if text)
    site.configure(user_limit=1 << 20)
    done = checkpoint(hook, site, job.leader, signal_number)
    assert done.code == errors.CANNOT_WRITE
    assert re.fullmatch(r"the image needs \d\.\d MiB, images of %s in store %s have (%d bytes|%.1f KiB) of the 1\.0 MiB that "
                        r"checkpoint_hooks_user_limit allows; the job keeps running; remove some, torque-ckpt list shows them\n"
                        % (site.user.name, site.store, taken, taken / 1024), done.stderr), done.stderr
    assert state_of(job.pids[0]) == "S"
    assert site.content() == before


@pytest.mark.root
@pytest.mark.parametrize("signal_number", ["0", "15"])
def test_store_without_room(hook, site, program, start_job, state_of, signal_number):
    job = start_job(user=site.user)
    program("kill -STOP $3\nexit 1\n")
    site.publish("ckpt.12.head.1", 7, [7])
    before = site.content()
    site.configure(reserve=1 << 50)
    done = checkpoint(hook, site, job.leader, signal_number)
    assert done.code == errors.CANNOT_WRITE
    assert re.fullmatch(r"the image needs \d\.\d MiB, store %s has \d+\.\d [GT]iB free, reserve 1024\.0 TiB; the job keeps running; "
                        r"free some space or lower checkpoint_hooks_reserve\n" % site.store, done.stderr)
    assert state_of(job.pids[0]) == "S"
    assert site.content() == before


@pytest.mark.root
def test_output_needs_room_too(hook, site, mom, program, start_job):
    output = mom + "/spool/12.head.OU"
    job = start_job(user=site.user, output=output)
    program(STOPPING)
    os.truncate(output, 1 << 43)
    done = checkpoint(hook, site, job.leader, cwd=mom + "/mom_priv")
    assert re.match(r"the image needs 8\.2 TiB, store ", done.stderr)


@pytest.mark.root
@pytest.mark.parametrize("signal_number", ["0", "15"])
@pytest.mark.parametrize("devices, more", [(["/dev/full"], ""), (["/dev/f*", "/dev/zero"], "; torque-ckpt check 12.head lists 1 more")])
def test_what_stands_in_the_way(hook, site, program, start_job, state_of, signal_number, devices, more):
    """It is reported before anything is stopped or written; the engine is not called."""
    holds = program('exec 8< /dev/full 9< /dev/zero\nexec /bin/sh -c "$2" "$3"\n', "holds")
    job = start_job(user=site.user, programs=(holds,))
    program("kill -STOP $3\nexit 1\n")
    site.publish("ckpt.12.head.1", 7, [7])
    before = site.content()
    site.configure(refused_devices=devices)
    assert checkpoint(hook, site, job.leader, signal_number) == (
        errors.REFUSED, "", "process %d (sh) has the device /dev/full open; CRIU cannot checkpoint that; the job keeps running; checkpoint "
        "the job when the process has closed the device%s\n" % (job.pids[0], more))
    assert state_of(job.pids[0]) == "S"
    assert site.content() == before


@pytest.mark.root
@pytest.mark.parametrize("words, advice", [
    ("Connected TCP socket, consider using --tcp-established option.", "checkpoint the job when the connection is closed"),
    ("Can't dump ghost file /tmp/x of 7 size, increase limit",
     "checkpoint the job when the process has closed it, or have the administrator raise checkpoint_hooks_node_local_bytes")])
def test_what_the_engine_refuses_has_advice(hook, site, program, start_job, words, advice):
    """The look has not seen it, neither before nor after."""
    job = start_job(user=site.user)
    program('echo "(00.1) Error (criu/x.c:1): %s"\nexit 1\n' % words)
    assert checkpoint(hook, site, job.leader) == (
        errors.REFUSED, "", "criu dump failed with status 1: %s; the job keeps running; %s\n" % (words, advice))


@pytest.mark.root
def test_what_came_after_the_look_is_named(hook, site, program, start_job, keeps_removed):
    """The engine's limit is another than ours here, so that only its words tell of it."""
    job = start_job(user=site.user, programs=(keeps_removed,))
    site.configure(node_local_bytes=31 << 20)
    program('[ $1 = dump ] || exit 0\nhead -c 2M /dev/zero >> /proc/%d/fd/9\n'
            'echo "(00.1) Error (criu/x.c:1): Can\'t dump ghost file, increase limit"\nexit 1\n' % job.pids[0])
    sentence = (r"process %d \(sh\) has the removed file .*/work/file of 32\.0 MiB open, of which at most 31\.0 MiB may be in an image; "
                r"CRIU cannot checkpoint that; the job keeps running; checkpoint the job when the process has closed it, or have "
                r"the administrator raise checkpoint_hooks_node_local_bytes\n")
    assert re.fullmatch(sentence % job.pids[0], checkpoint(hook, site, job.leader).stderr)


@pytest.fixture
def keeps_removed(open_directory, program, site):
    """A program (str) that has a file of 30 MiB open that it has removed, and then is the shell of start_job."""
    path = os.path.join(open_directory, "work")
    os.mkdir(path)
    os.chown(path, site.user.uid, -1)
    return program("head -c 30M /dev/zero > {0}/file\nexec 9< {0}/file\nrm {0}/file\nexec /bin/sh -c \"$2\" \"$3\"\n".format(path), "keeps")


@pytest.mark.root
def test_removed_files_need_room_too(hook, site, start_job, keeps_removed):
    job = start_job(user=site.user, programs=(keeps_removed,))
    site.configure(reserve=1 << 50)
    assert re.match(r"the image needs 3\d\.\d MiB, store ", checkpoint(hook, site, job.leader).stderr)


@pytest.mark.root
def test_engine_may_write_removed_files_up_to_what_may_travel(hook, site, program, start_job, keeps_removed):
    job = start_job(user=site.user, programs=(keeps_removed,))
    program('echo "$@" >&2; exit 1\n')
    site.configure(node_local_bytes=40 << 20)
    assert " --ghost-limit %d;" % (40 << 20) in checkpoint(hook, site, job.leader).stderr


# Generations

def generations(site):
    """What is in the job's directory (dict of generation by name)."""
    return {path.split("/")[0]: json.loads(content.decode())["generation"]
            for path, content in site.content().items() if path.endswith("/manifest.json")}


@pytest.mark.root
@pytest.mark.parametrize("depth, configured, left", [("-", 2, [3, 4]), ("0", 2, [3, 4]), ("-", 1, [4]), ("3", 2, [2, 3, 4]), ("1", 2, [4])])
def test_depth(hook, site, program, start_job, depth, configured, left):
    job = start_job(user=site.user)
    program(STOPPING.replace("kill -STOP $3; ", ""))
    site.configure(depth=configured)
    for number in range(1, 4):
        site.publish("ckpt.12.head.%d" % number, 7, [7], generation=number)
    os.mkdir(site.directory + "/mine")
    assert checkpoint(hook, site, job.leader, "0", name="ckpt.12.head.4", depth=depth) == (0, "", "")
    assert generations(site) == {"ckpt.12.head.%d" % number: number for number in left}
    assert sorted(os.listdir(site.directory)) == [".incarnation.12.head"] + ["ckpt.12.head.%d" % number for number in left] + ["mine"]


@pytest.mark.root
def test_failed_checkpoint_removes_no_generation(hook, site, start_job):
    job = start_job(user=site.user)
    for number in range(1, 4):
        site.publish("ckpt.12.head.%d" % number, 7, [7], generation=number)
    before = site.content()
    assert checkpoint(hook, site, job.leader, name="ckpt.12.head.4", depth="1").code == errors.ENGINE
    assert site.content() == before


@pytest.mark.root
def test_image_that_cannot_be_pruned_does_not_fail_the_checkpoint(hook, site, program, start_job):
    job = start_job(user=site.user)
    program(STOPPING)
    site.publish("ckpt.12.head.1", 7, [7])
    os.mkdir(site.directory + "/ckpt.12.head.1/strange")
    assert checkpoint(hook, site, job.leader, depth="1") == (0, "", "")
    assert generations(site)["ckpt.12.head.2"] == 2


@pytest.mark.root
def test_two_images_of_one_second(hook, site, program, start_job):
    job = start_job(user=site.user)
    program(STOPPING.replace("kill -STOP $3; ", ""))
    for generation in (1, 2):
        assert checkpoint(hook, site, job.leader, "0") == (0, "", "")
        assert generations(site) == {"ckpt.12.head.2": generation}
        assert sorted(os.listdir(site.directory)) == [".incarnation.12.head", "ckpt.12.head.2"]


@pytest.mark.root
def test_engine_that_outlives_its_caller(hook, site, program, start_job, state_of):
    """It stops the job when nobody waits for it any more."""
    job = start_job(user=site.user)
    program('[ "$1" = dump ] || exit 0\nkill -KILL $PPID\nsleep 0.5\nkill -STOP "$3"\n: > $5/pages-1.img\n')
    assert checkpoint(hook, site, job.leader, "15") == (
        errors.SYSTEM, "", "the part of the hook that runs as nobody died with wait status 9; see in journalctl -k whether memory was "
                           "short, and try again\n")
    assert [state_of(pid) for pid in job.pids] == ["S"]
    assert [name for name in site.content() if name.endswith("/pages-1.img")]  # by now
    assert not [name for name in os.listdir(site.run_directory + "/jobs") if name.endswith(".holding")]


@pytest.mark.root
def test_engine_that_outlives_its_caller_for_too_long(hook, site, program, start_job, state_of):
    job = start_job(user=site.user)
    site.configure(engine_timeout=1)
    program('[ "$1" = dump ] || exit 0\nkill -KILL $PPID\nkill -STOP "$3"\necho $$ > $5/pages-1.img\nexec sleep 60\n')
    assert checkpoint(hook, site, job.leader, "15").code == errors.SYSTEM
    assert [state_of(pid) for pid in job.pids] == ["S"]
    pid, = glob.glob(os.path.join(site.store, "*", ".*", "pages-1.img"))
    with open(pid) as stream:
        assert processes.read_process(int(stream.read())) is None


@pytest.mark.root
def test_leftover_of_a_hook_that_was_killed(hook, site, program, start_job, free_pid):
    job = start_job(user=site.user)
    program(STOPPING)
    left = "%s/.ckpt.12.head.1@%s:%d:7" % (site.directory, os.uname().nodename, free_pid)
    os.mkdir(left)
    with open(left + "/pages.img", "w") as stream:
        stream.write("half")
    os.chown(left, site.user.uid, -1)
    assert checkpoint(hook, site, job.leader) == (0, "", "")
    assert sorted(os.listdir(site.directory)) == [".incarnation.12.head", "ckpt.12.head.2"]


# One at a time

@pytest.mark.root
def test_another_hook_is_at_work(hook, site, start_job, state_of):
    job = start_job(user=site.user)
    site.configure(lock_timeout=1)
    with lock.hold_lock(Records(site.run_directory, "12.head"), "restart", 0, ""):
        done = checkpoint(hook, site, job.leader)
    assert done.code == errors.TEMPORARY
    assert re.fullmatch(r"a restart \(process %d, since [-0-9T:]+Z\) is at work on job 12\.head; waited 1 seconds; try again when it has "
                        r"ended; the job keeps running\n" % os.getpid(), done.stderr)
    assert state_of(job.pids[0]) == "S"
    assert site.content() == {}


@pytest.mark.root
@pytest.mark.parametrize("signal_number", ["0", "15"])
def test_no_lock_is_left(hook, site, program, start_job, signal_number):
    job = start_job(user=site.user)
    program(STOPPING)
    assert checkpoint(hook, site, job.leader, signal_number) == (0, "", "")
    assert os.listdir(site.run_directory + "/jobs") == []


@pytest.mark.root
def test_records_that_others_could_have_written(hook, site, start_job):
    job = start_job(user=site.user)
    os.makedirs(site.run_directory)
    os.chmod(site.run_directory, 0o777)
    assert checkpoint(hook, site, job.leader) == (
        errors.CONFIG, "", "%s must be a directory of root's that nobody else can write to, because the hooks trust the records in it; "
        "remove it, the next hook creates it again; nothing was done\n" % site.run_directory)
