"""The hooks on real nodes with real CRIU: jobs that move, and failures that leave the job and its images as they were."""
import contextlib
import json
import re
import time

import pytest
from cluster import CONFIG, HOOKS, STORE, begin, configured
from trips import answer


def test_hold_and_three_moves(job, node1, node2):
    """The counter has neither gap nor repeat, and the job's exit status is its own."""
    moved = job(node1)
    for node in (node2, node1, node2):
        moved.hold()
        before = moved.counter()
        moved.move(node)
        assert moved.counter() > before
    moved.node.ask("touch %s/stop; for i in $(seq 600); do [ -s /tmp/%s.exit ] && break; sleep 0.1; done" % (moved.work, moved.id))
    assert node2.ask("cat /tmp/%s.exit" % moved.id) == "5"
    lines = moved.lines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


def test_continue_leaves_the_job_running(job, node1):
    running = job(node1)
    for _turn in range(2):
        done = running.checkpoint(0)
        assert (done.code, done.err) == (0, "")
        running.progress()
    names = node1.ask("ls -A %s" % running.directory).split()
    assert names == [".incarnation." + running.id, "ckpt.%s.1" % running.id, "ckpt.%s.2" % running.id]


def test_hold_leaves_nothing_running(job, node1):
    held = job(node1)
    held.hold()
    assert node1.run("pgrep -u alice").out == ""


def test_daemons_of_the_job_travel_too(job, node1, node2):
    """A process that left the script's process group and session, and lost its parent, is still the job's."""
    moved = job(node1, "(setsid sleep 4711 &)\npython3 job.py; exit $?")
    moved.hold()
    assert node1.run("pgrep -f 'sleep 4711'").out == ""
    moved.move(node2)
    assert node2.ask("pgrep -fxc 'sleep 4711'") == "1"


IMAGES = "see with torque-ckpt list which images the job has, and whether its owner may read them"
BOUND = """
exec python3 -c "
import os, threading, time
cpu = max(os.sched_getaffinity(0))
ready = threading.Event()
def bind():
    os.sched_setaffinity(0, {cpu})
    ready.set()
    time.sleep(3600)
threading.Thread(target=bind, daemon=True).start()
ready.wait()
number = 0
while not os.path.exists('stop'):
    number += 1
    os.write(1, b'%d\\n' % number)
    time.sleep(0.01)
os._exit(5)
"
"""
"""Counts, with a thread that is bound to a CPU, as by mpirun --bind-to core."""


def test_bound_threads_stay_bound(job, node1, node2):
    if node1.ask("nproc") == "1":
        pytest.skip("needs two CPUs")
    moved = job(node1, BOUND)
    show = "grep -h Cpus_allowed: /proc/$(pgrep -u alice -x python3)/task/*/status"
    before = node1.ask(show)
    assert len(set(before.splitlines())) == 2
    for node in (node2, node1, node2):
        moved.hold()
        moved.move(node)
        assert node.ask(show) == before
    assert moved.checkpoint(0).code == 0
    assert node2.ask(show) == before
    assert moved.end() == 5
    assert moved.complaints() == ""


EXPIRED = """
exec python3 -c "
import os, time
timer = os.timerfd_create(time.CLOCK_MONOTONIC)
os.timerfd_settime(timer, initial=0.1, interval=0.1)
counter = reads = 0
while not os.path.exists('stop'):
    counter += 1
    print(counter, flush=True)
    time.sleep(0.01)
    if reads < 3 and os.path.exists('read'):
        os.read(timer, 8)
        reads += 1
exit(5 if reads == 3 else 1)
"
"""
"""Counts, with a timer whose expiry it reads when it is told to, three times."""


def test_timer_that_had_expired_goes_on(job, node1, node2):
    """The kernel starts it again when it is read; CRIU alone restores one that never expires again."""
    moved = job(node1, EXPIRED)
    node1.ask("grep -q '^ticks: [1-9]' $(grep -l clockid /proc/$(pgrep -u alice -x python3)/fdinfo/*) || sleep 1")
    moved.hold()
    moved.move(node2)
    node2.ask("touch %s/read" % moved.work)
    for _turn in range(4):
        moved.progress()
    assert moved.end() == 5


def test_manifest(job, node1):
    held = job(node1)
    tree = node1.ask("root=$(pgrep -P %d); echo $root; pgrep -P $root; pgrep -P $(pgrep -P $root); true" % held.session)
    held.hold()
    manifest = json.loads(node1.ask("cat %s/%s/manifest.json" % (held.directory, held.name())))
    assert (manifest["format"], manifest["job_id"], manifest["node"]) == (3, held.id, "node1")
    assert (manifest["user"], manifest["uid"]) == ("alice", 1500)
    assert manifest["engine"]["name"] == "criu"
    assert manifest["pids"] == sorted(map(int, tree.split()))
    assert manifest["kernel"] == node1.ask("uname -r")
    sizes = {entry["name"]: entry["size"] for entry in manifest["files"]}
    listed = dict(line.split() for line in node1.ask("cd %s/%s && stat -c '%%n %%s' *" % (held.directory, held.name())).splitlines())
    listed.pop("manifest.json")
    assert {name: int(size) for name, size in listed.items()} == sizes
    assert manifest["bytes"] == sum(sizes.values())


def test_compressed_image_moves(job, node1, node2):
    """On the other node nothing is compressed; what an image needs, it says itself."""
    moved = job(node1)
    with configured(node1, compression="gzip"):
        assert moved.checkpoint(0).code == 0
        moved.progress()
        moved.hold()
    before = moved.counter()
    manifest = json.loads(node1.ask("cat %s/%s/manifest.json" % (moved.directory, moved.name())))
    assert (manifest["format"], manifest["compression"]) == (4, "gzip")
    assert manifest["bytes"] < manifest["plain_bytes"]
    assert [entry["plain"]["name"] for entry in manifest["files"] if "plain" in entry]
    assert node2.ask("torque-ckpt verify %s" % moved.id).endswith(": whole, and sealed by root's hooks of this site")
    moved.move(node2)
    assert moved.counter() > before
    assert node2.ask("ls /var/lib/ckpt-torque/private") == ""
    moved.hold()
    assert json.loads(node2.ask("cat %s/%s/manifest.json" % (moved.directory, moved.name())))["format"] == 3
    moved.move(node1)
    assert moved.end() == 5
    lines = moved.lines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


LOADS = "python3 -c 'import ctypes, time; ctypes.CDLL(\"/opt/loaded/library.so\"); time.sleep(600)' &\npython3 job.py; exit $?"


def test_library_that_an_update_has_replaced_is_refused(job, node1):
    """CRIU writes the old one into the image, and the job's owner cannot put it back: the restart would fail for good."""
    library = "/opt/loaded/library.so"
    node1.ask("mkdir /opt/loaded; cp /lib/x86_64-linux-gnu/libm.so.6 " + library)
    try:
        running = job(node1, LOADS)
        loader = node1.ask("for _ in $(seq 600); do pid=$(pgrep -u alice -f '^python3 -c') && grep -q {0} /proc/$pid/maps && break; "
                           "sleep 0.1; done; echo $pid; cp {0} {0}.new; mv {0}.new {0}".format(library))
        sentence = "process %s (python3) has the file %s open, which was removed or replaced" % (loader, library)
        done = running.checkpoint(15)
        assert (done.code, done.err[:len(sentence)]) == (77, sentence), done.err
        assert sentence in node1.run("torque-ckpt check " + running.id).out
        running.progress()
        node1.ask("kill " + loader)
        running.hold()
    finally:
        node1.ask("rm -r /opt/loaded")


def test_image_is_the_users_alone(job, node1):
    held = job(node1)
    held.hold()
    modes = node1.ask("find %s/%s -printf '%%y%%m %%u\\n' | sort -u" % (held.directory, held.name())).splitlines()
    assert modes == ["d700 alice", "f600 alice"]


def count_signals(running):
    """Wait until the job has got SIGUSR1, and a moment for another one; return how many it has got."""
    running.node.ask("for _ in $(seq 600); do grep -q USR1 %s/out && break; sleep 0.1; done; sleep 0.3" % running.work)
    return running.lines().count("USR1")


def find_leader(moved):
    """Return the pid of a restarted job's leader (int)."""
    return json.loads(moved.node.ask("cat /run/ckpt-torque/jobs/%s.json" % moved.id))["leader"][0]


def test_signals_reach_the_job_once(job, node1):
    running = job(node1, "exec python3 job.py")
    node1.ask("kill -USR1 %d" % running.session)
    assert count_signals(running) == 1


def test_signals_reach_a_moved_job_once(job, node1, node2):
    moved = job(node1, "exec python3 job.py")
    moved.hold()
    moved.move(node2)
    node2.ask("kill -USR1 %d" % find_leader(moved))
    assert count_signals(moved) == 1


def test_killed_job_ends_its_leader(job, node1):
    running = job(node1, "exec python3 job.py")
    node1.ask("kill -TERM %d" % running.session)
    assert node1.run("for i in $(seq 600); do kill -0 %d 2> /dev/null || exit 0; sleep 0.1; done; exit 1" % running.session).code == 0


def test_killed_job_that_was_moved_ends_its_leader_the_same_way(job, node1, node2):
    """The shell that waits for it takes a signal for 128 and its number."""
    moved = job(node1, "exec python3 job.py")
    moved.hold()
    moved.move(node2)
    ended = "/tmp/%s.exit" % moved.id
    assert node2.ask("kill -TERM {0}; for _ in $(seq 600); do [ -s {1} ] && break; sleep 0.1; done; cat {1}"
                     .format(find_leader(moved), ended)) == "143"


def test_record_follows_the_restarted_job(job, node1, node2):
    """pbs_mom goes on passing the first session id; on the new node it means nothing."""
    moved = job(node1)
    moved.hold()
    moved.move(node2)
    record = json.loads(node2.ask("cat /run/ckpt-torque/jobs/%s.json" % moved.id))
    assert record["root"][0] != moved.session
    stranger = int(node2.ask("setsid --fork setpriv --reuid bob --clear-groups "
                             "sh -c 'echo $$; exec sleep 600 > /dev/null 2>&1' < /dev/null"))
    done = moved.checkpoint(15, session=stranger)
    assert (done.code, done.err) == (0, "")
    assert node2.ask("pgrep -u bob") == str(stranger)
    node2.ask("pkill -u bob; for i in $(seq 600); do [ -e /run/ckpt-torque/jobs/%s.json ] || exit 0; sleep 0.1; done; exit 1" % moved.id)


BEGIN = r"""
import os, signal, sys
begun, program = sys.argv[1], sys.argv[2:]
pid = os.fork()
if pid == 0:
    os.setsid()
    for descriptor in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    if begun == "forked":
        os.kill(os.getpid(), signal.SIGSTOP)
    os.execv(program[0], program)
if begun == "started":
    while open("/proc/%d/cmdline" % pid, "rb").read().split(b"\0")[2:3] != [program[0].encode()]:  # python3 -IS PROGRAM
        pass
    os.kill(pid, signal.SIGSTOP)
print(pid)
"""
"""Begins a hook in a session of its own; it stands still before its execve, or right after."""


@pytest.mark.parametrize("begun", ["forked", "started"])
def test_hold_that_comes_before_the_job_is_back(job, node1, node2, begun):
    """pbs_mom takes the job for running when it has started the restart hook."""
    moved = job(node1)
    moved.hold()
    line = " ".join(map(str, moved.arguments()))
    node2.ask("cat > /tmp/begin.py <<'X'\n%s\nX" % BEGIN)
    hook = node2.ask("cd /; env -i PATH=/bin:/usr/bin python3 /tmp/begin.py %s %s/restart %s" % (begun, HOOKS, line))
    assert node2.run("pgrep -u alice").out == ""
    moved.node, moved.images = node2, moved.images + 1
    node2.ask("(sleep 1.5; kill -CONT %s) > /dev/null 2>&1 < /dev/null &" % hook)
    done = node2.hook("checkpoint", *(moved.arguments() + [15, "-"]))
    assert (done.code, done.err) == (0, "")
    node2.ask("for _ in $(seq 600); do pgrep -u alice > /dev/null || exit 0; sleep 0.1; done; ps -fu alice >&2; exit 1")
    moved.move(node1)
    assert moved.end() == 5
    lines = moved.lines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


# -- failures ---------------------------------------------------------------

def unharmed(running, done, code, sentence):
    """A checkpoint failed with this code and sentence; the job and the older images are as they were."""
    assert (done.code, done.err) == (code, sentence + "\n")
    running.progress()


def test_vanished_job(job, node1):
    running = job(node1)
    done = running.checkpoint(15, session=999999)
    unharmed(running, done, 69, "job %s has no running process started by the run or restart hook on this node (session 999999); "
             "was $checkpoint_run_exe set when it started?" % running.id)


def test_process_of_somebody_else(job, node1):
    running = job(node1)
    node1.ask("setsid --fork setpriv --reuid bob --clear-groups sh -c 'sleep 600 & echo $$ $! > /tmp/stranger; wait' "
              "< /dev/null > /dev/null 2>&1")
    stranger, root = map(int, node1.ask("for i in $(seq 600); do [ -s /tmp/stranger ] && break; sleep 0.1; done; "
                                        "cat /tmp/stranger; rm /tmp/stranger").split())
    done = running.checkpoint(15, session=stranger)
    unharmed(running, done, 69, "job %s has no running process started by the run or restart hook on this node (session %d); "
             "was $checkpoint_run_exe set when it started?" % (running.id, stranger))
    assert node1.ask("pgrep -u bob").split() == [str(stranger), str(root)]
    node1.ask("pkill -u bob")


def test_another_job_of_the_same_user(job, node1):
    first, second = job(node1), job(node1)
    done = first.checkpoint(15, session=second.session)
    root = node1.ask("pgrep -P %d" % second.session)
    unharmed(first, done, 77, "process %s is not job %s of alice (its uid is 1500, its PBS_JOBID is %s); it was left alone; "
             "see whether the job runs on this node, with PBS_JOBID in its environment" % (root, first.id, second.id))
    second.progress()


def test_setuid_program_in_the_job(job, node1):
    """Root's memory must not end in a file of the user."""
    node1.ask("cp /usr/bin/sleep /usr/local/bin/rootsleep && chmod 4755 /usr/local/bin/rootsleep")
    running = job(node1, "/usr/local/bin/rootsleep 600 &\npython3 job.py; exit $?")
    setuid = node1.ask("pgrep -f '/usr/local/bin/rootsleep 600'")
    unharmed(running, running.checkpoint(15), 77, "process %s (rootsleep) of job %s runs with another user's rights; its memory must not "
             "become the user's: checkpoint the job when it has ended" % (setuid, running.id))
    node1.ask("rm /usr/local/bin/rootsleep; kill %s" % setuid)


def test_unknown_user(job, node1):
    running = job(node1)
    unharmed(running, running.checkpoint(15, user="nosuch"), 67,
             "user nosuch is not known on this node; compare the account database with the other nodes")
    unharmed(running, running.checkpoint(15, group="nosuch"), 67,
             "group nosuch is not known on this node; compare the group database with the other nodes")


def test_root_is_refused(job, node1):
    running = job(node1)
    unharmed(running, running.checkpoint(15, user="root", group="root"), 67,
             "jobs of root are not checkpointed: an image would run with root's rights when it is restarted; submit the job as another "
             "user")


def test_directory_outside_the_store(job, node1):
    running = job(node1)
    unharmed(running, running.checkpoint(15, directory="/tmp/x.CK"), 77,
             "directory /tmp/x.CK is in none of this node's stores (%s); set the job's checkpoint directory beneath one" % STORE)


def test_store_is_not_mounted(job, node1):
    running = job(node1)
    node1.ask("mv {0} {0}.away".format(STORE + "/.ckpt-torque-store"))
    try:
        unharmed(running, running.checkpoint(15), 78, "store %s is not usable on this node: %s/.ckpt-torque-store: "
                 "No such file or directory; is it mounted?" % (STORE, STORE))
    finally:
        node1.ask("mv {0}.away {0}".format(STORE + "/.ckpt-torque-store"))


def test_link_in_the_place_of_the_directory(job, node1):
    running = job(node1)
    node1.ask("install -d -o alice /tmp/elsewhere && ln -s /tmp/elsewhere %s" % running.directory)
    unharmed(running, running.checkpoint(15), 73, "cannot use the directory of job images %s: Not a directory; see to the space, "
             "the quota and the rights in the store" % running.directory)
    assert node1.ask("ls -A /tmp/elsewhere") == ""


def test_engine_fails(job, node1):
    """The older image stays as it was, the failed one leaves nothing."""
    running = job(node1)
    assert running.checkpoint(0).code == 0
    before = running.images_digest()
    node1.ask("printf '#!/bin/sh\\necho \"(00.1) Error (criu/x.c:1): no luck today\"; exit 1\\n' > /tmp/criu; chmod 755 /tmp/criu; "
              "sed -i.good 's,\"/opt/criu/current/sbin/criu\",\"/tmp/criu\",' %s" % CONFIG)
    try:
        for signal in (15, 0):
            unharmed(running, running.checkpoint(signal), 70, "criu dump failed with status 1: no luck today; the job keeps running; see "
                     "whether torque-ckpt selftest passes on this node (as root)")
    finally:
        node1.ask("mv %s.good %s" % (CONFIG, CONFIG))
    assert running.images_digest() == before
    assert running.generations() == {"ckpt.%s.1" % running.id: 1}


OBSTACLES = {
    "packet_pipe": ("ends = os.pipe2(os.O_DIRECT)", "has a pipe of packets open (O_DIRECT)",
                    "checkpoint the job when the process has ended, or let the program use pipes without O_DIRECT"),
    "inotify": ("import ctypes; libc = ctypes.CDLL(None); libc.inotify_add_watch(libc.inotify_init1(0), b'/tmp', 2)",
                "watches files (inotify)",
                "start the program so that it does not watch files, or checkpoint the job when it has ended"),
    "sysv_memory": ("import ctypes; libc = ctypes.CDLL(None); libc.shmat(libc.shmget(0, 4096, 0o1600), None, 0)",
                    "has System V shared memory",
                    "let the program use POSIX shared memory (MPI with UCX: UCX_TLS=posix,self), or checkpoint the job when it has ended"),
    "unix_peer": ("import socket; bus = socket.socket(socket.AF_UNIX); bus.connect('/run/dbus/system_bus_socket')",
                  "is connected to /run/dbus/system_bus_socket, a socket of a process that is not of the job",
                  "checkpoint the job when the connection is closed"),
}
OBSTACLE = """
exec python3 -c "
import os, time
%s
counter = 0
while not os.path.exists('stop'):
    counter += 1
    os.write(1, b'%%d\\n' %% counter)
    time.sleep(0.02)
raise SystemExit(5)
"
"""


@pytest.mark.parametrize("kind", sorted(OBSTACLES))
def test_obstacle_is_named_before_the_job_is_stopped(job, node1, kind):
    """What real CRIU does not write is known, by torque-ckpt check and by the hook."""
    code, resource, advice = OBSTACLES[kind]
    running = job(node1, OBSTACLE % code)
    running.progress()
    pid = node1.ask("pgrep -u alice -x python3")
    start = "process %s (python3) %s; CRIU cannot checkpoint that; " % (pid, resource)
    done = running.checkpoint(15)
    unharmed(running, done, 77, start + "the job keeps running; " + advice)
    for command in ("torque-ckpt check %s" % running.id, "runuser -u alice -- torque-ckpt check --pid %s" % pid):
        done = node1.run(command)
        assert (done.code, done.out) == (1, start + advice + "\n"), done.err
    node1.ask("touch %s/stop" % running.work)


CONFINED = """
exec python3 -c "
import ctypes, os, time
libc = ctypes.CDLL(None)
counter = 0
while not os.path.exists('stop'):
    if os.path.exists('confine') and os.fork() == 0:
        rules = libc.syscall(444, (ctypes.c_uint64 * 3)(0, 0, 1), 24, 0)
        libc.prctl(38, 1, 0, 0, 0)
        failed = libc.syscall(446, rules, 0)
        os.close(rules)
        os._exit(failed or time.sleep(2.5) or 0)
    counter += 1
    os.write(1, b'%d\\n' % counter)
    if os.path.exists('confine'):
        os.unlink('confine')
        open('confined', 'w').close()
    time.sleep(0.02)
os.wait()
raise SystemExit(5)
"
"""


def test_program_that_confines_itself_for_a_while(job, node1, node2):
    """As xz does, which CRIU cannot reach then: the hold waits for its end."""
    running = job(node1, CONFINED)
    running.progress()
    node1.ask("runuser -u alice -- touch {0}/confine; while [ ! -e {0}/confined ]; do sleep 0.05; done".format(running.work))
    running.hold()
    running.move(node2)
    assert running.end() == 5


CONNECTED = """
exec python3 -c "
import os, socket, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('127.0.0.1', 0))
listener.listen(5)
with open('port', 'w') as stream:
    stream.write('%d' % listener.getsockname()[1])
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
if os.fork() == 0:
    client.close()
    while True:
        server.sendall(server.recv(100))
server.close()
others, counter = [], 0
listener.settimeout(0)
while not os.path.exists('stop'):
    counter += 1
    client.sendall(b'%09d' % counter)
    assert client.recv(100) == b'%09d' % counter
    os.write(1, b'%d\\n' % counter)
    if os.path.exists('accept'):
        try:
            others.append(listener.accept()[0])
            open('accepted', 'w').close()
        except BlockingIOError:
            pass
    time.sleep(0.02)
os._exit(5)
"
"""
"""Counts by a connection between its two processes; with the file accept it accepts others."""


def test_connection_inside_the_job_moves(job, node1, node2):
    running = job(node1, CONNECTED)
    running.progress()
    assert running.checkpoint(0).code == 0
    running.progress()
    for node in (node2, node1, node2):
        running.hold()
        assert json.loads(running.node.ask("cat %s/%s/manifest.json" % (running.directory, running.name())))["connected"] is True
        running.move(node)
    assert running.end() == 5


REPLIES = """
exec python3 -c "
import os, socket, time
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(5)
if os.fork() == 0:
    ballast = os.urandom(128 << 20)
    client = socket.create_connection(listener.getsockname())
    listener.close()
    while True:
        client.sendall(client.recv(100))
server, counter = listener.accept()[0], 0
while not os.path.exists('stop'):
    counter += 1
    server.sendall(b'%09d' % counter)
    assert server.recv(100) == b'%09d' % counter
    os.write(1, b'%d\\n' % counter)
    time.sleep(0.02)
os._exit(5)
"
"""
"""Counts by a connection that its parent, which listens, has accepted; the child takes longer to end."""


def test_connections_let_the_job_come_back_to_its_node_at_once(job, node1):
    """The kernel would keep the port of a listener without SO_REUSEADDR in use for a minute, as Open MPI has one."""
    running = job(node1, REPLIES)
    running.progress()
    for _turn in range(3):
        running.hold()
        running.move(node1)
    assert running.end() == 5


STREAM = """
exec python3 -c "
import os, socket, time
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(5)
line = b'0123456789' * 1000
if os.fork() == 0:
    client = socket.create_connection(listener.getsockname())
    listener.close()
    while True:
        client.sendall(line)
server, received = listener.accept()[0], 0
while not os.path.exists('stop'):
    for _turn in range(20):
        data = server.recv(4000)
        assert data == (line + line)[received %% 10000:][:len(data)] != b''
        received += len(data)
    os.write(1, b'%%d\\n' %% received)
    time.sleep(%s)
os._exit(5)
"
"""
"""Counts the bytes that its child sends as fast as it may; it looks at each, and sleeps after 80 kB at most (seconds)."""


@pytest.mark.parametrize("pause", [0.02, 0], ids=["slow", "fast"])
def test_stream_between_processes_moves(job, node1, node2, pause):
    """CRIU alone would send what the child has written before the other end is there again."""
    running = job(node1, STREAM % pause)
    running.progress()
    for node in (node2, node1, node2):
        assert running.checkpoint(0).code == 0
        running.progress()
        running.hold()
        running.move(node)
    assert running.end() == 5


CLOSED = """
exec python3 -c "
import errno, os, select, signal, socket, time
signal.signal(signal.SIGPIPE, signal.SIG_IGN)

def connect():
    listener = socket.create_server(('127.0.0.1', 0))
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]

def try_to(work):
    try:
        return work()
    except OSError as error:
        return errno.errorcode[error.errno]

def look(end):
    poll = select.poll()
    poll.register(end, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    return [poll.poll(0)] + [try_to(work) for work in (lambda: end.recv(5), lambda: end.send(b'x'), end.getpeername)]

closed, open_one, number = connect(), %s, 0
for end in closed:
    end.shutdown(socket.SHUT_RDWR)
while any(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 7 for end in closed):
    time.sleep(0.01)
before = [look(end) for end in closed]
while not os.path.exists('stop'):
    number += 1
    assert [look(end) for end in closed] == before
    if open_one:
        open_one[0].sendall(b'%%d' %% number)
        assert open_one[1].recv(100) == b'%%d' %% number
    os.write(1, b'%%d\\n' %% number)
    time.sleep(0.02)
os._exit(5)
"
"""
"""Counts as long as a connection that both sides have closed, whose sockets it has open, looks as it did, beside an open one or not."""


@pytest.mark.parametrize("beside, connected", [("connect()", True), ("None", False)], ids=["beside-an-open-one", "alone"])
def test_closed_connection_does_not_prevent_a_move(job, node1, node2, beside, connected):
    """CRIU needs a right for it that the owner does not have, and that no restart gives for it."""
    running = job(node1, CLOSED % beside)
    running.progress()
    for node in (node2, node1):
        assert running.checkpoint(0).code == 0
        running.progress()
        running.hold()
        manifest = json.loads(running.node.ask("cat %s/%s/manifest.json" % (running.directory, running.name())))
        assert manifest["connected"] is connected
        running.move(node)
    assert running.end() == 5


LEFT = """
exec python3 -c "
import fcntl, os, select, signal, socket, struct, termios, time
signal.signal(signal.SIGPIPE, signal.SIG_IGN)

def connect(host, family, sent):
    listener = socket.socket(family)
    listener.bind((host, 0))
    listener.listen(1)
    client = socket.socket(family)
    client.connect(listener.getsockname())
    server = listener.accept()[0]
    server.sendall(sent)
    server.close()
    while client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 8:
        time.sleep(0.01)
    return client

def look(end):
    poll = select.poll()
    poll.register(end, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    return [poll.poll(0), end.getsockname(), end.getpeername(), end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1),
            fcntl.ioctl(end, termios.FIONREAD, bytes(4)), end.recv(100000, socket.MSG_PEEK)]

def try_to(work):
    try:
        return work()
    except OSError as error:
        return error.errno

def use(end):
    found = []
    for _ in range(3):
        found.append(end.recv(100000))
    found.append(end.send(b'x'))
    while end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 7:
        time.sleep(0.01)
    poll = select.poll()
    poll.register(end, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    return found + [poll.poll(0)[0][1]] + [try_to(work) for work in (lambda: end.send(b'x'), lambda: end.send(b'x'), lambda: end.recv(1),
                                                                     end.getpeername)]

def create():
    hosts = [('127.0.0.1', socket.AF_INET), ('::1', socket.AF_INET6), ('::ffff:127.0.0.1', socket.AF_INET6)]
    ends = [connect(host, family, sent) for host, family in hosts for sent in (b'', b'left', b'y' * 30000)]
    ends[0].recv(1)
    return ends

ends, number = create(), 0
with open('ports', 'w') as stream:
    stream.write('%d %d' % (ends[0].getsockname()[1], ends[0].getpeername()[1]))
before = [look(end) for end in ends]
while not os.path.exists('stop'):
    number += 1
    assert [look(end) for end in ends] == before
    os.write(1, b'%d\\n' % number)
    time.sleep(0.02)
assert [use(end) for end in ends] == [use(end) for end in create()]
os._exit(5)
"
"""
"""Counts as long as connections whose other ends were closed look as they did, and uses them at last: as others that were not moved."""


def test_connection_whose_other_end_was_closed_moves(job, node1, node2):
    running = job(node1, LEFT)
    running.progress()
    for node in (node2, node1, node1):
        assert running.checkpoint(0).code == 0
        running.progress()
        running.hold()
        running.move(node)
    assert running.end() == 5


def test_other_end_that_was_closed_and_that_somebody_has_on_the_node(job, node1):
    """The restart takes nobody's end of a connection."""
    running = job(node1, LEFT)
    running.progress()
    own, other = node1.ask("cat %s/ports" % running.work).split()
    running.hold()
    pid = node1.ask("rm -f /tmp/taken; setsid python3 -c \"import os, socket, time; end = socket.socket(); end.setsockopt(6, 19, 1); "
                    "end.bind(('127.0.0.1', %s)); end.connect(('127.0.0.1', %s)); print(os.getpid(), flush=True); time.sleep(60)\" "
                    "> /tmp/taken 2>&1 < /dev/null & until [ -s /tmp/taken ]; do sleep 0.1; done; cat /tmp/taken" % (other, own))
    done = running.restart(node1)
    assert (done.code, done.err) == (
        75, "the other end of a TCP connection of the image cannot be closed on this node (that from 127.0.0.1:%s to 127.0.0.1:%s: Cannot "
        "assign requested address); try again later or on another node; image kept (attempt 1 of 5)\n" % (own, other))
    node1.ask("kill " + pid)
    running.move(node1)
    assert running.end() == 5


RESET = """
exec python3 -c "
import os, socket, time
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, number = listener.accept()[0], 0
client.send(b'x')
server.close()
while not os.path.exists('stop'):
    number += 1
    if client and os.path.exists('look'):
        try:
            client.recv(1)
        except ConnectionResetError:
            client = os.rename('look', 'seen')
    os.write(1, b'%d\\n' % number)
    time.sleep(0.02)
os._exit(5)
"
"""


def test_connection_that_was_reset_unnoticed_is_refused(job, node1, node2):
    """After a restart its process would find it closed in good order."""
    running = job(node1, RESET)
    running.progress()
    done = running.checkpoint(15)
    assert (done.code, re.sub(r"(process |127\.0\.0\.1:)\d+", r"\1N", done.err)) == (
        75, "process N (python3) has a TCP connection from 127.0.0.1:N to 127.0.0.1:N that was reset, and no process has noticed that yet; "
        "the job keeps running; try again when one has read from it, or all that have it open have closed it\n")
    node1.ask("runuser -u alice -- touch {0}/look; until [ -e {0}/seen ]; do sleep 0.1; done".format(running.work))
    running.hold()
    running.move(node2)
    assert running.end() == 5


@contextlib.contextmanager
def carrying(running, times):
    """CRIU finds bytes of a connection carried so many times."""
    running.node.ask("cat > /tmp/criu <<'X'\n#!/bin/sh\nif [ $1 = dump ] && echo x >> {0}/tries && [ $(wc -l < {0}/tries) -le {1} ]; then\n"
                     "echo 'Error (soccr/soccr.c:371): recv failed (5, want 7): Success'; exit 1\nfi\n"
                     "exec /opt/criu/current/sbin/criu \"$@\"\nX\nchmod 755 /tmp/criu".format(running.work, times))
    with configured(running.node, engine_options={"path": "/tmp/criu"}):
        yield


def test_hold_is_tried_again_when_bytes_were_carried(job, node1, node2):
    running = job(node1, CONNECTED)
    running.progress()
    with carrying(running, 2):
        running.hold()
    running.move(node2)
    assert running.end() == 5


@pytest.mark.parametrize("signal", [0, 15])
def test_connections_that_carry_bytes_each_time(job, node1, signal):
    running = job(node1, CONNECTED)
    running.progress()
    with carrying(running, 3):
        unharmed(running, running.checkpoint(signal), 75, "the TCP connections of the job still carried bytes while its image was written "
                 "(criu: recv failed (5, want 7): Success); the job keeps running; try again")
    running.hold()
    running.move(node1)
    assert running.end() == 5


def test_hold_that_fails_after_the_image_lets_connections_continue(job, node1):
    """CRIU alone would leave them unusable."""
    running = job(node1, CONNECTED)
    running.progress()
    node1.ask("install -d -o alice -m 711 {0} && install -d -o alice {0}/ckpt.{1}.1/mine".format(running.directory, running.id))
    unharmed(running, running.checkpoint(15), 73, "cannot publish image %s: what has its name is not an older image; it is kept; "
             "move it away, or try again a second later" % running.name())


@pytest.mark.parametrize("signal", [0, 15])
def test_connections_work_when_the_engine_did_nothing_and_was_killed(job, node1, signal):
    """It leaves them in repair mode, which is a right that only root gives, and in which a program can neither send nor receive."""
    running = job(node1, CONNECTED)
    running.progress()
    node1.ask("cat > /tmp/idle <<'X'\n#!/bin/sh\n[ $CRTOOLS_SCRIPT_ACTION != post-dump ] || sleep 60\nX\n"
              "cat > /tmp/criu <<'X'\n#!/bin/sh\nexec /opt/criu/current/sbin/criu \"$@\" --action-script /tmp/idle\nX\n"
              "chmod 755 /tmp/idle /tmp/criu")
    with configured(node1, engine_options={"path": "/tmp/criu", "stall": 3}):
        done = running.checkpoint(signal)
    assert done.code == 75 and "did nothing for 3 seconds and was killed" in done.err, done.err
    running.progress()
    running.hold()
    running.move(node1)
    assert running.end() == 5


def test_hold_where_proc_hides_processes(job, node1, node2):
    """The job's leader, which continues a job whose hook was killed, does not see root's hook there."""
    running = job(node1)
    running.progress()
    node1.ask("cat > /tmp/criu <<'X'\n#!/bin/sh\n/opt/criu/current/sbin/criu \"$@\"; status=$?\nif [ $1 = dump ]; then\n"
              "wc -c < {0}/out > {0}/before; sleep 5; wc -c < {0}/out > {0}/after\nfi\nexit $status\nX\nchmod 755 /tmp/criu"
              .format(running.work))
    node1.ask("mount -o remount,hidepid=2 /proc")
    try:
        with configured(node1, engine_options={"path": "/tmp/criu"}):
            running.hold()
    finally:
        node1.ask("mount -o remount,hidepid=0 /proc")
    assert node1.ask("cat %s/before" % running.work) == node1.ask("cat %s/after" % running.work)
    running.move(node2)
    running.end()


OUTSIDER = ("import os, socket, time; there = socket.create_connection(('127.0.0.1', %s)); "
            "print(there.getsockname()[1], os.getpid(), flush=True); time.sleep(30)")
FOREIGN = (r"process \d+ \(python3\) has a TCP connection from 127\.0\.0\.1:%s to 127\.0\.0\.1:%s, which is a process of uid %d that is "
           r"not of the job; CRIU cannot checkpoint that; the job keeps running; checkpoint the job when the connection is closed\n")


def connect(node, port, user):
    """Have a process that is not of the job connect with a port; return the port at its end, and its pid (str)."""
    return node.ask("rm -f /tmp/outsider; setsid runuser -u %s -- python3 -c \"%s\" > /tmp/outsider 2>&1 < /dev/null & "
                    "for _ in $(seq 600); do [ -s /tmp/outsider ] && break; sleep 0.1; done; cat /tmp/outsider"
                    % (user, OUTSIDER % port)).split()


@pytest.mark.parametrize("user, uid", [("bob", 1501), ("alice", 1500)])
def test_connection_from_outside_is_refused(job, node1, user, uid):
    """One end is in a process that is not of the job: another user's, or the owner's."""
    running = job(node1, CONNECTED)
    running.progress()
    port = node1.ask("cat %s/port" % running.work)
    node1.ask("runuser -u alice -- touch %s/accept" % running.work)
    client, pid = connect(node1, port, user)
    running.progress()  # it has accepted
    for signal in (0, 15):
        done = running.checkpoint(signal)
        assert done.code == 77
        assert re.fullmatch(FOREIGN % (port, client, uid), done.err), done.err
        running.progress()
    node1.ask("kill %s" % pid)


def test_connection_that_the_job_has_not_accepted_is_refused(job, node1):
    running = job(node1, CONNECTED)
    running.progress()
    port = node1.ask("cat %s/port" % running.work)
    _client, pid = connect(node1, port, "root")
    done = running.checkpoint(15)
    assert done.code == 77
    assert re.fullmatch(r"process \d+ \(python3\) has not yet accepted a TCP connection to 127\.0\.0\.1:%s; CRIU cannot checkpoint that; "
                        r"the job keeps running; try again when the process has accepted it\n" % port, done.err), done.err
    running.progress()
    node1.ask("kill %s" % pid)


@pytest.mark.parametrize("signal", [0, 15])
def test_connection_that_comes_at_the_moment_of_the_checkpoint(job, node1, signal):
    """The look has not seen it; the image has, and is not used."""
    running = job(node1, CONNECTED)
    running.progress()
    port = node1.ask("cat %s/port" % running.work)
    node1.ask("cat > /tmp/criu <<'X'\n#!/bin/sh\nif [ $1 = dump ]; then\ntouch {0}/accept\n"
              "setsid python3 -c \"{1}\" > {0}/outsider 2>&1 < /dev/null &\n"
              "for _ in $(seq 600); do [ -s {0}/outsider ] && [ -e {0}/accepted ] && break; sleep 0.1; done\nfi\n"
              "exec /opt/criu/current/sbin/criu \"$@\"\nX\nchmod 755 /tmp/criu"
              .format(running.work, OUTSIDER % port))
    with configured(node1, engine_options={"path": "/tmp/criu"}):
        done = running.checkpoint(signal)
    assert done.code == 77, done.err
    assert re.fullmatch(r"the job was connected with something outside it while its image was written \(a TCP connection from 127\.0\.0\.1:"
                        r"\d+ to 127\.0\.0\.1:\d+\); the job keeps running; try again when that connection is closed\n", done.err), done.err
    running.progress()
    node1.ask("kill $(cut -d ' ' -f 2 %s/outsider) 2> /dev/null; true" % running.work)  # it may have ended with the hook
    assert running.generations() == {}


def test_name_is_taken(job, node1):
    """What is no older image of the job's is never replaced."""
    running = job(node1)
    node1.ask("install -d -o alice -m 711 {0} && install -d -o alice {0}/ckpt.{1}.1/mine".format(running.directory, running.id))
    unharmed(running, running.checkpoint(15), 73, "cannot publish image %s: what has its name is not an older image; it is kept; "
             "move it away, or try again a second later" % running.name())
    assert node1.ask("cd %s && find . | sort" % running.directory).split() == [
        ".", "./" + running.name(), "./%s/mine" % running.name()]


def test_two_images_of_one_second(job, node1, node2):
    """pbs_mom's names count seconds; the newer image takes the older one's place, whole."""
    moved = job(node1)
    for generation in (1, 2):
        assert moved.checkpoint(0).code == 0
        moved.images -= 1
        assert moved.generations() == {"ckpt.%s.1" % moved.id: generation}
    moved.hold()
    assert moved.generations() == {moved.name(): 3}
    before = moved.counter()
    moved.move(node2)
    assert moved.counter() > before


def test_depth(job, node1, node2):
    """Generations are counted over all nodes; as many are kept as TORQUE or the configuration says."""
    moved = job(node1)
    for _turn in range(3):
        assert moved.checkpoint(0).code == 0
    assert moved.generations() == {"ckpt.%s.%d" % (moved.id, number): number for number in (2, 3)}
    moved.hold()
    moved.move(node2)
    assert moved.checkpoint(0, depth=3).code == 0
    assert moved.generations() == {"ckpt.%s.%d" % (moved.id, number): number for number in (3, 4, 5)}
    before = moved.images_digest()
    assert moved.checkpoint(0, user="nosuch", depth=1).code == 67
    assert moved.images_digest() == before
    assert moved.checkpoint(0, depth=1).code == 0
    assert moved.generations() == {moved.name(): 6}


NO_OUTPUT = ("exec > /dev/null 2>&1; n=0; while [ ! -e stop ]; do if [ -e pause ]; then mkdir -p paused; else n=$((n+1)); echo $n >> out; "
             "fi; sleep 0.02; done; exit 5")
"""Keeps no file open that grows, while it pauses."""


@contextlib.contextmanager
def paused(running):
    """Have the job write nothing: an image in which it has its file open does not fit the file when it has grown."""
    running.node.ask("cd %s && rm -rf paused && touch pause && for _ in $(seq 600); do [ -d paused ] && exit; sleep 0.05; done; exit 1"
                     % running.work)
    yield
    running.node.ask("rm %s/pause" % running.work)
    running.progress()


def test_job_that_runs_twice(job, node1, node2):
    """A node that the server cannot reach: the job is started again elsewhere. What still runs there takes none of its images away."""
    stale = job(node1, NO_OUTPUT)
    with paused(stale):
        for _turn in range(2):
            assert stale.checkpoint(0).code == 0
    stale.move(node2)
    record = "/run/ckpt-torque/jobs/%s.json" % stale.id  # both make progress
    life = json.loads(node2.ask("for i in $(seq 600); do [ -e {0} ] && break; sleep 0.1; done; "
                                "cat {0} || {{ cat /tmp/{1}.err >&2; exit 1; }}".format(record, stale.id)))["incarnation"]
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(life["started"]))
    for signal in (0, 0, 15):
        before = stale.images_digest()
        done = stale.checkpoint(signal, node=node1)
        assert done.code == 77
        assert re.fullmatch(r"job {0} continues on node2 since {1}; what runs on node1 is an older life of it, since [-0-9T:]+Z \(if that "
                            r"is wrong, compare the two clocks and remove {2}/\.incarnation\.{0}\); nothing was written or removed\n"
                            .format(re.escape(stale.id), since, stale.directory), done.err)
        assert stale.images_digest() == before
        assert node1.ask("ps -o state= %d" % stale.session) == "S"
    assert stale.checkpoint(0).code == 0
    assert sorted(stale.generations().values()) == [2, 3]
    node1.ask("pkill -KILL -u alice")  # before the hold: it writes to the same file
    stale.hold()
    stale.move(node1)
    assert stale.end() == 5


STOP = r"""
import os, re, signal, sys, time
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            owner = re.search(r"^Uid:\t(\d+)", open("/proc/%s/status" % pid).read(), re.MULTILINE).group(1)
            paths = [os.readlink("/proc/%s/fd/%s" % (pid, name)) for name in os.listdir("/proc/%s/fd" % pid)]
        except OSError:
            continue
        if owner != "0" and any(re.search(r"/ckpt\.[^/]*/pages-", path) for path in paths):
            os.kill(int(pid), signal.SIGSTOP)
            print(pid, flush=True)
            sys.exit()
    time.sleep(0.001)
"""
"""Stops the first process of a user that reads the memory in an image, and prints its pid."""


def test_job_that_runs_twice_while_its_image_is_read(job, node1, node2):
    """That takes minutes. Otherwise a periodic image of what still runs elsewhere could remove the one that is read."""
    stale = job(node1, "python3 -c \"import time; memory = b'x' * 100000000; time.sleep(600)\" > /dev/null 2>&1 &\n" + NO_OUTPUT)
    with paused(stale):
        assert stale.checkpoint(0).code == 0
    node2.ask("rm -f /tmp/stopped; cat > /tmp/stop.py <<'X'\n%s\nX\n"
              "setsid --fork python3 /tmp/stop.py > /tmp/stopped 2>&1 < /dev/null" % STOP)
    stale.move(node2)  # it makes progress on node1
    pid = node2.ask("for _ in $(seq 600); do [ -s /tmp/stopped ] && break; sleep 0.1; done; cat /tmp/stopped")
    before = stale.images_digest()
    try:
        done = stale.checkpoint(0, node=node1, depth=1)
        assert done.code == 77 and "what runs on node1 is an older life of it" in done.err
        assert stale.images_digest() == before
    finally:
        node2.ask("kill -CONT %d" % int(pid))
    node2.ask("for _ in $(seq 600); do [ -e /run/ckpt-torque/jobs/%s.json ] && exit; sleep 0.1; done; exit 1" % stale.id)
    assert stale.checkpoint(0).code == 0


@pytest.mark.parametrize("images, why", [(2, "newer than ckpt.{0}.1, of which the server knew"), (3, "because ckpt.{0}.1 is gone")])
def test_newest_image_after_a_crash(job, node1, node2, images, why):
    """The server knows the first image; two are kept."""
    crashed = job(node1, NO_OUTPUT)
    for _turn in range(images):
        crashed.progress()
        with paused(crashed):
            then = crashed.counter()
            assert crashed.checkpoint(0).code == 0
    node1.ask("pkill -KILL -u alice")
    before = crashed.counter()
    crashed.images = 1
    crashed.move(node2)
    assert re.search("restarted from image ckpt.{0}.{1} of [-0-9T:]+Z, {2}".format(crashed.id, images, why.format(crashed.id)),
                     node2.ask("journalctl -t ckpt-torque -o cat | grep 'hook=restart.*job=%s.*outcome=restarted'" % crashed.id))
    assert int(crashed.lines()[crashed.lines().index(str(before)) + 1]) == then + 1
    assert crashed.end() == 5


SLOW = """#!/bin/sh
[ $1 = dump ] && { touch /tmp/dumping; sleep 4; }
exec /opt/criu/current/sbin/criu "$@"
"""


@contextlib.contextmanager
def slow_engine(node, **settings):
    """Have an engine that takes seconds for a dump, and says so in /tmp/dumping."""
    node.ask("cat > /tmp/slow <<'X'\n%sX\nchmod 755 /tmp/slow; rm -rf /tmp/dumping" % SLOW)
    with configured(node, engine_options={"path": "/tmp/slow"}, **settings):
        yield


def test_two_hooks_at_once(job, node1):
    """The second waits for the first; not for ever."""
    running = job(node1)
    with slow_engine(node1):
        first = begin(running, 0)
        assert running.checkpoint(0).code == 0
        assert node1.run("kill -0 %d" % first).code == 1
    assert running.generations() == {"ckpt.%s.%d" % (running.id, number): number for number in (1, 2)}
    with slow_engine(node1, lock_timeout=1):
        first = begin(running, 0)
        done = running.checkpoint(15)
        assert done.code == 75
        assert re.fullmatch(r"a checkpoint \(process %d, since [-0-9T:]+Z\) is at work on job %s; waited 1 seconds; try again when it has "
                            r"ended; the job keeps running\n" % (first, re.escape(running.id)), done.err)
        running.progress()
        node1.ask("while kill -0 %d 2> /dev/null; do sleep 0.1; done" % first)
    assert running.generations() == {"ckpt.%s.%d" % (running.id, number): number for number in (2, 3)}
    assert node1.ask("ls /run/ckpt-torque/jobs") == ""


def test_killed_hook_leaves_what_the_next_one_sweeps(job, node1, node2):
    killed = job(node1)
    with slow_engine(node1):
        hook = begin(killed, 0)
        node1.ask("kill -KILL $(pgrep -P %d) %d; pkill -KILL -f '^/opt/criu/current/sbin/criu dump' ; true" % (hook, hook))
        node1.ask("while pgrep -u alice -f /tmp/slow; do pkill -KILL -u alice -f /tmp/slow; done; true")
    killed.progress()
    left = list(killed.generations())
    assert len(left) == 1 and re.fullmatch(r"\.ckpt\.%s\.1@node1:[0-9]+:[0-9]+" % re.escape(killed.id), left[0])
    foreign = left[0].replace("@node1:", "@node2:")
    node1.ask("cd %s && cp -a %s %s" % (killed.directory, left[0], foreign))
    assert killed.checkpoint(0).code == 0
    assert killed.generations() == {killed.name(): 1, foreign: None}  # another node's may still be at work on it
    node1.ask("cd %s/%s && touch -d '3 hours ago' * ." % (killed.directory, foreign))
    killed.hold()
    assert foreign not in killed.generations()
    killed.move(node2)


@contextlib.contextmanager
def small_store(node, running, mount, **settings):
    """Have a store of its own file system on a node, and the job's images in it."""
    node.ask("mkdir -p /small && %s && echo small > /small/.ckpt-torque-store" % mount)
    was, running.directory = running.directory, "/small/%s.CK" % running.id
    try:
        with configured(node, stores=[{"path": "/small", "id": "small"}], **settings):
            yield
    finally:
        running.directory = was
        node.ask("umount /small")


def test_store_too_full(job, node1):
    running = job(node1)
    with small_store(node1, running, "mount -t tmpfs -o mode=755,size=64m none /small", reserve=0):
        assert running.checkpoint(0).code == 0
        before = running.images_digest()
        node1.ask("fallocate -l $(($(stat -f -c '%a * %S' /small) - 4096 * 1024)) /small/other")
        for signal in (0, 15):
            done = running.checkpoint(signal)
            assert done.code == 73
            assert re.fullmatch(r"the image needs [0-9.]+ MiB, store /small has 4\.0 MiB free, reserve 0 B; the job keeps running; "
                                r"free some space or lower checkpoint_hooks_reserve\n", done.err)
            running.progress()
        assert running.images_digest() == before
        assert list(running.generations()) == ["ckpt.%s.1" % running.id]
        node1.ask("rm /small/other")
        assert running.checkpoint(0).code == 0


def test_reserve(job, node1):
    running = job(node1)
    with small_store(node1, running, "mount -t tmpfs -o mode=755,size=64m none /small", reserve=60 << 20):
        done = running.checkpoint(15)
        assert re.fullmatch(r"the image needs [0-9.]+ MiB, store /small has 64\.0 MiB free, reserve 60\.0 MiB; the job keeps running; "
                            r"free some space or lower checkpoint_hooks_reserve\n", done.err)
        running.progress()
        assert running.generations() == {}


def test_limit_of_a_user(job, node1):
    """What the images of all of his jobs take counts, and nobody else's."""
    first, running = job(node1).start(), job(node1)
    with small_store(node1, running, "mount -t tmpfs -o mode=755,size=256m none /small", reserve=0):
        node1.ask("mkdir /small/9.head.CK && head -c 40M /dev/zero > /small/9.head.CK/bobs && chown -R bob /small/9.head.CK")
        was, first.directory = first.directory, "/small/%s.CK" % first.id
        assert first.checkpoint(0).code == 0
        first.directory = was
        assert running.checkpoint(0).code == 0
        before = running.images_digest()
        taken = int(node1.ask("find /small -user alice -type f -printf '%s\\n' | awk '{ n += $1 } END { print n }'"))
        with configured(node1, user_limit=taken + (1 << 20)):
            for signal in (0, 15):
                done = running.checkpoint(signal)
                assert done.code == 73
                assert re.fullmatch(r"the image needs [0-9.]+ MiB, images of alice in store /small have %.1f MiB of the %.1f MiB that "
                                    r"checkpoint_hooks_user_limit allows; the job keeps running; remove some, torque-ckpt list shows them\n"
                                    % (taken / 1048576, taken / 1048576 + 1), done.err), done.err
                running.progress()
            assert running.images_digest() == before
            node1.ask("rm -r /small/%s.CK" % first.id)
            running.progress()
        with configured(node1, user_limit=2 * taken):
            assert running.checkpoint(0).code == 0


def test_store_without_inodes(job, node1):
    running = job(node1)
    with small_store(node1, running, "mount -t tmpfs -o mode=755,size=64m,nr_inodes=20 none /small", reserve=0):
        done = running.checkpoint(15)
        assert re.fullmatch(r"the image needs \d+ files, store /small has 1\d free inodes; the job keeps running; remove files "
                            r"there\n", done.err)
        running.progress()
        assert running.generations() == {}


QUOTED = "/quotas/ckpt"


@pytest.fixture
def btrfs(node1):
    """A file system without quotas, on which a store may be made."""
    node1.ask("command -v mkfs.btrfs || (apt-get -qq update; apt-get -qq install -y btrfs-progs); "
              "mkdir /quotas && truncate -s 1G /var/tmp/quotas && mkfs.btrfs -fq /var/tmp/quotas && mount -o loop /var/tmp/quotas /quotas")
    yield
    node1.ask("umount /quotas && rmdir /quotas && rm /var/tmp/quotas")


def test_quota(cluster, btrfs, job, node1):
    """A quota that the role has set, and that the free space does not show."""
    def role(quota, **variables):
        return cluster.role("node1", "checkpoint_store", **dict({
            "checkpoint_store_path": QUOTED, "checkpoint_store_id": "quoted", "checkpoint_store_users": ["alice"],
            "checkpoint_store_user_directories_enabled": True, "checkpoint_store_quota": quota}, **variables))

    def refused(sentence, *arguments, **variables):
        done = role(*arguments, **variables)
        assert done.code != 0
        assert '"msg": "node1: no quota can be set for %s: %s, or empty checkpoint_store_quota and set checkpoint_hooks_user_limit; ' \
               'no quota was changed."' % (QUOTED, sentence) in done.out, done.out

    def read_quota():
        return answer(cluster.module("node1", "store_info", path=QUOTED, user="alice"))["quota"]

    refused("ERROR: can't list qgroups: quotas not enabled; switch quotas on (btrfs quota enable /quotas)", "3M")
    node1.ask("btrfs quota enable /quotas")
    refused("on btrfs it is that of a subvolume, and the images of all users lie in one; set checkpoint_store_user_directories_enabled",
            "3M",
            checkpoint_store_user_directories_enabled=False)
    node1.ask("install -d -o alice {0}/alice {0}/alice/7.head.CK".format(QUOTED))
    refused("on btrfs it is that of a subvolume, and %s/alice is a directory with images; move it aside, run this again, and copy them "
            "from there" % QUOTED, "3M")
    node1.ask("rmdir {0}/alice/7.head.CK".format(QUOTED))  # an empty one may be replaced
    done = role("3M")
    assert done.code == 0 and "CHANGED" in done.out, done.out
    assert node1.ask("stat -c '%%U %%a %%i' %s/alice" % QUOTED) == "alice 711 256"
    assert (read_quota()["bytes_limit"], read_quota()["files"]) == (3 << 20, None)
    done = role("3M")
    assert done.code == 0 and "CHANGED" not in done.out, done.out

    running = job(node1)
    was, running.directory = running.directory, "%s/alice/%s.CK" % (QUOTED, running.id)
    try:
        with configured(node1, stores=[{"path": QUOTED, "id": "quoted"}], reserve=0):
            done = running.checkpoint(15)
            assert done.code == 73
            assert re.fullmatch(r"the image needs [0-9.]+ MiB, the quota of alice on store %s does not allow that much more; the job "
                                r"keeps running; remove files of alice there or raise the quota\n" % QUOTED, done.err)
            running.progress()
            assert running.generations() == {}
            assert role("24M").code == 0
            for _turn in range(2):  # the attempt gives back what it took
                assert running.checkpoint(0, depth=1).code == 0
                running.progress()
            assert 1 << 20 < read_quota()["bytes"] < read_quota()["bytes_limit"] == 24 << 20
            assert role(0).code == 0
            assert read_quota()["bytes_limit"] is None
            assert list(running.generations()) == [running.name()]  # what was made a moment ago is seen, and the older one goes
            running.hold()
            running.move(node1)
    finally:
        running.directory = was


def test_restart_without_image(job, node1, node2):
    held = job(node1)
    held.hold()
    image = "%s/%s" % (held.directory, held.name())
    node1.ask("mv %s %s/away" % (image, held.work))
    done = held.restart(node2)
    assert (done.code, done.err) == (66, "image %s cannot be opened: No such file or directory; %s\n" % (image, IMAGES))
    node1.ask("mv %s/away %s" % (held.work, image))
    held.move(node2)


def test_restart_with_unreadable_image(job, node1, node2):
    held = job(node1)
    held.hold()
    node1.ask("chmod 0 %s/%s" % (held.directory, held.name()))
    done = held.restart(node2)
    assert (done.code, done.err) == (66, "image %s/%s cannot be opened: Permission denied; %s\n" % (held.directory, held.name(), IMAGES))
    node1.ask("chmod 700 %s/%s" % (held.directory, held.name()))
    held.move(node2)


def test_restart_with_damaged_image(job, node1, node2):
    held = job(node1)
    held.hold()
    image = "%s/%s" % (held.directory, held.name())
    node1.ask("cp -a %s %s.good" % (image, image))
    for damage, fault in (("truncate -s 100 {0}/pages-1.img", "pages-1.img has 100 bytes, expected {1}"),
                          ("printf x | dd of={0}/pages-1.img bs=1 seek=5000 conv=notrunc status=none",
                           "pages-1.img has another content than was written"),
                          ("rm {0}/pages-1.img", "pages-1.img: No such file or directory")):
        size = node1.ask("stat -c %%s %s.good/pages-1.img" % image)
        node1.ask(damage.format(image))
        done = held.restart(node2)
        assert (done.code, done.err) == (65, "image %s is damaged: %s; take an older image\n" % (image, fault.format(image, size)))
        node1.ask("rm -rf {0} && cp -a {0}.good {0}".format(image))
    node1.ask("rm %s/manifest.json" % image)
    done = held.restart(node2)
    assert (done.code, done.err) == (65, "image %s has no readable manifest (No such file or directory); "
                                         "it is kept but cannot be restarted; take an older image\n" % image)
    node1.ask("rm -rf {0} && cp -a {0}.good {0}".format(image))
    held.move(node2)


def test_restart_of_an_image_that_its_owner_forged(job, node1, node2):
    """He can write every file of it, but not what only root can."""
    held = job(node1)
    held.hold()
    image = "%s/%s" % (held.directory, held.name())
    node1.ask("cp -a %s %s.good" % (image, image))
    node1.ask("cd %s && sed -i 's/\"root\": [0-9]*/\"root\": 1/' manifest.json" % image)
    done = held.restart(node2)
    assert (done.code, done.err) == (77, "image %s has a manifest that root's hooks did not write, or that was changed since; "
                                         "take an older image\n" % image)
    node1.ask("rm -rf {0} && mv {0}.good {0}".format(image))
    held.move(node2)


def test_restart_of_another_jobs_image(job, node1, node2):
    first, second = job(node1), job(node1)
    first.hold()
    second.hold()
    done = first.restart(node2, directory=second.directory, name=second.name())
    assert (done.code, done.err) == (77, "image %s/%s belongs to job %s of alice, not to job %s of alice; move it back to its own job; "
                                         "image kept\n"
                                     % (second.directory, second.name(), second.id, first.id))


def test_restart_of_another_users_image(job, node1, node2):
    held = job(node1)
    held.hold()
    done = held.restart(node2, user="bob", group="bob")
    assert (done.code, done.err) == (66, "image %s/%s cannot be opened: Permission denied; it belongs to uid 1500, and the job's user has "
                                     "uid 1501 on this node; give the user one uid on all nodes\n" % (held.directory, held.name()))


def test_restart_where_the_process_id_is_taken(job, node1, node2):
    """Temporary: the image is kept, and the job restarts when the id is free."""
    held = job(node1)
    held.hold()
    manifest = json.loads(node1.ask("cat %s/%s/manifest.json" % (held.directory, held.name())))
    taken = manifest["root"]
    node2.ask("own=$(cat /proc/sys/kernel/ns_last_pid); for i in $(seq 100); do echo %d > /proc/sys/kernel/ns_last_pid; "
              "sleep 600 < /dev/null > /dev/null 2>&1 & [ $! = %d ] && break; kill $!; done; "
              "echo $own > /proc/sys/kernel/ns_last_pid; [ $! = %d ]" % (taken - 1, taken, taken))
    before = held.images_digest()
    done = held.restart(node2)
    assert (done.code, done.err) == (75, "process id %d of the image is in use on this node (by 'sleep'); "
                                         "try again later or on another node (attempt 1 of 5)\n" % taken)
    assert held.images_digest() == before
    node2.ask("kill %d; while kill -0 %d 2> /dev/null; do sleep 0.1; done" % (taken, taken))
    held.move(node2)


def test_restart_where_a_file_of_the_job_is_missing(job, node1, node2):
    held = job(node1)
    held.hold()
    node1.ask("mv %s/out %s/away" % (held.work, held.work))
    done = held.restart(node2)
    assert (done.code, done.err) == (77, "file %s/out, which the job has open, cannot be found on this node (No such file or directory); "
                                         "make it available here or restart the job on another node; image kept\n" % held.work)
    assert node2.run("pgrep -u alice").out == ""
    node1.ask("mv %s/away %s/out" % (held.work, held.work))
    held.move(node2)


def test_restart_outside_a_session_of_its_own(job, node1, node2):
    held = job(node1)
    held.hold()
    done = node2.run("sh -c '%s/restart %s; exit $?'" % (HOOKS, " ".join(map(str, held.arguments()))))
    assert (done.code, done.err) == (64, "restart: must be started by pbs_mom as the leader of a session; nothing was restarted\n")


def test_hooks_that_users_could_change(job, node1, node2):
    held = job(node1)
    path = HOOKS + "/torque_ckpt/telemetry/report.py"
    sentence = ("%s must be root's and writable by nobody else, or others could change the hooks; run the role checkpoint_hooks on this "
                "node; nothing was done" % path)
    node1.ask("chmod 666 %s" % path)
    try:
        unharmed(held, held.checkpoint(15), 78, sentence)
    finally:
        node1.ask("chmod 644 %s" % path)
    held.hold()
    node2.ask("chmod 666 %s" % path)
    try:
        done = held.restart(node2)
        assert (done.code, done.err) == (78, sentence + " (attempt 1 of 5)\n")
    finally:
        node2.ask("chmod 644 %s" % path)
    held.move(node2)


def test_core_dumps_of_the_hooks_and_of_the_job(job, node1, node2):
    """The leader leaves none; the job has the limit it was started with, on each node."""
    limit = "awk '/Max core/ {print $5, $6}' /proc/%s/limits"
    moved = job(node1)
    of_the_job = node1.ask(limit % node1.ask("pgrep -P %d" % moved.session))
    soft, hard = of_the_job.split()
    leaders = "%d %s" % (0 if hard == "0" else 1, hard)
    assert node1.ask(limit % moved.session) == leaders
    assert leaders != of_the_job or hard == "0"
    moved.hold()
    moved.move(node2)
    record = json.loads(node2.ask("cat /run/ckpt-torque/jobs/%s.json" % moved.id))
    assert node2.ask(limit % record["root"][0]) == of_the_job
    assert node2.ask(limit % record["leader"][0]) == leaders


def test_configuration_that_users_could_write(job, node1):
    running = job(node1)
    node1.ask("chmod 666 %s" % CONFIG)
    try:
        unharmed(running, running.checkpoint(15), 78, "configuration %s must be root's and writable by nobody else; "
                 "run the role checkpoint_hooks on this node" % CONFIG)
    finally:
        node1.ask("chmod 644 %s" % CONFIG)


def test_failures_are_in_the_system_log(job, node1):
    running = job(node1)
    running.checkpoint(15, user="nosuch")
    line = node1.ask("journalctl --no-pager -t ckpt-torque -n 1 -o cat")
    assert re.sub("_seconds=[0-9.]+", "_seconds=T", line) == (
        "hook=checkpoint admit_seconds=T code=67 job=%s node=node1 outcome=failed phase=admit "
        "sentence='user nosuch is not known on this node; compare the account database with the other nodes'" % running.id)
