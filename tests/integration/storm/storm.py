"""Moves of many jobs at once, each released for pbs_sched and run by the administrator in the same moment. Runs as root on the server.

  storm.py MOVES JOBS NODE NODE DIRECTORY

Prints one JSON object: how many moves there were, what the requests to run were answered, and what is not as it must be.
"""
import collections
import json
import os
import random
import re
import subprocess
import sys
import threading
import time

BIN = "/opt/torque/current/bin/"
COUNTS = "cd $PBS_O_WORKDIR; echo started >> starts; n=0; while [ ! -e go ]; do n=$((n+1)); echo $n; sleep 0.1; done; exit 5"
PATIENCE = 60  # seconds until a job must have come to a state


class Lost(Exception):
    """A job is not where it must be; the text says which and why."""


def run(*command, user=None):
    """Run a command of TORQUE; return (exit status, what it printed)."""
    if user:
        command = ("runuser", "-u", user, "--") + command
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, universal_newlines=True,
                          check=False)
    return done.returncode, done.stdout.strip()


class Job:
    def __init__(self, directory, node):
        self.directory, self.node = directory, node
        os.mkdir(directory)
        with open(directory + "/job.sh", "w") as stream:
            stream.write(COUNTS)
        subprocess.run(["chown", "-R", "alice", directory], check=True)
        status, text = run("sh", "-c", "cd %s && %sqsub -c enabled -l nodes=%s -o %s/out -e %s/err job.sh"
                           % (directory, BIN, node, directory, directory), user="alice")
        if status:
            raise Lost("qsub: " + text)
        self.id = text

    def facts(self):
        _status, text = run(BIN + "qstat", "-f", self.id)
        return dict(re.findall(r"^    (\S+) = (.*)$", text.replace("\n\t", ""), re.MULTILINE))

    def wait(self, state, node=""):
        deadline = time.time() + PATIENCE
        while True:
            facts = self.facts()
            at = facts.get("job_state", "C")
            if at == state and facts.get("exec_host", "").startswith(node):
                return facts
            if time.time() > deadline or at == "C":
                raise Lost("job %s is %s on %s, not %s on %s: exit status %s, %s" % (
                    self.id, at, facts.get("exec_host", "no node"), state, node or "any", facts.get("exit_status", "none"),
                    facts.get("comment", "no comment")))
            time.sleep(0.1)

    def hold(self):
        """Hold the job; a hold that comes before the restarted job can be held is repeated."""
        deadline = time.time() + PATIENCE
        while True:
            _status, text = run(BIN + "qhold", self.id, user="alice")
            asked = time.time()
            while time.time() < asked + 15:
                facts = self.facts()
                if facts.get("job_state", "C") in "HC":
                    return self.wait("H")
                if facts.get("Hold_Types") == "n":
                    break
                time.sleep(0.1)
            if time.time() > deadline:
                raise Lost("job %s cannot be held: %s; it is %s, %s" % (self.id, text, facts.get("job_state"),
                                                                        facts.get("comment", "no comment")))
            time.sleep(0.3)

    def move(self, node, count):
        self.hold()
        run(BIN + "qalter", "-l", "nodes=" + node, self.id)
        release = threading.Thread(target=run, args=(BIN + "qrls", self.id), kwargs={"user": "alice"})
        runs = [threading.Thread(target=self.order, args=(node, random.choice((0, 0.02, 0.05, 0.1, 0.3)), count)) for _number in range(2)]
        for thread in [release] + runs:
            thread.start()
        for thread in [release] + runs:
            thread.join()
        run(BIN + "qrls", self.id, user="alice")
        self.wait("R", node)

    def order(self, node, seconds, count):
        time.sleep(seconds)
        started = time.time()
        status, text = run(BIN + "qrun", "-H", node, self.id)
        count["qrun: " + (re.sub(r"\S*%s\S*" % re.escape(self.id.split(".")[0]), "JOB", text) if status else "run")] += 1
        count["longest qrun (ms)"] = max(count["longest qrun (ms)"], int(1000 * (time.time() - started)))

    def finish(self):
        open(self.directory + "/go", "w").close()
        deadline = time.time() + PATIENCE
        while self.facts().get("job_state", "C") != "C":
            if time.time() > deadline:
                facts = self.facts()
                raise Lost("job %s does not end: it is %s, %s" % (self.id, facts.get("job_state"), facts.get("comment", "no comment")))
            time.sleep(0.2)
        status = self.facts().get("exit_status")
        if status != "5":
            raise Lost("the exit status of job %s is %s, not 5" % (self.id, status))
        with open(self.directory + "/out") as stream:
            lines = stream.read().split()
        if lines != [str(number) for number in range(1, len(lines) + 1)]:
            raise Lost("the output of job %s is not whole: %s" % (self.id, " ".join(lines)[:2000]))
        with open(self.directory + "/starts") as stream:
            starts = len(stream.readlines())
        if starts != 1:
            raise Lost("the script of job %s was started %d times: it was started anew, not from its image" % (self.id, starts))


def storm(job, nodes, moves, count, wrong):
    try:
        job.wait("R")
        for _number in range(moves):
            job.move(random.choice(nodes), count)
            count["moves"] += 1
        job.finish()
        count["starts beyond one for each move"] += int(job.facts()["start_count"]) - 1 - moves
        count["jobs that ended well"] += 1
    except Lost as lost:
        wrong.append(str(lost))


def main(moves, jobs, first, second, directory):
    count, wrong, nodes = collections.Counter(), [], [first, second]
    all_jobs = [Job("%s/%d" % (directory, number), nodes[number % 2]) for number in range(int(jobs))]
    threads = [threading.Thread(target=storm, args=(job, nodes, -(-int(moves) // len(all_jobs)), count, wrong)) for job in all_jobs]
    started = time.time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count["seconds"] = int(time.time() - started)
    print(json.dumps({"count": count, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
