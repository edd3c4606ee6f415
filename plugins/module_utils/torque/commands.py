# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""TORQUE's commands: one way to run them, and a job as its owner sees it through them."""

import os
import pwd
import re
import signal
import subprocess
import time

from ..torque_ckpt.system.waiting import wait_until

USER_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of commands that run as an ordinary user."""

PATIENCE = 5
"""Seconds that a command which is told to end has for it, before it is killed."""


class CommandError(Exception):
    """A command could not be found or run, or did not answer; the text says which, why and what to do."""


class JobError(CommandError):
    """A command of TORQUE failed, or a job did not come to the state awaited; the text is the cause."""


def run(command, text="", timeout=60, user="root"):
    """Run a program in the C locale; return (exit status, stdout, stderr).

    As root it has this process's environment, with PBS_DEFAULT for instance. As another user it has that user's and nothing of root's:
    "qsub -V" would give it to the job.

    :param command: the program by absolute path and its arguments (list of str)
    :param text: its stdin (str)
    :param timeout: seconds until it and what it has started are ended (int)
    :param user: name of the account it runs as (str)
    :raises CommandError: when it cannot be started or takes too long
    """
    environment = dict(os.environ, LC_ALL="C")
    argv = command
    if user != "root":
        environment = {"PATH": USER_PATH, "LC_ALL": "C", "HOME": pwd.getpwnam(user).pw_dir, "USER": user, "LOGNAME": user}
        argv = ["runuser", "-u", user, "--"] + command
    try:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env=environment,
                                   start_new_session=True)
    except OSError as error:
        raise CommandError("cannot start %s: %s; install TORQUE's commands on this host" % (argv[0], os.strerror(error.errno)))
    with process:
        try:
            output, errors = process.communicate(text.encode("utf-8"), timeout)
        except subprocess.TimeoutExpired:
            _end_session(process)
            raise CommandError("%s got no answer within %d seconds and was killed; look at the log of pbs_server" % (command[0], timeout))
        except BaseException:
            _end_session(process)
            raise
    return process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


def _end_session(process):
    """End a program (subprocess.Popen) that leads a session, and what it has started: runuser's child would outlive it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.communicate(timeout=PATIENCE)
            return
        except subprocess.TimeoutExpired:
            pass


def find_command(name, given, find):
    """Return the path (str) of one of TORQUE's commands.

    :param name: of the command (str); the module's option is called so, with _path
    :param given: that option's value (str) or None
    :param find: like AnsibleModule.get_bin_path
    :raises CommandError: when it is nowhere
    """
    path = given or find(name, opt_dirs=["/opt/torque/current/bin"])
    if not path:
        raise CommandError("%s is neither in /opt/torque/current/bin nor in PATH; run the role torque_client or set %s_path" % (name, name))
    return path


def describe_silence(name, cause):
    """Return the sentence for a command (str) that the server did not answer, and what it said instead (str)."""
    return ("the TORQUE server does not answer %s on this host: %s; see that pbs_server runs, that trqauthd runs here (TORQUE 4 and "
            "later), and that server_name names the server" % (name, cause))


def join_complaint(error):
    """Return what qmgr or pbsnodes wrote on stderr (str) as one line."""
    lines = []
    for line in error.splitlines():
        text = " ".join(re.sub(r"^\S*(qmgr|pbsnodes)( obj=\S* svr=\S*)?: ", "", line).split()).rstrip(".")
        if text and text != "^" and text not in lines:
            lines.append(text)
    return "; ".join(lines)


def parse_attributes(text):
    """Return the attributes (dict of str) that "qstat -f" says of one job; a line that starts with a tab continues the one before."""
    attributes, name = {}, None
    for line in text.split("\n"):
        if line.startswith("\t") and name:
            attributes[name] += line[1:]  # cut anywhere, before a space too
            continue
        parts = re.match(r" {4}(\S+) = (.*)$", line)
        if parts:
            name = parts.group(1)
            attributes[name] = parts.group(2)
        else:
            name = None
    return {name: value.rstrip() for name, value in attributes.items()}  # 4.2 may end them with a space


def get_first_node(exec_host):
    """Return the first node (str) of an exec_host value such as "node1/0+node2/0", empty when there is none."""
    return exec_host.split("+")[0].split("/")[0]


class Commands:
    """TORQUE's commands, as root or as the job's owner.

    :param directory: where the commands are (str)
    :param timeout: seconds that each may take (int)
    :param run: as run() above

    states  what read_job() saw, an entry whenever it changed: list of {"state": str, "substate": int or None, "node": str,
            "seconds": float, since the first look}
    """

    def __init__(self, directory, timeout=60, run=run, clock=time.monotonic):
        self.directory = directory
        self.timeout = timeout
        self.run = run
        self.clock = clock
        self.states = []
        self.started = None

    def __call__(self, user, name, *arguments):
        """Run a command; return its stdout (str).

        :raises JobError: with the command line and what it said
        """
        status, output, error = self._run(user, name, *arguments)
        if status != 0:
            words = " ".join((error or output).split())
            raise JobError("%s exited %d: %s" % (" ".join((name,) + arguments), status, words or "it printed nothing"))
        return output

    def read_job(self, job_id):
        """Return the job's attributes (dict of str), empty when the server does not know it any more."""
        status, output, error = self._run("root", "qstat", "-f", job_id)
        if status == 0:
            job = parse_attributes(output)
            self._note_state(job)
            return job
        if "Unknown Job Id" in error:
            return {}
        raise JobError("qstat -f %s exited %d: %s" % (job_id, status, " ".join(error.split())))

    def read_version(self):
        """Return the server's version (str), None when the commands do not say it."""
        version = re.search(r"[Vv]ersion: *(\S+)", " ".join(self._run("root", "qstat", "--version")[1:]))
        return version.group(1) if version else None

    def _run(self, user, name, *arguments):
        return self.run(["%s/%s" % (self.directory, name)] + list(arguments), timeout=self.timeout, user=user)

    def _note_state(self, job):
        """Add the state of a job (dict of str) to .states when it differs from the one before."""
        substate = job.get("substate", "")
        new = {"state": job.get("job_state", ""), "substate": int(substate) if substate.isdigit() else None,
               "node": get_first_node(job.get("exec_host", ""))}
        if self.states and {key: self.states[-1][key] for key in new} == new:
            return
        now = self.clock()
        if self.started is None:
            self.started = now
        self.states.append(dict(new, seconds=round(now - self.started, 2)))


def wait_for_state(commands, job_id, states, timeout, clock=time.monotonic, sleep=time.sleep):
    """Wait until the job is in one of the states (str of letters); return its attributes (dict of str).

    A held job may not be released while the server still cleans up after it (substate 42 to 59), so "H" means at rest.

    :param timeout: seconds
    :raises JobError: when it ended otherwise or the time is over
    """
    def read_job():
        job = commands.read_job(job_id)
        state = job.get("job_state", "C" if not job else "?")
        if state == "C" and "C" not in states:
            raise JobError("job %s ended (exit status %s) instead of coming to state %s: %s"
                           % (job_id, job.get("exit_status", "unknown"), " or ".join(states), job.get("comment", "no comment")))
        seen[:] = [state, job]
        return state in states

    seen = []
    if not wait_until(read_job, timeout, 0.1, clock, sleep):
        raise JobError("job %s is in state %s, not %s, after %d seconds; its comment: %s"
                       % (job_id, seen[0], " or ".join(states), timeout, seen[1].get("comment", "none")))
    return seen[1]
