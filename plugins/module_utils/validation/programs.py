# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the job of a round trip of level L3 runs. The output of each program is that of workload.PROGRAM, so all are judged alike."""

from ..torque_ckpt.selftest import workload
from . import evidence

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Sequence


class Program:
    """What a job runs.

    :param name: of its source in the job's directory
    :param source: the text
    :param command: shell command that runs it, as evidence.build_script takes it
    :param needs: names of the commands that each node must have
    :param routes: whose words the second and the third word of its lines are, as workload.Evidence takes them
    """

    def __init__(self, name: str, source: str, command: str, needs: "Sequence[str]" = (),
                 routes: "tuple[str, str]" = workload.ROUTES) -> None:
        self.name, self.source, self.command, self.needs, self.routes = name, source, command, needs, routes


COUNTER = Program("program.py", workload.PROGRAM, evidence.COMMAND)
"""The program of all levels, whose processes are in the image."""

# What the programs below have in common: how a line is written and how long they take between two.
_HEAD = '''\
import ctypes, os, sys
stop_file, tick, status = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
usleep = ctypes.CDLL(None).usleep
counter, secret = 0, os.urandom(8).hex()
def write_line(first, second):
    os.write(1, ("%d %d %d %s\\n" % (counter, first, second, secret)).encode())
    usleep(int(tick * 1e6))
'''
_TAIL = '''\
os.write(1, ("end %d\\n" % counter).encode())
os._exit(status)
'''

_FILES = '''\
import struct
growing = os.open("growing", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
table = os.open("table", os.O_CREAT | os.O_RDWR, 0o600)
os.pwrite(table, bytes(4096), 0)
while not os.path.exists(stop_file):
    counter += 1
    os.write(growing, b"%15d\\n" % counter)
    os.pwrite(table, struct.pack("<q", counter), counter % 512 * 8)
    numbers = struct.unpack("<512q", os.pread(table, 4096, 0))
    wanted = [number for number in range(max(1, counter - 511), counter + 1)]
    write_line(os.path.getsize("growing") / 16, max(numbers) if sorted(filter(None, numbers)) == wanted else 0)
with open("growing") as stream:
    if [int(line) for line in stream] != list(range(1, counter + 1)):
        status = 1
'''
FILES = Program("program.py", _HEAD + _FILES + _TAIL, "cd {work} && python3 program.py stop {tick} {status}",
                routes=("the file that grows says", "the file that is changed in place says"))

_TIMERS = '''\
import signal
alarms, calls = [0], [0]
def count(number, frame):
    (alarms if number == signal.SIGALRM else calls)[0] += 1
reader, writer = os.pipe()
caller, parent = os.fork(), os.getpid()
if caller == 0:
    os.close(writer)
    while os.read(reader, 1):
        os.kill(os.getppid(), signal.SIGUSR1)
    os._exit(0)
os.close(reader)
signal.signal(signal.SIGALRM, count)
signal.signal(signal.SIGUSR1, count)
while not os.path.exists(stop_file):
    counter += 1
    signal.setitimer(signal.ITIMER_REAL, tick)
    os.write(writer, b"x")
    while alarms[0] < counter or calls[0] < counter:
        usleep(1000)
    write_line(alarms[0], calls[0])
'''
TIMERS = Program("program.py", _HEAD + _TIMERS + _TAIL, evidence.COMMAND, routes=("the timer says", "the other process says"))

_CONNECTIONS = '''\
import socket
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(2)
if os.fork() == 0:
    first, second = listener.accept()[0], listener.accept()[0]
    while True:
        word = first.recv(64)
        if not word:
            os._exit(0)
        first.sendall(word)
        second.sendall(second.recv(64))
ends = [socket.create_connection(listener.getsockname()) for number in range(2)]
while not os.path.exists(stop_file):
    counter += 1
    for end in ends:
        end.sendall(b"%d" % counter)
    write_line(*[int(end.recv(64)) for end in ends])
'''
CONNECTIONS = Program("program.py", _HEAD + _CONNECTIONS + _TAIL, evidence.COMMAND,
                      routes=("the first connection says", "the second connection says"))

_MEMORY = '''\
import time, zlib
blocks = [os.urandom(1 << 20) for number in range(int(sys.argv[4]))]
sums = [zlib.crc32(block) for block in blocks]
begun, file = time.monotonic(), os.open("throughput", os.O_CREAT | os.O_WRONLY, 0o600)
for block in blocks:
    os.write(file, block)
os.fsync(file)
os.close(file)
with open("rate", "w") as stream:
    stream.write("%d" % ((len(blocks) << 20) / (time.monotonic() - begun)))
os.unlink("throughput")
def is_whole(number):
    return zlib.crc32(blocks[number % len(blocks)]) == sums[number % len(blocks)]
while not os.path.exists(stop_file):
    counter += 1
    write_line(counter * is_whole(counter), counter * is_whole(-counter))
if not all(map(is_whole, range(len(blocks)))):
    status = 1
'''
MEMORY = Program("program.py", _HEAD + _MEMORY + _TAIL, "cd {work} && python3 program.py stop {tick} {status} {memory}",
                 routes=("the memory says", "the other end of the memory says"))

_PAUSABLE = '''\
numbers = []
while not os.path.exists(stop_file):
    if os.path.exists("pause"):
        if not os.path.exists("paused"):
            open("paused", "w").close()
        usleep(int(tick * 1e6))
        continue
    counter += 1
    numbers.append(counter)
    write_line(len(numbers), max(numbers))
'''
PAUSABLE = Program("program.py", _HEAD + _PAUSABLE + _TAIL, "cd {work} && python3 program.py stop {tick} {status}",
                   routes=("the length of the list says", "the end of the list says"))
"""It prints nothing while the file pause exists, and creates the file paused."""

# It ends with another status than the job when it was asked for its file, and its secret is in the file only. It notes each of its starts.
# With a path of pbsdsh it has each node of the job print numbers, too, which continue from files of theirs.
_RESTARTABLE = '''\
import os, signal, subprocess, sys, time
stop_file, tick, status = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
numbers = "cd $1; n=$(cat number.$PBS_NODENUM 2> /dev/null || echo 0); while [ ! -e leave ]; do n=$((n+1)); echo node $PBS_NODENUM $n; " \\
          "sleep 0.1; done; echo $n > part.$PBS_NODENUM; mv part.$PBS_NODENUM left.$PBS_NODENUM"
pbsdsh, others = sys.argv[4:], None
def end_others():
    with open(os.environ["PBS_NODEFILE"]) as stream:
        nodes = range(len(set(stream.read().split())))
    open("leave", "w").close()
    while not all(os.path.exists("left.%d" % node) for node in nodes):
        time.sleep(tick)
    for node in nodes:
        os.rename("left.%d" % node, "number.%d" % node)
    others.kill()
    others.wait()
request, asked = "request.%d" % os.getpid(), []
signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
counter, secret = 0, os.urandom(8).hex()
if os.path.exists("state"):
    with open("state") as stream:
        first, secret = stream.read().split()
    counter = int(first)
with open("starts", "a") as stream:
    stream.write("%d\\n" % counter)
if pbsdsh:
    if os.path.exists("leave"):
        os.unlink("leave")
    others = subprocess.Popen(pbsdsh + ["/bin/sh", "-c", numbers, "numbers", os.getcwd()])
while not os.path.exists(stop_file):
    if asked or os.path.exists(request):
        if others:
            end_others()
        with open("state.new", "w") as stream:
            stream.write("%d %s\\n" % (counter, secret))
        os.rename("state.new", "state")
        if os.path.exists(request):
            os.unlink(request)  # the next one may have the same process id
        os._exit(3)
    counter += 1
    os.write(1, ("%d %d %d %s\\n" % (counter, counter, counter, secret)).encode())
    time.sleep(tick)
if others:
    end_others()
os.write(1, ("end %d\\n" % counter).encode())
os._exit(status)
'''

_NESTED = "cd {work} && {ckpt_run} %s --file state -- python3 program.py stop {tick} {status}"

NESTED_SIGNAL = Program("program.py", _RESTARTABLE, _NESTED % "--signal TERM")
MULTINODE_OUTPUT = Program("program.py", _RESTARTABLE, _NESTED % "--signal TERM" + " {commands}/pbsdsh")
NESTED_COMMAND = Program("program.py", _RESTARTABLE, _NESTED % "--checkpoint 'touch request.$CKPT_RUN_PID'")

_RANKS = 4

# Each rank has a secret and a counter of its own, so that one that starts anew or misses a step changes the lines of rank 0.
_MPI_SOURCE = '''\
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS = %d };

static unsigned long divide(unsigned long sum)
{
    return sum %% RANKS ? 0 : sum / RANKS;
}

int main(int count, char **arguments)
{
    unsigned long counter = 0, secret = 0, secrets, passed, sum;
    int rank, size, stop = 0;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    FILE *stream = fopen("/dev/urandom", "r");
    if (count != 3 || size != RANKS || !stream || fread(&secret, sizeof secret, 1, stream) != 1)
        MPI_Abort(MPI_COMM_WORLD, 1);
    fclose(stream);
    while (1) {
        if (rank == 0)
            stop = access(arguments[1], F_OK) == 0;
        MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (stop)
            break;
        counter++;
        passed = 0;
        if (rank > 0)
            MPI_Recv(&passed, 1, MPI_UNSIGNED_LONG, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        passed += counter;
        MPI_Send(&passed, 1, MPI_UNSIGNED_LONG, (rank + 1) %% RANKS, 0, MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Recv(&passed, 1, MPI_UNSIGNED_LONG, RANKS - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(&counter, &sum, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(&secret, &secrets, 1, MPI_UNSIGNED_LONG, MPI_BXOR, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("%%lu %%lu %%lu %%lx\\n", counter, divide(passed), divide(sum), secrets);
            fflush(stdout);
        }
        usleep(atof(arguments[2]) * 1e6);
    }
    if (rank == 0) {
        printf("end %%lu\\n", counter);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
''' % _RANKS

# A launcher reports a rank's exit status in words on stdout, so the ranks end with 0 and the job with its own.
_MPI_COMMAND = """\
cd {work} && mpicc.%(mpi)s -o program program.c 2> compiler || {{
    echo "mpicc.%(mpi)s on $(uname -n) cannot compile a program: $(head -n 1 compiler)" > obstacle
    exit 1
}}
{{ mpiexec.%(mpi)s%(options)s -n %(ranks)d ./program stop {tick} && exit {status}; }}"""


def _build_mpi_program(mpi: str, options: str = "") -> Program:
    """Return the program of four ranks, compiled and started by the commands of an MPI (their suffix)."""
    return Program("program.c", _MPI_SOURCE, _MPI_COMMAND % {"mpi": mpi, "options": options, "ranks": _RANKS},
                   needs=["mpicc." + mpi, "mpiexec." + mpi], routes=("the message around the ranks says", "the sum over all ranks says"))


MPICH = _build_mpi_program("mpich")
OPEN_MPI = _build_mpi_program("openmpi", " --oversubscribe")
