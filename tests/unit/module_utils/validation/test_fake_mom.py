"""fake_mom: what a program started by the played pbs_mom really gets, looked up in /proc."""

import grp
import os
import signal
import stat
import subprocess

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.validation import fake_mom
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.job import identity
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest import roundtrip
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system import privilege, processes
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.waiting import wait_until

SLEEP = "/bin/sleep"


def proc(pid, name):
    """Return the text (str) of /proc/PID/NAME."""
    with open("/proc/%d/%s" % (pid, name), "rb") as stream:
        return stream.read().decode()


def status(pid, field):
    """Return one field (list of str) of /proc/PID/status."""
    return next(line.split()[1:] for line in proc(pid, "status").splitlines() if line.startswith(field + ":"))


def reap(pid):
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


@pytest.fixture
def stdio(tmp_path):
    """Three descriptors: /dev/null, the file out and the file err in tmp_path."""
    descriptors = [os.open(os.devnull, os.O_RDONLY)]
    descriptors += [os.open(tmp_path / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600) for name in ("out", "err")]
    yield descriptors
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.fixture
def sleeper(stdio):
    """Start sleep by spawn: sleeper(environment, directory, ...) returns its pid when it sleeps, with its libraries loaded."""
    started = []

    def start(environment, directory, **options):
        pid = roundtrip.start_process(SLEEP, ["600"], environment, directory, stdio, **options)
        started.append(pid)
        assert wait_until(lambda: proc(pid, "stat").startswith("%d (sleep) S " % pid), 10)
        return pid

    yield start
    for pid in started:
        reap(pid)


@pytest.mark.parametrize("code", [0, 1, 7, 127, 255])
def test_exit_status_of_an_exit(code):
    done = subprocess.Popen(["/bin/sh", "-c", "exit %d" % code])
    assert roundtrip.get_exit_status(os.waitpid(done.pid, 0)[1]) == code
    done.returncode = code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_exit_status_of_a_signal(number):
    done = subprocess.Popen([SLEEP, "600"])
    done.send_signal(number)
    assert roundtrip.get_exit_status(os.waitpid(done.pid, 0)[1]) == 256 + number
    done.returncode = -number


def test_exit_status_of_a_core_dump():
    assert roundtrip.get_exit_status(signal.SIGSEGV | 0x80) == 256 + 11


def test_spawn_session_directory_umask_environment(sleeper, tmp_path):
    pid = sleeper({"PATH": "/bin", "PBS_JOBID": "5.server"}, str(tmp_path), umask=0o027)
    process = processes.read_process(pid)
    assert (process.ppid, process.session, os.getpgid(pid)) == (os.getpid(), pid, pid)
    assert os.readlink("/proc/%d/cwd" % pid) == str(tmp_path)
    assert status(pid, "Umask") == ["0027"]
    assert sorted(filter(None, proc(pid, "environ").split("\0"))) == ["PATH=/bin", "PBS_JOBID=5.server"]
    assert proc(pid, "cmdline").split("\0")[:-1] == [SLEEP, "600"]


def test_spawn_umask_unless_told(sleeper):
    assert status(sleeper({}, "/"), "Umask") == ["0022"]


def test_spawn_descriptors(sleeper, tmp_path):
    """Only the three standard ones, also when the caller has more open that a child would inherit."""
    extra = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(extra, True)
    try:
        pid = sleeper({}, "/")
    finally:
        os.close(extra)
    wanted = {"0": "/dev/null", "1": str(tmp_path / "out"), "2": str(tmp_path / "err")}
    links = {}

    def settled():  # while the program starts, its loader opens and closes libraries
        links.clear()
        for entry in os.listdir("/proc/%d/fd" % pid):
            try:
                links[entry] = os.readlink("/proc/%d/fd/%s" % (pid, entry))
            except FileNotFoundError:
                return False
        return links == wanted

    assert wait_until(settled, 10), links


def test_spawn_leaked_descriptors(sleeper):
    pid = sleeper({}, "/", leaked=fake_mom.LEAKED)
    assert sorted(map(int, os.listdir("/proc/%d/fd" % pid))) == [0, 1, 2, 10, 15, 17]
    links = {os.readlink("/proc/%d/fd/%d" % (pid, number)) for number in fake_mom.LEAKED}
    assert len(links) == 1 and links.pop().startswith("pipe:[")
    flags = [int(proc(pid, "fdinfo/%d" % number).split("flags:")[1].split()[0], 8) for number in fake_mom.LEAKED]
    assert [flag & os.O_ACCMODE for flag in flags] == [os.O_RDONLY, os.O_WRONLY, os.O_WRONLY]
    assert [flag & os.O_CLOEXEC for flag in flags] == [0, 0, 0]


def test_spawn_stdio_that_is_in_its_own_way(tmp_path):
    """stdout and stderr are exchanged: neither may be lost when they are put in their places."""
    out, err = [os.open(tmp_path / name, os.O_CREAT | os.O_WRONLY, 0o600) for name in ("out", "err")]
    null = os.open(os.devnull, os.O_RDONLY)
    saved = [os.dup(number) for number in (1, 2)]
    try:
        os.dup2(out, 2)
        os.dup2(err, 1)
        pid = roundtrip.start_process("/bin/sh", ["-c", "echo to-out; echo to-err >&2"], {}, "/", [null, 2, 1])
    finally:
        for number, descriptor in zip((1, 2), saved):
            os.dup2(descriptor, number)
        for descriptor in saved + [out, err, null]:
            os.close(descriptor)
    assert os.waitpid(pid, 0)[1] == 0
    assert ((tmp_path / "out").read_text(), (tmp_path / "err").read_text()) == ("to-out\n", "to-err\n")


def test_spawn_signals_are_a_shells(sleeper):
    """Python ignores SIGPIPE; a job must not inherit that, nor a mask."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        pid = sleeper({}, "/")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
    assert int(status(pid, "SigBlk")[0], 16) == 0
    ignored = int(status(pid, "SigIgn")[0], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))


@pytest.mark.parametrize("program, directory, words", [
    ("/nonexistent/run", "/", "cannot start /nonexistent/run: [Errno 2] No such file or directory: '/nonexistent/run'\n"),
    (SLEEP, "/nonexistent", "cannot start /bin/sleep: [Errno 2] No such file or directory: '/nonexistent'\n"),
    ("/etc/passwd", "/", "cannot start /etc/passwd: [Errno 13] Permission denied: '/etc/passwd'\n"),
], ids=["no program", "no directory", "not executable"])
def test_spawn_failure(stdio, tmp_path, program, directory, words):
    pid = roundtrip.start_process(program, ["600"], {}, directory, stdio)
    assert roundtrip.get_exit_status(os.waitpid(pid, 0)[1]) == 127
    assert (tmp_path / "err").read_text() == words


@pytest.mark.root
def test_spawn_as_user(sleeper, nobody):
    pid = sleeper({}, "/", user=privilege.find_user("nobody"), umask=0o077)
    assert status(pid, "Uid") == [str(nobody.pw_uid)] * 4
    assert status(pid, "Gid") == [str(nobody.pw_gid)] * 4
    assert [int(gid) for gid in status(pid, "Groups")] == sorted(os.getgrouplist("nobody", nobody.pw_gid))
    assert [status(pid, "Cap" + kind)[0].strip("0") for kind in ("Prm", "Eff", "Amb")] == [""] * 3
    assert status(pid, "Umask") == ["0077"]


@pytest.mark.parametrize("sizes, total", [([], 0), ([5], 5), ([1000, 24, 0], 1024)])
def test_size_of_a_directory(tmp_path, sizes, total):
    for number, size in enumerate(sizes):
        (tmp_path / ("file%d" % number)).write_bytes(b"x" * size)
    assert roundtrip.measure_image(str(tmp_path)) == total


def test_size_of_a_file(tmp_path):
    (tmp_path / "image").write_bytes(b"x" * 77)
    assert roundtrip.measure_image(str(tmp_path / "image")) == 77


def test_image_bytes_follow_no_link(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 5000)
    image = tmp_path / "image"
    image.mkdir()
    (image / "link").symlink_to("../big")
    (tmp_path / "link").symlink_to("big")
    assert roundtrip.measure_image(str(image)) == len("../big")
    assert roundtrip.measure_image(str(tmp_path / "link")) == len("big")


# The job under the played pbs_mom, with hooks that are a few lines of shell.

REPORT = """\
#!/bin/sh
report="$(dirname "$0")/report"
stdio="$(for number in 0 1 2; do echo "fd$number=$(readlink /proc/$$/fd/$number)"; done)"
for argument; do echo "arg=$argument"; done > "$report"
echo "uid=$(id -u) gid=$(id -g)" >> "$report"
echo "cwd=$(pwd)" >> "$report"
echo "umask=$(umask)" >> "$report"
echo "$stdio" >> "$report"
tr '\\0' '\\n' < /proc/$$/environ | sed 's/^/env=/' | LC_ALL=C sort >> "$report"
"""


def report(path):
    """Return what REPORT wrote (list of str)."""
    return (path / "report").read_text().splitlines()


@pytest.fixture
def job(public_directory, nobody, program):
    """A Job (with .top, a pathlib.Path) of nobody's; its hooks say nothing and exit 0 unless replaced."""
    for name in ("hooks", "store", "home", "work"):
        (public_directory / name).mkdir()
    os.chown(public_directory / "work", nobody.pw_uid, nobody.pw_gid)
    (public_directory / "hooks").chmod(0o777)  # so that the run hook, as the user, can leave its report
    for name in ("run", "checkpoint", "restart"):
        program(public_directory / "hooks" / name, "#!/bin/sh\n")
    user = privilege.find_user("nobody")
    fake_job = fake_mom.Job(str(public_directory / "home"), str(public_directory / "hooks"), user, grp.getgrgid(user.gid).gr_name,
                            "77.ckpt-test", str(public_directory / "store" / "77.ckpt-test.CK"), 4711)
    fake_job.top = public_directory
    yield fake_job
    fake_job.kill()


def owner_and_mode(path):
    entry = os.lstat(path)
    return entry.st_uid, entry.st_gid, stat.S_IMODE(entry.st_mode)


@pytest.mark.root
def test_place_script(job, nobody):
    previous = os.umask(0o077)
    try:
        job.place_script("#!/bin/sh\necho first, and longer than the second\n")
        job.place_script("#!/bin/sh\nexit 7\n")
    finally:
        os.umask(previous)
    assert job.script == str(job.top / "home/mom_priv/jobs/77.ckpt-test.SC")
    assert job.top.joinpath("home/mom_priv/jobs/77.ckpt-test.SC").read_text() == "#!/bin/sh\nexit 7\n"
    assert owner_and_mode(job.script) == (nobody.pw_uid, nobody.pw_gid, 0o700)


@pytest.mark.root
def test_run_is_what_pbs_mom_does(job, nobody, program):
    program(job.top / "hooks" / "run", REPORT + "cat >> \"$report\"\necho to-stdout\necho to-stderr >&2\nexit 7\n")
    output, error = str(job.top / "work/stdout"), str(job.top / "work/stderr")
    job.place_script("#!/bin/sh\n")
    job.run(output, error)
    assert job.session_id == job.leader
    assert job.wait(10) == 7
    lines = report(job.top / "hooks")
    pipe = lines.pop(lines.index(next(line for line in lines if line.startswith("fd0="))))
    assert pipe.startswith("fd0=pipe:[")
    home = nobody.pw_dir if os.path.isdir(nobody.pw_dir) else "/"
    assert lines == [
        "arg=/bin/bash", "uid=%d gid=%d" % (nobody.pw_uid, nobody.pw_gid), "cwd=" + home, "umask=0077",
        "fd1=" + output, "fd2=" + error,
    ] + sorted("env=" + entry for entry in (
        "HOME=" + nobody.pw_dir, "USER=nobody", "LOGNAME=nobody", "SHELL=/bin/bash", "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C",
        "PBS_JOBID=77.ckpt-test", "PBS_JOBNAME=ckpt-validate", "PBS_ENVIRONMENT=PBS_BATCH", "PBS_O_LOGNAME=nobody", "PBS_QUEUE=batch",
        "PBS_NODENUM=0", "PBS_TASKNUM=1", "PBS_VERSION=TORQUE-6.1.3")) + [job.script]
    for path, words in ((output, "to-stdout\n"), (error, "to-stderr\n")):
        assert owner_and_mode(path) == (nobody.pw_uid, nobody.pw_gid, 0o600)
        with open(path) as stream:
            assert stream.read() == words


@pytest.mark.root
def test_run_follows_no_link_of_the_users(job, nobody):
    secret = job.top / "secret"
    secret.write_text("root's own\n")
    secret.chmod(0o600)
    os.symlink(secret, job.top / "work/stdout")
    job.place_script("#!/bin/sh\n")
    try:
        job.run(str(job.top / "work/stdout"), str(job.top / "work/stderr"))
    except OSError:
        pass  # a refusal is as good
    assert (secret.read_text(), owner_and_mode(secret)) == ("root's own\n", (0, 0, 0o600))


@pytest.mark.root
@pytest.mark.parametrize("number", [0, 15])
def test_checkpoint_is_what_pbs_mom_does(job, nobody, program, number):
    program(job.top / "hooks" / "checkpoint", REPORT + "echo to-stdout\necho '  some words' >&2\n")
    job.place_script("#!/bin/sh\n")
    assert job.checkpoint("ckpt.77.1", number, 10) == "some words"
    lines = report(job.top / "hooks")
    stderr = lines.pop(lines.index(next(line for line in lines if line.startswith("fd2="))))
    assert stderr.startswith("fd2=pipe:[")
    shell_made = ("env=PWD=", "env=OLDPWD=", "env=SHLVL=", "env=_=")  # by the shell in between, whichever /bin/sh is
    assert [line for line in lines if not line.startswith(shell_made)] == ["arg=" + argument for argument in (
        "4711", "77.ckpt-test", "nobody", job.group, job.directory, "ckpt.77.1", str(number), "-")] + [
        "uid=0 gid=0", "cwd=" + str(job.top / "home/mom_priv"), "umask=0022", "fd0=/dev/null", "fd1=/dev/null", "env=PATH=/bin:/usr/bin"]
    assert owner_and_mode(job.directory) == (nobody.pw_uid, nobody.pw_gid, 0o755)


@pytest.mark.root
def test_checkpoint_takes_the_directory_that_is_there(job):
    os.mkdir(job.directory, 0o700)
    job.place_script("#!/bin/sh\n")
    assert job.checkpoint("ckpt.77.1", 0, 10) == ""
    assert owner_and_mode(job.directory) == (0, 0, 0o700)


@pytest.mark.root
def test_checkpoint_gives_the_user_nothing_by_a_link(job, monkeypatch):
    """The user may own the directory above and exchange what root has just created there."""
    secret = job.top / "secret"
    secret.write_text("root's own\n")
    job.place_script("#!/bin/sh\n")
    monkeypatch.setattr(os, "mkdir", lambda path, mode: os.symlink(secret, path))
    assert job.checkpoint("ckpt.77.1", 0, 10) == ""
    assert os.lstat(secret).st_uid == 0


@pytest.mark.root
@pytest.mark.parametrize("text, cause", [
    ("echo '  no room on the store ' >&2; exit 73", "checkpoint hook exited 73: no room on the store"),
    ("echo not seen; exit 1", "checkpoint hook exited 1: it printed nothing on stderr"),
    ("printf 'bad \\377 byte' >&2; exit 2", "checkpoint hook exited 2: bad \ufffd byte"),
], ids=["words", "silent", "damaged words"])
def test_checkpoint_that_fails(job, program, text, cause):
    program(job.top / "hooks" / "checkpoint", "#!/bin/sh\n%s\n" % text)
    job.place_script("#!/bin/sh\n")
    with pytest.raises(fake_mom.MomError) as caught:
        job.checkpoint("ckpt.77.1", 0, 10)
    assert str(caught.value) == cause


@pytest.mark.root
def test_checkpoint_that_is_killed(job, program):
    program(job.top / "hooks" / "checkpoint", "#!/bin/sh\nkill -9 $$\n")
    job.place_script("#!/bin/sh\n")
    with pytest.raises(fake_mom.MomError) as caught:
        job.checkpoint("ckpt.77.1", 0, 10)
    # The shell in between may replace itself by the hook, or stay and say 128 + 9.
    assert str(caught.value) in ("checkpoint hook exited 265: it printed nothing on stderr", "checkpoint hook exited 137: Killed",
                                 "checkpoint hook exited 137: it printed nothing on stderr")


@pytest.mark.root
def test_checkpoint_without_a_hook(job):
    os.unlink(job.top / "hooks/checkpoint")
    job.place_script("#!/bin/sh\n")
    with pytest.raises(fake_mom.MomError, match="^checkpoint hook exited 127: .*not found$"):
        job.checkpoint("ckpt.77.1", 0, 10)


@pytest.mark.root
def test_checkpoint_without_a_store(job, program):
    """pbs_mom calls the hook all the same."""
    job.directory = str(job.top / "nothing/77.CK")
    program(job.top / "hooks" / "checkpoint", "#!/bin/sh\necho \"there is no $5\" >&2\nexit 73\n")
    job.place_script("#!/bin/sh\n")
    with pytest.raises(fake_mom.MomError) as caught:
        job.checkpoint("ckpt.77.1", 0, 10)
    assert str(caught.value) == "checkpoint hook exited 73: there is no %s" % job.directory


@pytest.mark.root
def test_checkpoint_that_hangs_is_killed(job, program, processes_naming):
    program(job.top / "hooks" / "checkpoint", "#!/bin/sh\nsleep 600\n")
    job.place_script("#!/bin/sh\n")
    with pytest.raises(fake_mom.MomError) as caught:
        job.checkpoint("ckpt.77.1", 0, 1)
    assert str(caught.value) == "checkpoint hook did not end within 1 seconds and was killed"
    assert wait_until(lambda: not processes_naming(job.top / "hooks" / "checkpoint"), 10)


@pytest.mark.root
def test_checkpoint_that_talks_much(job, program):
    program(job.top / "hooks" / "checkpoint", "#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' x >&2\n")
    job.place_script("#!/bin/sh\n")
    assert set(job.checkpoint("ckpt.77.1", 0, 1)) == {"x"}


@pytest.mark.root
def test_restart_is_what_pbs_mom_does(job, nobody, program):
    program(job.top / "hooks" / "restart", REPORT + "echo ' last words ' >&2\nexit 7\n")
    job.place_script("#!/bin/sh\n")
    image = os.path.join(job.directory, "ckpt.77.1")
    os.makedirs(image)
    assert job.last_words() == ""
    job.restart("ckpt.77.1")
    assert job.session_id == 4711  # for ever
    assert job.wait(10) == 7
    assert report(job.top / "hooks") == ["arg=" + argument for argument in (
        "4711", "77.ckpt-test", "nobody", job.group, job.directory, "ckpt.77.1")] + [
        "uid=0 gid=0", "cwd=" + str(job.top / "home/mom_priv"), "umask=0022",
        "fd0=/dev/null", "fd1=/dev/null", "fd2=" + job.complaint, "env=PATH=/bin:/usr/bin"]
    assert os.lstat(image).st_uid == nobody.pw_uid
    assert job.last_words() == "last words"
    assert owner_and_mode(job.complaint) == (0, 0, 0o600)


@pytest.mark.root
def test_restart_without_an_image(job):
    with pytest.raises(fake_mom.MomError) as caught:
        job.restart("ckpt.77.1")
    assert str(caught.value) == "pbs_mom finds no image %s/ckpt.77.1: No such file or directory" % job.directory
    assert job.leader is None


@pytest.mark.root
def test_restart_gives_the_user_nothing_by_a_link(job):
    secret = job.top / "secret"
    secret.write_text("root's own\n")
    job.place_script("#!/bin/sh\n")
    os.mkdir(job.directory)
    os.symlink(secret, os.path.join(job.directory, "ckpt.77.1"))
    try:
        job.restart("ckpt.77.1")
        job.wait(10)
    except (fake_mom.MomError, OSError):
        pass  # a refusal is as good
    assert os.lstat(secret).st_uid == 0


@pytest.mark.root
def test_wait_for_a_job_that_does_not_end(job, program):
    program(job.top / "hooks" / "run", "#!/bin/sh\nexec sleep 600\n")
    job.place_script("#!/bin/sh\n")
    job.run(str(job.top / "work/stdout"), str(job.top / "work/stderr"))
    with pytest.raises(fake_mom.MomError) as caught:
        job.wait(0)
    assert str(caught.value) == "the job did not end within 0 seconds"
    assert not job.ended()


@pytest.mark.root
def test_processes_and_kill(job, program, nobody):
    """The session, whatever its environment, and what left it but still is the job's; no other user's process, no other job's."""
    # It does not end when they do: it may be the last to be killed.
    program(job.top / "hooks" / "run", "#!/bin/sh\nsleep 600 &\nsetsid sleep 600 &\nenv -i sleep 600 &\nwait\nexec sleep 600\n")
    job.place_script("#!/bin/sh\n")
    job.run(str(job.top / "work/stdout"), str(job.top / "work/stderr"))
    environments = ({"PBS_JOBID": "78.ckpt-test"}, {})
    become = ["/usr/bin/setpriv", "--reuid", str(nobody.pw_uid), "--clear-groups"]
    others = [subprocess.Popen(become + [SLEEP, "600"], env=environment, start_new_session=True) for environment in environments]
    others.append(subprocess.Popen([SLEEP, "600"], env={"PBS_JOBID": job.job_id}, start_new_session=True))  # root's, not the user's
    try:
        wait_until(lambda: sorted(process.name for process in job.processes()) == ["run"] + ["sleep"] * 3, 60)
        members = job.processes()
        assert sorted(process.name for process in members) == ["run"] + ["sleep"] * 3, members
        assert {process.uid for process in members} == {nobody.pw_uid}
        assert sorted(process.session == job.leader for process in members) == [False, True, True, True]
        assert sorted(identity.read_job_id(process.pid) == job.job_id for process in members) == [False, True, True, True]
        assert job.leader in [process.pid for process in members]
        job.kill()
        assert job.processes() == []
        assert job.ended(), processes.read_process(job.leader)
        assert roundtrip.get_exit_status(job.status) == 256 + signal.SIGKILL
        assert [other.poll() for other in others] == [None] * 3
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.root
def test_kill_when_there_is_nothing(job):
    job.kill()
    assert job.ended() is False
    assert job.status is None


@pytest.mark.root
def test_forget(job):
    job.place_script("#!/bin/sh\n")
    open(job.complaint, "w").close()
    job.forget()
    assert not os.path.exists(job.top / "home")
    job.forget()


@pytest.mark.root
def test_forget_leaves_another_jobs_script(job):
    job.place_script("#!/bin/sh\n")
    other = job.top / "home/mom_priv/jobs/78.ckpt-test.SC"
    other.write_text("another's\n")
    job.forget()
    assert os.listdir(other.parent) == ["78.ckpt-test.SC"]
    assert other.read_text() == "another's\n"


@pytest.mark.root
def test_ended_keeps_the_status(job, program):
    program(job.top / "hooks" / "run", "#!/bin/sh\nexit 3\n")
    job.place_script("#!/bin/sh\n")
    assert job.ended() is False
    job.run(str(job.top / "work/stdout"), str(job.top / "work/stderr"))
    assert wait_until(job.ended, 10)
    assert job.ended() and roundtrip.get_exit_status(job.status) == 3
    assert job.wait(0) == 3
