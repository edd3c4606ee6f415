"""job_roundtrip: the way of a job through TORQUE's commands, and that the judge takes nothing for granted.

The server is a few lines of shell that keep the job's attributes in files; "another node" is a word to it, and an image is the stopped
job. The user, the job, its processes and its output are real.
"""

import contextlib
import os
import re
import signal
import threading

import pytest
import yaml

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.waiting import wait_until
from ansible_collections.ckpt.torque.plugins.module_utils.validation.cases import CASES
from ansible_collections.ckpt.torque.plugins.modules import job_roundtrip

NODE = os.uname().nodename
COMMANDS = ("qsub", "qstat", "qhold", "qrls", "qchkpt", "qalter", "qdel")

pytestmark = pytest.mark.root

# What all commands know. The job is 12.head; files in attributes/ are what qstat says.
LIB = """\
cd {server}
put() {{ echo "$2" > new.$$ && mv new.$$ "attributes/$1"; }}
end() {{ kill -s KILL -- "-$(cat session)" 2>/dev/null; put exit_status 271; put job_state C; }}
start() {{ setsid sh job >/dev/null 2>&1 </dev/null & }}
image() {{
    number=$(($(cat number 2>/dev/null || echo 0) + 1))
    echo $number > number
    mkdir "{images}/ckpt.12.head.$number" 2> refusal || {{ put comment "$(cat refusal)"; return 1; }}
    head -c 3000 /dev/zero > "{images}/ckpt.12.head.$number/pages"
    echo '{{"engine": {{"name": "shell", "version": "1.0"}}, "depth": '$(cat depth)', "frozen_seconds": 0.25}}' \
        > "{images}/ckpt.12.head.$number/manifest.json"
    put resources_used.walltime 00:00:0$number
    put checkpoint_dir {images}
    put comment "image $number"
    put checkpoint_name ckpt.12.head.$number  # last: this is what the module waits for
}}
"""
JOB = """\
echo $$ > session
PATH={bin}:$PATH
if [ "$(cat options)" = "-j oe" ]; then bash "$(cat script)" >> OU 2>&1; else bash "$(cat script)" >> OU 2>> ER; fi
put exit_status $?
put resources_used.walltime 00:01:05
sh deliver "$(cat out)" "$(cat err)"
put job_state C
"""
GOOD = {
    "job": JOB,
    "deliver": 'cp OU "$1"; [ ! -e ER ] || cp ER "$2"\n',
    "qsub": """\
echo "$*" > argv
env | sort > environment
while [ $# -gt 1 ]; do
    case $1 in
        -o) echo "$2" > out ;;
        -e) echo "$2" > err ;;
        -l) put exec_host "${{2#nodes=}}/0" ;;
        -j) echo "$1 $2" > options ;;
        -c) case $2 in *depth=*) echo "${{2#*depth=}}" > depth ;; esac ;;
    esac
    shift 2
done
echo "$1" > script
start
put job_state R
echo 12.head
""",
    "qstat": """\
[ "$1" != --version ] || {{ echo "Version: 6.1.3"; echo "Commit: none"; exit 0; }}
# The state first: what belongs to it was written before.
state=$(cat attributes/job_state 2>/dev/null) || {{ echo "qstat: Unknown Job Id Error $2" >&2; exit 153; }}
echo "Job Id: $2"
(cd attributes && awk 'FILENAME != "job_state" {{ print "    " FILENAME " = " $0 }}' *)
echo "    job_state = $state"
""",
    "qchkpt": "image\n",
    "qhold": """\
kill -s STOP -- "-$(cat session)"
put Hold_Types u
if image; then put job_state H; else put Hold_Types n; kill -s CONT -- "-$(cat session)"; fi
""",
    "qalter": 'if [ "$1" = -W ]; then put checkpoint_name "${{2#*=}}"; else echo "${{2#nodes=}}" > wanted; fi\n',
    "qrls": """\
put exec_host "$(cat wanted)/0"
if tr -d '\\0' < "{images}/$(cat attributes/checkpoint_name)/pages" | grep -q .; then
    put comment "Permanent failure of the restart: the image is damaged"
else
    put job_state R
    kill -s CONT -- "-$(cat session)"
fi
""",
    "qdel": "end\n",
}

ROOTS_HOLD = "image; chown -R --reference={images} {images}/* attributes number refusal\n"
"""A system hold: root requests it, and what is written is the user's all the same."""


class Stage:
    """A server with its commands, a store and a user's directory; calls the module with them."""

    def __init__(self, module, program, python, directory, user):
        self.module, self.program, self.python, self.directory, self.user = module, program, python, directory, user
        self.bin, self.server, self.work = directory / "bin", directory / "server", directory / "work"
        self.images = directory / "store" / "12.head.CK"
        for path in (self.bin, self.images.parent, self.images, self.server, self.server / "attributes", self.work):
            path.mkdir()
            path.chmod(0o755)
        for path in (self.images, self.server, self.server / "attributes", self.work):
            os.chown(path, user.pw_uid, user.pw_gid)
        for name, text in (("calls", ""), ("options", ""), ("session", ""), ("depth", "null\n")):
            (self.server / name).write_text(text)
            os.chown(self.server / name, user.pw_uid, user.pw_gid)
        program(self.bin / "python3", '#!/bin/sh\nexec %s "$@"\n' % python)  # MOM's environment, where a job finds its programs
        self.use(**GOOD)

    def use(self, **parts):
        """Put commands and other parts of the server (by name, their text) in the place of the good ones."""
        names = {"bin": self.bin, "server": self.server, "images": self.images}
        for name, text in parts.items():
            head = LIB if name not in COMMANDS else "#!/bin/sh\n%s[ %s = qstat ] || echo \"$(id -un): %s $*\" >> calls\n" % (
                LIB, name, name)
            self.program((self.bin if name in COMMANDS else self.server) / name, (head + text).format(**names))

    def __call__(self, *path, check=False, caller=None, **changed):
        arguments = {"path": list(path), "user": self.user.pw_name, "work_path": str(self.work), "torque_directory": str(self.bin),
                     "timeout": 10}
        return self.module("job_roundtrip", dict(arguments, **changed), check=check, python=self.python, user=caller)

    def calls(self):
        """Return who called which command (list of str), qstat and the arguments of qsub left out."""
        return [re.sub("qsub .*", "qsub", line) for line in (self.server / "calls").read_text().splitlines()]

    def state(self):
        return (self.server / "attributes" / "job_state").read_text().strip()

    def left(self):
        """Return what is left of the job in the user's directory and the store (list of str), but for the images' directory."""
        return sorted(os.path.join(directory, name) for top in (self.work, self.images.parent)
                      for directory, subdirectories, names in os.walk(top) for name in subdirectories + names
                      if os.path.join(directory, name) != str(self.images))

    def kill(self):
        """End the job behind the server's back."""
        os.killpg(int((self.server / "session").read_text()), signal.SIGKILL)


@pytest.fixture
def stage(module, program, everyones_python, public_directory, nobody, processes_naming):
    """A Stage; in the end no process of its job may be left."""
    yield Stage(module, program, everyones_python, public_directory, nobody)
    try:
        assert wait_until(lambda: not processes_naming(public_directory), 5), "processes of the job are left"
    finally:
        for pid in processes_naming(public_directory):
            os.kill(pid, signal.SIGKILL)


def steps_done(answer):
    return [phase["step"] for phase in answer["phases"]]


def judged(answer):
    """Return the verdict and the cause."""
    return answer["passed"], answer["cause"]


def test_documentation_is_that_of_the_cases():
    """DOCUMENTATION must be a literal, so it repeats the table."""
    option = yaml.safe_load(job_roundtrip.DOCUMENTATION)["options"]["case"]
    assert option["description"][1:] == ["V(%s) - %s" % (name, case.description) for name, case in CASES.items()]
    assert option["choices"] == list(CASES)
    assert option["default"] in CASES


# what is refused

@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("path, changed, cause", [
    ([], {}, "the path holds no node"),
    (["node1"], {"timeout": 0}, "timeout is 0, but must be at least 1 (second)"),
    (["node1"], {"timeout": -5}, "timeout is -5, but must be at least 1 (second)"),
    (["node1"], {"depth": 0}, "depth is 0, but must be at least 1"),
    (["node1"], {"memory": 0}, "memory is 0, but must be at least 1 (MiB)"),
    (["node1"], {"case": "older_image"}, "case older_image needs a path of two nodes at least (one may come twice)"),
    (["node1"], {"case": "failed_restart"}, "case failed_restart needs a path of two nodes at least (one may come twice)"),
], ids=["path", "zero", "negative", "depth", "memory", "older_image", "failed_restart"])
def test_bad_arguments(stage, path, changed, cause, check):
    answer = stage(*path, check=check, **changed)
    assert (answer.get("failed"), answer["msg"]) == (True, "%s: job_roundtrip: %s; nothing was done" % (NODE, cause))
    assert stage.calls() == []


def test_unknown_case(stage):
    answer = stage("node1", case="sideways")
    assert answer["failed"] is True
    assert answer["msg"] == ("value of case must be one of: move, continue, periodic, older_image, failed_hold, full_store, "
                             "failed_restart, truncated_image, changed_manifest, foreign_file, deleted_image, failed_directory, "
                             "server_away, node_crash, "
                             "preempt, drain, files, timers, connections, memory, array, nested_signal, nested_command, multinode_output, "
                             "mpi_mpich, mpi_openmpi, got: sideways")
    assert stage.calls() == []


def test_check_mode_submits_nothing(stage):
    answer = stage("node1", "node2", check=True, user="no_such_user", torque_directory="/nonexistent")
    assert answer == {"changed": False, "level": "L3", "nodes": ["node1", "node2"], "passed": None,
                      "cause": "check mode: no job is submitted", "case": "continue", "counters": [], "comments": [], "states": [],
                      "phases": []}
    assert (stage.calls(), os.listdir(stage.work)) == ([], [])


def test_ordinary_user_is_refused(stage, nobody):
    answer = stage("node1", caller=nobody)
    assert answer["failed"] is True
    assert answer["msg"] == "%s: job_roundtrip must run as root to submit as another user; use become" % NODE
    assert stage.calls() == []


@pytest.mark.parametrize("name", COMMANDS)
def test_command_that_is_missing(stage, name):
    (stage.bin / name).unlink()
    answer = stage("node1")
    assert answer["failed"] is True
    assert answer["msg"] == ("%s: job_roundtrip: %s has no %s; install TORQUE's commands here or correct torque_directory; nothing was done"
                             % (NODE, stage.bin, name))
    assert stage.calls() == []


def test_commands_that_are_missing_or_not_executable(stage):
    (stage.bin / "qsub").chmod(0o644)
    (stage.bin / "qdel").unlink()
    assert stage("node1")["msg"].startswith("%s: job_roundtrip: %s has no qsub, qdel; install" % (NODE, stage.bin))


@pytest.mark.parametrize("user, cause", [
    ("no_such_user", "user no_such_user is not known on this node; compare the account database with the other nodes"),
    ("root", "jobs of root are not checkpointed: an image would run with root's rights when it is restarted; "
             "submit the job as another user"),
])
def test_user_who_will_not_do(stage, user, cause):
    answer = stage("node1", user=user)
    assert (answer.get("failed"), answer["msg"]) == (True, "%s: job_roundtrip: %s; nothing was done" % (NODE, cause))
    assert (stage.calls(), os.listdir(stage.work)) == ([], [])


# what passes

def test_job_that_moves(stage):
    answer = stage("node1", "node2", "node2")
    assert judged(answer) == (True, "")
    assert (answer["level"], answer["nodes"], answer["changed"]) == ("L3", ["node1", "node2", "node2"], False)
    assert (answer["job_id"], answer["exit_status"], answer["walltime"], answer["torque"]) == ("12.head", 7, 65, "6.1.3")
    assert answer["engine"] == {"name": "shell", "version": "1.0"}
    assert answer["image_bytes"] == 3000 + len('{"engine": {"name": "shell", "version": "1.0"}, "depth": null, "frozen_seconds": 0.25}\n')
    assert answer["case"] == "continue"
    assert answer["comments"] == ["image 1", "image 2", "image 3"]
    assert [(phase["step"], phase["node"]) for phase in answer["phases"]] == [
        ("submit", "node1"), ("continue", "node1"), ("hold", "node1"), ("release", "node2"), ("hold", "node2"), ("release", "node2"),
        ("finish", "node2")]
    first, second, third, last = answer["counters"]
    assert answer["phases"][0]["counter"] >= 10
    assert first >= 10 and first + 10 <= second and second + 10 <= third and third + 10 <= last
    assert [phase["counter"] for phase in answer["phases"] if phase["step"] == "hold"] == [second, third]
    assert answer["phases"][-1]["counter"] == last == answer["output_lines"] - 1
    assert all(phase["seconds"] > 0 for phase in answer["phases"])
    for phase in answer["phases"]:
        assert phase.get("engine_seconds") == (0.25 if phase["step"] in ("continue", "hold") else None)
        assert (0 < phase.get("running_seconds", 0) < phase["seconds"]) == (phase["step"] == "release")
    assert [phase["walltime"] for phase in answer["phases"] if "walltime" in phase] == [2, 3, 65]
    assert [phase["resumed"] for phase in answer["phases"] if "resumed" in phase] == [second, third]
    states = [(state["state"], state["substate"], state["node"]) for state in answer["states"]]
    assert states == [("R", None, "node1"), ("H", None, "node1"), ("R", None, "node2"), ("H", None, "node2"), ("R", None, "node2"),
                      ("C", None, "node2")]
    times = [state["seconds"] for state in answer["states"]]
    assert times[0] == 0 and times == sorted(times)
    assert stage.calls() == [
        "nobody: qsub", "nobody: qchkpt 12.head", "nobody: qhold 12.head", "root: qalter -l nodes=node2 12.head", "nobody: qrls 12.head",
        "nobody: qhold 12.head", "root: qalter -l nodes=node2 12.head", "nobody: qrls 12.head"]
    assert (stage.left(), stage.images.exists()) == ([], False)


def test_without_continue(stage):
    answer = stage("node1", "node2", case="move")
    assert judged(answer) == (True, "")
    assert steps_done(answer) == ["submit", "hold", "release", "finish"]
    assert (len(answer["counters"]), answer["comments"]) == (2, ["image 1"])
    assert stage.left() == []


def test_without_a_move(stage):
    answer = stage("node1", case="move")
    assert judged(answer) == (True, "")
    assert (steps_done(answer), answer["nodes"], answer["comments"]) == (["submit", "finish"], ["node1"], [])
    assert "engine" not in answer and "image_bytes" not in answer
    assert stage.left() == []


def test_what_is_submitted(stage, nobody):
    """Nothing of root's environment reaches the user: "qsub -V" would hand it to the job."""
    assert judged(stage("node1", case="move", qsub_options=["-q", "long queue"])) == (True, "")
    work = re.fullmatch(r"-N validate -c enabled -l nodes=node1 -o (%s/validate-\d+-\d+)/stdout -e \1/stderr -q long queue \1/job\.sh\n"
                        % stage.work, (stage.server / "argv").read_text())
    assert work
    environment = dict(line.split("=", 1) for line in (stage.server / "environment").read_text().splitlines())
    assert {name: value for name, value in environment.items() if name not in ("PWD", "OLDPWD", "_", "SHLVL")} == {
        "HOME": nobody.pw_dir, "LC_ALL": "C", "LOGNAME": "nobody", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "USER": "nobody"}
    assert environment["OLDPWD"] == "/"


def test_images_in_another_place(stage):
    assert judged(stage("node1", case="move", images_path="/other/ckpt/nobody")) == (True, "")
    assert (stage.server / "argv").read_text().startswith("-N validate -c enabled,dir=/other/ckpt/nobody -l nodes=node1 -o ")


def test_environment_of_roots_commands(stage):
    """They keep what the site gave it, PBS_DEFAULT for instance."""
    stage.use(qchkpt="exit 1\n", qdel="echo \"$PYTHONPATH\" > kept\nend\n")
    assert stage("node1")["passed"] is False
    assert (stage.server / "kept").read_text().strip() != ""


def test_output_in_one_file(stage):
    answer = stage("node1", "node2", qsub_options=["-j", "oe"])
    assert judged(answer) == (True, "")
    assert answer["output_lines"] == answer["counters"][-1] + 3
    assert not (stage.server / "ER").exists()


def test_directory_with_a_name_for_the_shell(stage, nobody):
    """And closed to all but its owner, as root is where root is squashed."""
    other = stage.directory / "it's a $(touch x)"
    other.mkdir(mode=0o700)
    os.chown(other, nobody.pw_uid, nobody.pw_gid)
    assert judged(stage("node1", "node2", work_path=str(other))) == (True, "")
    assert os.listdir(other) == []


def test_work_of_the_job_is_closed_to_others(stage):
    stage.use(qsub='ls -ld "${{6%/stdout}}" > ls; ls -ld "${{8%/stdout}}" >> ls; exit 1\n')
    stage("node1")
    assert re.search(r"^drwx------ .* nobody ", (stage.server / "ls").read_text(), re.MULTILINE)


@pytest.mark.parametrize("text, version", [
    ("echo Version: 6.1.3.h5; echo Commit: 1", "6.1.3.h5"), ("echo version: 2.5.13 >&2", "2.5.13"), ("exit 1", None),
])
def test_version(stage, text, version):
    stage.use(qstat=GOOD["qstat"].replace("echo \"Version: 6.1.3\"; echo \"Commit: none\"", text))
    answer = stage("node1", case="move")
    assert (judged(answer), answer.get("torque")) == ((True, ""), version)


def test_images_beside_those_of_other_jobs(stage):
    """A server that names the directory of all jobs' images."""
    stage.use(qchkpt="image\nput checkpoint_dir %s/\n" % stage.images.parent)
    (stage.images.parent / "13.head.CK").mkdir()
    answer = stage("node1")
    assert judged(answer) == (True, "")
    assert (stage.left(), stage.images.exists()) == ([str(stage.images.parent / "13.head.CK")], False)


def test_directory_of_images_that_is_not_empty(stage):
    """Root removes an empty directory and nothing else."""
    (stage.images / "other").mkdir()
    (stage.images / "other" / "file").write_text("root's\n")
    assert judged(stage("node1")) == (True, "")
    assert (stage.images / "other" / "file").read_text() == "root's\n"


@pytest.mark.parametrize("attribute, value", [("resources_used.walltime", None), ("resources_used.walltime", "soon")])
def test_walltime_that_is_none(stage, attribute, value):
    stage.use(job=JOB.replace("put resources_used.walltime 00:01:05", "put %s %s" % (attribute, value) if value else ":"))
    answer = stage("node1", case="move")
    assert (answer["passed"], answer["walltime"]) == (True, None)


def calls_but(stage, first):
    """The commands after the first ones (int), without the job's id."""
    return [line.replace(" 12.head", "") for line in stage.calls()[first:]]


def test_periodic_images(stage):
    """After each start the module waits for one; it asks for none."""
    later = "(sleep 0.5; image) >/dev/null 2>&1 </dev/null &\n"
    stage.use(qsub=GOOD["qsub"] + later, qrls=GOOD["qrls"] + later)
    answer = stage("node1", "node2", case="periodic")
    assert judged(answer) == (True, "")
    assert "-c enabled,periodic,interval=1 " in (stage.server / "argv").read_text()
    assert steps_done(answer) == ["submit", "periodic", "hold", "release", "periodic", "finish"]
    assert answer["comments"] == ["image 1", "image 2", "image 3"]
    assert "nobody: qchkpt 12.head" not in stage.calls()
    assert stage.left() == []


def test_hold_that_is_released_at_once(stage):
    stage.use(qhold='if [ "$2" = s ]; then %selse %sfi\n' % (ROOTS_HOLD, GOOD["qhold"]),
              qrls='if [ "$2" = s ]; then put start_count 2; else %sfi\n' % GOOD["qrls"])
    answer = stage("node1", "node2", case="preempt")
    assert judged(answer) == (True, "")
    assert steps_done(answer) == ["submit", "preempt", "hold", "release", "finish"]
    assert answer["comments"] == ["image 1", "image 2"]
    assert [call for call in stage.calls() if " -h s " in call] == ["root: qhold -h s 12.head", "root: qrls -h s 12.head"]


def test_hold_that_has_to_fail(stage):
    answer = stage("node1", "node2", case="failed_hold")
    assert judged(answer) == (True, "")
    assert steps_done(answer) == ["submit", "continue", "failed_hold", "hold", "release", "finish"]
    assert re.fullmatch("mkdir: cannot create directory .*: Permission denied", answer["comments"][1])
    assert answer["comments"][::2] == ["image 1", "image 3"]
    assert len(answer["counters"]) == 3
    assert calls_but(stage, 1) == ["nobody: qchkpt", "nobody: qhold", "nobody: qhold", "root: qalter -l nodes=node2", "nobody: qrls"]
    assert stage.left() == []


@contextlib.contextmanager
def node_with(stage, reason, remove=True):
    """Do for the module what a node does whose store is to be full; reason is why it cannot be."""
    request, full = stage.work / "request", stage.work / "request.full"

    def fill():
        if wait_until(lambda: request.exists() and request.read_text(), 20):
            full.write_text(reason + "\n")
            stage.asked = request.read_text()
            wait_until(lambda: not request.exists(), 20)
            if remove:
                full.unlink()

    thread = threading.Thread(target=fill)
    thread.start()
    yield str(request)
    thread.join()


FULL = "the image needs 5 MiB, store /shared/ckpt has 0 bytes free; the job keeps running"
ONTO_FULL = 'if [ -e "%s/request.full" ]; then put Hold_Types n; put comment "' + FULL + '"; else %sfi\n'


def test_hold_onto_a_full_store(stage):
    stage.use(qhold=ONTO_FULL % (stage.work, GOOD["qhold"]))
    with node_with(stage, "") as request:
        answer = stage("node1", "node2", case="full_store", full_store_file=request)
    assert judged(answer) == (True, "")
    assert steps_done(answer) == ["submit", "continue", "full_store", "hold", "release", "finish"]
    assert (answer["comments"], stage.asked) == (["image 1", FULL, "image 2"], "12.head.CK\n")
    assert (stage.left(), os.listdir(stage.work)) == ([], [])


def test_store_that_cannot_be_filled(stage):
    with node_with(stage, "mount on node1: not permitted") as request:
        answer = stage("node1", "node2", case="full_store", full_store_file=request)
    assert judged(answer) == (None, "not proven: mount on node1: not permitted")
    assert (stage.left(), os.listdir(stage.work)) == ([], [])


def test_store_that_nobody_fills(stage):
    request = stage.work / "request"
    answer = stage("node1", "node2", case="full_store", full_store_file=str(request), timeout=1)
    assert judged(answer) == (None, "not proven: nobody filled the store of node1 within 1 seconds after %s was created" % request)
    assert (stage.left(), os.listdir(stage.work)) == ([], [])


def test_store_that_stays_full(stage):
    stage.use(qhold=ONTO_FULL % (stage.work, GOOD["qhold"]))
    with node_with(stage, "", remove=False) as request:
        answer = stage("node1", "node2", case="full_store", full_store_file=request, timeout=2)
    assert judged(answer) == (False, "node1: full_store: %s.full is still there 2 seconds after %s was removed; unmount %s on node1 if "
                              "something is mounted there" % (request, request, stage.images))
    assert stage.left() == [request + ".full"]


def test_restart_that_has_to_fail(stage):
    answer = stage("node1", "node2", "node1", case="failed_restart")
    assert judged(answer) == (True, "")
    assert steps_done(answer) == ["submit", "hold", "failed_restart", "release", "hold", "release", "finish"]
    assert answer["comments"] == ["image 1", "Permanent failure of the restart: the image is damaged", "image 2"]
    assert answer["nodes"] == ["node1", "node2", "node1"]
    assert calls_but(stage, 1)[:5] == ["nobody: qhold", "root: qalter -l nodes=node2", "nobody: qrls", "root: qalter -l nodes=node2",
                                       "nobody: qrls"]
    assert stage.left() == []


WATCHFUL = """\
image="{images}/$(cat attributes/checkpoint_name)"
reason=
[ -e "$image" ] || reason="image cannot be opened: No such file or directory"
[ "$reason" ] || [ $(stat -c %s "$image/pages") = 3000 ] || reason="the image is damaged: pages has $(stat -c %s "$image/pages") bytes"
[ "$reason" ] || ! grep -q 1970 "$image/manifest.json" || reason="a manifest that root's hooks did not write, or that was changed since"
[ "$reason" ] || [ $(stat -c %U "$image/pages") != root ] || reason="the image is damaged: pages: Permission denied"
put exec_host "$(cat wanted)/0"
if [ "$reason" ]; then put comment "Permanent failure of the restart: $reason"
else put job_state R; kill -s CONT -- "-$(cat session)"; fi
"""


@pytest.mark.parametrize("case, comment", [
    ("truncated_image", "the image is damaged: pages has 1500 bytes"),
    ("changed_manifest", "a manifest that root's hooks did not write, or that was changed since"),
    ("foreign_file", "the image is damaged: pages: Permission denied"),
    ("deleted_image", "image cannot be opened: No such file or directory"),
])
def test_restart_that_has_to_fail_because_of_its_image(stage, case, comment):
    stage.use(qrls=WATCHFUL)
    answer = stage("node1", "node2", case=case)
    assert judged(answer) == (True, "")
    assert steps_done(answer) == ["submit", "hold", case, "release", "finish"]
    assert answer["comments"] == ["image 1", "Permanent failure of the restart: " + comment]
    assert stage.left() == []


def test_failed_restart_that_gives_the_image_a_second_name(stage):
    """As the hooks do on a pbs_mom without the patch restart-status."""
    stage.use(qrls=GOOD["qrls"] + "mkdir -p {images}/second\n")
    assert judged(stage("node1", "node2", case="failed_restart")) == (True, "")


DEAF = "put comment \"argument 5, the directory, is not an absolute path of plain characters\"\n"


def test_directory_with_a_command_in_its_name(stage):
    stage.use(qhold=DEAF + "put Hold_Types n\n")
    answer = stage("node1", "node2", case="failed_directory", images_path="/other/ckpt")
    assert judged(answer) == (True, "")
    assert (answer["nodes"], steps_done(answer)) == (["node1"], ["submit", "failed_directory", "finish"])
    argv = (stage.server / "argv").read_text()
    words = re.match(r"-N validate -c enabled,dir=/tmp/\$\(id>(\S+)/proof\) -l nodes=node1 -o (\S+)/stdout ", argv)
    assert words and words.group(1) == words.group(2)
    assert stage.left() == []


def test_directory_with_a_command_in_its_name_that_is_run(stage):
    stage.use(qhold=DEAF + 'id > "$(dirname "$(cat out)")/proof"\nput Hold_Types n\n')
    assert judged(stage("node1", case="failed_directory")) == (
        False, "node1: failed_directory: a command in the name of the directory for the job's images was run by nobody; build TORQUE "
        "with the patches")


@pytest.mark.parametrize("case", ["files", "timers", "connections"])
def test_other_programs(stage, case):
    answer = stage("node1", "node2", case=case)
    assert judged(answer) == (True, "")
    assert steps_done(answer) == ["submit", "continue", "hold", "release", "finish"]
    assert answer["exit_status"] == 7
    assert stage.left() == []


def test_large_program(stage):
    answer = stage("node1", "node2", case="memory", memory=3)
    assert judged(answer) == (True, "")
    assert steps_done(answer) == ["submit", "continue", "throughput", "hold", "release", "finish"]
    assert answer["image_bytes_per_second"] == int(answer["image_bytes"] / 0.25)
    assert answer["store_bytes_per_second"] > 1 << 20
    assert stage.left() == []


@pytest.mark.parametrize("case, harm, words", [
    ("files", "sed -i 5d $work/growing", "the file that grows says"),
    ("files", "printf x | dd of=$work/table bs=1 seek=1000 conv=notrunc", "the file that is changed in place says"),
])
def test_other_program_whose_file_is_changed(stage, case, harm, words):
    stage.use(qhold=GOOD["qhold"] + 'work=$(dirname "$(cat out)")\n%s 2> noise\n' % harm)
    answer = stage("node1", "node2", case=case)
    assert answer["passed"] is False
    assert words in answer["cause"], answer["cause"]


def test_job_of_an_array(stage):
    """A pbs_server 2.x creates it after the answer to qsub."""
    unknown = 'if [ "$1" = -f ] && [ ! -e asked ]; then touch asked; echo "qstat: Unknown Job Id Error $2" >&2; exit 153; fi\n'
    stage.use(qstat=unknown + GOOD["qstat"],
              qsub=GOOD["qsub"].replace("echo 12.head", "echo '12[].head'").replace("-o) echo", "-t) ;;\n        -o) echo"),
              deliver='cp OU "$1-0"; [ ! -e ER ] || cp ER "$2-0"\n')
    answer = stage("node1", "node2", case="array")
    assert judged(answer) == (True, "")
    assert answer["job_id"] == "12[0].head"
    assert answer["image_bytes"] > 3000
    assert " -t 0 " in (stage.server / "argv").read_text()
    assert stage.calls()[:2] == ["nobody: qsub", "nobody: qchkpt 12[0].head"]
    assert stage.left() == []


def test_depth(stage):
    assert judged(stage("node1", "node2", depth=2)) == (True, "")
    assert (stage.server / "argv").read_text().startswith("-N validate -c enabled,depth=2 -l nodes=node1 -o ")


# programs that write restart files of their own

RUNNER = """\
#!/bin/sh
echo "$*" > {server}/runner
while [ "$1" != -- ]; do
    case $1 in
        --signal) echo "kill -s $2 \\$CKPT_RUN_PID" > {server}/request ;;
        --checkpoint) echo "$2" > {server}/request ;;
    esac
    shift 2
done
shift
pwd > {server}/cwd
while :; do
    "$@" &
    echo $! > {server}/program
    wait $!
    status=$?
    [ -e {server}/asked ] || exit $status
    while [ -e {server}/asked ]; do sleep 0.05; done
done
"""
ASK = """\
: > asked
export CKPT_RUN_PID=$(cat program)
request=$(cat request)
(cd "$(cat cwd)" && sh -c "$request")
while kill -s 0 $CKPT_RUN_PID 2>/dev/null; do sleep 0.05; done
"""
NESTED = {"qchkpt": ASK + "image\nrm asked\n", "qhold": ASK + GOOD["qhold"], "qrls": "rm asked\n" + GOOD["qrls"]}


@pytest.fixture
def runner(stage):
    """The path of a ckpt-run that the server's commands can ask."""
    stage.program(stage.bin / "ckpt-run", RUNNER.format(server=stage.server))
    stage.use(**NESTED)
    return str(stage.bin / "ckpt-run")


@pytest.mark.parametrize("case, option", [("nested_signal", "--signal TERM"),
                                          ("nested_command", "--checkpoint touch request.$CKPT_RUN_PID")])
def test_program_under_ckpt_run(stage, runner, case, option):
    answer = stage("node1", "node2", case=case, ckpt_run_path=runner)
    assert judged(answer) == (True, "")
    assert (stage.server / "runner").read_text() == "%s --file state -- python3 program.py stop 0.02 7\n" % option
    assert steps_done(answer) == ["submit", "continue", "hold", "release", "finish", "starts"]
    assert (answer["exit_status"], answer["output_lines"]) == (7, answer["counters"][-1] + 1)
    assert stage.left() == []


def test_program_that_is_in_the_image(stage, runner):
    """It moves, but nobody has asked it."""
    stage.use(qhold=GOOD["qhold"], qrls=GOOD["qrls"])
    assert judged(stage("node1", "node2", case="nested_signal", ckpt_run_path=runner)) == (
        False, "node2: starts: the number of times that ckpt-run started the program is 2, expected 3: once, and again after each image")
    assert stage.left() == []


def test_program_that_does_not_continue_from_its_file(stage, runner):
    stage.use(qchkpt=ASK + 'rm "$(cat cwd)/state"\nimage\nrm asked\n')
    answer = stage("node1", case="nested_signal", ckpt_run_path=runner)
    assert answer["passed"] is False
    assert re.fullmatch(r"node1: finish: the output that TORQUE delivered is not whole: counter 1 follows \d+ \(repeat\); "
                        r"line \d+ comes from another process: its secret is [0-9a-f]{16}, was [0-9a-f]{16}", answer["cause"])


def test_node_without_ckpt_run(stage):
    answer = stage("node1", case="nested_signal", ckpt_run_path="/nonexistent/ckpt-run", timeout=60)
    assert answer["passed"] is False
    assert re.fullmatch(r"node1: submit: (job 12\.head ended \(exit status 127\) instead of coming to state R: no comment|the job made no "
                        r"progress on node1 \(counter 0, state C, waited 60 seconds at most\): no comment); its stderr ends with: "
                        r"\S*/job\.sh: line 3: /nonexistent/ckpt-run: No such file or directory", answer["cause"]), answer["cause"]


# MPI

RANKS = """\
import os, sys, time
counter = 0
while not os.path.exists(sys.argv[1]):
    counter += 1
    print(counter, counter, {total}, "abcd", flush=True)
    time.sleep(float(sys.argv[2]))
print("end", counter)
"""
COMPILER = """\
#!/bin/sh
[ "$1 $2 $3" = "-o program program.c" ] && grep -q MPI_Allreduce program.c && cp {server}/ranks program
"""
LAUNCHER = """\
#!/bin/sh
echo "$*" > {server}/launcher
while [ "$1" != ./program ]; do shift; done
exec python3 "$@"
"""
# The probes are jobs, too, and the next one starts when they have ended.
ONE_AFTER_THE_OTHER = GOOD["qsub"].replace("start\nput job_state R\n", "rm -f OU ER\nput job_state R\nstart\n") + (
    'case $1 in */probe.*) while [ "$(cat attributes/job_state)" = R ]; do sleep 0.05; done ;; esac\n')


@pytest.fixture
def ranks(stage):
    """An MPI of shell on the nodes; called with its suffix and what the ranks sum up."""
    def install(mpi, total="counter"):
        for name, text in (("mpicc", COMPILER), ("mpiexec", LAUNCHER)):
            stage.program(stage.bin / ("%s.%s" % (name, mpi)), text.format(server=stage.server))
        stage.program(stage.server / "ranks", RANKS.format(total=total))
    stage.use(qsub=ONE_AFTER_THE_OTHER)
    return install


@pytest.mark.parametrize("mpi, arguments", [("mpich", "-n 4"), ("openmpi", "--oversubscribe -n 4")])
def test_job_with_mpi(stage, ranks, mpi, arguments):
    ranks(mpi)
    answer = stage("node1", "node2", "node1", case="mpi_" + mpi)
    assert judged(answer) == (True, "")
    assert [(phase["step"], phase["node"]) for phase in answer["phases"]] == [
        ("probe", "node1"), ("probe", "node2"), ("submit", "node1"), ("continue", "node1"), ("hold", "node1"), ("release", "node2"),
        ("hold", "node2"), ("release", "node1"), ("finish", "node1")]
    assert (stage.server / "launcher").read_text() == arguments + " ./program stop 0.02\n"
    assert answer["states"][0]["state"] == "R"
    assert stage.calls()[:4] == ["nobody: qsub", "nobody: qsub", "nobody: qsub", "nobody: qchkpt 12.head"]
    assert stage.left() == []


def test_rank_that_has_missed_a_step(stage, ranks):
    ranks("mpich", "counter - (counter == 3)")
    assert judged(stage("node1", case="mpi_mpich")) == (
        False, "node1: finish: the output that TORQUE delivered is not whole: line 3: the message around the ranks says 3, "
        "the sum over all ranks says 2")


def test_node_without_mpi(stage, ranks):
    ranks("openmpi")
    answer = stage("node1", "node2", case="mpi_mpich")
    assert judged(answer) == (None, "not proven: node1 has no mpicc.mpich, mpiexec.mpich")
    assert (answer["nodes"], answer["phases"], "job_id" in answer) == (["node1", "node2"], [], False)
    assert (stage.calls(), stage.left()) == (["nobody: qsub"], [])


def nodes_are(stage, cases):
    """Have pbsnodes print the state of a node ($1) by the branches of a case statement."""
    stage.program(stage.bin / "pbsnodes",
                  "#!/bin/sh\ncase $1 in\n%s\n*) state=free;;\nesac\necho $1\necho \"     state = $state\"\n" % cases)


@pytest.mark.parametrize("state, words", [
    ("job-exclusive", "has no free slot"), ("offline", "is offline"), ("busy", "has too much load for another job"),
    ("offline,job-exclusive", "is offline")])
def test_node_that_takes_no_job(stage, state, words):
    """Other users' jobs are no fault, and nothing is queued behind them."""
    nodes_are(stage, "node1) state=%s;;" % state)
    answer = stage("node1", "node2", timeout=1)
    assert judged(answer) == (None, "not proven: node1 " + words)
    assert (answer["nodes"], stage.calls(), stage.left()) == (["node1", "node2"], [], [])


def test_next_node_that_takes_no_job(stage):
    """The held job is removed with its image."""
    nodes_are(stage, "node2) state=job-exclusive;;")
    answer = stage("node1", "node2", timeout=5)
    assert judged(answer) == (None, "not proven: node2 has no free slot")
    assert [phase["step"] for phase in answer["phases"]] == ["submit", "continue", "hold"]
    assert (answer["nodes"], stage.calls()[-1], stage.left()) == (["node1", "node2"], "root: qdel 12.head", [])


def marks_of(stage, refuse=""):
    """Have a pbsnodes that marks nodes, in files; root's holds and releases write what is the user's all the same.

    :param refuse: shell text that comes before it
    """
    (stage.bin / "marks").mkdir()
    stage.program(stage.bin / "pbsnodes", """#!/bin/sh
cd %s
case $1 in
-*) %s echo "$*" >> log ;;
esac
case $1 in
-o) echo "$3" > "$4"; exit ;;
-c) rm -f "$4"; exit ;;
esac
echo "$1"
if [ -e "$1" ]; then printf '     state = offline\\n     note = %%s\\n' "$(cat "$1")"; else echo "     state = free"; fi
""" % (stage.bin / "marks", refuse))
    own = "chown -R --reference={images} {images}/* attributes number refusal\n"
    stage.use(qhold=GOOD["qhold"] + own, qrls=GOOD["qrls"] + own)


def marking(stage):
    """What pbsnodes was told."""
    log = stage.bin / "marks/log"
    return log.read_text().splitlines() if log.exists() else []


def test_drained_node(stage):
    """It is offline until the job runs elsewhere; the job's owner could not have taken the hold off."""
    marks_of(stage)
    answer = stage("node1", "node2", "node1", case="drain")
    assert judged(answer) == (True, "")
    assert steps_done(answer) == ["submit", "hold", "release", "hold", "release", "finish"]
    assert [call for call in stage.calls() if "qhold" in call or "qrls" in call] == [
        "root: qhold -h o 12.head", "root: qrls -h o 12.head", "nobody: qhold 12.head", "nobody: qrls 12.head"]
    assert marking(stage) == ["-o -N ckpt-torque: validate node1", "-c -N n node1"]


def test_drained_node_that_its_job_does_not_leave(stage):
    """It is taken into use again."""
    marks_of(stage)
    stage.use(qhold="put comment refused\n")
    answer = stage("node1", "node2", case="drain", timeout=1)
    assert answer["passed"] is False
    assert answer["cause"].startswith("node1: hold: "), answer
    assert marking(stage) == ["-o -N ckpt-torque: validate node1", "-c -N n node1"]


def test_drained_node_that_somebody_takes_into_use(stage):
    marks_of(stage)
    stage.use(qrls="rm %s/marks/node1\n" % stage.bin + GOOD["qrls"])
    assert judged(stage("node1", "node2", case="drain")) == (
        False, "node2: release: node1 was taken into use while the job left it")
    assert marking(stage) == ["-o -N ckpt-torque: validate node1"]


def test_node_that_cannot_be_drained(stage):
    """The job is removed."""
    marks_of(stage, "echo pbsnodes: Unauthorized Request >&2; exit 0;")
    assert judged(stage("node1", "node2", case="drain")) == (
        None, "not proven: pbsnodes did not drain node node1: Unauthorized Request; only root on the server's host and the "
              "server's managers and operators may do this")
    assert (marking(stage), stage.calls()[-1], stage.left()) == ([], "root: qdel 12.head", [])


@contextlib.contextmanager
def crashing(path, crash):
    """Call crash() once the file exists."""
    thread = threading.Thread(target=lambda: wait_until(path.exists, 20) and crash())
    thread.start()
    yield
    thread.join()


def test_job_that_ends_with_its_node(stage):
    """As it does on a TORQUE without the patches."""
    def crash():
        stage.kill()
        (stage.server / "attributes" / "exit_status").write_text("0\n")
        (stage.server / "attributes" / "job_state").write_text("C\n")

    nodes_are(stage, "")
    with crashing(stage.work / "crash", crash):
        answer = stage("node1", case="node_crash", crash_file=str(stage.work / "crash"))
    assert judged(answer) == (False, "node1: node_crash: the job did not continue after the crash (state C, exit status 0): image 1; build "
                              "TORQUE with the patches")
    assert stage.left() == []


def test_node_that_does_not_crash(stage):
    nodes_are(stage, "")
    answer = stage("node1", case="node_crash", crash_file=str(stage.work / "crash"), boot_timeout=1)
    assert judged(answer) == (False, "node1: node_crash: the job was started 0 times, not once, within 1 seconds after %s was created; see "
                              "that the node crashes then" % (stage.work / "crash"))
    assert stage.left() == []


def test_server_that_is_no_service_here(stage):
    """A unit test can stop none."""
    assert judged(stage("node1", "node2", case="server_away")) == (None, "not proven: pbs_server.service does not run on this host")
    assert stage.left() == []


def test_slot_that_the_job_has_just_left(stage):
    """The server may still count it for a moment."""
    nodes_are(stage, "node2) if mkdir %s/asked 2> /dev/null; then state=job-exclusive; else state=free; fi;;" % stage.bin)
    assert judged(stage("node1", "node2")) == (True, "")


@pytest.mark.parametrize("text", ["exit 1", "echo pbsnodes: Unknown node >&2", "echo '     state = down'"])
def test_node_of_which_pbsnodes_tells_nothing(stage, text):
    """The job itself shows what is wrong with a node."""
    stage.program(stage.bin / "pbsnodes", "#!/bin/sh\n%s\n" % text)
    assert judged(stage("node1", "node2")) == (True, "")


def test_node_without_a_launcher(stage, ranks):
    ranks("mpich")
    (stage.bin / "mpiexec.mpich").unlink()
    assert judged(stage("node1", "node2", case="mpi_mpich")) == (None, "not proven: node1 has no mpiexec.mpich")


def test_mpi_without_a_compiler(stage, ranks):
    ranks("mpich")
    stage.program(stage.bin / "mpicc.mpich", "#!/bin/sh\necho 'mpicc: line 5: gcc: command not found' >&2\nexit 127\n")
    assert judged(stage("node1", "node2", case="mpi_mpich", timeout=60)) == (
        None, "not proven: mpicc.mpich on %s cannot compile a program: mpicc: line 5: gcc: command not found" % NODE)
    assert stage.left() == []


def test_probe_that_leaves_no_report(stage, ranks):
    ranks("mpich")
    stage.use(job=JOB.replace("bash", ": bash"))
    assert judged(stage("node1", case="mpi_mpich", timeout=1)) == (
        False, "node1: probe: the job that looks for mpicc.mpich, mpiexec.mpich has left no report")


def test_probe_that_cannot_be_removed(stage, ranks):
    """What is left on the server is a failure, whatever the nodes have."""
    stage.use(qstat=GOOD["qstat"] + "[ -e over ] && {{ echo qstat: gone >&2; exit 1; }}\n", qsub=ONE_AFTER_THE_OTHER + ": > over\n")
    assert judged(stage("node1", case="mpi_mpich")) == (
        False, "node1: probe: qstat -f 12.head exited 1: qstat: gone; clean: qstat -f 12.head exited 1: qstat: gone")


def test_nothing_is_proven_but_something_is_left():
    """A verdict of None must not hide it."""
    assert job_roundtrip.judge(["not proven: node1 has no mpicc.mpich"], False) is None
    assert job_roundtrip.judge(["not proven: node1 has no mpicc.mpich", "clean: qdel 12.head exited 1"], False) is False
    assert (job_roundtrip.judge([], True), job_roundtrip.judge(["x"], True)) == (True, False)


# what fails, step by step

@pytest.mark.parametrize("case, parts, cause", [
    ("periodic", {"qsub": GOOD["qsub"] + "(sleep 1; end) >/dev/null 2>&1 &\n"},
     r"node1: periodic: there is no image without a command \(state C, waited 61 seconds at most\): no comment"),
    ("older_image", {},
     r"node2: release: the job continues from \d+, but its image was written at \d+: it is not from the image that was named"),
    ("move", {"qrls": 'echo 6 6 6 secret >> "$(dirname "$(cat out)")/progress"\n' + GOOD["qrls"]},
     r"node2: release: the job continues from 5, but its image was written at \d\d+: it is not from the image that was named"),
    ("older_image", {"qalter": ":\n"}, r"node1: older_image: the server still names the image ckpt\.12\.head\.2 after "
     r"qalter -W checkpoint_name=ckpt\.12\.head\.1"),
    ("failed_hold", {"qhold": "kill -s STOP -- \"-$(cat session)\"\nput comment elsewhere\nput job_state H\n"},
     "node1: failed_hold: this had to fail, but the job is in state H; its comment: elsewhere"),
    ("failed_hold", {"qhold": "put comment Permission denied; put Hold_Types u\n"},
     "node1: failed_hold: this had to fail, but the job is in state R; its comment: Permission"),
    ("failed_hold", {"qhold": "image\nput Hold_Types n\nend\n"},
     "node1: failed_hold: this had to fail, but the job is in state C; its comment: mkdir: .*: Permission denied"),
    ("failed_hold", {"qhold": "image\nput Hold_Types n\nrm {images}/*/pages\n"},
     r"node1: failed_hold: this failed, but changed among the job's images: ckpt\.12\.head\.1/pages \(3000 bytes\)"),
    ("failed_hold", {"qhold": "kill -s STOP -- \"-$(cat session)\"\nimage\nput Hold_Types n\n"},
     r"node1: failed_hold: the job made no progress on node1 \(counter \d+, state R, waited 1 seconds at most\): mkdir.*"),
    ("failed_restart", {"qrls": "put job_state R\nkill -s CONT -- \"-$(cat session)\"\n"},
     "node2: failed_restart: this had to fail, but the job is in state R; its comment: image 1"),
    ("failed_restart", {"qrls": "put comment 'the image is damaged'\nend\n"},
     "node2: failed_restart: this had to fail, but the job is in state C; its comment: the image is damaged"),
    ("failed_restart", {"qrls": GOOD["qrls"] + "rm -r {images}/*.1\nmkdir {images}/ckpt.12.head.1\n"},
     r"node2: failed_restart: this failed, but changed among the job's images: ckpt\.12\.head\.1/manifest\.json \(\d+ bytes\), "
     r"ckpt\.12\.head\.1/pages \(3000 bytes\)"),
    ("failed_restart", {"qrls": GOOD["qrls"] + 'echo late > "$(cat out)"\n'},
     "node2: failed_restart: the restart failed, and the output that TORQUE had delivered is not as it was"),
    ("preempt", {"qhold": ROOTS_HOLD + "put job_state H\n", "qrls": ":\n"},
     r"node1: preempt: the job was not started again after a hold that was released at once \(state H\): image 1"),
    ("preempt", {"qhold": ":\n", "qrls": "put start_count 2\n"},
     "node1: preempt: the job was started again after a hold that was released at once, but not from a new image"),
], ids=["periodic", "newer image", "work lost", "older image refused", "held", "hold not taken back", "ended", "image damaged", "stopped",
        "runs", "ended by the restart", "image gone", "output gone", "stays held", "starts anew"])
def test_case_that_fails(stage, case, parts, cause):
    stage.use(**parts)
    answer = stage("node1", "node2", case=case, timeout=1)
    assert answer["passed"] is False
    assert re.fullmatch(cause, answer["cause"]), answer["cause"]
    assert stage.left() == []


def test_depth_that_is_not_heeded(stage):
    assert judged(stage("node1", "node2", depth=1)) == (False, "node1: hold: the job was submitted with depth 1 and has written 2 images, "
                                                        "but these are kept: ckpt.12.head.1, ckpt.12.head.2")
    assert stage.left() == []


def test_depth_that_takes_too_much(stage):
    stage.use(qhold=GOOD["qhold"] + "rm -r {images}/*.1\n")
    assert judged(stage("node1", "node2", depth=2)) == (False, "node1: hold: the job was submitted with depth 2 and has written 2 images, "
                                                        "but these are kept: ckpt.12.head.2")


@pytest.mark.parametrize("depth", ["null", "2", '"3"'])
def test_depth_that_does_not_arrive(stage, depth):
    stage.use(qsub=GOOD["qsub"] + "echo '%s' > depth\n" % depth)
    shown = {"null": "None", "2": "2", '"3"': "3"}[depth]
    assert judged(stage("node1", depth=3)) == (
        False, "node1: continue: the job was submitted with depth 3, but the checkpoint hook was given %s" % shown)


def test_walltime_that_a_restart_set_back(stage):
    """What the hold itself took is not the job's, so a few seconds may be missing, and no more."""
    stage.use(qhold=GOOD["qhold"] + "put resources_used.walltime 00:10:00\n", job=JOB.replace("00:01:05", "00:09:58"))
    assert judged(stage("node1", "node2", case="move")) == (True, "")


def test_walltime_that_starts_anew(stage):
    stage.use(qhold=GOOD["qhold"] + "put resources_used.walltime 00:10:00\n")
    answer = stage("node1", "node2", case="move")
    assert answer["passed"] is False
    assert re.fullmatch(r"node2: finish: the server accounts a walltime of 65 seconds, but the job had used 59[5-8] before its restart",
                        answer["cause"])


# what fails at any time

@pytest.mark.parametrize("parts, steps, cause", [
    ({"qsub": "echo qsub: no default queue >&2; exit 174\n"}, "",
     r"node1: submit: qsub -N validate .*/job\.sh exited 174: qsub: no default queue"),
    ({"qsub": GOOD["qsub"].replace("${{2#nodes=}}", "node9")}, "", "node1: submit: the job runs on node9, not on node1"),
    ({"qsub": GOOD["qsub"].replace("${{2#nodes=}}/0", "")}, "", "node1: submit: the job runs on no node, not on node1"),
    ({"qsub": GOOD["qsub"].replace("job_state R", "job_state Q")}, "",
     "node1: submit: job 12.head is in state Q, not R, after 1 seconds; its comment: none"),
    ({"qsub": GOOD["qsub"].replace("start\n", "put comment 'no script'; put exit_status 254\n").replace("job_state R", "job_state C")}, "",
     r"node1: submit: job 12.head ended \(exit status 254\) instead of coming to state R: no script"),
    ({"job": "echo $$ > session\nput comment waiting\nexec sleep 600 # {server}\n"}, "",
     r"node1: submit: the job made no progress on node1 \(counter 0, state R, waited 1 seconds at most\): waiting"),
    ({"qchkpt": "echo qchkpt: not checkpointable >&2; exit 170\n"}, "submit",
     "node1: continue: qchkpt 12.head exited 170: qchkpt: not checkpointable"),
    ({"qchkpt": "put comment 'hook failed'\n"}, "submit",
     r"node1: continue: there is no image after qchkpt \(state R, waited 1 seconds at most\): hook failed"),
    ({"qchkpt": ":\n"}, "submit",
     r"node1: continue: there is no image after qchkpt \(state R, waited 1 seconds at most\): no comment"),
    ({"qchkpt": "image\nkill -s STOP -- -$(cat session)\n"}, "submit",
     r"node1: continue: the job made no progress on node1 \(counter \d+, state R, waited 1 seconds at most\): image 1"),
    ({"qchkpt": "image\nrm {images}/*/manifest.json\n"}, "submit",
     r"node1: continue: the image {images}/ckpt\.12\.head\.1 has no manifest that can be read"),
    ({"qhold": "echo qhold: Server could not connect to MOM 12.head >&2; exit 170\n"}, "submit",
     "node1: hold: qhold 12.head exited 170: qhold: Server could not connect to MOM 12.head"),
    ({"qhold": "put comment 'no room on the store'\n"}, "submit",
     "node1: hold: job 12.head is in state R, not H, after 1 seconds; its comment: no room on the store"),
    ({"qhold": "image\n"}, "submit", "node1: hold: job 12.head is in state R, not H, after 1 seconds; its comment: image 1"),
    ({"qhold": "put comment killed; end\n"}, "submit",
     r"node1: hold: job 12.head ended \(exit status 271\) instead of coming to state H: killed"),
    ({"qhold": "put comment 'held only'\nrm attributes/checkpoint_name\nput job_state H\n"}, "submit",
     "node1: hold: the server names no image: held only"),
    ({"qhold": GOOD["qhold"] + "rm {images}/*/manifest.json\n"}, "submit",
     r"node1: hold: the image {images}/ckpt\.12\.head\.1 has no manifest that can be read"),
    ({"qhold": GOOD["qhold"] + "echo '{{}}' > {images}/ckpt.12.head.1/manifest.json\n"}, "submit",
     r"node1: hold: the image {images}/ckpt\.12\.head\.1 has no manifest that can be read"),
    ({"qhold": GOOD["qhold"] + "echo '[]' > {images}/ckpt.12.head.1/manifest.json\n"}, "submit",
     r"node1: hold: the image {images}/ckpt\.12\.head\.1 has no manifest that can be read"),
    ({"qalter": "echo qalter: Unauthorized Request >&2; exit 159\n"}, "submit hold",
     "node2: release: qalter -l nodes=node2 12.head exited 159: qalter: Unauthorized Request"),
    ({"qrls": "exit 1\n"}, "submit hold", "node2: release: qrls 12.head exited 1: it printed nothing"),
    ({"qrls": GOOD["qrls"].replace("$(cat wanted)", "node1")}, "submit hold", "node2: release: the job runs on node1, not on node2"),
    ({"qrls": "put job_state Q\nput comment 'allocated nodes must match checkpoint location'\n"}, "submit hold",
     "node2: release: job 12.head is in state Q, not R, after 1 seconds; its comment: allocated nodes must match checkpoint location"),
    ({"qrls": GOOD["qrls"].replace("kill -s CONT", ": ")}, "submit hold",
     r"node2: release: the job made no progress on node2 \(counter \d+, state R, waited 1 seconds at most\): image 1"),
    ({"deliver": ": no copy\n"}, "submit", r"node1: finish: the output that TORQUE delivered has no end; its last counter is 0"),
    ({"deliver": "sed 5d OU > \"$1\"; cp ER \"$2\"\n"}, "submit",
     r"node1: finish: the output that TORQUE delivered is not whole: counter 6 follows 4 \(gap\)"),
    ({"deliver": "sed 5p OU > \"$1\"; cp ER \"$2\"\n"}, "submit",
     r"node1: finish: the output that TORQUE delivered is not whole: counter 5 follows 5 \(repeat\)"),
    ({"deliver": "sed '$d' OU > \"$1\"; cp ER \"$2\"\n"}, "submit",
     r"node1: finish: the output that TORQUE delivered has no end; its last counter is \d+"),
    ({"deliver": "printf %s \"$(cat OU)\" > \"$1\"; cp ER \"$2\"\n"}, "submit",
     "node1: finish: the output that TORQUE delivered is not whole: the last line is cut off"),
    ({"deliver": "cp OU \"$1\"\n"}, "submit",
     r"node1: finish: the job's stderr is \[\], expected \['job starts', 'job ends with 7'\]"),
    ({"deliver": "cp OU \"$1\"; sed 1p ER > \"$2\"\n"}, "submit",
     r"node1: finish: the job's stderr is \['job starts', 'job starts', 'job ends with 7'\], expected \['job starts', 'job ends with 7'\]"),
    ({"job": JOB.replace("put exit_status $?", "put exit_status 0")}, "submit",
     "node1: finish: the job's exit status is 0, expected 7"),
    ({"job": JOB.replace("put exit_status $?", "")}, "submit",
     "node1: finish: the server keeps no completed jobs, so the exit status cannot be known; set keep_completed"),
    ({"job": JOB.replace("put job_state C", "rm attributes/job_state")}, "submit",
     "node1: finish: the server keeps no completed jobs, so the exit status cannot be known; set keep_completed"),
], ids=[
    "qsub", "wrong node", "no node", "queued", "ended", "no progress",
    "qchkpt", "no image", "no image, silent", "stopped", "no manifest of qchkpt",
    "qhold", "not held", "image, but not held", "killed", "held without an image", "no manifest", "no engine", "list as a manifest",
    "qalter", "qrls", "wrong node after release", "queued after release", "no progress after release",
    "no output", "gap", "repeat", "no end", "cut line", "no stderr", "more stderr", "exit status", "no exit status", "gone"])
def test_step_that_fails(stage, parts, steps, cause):
    """The cause says what TORQUE said; the job, its files and its images are removed."""
    stage.use(**parts)
    step = cause.split(": ")[1]
    answer = stage("node1", *[] if step == "finish" else ["node2"], case="continue" if step == "continue" else "move",
                   timeout=5 if step == "finish" else 1)
    assert answer["passed"] is False
    assert re.fullmatch(cause.format(images=stage.images), answer["cause"]), answer["cause"]
    assert steps_done(answer) == steps.split()
    assert stage.left() == []
    submitted = "qsub -N" not in cause
    assert ("job_id" in answer) == submitted
    assert ("root: qdel 12.head" in stage.calls()) == (submitted and step != "finish" and "ended" not in cause)


def test_progress_of_another_does_not_prove_the_restart(stage):
    """A pbs_mom that died in a restart left the job running there; it made progress while an older image ended elsewhere."""
    stage.use(deliver="sed '4,$d' OU > \"$1\"; echo 'end 3' >> \"$1\"; cp ER \"$2\"\n")
    answer = stage("node1", "node2", timeout=60)
    assert answer["passed"] is False
    assert re.fullmatch(r"node2: finish: the job ended at 3, but its last image was written at \d+: it is not from that image",
                        answer["cause"])


def test_nodes_are_those_the_job_was_on(stage):
    stage.use(qrls=GOOD["qrls"].replace("$(cat wanted)", "node9"))
    assert stage("node1", "node2", timeout=1)["nodes"] == ["node1"]
    stage.use(qsub="exit 1\n")
    assert stage("node1", "node2", timeout=1)["nodes"] == ["node1", "node2"]


@pytest.mark.parametrize("state", ["C", "H"], ids=["ended", "held"])
def test_job_that_stops_early(stage, state):
    """Nobody waits for the progress of a job that has ended, or was held because its restart failed: 300 seconds would end this test."""
    stage.use(qstat=GOOD["qstat"] + "[ -e said ] || {{ put comment 'no such file'; put job_state %s; : > said; }}\n" % state,
              job="echo $$ > session\nexec sleep 600 # {server}\n")
    answer = stage("node1", timeout=300)
    if state == "C":
        stage.kill()
    assert judged(answer) == (False, "node1: submit: the job made no progress on node1 (counter 0, state %s, waited 300 seconds at most): "
                              "no such file" % state)
    assert ("root: qdel 12.head" in stage.calls()) == (state == "H")


def test_job_that_starts_anew(stage):
    """The worst a restart can do: all looks well, and the work done so far is lost."""
    stage.use(qrls=GOOD["qrls"].replace("kill -s CONT", "kill -s KILL") + "start\n")
    answer = stage("node1", "node2", case="move")
    assert judged(answer) == (False, "node2: release: the job continues from 0, but its image was written at %d: it is not from the image "
                              "that was named" % answer["counters"][0])
    assert steps_done(answer) == ["submit", "hold"]


# the end

def test_directory_that_is_missing(stage):
    answer = stage("node1", work_path=str(stage.work / "none"))
    assert judged(answer) == (False, "node1: submit: there is no directory %s/none for the job's output; add nobody to "
                              "checkpoint_store_users or name a work_path" % stage.work)
    assert (stage.calls(), answer["phases"], "job_id" in answer) == ([], [], False)


def test_directory_that_is_not_the_users(stage):
    os.chown(stage.work, 0, 0)
    answer = stage("node1")
    assert answer["passed"] is False
    assert re.fullmatch(r"node1: submit: PermissionError: \[Errno 13\] Permission denied: '%s/validate-\d+-\d+'" % stage.work,
                        answer["cause"])
    assert stage.calls() == []


def test_job_that_cannot_be_deleted(stage):
    """Both causes are told, and the files are removed all the same."""
    stage.use(qhold="exit 1\n", qdel="echo qdel: Unauthorized Request >&2; exit 159\n")
    answer = stage("node1", "node2")
    stage.kill()
    assert judged(answer) == (False, "node1: hold: qhold 12.head exited 1: it printed nothing; "
                              "clean: qdel 12.head exited 159: qdel: Unauthorized Request")
    assert (stage.left(), stage.images.exists()) == ([], False)


def test_job_that_does_not_go_away(stage):
    stage.use(qhold="exit 1\n", qdel=":\n")
    answer = stage("node1", "node2", case="move", timeout=1)
    stage.kill()
    assert judged(answer) == (False, "node1: hold: qhold 12.head exited 1: it printed nothing; clean: job 12.head is still there "
                              "after 1 seconds; look at its node, then use qdel -p")


def test_job_that_does_not_end(stage):
    """qdel refuses a job that is about to end."""
    stage.use(deliver="put job_state E; exec sleep 600 # {server}\n")
    answer = stage("node1", case="move", timeout=1)
    stage.kill()
    assert judged(answer) == (False, "node1: finish: job 12.head is in state E, not C, after 1 seconds; its comment: none; "
                              "clean: job 12.head is still there after 1 seconds; look at its node, then use qdel -p")
    assert stage.calls() == ["nobody: qsub"]


def test_job_that_takes_its_time_to_go(stage):
    stage.use(qhold="exit 1\n", qdel="put job_state E\n(sleep 0.3; end) >/dev/null 2>&1 &\n")
    answer = stage("node1", "node2", case="move")
    assert judged(answer) == (False, "node1: hold: qhold 12.head exited 1: it printed nothing")
    assert stage.state() == "C"


def test_trouble_after_a_good_end(stage):
    """The job did well, but what is left must not go unnoticed."""
    stage.use(qstat=GOOD["qstat"] +
              "[ ! -e over ] || {{ echo qstat: gone >&2; exit 1; }}\n[ $state != C ] || : > over\n")
    answer = stage("node1", case="move")
    assert judged(answer) == (False, "clean: qstat -f 12.head exited 1: qstat: gone")
    assert (steps_done(answer), answer["exit_status"]) == (["submit", "finish"], 7)
    assert stage.left() == []


@pytest.mark.parametrize("name, cause", [
    ("qstat", "node1: submit: {words}; clean: {words}"),
    ("qhold", "node1: hold: {words}"),
])
def test_command_that_hangs(stage, name, cause):
    """A server that answers nobody, as one with a lost lock."""
    stage.use(**{name: "exec sleep 600 # {server}\n"})
    answer = stage("node1", "node2", case="move", timeout=1)
    if name == "qstat":
        stage.kill()
    assert judged(answer) == (False, cause.format(
        words="%s got no answer within 1 seconds and was killed; look at the log of pbs_server" % (stage.bin / name)))


def test_language_of_the_commands(stage):
    """A sentence that is looked for must not be translated."""
    stage.use(qstat="[ \"$LC_ALL\" = C ] || {{ echo inconnu >&2; exit 153; }}\n" + GOOD["qstat"])
    assert judged(stage("node1", case="move")) == (True, "")
