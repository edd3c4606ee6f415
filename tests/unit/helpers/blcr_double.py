"""Stands for cr_run, cr_checkpoint and cr_restart, called by these names. What it prints and how it ends follows what was recorded of
BLCR 0.8.6_b4 on Linux 3.10. It checkpoints nothing: its image says which programs there were, and they are started anew.

Beside it the file "fails" makes the named command fail: its name, exit status, and what it prints. The file "memory" goes into the image.
"""
import json
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(sys.argv[0]))


def end(status, text):
    sys.stderr.write(text)
    sys.stderr.flush()
    os._exit(status)


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as stream:
        return [int(word) for word in stream.read().split()]


def tree(pid):
    pids = [pid]
    for each in pids:
        pids.extend(children(each))
    return pids


def memory():
    try:
        with open(os.path.join(HERE, "memory")) as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def value(arguments, name):
    return arguments[arguments.index(name) + 1]


def checkpoint(arguments):
    root, target = int(value(arguments, "--tree")), int(value(arguments, "-F"))
    if not os.path.exists("/proc/%d" % root):
        end(3, "Checkpoint failed: no processes checkpointed\n")
    pids = tree(root)
    with open("/proc/%d/cmdline" % root) as stream:
        command = stream.read().split("\0")[:-1]
    with os.fdopen(os.dup(target), "w") as stream:
        json.dump({"command": command, "pids": pids, "memory": memory()}, stream)
    if "--stop" in arguments:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)


def restart(arguments):
    source = int(value(arguments, "-F"))
    try:
        with os.fdopen(os.dup(source)) as stream:
            image = json.load(stream)
    except ValueError:
        end(22, "- file header has invalid signature\nRestart failed: Invalid argument\n")
    if image["memory"] != memory():
        end(14, "Restart failed: Bad address\n")
    taken = [pid for pid in image["pids"] if os.path.exists("/proc/%d" % pid)]
    if taken and "--no-restore-pid" not in arguments:
        end(16, "- found pid %d in use\nRestart failed: Device or resource busy\n" % taken[0])
    pid = os.fork()
    if pid == 0:
        if "--stop" in arguments:
            os.kill(os.getpid(), signal.SIGSTOP)
        os.execvp(image["command"][0], image["command"])
    hook = subprocess.call(value(arguments, "--run-on-success"), shell=True) if "--run-on-success" in arguments else 0
    if hook:
        os._exit(hook)
    os._exit(os.waitpid(pid, 0)[1] >> 8)


def main():
    name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
    if "--version" in arguments:
        print("%s version 0.8.6_b4" % name)
        return
    try:
        with open(os.path.join(HERE, "fails")) as stream:
            failing, status, text = stream.read().split("\n", 2)
    except FileNotFoundError:
        failing = None
    if failing == name:
        end(int(status), text)
    if name == "cr_run":
        command = arguments[1:] if arguments[0] == "--" else arguments
        os.environ["LD_PRELOAD_DOUBLE"] = "libcr_run.so.0"
        os.execvp(command[0], command)
    {"cr_checkpoint": checkpoint, "cr_restart": restart}[name](arguments)


main()
