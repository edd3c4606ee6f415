"""hook_roundtrip: that the judge takes nothing for granted.

The hooks that misbehave are a few lines of shell; the played pbs_mom, the user, the job and its output are real.
"""

import json
import os
import re
import shutil
import signal

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.waiting import wait_until
from ansible_collections.ckpt.torque.plugins.module_utils.validation import hooks

NODE = os.uname().nodename
STATE = {"job_id": "5.server"}

# the module

SHELL = "#!/bin/sh\n"
RUN = SHELL + "exec \"$@\"\n"
IMAGE = SHELL + """\
umask 022
mkdir "$5/$6"
head -c 3000 /dev/zero > "$5/$6/pages"
echo '{"engine": {"name": "shell", "version": "1.0"}}' > "$5/$6/manifest.json"
chown -R "$3" "$5/$6"
"""
END = "kill -9 -$1\n"


class Stage:
    """Hooks, a store and a user's directory; calls the module with them."""

    def __init__(self, module, program, python, directory, user):
        self.module, self.program, self.python, self.directory, self.user = module, program, python, directory, user
        self.hooks, self.store, self.jobs = directory / "hooks", directory / "store", []
        self.work = self.store / user.pw_name
        for path in (self.hooks, self.store, self.work):
            path.mkdir()
            path.chmod(0o755)
        os.chown(self.work, user.pw_uid, user.pw_gid)
        self.use(run=RUN, checkpoint=IMAGE + "[ $7 = 0 ] || " + END, restart=SHELL + "exit 1\n")

    def use(self, **hooks):
        """Put hooks (by name, their text) in the place of the good ones."""
        for name, text in hooks.items():
            self.program(self.hooks / name, text)

    def __call__(self, steps, check=False, caller=None, **changed):
        arguments = {"steps": steps.split(), "store_path": str(self.store), "hooks_path": str(self.hooks), "user": self.user.pw_name,
                     "timeout": 10}
        answer = self.module("hook_roundtrip", dict(arguments, **changed), check=check, python=self.python, user=caller)
        self.jobs += [job for job in [answer.get("state", {}).get("job_id")] if job]
        return answer

    def left(self):
        """Return what is left in the store (list of str)."""
        return sorted(os.path.relpath(os.path.join(directory, name), self.store) for directory, subdirectories, names in os.walk(self.store)
                      for name in subdirectories + names)


@pytest.fixture
def stage(module, program, everyones_python, public_directory, nobody, processes_naming):
    """A Stage; in the end no process of its jobs may be left."""
    top = os.path.dirname(hooks.MOM_HOME)
    before = os.path.exists(top)
    new_stage = Stage(module, program, everyones_python, public_directory, nobody)

    def left():
        return [pid for text in [public_directory] + new_stage.jobs for pid in processes_naming(text)]

    yield new_stage
    try:
        assert wait_until(lambda: not left(), 5), "processes of the job are left"
    finally:
        for pid in left():
            os.kill(pid, signal.SIGKILL)
        if not before:
            shutil.rmtree(top, ignore_errors=True)


def steps_done(answer):
    return [phase["step"] for phase in answer["phases"]]


def judged(answer):
    """Return the verdict and the cause."""
    return answer["passed"], answer["cause"]


@pytest.mark.parametrize("steps, state, check, fault", [
    ("", {}, False, "there are no steps"),
    ("run continue", {}, False, "the last step must be hold, refused or finish, not continue: the job cannot outlive this call"),
    ("hold", {}, True, "step 1 (hold) cannot follow nothing"),
    ("restart finish", {}, False, "the first step restart needs a state"),
    ("run finish", STATE, True, "the first step run does not take a state"),
])
def test_bad_order_is_refused(stage, steps, state, check, fault):
    answer = stage(steps, state=state, check=check)
    assert answer["failed"] is True
    assert answer["msg"] == "%s: hook_roundtrip: %s; nothing was done" % (NODE, fault)
    assert stage.left() == ["nobody"]


def test_unknown_step(stage):
    answer = stage("run jump finish")
    assert answer["failed"] is True
    assert answer["msg"] == ("value of steps must be one or more of: run, continue, hold, restart, refused, finish, abandon. "
                             "Got no match for: jump")


@pytest.mark.parametrize("steps, state", [
    ("run hold", {}), ("restart finish", {"nodes": ["node1"], "name": "ckpt.5.1"}), ("restart finish", {}),
    ("abandon", {"nodes": ["node1", "node2"]}), ("abandon", {}),
], ids=["run", "restart", "restart of a call that was not made", "abandon", "abandon nothing"])
def test_check_mode_starts_nothing(stage, steps, state):
    stage.use(**dict.fromkeys(("run", "checkpoint", "restart"), SHELL + "touch %s/called\n" % stage.directory))
    answer = stage(steps, state=state, check=True, user="no_such_user")
    assert answer == {"changed": False, "level": "L2", "nodes": state.get("nodes", []), "passed": None,
                      "cause": "check mode: no job is started", "state": state, "counters": [], "phases": []}
    assert stage.left() == ["nobody"]
    assert not (stage.directory / "called").exists()


@pytest.mark.root
def test_ordinary_user_is_refused(stage, nobody):
    answer = stage("run finish", caller=nobody)
    assert answer["failed"] is True
    assert answer["msg"] == "%s: hook_roundtrip must run as root to play pbs_mom; use become" % NODE


@pytest.mark.root
def test_abandon_of_nothing(stage):
    answer = stage("abandon")
    assert judged(answer) == (None, "nothing was run")
    assert (answer["nodes"], answer["state"], answer["phases"]) == ([], {}, [])


@pytest.mark.root
@pytest.mark.parametrize("user, cause", [
    ("no_such_user", "user no_such_user is not known on this node; compare the account database with the other nodes"),
    ("root", "jobs of root are not checkpointed: an image would run with root's rights when it is restarted; "
             "submit the job as another user"),
])
def test_user_who_will_not_do(stage, user, cause):
    answer = stage("run finish", user=user)
    assert judged(answer) == (False, "%s: run: %s" % (NODE, cause))
    assert (answer["nodes"], answer["counters"], answer["phases"], answer["state"]) == ([NODE], [], [], {})
    assert stage.left() == ["nobody"]


@pytest.mark.root
def test_unknown_user_leaves_nothing(stage):
    if os.path.exists(hooks.MOM_HOME):
        pytest.fail("%s is there already" % hooks.MOM_HOME)
    stage("run finish", user="no_such_user")
    assert not os.path.exists(hooks.MOM_HOME)


@pytest.mark.root
def test_user_without_a_directory(stage):
    stage.work.rmdir()
    answer = stage("run finish")
    assert judged(answer) == (False, "%s: run: there is no directory %s for the job's output; add nobody to checkpoint_store_users "
                              "or name a work_path" % (NODE, stage.work))
    assert stage.left() == []


@pytest.mark.root
def test_directory_that_is_not_the_users(stage):
    os.chown(stage.work, 0, 0)
    answer = stage("run finish")
    assert answer["passed"] is False
    path = r"%s/\d+\.ckpt-validate" % stage.work
    assert re.fullmatch(r"%s: run: PermissionError: \[Errno 13\] Permission denied: '%s'" % (NODE, path), answer["cause"])


@pytest.mark.root
def test_job_without_a_checkpoint(stage):
    answer = stage("run finish")
    assert judged(answer) == (True, "")
    assert (answer["level"], answer["nodes"], answer["changed"]) == ("L2", [NODE], False)
    assert steps_done(answer) == ["run", "finish"]
    assert [phase["node"] for phase in answer["phases"]] == [NODE] * 2
    assert answer["exit_status"] == 7
    assert answer["output_lines"] == answer["counters"][0] + 1 >= 11
    assert answer["phases"][0]["counter"] >= 10
    assert answer["phases"][1]["counter"] == answer["counters"][0]
    assert "image_bytes" not in answer and "engine" not in answer
    assert stage.left() == ["nobody"]
    assert not os.path.exists(hooks.MOM_HOME)


@pytest.mark.root
def test_work_path(stage, nobody):
    other = stage.directory / "scratch"
    other.mkdir()
    os.chown(other, nobody.pw_uid, nobody.pw_gid)
    stage.work.rmdir()
    answer = stage("run finish", work_path=str(other))
    assert judged(answer) == (True, "")
    assert answer["state"]["work"] == str(other / answer["state"]["job_id"])
    assert os.listdir(other) == []


@pytest.mark.root
def test_checkpoint_and_go_on(stage):
    answer = stage("run continue continue finish")
    assert judged(answer) == (True, "")
    assert steps_done(answer) == ["run", "continue", "continue", "finish"]
    first, second, last = answer["counters"]
    assert first >= 10 and first + 10 <= second and second + 10 <= last
    assert answer["output_lines"] == last + 1
    assert answer["engine"] == {"name": "shell", "version": "1.0"}
    assert answer["image_bytes"] == 3000 + len('{"engine": {"name": "shell", "version": "1.0"}}\n')
    assert stage.left() == ["nobody"]


@pytest.fixture
def own_hooks(stage, repository):
    """The collection's own hooks in the place of the good ones, with a store that is marked as theirs."""
    shutil.copytree(repository / "plugins" / "module_utils" / "torque_ckpt", stage.directory / "lib" / "torque_ckpt")
    (stage.store / ".ckpt-torque-store").write_text("test\n")
    settings = stage.directory / "hooks.json"
    settings.write_text(json.dumps({"stores": [{"path": str(stage.store), "id": "test"}], "engine_options": {"path": "/bin/false"},
                                    "engine_timeout": 10, "run_directory": str(stage.directory / "run")}))
    settings.chmod(0o644)
    for name in ("run", "checkpoint", "restart"):
        stage.use(**{name: """\
#!%s -IS
import sys
sys.path.insert(0, "%s")
from torque_ckpt.hooks.%s import main
sys.exit(main(sys.argv, "%s"))
""" % (stage.python, stage.directory / "lib", name, settings)})
    return stage


@pytest.mark.root
def test_own_run_hook(own_hooks):
    """Leaked descriptors, session, script on stdin, exit status: all as pbs_mom has it."""
    answer = own_hooks("run finish")
    assert judged(answer) == (True, "")
    assert answer["exit_status"] == 7


@pytest.mark.root
@pytest.mark.parametrize("text, cause", [
    ("exit 3\n", "the job ended at counter 0 with status 3: it printed nothing"),
    ("echo ' two  words ' >&2; exit 0\n", "the job ended at counter 0 with status 0: two words"),
    ("kill -9 $$\n", "the job ended at counter 0 with status 265: it printed nothing"),
], ids=["status", "words", "killed"])
def test_run_hook_that_ends_at_once(stage, text, cause):
    stage.use(run=SHELL + text)
    answer = stage("run finish")
    assert judged(answer) == (False, "%s: run: %s" % (NODE, cause))
    assert (answer["phases"], answer["counters"]) == ([], [])
    assert stage.left() == ["nobody"]


@pytest.mark.root
def test_run_hook_that_is_missing(stage):
    (stage.hooks / "run").unlink()
    path = str(stage.hooks / "run")
    assert judged(stage("run finish")) == (False, "%s: run: the job ended at counter 0 with status 127: cannot start %s: "
                                           "[Errno 2] No such file or directory: '%s'" % (NODE, path, path))


@pytest.mark.root
def test_run_hook_that_does_nothing(stage):
    stage.use(run=SHELL + "echo waiting >&2\nexec sleep 600\n")
    passed, cause = judged(stage("run finish", timeout=1))
    assert passed is False
    assert re.fullmatch(r"%s: run: the job made no progress within 1 seconds \(counter 0\): waiting; process \d+ \(sleep\) is S( in \w+)?"
                        % NODE, cause)
    assert stage.left() == ["nobody"]


@pytest.mark.root
@pytest.mark.parametrize("text, cause", [
    ("\"$@\"; exit 0", "the job's exit status is 0, expected 7"),
    ("\"$@\" | sed -u 5d; exit 7", "the job's output is not whole: counter 6 follows 4 (gap)"),
    ("\"$@\" | sed -u 5p; exit 7", "the job's output is not whole: counter 5 follows 5 (repeat)"),
    ("\"$@\" | sed -u /end/d; exit 7", "the job's output has no end; its last counter is {last}"),
    ("\"$@\"; echo more; exit 7", "the job's output is not whole: line {after} comes after the end: more"),
    ("\"$@\" 2>/dev/null; exit 7", "the job's stderr is [], expected ['job {id} starts', 'job {id} ends with 7']"),
    ("\"$@\"; echo more >&2; exit 7",
     "the job's stderr is ['job {id} starts', 'job {id} ends with 7', 'more'], expected ['job {id} starts', 'job {id} ends with 7']"),
], ids=["status", "gap", "repeat", "no end", "more", "no stderr", "more stderr"])
def test_run_hook_that_does_not_hand_on_what_the_job_did(stage, text, cause):
    stage.use(run=SHELL + text + "\n")
    answer = stage("run finish")
    assert answer["passed"] is False
    assert answer["cause"] == "%s: finish: " % NODE + cause.format(
        id=answer["state"]["job_id"], after=answer["output_lines"], last=answer["counters"][-1])
    assert steps_done(answer) == ["run"]
    assert stage.left() == ["nobody"]


@pytest.mark.root
@pytest.mark.parametrize("text, cause", [
    ("echo 'no room on the store' >&2; exit 73\n", "checkpoint hook exited 73: no room on the store"),
    ("exit 1\n", "checkpoint hook exited 1: it printed nothing on stderr"),
    ("exit 0\n", "the checkpoint hook exited 0 but there is no image {image}"),
], ids=["words", "silent", "no image"])
@pytest.mark.parametrize("step", ["continue", "hold"])
def test_checkpoint_hook_that_fails(stage, step, text, cause):
    """The job it leaves running is ended."""
    stage.use(checkpoint=SHELL + "echo $5/$6 > %s/image\n" % stage.directory + text)
    answer = stage("run %s" % step + (" finish" if step == "continue" else ""))
    image = (stage.directory / "image").read_text().strip()
    assert judged(answer) == (False, "%s: %s: %s" % (NODE, step, cause.format(image=image)))
    assert image.startswith("%s/ckpt.%s." % (answer["state"]["directory"], answer["state"]["job_id"]))
    assert (steps_done(answer), answer["counters"]) == (["run"], [])
    assert stage.left() == ["nobody"]


@pytest.mark.root
def test_hold_that_does_not_end_the_job(stage):
    stage.use(checkpoint=IMAGE)
    answer = stage("run hold", timeout=1)
    assert judged(answer) == (False, "%s: hold: the job did not end within 1 seconds" % NODE)
    assert stage.left() == ["nobody"]


@pytest.mark.root
def test_hold_that_leaves_a_process(stage):
    """Half a job that goes on beside its image would run twice after the restart."""
    stage.use(run=SHELL + "setsid sleep 600 2>/dev/null &\nexec \"$@\"\n", checkpoint=IMAGE + END)
    answer = stage("run hold", timeout=1)
    assert answer["passed"] is False
    assert re.fullmatch(r"%s: hold: processes of the held job are still there: \d+ \(sleep\)" % NODE, answer["cause"])
    assert stage.left() == ["nobody"]


@pytest.mark.root
def test_hold_leaves_what_the_next_node_needs_and_abandon_removes_it(stage):
    held = stage("run continue hold")
    assert judged(held) == (True, "")
    assert steps_done(held) == ["run", "continue", "hold"]
    state = held["state"]
    job, image = state["job_id"], os.path.join(state["directory"], state["name"])
    assert state["nodes"] == [NODE]
    assert state["phases"] == held["phases"]
    assert (state["directory"], state["work"]) == (str(stage.store / (job + ".CK")), str(stage.work / job))
    assert sorted(os.listdir(image)) == ["manifest.json", "pages"]
    assert len(state["counters"]) == 2
    assert not os.path.exists(os.path.join(hooks.MOM_HOME, "mom_priv", "jobs", job + ".SC"))

    abandoned = stage("abandon", state=state)
    assert judged(abandoned) == (True, "")
    assert abandoned["phases"] == held["phases"]
    assert stage.left() == ["nobody"]
    assert not os.path.exists(hooks.MOM_HOME)


@pytest.mark.root
@pytest.mark.parametrize("text, words", [("echo ' no  such image ' >&2; exit 66\n", "no such image"), ("exit 66\n", "job {id} starts")],
                         ids=["words", "silent"])
def test_restart_hook_that_fails(stage, text, words):
    stage.use(restart=SHELL + text)
    held = stage("run hold")
    answer = stage("restart finish", state=held["state"])
    number = held["counters"][-1]
    assert judged(answer) == (False, "%s: restart: the job ended at counter %d with status 66: %s"
                              % (NODE, number, words.format(id=held["state"]["job_id"])))
    assert steps_done(answer) == ["run", "hold"]
    assert stage.left() == ["nobody"]


@pytest.mark.root
def test_restart_without_its_image(stage):
    state = stage("run hold")["state"]
    image = os.path.join(state["directory"], state["name"])
    shutil.rmtree(image)
    answer = stage("restart finish", state=state)
    assert judged(answer) == (False, "%s: restart: pbs_mom finds no image %s: No such file or directory" % (NODE, image))
    assert stage.left() == ["nobody"]


@pytest.mark.root
def test_refused_where_there_is_another_store(stage):
    """There pbs_mom finds neither image nor output."""
    held = stage("run hold")
    away = str(stage.directory / "away")
    os.rename(str(stage.store), away)
    try:
        answer = stage("refused", state=held["state"])
    finally:
        os.rename(away, str(stage.store))
    state = answer["state"]
    assert judged(answer) == (True, "")
    assert answer["refusals"] == ["%s: pbs_mom finds no image %s" % (NODE, os.path.join(state["directory"], state["name"]))]
    assert judged(stage("abandon", state=state)) == (True, "")
    assert stage.left() == ["nobody"]


@pytest.mark.root
def test_restart_before_any_hold(stage):
    state = stage("run hold")["state"]
    answer = stage("restart finish", state=dict(state, name=None))
    assert judged(answer) == (False, "%s: restart: there is no image to restart from; do the step hold first" % NODE)


@pytest.mark.root
def test_restart_that_starts_the_job_anew_is_found_out(stage):
    """The worst a restart hook can do: all looks well, and the work done so far is lost."""
    work = "%s/$3/$2" % stage.store
    stage.use(restart=SHELL + "exec setpriv --reuid=$3 --clear-groups %s -c '"
              "import os, sys; work = sys.argv[1]; os.dup2(os.open(work + \"/stdout\", os.O_WRONLY | os.O_APPEND), 1); "
              "os.execv(sys.executable, [sys.executable, work + \"/program.py\", work + \"/stop\", \"0.002\", \"7\"])' %s\n"
              % (stage.python, work))
    answer = stage("run hold restart finish")
    assert answer["passed"] is False
    number = answer["counters"][0]
    assert re.fullmatch(r"%s: finish: the job's output is not whole: counter 1 follows %d \(repeat\); "
                        r"line %d comes from another process: its secret is [0-9a-f]{16}, was [0-9a-f]{16}" % (NODE, number, number + 1),
                        answer["cause"])
    assert steps_done(answer) == ["run", "hold", "restart"]
    assert stage.left() == ["nobody"]


@pytest.mark.root
def test_manifest_that_is_damaged(stage, processes_naming):
    stage.use(checkpoint=IMAGE + "echo '{' > \"$5/$6/manifest.json\"\n")
    try:
        answer = stage("run continue finish")
    finally:
        for pid in processes_naming(stage.directory):
            os.kill(pid, signal.SIGKILL)
    assert answer["passed"] is False
    assert answer["cause"].startswith("%s: continue: " % NODE)
    assert stage.left() == ["nobody"]


@pytest.mark.root
def test_image_that_is_roots(stage):
    stage.use(checkpoint=SHELL + "mkdir \"$5/$6\"\ntouch \"$5/$6/pages\"\necho broken >&2\nexit 70\n")
    answer = stage("run hold")
    assert judged(answer) == (False, "%s: hold: checkpoint hook exited 70: broken" % NODE)
