import ctypes
import mmap
import os
import shutil
import signal
import sys
import threading

import pytest

from torque_ckpt import errors
from torque_ckpt.engines import base, criu, registry
from torque_ckpt.errors import HookError
from torque_ckpt.system import processes

# Which engine


def test_get_gives_the_configured_criu(program):
    path = program("exit 0\n")
    engine = registry.load_engine({"engine": "criu", "engine_timeout": 5,
                                  "engine_options": {"path": path, "options": ["--tcp-close"], "stall": 3}})
    assert isinstance(engine, base.Engine)
    assert (engine.name, engine.path, engine.options, engine.timeout, engine.stall) == ("criu", path, ["--tcp-close"], 5, 3)


@pytest.mark.parametrize("name, shown", [("BLCR", "'BLCR'"), ("CRIU", "'CRIU'"), ("", "''"), ("\u00fc", "'\\xfc'")])
def test_get_does_not_know_other_engines(name, shown):
    with pytest.raises(HookError) as caught:
        registry.load_engine({"engine": name, "engine_options": {"path": "/bin/true"}, "engine_timeout": 5})
    assert str(caught.value) == "engine %s is not known to these hooks (known: blcr, criu); set checkpoint_hooks_engine" % shown
    assert caught.value.code == errors.CONFIG


@pytest.mark.parametrize("exists", [True, False])
def test_criu_that_is_not_there_or_not_a_program(tmp_path, exists):
    path = tmp_path / "criu"
    if exists:
        path.write_text("#!/bin/sh\n")
        path.chmod(0o644)
    with pytest.raises(HookError) as caught:
        criu.Criu(str(path))
    assert str(caught.value) == "criu is not at %s on this node; run the role criu" % path
    assert caught.value.code == errors.CONFIG


@pytest.mark.parametrize("work", [
    lambda engine: engine.read_version(), lambda engine: engine.check_node(), lambda engine: engine.dump(1, "/", True),
    lambda engine: engine.restore("/")])
def test_engine_itself_can_nothing(work):
    with pytest.raises(NotImplementedError):
        work(base.Engine())


# Calling a program


# CRIU's words

@pytest.mark.parametrize("output, wanted", [
    ("", "it printed nothing"),
    (" \n\n", "it printed nothing"),
    ("one\ntwo \n\n", "two"),
    ("(00.001) Error (criu/cr-dump.c:1780): Dumping FAILED.\n", "Dumping FAILED."),
    ("Warn  (criu/x.c:1): careful\n(00.002) Error (criu/sk-inet.c:188): Connected TCP socket, consider using --tcp-established option.\n"
     "(00.003) Error (criu/cr-dump.c:1780): Dumping FAILED.\nbye\n", "Connected TCP socket, consider using --tcp-established option."),
    ("Error (compel/src/lib/infect.c:1):    spaces   \n", "spaces"),
    ("Error without a place\n", "Error without a place"),
    ("Error (a.c:1): \x1b]2;owned\x07\r", "\\x1b]2;owned\\x07"),
    ("Error (a.c:1): %s\n" % ("x" * 301), "x" * 300),
])
def test_reason_is_the_first_error_or_else_the_last_line(output, wanted):
    assert criu.find_reason(output) == wanted


def test_version_is_what_it_says(program):
    assert criu.Criu(program('[ "$*" = --version ] || exit 1\necho "Version: 4.1.1"\necho "GitID: v4.1.1"\n')).read_version() == "4.1.1"


@pytest.mark.parametrize("text, why", [
    ("echo 'Version: 4.1'; echo 'Error (x.c:1): broken'; exit 1\n", "broken"), ("echo hello\n", "hello"),
    ("exit 0\n", "it printed nothing")])
def test_version_that_it_does_not_say(program, text, why):
    path = program(text)
    with pytest.raises(HookError) as caught:
        criu.Criu(path).read_version()
    assert str(caught.value) == "%s --version failed: %s; run the role criu" % (path, why)
    assert caught.value.code == errors.ENGINE


COMMON = "--unprivileged --shell-job --file-locks --ext-unix-sk --link-remap --manage-cgroups=ignore -v1 --tcp-close"


@pytest.mark.parametrize("stop, option", [(True, "--leave-stopped"), (False, "--leave-running")])
def test_failed_dump_and_its_command_line(program, stop, option):
    path = program('echo "$@"; exit 1\n')
    with pytest.raises(HookError) as caught:
        criu.Criu(path, ["--tcp-close"]).dump(4711, "/proc/self/fd/9", stop)
    assert str(caught.value) == ("criu dump failed with status 1: dump -t 4711 -D /proc/self/fd/9 %s %s; the job keeps running; see "
                                 "whether torque-ckpt selftest passes on this node (as root)" % (option, COMMON))
    assert caught.value.code == errors.ENGINE


@pytest.mark.parametrize("removed, limit", [(0, 1 << 20), (1 << 20, 1 << 20), (1 << 30, 1 << 30)])
def test_limit_of_removed_files(program, removed, limit):
    """Never less than without it; a site's own option comes later, so that it counts."""
    with pytest.raises(HookError) as caught:
        criu.Criu(program('echo "$@"; exit 1\n'), ["--tcp-close"]).dump(4711, "/d", True, removed=removed)
    options = COMMON.replace("--tcp-close", "--ghost-limit %d --tcp-close" % limit)
    assert str(caught.value) == ("criu dump failed with status 1: dump -t 4711 -D /d --leave-stopped %s; the job keeps running; see "
                                 "whether torque-ckpt selftest passes on this node (as root)" % options)


def test_lease_on_the_command_line(program):
    with pytest.raises(HookError) as caught:
        criu.Criu(program('echo "$@"; exit 1\n'), ["--tcp-close"]).dump(4711, "/d", False, leased=True)
    assert " -v1 --file-validation filesize --tcp-close; " in str(caught.value)


def test_connections_on_the_command_line(program):
    with pytest.raises(HookError) as caught:
        criu.Criu(program('echo "$@"; exit 1\n'), ["--tcp-close"]).dump(4711, "/d", False, removed=0, connected=True)
    assert " --ghost-limit 1048576 --tcp-established --network-lock skip --tcp-close; " in str(caught.value)
    with pytest.raises(HookError) as caught:
        criu.Criu(program('echo "$@"; exit 1\n')).restore("/d", connected=True)
    assert " --tcp-established --network-lock skip; " in str(caught.value)


def test_port_in_use_is_temporary(program):
    words = "inet: Can't bind inet socket (id 3): Address already in use"
    with pytest.raises(HookError) as caught:
        restore(criu.Criu(program('echo "Error (criu/sk-inet.c:1059): %s"; exit 1\n' % words)))
    assert (caught.value.code, str(caught.value)) == (
        errors.TEMPORARY, "a port of the image is in use on this node (criu: %s); try again later or on another node" % words)


CONFINED = """
words="{2}"
echo x >> {0}/tries
ls {0}/private > {0}/listed
echo one > $5/core-$(wc -l < {0}/tries).img
echo memory > $5/pages-1.img
[ $(wc -l < {0}/tries) -lt {1} ] || exit 0
echo "(00.02) Error (compel/src/lib/infect.c:712): $words"
exit 1
"""


@pytest.fixture
def confined(program, tmp_path, monkeypatch):
    """Return a function that has CRIU fail until the try of this number, and returns how a dump ended."""
    monkeypatch.setattr(criu, "_CONFINED_PAUSE", 0.01)

    def dump(number, root, calls, words="Unable to connect a transport socket: Operation not permitted"):
        for name in ("private", "store"):
            (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / "private" / "other").write_text("")
        engine = criu.Criu(program(CONFINED.format(tmp_path, number, words)))
        return engine.dump(root, str(tmp_path / "private"), False, meanwhile=lambda: calls.append(1), memory=str(tmp_path / "store"))
    return dump


@pytest.mark.parametrize("number", [1, 2, 6])
@pytest.mark.parametrize("words", criu._CONFINED)
def test_program_that_confines_itself_for_a_while(confined, tmp_path, number, words):
    """What a failed try has written is not in the image."""
    calls = []
    confined(number, os.getpid(), calls, words)
    assert calls == [1]
    assert sorted(os.listdir(str(tmp_path / "private"))) == ["core-%d.img" % number, "other"]
    assert (tmp_path / "store" / "pages-1.img").read_text() == "memory\n"


def test_program_that_stays_confined(confined, tmp_path, keep):
    calls = []
    ordinary = keep(lambda: None)
    with pytest.raises(HookError) as caught:
        confined(7, ordinary, calls)
    sentence = ("%s has confined itself (by Landlock, as xz does while it works), so that criu did not reach it in 6 tries; the job "
                "keeps running; checkpoint the job when it has ended")
    assert (caught.value.code, str(caught.value)) == (errors.TEMPORARY, sentence % "a process of the job")
    shutil.rmtree(str(tmp_path / "private"))
    pid = keep(lambda: ctypes.CDLL(None).prctl(38, 1, 0, 0, 0))  # PR_SET_NO_NEW_PRIVS, which Landlock asks for
    with pytest.raises(HookError) as caught:
        confined(13, pid, calls)
    assert str(caught.value) == sentence % "process %d (%s)" % (pid, processes.read_process(pid).name)
    assert calls == [1, 1]


def test_memory_goes_elsewhere_by_links(program, start_job, tmp_path):
    """As CRIU opens its files: O_CREAT, O_TRUNC. Links that it did not need are gone; what it had no link for is where it put it."""
    private, store = tmp_path / "private", tmp_path / "store"
    private.mkdir()
    store.mkdir()
    job = start_job()
    path = program("cd $5\nls pages-*.img | wc -l > links\nls -l | grep -c ' -> %s/pages-' >> links\n"
                   "echo one > pages-1.img; echo nine > pages-9.img; echo last > pages-999999.img; echo core > core-7.img\n" % store)
    criu.Criu(path).dump(job.leader, str(private), False, memory=str(store))
    assert {name.name: name.read_text() for name in store.iterdir()} == {"pages-1.img": "one\n", "pages-9.img": "nine\n"}
    assert sorted(os.listdir(str(private))) == ["core-7.img", "links", "pages-999999.img"]
    count = int((private / "links").read_text().split()[0])
    assert (private / "links").read_text().split()[1] == str(count)
    assert count >= 2 * 2 + 16  # two processes


def test_links_are_enough_for_shared_memory(program, tmp_path):
    """CRIU writes a file for each process and each shared segment."""
    segments = [mmap.mmap(-1, 4096) for _number in range(50)]
    path = program("ls $5 | wc -l > $5/links\n")
    criu.Criu(path).dump(os.getpid(), str(tmp_path), False, memory="/nonexistent")
    assert int((tmp_path / "links").read_text()) >= len(segments) + 1 + 16


def test_failed_restore_and_its_command_line(program):
    path = program('echo "$@"; exit 1\n')
    with pytest.raises(HookError) as caught:
        criu.Criu(path, ["--tcp-close"]).restore("/proc/self/fd/9")
    assert str(caught.value) == ("criu restore failed with status 1: restore -d -D /proc/self/fd/9 %s; the image is kept; restart the job "
                                 "on another node, or see whether torque-ckpt selftest passes on this node (as root)" % COMMON)
    assert caught.value.code == errors.ENGINE


def dump(engine):
    engine.dump(1, "/nonexistent", True)


def restore(engine):
    engine.restore("/nonexistent")


@pytest.mark.parametrize("work, sentence", [
    (dump, "criu dump failed with status %s; the job keeps running; " + errors.ENGINE_CURE),
    (restore, "criu restore failed with status %s; the image is kept; " + errors.RESTORE_CURE)])
@pytest.mark.parametrize("text, status", [
    ("echo '(00.1) Error (criu/cr.c:1): first'; echo 'Error (criu/cr.c:2): second'; exit 3", "3: first"),
    ("exit 1", "1: it printed nothing"), ("exit 127", "127: it printed nothing"), ("kill -9 $$", "-9: it printed nothing"),
])
def test_failure_of_criu_is_the_engines(program, work, sentence, text, status):
    with pytest.raises(HookError) as caught:
        work(criu.Criu(program(text)))
    assert str(caught.value) == sentence % status
    assert caught.value.code == errors.ENGINE


@pytest.mark.parametrize("work", [dump, restore])
def test_criu_that_does_well_raises_nothing(program, work):
    assert work(criu.Criu(program("echo 'Error (criu/cr.c:1): a word only'"))) is None


@pytest.mark.parametrize("work", [dump, restore, lambda engine: engine.read_version()])
def test_criu_that_takes_too_long(program, work):
    path = program("exec sleep 60\n")
    with pytest.raises(HookError) as caught:
        work(criu.Criu(path, timeout=0.1))
    assert str(caught.value) == "%s took longer than 0 seconds and was killed; allow it more time (checkpoint_hooks_engine_timeout)" % path
    assert caught.value.code == errors.ENGINE


@pytest.mark.parametrize("work", [dump, restore, lambda engine: engine.read_version()])
def test_criu_that_cannot_be_started(tmp_path, work):
    path = tmp_path / "criu"
    path.write_bytes(b"\0\0\0\0")
    path.chmod(0o755)
    with pytest.raises(HookError) as caught:
        work(criu.Criu(str(path)))
    assert str(caught.value) == "cannot start %s: Exec format error; run the engine's role on this node" % path
    assert caught.value.code == errors.CONFIG


@pytest.mark.parametrize("words", [
    "(00.042) 4711: Error (criu/cr-restore.c:1477): Can't fork for 4711: File exists",
    "(00.042) Error (criu/cr-restore.c:1477): Can't fork for 4712: File exists\n(00.043) Error (criu/cr-restore.c:2557): Restoring FAILED.",
    "(00.042) pie: 4711: Error (criu/pie/restorer.c:1): Unable to fork: File exists",
    "(00.042) pie: 4711: Error (criu/pie/restorer.c:2185): Unable to create a thread: -17",
    "(00.042) Error (criu/clone-noasan.c:1): Pid 4711 do not match expected 4712 (task or thread)",
])
def test_process_id_in_use_is_temporary(program, words):
    engine = criu.Criu(program("cat <<'END'\n%s\nEND\nexit 1\n" % words))
    with pytest.raises(HookError) as caught:
        engine.restore("/nonexistent")
    assert str(caught.value) == "a process id of the image is in use on this node (criu: %s); try again later or on another node" % (
        words.split("): ", 1)[1].split("\n")[0])
    assert caught.value.code == errors.TEMPORARY == 75


@pytest.mark.parametrize("words", [
    "Error (criu/files-reg.c:1): Can't open file x: File exists", "Error (criu/cr-restore.c:1): Can't fork for 7: Cannot allocate memory",
    "pie: 7: Error (criu/pie/restorer.c:2185): Unable to create a thread: -11",
    "Error (criu/cr-restore.c:1): Can't fork for 7\nError (criu/files-reg.c:1): x: File exists"])
def test_other_failures_of_restore_are_not_temporary(program, words):
    engine = criu.Criu(program("cat <<'END'\n%s\nEND\nexit 1\n" % words))
    with pytest.raises(HookError) as caught:
        engine.restore("/nonexistent")
    assert str(caught.value) == ("criu restore failed with status 1: %s; the image is kept; restart the job on another node, or see "
                                 "whether torque-ckpt selftest passes on this node (as root)" % words.split("): ", 1)[1].split("\n")[0])
    assert caught.value.code == errors.ENGINE


@pytest.mark.parametrize("words", ["\trecv failed (2456404, want 2495316): Invalid argument", "\trecv failed (0, want 12): Success"])
def test_connection_that_carries_bytes_during_a_dump_is_temporary(program, words):
    """What CRIU 4.2 says when they are fewer or more than a moment before."""
    with pytest.raises(HookError) as caught:
        dump(criu.Criu(program("cat <<'END'\nError (soccr/soccr.c:371): %s\nError (criu/sk-tcp.c:1): x\nEND\nexit 1\n" % words)))
    assert str(caught.value) == ("the TCP connections of the job still carried bytes while its image was written (criu: %s); the job keeps "
                                 "running; try again" % words.strip())
    assert caught.value.code == errors.TEMPORARY


def test_connection_that_cannot_be_read_is_not_temporary(program):
    words = "recv failed (-1, want 12): Bad address"
    with pytest.raises(HookError) as caught:
        dump(criu.Criu(program("echo 'Error (soccr/soccr.c:371): %s'; exit 1\n" % words)))
    assert str(caught.value) == ("criu dump failed with status 1: %s; the job keeps running; see whether torque-ckpt selftest passes on "
                                 "this node (as root)" % words)
    assert caught.value.code == errors.ENGINE


@pytest.mark.parametrize("words", [
    "Error (criu/files.c:1018): Unexpected fle 0x4141414141414141, pid=9\nError (criu/files.c:1204): Unable to open fd=1 id=0x4",
    "Error (criu/files.c:1169): Can't get fd=1, pid=9\n(00.1)    9: Error (criu/files.c:1204): Unable to open fd=1 id=0x4",
    "(00.1)    9: Error (criu/files.c:1204): Unable to open fd=1 id=0x4"])
def test_restore_that_somebody_disturbs_is_temporary(program, words):
    """What CRIU 4.2 says when another process sends something to its sockets."""
    with pytest.raises(HookError) as caught:
        criu.Criu(program("cat <<'END'\n%s\nEND\nexit 1\n" % words)).restore("/nonexistent")
    assert str(caught.value) == ("another process of this node may have interfered with criu (criu: %s); try again later or on another "
                                 "node; image kept" % words.split("): ", 1)[1].split("\n")[0])
    assert caught.value.code == errors.TEMPORARY


def test_restore_that_fails_for_another_reason_first_is_not_disturbed(program):
    words = "Error (criu/files-reg.c:1): Can't open file x: No such file\nError (criu/files.c:1204): Unable to open fd=3 id=0x4"
    with pytest.raises(HookError) as caught:
        criu.Criu(program("cat <<'END'\n%s\nEND\nexit 1\n" % words)).restore("/nonexistent")
    assert (caught.value.code, str(caught.value)) == (
        errors.ENGINE, "criu restore failed with status 1: Can't open file x: No such file; the image is kept; restart the job on another "
                       "node, or see whether torque-ckpt selftest passes on this node (as root)")


@pytest.mark.parametrize("words", ["Message reply from daemon is trimmed (16/1)", "Communication error, this is not the ack we expected",
                                   "Failed to read ack: Connection reset by peer"])
def test_dump_that_somebody_disturbs_is_temporary(program, words):
    with pytest.raises(HookError) as caught:
        criu.Criu(program("echo 'Error (compel/src/lib/infect-rpc.c:1): %s'\nexit 1\n" % words)).dump(1, "/nonexistent", False)
    assert (caught.value.code, str(caught.value)) == (errors.TEMPORARY, "criu dump failed with status 1: %s; the job keeps running; "
                                                                        "try again" % words)


STOOD_STILL = ("%s did nothing for 0 seconds and was killed; another process of this node may have interfered with it, or the store does "
               "not answer; %s")


@pytest.mark.parametrize("work, otherwise", [
    (dump, "the job keeps running; try again"), (restore, "try again later or on another node; image kept")])
def test_criu_that_waits_for_what_never_comes(program, hurried, work, otherwise):
    path, before = program("sleep 60\n"), processes.list_children(os.getpid())
    with pytest.raises(HookError) as caught:
        work(criu.Criu(path, stall=0.3))
    assert (caught.value.code, str(caught.value)) == (errors.TEMPORARY, STOOD_STILL % (path, otherwise))
    assert processes.list_children(os.getpid()) == before


@pytest.mark.parametrize("text", [
    "i=0; while [ $i -lt 15 ]; do i=$((i+1)); sleep 0.1; done", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 0.2"])
def test_criu_that_gets_on_may_take_longer(program, hurried, text):
    dump(criu.Criu(program(text + "\n"), stall=0.4))


def test_criu_that_waits_for_the_hooks_own_child(program, hurried):
    """The worker copies files while CRIU waits for it."""
    path = program("sleep 1\n")
    pid = os.fork()
    if pid == 0:
        try:
            while True:
                sum(range(1000))
        finally:
            os._exit(0)
    try:
        dump(criu.Criu(path, stall=0.3))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


WAITS_AS_FOR_A_DISK = """\
import ctypes, sys
libc, actions = ctypes.CDLL(None), ctypes.create_string_buffer(256)
libc.posix_spawn_file_actions_init(actions)
libc.posix_spawn_file_actions_addopen(actions, 0, sys.argv[1].encode(), 0, 0)
libc.posix_spawn(ctypes.byref(ctypes.c_int()), b"/bin/true", actions, None, (ctypes.c_char_p * 2)(b"true", None), None)
"""
"""Until a child of it, which shares its memory, has opened a named pipe."""


def test_criu_that_waits_for_the_store_may_take_longer(program, hurried, tmp_path):
    """As when an NFS server is started again."""
    pipe = tmp_path / "pipe"
    os.mkfifo(str(pipe))
    (tmp_path / "waits.py").write_text(WAITS_AS_FOR_A_DISK)
    path = program("exec %s %s/waits.py %s\n" % (sys.executable, tmp_path, pipe))
    end = threading.Timer(1.5, lambda: os.close(os.open(str(pipe), os.O_RDWR)))  # so it does not wait for a reader
    end.start()
    dump(criu.Criu(path, stall=0.4))
    end.join()


def test_process_id_in_use_is_no_matter_of_a_dump(program):
    engine = criu.Criu(program("echo \"Error (criu/cr.c:1): Can't fork for 7: File exists\"\nexit 1\n"))
    with pytest.raises(HookError) as caught:
        engine.dump(1, "/nonexistent", False)
    assert str(caught.value) == ("criu dump failed with status 1: Can't fork for 7: File exists; the job keeps running; see whether "
                                 "torque-ckpt selftest passes on this node (as root)")
    assert caught.value.code == errors.ENGINE


# Its capabilities

def bounding_is_full():
    libc, capability = ctypes.CDLL(None), 0
    while libc.prctl(23, capability, 0, 0, 0) == 1:  # PR_CAPBSET_READ: 1 in the set, 0 not, -1 no such capability
        capability += 1
    return libc.prctl(23, capability, 0, 0, 0) == -1


@pytest.mark.parametrize("scope, wanted", [(None, (40,)), ("0", (40,)), ("1", (19, 40)), ("3", (19, 40))])
def test_capabilities_of_criu(program, tmp_path, monkeypatch, scope, wanted):
    """CAP_CHECKPOINT_RESTORE, and CAP_SYS_PTRACE where Yama forbids what CRIU does."""
    monkeypatch.setattr(criu, "_YAMA", str(tmp_path / "ptrace_scope"))
    if scope is not None:
        (tmp_path / "ptrace_scope").write_text(scope + "\n")
    engine = criu.Criu(program("exit 0\n"))
    assert engine.dump_capabilities == wanted
    assert engine.restore_capabilities == ((40,) if bounding_is_full() else (40, 8))  # CAP_SETPCAP


@pytest.mark.root
def test_capabilities_of_criu_where_the_nodes_own_are_cut_down(in_child, program):
    engine = criu.Criu(program("exit 0\n"))

    def work():
        assert ctypes.CDLL(None).prctl(24, 10, 0, 0, 0) == 0  # PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE
        return engine.restore_capabilities

    assert in_child(work).result == [40, 8]


def test_process_ids_are_those_of_the_core_files(program, tmp_path):
    """Also those of threads, in the order of numbers."""
    for name in ("core-1000.img", "core-27.img", "core-28.img", "core-x.img", "score-7.img", "core-8.img.old", "fdinfo-2.img"):
        (tmp_path / name).write_text("")
    engine = criu.Criu(program("exit 0\n"))
    assert engine.list_process_ids(os.open(str(tmp_path), os.O_RDONLY)) == [27, 28, 1000]
