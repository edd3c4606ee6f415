"""One program of CRIU's test suite on this node: as a job through the installed hooks, or under criu alone.

  trial.py bare|hold|continue '{"name": ..., "command": [...], ...}'

The answer is a JSON object on stdout: "outcome", one of OUTCOMES, and "text", what was said about it. Runs as root.

  bare      start, dump, restore by criu on this node, ask for the verdict
  hold      start by the hook run, hold by the hook checkpoint; if that is refused, ask for the verdict
  continue  restart by the hook restart, ask for the verdict
"""
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time

USER = "alice"
HOOKS = "/usr/lib/ckpt-torque"
RECORDS = pathlib.Path("/run/ckpt-torque/jobs")
CRIU = "/opt/criu/current/sbin/criu"
JOB = pathlib.Path(__file__).resolve().with_name("job.py")
SECONDS = 30
"""How long a program may take to start and to end, as in CRIU's own suite."""
COMMON = ["--unprivileged", "--shell-job", "--file-locks", "--ext-unix-sk", "--link-remap", "--manage-cgroups=ignore", "-v1",
          "--ghost-limit", "1G"]
"""What the hooks tell CRIU, too."""

PASSES, NO_START, REFUSED, NO_RESTORE, WRONG, HELD = "passes", "does not start", "is refused", "does not come back", "is wrong", "held"
OUTCOMES = (PASSES, NO_START, REFUSED, NO_RESTORE, WRONG, HELD)


class Ended(Exception):
    """The trial ends here: outcome, text."""


def wait_until(condition, seconds=SECONDS):
    """Return the first true value of condition(), or None when it has none within that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    return None


def read(path):
    """Return the text of a file, empty if there is none."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def is_alive(pid):
    """Whether a process exists that has not ended."""
    stat = read(pathlib.Path("/proc/%d/stat" % pid))
    return bool(stat) and stat.rpartition(")")[2].split()[0] not in "ZX"


class Trial:
    """One program.

    :param name: the program's
    :param command: its command line, the first of it an absolute path
    :param job: the job's id
    :param directory: where it works, the same path on both nodes
    :param store: the directory of images
    :param options: further ones of criu (dict with dump, restore)
    """

    def __init__(self, name, command, job, directory, store, options):
        self.name, self.command, self.job, self.store, self.options = name, command, job, store, options
        self.work = pathlib.Path(directory)
        self.image = pathlib.Path(store, job + ".CK")
        self.user = pwd.getpwnam(USER)

    # -- the program ---------------------------------------------------------------------

    def _start(self, command, **variables):
        """Start a command as the user, leader of a session; its standard streams are files of the working directory."""
        environment = dict({"HOME": self.user.pw_dir, "USER": USER, "LOGNAME": USER, "SHELL": "/bin/sh", "LANG": "C",
                            "PATH": "/usr/local/bin:/usr/bin:/bin", "PBS_JOBID": self.job}, **variables)
        with open(self.work / "out", "a") as out, open(self.work / "err", "a") as err:
            subprocess.run(["setsid", "--fork", "setpriv", "--reuid", USER, "--regid", USER, "--init-groups"] + command, cwd=str(self.work),
                           stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, check=True)

    def _prepare(self):
        self.clean()
        shutil.rmtree(str(self.work), ignore_errors=True)
        self.work.mkdir(parents=True)
        os.chown(str(self.work), self.user.pw_uid, self.user.pw_gid)
        for name in ("out", "err"):
            (self.work / name).touch()
            os.chown(str(self.work / name), self.user.pw_uid, self.user.pw_gid)

    def find_processes(self):
        """Return the pids of the job's processes."""
        mark, pids = b"\0PBS_JOBID=" + self.job.encode() + b"\0", []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and mark in b"\0" + pathlib.Path("/proc", entry, "environ").read_bytes():
                    pids.append(int(entry))
            except OSError:
                pass
        return [pid for pid in pids if is_alive(pid)]

    def _wait_for_start(self, leader):
        """Wait until the program is a daemon; return its pid.

        :param leader: name of the file into which its session's leader writes a pid
        """
        wait_until(lambda: read(self.work / leader))
        wait_until(lambda: read(self.work / "pid") or self._is_gone())
        if not read(self.work / "pid"):
            raise Ended(NO_START, self._last_words())
        time.sleep(0.1)  # to come into its own
        return int(read(self.work / "pid"))

    def _is_gone(self):
        """Whether the job has no process, at five looks: one that executes a program just then has no environment."""
        for _look in range(5):
            if self.find_processes():
                return False
            time.sleep(0.05)
        return True

    def _last_words(self):
        text = read(self.work / "verdict") or read(self.work / "verdict.inprogress") or read(self.work / "err")
        return re.sub(r"^[\d:.]+: *\d+: ", "", text.strip().splitlines()[-1] if text.strip() else "it printed nothing")[:300]

    def end(self):
        """Ask the program for its verdict.

        :raises Ended: always
        """
        pid = read(self.work / "pid")
        if not pid or not is_alive(int(pid)):
            raise Ended(WRONG, "has ended before it was asked: " + self._last_words())
        os.kill(int(pid), signal.SIGTERM)
        if not wait_until(lambda: not is_alive(int(pid))):
            raise Ended(WRONG, "does not end: " + self._last_words())
        if "PASS" in read(self.work / "verdict").split():
            raise Ended(PASSES, "")
        raise Ended(WRONG, self._last_words())

    def clean(self):
        """End what is left of the job on this node, but not what it wrote."""
        for _attempt in range(100):
            pids = self.find_processes()
            if not pids:
                break
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)

    # -- criu alone --------------------------------------------------------------------

    def _criu(self, action, *arguments):
        """Run criu as the hooks do: as the user, with the same capabilities. Returns its status and what it printed."""
        output = self.work / (action + ".log")
        output.write_text("")
        os.chown(str(output), self.user.pw_uid, self.user.pw_gid)
        options = COMMON + self.options[action]
        needed = ["checkpoint_restore"]
        if action == "restore":
            needed.append("setpcap")
        elif read(pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")).strip() not in ("", "0"):
            needed.append("sys_ptrace")
        if "--tcp-established" in options:
            needed.append("net_admin")
            options = options + ["--network-lock", "skip"]
        capabilities = ",".join("+" + name for name in needed)
        line = ["setsid", "--wait", "setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "--inh-caps", capabilities,
                "--ambient-caps", capabilities, CRIU, action, "-D", str(self.image)] + list(arguments) + options
        with open(output, "a") as stream:
            status = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=str(self.work),
                                    env={"PATH": "/usr/bin:/bin", "PBS_JOBID": self.job}, check=False).returncode
        errors = re.findall(r"Error \([^)]*\): (.*)", read(output))
        return status, (errors or read(output).strip().splitlines()[-1:] or ["it printed nothing"])[0].strip()

    def bare(self):
        """See the module."""
        self._prepare()
        shutil.rmtree(str(self.image), ignore_errors=True)
        self.image.mkdir(mode=0o700)
        os.chown(str(self.image), self.user.pw_uid, self.user.pw_gid)
        self._start(["sh", "-c", '"$@" & echo $! > root; wait', "sh", "python3", str(JOB)] + self.command)
        self._wait_for_start("root")
        root = int(read(self.work / "root"))
        status, text = self._criu("dump", "-t", str(root))
        if status:
            self._verify_unharmed(REFUSED, "criu: " + text)
        wait_until(lambda: not self.find_processes(), 5)
        for _attempt in range(5):
            status, text = self._criu("restore", "-d")
            if "File exists" not in text:
                break
            time.sleep(1)  # another program's process has the id of one of this
        if status:
            raise Ended(NO_RESTORE, "criu: " + text)
        self.end()

    def _verify_unharmed(self, outcome, text):
        """The program must be as it was.

        :raises Ended: always
        """
        try:
            self.end()
        except Ended as verdict:
            if verdict.args[0] == PASSES:
                raise Ended(outcome, text)
            raise Ended(WRONG, "%s; then the program: %s" % (text, verdict.args[1]))

    # -- the hooks ---------------------------------------------------------------------

    def _arguments(self):
        return [(read(self.work / "session")).strip(), self.job, USER, USER, str(self.image), "ckpt.%s.1" % self.job]

    def hold(self):
        """See the module."""
        self._prepare()
        shutil.rmtree(str(self.image), ignore_errors=True)
        script = self.work / "job.sh"
        script.write_text('#!/bin/sh\nexec python3 "$@"\n')
        self._start(["sh", "-c", 'echo $$ > session; exec "$@"', "sh", HOOKS + "/run", "/bin/sh", str(script), str(JOB)] + self.command)
        self._wait_for_start("session")
        self.image.mkdir(mode=0o755)
        os.chown(str(self.image), self.user.pw_uid, self.user.pw_gid)
        done = subprocess.run([HOOKS + "/checkpoint"] + self._arguments() + ["15", "-"], cwd="/", env={"PATH": "/bin:/usr/bin"},
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True,
                              check=False)
        if done.returncode:
            self._verify_unharmed(REFUSED, done.stderr.strip())
        if not wait_until(lambda: not self.find_processes(), 5):
            raise Ended(WRONG, "is held, but has processes still")
        raise Ended(HELD, done.stderr.strip())

    def resume(self):
        """Restart the job and ask for the verdict.

        :raises Ended: always
        """
        record, exit_status, complaint = RECORDS / (self.job + ".json"), self.work / "exit", self.work / "restart.err"
        for _attempt in range(5):
            subprocess.run(["setsid", "--fork", "sh", "-c", '"$@" 2> %s; echo $? > %s.new; mv %s.new %s' % (
                complaint, exit_status, exit_status, exit_status), "sh", "setsid", "--wait", HOOKS + "/restart"] + self._arguments(),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", env={"PATH": "/bin:/usr/bin"},
                check=True)
            wait_until(lambda: record.exists() or exit_status.exists())
            if record.exists():
                break
            if " in use on this node" not in read(complaint):
                raise Ended(NO_RESTORE, read(complaint).strip() or "the restart hook said nothing")
            exit_status.unlink()
        else:
            raise Ended(NO_RESTORE, read(complaint).strip())
        try:
            self.end()
        except Ended as verdict:
            if verdict.args[0] == PASSES and (wait_until(lambda: read(exit_status)) or "").strip() != "0":
                raise Ended(WRONG, "passes, but the job's exit status is %s" % (read(exit_status).strip() or "missing"))
            raise


ACTIONS = {"bare": Trial.bare, "hold": Trial.hold, "continue": Trial.resume}


def main(action, parameters):
    """Carry out an action; print the answer."""
    trial = Trial(**json.loads(parameters))
    try:
        ACTIONS[action](trial)
    except Ended as ended:
        outcome, text = ended.args
        print(json.dumps({"outcome": outcome, "text": text}))
        if outcome != HELD:
            trial.clean()


if __name__ == "__main__":
    main(*sys.argv[1:])
