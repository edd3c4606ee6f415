"""Make the collection importable and run its modules as the processes they are on a node."""

import importlib.util
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
COLLECTIONS = REPOSITORY / ".cache" / "checkout"  # .cache/collections may hold an older build
FOUND = importlib.util.find_spec("ansible")  # the oldest Python runs only what needs no ansible-core: module_utils
PYTHON_PATH = os.pathsep.join([str(COLLECTIONS)] + ([str(pathlib.Path(FOUND.origin).parents[1])] if FOUND else []))


def link_collection():
    """Let ansible_collections/ckpt/torque in COLLECTIONS lead to this checkout."""
    link = COLLECTIONS / "ansible_collections" / "ckpt" / "torque"
    if link.exists() and link.resolve() == REPOSITORY:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    draft = link.with_name("torque.%d" % os.getpid())
    draft.symlink_to(os.path.relpath(REPOSITORY, link.parent))
    draft.rename(link)  # another run may do the same now


link_collection()
sys.path.insert(0, str(COLLECTIONS))


def pytest_collection_modifyitems(items):
    """Skip what is marked "root" for other users."""
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(scope="session")
def repository():
    """The checkout (pathlib.Path)."""
    return REPOSITORY


STARTER = """\
import json, os, runpy, signal, sys
import ansible.module_utils.basic  # takes longer than most modules; done once for all processes
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        for number in (1, 2):
            os.dup2(os.open(asked["streams"][number], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.dup2(os.open(asked["streams"][0], os.O_RDONLY), 0)
        sys.stdin = open(0)
        if asked["user"]:
            os.setgroups([])
            os.setgid(asked["user"][1])
            os.setuid(asked["user"][0])
        os.chdir(asked["directory"])
        os.umask(asked["umask"])
        sys.argv = [asked["module"]]
        runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
        break
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@pytest.fixture(scope="session")
def python_path():
    """Where the processes find ansible and the collection (str): a copy, because a home may be closed to other users."""
    if FOUND is None or os.geteuid() != 0:
        yield PYTHON_PATH
        return
    top = pathlib.Path(tempfile.mkdtemp(prefix="ckpt-torque-test-"))
    top.chmod(0o755)
    shutil.copytree(pathlib.Path(FOUND.origin).parent, top / "ansible", ignore=shutil.ignore_patterns("modules"))
    shutil.copytree(REPOSITORY / "plugins", top / "ansible_collections/ckpt/torque/plugins")
    subprocess.run(["chmod", "-R", "go+rX", str(top)], check=True)
    yield str(top)
    shutil.rmtree(top)


@pytest.fixture(scope="session")
def module(tmp_path_factory, python_path):
    """Run a module as a process of its own: module(name, arguments, check=False, diff=False, ...) returns its answer (dict)."""
    directory = tmp_path_factory.mktemp("module")
    streams = [str(directory / name) for name in ("in", "out", "err")]
    starters = {}

    def starter(python):
        if python not in starters:
            starters[python] = subprocess.Popen([python, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                                env=dict(os.environ, PYTHONPATH=python_path, PATH="/usr/bin:/bin:/usr/sbin:/sbin"))
        return starters[python]

    def run(name, arguments, check=False, diff=False, python=sys.executable, user=None, umask=0o022):
        with open(streams[0], "w") as stream:
            json.dump({"ANSIBLE_MODULE_ARGS": dict(arguments, _ansible_check_mode=check, _ansible_diff=diff)}, stream)
        process = starter(python)
        process.stdin.write(json.dumps({
            "module": "ansible_collections.ckpt.torque.plugins.modules." + name, "streams": streams, "umask": umask,
            "user": [user.pw_uid, user.pw_gid] if user else None, "directory": "/" if user else str(directory)}) + "\n")
        process.stdin.flush()
        status = os.waitstatus_to_exitcode(int(process.stdout.readline()))
        output, error = [pathlib.Path(path).read_text() for path in streams[1:]]
        try:
            answer = json.loads(output)
        except ValueError:
            pytest.fail("%s gave no answer (status %d): %s%s" % (name, status, output, error))
        assert status == (1 if answer.get("failed") else 0), error
        answer.pop("invocation", None)  # ansible-core before 2.21 repeats the arguments
        return answer

    yield run
    for process in starters.values():
        process.communicate()


@pytest.fixture(scope="session")
def nobody():
    """The account of the ordinary user (pwd.struct_passwd)."""
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("this system has no user nobody")


@pytest.fixture(scope="session")
def everyones_python(nobody, python_path):
    """An interpreter (str) that an ordinary user can start and that finds ansible and the collection."""
    tried = [sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]
    for python in tried:
        identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        try:
            done = subprocess.run([python, "-c", "import ansible_collections.ckpt.torque.plugins.modules.engine_info"],
                                  env={"PYTHONPATH": python_path}, cwd="/", capture_output=True, **identity, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return python
    pytest.skip("user nobody can use none of %s with ansible and this checkout" % ", ".join(tried))


@pytest.fixture
def public_directory(processes_naming):
    """A directory (pathlib.Path) that every user can enter, unlike tmp_path."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="ckpt-torque-test-"))
    path.chmod(0o755)
    yield path
    for pid in processes_naming(path):  # what a test that failed left
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def processes_naming():
    """Return the pids (list of int) of processes with a text in their command line or environment: processes_naming(text)."""
    def list_pids(text):
        pids = []
        for entry in os.listdir("/proc"):
            for name in ("cmdline", "environ"):
                try:
                    with open("/proc/%d/%s" % (int(entry), name), "rb") as stream:
                        if str(text).encode() in stream.read():
                            pids.append(int(entry))
                            break
                except (OSError, ValueError):
                    break
        return pids
    return list_pids


@pytest.fixture(scope="session")
def program():
    """Write an executable file: program(path, text)."""
    def write(path, text):
        path.write_text(text)
        path.chmod(0o755)
        return str(path)
    return write
