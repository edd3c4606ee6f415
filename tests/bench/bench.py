"""What a hook costs beside the bare engine: runs on a node, as root, prints figures of one run side by side.

Usage: python3 bench.py USER STORE HOOKS CONFIG
"""
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

USER, STORE, HOOKS, CONFIG = sys.argv[1:5]
sys.path.insert(0, HOOKS)
from torque_ckpt import config  # noqa: E402
from torque_ckpt.engines import registry  # noqa: E402
from torque_ckpt.image import compression, compressors  # noqa: E402
from torque_ckpt.system import private_dir, privilege, processes  # noqa: E402

JOB_ID = "1.bench"
DIRECTORY = "%s/%s.CK" % (STORE, JOB_ID)
ENVIRONMENT = {"PATH": "/bin:/usr/bin"}
SMALL = ("small job", 20, 0.1, ["/bin/bash", "-c", "while :; do sleep 0.05; done"])
LARGE = ("job of 1 GiB", 8, 3, ["/usr/bin/python3", "-c", "import os, signal; kept = os.urandom(1 << 20) * 1024; signal.pause()"])
NUMBERS = ["/usr/bin/python3", "-c", "import array, signal; kept = array.array('d', range(1 << 20)) * 32; signal.pause()"]
IMPORTS = 20


def seconds(work):
    """Return how long work() took (float)."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at


def frozen(image):
    """Return how long the job stood still for an image (seconds), as CRIU wrote it down: StatsEntry.dump.frozen_time."""
    with open(os.path.join(image, "stats-dump"), "rb") as stream:
        data = stream.read()[12:]  # two magic numbers and a length
    _key, at = _varint(data, 0)
    _length, at = _varint(data, at)
    while True:
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        if key == 2 << 3:
            return value / 1e6


def sync(directory):
    for entry in list(os.scandir(directory)) + [None]:
        descriptor = os.open(entry.path if entry else directory, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def bare(engine, user, root, turn):
    """The engine alone, as the user, into the same store; as a plain program would keep its image, synced."""
    directory = "%s/bare.%d" % (DIRECTORY, turn)

    def dump():
        os.mkdir(directory)
        engine.dump(root, directory, stop=False)

    result = {"engine": seconds(lambda: privilege.as_user(user, dump, engine.dump_capabilities))}
    result["engine and fsync"] = result["engine"] + seconds(lambda: sync(directory))
    result["size"] = sum(entry.stat().st_size for entry in os.scandir(directory))
    result["engine frozen"] = frozen(directory)
    shutil.rmtree(directory)
    return result


def plain(size):
    """A file of this size (bytes) written from memory, and synced; return seconds."""
    block, path = os.urandom(1 << 20), DIRECTORY + "/plain"

    def work():
        with open(path, "wb", 0) as stream:
            for _turn in range(size >> 20):
                stream.write(block)
            os.fsync(stream.fileno())
    took = seconds(work)
    os.unlink(path)
    return took


class Memory(threading.Thread):
    """Watches the memory of the hook's own processes, not of the engine. most: MiB"""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.over = 0.0, False
        self.start()

    def run(self):
        while not self.over:
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open("/proc/%s/cmdline" % pid, "rb") as stream:
                        if (HOOKS + "/checkpoint").encode() not in stream.read().split(b"\0")[:4]:
                            continue
                    with open("/proc/%s/status" % pid) as stream:
                        text = stream.read()
                except OSError:
                    continue
                if text.startswith("Name:\tcheckpoint\n"):  # not the shell
                    self.most = max([self.most] + [int(size) / 1024 for size in re.findall(r"VmHWM:\s+(\d+)", text)])
            time.sleep(0.01)


def logged(name):
    """Return the seconds of the phases (dict of float) that the hook logged for the image it made last."""
    log = subprocess.run(["journalctl", "-t", "ckpt-torque", "-o", "cat", "--no-pager", "-n", "50"], stdout=subprocess.PIPE,
                         universal_newlines=True, check=True).stdout
    line = [line for line in log.splitlines() if "job=%s " % name in line and "outcome=continued" in line][-1]
    return {phase: float(value) for phase, value in re.findall(r"(\w+)_seconds=([\d.]+)", line)}


def hook(session, turn):
    """The checkpoint hook, through a shell as pbs_mom calls it."""
    name = "ckpt.%s.%d" % (JOB_ID, turn)
    line = "exec %s/checkpoint %d %s %s - %s %s 0 -" % (HOOKS, session, JOB_ID, USER, DIRECTORY, name)
    result = {"hook": seconds(lambda: subprocess.run(["/bin/sh", "-c", line], env=ENVIRONMENT, check=True))}
    result["hook frozen"] = frozen(os.path.join(DIRECTORY, name))
    phases = logged(JOB_ID)
    result["image write"] = phases["dump"] + phases["publish"]
    shutil.rmtree(os.path.join(DIRECTORY, name))
    return result


def python(code):
    return seconds(lambda: subprocess.run([sys.executable, "-IS", "-c", code], env=ENVIRONMENT, check=True))


def rested(rest, work, *arguments):
    """Return what work(*arguments) returns when the disk has nothing to do any more; rest in seconds."""
    os.sync()
    time.sleep(rest)
    return work(*arguments)


@contextlib.contextmanager
def running(program, user):
    """Have a job that runs a program (list of str): give its session and its root process (pids)."""
    os.mkdir(DIRECTORY, 0o711)
    os.chown(DIRECTORY, user.uid, user.gid)
    job = subprocess.Popen([HOOKS + "/run"] + program, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           start_new_session=True, user=user.uid, group=user.gid, extra_groups=[],
                           env={"PBS_JOBID": JOB_ID, "PATH": "/bin:/usr/bin"}, cwd="/")
    try:
        time.sleep(3)
        yield job.pid, processes.list_children(job.pid)[0]
    finally:
        subprocess.run(["pkill", "-KILL", "-s", str(job.pid)], check=False)
        job.wait()
        shutil.rmtree(DIRECTORY)


def measure(engine, user, turns, rest, program):
    """Return the medians of what bare(), hook() and plain() find of a job that runs a program (list of str).

    :param rest: pause before each of them (seconds)
    """
    with running(program, user) as (session, root):
        results, memory = [], Memory()
        works = [(bare, engine, user, root), (hook, session)]
        for turn in range(turns):
            one = {}
            for work, *arguments in works[::-1] if turn % 2 else works:  # what writes first finds more free memory, and is faster
                one.update(rested(rest, work, *arguments, turn))
            results.append(dict(one, plain=rested(rest, plain, one["size"])))
        memory.over = True
    return dict({key: statistics.median(one[key] for one in results) for key in results[0]}, memory=memory.most)


def packed(engine, user, root, program):
    """Return what a program (its name, str) makes of a job's memory: plain and compressed bytes, and seconds there and back."""
    path, private = os.path.join(DIRECTORY, program), private_dir.PrivateDirectory("/var/lib/ckpt-torque", user)

    def work():
        os.mkdir(path)
        engine.dump(root, path, stop=False)
        image, plain = os.open(path, os.O_RDONLY), {}
        compressing = seconds(lambda: plain.update(compression.compress_files(image, engine.holds_memory, program, 0, 600)))
        files = [{"name": name, "plain": entry} for name, entry in plain.items()]
        decompressing = seconds(lambda: compression.decompress_files(image, {"files": files}, path, private, 600))
        sizes = [entry["size"] for entry in plain.values()], [os.path.getsize(os.path.join(path, name)) for name in plain]
        return list(map(sum, sizes)) + [compressing, decompressing]
    try:
        return privilege.as_user(user, work, engine.dump_capabilities)
    finally:
        private.remove()


def line(what, value, unit, wanted=""):
    print("  %-26s %9.1f %-4s%s" % (what, value, unit, wanted and "  wanted: " + wanted))


def main():
    user, engine = privilege.find_user(USER), registry.load_engine(config.load_settings(CONFIG))
    for what, turns, rest, program in (SMALL, LARGE):
        medians = measure(engine, user, turns, rest, program)
        print("checkpoint of a %s (%s %s, image %.1f MB, median of %s, signal 0)" % (
            what, engine.name, engine.read_version(), medians["size"] / 1e6, turns))
        line("engine alone", medians["engine"] * 1000, "ms")
        line("engine and fsync", medians["engine and fsync"] * 1000, "ms")
        if program is SMALL[-1]:
            limit = 1.3 * medians["engine"] * 1000 + 60
            line("checkpoint hook", medians["hook"] * 1000, "ms", "at most %.1f (1.3 x engine + 60)" % limit)
            line("over the engine", (medians["hook"] - medians["engine"]) * 1000, "ms", "at most 80")
        else:
            line("checkpoint hook", medians["hook"] * 1000, "ms")
            line("beside engine and fsync", 100 * medians["hook"] / medians["engine and fsync"], "%", "at most 150")
            line("image write", medians["size"] / medians["image write"] / 1e6, "MB/s")
            line("engine alone and fsync", medians["size"] / medians["engine and fsync"] / 1e6, "MB/s")
            line("plain write and fsync", medians["size"] / medians["plain"] / 1e6, "MB/s")
            line("image write beside it", 100 * medians["plain"] / medians["image write"], "%", "at least 85")
        line("job frozen by the engine", medians["engine frozen"] * 1000, "ms")
        line("job frozen by the hook", medians["hook frozen"] * 1000, "ms",
             "" if program is SMALL[-1] else "at most %.1f (1.05 x engine)" % (1050 * medians["engine frozen"]))
        line("memory of the hook", medians["memory"], "MiB", "at most 40")
    print("compression of a job's 256 MiB of rising numbers, by the programs of this node, at their own levels")
    with running(NUMBERS, user) as (_session, root):
        for program in compressors.list_available():
            plain_size, size, compressing, decompressing = rested(SMALL[2], packed, engine, user, root, program)
            line(program + ": size", 100 * size / plain_size, "%")
            line(program + ": compression", plain_size / compressing / 1e6, "MB/s")
            line(program + ": decompression", plain_size / decompressing / 1e6, "MB/s")
    insert = "import sys; sys.path.insert(0, %r); " % HOOKS
    start = statistics.median(python("pass") for _turn in range(IMPORTS))
    print("import of a hook (python start of %.1f ms taken off, median of %d)" % (start * 1000, IMPORTS))
    for name in ("run", "checkpoint", "restart"):
        took = statistics.median(python(insert + "import torque_ckpt.hooks." + name) for _turn in range(IMPORTS))
        line(name, (took - start) * 1000, "ms", "at most 30")


if __name__ == "__main__":
    main()
