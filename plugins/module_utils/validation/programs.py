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
