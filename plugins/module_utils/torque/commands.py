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
from ..torque_ckpt.torque.commands import SERVER_CURE
from ..torque_ckpt.torque.server import UNKNOWN, get_first_node, parse_attributes

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable

USER_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of commands that run as an ordinary user."""

PATIENCE = 5
"""How long a command may take to end after SIGTERM, in seconds; then it is killed."""


class CommandError(Exception):
    """A command is missing, could not be run or did not answer; the text says which, why and what to do."""


class JobError(CommandError):
    """A command of TORQUE failed, or a job did not come to the state awaited; the text is the cause."""


def run(command: "list[str]", text: str = "", timeout: int = 60, user: str = "root") -> "tuple[int, str, str]":
    """Run a program in the C locale; return (exit status, stdout, stderr).

    As root it has this process's environment, with PBS_DEFAULT for instance. As another user it has that user's and nothing of root's:
    "qsub -V" would give it to the job.

    :param command: the program by absolute path and its arguments
    :param text: its stdin
    :param timeout: seconds until it and what it has started are ended
    :param user: name of the account it runs as
    :raises CommandError: when it cannot be started or takes too long
    """
    environment = dict(os.environ, LC_ALL="C")
    argv = command
    if user != "root":
        environment = {"PATH": USER_PATH, "LC_ALL": "C", "HOME": pwd.getpwnam(user).pw_dir, "USER": user, "LOGNAME": user}
        argv = ["runuser", "-u", user, "--"] + command
    try:  # run_command knows no time-out
        # pylint: disable-next=ansible-bad-function
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env=environment,
                                   start_new_session=True)
    except OSError as error:
        why = os.strerror(error.errno or 0)  # to its own text Python before 3.8 adds the path
        raise CommandError("cannot start %s: %s; install TORQUE's commands on this host" % (argv[0], why))
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


def _end_session(process: "subprocess.Popen[bytes]") -> None:
    """End a program that leads a session, and what it has started: runuser's child would outlive it."""
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


def find_command(name: str, given: "str | None", find: "Callable[..., str | None]") -> str:
    """Return the path of one of TORQUE's commands.

    :param name: of the command; the module's option is called so, with _path
    :param given: that option's value
    :param find: like AnsibleModule.get_bin_path
    :raises CommandError: when it is nowhere
    """
    path = given or find(name, opt_dirs=["/opt/torque/current/bin"])
    if not path:
        raise CommandError("%s is neither in /opt/torque/current/bin nor in PATH; run the role torque_client or set %s_path" % (name, name))
    return path


def describe_silence(name: str, cause: str) -> str:
    """Return the sentence on a command (by name) that the server did not answer; cause is what the command printed."""
    return "the TORQUE server does not answer %s on this host: %s; %s" % (name, cause, SERVER_CURE)


def join_complaint(error: str) -> str:
    """Return what qmgr or pbsnodes wrote on stderr as one line."""
    lines = []
    for line in error.splitlines():
        text = " ".join(re.sub(r"^\S*(qmgr|pbsnodes)( obj=\S* svr=\S*)?: ", "", line).split()).rstrip(".")
        if text and text != "^" and text not in lines:
            lines.append(text)
    return "; ".join(lines)


class Commands:
    """TORQUE's commands, as root or as the job's owner.

    :param directory: where the commands are
    :param timeout: seconds that each may take
    :param run: as run() above

    states  what read_job() saw, an entry whenever it changed: list of {"state": str, "substate": int or None, "node": str,
            "seconds": float, since the first entry}
    """

    def __init__(self, directory: str, timeout: int = 60, run: "Callable[..., tuple[int, str, str]]" = run,
                 clock: "Callable[[], float]" = time.monotonic) -> None:
        self.directory = directory
        self.timeout = timeout
        self.run = run
        self.clock = clock
        self.states: "list[dict]" = []
        self.started: "float | None" = None

    def __call__(self, user: str, name: str, *arguments: str) -> str:
        """Run a command; return its stdout.

        :raises JobError: with the command line and what it printed
        """
        status, output, error = self._run(user, name, *arguments)
        if status != 0:
            words = " ".join((error or output).split())
            raise JobError("%s exited %d: %s" % (" ".join((name,) + arguments), status, words or "it printed nothing"))
        return output

    def read_job(self, job_id: str) -> "dict[str, str]":
        """Return the job's attributes, empty when the server does not know it any more."""
        status, output, error = self._run("root", "qstat", "-f", job_id)
        if status == 0:
            job = parse_attributes(output)
            self._note_state(job)
            return job
        if UNKNOWN in error:
            return {}
        raise JobError("qstat -f %s exited %d: %s" % (job_id, status, " ".join(error.split())))

    def read_version(self) -> "str | None":
        """Return the server's version, None when the commands do not print it."""
        version = re.search(r"[Vv]ersion: *(\S+)", " ".join(self._run("root", "qstat", "--version")[1:]))
        return version.group(1) if version else None

    def _run(self, user: str, name: str, *arguments: str) -> "tuple[int, str, str]":
        return self.run(["%s/%s" % (self.directory, name)] + list(arguments), timeout=self.timeout, user=user)

    def _note_state(self, job: "dict[str, str]") -> None:
        """Add the state of a job (its attributes) to .states when it differs from the one before."""
        substate = job.get("substate", "")
        new = {"state": job.get("job_state", ""), "substate": int(substate) if substate.isdigit() else None,
               "node": get_first_node(job)}
        if self.states and {key: self.states[-1][key] for key in new} == new:
            return
        now = self.clock()
        if self.started is None:
            self.started = now
        self.states.append(dict(new, seconds=round(now - self.started, 2)))


def wait_for_state(commands: Commands, job_id: str, states: str, timeout: int, clock: "Callable[[], float]" = time.monotonic,
                   sleep: "Callable[[float], None]" = time.sleep) -> "dict[str, str]":
    """Wait until the job is in one of the states (letters); return its attributes.

    A held job may not be released while the server still cleans up after it (substate 42 to 59), so "H" means at rest.

    :param timeout: seconds
    :raises JobError: when it ended otherwise or the time is over
    """
    def is_in_state() -> bool:
        job = commands.read_job(job_id)
        state = job.get("job_state", "C" if not job else "?")
        if state == "C" and "C" not in states:
            raise JobError("job %s ended (exit status %s) instead of coming to state %s: %s"
                           % (job_id, job.get("exit_status", "unknown"), " or ".join(states), job.get("comment", "no comment")))
        seen[:] = [(state, job)]
        return state in states

    seen: "list[tuple[str, dict[str, str]]]" = []
    in_state = wait_until(is_in_state, timeout, 0.1, clock, sleep)
    state, job = seen[0]
    if not in_state:
        raise JobError("job %s is in state %s, not %s, after %d seconds; its comment: %s"
                       % (job_id, state, " or ".join(states), timeout, job.get("comment", "none")))
    return job
