"""What a hook costs beside the bare engine: runs on a node, as root, prints figures of one run side by side.

Usage: python3 bench.py USER STORE HOOKS CONFIG
"""
import os
import shutil
import statistics
import subprocess
import sys
import time

USER, STORE, HOOKS, CONFIG = sys.argv[1:5]
sys.path.insert(0, HOOKS)
from torque_ckpt import config, identity, privilege  # noqa: E402
from torque_ckpt.engines import registry  # noqa: E402

TURNS = 20
JOB_ID = "1.bench"
DIRECTORY = "%s/%s.CK" % (STORE, JOB_ID)
ENVIRONMENT = {"PATH": "/bin:/usr/bin"}


def milliseconds(work):
    """Return how long work() took (float)."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def bare(engine, user, root, turn):
    """The engine alone, as the user, into the same store."""
    place = "%s/bare.%d" % (DIRECTORY, turn)

    def dump():
        os.mkdir(place)
        engine.dump(root, place, stop=False)

    took = milliseconds(lambda: privilege.as_user(user, dump, engine.dump_capabilities))
    size = sum(entry.stat().st_size for entry in os.scandir(place))
    shutil.rmtree(place)
    return took, size


def hook(session, turn):
    """The checkpoint hook, through a shell as pbs_mom calls it."""
    name = "ckpt.%s.%d" % (JOB_ID, turn)
    line = "%s/checkpoint %d %s %s - %s %s 0 -" % (HOOKS, session, JOB_ID, USER, DIRECTORY, name)
    took = milliseconds(lambda: subprocess.run(["/bin/sh", "-c", line], env=ENVIRONMENT, check=True))
    shutil.rmtree(os.path.join(DIRECTORY, name))
    return took


def python(code):
    return milliseconds(lambda: subprocess.run([sys.executable, "-IS", "-c", code], env=ENVIRONMENT, check=True))


def main():
    user = privilege.account(USER)
    os.mkdir(DIRECTORY, 0o711)
    os.chown(DIRECTORY, user.uid, user.gid)
    job = subprocess.Popen([HOOKS + "/run", "/bin/bash", "-c", "while :; do sleep 0.05; done"], stdin=subprocess.DEVNULL,
                           start_new_session=True, user=user.uid, group=user.gid, extra_groups=[],
                           env={"PBS_JOBID": JOB_ID, "PATH": "/bin:/usr/bin"}, cwd="/")
    try:
        time.sleep(1)
        root = identity.children(job.pid)[0]
        engine = registry.get(config.load(CONFIG))
        alone, through, sizes = [], [], []
        for turn in range(TURNS):
            took, size = bare(engine, user, root, turn)
            alone.append(took)
            sizes.append(size)
            through.append(hook(job.pid, turn))
        insert = "import sys; sys.path.insert(0, %r); " % HOOKS
        starts = [python("pass") for _turn in range(TURNS)]
        imports = {name: [python(insert + "import torque_ckpt." + name) for _turn in range(TURNS)]
                   for name in ("run", "checkpoint", "restart")}
    finally:
        subprocess.run(["pkill", "-KILL", "-s", str(job.pid)], check=False)
        job.wait()
        shutil.rmtree(DIRECTORY)
    engine_ms, hook_ms, start_ms = map(statistics.median, (alone, through, starts))
    print("checkpoint of a small job (%s %s, image %d kB, median of %d, signal 0)" % (
        engine.name, engine.version(), statistics.median(sizes) / 1000, TURNS))
    print("  engine alone        %7.1f ms" % engine_ms)
    print("  checkpoint hook     %7.1f ms" % hook_ms)
    print("  over the engine     %7.1f ms   wanted: at most 80" % (hook_ms - engine_ms))
    print("import of a hook (python start of %.1f ms taken off, median of %d)" % (start_ms, TURNS))
    for name, found in imports.items():
        print("  %-12s        %7.1f ms   wanted: at most 30" % (name, statistics.median(found) - start_ms))


if __name__ == "__main__":
    main()
