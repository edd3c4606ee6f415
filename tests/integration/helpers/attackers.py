"""Programs of users who harm others, run by python3 on a node, each for LASTING seconds, and how they are run there."""
import contextlib
import json
import pathlib

from cluster import configured

LASTING = 60
OWNER = pathlib.Path(__file__).resolve().parents[1] / "attacks/owner.py"
"""What it does is at its top; the fixture owner_program puts it on the nodes."""

HIJACK = r"""
# Be the first to connect to the socket on which CRIU waits for the job, and say nothing.
import re, socket, sys, time
with open("/proc/net/unix", "rb", 0) as names:
    end = time.time() + %d
    while time.time() < end:
        names.seek(0)
        name = re.search(rb"@(/crtools-pr-\S+)", names.read(1 << 20))
        if name:
            taken = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                taken.connect(b"\0" + name.group(1))
            except OSError:
                continue
            print("connected", flush=True)
            time.sleep(max(0, end - time.time()))
""" % LASTING

DISTURB = r"""
# Send a descriptor to each socket of CRIU's processes.
import array, os, re, socket, time
null = os.open("/dev/null", os.O_RDONLY)
ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
with open("/proc/net/unix", "rb", 0) as names:
    end, sent = time.time() + %d, 0
    while time.time() < end:
        names.seek(0)
        for name in re.findall(rb"@(/crtools-fd-\S+)", names.read(1 << 20)):
            try:
                ours.sendmsg([b"A" * 8], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null]))], 0, b"\0" + name)
            except OSError:
                continue
            sent += 1
            if sent == 1:
                print("sent", flush=True)
""" % LASTING

TAKE_NUMBER = r"""
# As root, in the place of a user who forks until the numbers have gone round: have one of bob's processes get this one.
import os, pwd, sys, time
wanted, bob = int(sys.argv[1]), pwd.getpwnam("bob").pw_uid
for attempt in range(2000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as stream:
        stream.write(str(wanted - 1))
    pid = os.fork()
    if pid == 0:
        if os.getpid() == wanted:
            os.setsid()
            for descriptor in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            os.setresuid(bob, bob, bob)
            os.execvp("sleep", ["sleep", "4712"])
        os._exit(1)
    if pid == wanted:
        break
    os.waitpid(pid, 0)
print(pid)
"""

STAND_STILL = r"""
# As root, in the place of a busy node: the restart hook stands still for three seconds as soon as pbs_mom has started it.
import os, signal, time
late = time.time() + %d
hook = None
while hook is None and time.time() < late:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%%s/comm" %% pid) as stream:
                if stream.read() == "restart\n":
                    hook = int(pid)
        except OSError:
            continue
os.kill(hook, signal.SIGSTOP)
time.sleep(3)
os.kill(hook, signal.SIGCONT)
""" % LASTING

KILL_LATE = r"""
# As root, in the place of what kills a hook: the restart hook, once the engine has brought the job back, before root's record is written.
import os, signal, time
def named(name):
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%%s/stat" %% pid) as stream:
                text = stream.read()
        except OSError:
            continue
        if "(%%s)" %% name in text:
            parents[int(pid)] = int(text.rpartition(")")[2].split()[1])
    return parents
late = time.time() + %d
moms = named("pbs_mom")
while not named("criu") and time.time() < late:
    pass
hook, = [pid for pid, parent in named("restart").items() if parent in moms]
os.kill(hook, signal.SIGSTOP)
while (named("criu") or not named("sleep")) and time.time() < late:
    time.sleep(0.01)
os.kill(hook, signal.SIGKILL)
print([name for name in os.listdir("/run/ckpt-torque/jobs") if name.endswith(".json")])
""" % LASTING


@contextlib.contextmanager
def attacker(node, program, user="bob"):
    """Have a user run a program (str) on a node; yields a function that returns what it printed (list of str)."""
    path = "/tmp/attack-" + user
    node.ask("cat > {0}.py <<'X'\n{1}\nX\nrm -f {0}.out; setsid --fork setpriv --reuid {2} --clear-groups sh -c 'echo $$ > {0}.pid; "
             "exec python3 {0}.py' < /dev/null > {0}.out 2>&1; for i in $(seq 600); do [ -s {0}.pid ] && break; sleep 0.1; done"
             .format(path, program, user))
    try:
        yield lambda: node.ask("cat %s.out" % path).splitlines()
    finally:
        node.run("kill -KILL $(cat {0}.pid); rm -f {0}.*".format(path))


@contextlib.contextmanager
def attack(node, *arguments):
    """Have alice run OWNER while the body runs; what it is given (dict) has then what it said."""
    node.ask("rm -f /tmp/rights/said; setsid --fork setpriv --reuid alice --regid alice --init-groups "
             "python3 /tmp/rights/owner.py %s < /dev/null > /tmp/rights/said 2>&1; "
             "for i in $(seq 600); do grep -q waiting /tmp/rights/said && break; sleep 0.05; done" % " ".join(arguments))
    answer = {}
    yield answer
    node.ask("touch /tmp/rights/over; for i in $(seq 600); do grep -q } /tmp/rights/said && break; sleep 0.05; done; rm /tmp/rights/over")
    answer.update(json.loads(node.ask("tail -n 1 /tmp/rights/said")))


WAITS = """#!/bin/sh
mkdir /tmp/waited && touch /tmp/dumping
while [ -e /tmp/dumping ]; do sleep 0.05; done
exec cat
"""


@contextlib.contextmanager
def waiting_program(node):
    """Have a program compress the first file only when /tmp/dumping is removed: the engine has done its work then."""
    node.ask("cat > /usr/local/bin/lz4 <<'X'\n%sX\nchmod 755 /usr/local/bin/lz4; rm -rf /tmp/dumping /tmp/waited" % WAITS)
    try:
        with configured(node, compression="lz4"):
            yield
    finally:
        node.run("rm -rf /usr/local/bin/lz4 /tmp/dumping /tmp/waited")
