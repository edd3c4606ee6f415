"""The cases: each does something bad, many times over, and returns what was lost (dict with cases, lost)."""
import contextlib
import errno
import functools
import glob
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

from lab import LIMIT, PLACE, USER, Lab, Lost, content, fake_mom, hook_processes, main, wait_until, workload


def _put(path, text):
    """Give a file this content (str) at once: whoever reads it meanwhile finds the old or the new."""
    with open(path + ".new", "w") as stream:
        stream.write(text)
    os.rename(path + ".new", path)


def _number(name):
    """The number (int) in an image's name: the newest has the highest."""
    return int(name.rpartition(".")[2])


class Tally:
    """Counts cases and what was lost."""

    def __init__(self):
        self.result = {"cases": 0, "lost": [], "seen": {}}

    def case(self, what, work):
        """Count one case; what it loses is noted, with what was done (str). Returns whether nothing was."""
        self.result["cases"] += 1
        try:
            work()
        except (Lost, fake_mom.MomError) as error:
            self.result["lost"].append("%s: %s" % (what, error))
            return False
        return True

    def saw(self, what):
        self.result["seen"][what] = self.result["seen"].get(what, 0) + 1


BALLAST = "ballast = bytes(range(256)) * (%d << 12)\n"
"""Goes before a program that is to have so many MiB in memory. Random bytes would take emulated nodes long."""

VICTIMS = ("hook", "user's part", "engine", "all of them")


def _kill_soon(job, victim, delay, killed):
    """Start a thread that kills a part of the checkpoint hook, some time (seconds) after that part has come to life."""
    def work():
        number = VICTIMS.index(victim) % 3
        wait_until(lambda: len(hook_processes(job)) > number, 2, 0.001)
        time.sleep(delay)
        pids = hook_processes(job)
        for pid in pids if victim == VICTIMS[3] else pids[number:number + 1]:
            try:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            except ProcessLookupError:
                pass
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def _killed_once(tally, job, victim, number, delay):
    killed = []
    thread = _kill_soon(job, victim, delay, killed)
    name, failure = job.take(number)
    thread.join()
    wait_until(lambda: not hook_processes(job), LIMIT)
    tally.saw("killed" if killed else "too late")
    tally.saw("image" if name in job.published() else "no image")
    if failure and not killed:
        raise Lost("nothing was killed, but %s" % failure)
    if failure or number == 0:
        _runs_on_or_comes_back(tally, job, killed and victim in VICTIMS[2:] and job.lab.settings["engine"] == "criu")
    else:
        job.judge()
        job.come_back(name)


def _runs_on_or_comes_back(tally, job, may_end):
    """Prove that the job keeps running; or, where it may have ended, that its newest image brings it back.

    CRIU has code of its own in the processes while it works: killed at that moment it takes them with it, whoever called it.
    """
    try:
        job.runs_on()
    except Lost:
        if not may_end:
            raise
        tally.saw("job ended with the engine")
        job.kill()
        job.go_back(max(job.published(), key=_number))
        job.runs_on()


def kill(count, ballast=0):
    """kill -9 of a part of the checkpoint hook at random instants, of a job that is to go on and of one that is to be held.

    :param ballast: what the job has in memory (MiB), so that the engine has to work for a while
    """
    lab, tally = Lab("kill"), Tally()
    program = BALLAST % ballast + workload.PROGRAM
    job = lab.job(program)
    job.keep()
    started = time.time()
    job.keep()
    usual = time.time() - started
    for turn in range(count):
        victim, number = VICTIMS[turn % 4], (0, 15)[turn // 4 % 2]
        delay = random.uniform(0, usual * (1, 0.8, 0.5, 1)[turn % 4])
        what = "kill -9 of %s after %.1f ms, signal %d" % (victim, delay * 1000, number)
        if not tally.case(what, functools.partial(_killed_once, tally, job, victim, number, delay)):
            job.kill()
            job = lab.job(program)
            job.keep()
    lab.close()
    return tally.result


# -- images that are not what they were ------------------------------------------

def _write_at(path, offset, data):
    with open(path, "r+b") as stream:
        stream.seek(offset)
        stream.write(data)


def _flip(path):
    size = os.path.getsize(path)
    if size == 0:
        return _write_at(path, 0, b"x")
    offset = random.randrange(size)
    with open(path, "rb") as stream:
        stream.seek(offset)
        byte = stream.read(1)[0]
    return _write_at(path, offset, bytes([byte ^ 1 << random.randrange(8)]))


DAMAGES = {
    "a bit flipped": _flip,
    "cut": lambda path: os.truncate(path, max(0, os.path.getsize(path) - 2)),  # one byte is but the line's end of the manifest
    "emptied": lambda path: os.truncate(path, 0),
    "longer by a byte": lambda path: _write_at(path, os.path.getsize(path), b"x"),
    "removed": os.unlink,
    "a link to its copy": lambda path: (os.rename(path, path + ".copy"), os.symlink(path + ".copy", path)),
    "a directory": lambda path: (os.unlink(path), os.mkdir(path)),
    "a pipe": lambda path: (os.unlink(path), os.mkfifo(path)),
}


def _refused(job, name):
    """The restart hook must end without a process of the job, with a reason."""
    job.restart(name)
    code = job.wait(LIMIT)
    if code not in (65, 66, 77):
        raise Lost("the restart hook ended with %d: %s" % (code, job.last_words()))
    if job.processes():
        raise Lost("there are processes after a refused restart: %s" % job.processes())
    if "Traceback" in job.last_words() or "unexpected" in job.last_words():
        raise Lost("the hook said: %s" % job.last_words())


def _copy(image, target):
    subprocess.run(["cp", "-a", image, target], check=True)


def images(kinds=None):
    """Restart from images that were cut, flipped, swapped, replayed or given away; then from the whole one."""
    lab, tally = Lab("images", restart_backoff=0), Tally()
    job, other = lab.job(), lab.job()
    older = job.keep()
    foreign = other.keep(15)
    good = job.keep(15)
    image = os.path.join(job.directory, good)
    names = sorted(name for name in os.listdir(image) if name != "stats-restore")

    def with_image(what, change):
        _copy(image, image + ".good")
        originals = dict(job.originals)

        def work():
            change()
            job.originals.pop(good, None)
            _refused(job, good)
        if not tally.case(what, work):
            job.kill()
        shutil.rmtree(image, ignore_errors=True)
        if os.path.lexists(image):
            os.unlink(image)
        os.rename(image + ".good", image)
        job.originals = originals
    for kind in kinds or sorted(DAMAGES):
        for name in names:
            with_image("%s: %s" % (name, kind), functools.partial(DAMAGES[kind], os.path.join(image, name)))
    for name in names:  # swapped: a file of another image of the same job
        source = os.path.join(job.directory, older, name)
        if os.path.exists(source) and content(os.path.dirname(source))[name] != content(image)[name]:
            with_image("%s of an older image" % name, functools.partial(shutil.copy2, source, os.path.join(image, name)))
    with_image("an older image in its place", lambda: (shutil.rmtree(image), _copy(os.path.join(job.directory, older), image)))
    with_image("another job's image in its place", lambda: (shutil.rmtree(image), _copy(os.path.join(other.directory, foreign), image)))
    with_image("a link to another job's image", lambda: (shutil.rmtree(image), os.symlink(os.path.join(other.directory, foreign), image)))
    with_image("a link to itself elsewhere", lambda: (os.rename(image, image + ".away"), os.symlink(image + ".away", image)))
    shutil.rmtree(image + ".away", ignore_errors=True)
    with_image("another file beside", lambda: _write_new(os.path.join(image, "core-1.img")))
    with_image("root's image", lambda: subprocess.run(["chown", "-R", "root:root", image], check=True))
    with_image("another user's image", lambda: subprocess.run(["chown", "-R", "bob:bob", image], check=True))
    tally.case("the whole image", lambda: (job.come_back(good), job.runs_on()))
    tally.case("the other job", lambda: (other.come_back(foreign), other.runs_on()))
    lab.close()
    return tally.result


def _write_new(path):
    with open(path, "w") as stream:
        stream.write("x")


# -- a user who races with the hooks ---------------------------------------------

RACER = r"""
import os, random, shutil, sys, time
directory, bait, end = sys.argv[1], sys.argv[2], float(sys.argv[3])
os.chdir(directory)
turn = 0
while time.time() < end:
    turn += 1
    for name in os.listdir("."):
        if not name.startswith("."):
            continue
        try:
            kind = random.randrange(6)
            if kind == 0:
                os.rename(name, name + ".x"); os.symlink(bait, name)
            elif kind == 1:
                for inner in os.listdir(name):
                    os.unlink(name + "/" + inner); os.symlink(bait + "/passwd", name + "/" + inner); break
            elif kind == 2:
                for inner in os.listdir(name):
                    os.unlink(name + "/" + inner); os.mkfifo(name + "/" + inner); break
            elif kind == 3:
                for inner in os.listdir(name):
                    os.rename(name + "/" + inner, name + "/x" + inner); os.mkdir(name + "/" + inner); break
            elif kind == 4:
                shutil.rmtree(name)
            elif kind == 5:
                for inner in os.listdir(name):
                    os.link(directory + "/../own", name + "/y" + inner); break
        except OSError:
            pass
    time.sleep(random.uniform(0, 0.02))
print(turn)
"""


def races(count):
    """Checkpoints while the owner swaps drafts, and what is in them, for links, pipes and directories of root's."""
    lab, tally = Lab("races", engine_timeout=LIMIT), Tally()
    job = lab.job()
    job.keep()
    own = os.path.join(lab.store, "own")
    _write_new(own)
    os.chown(own, job.user.uid, job.user.gid)
    script = os.path.join(lab.top, "racer.py")
    with open(script, "w") as stream:
        stream.write(RACER)
    for turn in range(count):
        number = (0, 15)[turn % 2]
        what = "racer, signal %d" % number

        def work():
            racer = subprocess.Popen(["setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "python3", script,
                                      job.directory, "/etc", str(time.time() + 1.0)], stdout=subprocess.PIPE)
            time.sleep(random.uniform(0.05, 0.3))
            name, failure = job.take(number)
            racer.communicate()
            if failure and ("Traceback" in str(failure) or "unexpected" in str(failure)):
                raise Lost(str(failure))
            tally.saw("refused" if failure else "image")
            for stray in os.listdir(job.directory):  # the racer's own litter, and what it made of an image
                if stray.startswith("."):
                    subprocess.run(["rm", "-rf", os.path.join(job.directory, stray)], check=True)
            if failure or number == 0:
                job.progress()
            else:
                try:
                    job.verify(name)
                except Exception:  # pylint: disable=broad-except
                    tally.saw("image spoilt by its owner")
                    raise Restart()
                job.come_back(name)
            for older in job.originals:
                if content(os.path.join(job.directory, older)) != job.originals[older]:
                    raise Lost("the older image changed")
        try:
            tally.case(what, work)
        except Restart:
            job.kill()
            job = lab.job()
            job.keep()
    lab.close()
    return tally.result


class Restart(Exception):
    """The owner spoilt his own job; take a new one."""


# -- jobs that make it hard ------------------------------------------------------

HARD = {
    "ignores all signals": """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
""",
    "forks all the time": """
import os, threading
def forking():
    while True:
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
if os.fork() == 0:
    forking()
""",
    "leaves zombies": """
import os, time
for turn in range(5):
    if os.fork() == 0: os._exit(turn)
""",
    "holds deleted files": """
import os, tempfile
streams = []
for directory in (os.getcwd(), "/tmp"):
    stream = tempfile.TemporaryFile(dir=directory)
    stream.write(b"x" * 100000); stream.flush()
    streams.append(stream)
""",
    "maps a file on the store": """
import mmap, os
descriptor = os.open("mapped", os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(descriptor, 1 << 20)
shared = mmap.mmap(descriptor, 1 << 20)
private = mmap.mmap(descriptor, 1 << 20, flags=mmap.MAP_PRIVATE)
shared[0:4] = private[0:4] = b"mine"
os.close(descriptor)
""",
    "has threads and a pipe to itself": """
import os, threading, time
reader, writer = os.pipe()
os.write(writer, b"in the pipe")
for turn in range(20):
    threading.Thread(target=time.sleep, args=(100000,), daemon=True).start()
""",
    "has a stopped child": """
import os, signal, time
if os.fork() == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(100000)
""",
    "left its directory and closed its output": """
import os
os.chdir("/")
stop = sys.argv[1] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stop")
os.close(0)
""",
}


def hard():
    """Jobs that ignore signals, fork, hold deleted files, map files: held and brought back, twice."""
    lab, tally = Lab("hard"), Tally()
    for what, prelude in HARD.items():
        job = lab.job("import sys, os\n" + prelude + workload.PROGRAM)

        def work():
            for _turn in range(2):
                job.keep()
                name = job.keep(15)
                job.come_back(name)
                job.runs_on()
        tally.case(what, work)
        job.kill()
    lab.close()
    return tally.result


# -- many at once -----------------------------------------------------------------

def _at_once(works):
    """Run functions at the same time; return what they raised (list)."""
    failures = []

    def run(work):
        try:
            work()
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def many(count):
    """So many jobs are held at once, and brought back."""
    lab, tally = Lab("many"), Tally()
    jobs = [lab.job() for _number in range(count)]
    for job in jobs:
        job.timeout = 300
    answers = {}
    _at_once([functools.partial(_hold_into, answers, job) for job in jobs])
    for job in jobs:
        def work():
            name, failure = answers[job]
            if failure:
                tally.saw("refused: %s" % failure)
                job.runs_on()
                raise Lost("it could not be held: %s" % failure)
            job.judge()
            job.come_back(name)
            job.runs_on()
            job.kill()
        tally.case("job %s" % job.job_id, work)
    lab.close()
    return tally.result


def _hold_into(answers, job):
    answers[job] = job.take(15, 300)


def twice(count):
    """Two hooks for one job at once, to go on and to hold, in all mixtures."""
    lab, tally = Lab("twice"), Tally()
    job = lab.job()
    job.keep()
    for turn in range(count):
        numbers = ((0, 0), (0, 15), (15, 0), (15, 15))[turn % 4]

        def work():
            answers = {}
            job.images += 2
            calls = [("ckpt.%s.%d" % (job.job_id, job.images - 1), numbers[0]), ("ckpt.%s.%d" % (job.job_id, job.images), numbers[1])]

            def call(name, number):
                try:
                    job.checkpoint(name, number, 60)
                    answers[name] = (number, None)
                except fake_mom.MomError as error:
                    answers[name] = (number, error)
            raised = _at_once([functools.partial(call, *arguments) for arguments in calls])
            if raised:
                raise Lost("%r" % raised)
            held = [name for name, (number, failure) in answers.items() if number == 15 and not failure]
            for _number, failure in answers.values():
                tally.saw("refused: %s" % "".join(letter for letter in str(failure) if not letter.isdigit())[:90] if failure else "image")
            job.judge()
            if held:
                job.come_back(held[-1])
            job.runs_on()
        tally.case("signals %d and %d" % numbers, work)
    lab.close()
    return tally.result


# -- stores that fail ---------------------------------------------------------------

class FaultyStore:
    """A store on a file system that fails on demand."""

    def __init__(self, name):
        self.real = "/shared/faults-real/" + name
        self.path = "/run/faults/" + name
        while os.path.ismount(self.path):  # a case that broke off left it
            subprocess.run(["umount", "-l", self.path], check=True)
        shutil.rmtree(self.real, ignore_errors=True)
        for path in (self.real, self.path):
            os.makedirs(path, exist_ok=True)
        self.control = "/run/faults/%s.json" % name
        self.order()
        with open(self.control + ".log", "w") as log:  # it must not keep open what this program was started with
            self.server = subprocess.Popen([sys.executable, os.path.join(PLACE, "faultfs.py"), self.real, self.path, self.control],
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if not wait_until(lambda: os.path.ismount(self.path), LIMIT):
            raise SystemExit("the failing file system does not come up")

    def order(self, **orders):
        """Say what is to fail from now on."""
        _put(self.control, json.dumps(orders))

    def counts(self):
        """Return how many writing operations there were, and how many failed (dict)."""
        with open(self.control + ".count") as stream:
            return json.load(stream)

    def close(self):
        self.order()
        subprocess.run(["umount", "-l", self.path], check=True)
        self.server.wait()
        for path in (self.real, self.real + ".attic"):
            shutil.rmtree(path)


def failing(error, step=1, reading=False):
    """The store fails at its first, second, third ... writing operation, up to the last that a checkpoint makes."""
    store = FaultyStore("failing")
    lab, tally = Lab("failing", store.path, engine_timeout=LIMIT), Tally()
    job = lab.job()
    job.keep()
    number = getattr(errno, error)
    after = 0
    while True:
        signal_number = (0, 15)[after // step % 2]
        facts = {}

        def work():
            store.order(error=number, after=after, reading=reading)
            name, failure = job.take(signal_number)
            facts.update(store.counts())
            store.order()
            tally.saw("refused" if failure else "image")
            if failure and ("Traceback" in str(failure) or "unexpected" in str(failure)):
                raise Lost(str(failure))
            if facts["failed"] and not failure and signal_number == 0:
                tally.saw("image in spite of a failure")
            if failure or signal_number == 0:
                job.runs_on()
            else:
                job.judge()
                job.come_back(name)
        if not tally.case("%s after %d operations, signal %d" % (error, after, signal_number), work):
            store.order()
            job.kill()
            job = lab.job()
            job.keep()
        if not facts.get("failed"):
            break
        after += step
    tally.result["operations"] = after
    lab.close()
    store.close()
    return tally.result


@contextlib.contextmanager
def _small(name, size, make):
    """A file system of its own (bytes), by the command make (list of str); gives where it is mounted."""
    image, path = "/shared/faults-real/%s.img" % name, "/run/faults/" + name
    while os.path.ismount(path):  # a case that broke off left it
        subprocess.run(["umount", "-l", path], check=True)
    for directory in (os.path.dirname(image), path):
        os.makedirs(directory, exist_ok=True)
    with open(image, "wb") as stream:
        os.truncate(stream.fileno(), size)
    for command in (make + [image], ["mount", "-o", "loop", image, path]):
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    yield path
    subprocess.run(["umount", path], check=True)
    os.unlink(image)


def _is_written(job):
    """Whether the engine is writing an image of the job."""
    with contextlib.suppress(FileNotFoundError):
        return any(os.path.getsize(path) > 1 << 16 for path in glob.glob(os.path.join(job.directory, ".*", "*")))
    return False


def _run_out(name, store, limit, words, count, ballast=24):
    """The store's room ends, before or while an image is made; with more of it there is an image again.

    :param limit: leaves room for so many bytes in the store, or for all with None (function)
    :param words: what a hook says of it that has not stopped the job yet, and one that has (two str)
    :param ballast: what the job has in memory (MiB)
    """
    lab, tally = Lab(name, store), Tally()
    program = BALLAST % ballast + workload.PROGRAM
    job = lab.job(program)
    started = time.time()
    job.keep()
    usual = time.time() - started
    for turn in range(count):
        number, room = (0, 15)[turn % 2], random.randrange(1 << 16, ballast << 20)
        moment = ("before", "after %.3f s" % random.uniform(0, usual), "while it is written")[turn // 2 % 3]

        def end():
            if moment.startswith("after"):
                time.sleep(float(moment.split()[1]))
            elif moment != "before":
                wait_until(lambda: _is_written(job), LIMIT, 0.001)
            limit(room)

        def work():
            ends = threading.Thread(target=end)
            ends.start()
            if moment == "before":
                ends.join()
            name, failure = job.take(number)
            ends.join()
            limit(None)
            tally.saw("image" if not failure else "refused before" if words[0] in str(failure) else "refused")
            if failure and not any(word in str(failure) for word in words):
                raise Lost("the hook said: %s" % failure)
            if failure or number == 0:
                job.runs_on()
            else:
                job.judge()
                job.come_back(name)
            job.keep()
            for older in sorted(job.published(), key=_number)[:-2]:  # the file system is small
                job.originals.pop(older, None)
                shutil.rmtree(os.path.join(job.directory, older))
        if not tally.case("room for %d bytes more %s, signal %d" % (room, moment, number), work):
            limit(None)
            job.kill()
            job = lab.job(program)
            job.keep()
    lab.close()
    return tally.result


def quota(count):
    """The store's quota (a qgroup of a real btrfs) is too small, or becomes so meanwhile."""
    group = "0/256"  # that of the first subvolume
    with _small("quota", 1 << 30, ["mkfs.btrfs", "-q"]) as path:
        store = path + "/store"
        for command in (["quota", "enable", path], ["subvolume", "create", store]):
            subprocess.run(["btrfs"] + command, stdout=subprocess.DEVNULL, check=True)

        def limit(room):
            os.sync()
            output = subprocess.run(["btrfs", "qgroup", "show", "--raw", "--sync", path], stdout=subprocess.PIPE, check=True).stdout
            used = next(int(line.split()[1]) for line in output.splitlines() if line.startswith(group.encode()))
            subprocess.run(["btrfs", "qgroup", "limit", "none" if room is None else str(used + room), group, path], check=True)
        return _run_out("quota", store, limit, ("does not allow that much more", "quota"), count)


def full(count, **options):
    """Somebody else fills the store (a real ext4), before or meanwhile."""
    with _small("full", 512 << 20, ["mkfs.ext4", "-q", "-m", "0", "-O", "^metadata_csum,^64bit"]) as path:  # as old kernels know it
        store, filling = path + "/store", path + "/filling"
        os.mkdir(store)

        def limit(room):
            status = os.statvfs(path)
            with open(filling, "wb") as stream, contextlib.suppress(OSError):  # what was written but not placed counts as free
                if room is not None:
                    os.posix_fallocate(stream.fileno(), 0, max(1, status.f_bavail * status.f_frsize - room))
        return _run_out("full", store, limit, ("the image needs", "No space left"), count, **options)


def hanging(seconds):
    """The store hangs, three times as long as the engine may take; when it is back the hook ends and the job keeps running.

    A job that does not stand still yet counts on meanwhile. One that does must wait: nothing ends an engine that waits for a file system.
    """
    store = FaultyStore("hanging")
    lab, tally = Lab("hanging", store.path, engine_timeout=seconds), Tally()
    job = lab.job()
    job.keep()
    for after in (0, 3, 20):
        def work():
            store.order(error="hang", after=after)
            back, answers = threading.Timer(seconds * 3, store.order), []
            hook = threading.Thread(target=lambda: answers.append(job.take(0, seconds * 3 + LIMIT)))
            back.start()
            hook.start()
            time.sleep(seconds)
            if after == 0:  # the draft is not there yet
                job.progress()
                if not back.is_alive():
                    raise Lost("the job stood still while the store hung")
            for thread in (back, hook):
                thread.join()
            (_name, failure), = answers
            tally.saw("refused" if failure else "image")
            if failure and "took longer than %d seconds and was killed" % seconds not in str(failure):
                raise Lost("the hook said: %s" % failure)
            job.runs_on()
        tally.case("a store that hangs after %d operations" % after, work)
    lab.close()
    store.close()
    return tally.result


def reset(count):
    """The node loses its power at any moment of a checkpoint or right after; the job goes on from its newest image, whichever that is."""
    store = FaultyStore("reset")
    lab, tally = Lab("reset", store.path, engine_timeout=LIMIT), Tally()
    for path in (os.path.join(store.path, ".ckpt-torque-store"), store.path):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    job = lab.job()
    job.keep()
    store.order()
    job.keep()
    usual = store.counts()["count"]
    for turn in range(count):
        number = (0, 15)[turn % 2]
        after = (random.randrange(usual), usual - random.randrange(10), 2 * usual)[turn % 3]  # at any time, about publication, after it

        def work():
            store.order(error="reset", after=after)
            name, failure = job.take(number)
            job.kill()  # all that ran on the node
            if not store.counts()["failed"]:
                store.order(error="reset", after=-1)
            try:
                os.listdir(store.path)
            except OSError:
                pass
            store.order()
            os.listdir(store.path)
            tally.saw("image" if name in job.published() else "no image")
            if not failure and name not in job.published():
                raise Lost("image %s was made, says the hook, and is gone" % name)
            job.judge()
            job.go_back(max(job.published(), key=_number))
            job.runs_on()
        if not tally.case("a reset after %d operations, signal %d" % (after, number), work):
            store.order()
            job.kill()
            job = lab.job()
            job.keep()
    lab.close()
    store.close()
    return tally.result


def readonly():
    """A store that can only be read."""
    lab, tally = Lab("readonly"), Tally()
    job = lab.job()
    job.keep()
    subprocess.run(["mount", "--bind", lab.store, lab.store], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", lab.store], check=True)
    try:
        for number in (0, 15):
            def work():
                _name, failure = job.take(number)
                if "Read-only file system" not in str(failure):
                    raise Lost("the hook said: %s" % failure)
                job.runs_on()
            tally.case("read-only, signal %d" % number, work)
    finally:
        subprocess.run(["umount", lab.store], check=True)
    tally.case("writable again", lambda: (job.keep(), job.runs_on()))
    lab.close()
    return tally.result


# -- a clock that jumps -----------------------------------------------------------------

FAKED = """#!/bin/sh
export LD_PRELOAD=/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketime.so.1 FAKETIME_NO_CACHE=1
export FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1
exec %s "$@"
"""
OFFSET = "/etc/faketimerc"
"""Where the library looks when the hook has cleared its environment."""


def clock(count):
    """The clock jumps by hours, forth and back, while the checkpoint hook works: it does not take that for time that has passed."""
    lab, tally = Lab("clock"), Tally()
    hook, real = os.path.join(lab.hooks, "checkpoint"), os.path.join(lab.hooks, "real")
    shutil.copytree(lab.hooks, real)
    with open(hook, "w") as stream:
        stream.write(FAKED % os.path.join(real, "checkpoint"))
    program = "import os\nballast = os.urandom(192 << 20)\n" + workload.PROGRAM  # the engine has to work for a while
    job = lab.job(program)
    tally.result["jumps"] = 0

    def jump(over):
        for offset in itertools.cycle(("+7200", "-7200")):
            _put(OFFSET, offset)
            if over.wait(0.02):
                return
            tally.result["jumps"] += 1
    for turn in range(count):
        number = (0, 15)[turn % 2]

        def work():
            over = threading.Event()
            thread = threading.Thread(target=jump, args=(over,))
            thread.start()
            name, failure = job.take(number)
            over.set()
            thread.join()
            if failure:
                raise Lost(str(failure))
            job.judge()
            if number:
                job.come_back(name)
            job.runs_on()
        if not tally.case("a clock that jumps, signal %d" % number, work):
            job.kill()
            job = lab.job(program)
    os.unlink(OFFSET)
    lab.close()
    return tally.result


CASES = {"kill": kill, "images": images, "races": races, "hard": hard, "many": many, "twice": twice, "failing": failing, "quota": quota,
         "full": full, "hanging": hanging, "readonly": readonly, "reset": reset, "clock": clock}

if __name__ == "__main__":
    sys.exit(main(CASES))
