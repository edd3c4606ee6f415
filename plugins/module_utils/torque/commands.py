# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A job as its owner sees it through TORQUE's commands; all of TORQUE is behind one injected runner."""

import re
import time

from ..torque_ckpt.system.waiting import wait_until


class JobError(Exception):
    """A command of TORQUE failed, or a job did not come to the state awaited; the text is the cause."""


def attributes(text):
    """Return the attributes (dict of str) that "qstat -f" says of one job; a line that starts with a tab continues the one before."""
    found, name = {}, None
    for line in text.split("\n"):
        if line.startswith("\t") and name:
            found[name] += line[1:]  # cut anywhere, before a space too
            continue
        parts = re.match(r" {4}(\S+) = (.*)$", line)
        if parts:
            name = parts.group(1)
            found[name] = parts.group(2)
        else:
            name = None
    return {name: value.rstrip() for name, value in found.items()}  # 4.2 may end them with a space


def node_of(exec_host):
    """Return the first node (str) of an exec_host value such as "node1/0+node2/0", empty when there is none."""
    return exec_host.split("+")[0].split("/")[0]


class Commands:
    """TORQUE's commands, as root or as the job's owner.

    :param run: run(argv, user) -> (exit status, stdout, stderr); user (str) is whom to be
    :param directory: where the commands are (str)

    states  what job() saw, an entry whenever it changed: list of {"state": str, "substate": int or None, "node": str,
            "seconds": float, since the first look}
    """

    def __init__(self, run, directory, clock=time.monotonic):
        self.run = run
        self.directory = directory
        self.clock = clock
        self.states = []
        self.started = None

    def __call__(self, user, name, *arguments):
        """Run a command; return its stdout (str).

        :raises JobError: with the command line and what it said
        """
        status, output, error = self.run(["%s/%s" % (self.directory, name)] + list(arguments), user)
        if status != 0:
            words = " ".join((error or output).split())
            raise JobError("%s exited %d: %s" % (" ".join((name,) + arguments), status, words or "it said nothing"))
        return output

    def job(self, job_id):
        """Return the job's attributes (dict of str), empty when the server does not know it any more."""
        status, output, error = self.run(["%s/qstat" % self.directory, "-f", job_id], "root")
        if status == 0:
            found = attributes(output)
            self._note(found)
            return found
        if "Unknown Job Id" in error:
            return {}
        raise JobError("qstat -f %s exited %d: %s" % (job_id, status, " ".join(error.split())))

    def _note(self, job):
        """Add the state of a job (dict of str) to .states when it is another than before."""
        substate = job.get("substate", "")
        new = {"state": job.get("job_state", ""), "substate": int(substate) if substate.isdigit() else None,
               "node": node_of(job.get("exec_host", ""))}
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
        job = commands.job(job_id)
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
