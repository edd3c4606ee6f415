"""Files on the node's own file systems move with a job; files that stay are as the image knows them, or the restart says so."""
import contextlib
import json
import re

import pytest
from cluster import CONFIG
from jobs import IN_PLACE

PROGRAM = r"""
import mmap, os, sys, time
home, top = os.getcwd(), sys.argv[1]
os.makedirs(top + "/cwd", 0o750)
number = os.open(top + "/number", os.O_RDWR | os.O_CREAT, 0o640)
os.link(top + "/number", top + "/second-name")
again = os.open(top + "/second-name", os.O_RDONLY)
log = os.open(top + "/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
with open(top + "/constant", "w") as stream:
    stream.write("constant")
constant = os.open(top + "/constant", os.O_RDONLY)
sparse = os.open(top + "/sparse", os.O_RDWR | os.O_CREAT, 0o600)
os.pwrite(sparse, b"begin", 0)
os.pwrite(sparse, b"end", (64 << 20) - 3)
with open(top + "/mapped", "w+b") as stream:
    stream.write(b"%020d" % 0)
    stream.flush()
    mapped = mmap.mmap(stream.fileno(), 20)
os.chdir(top + "/cwd")
def check(what, seen, wanted):
    if seen != wanted:
        os.write(1, ("%s: %r, wanted %r\n" % (what, seen, wanted)).encode())
        os._exit(9)
counter = 0
os.pwrite(number, b"%020d" % 0, 0)
while not os.path.exists(home + "/stop"):
    check("number", os.pread(again, 20, 0), b"%020d" % counter)
    check("mapped", mapped[:20], b"%020d" % counter)
    counter += 1
    os.pwrite(number, b"%020d" % counter, 0)
    os.pwrite(number, b"x", 20 + counter)
    mapped[:20] = b"%020d" % counter
    os.write(log, b"%d\n" % counter)
    os.write(1, b"%d\n" % counter)
    time.sleep(0.01)
check("size", os.fstat(number).st_size, 21 + counter)
with open(top + "/log", "rb") as stream:
    check("log", stream.read(), b"".join(b"%d\n" % line for line in range(1, counter + 1)))
check("constant", os.pread(constant, 100, 0), b"constant")
check("begin", os.pread(sparse, 6, 0), b"begin\0")
check("end", os.pread(sparse, 9, (64 << 20) - 4), b"\0end")
check("holes", os.fstat(sparse).st_blocks * 512 < 1 << 20, True)
check("cwd", os.getcwd(), top + "/cwd")
check("names", os.fstat(number).st_nlink, 2)
os._exit(5)
"""


@contextlib.contextmanager
def setting(*nodes, **values):
    """The hooks' configuration on the nodes with these values, and as it was again."""
    for node in nodes:
        settings = json.loads(node.ask("cp -p {0} {0}.good && cat {0}".format(CONFIG)))
        node.ask("cat > %s <<'X'\n%s\nX" % (CONFIG, json.dumps(dict(settings, **values))))
    try:
        yield
    finally:
        for node in nodes:
            node.ask("mv {0}.good {0}".format(CONFIG))


@pytest.fixture
def places(node1, node2):
    """Return a directory name (str) in /tmp that is removed from the nodes afterwards."""
    yield "/tmp/files-test"
    for node in (node1, node2):
        node.ask("rm -rf /tmp/files-test*")


@pytest.fixture
def writer(job, node1, places):
    """A job on node1 with files of all kinds in /tmp."""
    return job(node1, "cat > files.py <<'E'\n%s\nE\nexec python3 files.py %s" % (PROGRAM, places))


def manifest(moved):
    return json.loads(moved.node.ask("cat %s/%s/manifest.json" % (moved.directory, moved.name())))


def test_open_files_travel(writer, node1, node2, places):
    """There, back and there again: what the job itself left on a node is no obstacle."""
    for node in (node2, node1, node2):
        writer.hold()
        node1.ask("[ $(du -sm {0} | cut -f 1) -lt 100 ]".format(writer.directory))
        writer.move(node)
    modes = node2.ask("cd %s && stat -c '%%n %%U %%a %%h' . cwd number log sparse" % places).splitlines()
    assert modes[1:] == ["cwd alice 750 2", "number alice 640 2", "log alice 600 1", "sparse alice 600 1"]
    assert modes[0].startswith(". alice 700 ")
    assert writer.end() == 5, writer.lines()[-1]


def test_what_is_open_is_in_the_manifest(writer, places):
    writer.hold()
    described = manifest(writer)
    travels = {entry["path"].replace(places + "/", ""): (entry["kind"], entry.get("opened")) for entry in described["node_local"]}
    assert travels.pop("number", None) or travels.pop("second-name")  # either is the other's second name
    assert travels == {"cwd": ("directory", None), "constant": ("file", "read"), "log": ("file", "append"), "mapped": ("file", "write"),
                       "sparse": ("file", "write")}
    assert (described["bound"], described["left"]) == (False, [])
    names = {entry["path"].rsplit("/", 1)[1]: (entry["writable"], entry["append"]) for entry in described["open_files"]}
    assert names == {"out": (True, False), "err": (True, False)}
    assert {entry["name"] for entry in described["node_local"] if "name" in entry} < {entry["name"] for entry in described["files"]}


def changed(running, name, node, how="written to"):
    """The sentence by which a file of a job is refused that was written to since the image, or replaced."""
    path = "%s/%s" % (running.work, name)
    entry = next(entry for entry in manifest(running)["open_files"] if entry["path"] == path)
    stamp = "%d.%09d" % divmod(entry["mtime_ns"], 10**9)
    now, then = (node.ask("TZ=UTC date -d @%s +%%Y-%%m-%%dT%%H:%%M:%%SZ" % when) for when in ("$(stat -c %%Y %s)" % path, stamp))
    return ("file %s, which the job has open, was %s after the image was written (its time is %s, was %s); if it is as the job needs it, "
            "give it its time back with \"touch -d @%s %s\", or restart the job from another image" % (path, how, now, then, stamp, path))


def test_image_of_a_job_that_goes_on(writer, node1, node2):
    """Each file is as it was at the very moment of the image, although the job writes to it all the time."""
    done = writer.checkpoint(0)
    assert (done.code, done.err) == (0, "")
    writer.progress()
    node1.ask("pkill -KILL -u alice; sleep 0.2")
    size = next(entry["size"] for entry in manifest(writer)["open_files"] if entry["path"].endswith("/out"))
    node1.ask("truncate -s %d %s/out" % (size, writer.work))
    sentence = changed(writer, "out", node1)
    refused(writer, node2, sentence)
    node1.ask(sentence.split('"')[1])
    writer.move(node2)
    assert writer.end() == 5, writer.lines()[-1]


def refused(writer, node, sentence, code=77):
    before = writer.images_digest()
    done = writer.restart(node)
    assert (done.code, done.err) == (code, sentence + "; image kept\n")
    assert node.run("pgrep -u alice").out == ""
    assert writer.images_digest() == before


def test_what_stands_in_the_way(writer, node1, node2, places):
    """Nothing is replaced, and nothing is put beside it."""
    writer.hold()
    listing = "find %s -printf '%%p %%U %%m %%s %%T@\\n' | sort" % places
    for make, sentence in (
            ("echo hello > {0}/log", "is there already with 6 bytes, in the image it has {1}"),
            ("head -c {1} /dev/zero > {0}/log", "is there already with another content ({1} bytes)"),
            ("mkdir {0}/log", "is something else or another user's on this node"),
            ("ln -s /etc/passwd {0}/log", "is something else or another user's on this node"),
            ("head -c {1} /dev/zero > {0}/log; chown bob {0}/log", "is something else or another user's on this node")):
        size = node1.ask("stat -c %%s %s/log" % places)
        node2.ask(("install -d -o alice -m 700 {0}; " + make + "; chown -h --from root alice {0}/log").format(places, size))
        before = node2.ask(listing)
        refused(writer, node2, ("%s/log, which the image carries, " + sentence + "; move it away or restart the job on another node")
                .replace("%s", places).format(places, size))
        assert node2.ask(listing) == before
        node2.ask("rm -rf " + places)
    writer.move(node2)
    assert writer.end() == 5, writer.lines()[-1]


def test_directory_that_somebody_else_planted(writer, node2, places):
    writer.hold()
    node2.ask("install -d -o bob -m 777 " + places)
    sentence = "the directory %s, which files of the image belong into, is %s on this node; move it away or restart the job on another node"
    refused(writer, node2, sentence % (places, "another user's"))
    node2.ask("rm -r {0}; install -d -o alice {0}-own; ln -s {0}-own {0}".format(places))
    refused(writer, node2, sentence % (places, "a link or a file"))
    assert node2.ask("ls -A %s-own" % places) == ""


def test_failed_restore_takes_back_what_was_put_back(writer, node1, node2, places):
    writer.hold()
    node2.ask("printf '#!/bin/sh\\nls %s | wc -l > /tmp/files-test.seen\\necho \"(00.1) Error (criu/x.c:1): no luck today\"; exit 1\\n' "
              "> /tmp/criu; chmod 755 /tmp/criu; install -o alice /dev/null /tmp/files-test.seen" % places)
    with setting(node2, engine_options={"path": "/tmp/criu"}):
        done = writer.restart(node2)
    assert (done.code, done.err) == (70, "criu restore failed with status 1: no luck today; the image is kept; restart the job on another "
                                         "node, or see whether torque-ckpt selftest passes on this node (as root)\n")
    assert node2.ask("cat /tmp/files-test.seen; ls -d %s 2> /dev/null || true" % places) == "7"
    writer.move(node2)
    assert writer.end() == 5, writer.lines()[-1]


def test_more_than_the_limit_binds_the_image_to_its_node(writer, node1, node2, places):
    with setting(node1, node_local_bytes=20):
        writer.hold()
    described = manifest(writer)
    assert (described["bound"], described["node_local"]) == (True, [])
    assert places + "/number" in {entry["path"] for entry in described["open_files"]} or places + "/second-name" in {
        entry["path"] for entry in described["open_files"]}
    done = writer.restart(node2)
    assert done.code == 77
    assert done.err == "image %s/%s restarts on node1 only: when it was written, %s; restart the job there; image kept\n" % (
        writer.directory, writer.name(), described["bound_reason"])
    assert "above the limit of 20 B (checkpoint_hooks_node_local_bytes)" in described["bound_reason"]
    writer.move(node1)
    assert writer.end() == 5, writer.lines()[-1]


# -- files that stay ------------------------------------------------------------------

LOGGING = "cat > log.py <<'E'\n%s\nE\nexec python3 log.py" % r"""
import os, sys, time
log, counter = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), 0
while not os.path.exists("stop"):
    counter += 1
    os.write(log, b"%d\n" % counter)
    os.ftruncate(1, 0)
    os.pwrite(1, b"%d\n" % counter, 0)
    time.sleep(0.01)
sys.exit(5)
"""


@pytest.fixture
def logger(job, node1):
    """A job that has gone on since its only image, and was killed then."""
    running = job(node1, LOGGING)
    assert running.checkpoint(0).code == 0
    running.progress()
    node1.ask("pkill -KILL -u alice; sleep 0.2")
    sizes = {entry["path"].rsplit("/", 1)[1]: entry["size"] for entry in manifest(running)["open_files"]}
    node1.ask("truncate -s %d %s/out" % (sizes["out"], running.work))
    node1.ask(changed(running, "out", node1).split('"')[1])
    running.size = sizes["log"]
    return running


GROWN = ("file {0}/log, which the job has open, has grown since the image was written ({1} bytes, had {2}); cut it back with "
         "\"truncate -s {2} {0}/log\"{3} or restart the job from another image")


def size_of(logger):
    return int(logger.node.ask("stat -c %%s %s/log" % logger.work))


def test_file_that_has_grown(logger, node2):
    grown = size_of(logger)
    refused(logger, node2, GROWN.format(logger.work, grown, logger.size, ", set checkpoint_hooks_truncate_append_only_enabled"))
    assert size_of(logger) == grown


def test_file_that_is_cut_back(logger, node2):
    with setting(node2, truncate_append_only=True):
        logger.move(node2)
    assert logger.end() == 5
    lines = logger.node.ask("cat %s/log" % logger.work).splitlines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


REMOVED = """
exec python3 -c "
import os, tempfile, time
data = os.urandom(1 << 20)
kept = tempfile.TemporaryFile(dir='/tmp')
for _turn in range(5):
    kept.write(data)
os.truncate(kept.fileno(), 64 << 20)
kept.flush()
counter = 0
while not os.path.exists('stop'):
    counter += 1
    os.pwrite(kept.fileno(), b'%09d' % counter, 5 << 20)
    os.write(1, b'%d\\n' % counter)
    time.sleep(0.02)
assert os.pread(kept.fileno(), 9, 5 << 20) == b'%09d' % counter
assert [os.pread(kept.fileno(), 1 << 20, turn << 20) == data for turn in range(5)] == [True] * 5
assert os.fstat(kept.fileno()).st_size == 64 << 20
raise SystemExit(5)
"
"""
"""Has a removed file of more than 5 MiB and a hole."""


def test_removed_file_moves(job, node1, node2):
    running = job(node1, REMOVED)
    for node in (node2, node1):
        running.hold()
        node1.ask("[ $(du -sm {0} | cut -f 1) -lt 60 ]".format(running.directory))
        running.move(node)
    assert running.end() == 5, running.lines()[-1]


@pytest.fixture
def writes_in_place(job, node1, monkeypatch):
    """A job that writes to its file in place."""
    count = "cat %s/data 2> /dev/null | grep . || echo 0"  # it is empty for a moment
    monkeypatch.setattr("cluster.Job.counter", lambda running: int(running.node.ask(count % running.work)))
    return job(node1, "exec > /dev/null 2>&1\n" + IN_PLACE)


SEMAPHORE = """
exec python3 -c "
import multiprocessing, os, time
lock = multiprocessing.get_context('spawn').Lock()
if os.environ.get('CONNECTED'):
    import socket
    server = socket.create_server(('127.0.0.1', 0))
    ends = socket.create_connection(server.getsockname()), server.accept()
counter = 0
while not os.path.exists('stop'):
    with lock:
        counter += 1
        os.write(1, b'%d\\n' % counter)
    time.sleep(0.02)
import _multiprocessing
again = _multiprocessing.SemLock._rebuild(0, lock._semlock.kind, lock._semlock.maxvalue, lock._semlock.name)
raise SystemExit(5 if lock.acquire() and not again.acquire(False) else 6)
"
"""


@pytest.mark.parametrize("variables", ["", "CONNECTED=1"])
@pytest.mark.parametrize("signal", [0, 15])
def test_named_semaphore_moves(job, node1, node2, signal, variables):
    """It is a file in /dev/shm that has lost the name by which it was opened, but not its own."""
    moved = job(node1, SEMAPHORE, variables)
    if signal:
        moved.hold()
        assert node1.ask("ls /dev/shm | grep -c ^link || true") == "0"  # it would be in the way of the next job's
    else:
        assert moved.checkpoint(0).code == 0
        # Stopped first: Python's tracker of semaphores writes into the job's output when it sees the others end.
        node1.ask("pkill -STOP -u alice; pkill -KILL -u alice; rm -f /dev/shm/sem.* /dev/shm/link_remap.*")
        node1.ask(re.search('cut it back with "([^"]*)"', moved.restart(node2).err).group(1))
    moved.move(node2)
    moved.hold()
    moved.move(node1)
    assert moved.end() == 5
    lines = moved.lines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


def test_file_that_was_rewritten_while_the_job_was_held(writes_in_place, node1, node2):
    """No setting lets this pass by itself: the job has not done it."""
    held = writes_in_place
    held.hold()
    node1.ask("printf 000000000 | dd of=%s/data conv=notrunc status=none" % held.work)
    for policy in ("refuse", "report"):
        with setting(node2, changed_files=policy):
            refused(held, node2, changed(held, "data", node1))
    node1.ask("runuser -u alice -- %s" % changed(held, "data", node1).split('"')[1])
    held.move(node2)
    assert held.end() == 5


def test_file_that_the_job_wrote_to_after_its_image(writes_in_place, node1, node2):
    running = writes_in_place
    assert running.checkpoint(0).code == 0
    running.progress()
    node1.ask("pkill -KILL -u alice; sleep 0.2")
    sentence = changed(running, "data", node1)
    refused(running, node2, sentence)
    with setting(node2, changed_files="report"):
        running.move(node2)
    assert sentence.partition("; if")[0] in node2.ask("journalctl -t ckpt-torque -o cat | grep 'job=%s.*outcome=restarted'" % running.id)
    assert running.end() == 5


REPLACE = "cd %s && printf 000000000 > new && chmod --reference=data new && chown alice:alice new && mv new data"
"""Put another file of the same size in the place of the job's."""


def test_file_that_was_replaced_while_the_job_was_held(writes_in_place, node1, node2):
    """No setting lets it pass by itself; with its time back the job goes on in the file that is there now."""
    held = writes_in_place
    held.hold()
    node1.ask(REPLACE % held.work)
    for policy in ("refuse", "report"):
        with setting(node2, changed_files=policy):
            refused(held, node2, changed(held, "data", node1, "replaced"))
    node1.ask("runuser -u alice -- %s" % changed(held, "data", node1, "replaced").split('"')[1])
    held.move(node2)
    assert held.end() == 5


def test_file_that_was_replaced_after_a_periodic_image(writes_in_place, node1, node2):
    """The setting decides, as of one that was written to."""
    running = writes_in_place
    assert running.checkpoint(0).code == 0
    node1.ask("pkill -KILL -u alice; sleep 0.2; " + REPLACE % running.work)
    sentence = changed(running, "data", node1, "replaced")
    refused(running, node2, sentence)
    with setting(node2, changed_files="report"):
        running.move(node2)
    assert sentence.partition("; if")[0] in node2.ask("journalctl -t ckpt-torque -o cat | grep 'job=%s.*outcome=restarted'" % running.id)
    assert running.end() == 5


def test_held_job_whose_file_is_left_alone(writes_in_place, node1, node2):
    """What is noted is what other nodes see; chmod does not count."""
    moved = writes_in_place
    for node in (node2, node1):
        moved.hold()
        node1.ask("cd %s && mode=$(stat -c %%a data) && chmod 600 data && chmod $mode data" % moved.work)
        moved.move(node)
    assert moved.end() == 5


def test_file_is_not_cut_back_when_the_restore_fails(logger, node2):
    grown = size_of(logger)
    node2.ask("chmod 666 %s/err" % logger.work)  # CRIU insists on modes, the hooks do not
    with setting(node2, truncate_append_only=True):
        done = logger.restart(node2)
    assert (done.code, size_of(logger)) == (70, grown), done.err
    assert "bad mode" in done.err


def test_file_that_is_another_now(logger, node2):
    node2.ask("cd %s && cp -p log new && mv new log" % logger.work)
    with setting(node2, truncate_append_only=True):
        touch = " && " + changed(logger, "log", node2).split('"')[1]
        refused(logger, node2, GROWN.replace('"{3}', '{3}"').format(logger.work, size_of(logger), logger.size, touch))


def test_file_that_has_become_shorter(logger, node2):
    node2.ask("truncate -s 2 %s/log" % logger.work)
    refused(logger, node2, "file %s/log, which the job has open, has become shorter since the image was written (2 bytes, had %d); "
            "restart the job from another image" % (logger.work, logger.size))


# -- whole directories -------------------------------------------------------------------

def test_scratch_directory_travels(job, node1, node2, places):
    node1.ask("install -d -o alice -g alice -m 755 %s" % places)
    with setting(node1, node2, node_local_trees=["$TMPDIR"]):
        moved = job(node1, "cd $TMPDIR; mkdir -p a/b; echo one > a/b/one; ln a/b/one two; ln -s a/b link; chmod 500 a/b; "
                           "touch -d 2001-01-01 a; cd $OLDPWD; python3 job.py; exit $?", "TMPDIR=" + places)
        seen = "cd %s && find . -printf '%%p %%y %%U %%m %%l %%n\\n' | sort; cat two; stat -c %%Y a" % places
        before = node1.ask(seen)
        moved.hold()
        node2.ask("install -d -o alice -g alice -m 755 %s" % places)  # as pbs_mom makes it
        moved.move(node2)
        assert node2.ask(seen) == before
        node2.ask("echo more > %s/more; chown alice:alice %s/more" % (places, places))
        before = node2.ask(seen)
        moved.hold()
        moved.move(node1)
        assert node1.ask(seen) == before
        moved.hold()
        node2.ask("echo changed > %s/more" % places)
        done = moved.restart(node2)
    assert (done.code, done.err) == (77, "%s, which the image carries, is there already and is not empty; move it away or restart the "
                                         "job on another node; image kept\n" % places)


LEASES = r"""
import fcntl, os, signal, sys, time
path = sys.argv[1]
os.makedirs(os.path.dirname(path), exist_ok=True)
broken = []
signal.signal(signal.SIGIO, lambda number, frame: broken.append(number))
leased = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
os.write(leased, b"hello")
fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)
counter = 0
while not os.path.exists("stop"):
    counter += 1
    os.write(1, b"%d\n" % counter)
    time.sleep(0.01)
os._exit(5 if not broken and fcntl.fcntl(leased, fcntl.F_GETLEASE) == fcntl.F_WRLCK else 9)
"""


def test_lease_is_not_broken(job, node2, node1):
    """Neither by an image of a job that continues, nor by the one it moves with: its holder would get a signal that nobody sent."""
    moved = job(node1, "cat > leases.py <<'Y'\n%s\nY\nexec python3 leases.py $PWD/leased" % LEASES)
    for _turn in range(2):
        done = moved.checkpoint(0)
        assert (done.code, done.err) == (0, "")
        moved.progress()
    moved.hold()
    moved.move(node2)
    assert moved.end() == 5


def test_leased_file_binds_the_image_to_its_node(job, node1, node2, places):
    held = job(node1, "cat > leases.py <<'Y'\n%s\nY\nexec python3 leases.py %s/leased" % (LEASES, places))
    assert held.checkpoint(0).code == 0
    held.progress()
    held.hold()
    assert "the job has a lease on %s/leased, so that opening the file would send it a signal" % places in held.restart(node2).err
    held.move(node1)
    assert held.end() == 5


def test_lease_that_is_being_broken(job, node1):
    """CRIU would restore it with a signal more."""
    running = job(node1, "cat > leases.py <<'Y'\n%s\nY\nexec python3 leases.py $PWD/leased" % LEASES)
    node1.run("runuser -u alice -- dd if=%s/leased iflag=nonblock count=1 of=/dev/null" % running.work)
    done = running.checkpoint(15)
    assert done.code != 0
    assert "has a lease on the file %s/leased that another process is breaking; CRIU cannot checkpoint that; the job keeps running; " \
           "try again when the process has given the lease up" % running.work in done.err
    running.progress()
