"""A TORQUE with jobs, as far as qstat -f, qhold, qrls and pbsnodes show it; time passes by sleeping only."""

import json
import os

FIELDS = ("Job_Owner", "job_state", "Checkpoint", "exec_host", "Hold_Types", "interactive", "Resource_List.nodes", "comment")


class Clock:
    """Time."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds or 1


class Job:
    """A job: what it shows, and what happens to it.

    :param dump: how long its checkpoint takes (seconds), None: it never ends
    :param refusal: the reason with which its checkpoint fails (str)
    :param start: how long it waits in the queue (seconds), None: it never starts
    :param to: the node on which it starts then
    :param end: at which time it ends by itself, None: never
    :param failed_restart: the comment with which it is held when it has started
    """

    def __init__(self, node="n1", dump=2, refusal="", start=1, to="n2", end=None, failed_restart="", **shown):
        self.dump, self.refusal, self.start, self.to, self.end, self.failed_restart = dump, refusal, start, to, end, failed_restart
        self.shown = dict({"Job_Owner": "alice@head", "job_state": "R", "Checkpoint": "enabled", "exec_host": node + "/0",
                           "Hold_Types": "n", "Resource_List.nodes": "1:ppn=1"}, **shown)
        self.due = None

    def advance(self, now):
        """Let happen what is due."""
        if self.end is not None and now >= self.end:
            self.shown["job_state"] = "C"
        if self.due is None or now < self.due:
            return
        self.due = None
        state = self.shown["job_state"]
        if state == "R" and self.refusal:
            self.shown.update(Hold_Types="n", comment=self.refusal)
        elif state == "R" and self.failed_restart and self.shown["exec_host"] == self.to + "/0":
            self.shown.update(job_state="H", Hold_Types="u", comment=self.failed_restart)
        elif state == "R":
            self.shown["job_state"] = "Q" if self.shown["Hold_Types"] == "n" else "H"
            self.queue(now)
        elif state == "Q":
            self.shown.update(job_state="R", exec_host=self.to + "/0")
            self.due = now + 1 if self.failed_restart else None

    def hold(self, now):
        self.shown["Hold_Types"] = "".join(sorted(set(self.shown["Hold_Types"]) - {"n"} | {"o"}))
        if self.shown["job_state"] == "R" and self.due is None and self.dump is not None:
            self.due = now + self.dump

    def release(self, now):
        self.shown["Hold_Types"] = "".join(sorted(set(self.shown["Hold_Types"]) - {"n", "o"})) or "n"
        if self.shown["job_state"] == "H" and self.shown["Hold_Types"] == "n":
            self.shown["job_state"] = "Q"
        self.queue(now)

    def queue(self, now):
        if self.shown["job_state"] == "Q" and self.start is not None:
            self.due = now + self.start

    def show(self):
        return "".join("    %s = %s\n" % (name, self.shown[name]) for name in FIELDS if name in self.shown)


class Torque:
    """Runs as module_utils.torque.commands.run does.

    :param jobs: Job by id

    done     the changes that were asked for (list of str), such as "qhold 1.h"
    most     the largest number of jobs that were being held at once
    trouble  by command line or command: what it answers instead ((status, error)), or is raised or called
    """

    def __init__(self, jobs, clock=None, nodes=("n1", "n2")):
        self.jobs, self.clock = jobs, clock or Clock()
        self.marks = dict.fromkeys(nodes, "ckpt-torque: x")
        self.done, self.most, self.trouble = [], 0, {}

    def __call__(self, command, text="", timeout=60, user="root"):
        assert (text, user) == ("", "root")
        name, arguments = os.path.basename(command[0]), command[1:]
        for job in self.jobs.values():
            job.advance(self.clock())
        for key in (" ".join([name] + arguments), name):
            trouble = self.trouble.get(key)
            if isinstance(trouble, tuple):
                return trouble[0], "", trouble[1]
            if isinstance(trouble, BaseException):
                raise trouble
            if trouble:
                trouble()
        return getattr(self, "_" + name)(*arguments)

    def _qstat(self, option, job_id):
        assert option == "-f"
        if job_id not in self.jobs:
            return 153, "", "qstat: Unknown Job Id %s" % job_id
        return 0, "Job Id: %s\n%s\n" % (job_id, self.jobs[job_id].show()), ""

    def _qhold(self, option, hold, job_id):
        assert (option, hold) == ("-h", "o")
        self.done.append("qhold " + job_id)
        self.jobs[job_id].hold(self.clock())
        held = [job for job in self.jobs.values() if job.shown["job_state"] == "R" and "o" in job.shown["Hold_Types"]]
        self.most = max(self.most, len(held))
        return 0, "", ""

    def _qrls(self, option, hold, job_id):
        assert (option, hold) == ("-h", "o")
        self.done.append("qrls " + job_id)
        if "o" not in self.jobs[job_id].shown["Hold_Types"]:
            return 204, "", "qrls: Holds o cannot be released"
        self.jobs[job_id].release(self.clock())
        return 0, "", ""

    def _pbsnodes(self, name):
        if name not in self.marks:
            return 0, "", "pbsnodes: Unknown node  MSG=cannot locate specified node"
        jobs = ["0/" + job_id for job_id, job in self.jobs.items() if job.shown["job_state"] in "RE"
                and name in [part.split("/")[0] for part in job.shown["exec_host"].split("+")]]
        shown = {"state": "offline" if self.marks[name] else "free", "note": self.marks[name], "jobs": ", ".join(jobs)}
        return 0, "%s\n" % name + "".join("     %s = %s\n" % pair for pair in shown.items() if pair[1]), ""


PROGRAM = """\
#!/usr/bin/env python3
import fcntl, json, os, signal, sys, time
sys.path.insert(0, %(helpers)r)
from torque_double import Job, Torque
path = %(state)r
lock = open(path + ".lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
state = json.load(open(path))
jobs = {}
for job_id, (attributes, shown, due) in state["jobs"].items():
    jobs[job_id] = Job(**attributes)
    jobs[job_id].shown, jobs[job_id].due = shown, due
torque = Torque(jobs, time.time)
torque.marks = state["marks"]
status, output, error = torque(sys.argv)
state["jobs"] = {job_id: (state["jobs"][job_id][0], job.shown, job.due) for job_id, job in jobs.items()}
state["done"] += torque.done
json.dump(state, open(path, "w"))
if torque.done and state["signal"] and torque.done[0].startswith(state["when"]):
    os.kill(os.getppid(), state["signal"])
    if state["signal"] == signal.SIGKILL:
        sys.exit(1)
sys.stdout.write(output)
sys.stderr.write(error)
sys.exit(status)
"""


class Programs:
    """TORQUE's commands as programs with one state, for modules that run as processes; here time passes by itself.

    :param directory: where they are (pathlib.Path)
    :param jobs: the arguments of a Job by id (dict of dicts)
    :param signal: what each command that begins with when sends to its parent, 0: nothing
    """

    def __init__(self, directory, jobs, signal=0, when="qhold"):
        self.directory, self.path = directory, directory / "state.json"
        self.path.write_text(json.dumps({
            "jobs": {job_id: (attributes, Job(**attributes).shown, None) for job_id, attributes in jobs.items()},
            "marks": {"n1": "ckpt-torque: x", "n2": ""}, "done": [], "signal": signal, "when": when}))
        for name in ("qstat", "qhold", "qrls", "pbsnodes"):
            (directory / name).write_text(PROGRAM % {"helpers": os.path.dirname(os.path.abspath(__file__)), "state": str(self.path)})
            (directory / name).chmod(0o755)

    def read(self):
        return json.loads(self.path.read_text())

    def change(self, **values):
        self.path.write_text(json.dumps(dict(self.read(), **values)))
