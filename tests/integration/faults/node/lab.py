"""What the fault suite needs on a node: a job under a pbs_mom, hooks with a configuration of their own, and judges.

Runs on the node, as root. The hooks are the installed ones; only their configuration is the lab's.
"""
import hashlib
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time

HOOKS = "/usr/lib/ckpt-torque"
CONFIG = "/etc/ckpt-torque/hooks.json"
PLACE = "/opt/faults"
ENTRIES = os.path.join(PLACE, "entries")
"""The hooks' entry programs as the role renders them (helpers/harm.py), with the path of the installed configuration."""
sys.path.insert(0, HOOKS)
sys.path.insert(0, PLACE)

from ansible_collections.ckpt.torque.plugins.module_utils.validation import fake_mom  # noqa: E402
from torque_ckpt import config  # noqa: E402
from torque_ckpt.image import manifest, seal  # noqa: E402
from torque_ckpt.selftest import workload  # noqa: E402
from torque_ckpt.system import privilege, processes  # noqa: E402
from torque_ckpt.system.waiting import wait_until  # noqa: E402

LIMIT = int(os.environ.get("FAULTS_LIMIT", "30"))
"""How long something may take that should happen at once (seconds)."""

USER = "alice"
STAMP = os.path.join(PLACE, "stamp")
OWN = (PLACE, "/shared", "/var/lib/ckpt-torque", "/run", "/proc", "/sys", "/dev", "/tmp/faults", "/var/log", "/var/lib/systemd",
       "/root/.ansible")
"""Where something may change while the hooks work: the lab itself, the shared directory, what the system writes."""


class Lost(Exception):
    """Something is gone or changed that must not be; the text says what."""


class Lab:
    """A store with a job's hooks.

    :param name: of the case; makes its paths (str)
    :param store: path of the store, made when it is missing (str)
    :param settings: changes to the installed configuration
    """

    numbers = iter(range(int(time.time()) % 1000000 * 100, 1 << 60))

    def __init__(self, name, store=None, **settings):
        self.user = privilege.find_user(USER)
        self.top = os.path.join(PLACE, name)
        shutil.rmtree(self.top, ignore_errors=True)
        self.store = store or "/shared/faults/" + name
        self.work = "/shared/faults-work/" + name
        for path, mode in ((self.top, 0o755), (self.store, 0o755), (os.path.dirname(self.work), 0o755), (self.work, 0o755)):
            os.makedirs(path, exist_ok=True)
            os.chmod(path, mode)
        with open(os.path.join(self.store, ".ckpt-torque-store"), "w") as stream:
            stream.write("faults\n")
        self.config = os.path.join(self.top, "hooks.json")
        self.configure(**settings)
        self.hooks = os.path.join(self.top, "hooks")
        os.makedirs(self.hooks, exist_ok=True)
        for hook in ("run", "checkpoint", "restart"):
            with open(os.path.join(ENTRIES, hook)) as stream:
                text = stream.read()
            if CONFIG not in text:
                raise SystemExit("the entry program of the hook %s does not name %s" % (hook, CONFIG))
            path = os.path.join(self.hooks, hook)
            with open(path, "w") as stream:
                stream.write(text.replace(CONFIG, self.config))
            os.chmod(path, 0o755)
        shutil.copy(os.path.join(HOOKS, "action-script"), self.hooks)
        self.jobs = []

    def configure(self, **settings):
        """Write the hooks' configuration: the installed one with changes."""
        with open(CONFIG) as stream:
            self.settings = json.load(stream)
        self.settings.update(dict({"stores": [{"path": self.store, "id": "faults"}], "depth": 1000, "reserve": 0}, **settings))
        with open(self.config, "w") as stream:
            json.dump(self.settings, stream)

    def job(self, program=workload.PROGRAM, directory=None):
        """Start a Job and see it make progress."""
        job = Job(self, "%d.head" % next(self.numbers), program, directory)
        self.jobs.append(job)
        job.start()
        return job

    def close(self):
        """End all jobs and remove what the lab made."""
        for job in self.jobs:
            job.kill()
            job.forget()
        for path in (self.store, self.work, self.top):
            shutil.rmtree(path, ignore_errors=True)


class Job(fake_mom.Job):
    """A job of the lab, and what it must not lose."""

    def __init__(self, lab, job_id, program, directory):
        super().__init__(os.path.join(lab.top, "mom"), lab.hooks, lab.user, lab.user.name, job_id,
                         os.path.join(directory or lab.store, job_id + ".CK"))
        self.lab = lab
        self.work = os.path.join(lab.work, job_id)
        os.mkdir(self.work)
        os.chown(self.work, self.user.uid, self.user.gid)
        with open(os.path.join(self.work, "program.py"), "w") as stream:
            stream.write(program)
        self.images = 0
        self.originals = {}

    def start(self):
        self.place_script("#!/bin/bash\ncd %s\npython3 program.py stop 0.005 7\nexit $?\n" % self.work)
        self.run(os.path.join(self.work, "out"), os.path.join(self.work, "err"))
        self.progress()

    def evidence(self):
        with open(os.path.join(self.work, "out")) as stream:
            text = stream.read()
        return workload.Evidence(text[:text.rfind("\n") + 1])

    def counter(self):
        try:
            with open(os.path.join(self.work, "out"), "rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - 400))
                lines = [line.split() for line in stream.read().split(b"\n")[:-1]]
        except FileNotFoundError:  # it has just been started
            return 0
        return max([int(line[0]) for line in lines if len(line) == 4] or [0])

    def progress(self):
        """See the job count on."""
        before = self.counter()
        if not wait_until(lambda: self.counter() > before + 1, LIMIT):
            states = ["%s %s" % (entry.name, entry.state) for entry in self.processes()]
            with open(os.path.join(self.work, "err")) as stream:
                output = stream.read() + self.last_words()
            raise Lost("job %s stands still at %d (%s): %s" % (self.job_id, before, ", ".join(states) or "no process", output))

    def take(self, number=0, timeout=LIMIT):
        """Checkpoint as pbs_mom does; return (name, None) or (name, MomError)."""
        self.images += 1
        name = "ckpt.%s.%d" % (self.job_id, self.images)
        try:
            self.checkpoint(name, number, timeout)
        except fake_mom.MomError as error:
            return name, error
        return name, None

    def keep(self, number=0):
        """Make an image that must stay as it is from now on; return its name."""
        name, failure = self.take(number)
        if failure:
            raise Lost("the image that the case starts with could not be made: %s" % failure)
        self.originals[name] = content(os.path.join(self.directory, name))
        return name

    def published(self):
        """Return the names of what looks like an image."""
        try:
            return sorted(name for name in os.listdir(self.directory) if not name.startswith("."))
        except FileNotFoundError:
            raise Lost("the directory of the job's images is gone")

    def verify(self, name):
        """Prove an image whole and ours, as the restart hook does."""
        shown = os.path.join(self.directory, name)
        descriptor = os.open(shown, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            described = manifest.read_manifest(descriptor, shown)
            seal.check_seal(seal.load_keys(config.load_settings(self.lab.config)["key_path"]), described, shown)
            if described["job_id"] != self.job_id or described["name"] != name:
                raise Lost("image %s speaks of job %s, image %s" % (name, described["job_id"], described["name"]))
            manifest.check_files(descriptor, described, shown)
        finally:
            os.close(descriptor)

    def judge(self):
        """Prove that older images are as they were, and that whatever looks like an image is one."""
        for name, before in self.originals.items():
            now = content(os.path.join(self.directory, name))
            if now != before:
                raise Lost("image %s is not what it was: %s" % (name, sorted(set(now.items()) ^ set(before.items()))[:3]))
        for name in self.published():
            self.verify(name)

    def runs_on(self):
        """Prove that the job goes on, without gap, and that nothing was lost."""
        self.progress()
        if self.ended():
            raise Lost("the job's leader has ended (wait status %d), but what it started counts on" % self.status)
        problems = self.evidence().problems
        if problems:
            raise Lost("; ".join(problems))
        self.judge()

    def come_back(self, name):
        """Restart a held job from an image and see it go on."""
        if not wait_until(lambda: not self.processes(), LIMIT):
            raise Lost("the held job still has processes: %s" % self.processes())
        self.restart(name)
        try:
            self.progress()
        except Lost as error:
            raise Lost("%s; its restart hook said: %s" % (error, self.last_words()))

    def go_back(self, name):
        """Restart an ended job from an older image, whose owner cuts back what the job has written since, as the hook would ask."""
        with open(os.path.join(self.directory, name, "manifest.json")) as stream:
            for entry in json.load(stream)["open_files"]:
                os.truncate(entry["path"], entry["size"])
                os.utime(entry["path"], ns=(entry["mtime_ns"], entry["mtime_ns"]))
        self.come_back(name)


def content(path):
    """Return what a directory holds (dict of path: kind, mode, owner, hash)."""
    entries = {}
    for directory, subdirectories, names in os.walk(path):
        for name in subdirectories + names:
            entry = os.path.join(directory, name)
            status = os.lstat(entry)
            if name == "stats-restore":
                continue
            digest = ""
            if stat.S_ISREG(status.st_mode):
                with open(entry, "rb") as stream:
                    digest = hashlib.sha256(stream.read()).hexdigest()
            entries[os.path.relpath(entry, path)] = "%o %d %s" % (status.st_mode, status.st_uid, digest)
    return entries


def hook_processes(job):
    """Return the pids of the checkpoint hook that works on the job, its children and the engine's, parents first."""
    pids = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/cmdline" % entry, "rb") as stream:
                    words = stream.read().split(b"\0")
            except OSError:
                continue
            if any(word.endswith(b"/checkpoint") for word in words[:4]) and job.job_id.encode() in words:
                pids.append(int(entry))
    tops = [pid for pid in pids if getattr(processes.read_process(pid), "ppid", 0) not in pids]
    return [pid for top in tops for pid in processes.list_tree(top)]


def outside():
    """Return the paths outside the lab's own places that changed since stamp()."""
    prune = [word for path in OWN for word in ("-path", path, "-prune", "-o")]
    done = subprocess.run(["find", "/", "-xdev"] + prune + ["-newercc", STAMP, "-not", "-type", "d", "-print"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, universal_newlines=True, check=False)
    return done.stdout.split()


def stamp():
    """Remember the moment from which on nothing may change outside."""
    os.makedirs(PLACE, exist_ok=True)
    with open(STAMP, "w"):
        pass
    time.sleep(0.02)  # file systems count time in ticks


def main(cases):
    """Run the case that argv names; print its result as JSON."""
    name, parameters = sys.argv[1], json.loads(sys.argv[2])
    random.seed(parameters.pop("seed", None))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stamp()
    result = cases[name](**parameters)
    result["outside"] = outside()
    print(json.dumps(result))
