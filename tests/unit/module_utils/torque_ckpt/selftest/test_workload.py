"""workload: the real program's output is judged whole, a damaged one by the exact damage."""

import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.validation.fake_mom import wait_until
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest.workload import Evidence, PROGRAM


@pytest.fixture
def start(tmp_path):
    """Start the program; start(status) returns it (subprocess.Popen) with its output (pathlib.Path) and stop file (pathlib.Path)."""
    (tmp_path / "program.py").write_text(PROGRAM)
    output, stop = tmp_path / "output", tmp_path / "stop"
    started = []

    def run(status=7, **variables):
        with open(output, "ab") as stream:
            process = subprocess.Popen([sys.executable, str(tmp_path / "program.py"), str(stop), "0.001", str(status)],
                                       stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
                                       env=dict(os.environ, **variables))
        started.append(process)
        return process, output, stop

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def reached(output, counter):
    return wait_until(lambda: output.exists() and output.read_text().count("\n") >= counter, 20)


@pytest.mark.parametrize("status", [0, 7, 255])
def test_program_to_its_end(start, status):
    process, output, stop = start(status)
    assert reached(output, 20), output.read_text()
    stop.touch()
    assert process.wait(20) == status
    text = output.read_text()
    evidence = Evidence(text)
    assert evidence.problems == []
    assert evidence.ended is True
    lines = text.splitlines()
    assert evidence.counter == len(lines) - 1 >= 20
    secret = lines[0].split()[3]
    assert re.fullmatch("[0-9a-f]{16}", secret)
    assert lines[:-1] == ["%d %d %d %s" % (number, number, number, secret) for number in range(1, evidence.counter + 1)]
    assert lines[-1] == "end %d" % evidence.counter


def sockets(pid):
    """Return how many sockets a process has open (int)."""
    links = ["/proc/%d/fd/%s" % (pid, name) for name in os.listdir("/proc/%d/fd" % pid)]
    return sum(os.readlink(link).startswith("socket:") for link in links)


def test_program_under_cr_run_has_no_sockets(start, tmp_path):
    """BLCR brings none back. What cr_run has preloaded is known by its name; here it is another library."""
    library = next(line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "/libm" in line)
    shutil.copy(library, str(tmp_path / "libcr_run.so.0"))
    process, output, stop = start(LD_PRELOAD=str(tmp_path / "libcr_run.so.0"))
    assert reached(output, 20), output.read_text()
    assert sockets(process.pid) == 0
    stop.touch()
    assert process.wait(20) == 7
    evidence = Evidence(output.read_text())
    assert (evidence.problems, evidence.ended) == ([], True)


def test_program_has_sockets(start):
    process, output, _stop = start()
    assert reached(output, 1)
    assert sockets(process.pid) == 2


PIDFD_OPEN, PIDFD_GETFD = 434, 438  # the same numbers on all architectures


SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
DROP_ALL = struct.pack("HBBI", 6, 0, 0, 0)  # BPF: return 0 bytes


@pytest.fixture
def deafen():
    """Return a context manager in which another process's socket gets no datagrams: they are lost, as in a checkpoint."""
    libc = ctypes.CDLL(None, use_errno=True)

    @contextlib.contextmanager
    def deaf(pid, number):
        process = libc.syscall(PIDFD_OPEN, pid, 0)
        copied = libc.syscall(PIDFD_GETFD, process, number, 0)
        assert process >= 0 and copied >= 0, os.strerror(ctypes.get_errno())
        program = ctypes.create_string_buffer(DROP_ALL, len(DROP_ALL))
        with socket.socket(fileno=copied) as theirs:
            theirs.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))
            yield
            theirs.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        os.close(process)
    return deaf


def test_program_goes_on_without_a_datagram_that_was_on_its_way(start, deafen):
    """CRIU does not keep datagrams."""
    process, output, stop = start()
    assert reached(output, 1)
    numbers = [int(number) for number in os.listdir("/proc/%d/fd" % process.pid)]
    links = {number: os.readlink("/proc/%d/fd/%d" % (process.pid, number)) for number in numbers}
    with open("/proc/%d/net/udp" % process.pid) as stream:
        inodes = [line.split()[9] for line in stream]
    post = [number for number in numbers if links[number].startswith("socket:") and links[number][8:-1] in inodes]
    assert len(post) == 1
    with deafen(process.pid, post[0]):
        time.sleep(0.1)  # what had come before is over
        before = output.read_text().count("\n")
        time.sleep(0.5)
        assert output.read_text().count("\n") == before
    assert reached(output, before + 20), output.read_text()
    stop.touch()
    assert process.wait(20) == 7
    assert Evidence(output.read_text()).problems == []


def test_program_waits_for_no_point_in_time():
    """Such a wait, interrupted by a checkpoint, goes on until the clock of the next node says what the old one's would have said."""
    assert not re.search(r"time\.|timeout\(|wait\([^)]", PROGRAM)


def test_program_has_what_an_engine_must_carry(start):
    """Two processes, two threads, a pipe, unix sockets and an inet socket."""
    process, output, _stop = start()
    assert reached(output, 1)
    proc = "/proc/%d" % process.pid
    with open("%s/task/%d/children" % (proc, process.pid)) as stream:
        assert len(stream.read().split()) == 1
    assert len(os.listdir(proc + "/task")) == 2
    links = [os.readlink("%s/fd/%s" % (proc, entry)) for entry in os.listdir(proc + "/fd")]
    assert sorted(link.split(":")[0] for link in links if ":" in link) == ["pipe", "socket", "socket"]
    assert str(output) in links


def test_program_ended_half_way(start):
    process, output, _stop = start()
    assert reached(output, 5)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    evidence = Evidence(output.read_text())
    assert (evidence.problems, evidence.ended) == ([], False)
    assert evidence.counter >= 5


def test_program_started_anew_cannot_hide(start):
    first, output, stop = start()
    assert reached(output, 5)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = output.read_text().splitlines()
    second = start()[0]
    assert reached(output, len(before) + 5)
    stop.touch()
    assert second.wait(20) == 7
    lines = output.read_text().splitlines()
    old, new, number = before[0].split()[3], lines[-2].split()[3], len(before)
    evidence = Evidence(output.read_text())
    assert evidence.problems == ["counter 1 follows %d (repeat)" % number,
                                 "line %d comes from another process: its secret is %s, was %s" % (number + 1, new, old)]
    assert evidence.ended


GOOD = "1 1 1 aa\n2 2 2 aa\n3 3 3 aa\n"

# name, text, counter, ended, problems
JUDGED = [
    ("whole", GOOD + "end 3\n", 3, True, []),
    ("without an end", GOOD, 3, False, []),
    ("empty", "", 0, False, []),
    ("ended before the first number", "end 0\n", 0, True, []),
    ("gap", "1 1 1 aa\n3 3 3 aa\n4 4 4 aa\n", 4, False, ["counter 3 follows 1 (gap)"]),
    ("gap at the beginning", "2 2 2 aa\n", 2, False, ["counter 2 follows 0 (gap)"]),
    ("repeat", "1 1 1 aa\n2 2 2 aa\n2 2 2 aa\n3 3 3 aa\n", 3, False, ["counter 2 follows 2 (repeat)"]),
    ("step back", GOOD + "2 2 2 aa\n3 3 3 aa\n", 3, False, ["counter 2 follows 3 (repeat)"]),
    ("cut line", GOOD + "4 4", 3, False, ["line 4 is damaged: 4 4", "the last line is cut off"]),
    ("cut off after its last field", GOOD + "4 4 4 aa", 4, False, ["the last line is cut off"]),
    ("cut end", GOOD + "end 3", 3, True, ["the last line is cut off"]),
    ("line merged with the next", "1 1 1 aa2 2 2 aa\n2 2 2 aa\n", 2, False,
     ["line 1 is damaged: 1 1 1 aa2 2 2 aa", "counter 2 follows 0 (gap)"]),
    ("hole", "1 1 1 aa\n\0\0\0\0\n2 2 2 aa\n", 2, False, ["line 2 is damaged: \0\0\0\0"]),
    ("empty line", "1 1 1 aa\n\n2 2 2 aa\n", 2, False, ["line 2 is damaged: "]),
    ("other text", "Segmentation fault (core dumped)\n", 0, False, ["line 1 is damaged: Segmentation fault (core dumped)"]),
    ("long line", "x" * 200 + "\n", 0, False, ["line 1 is damaged: " + "x" * 80]),
    ("negative number", "-1 1 1 aa\n", 0, False, ["line 1 is damaged: -1 1 1 aa"]),
    ("other secret", "1 1 1 aa\n2 2 2 bb\n3 3 3 bb\n", 3, False, ["line 2 comes from another process: its secret is bb, was aa"]),
    ("thread behind", "1 1 1 aa\n2 2 1 aa\n3 3 3 aa\n", 3, False, ["line 2: pipe and sockets say 2, the thread says 1"]),
    ("sockets behind", "1 1 1 aa\n2 1 2 aa\n3 3 3 aa\n", 3, False, ["line 2: pipe and sockets say 1, the thread says 2"]),
    ("line after the end", GOOD + "end 3\n4 4 4 aa\n", 3, True, ["line 5 comes after the end: 4 4 4 aa"]),
    ("end twice", GOOD + "end 3\nend 3\n", 3, True, ["line 5 comes after the end: end 3"]),
    ("end of another counter", GOOD + "end 2\n", 3, False, ["line 4 is damaged: end 2"]),
    ("all at once", "1 1 1 aa\n5 4 3 bb\n", 5, False,
     ["counter 5 follows 1 (gap)", "line 2: pipe and sockets say 4, the thread says 3",
      "line 2 comes from another process: its secret is bb, was aa"]),
]


@pytest.mark.parametrize("text, counter, ended, problems", [case[1:] for case in JUDGED], ids=[case[0] for case in JUDGED])
def test_judgement(text, counter, ended, problems):
    evidence = Evidence(text)
    assert (evidence.problems, evidence.counter, evidence.ended) == (problems, counter, ended)


def test_ten_problems_are_enough():
    evidence = Evidence("damage\n" * 50)
    assert evidence.problems == ["line %d is damaged: damage" % number for number in range(1, 11)]


def test_words_of_another_program():
    assert Evidence("1 1 1 aa\n2 1 2 aa\n", ("this says", "that says")).problems == ["line 2: this says 1, that says 2"]


def test_digit_that_is_no_number():
    assert Evidence("\u00b2 1 1 aa\n").problems == ["line 1 is damaged: \u00b2 1 1 aa"]
