"""A program that writes a restart file of its own, and that CRIU cannot write; ckpt-run starts it."""

PROGRAM = r"""
import ctypes, os, signal, sys, time
library = ctypes.CDLL(None)
library.inotify_add_watch(library.inotify_init1(0), b"/tmp", 2)  # no checkpoint of this process
def leave(_number, _frame):
    with open("state", "w") as stream:
        stream.write(str(counter))
    sys.exit(3)
counter = int(open("state").read()) if os.path.exists("state") else 0
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in sys.argv else leave)
while not os.path.exists("stop"):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    counter += 1
    os.write(1, b"%d\n" % counter)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    time.sleep(0.01)
sys.exit(5)
"""
"""Counts as the tests' job does, watches a directory, and continues from its own file."""


def script(options="", argument=""):
    """The text of a job that has ckpt-run start the program."""
    return "cat > program.py <<'P'\n%sP\n/usr/local/bin/ckpt-run %s -- python3 program.py %s; exit $?" % (PROGRAM, options, argument)


def whole(lines):
    """Whether there are lines of the program, and none is missing or twice."""
    return lines != [] and lines == [str(number) for number in range(1, len(lines) + 1)]
