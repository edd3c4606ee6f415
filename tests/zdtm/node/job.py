"""A job: runs the program that its arguments name, which makes itself a daemon, and ends as the daemon ends.

The daemon writes its process id to the file "pid" in the working directory.
"""
import ctypes
import os
import subprocess
import sys

SUBREAPER = 36  # prctl(2)


def main(command):
    """Run the command (list of str); return the daemon's exit status, or the command's if there is no daemon."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)  # the daemon becomes a child of this process, as it would be one of a job's shell
    status = subprocess.call(command)
    if status:
        return status
    with open("pid") as stream:
        daemon = int(stream.read())
    while True:
        try:
            pid, ended = os.wait()
        except ChildProcessError:
            return status
        if pid == daemon:
            status = 128 + os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else os.WEXITSTATUS(ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
