import json
import os
import re
import threading

import pytest

from torque_ckpt import config, errors
from torque_ckpt.job import lock, retries
from torque_ckpt.job.records import Records
from torque_ckpt.store import location
from torque_ckpt.system import processes
from torque_ckpt.torque import contract

ARGUMENTS = ["4711", "12.head", "nobody", "-", "/shared/ckpt/12.head.CK", "ckpt.12.head.1"]


# Refusals

@pytest.mark.parametrize("number", [0, 1, 5])
def test_with_too_few_arguments(hook, number):
    assert hook("restart", ARGUMENTS[:number]) == (
        errors.USAGE, "", "restart: expected 6 arguments (session_id job_id user group directory name), got %d; pbs_mom cuts "
        "lines over 1024 bytes, so look for an overlong checkpoint directory; nothing was done\n" % number)


def test_with_a_malformed_argument(hook):
    assert hook("restart", ARGUMENTS[:5] + ["../ckpt"]) == (
        errors.USAGE, "", "restart: image name '../ckpt' is not a plain file name; nothing was done\n")


def test_without_a_configuration(hook):
    retries.reset_failures(Records(config.DEFAULTS["run_directory"], "12.head"))
    assert hook("restart", ARGUMENTS) == (
        errors.CONFIG, "", "configuration /nonexistent/hooks.json cannot be read (No such file or directory); "
        "run the role checkpoint_hooks on this node (attempt 1 of 5)\n")
    retries.reset_failures(Records(config.DEFAULTS["run_directory"], "12.head"))


def restart(hook, site, leader=True, variables=(), **values):
    return hook("restart", site.arguments(**dict({"name": "ckpt.12.head.1"}, **values)), site.config, leader, variables)


@pytest.mark.root
def test_not_as_a_session_leader(hook, site):
    assert restart(hook, site, leader=False) == (
        errors.USAGE, "", "restart: must be started by pbs_mom as the leader of a session; nothing was restarted\n")


@pytest.mark.root
def test_user_that_is_not_known(hook, site):
    assert restart(hook, site, user="no_such_user_here") == (
        errors.NO_USER, "", "user no_such_user_here is not known on this node; compare the account database with the other nodes\n")


@pytest.mark.root
def test_job_of_root(hook, site):
    assert restart(hook, site, user="root") == (
        errors.NO_USER, "", "jobs of root are not checkpointed: an image would run with root's rights when it is restarted; submit the job "
                            "as another user\n")


@pytest.mark.root
def test_directory_in_no_store(hook, site):
    assert restart(hook, site, directory="/tmp/12.head.CK") == (
        errors.REFUSED, "", "directory /tmp/12.head.CK is in none of this node's stores (%s); set the job's checkpoint directory beneath "
        "one\n" % site.store)


@pytest.mark.root
def test_store_that_is_another(hook, site):
    with open(os.path.join(site.store, location.MARKER), "w") as stream:
        stream.write("other\n")
    assert restart(hook, site) == (
        errors.CONFIG, "", "store %s is another one than configured: its id is 'other', expected main; mount the one that is configured "
                           "(attempt 1 of 5)\n" % site.store)


@pytest.mark.root
def test_engine_that_is_not_there(hook, site):
    os.unlink(site.criu)
    assert restart(hook, site) == (errors.CONFIG, "", "criu is not at %s on this node; run the role criu (attempt 1 of 5)\n" % site.criu)


# Images that cannot be restarted are kept

@pytest.fixture
def image(site, free_pid):
    """The path (str) of a whole image of job 12.head."""
    site.publish("ckpt.12.head.1", free_pid, [free_pid])
    return os.path.join(site.directory, "ckpt.12.head.1")


def refused(hook, site, code, sentence):
    before = site.content()
    assert restart(hook, site) == (code, "", sentence + "\n")
    assert site.content() == before
    assert not os.path.exists(os.path.join(site.run_directory, "jobs", "12.head.json"))


@pytest.mark.root
def test_directory_that_is_missing(hook, site):
    os.rmdir(site.directory)
    assert restart(hook, site) == (
        errors.NO_INPUT, "", "cannot open the directory of job images %s: No such file or directory; see with torque-ckpt list which "
                             "images the job has, and whether its owner may read them\n" % site.directory)
    assert not os.path.exists(site.directory)


@pytest.mark.root
def test_image_that_is_missing(hook, site):
    refused(hook, site, errors.NO_INPUT, "image %s/ckpt.12.head.1 cannot be opened: No such file or directory; see with torque-ckpt list "
                                         "which images the job has, and whether its owner may read them" % site.directory)


@pytest.mark.root
def test_another_hook_is_at_work(hook, site, image):
    site.configure(lock_timeout=1)
    before = site.content()
    with lock.hold_lock(Records(site.run_directory, "12.head"), "checkpoint", 0, ""):
        done = restart(hook, site)
    assert done.code == errors.TEMPORARY
    assert re.fullmatch(r"a checkpoint \(process %d, since [-0-9T:]+Z\) is at work on job 12\.head; waited 1 seconds; try again when it "
                        r"has ended; image kept \(attempt 1 of 5\)\n" % os.getpid(), done.stderr)
    assert site.content() == before


@pytest.mark.root
def test_image_that_only_root_may_read(hook, site, image):
    os.chown(image, 0, 0)
    refused(hook, site, errors.NO_INPUT, "image %s cannot be opened: Permission denied; see with torque-ckpt list which images the job "
                                         "has, and whether its owner may read them" % image)


@pytest.mark.root
def test_image_that_is_damaged(hook, site, image):
    with open(os.path.join(image, "pages.img"), "ab") as stream:
        stream.write(b"x")
    refused(hook, site, errors.DATA, "image %s is damaged: pages.img has 7 bytes, expected 6; take an older image" % image)


@pytest.mark.root
def test_image_without_a_manifest(hook, site, image):
    os.unlink(os.path.join(image, "manifest.json"))
    refused(hook, site, errors.DATA,
            "image %s has no readable manifest (No such file or directory); it is kept but cannot be restarted; take an older image"
            % image)


@pytest.mark.root
def test_image_that_its_owner_changed(hook, site, image):
    with open(os.path.join(image, "manifest.json")) as stream:
        manifest = json.load(stream)
    with open(os.path.join(image, "manifest.json"), "w") as stream:
        json.dump(dict(manifest, root=1), stream)
    refused(hook, site, errors.REFUSED,
            "image %s has a manifest that root's hooks did not write, or that was changed since; take an older image" % image)


@pytest.mark.root
def test_image_that_was_sealed_with_another_key(hook, site, image):
    with open(site.key, "w") as stream:
        json.dump({"keys": [{"id": "second", "secret": "18" * 32}]}, stream)
    refused(hook, site, errors.TEMPORARY, "image %s was sealed with the key 'first', which this node does not have; run site.yml on this "
            "node, or put that key back into checkpoint_hooks_keys; image kept (attempt 1 of 5)" % image)


@pytest.mark.root
def test_image_of_an_older_key(hook, site, image):
    with open(site.key, "w") as stream:
        json.dump({"keys": [{"id": "second", "secret": "18" * 32}, {"id": "first", "secret": "17" * 32}]}, stream)
    assert restart(hook, site) == (
        errors.ENGINE, "", "criu restore failed with status 1: it would not; the image is kept; restart the job on another node, or see "
                           "whether torque-ckpt selftest passes on this node (as root)\n")


@pytest.mark.root
def test_key_that_others_may_read(hook, site, image):
    os.chmod(site.key, 0o640)
    assert restart(hook, site) == (errors.CONFIG, "", "key file %s must be root's and readable by nobody else; "
                                   "run the role checkpoint_hooks on this node (attempt 1 of 5)\n" % site.key)


@pytest.mark.root
def test_image_of_another_job(hook, site, image):
    os.rename(site.directory, site.directory + ".away")
    os.mkdir(site.directory)
    os.rename(site.directory + ".away/ckpt.12.head.1", image)
    assert hook("restart", ["-", "13.head"] + site.arguments(name="ckpt.12.head.1")[2:], site.config) == (
        errors.REFUSED, "", "image %s belongs to job 12.head of nobody, not to job 13.head of nobody; move it back to its own job; image "
                            "kept\n" % image)


@pytest.mark.root
def test_passing_reasons_are_counted_and_then_hold_the_job(hook, site, start_job, free_pid):
    pid = start_job().pids[0]
    site.publish("ckpt.12.head.1", free_pid, [free_pid, pid])
    site.configure(restart_attempts=2)
    sentence = "process id %d of the image is in use on this node (by 'sh'); try again later or on another node" % pid
    assert restart(hook, site) == (errors.TEMPORARY, "", sentence + " (attempt 1 of 2)\n")
    assert restart(hook, site) == (errors.SYSTEM, "", sentence + " (attempt 2 of 2, the last; fix the cause, then release the job)\n")
    assert restart(hook, site) == (errors.TEMPORARY, "", sentence + " (attempt 1 of 2)\n")


@pytest.mark.root
def test_engine_reads_a_private_copy(hook, site, program, free_pid, open_directory):
    """The owner changes the image after it was verified; what the engine reads is what was verified."""
    site.publish("ckpt.12.head.1", free_pid, [free_pid])
    seen = os.path.join(open_directory, "seen")
    open(seen, "w").close()
    os.chmod(seen, 0o666)
    program("echo forged > %s/ckpt.12.head.1/pages.img; ls -A $4/ > %s; cat $4/pages.img >> %s; exit 1\n" % (site.directory, seen, seen))
    assert restart(hook, site).code == errors.ENGINE
    with open(seen) as stream:
        assert stream.read() == "pages.img\nmemory"
    assert os.listdir(os.path.join(site.state_directory, "private")) == []


@pytest.mark.root
def test_image_of_another_engine(hook, site):
    site.publish("ckpt.12.head.1", 7, [], engine="blcr")
    refused(hook, site, errors.ENGINE,
            "image %s/ckpt.12.head.1 was written by blcr, this node has criu; restart it on a node like %s; image kept"
            % (site.directory, os.uname().nodename))


@pytest.mark.root
def test_process_id_that_is_in_use(hook, site, start_job, free_pid):
    pid = start_job().pids[0]
    site.publish("ckpt.12.head.1", free_pid, [free_pid, pid])
    refused(hook, site, errors.TEMPORARY,
            "process id %d of the image is in use on this node (by 'sh'); try again later or on another node (attempt 1 of 5)" % pid)


@pytest.mark.root
def test_process_id_that_criu_finds_in_use(hook, site, image, program):
    program("echo \"(00.1) Error (criu/cr-restore.c:1): Can't fork for 7: File exists\" >&2\nexit 1\n")
    refused(hook, site, errors.TEMPORARY, "a process id of the image is in use on this node (criu: Can't fork for 7: File exists); "
            "try again later or on another node (attempt 1 of 5)")


@pytest.mark.root
def test_failed_restore(hook, site, image):
    refused(hook, site, errors.ENGINE, "criu restore failed with status 1: it would not; the image is kept; restart the job on another "
                                       "node, or see whether torque-ckpt selftest passes on this node (as root)")


@pytest.mark.root
def test_restore_that_takes_too_long(hook, site, image, program):
    program("exec sleep 60\n")
    site.configure(engine_timeout=1)
    refused(hook, site, errors.ENGINE, "%s took longer than 1 seconds and was killed; allow it more time (checkpoint_hooks_engine_timeout)"
                                       % site.criu)


@pytest.mark.root
def test_restore_that_restored_nothing(hook, site, free_pid, image, program):
    program("exit 0\n")
    refused(hook, site, errors.ENGINE,
            "criu said it restored job 12.head, but its process %d is not there; restart the job on another node, or see whether "
            "torque-ckpt selftest passes on this node (as root); image kept" % free_pid)


@pytest.mark.root
def test_restore_sees_the_very_image_that_was_verified_as_the_user(hook, site, image, program):
    program('echo "$4 $(cat $4/pages.img) $(id -un)"\nexit 1\n')
    answer = restart(hook, site)
    assert answer.code == errors.ENGINE
    assert answer.stderr.startswith("criu restore failed with status 1: /proc/self/fd/")
    assert " memory nobody; the image is kept; restart the job" in answer.stderr


@pytest.mark.root
def test_failure_after_the_restore_leaves_nothing_of_the_tree(hook, site, program, free_pid):
    program("sleep 60 >/dev/null 2>&1 &\necho $! > %s/pid\nexit 0\n" % site.directory)
    site.publish("ckpt.12.head.2", free_pid, [free_pid])
    assert hook("restart", site.arguments(), site.config).code == errors.ENGINE
    with open(site.directory + "/pid") as stream:
        assert processes.read_process(int(stream.read())) is None


# The site's program

RESTORING = """
sleep 60 > /dev/null 2>&1 &
[ "$5" = --action-script ] || exit 1
CRTOOLS_SCRIPT_ACTION=post-restore $6 || { kill $!; exit 1; }
"""


@pytest.mark.root
def test_program_of_the_site_that_fails_undoes_the_restart(hook, site, image, program, open_directory):
    program(RESTORING)
    site.configure(restart_program=program('echo "$CKPT_EVENT $CKPT_NAME $(id -un) $(grep CapEff /proc/self/status)" >&2\nexit 3\n', "own"))
    refused(hook, site, errors.TEMPORARY, "%s/own ended with status 3 (restart ckpt.12.head.1 nobody CapEff:\\t0000000000000000); image "
            "kept; try again, or ask the administrator about checkpoint_hooks_restart_program (attempt 1 of 5)" % open_directory)


@pytest.mark.root
def test_program_of_the_site_runs_before_the_job_continues(hook, site, image, program, open_directory):
    note = os.path.join(open_directory, "note")
    open(note, "w").close()
    os.chmod(note, 0o666)
    program(RESTORING + "kill $!; echo \"then: $(cat %s)\"; exit 1\n" % note)
    site.configure(restart_program=program("echo $CKPT_EVENT > %s\n" % note, "own"))
    refused(hook, site, errors.ENGINE, "criu restore failed with status 1: then: restart; the image is kept; restart the job on another "
                                       "node, or see whether torque-ckpt selftest passes on this node (as root)")


@pytest.mark.root
def test_program_of_the_site_may_take_longer_than_the_engine_may_do_nothing(hook, site, image, program):
    program(RESTORING + "kill $!; echo then; exit 1\n")
    site.configure(engine_options={"path": site.criu, "stall": 1}, restart_program=program("exec sleep 5\n", "own"))
    refused(hook, site, errors.ENGINE, "criu restore failed with status 1: then; the image is kept; restart the job on another node, or "
                                       "see whether torque-ckpt selftest passes on this node (as root)")


# The job's output

@pytest.mark.root
def test_output_is_put_back_before_the_restore(hook, site, mom, program, free_pid):
    output = mom + "/spool/12.head.OU"
    with open(output, "w"):
        os.chown(output, site.user.uid, site.user.gid)  # as pbs_mom makes it
    site.publish("ckpt.12.head.1", free_pid, [free_pid], output=(output, b"line 1\n"))
    program('echo "at the restore: $(cat %s)"\nexit 1\n' % output)
    refused(hook, site, errors.ENGINE, "criu restore failed with status 1: at the restore: line 1; the image is kept; restart the job on "
                                       "another node, or see whether torque-ckpt selftest passes on this node (as root)")


@pytest.mark.root
def test_output_that_cannot_be_put_back(hook, site, mom, program, free_pid):
    output = mom + "/nowhere/12.head.OU"
    site.publish("ckpt.12.head.1", free_pid, [free_pid], output=(output, b"line 1\n"))
    refused(hook, site, errors.SYSTEM, "cannot put back the job's output %s: No such file or directory; see to that file system, or "
                                       "restart the job on another node; image kept" % output)


@pytest.mark.root
def test_image_that_is_damaged_leaves_the_output_alone(hook, site, mom, free_pid):
    output = mom + "/spool/12.head.OU"
    site.publish("ckpt.12.head.1", free_pid, [free_pid], output=(output, b"line 1\n"))
    with open(site.directory + "/ckpt.12.head.1/stdout", "w") as stream:
        stream.write("line 2\n")
    refused(hook, site, errors.DATA,
            "image %s/ckpt.12.head.1 is damaged: stdout has another content than was written; take an older image" % site.directory)
    assert not os.path.exists(output)


# What pbs_mom is told

@pytest.fixture
def status_path(open_directory):
    """The path (str) that a pbs_mom with the patch restart-status gives."""
    return os.path.join(open_directory, "12.head.RS")


def verdict(hook, site, status_path):
    answer = restart(hook, site, variables={contract.STATUS: status_path})
    with open(status_path) as stream:
        text = stream.read()
    assert os.stat(status_path).st_mode == 0o100600
    return answer.code, text


@pytest.mark.root
def test_a_lasting_failure_holds_the_job(hook, site, image, status_path):
    os.unlink(os.path.join(image, "pages.img"))
    assert verdict(hook, site, status_path) == (
        errors.DATA, "Permanent failure of the restart: image %s is damaged: pages.img: No such file or directory; "
        "take an older image\n" % image)


@pytest.mark.root
def test_a_process_id_in_use_queues_the_job(hook, site, start_job, status_path):
    pid = start_job().pids[0]
    site.publish("ckpt.12.head.1", pid, [pid])
    assert verdict(hook, site, status_path) == (
        errors.TEMPORARY, "Temporary failure of the restart: process id %d of the image is in use on this node (by 'sh'); "
        "try again later or on another node (attempt 1 of 5)\n" % pid)


@pytest.mark.root
def test_a_store_that_is_not_mounted_queues_the_job(hook, site, image, status_path):
    os.unlink(os.path.join(site.store, location.MARKER))
    code, text = verdict(hook, site, status_path)
    assert code == errors.CONFIG
    assert text.startswith("Temporary failure of the restart: store %s is not usable on this node: " % site.store)


@pytest.mark.root
def test_a_malformed_call_holds_the_job(hook, site, status_path):
    answer = hook("restart", ["x"], site.config, variables={contract.STATUS: status_path})
    with open(status_path) as stream:
        assert stream.read() == "Permanent failure of the restart: " + answer.stderr


@pytest.mark.root
def test_a_hook_that_is_killed_holds_the_job(hook, site, image, program, status_path, wait_until):
    """It has said so before it could be killed."""
    program("exec sleep 60\n")
    site.configure(engine_timeout=2)
    seen = []

    def watch():
        wait_until(lambda: os.path.exists(status_path) and os.path.getsize(status_path))
        with open(status_path) as stream:
            seen.append(stream.read())
    watcher = threading.Thread(target=watch)
    watcher.start()
    restart(hook, site, variables={contract.STATUS: status_path})
    watcher.join()
    assert seen == ["Permanent failure of the restart: the restart hook was killed before the job ran; image kept; see in journalctl -k "
                    "whether memory was short, and try again\n"]


@pytest.mark.root
def test_nobody_to_tell(hook, site, image):
    answer = restart(hook, site, variables={contract.STATUS: "/nonexistent/12.head.RS"})
    assert answer == (errors.ENGINE, "", "criu restore failed with status 1: it would not; the image is kept; restart the job on another "
                                         "node, or see whether torque-ckpt selftest passes on this node (as root)\n")
