"""The programs that `make apps` runs, as data: what a job does is in scripts/, what differs from program to program is here.

A script runs in a directory of its own on the shared file system, writes a line to stdout whenever it has come further, and works for
about half a minute. Its output, its files and its exit status depend on nothing but the script.
"""
import os
import pathlib
import re
from collections import namedtuple

SCRIPTS = pathlib.Path(__file__).parent / "scripts"

Program = namedtuple("Program", "name packages version scripts files normalise settings refused moves nodes title source options")
"""One program.

name       str: for APPS and the tests
packages   str: Debian packages
version    str: command that prints its version, which is the first number with a dot
scripts    list of str: names of the files in scripts/ that are its job, one after the other
files      str: files in the job's directory whose content is compared
normalise  function that takes from what the job printed (str) what differs between two runs
settings   str: what a user has to set, Markdown
moves      int: how often it is moved
nodes      int: how many nodes its job has; on more than one it needs TORQUE
refused    str: part of the sentence with which its checkpoint is refused; "" if it moves
title      str: what the table calls it
source     str: NAME-VERSION of a release tarball without a Debian package, which is built into /opt/NAME; "" for none
options    str: further arguments of its configure, as a shell takes them
"""


def without(expression):
    """Return a function that removes the lines that match an expression, and what matches within others is kept."""
    pattern = re.compile(expression)
    return lambda text: "".join(line for line in text.splitlines(True) if not pattern.search(line))


def sort_lines(text):
    """Return the lines in alphabetical order: processes at the same time print them in any."""
    return "".join(sorted(text.splitlines(True)))


def keep_text(text):
    return text


def _program(name, title, packages, version, files="", normalise=keep_text, settings="", refused="", scripts=None,
             moves=2, nodes=1, source="", options=""):
    return Program(name, packages, version, [script + ".sh" for script in scripts or [name]], files, normalise, settings, refused,
                   moves, nodes, title, source, options)


def read_job(program):
    """Return the text of a program's job (str)."""
    return "".join((SCRIPTS / script).read_text() for script in program.scripts)


def find_source(program):
    """Return the tarball (pathlib.Path) of a program without a Debian package."""
    cache = os.environ.get("CKPT_TORQUE_CACHE") or os.path.expanduser("~/.cache/ckpt-torque")
    return pathlib.Path(cache) / "sources" / (program.source + ".tar.gz")


PYTHON = "python3 --version"
OLD_OPENMPI = "--with-ft=cr --enable-opal-multi-threads --without-blcr --without-openib --without-tm --without-slurm --disable-mpi-cxx " \
              "--disable-mpi-f77 --disable-mpi-f90 --disable-io-romio --disable-vt CFLAGS='-O1 -std=gnu89 -fcommon -fpermissive -w'"
LAMMPS_TIMES = "^( *create_atoms CPU|Loop time|Performance|Total wall|[0-9.]+% CPU|Pair |Neigh |Comm |Output |Modify |Other )"

PROGRAMS = [
    _program("numpy", "NumPy and SciPy, threads of OpenBLAS and of FFT", "python3-numpy python3-scipy libopenblas0-pthread",
             "python3 -c 'import numpy; print(numpy.__version__)'", "matrix.npy"),
    _program("r", "R", "r-base-core", "Rscript --version", "result.rds"),
    _program("java-serial", "OpenJDK, serial collector", "openjdk-21-jdk-headless", "java --version"),
    _program("java-g1", "OpenJDK, G1 collector, threads", "openjdk-21-jdk-headless", "java --version"),
    _program("node", "Node.js, worker threads", "nodejs", "node --version", "result.json", refused="has an io_uring open"),
    _program("node-preload", "Node.js, worker threads, io_uring turned off", "nodejs gcc libc6-dev", "node --version", "result.json",
             settings="`LD_PRELOAD` of a library in which `syscall(SYS_io_uring_setup)` fails with `ENOSYS` "
                      "([io-uring-off.sh](../../tests/apps/scripts/io-uring-off.sh)); `UV_USE_IO_URING=0` is not enough with libuv 1.50",
             scripts=["io-uring-off", "node"]),
    _program("sqlite", "SQLite in WAL mode, a writer and a reader", "sqlite3", "sqlite3 --version", "dump.sql"),
    _program("ffmpeg", "ffmpeg with x264, threads", "ffmpeg", "ffmpeg -version", "video.mkv", without(r"^\w+=")),
    _program("lammps", "LAMMPS, serial", "lammps", "dpkg-query -W -f '${Version}' lammps", "final.data",
             without(LAMMPS_TIMES), scripts=["lammps-input", "lammps"]),
    _program("lammps-mpi", "LAMMPS, Open MPI, 4 ranks", "lammps openmpi-bin", "dpkg-query -W -f '${Version}' lammps", "final.data",
             without(LAMMPS_TIMES), scripts=["lammps-input", "lammps-mpi"], moves=5),
    _program("lammps-restart", "LAMMPS, Open MPI, 4 ranks, by its own restart files", "lammps openmpi-bin",
             "dpkg-query -W -f '${Version}' lammps", "steps.txt", lambda text: "", settings="`ckpt-run --method lammps`",
             scripts=["lammps-restart-input", "lammps-restart"]),
    _program("lammps-nodes", "LAMMPS, Open MPI, 4 ranks on two nodes, by its own restart files", "lammps openmpi-bin",
             "dpkg-query -W -f '${Version}' lammps", "steps.txt", lambda text: "",
             settings="`ckpt-run --method lammps`, see [parallel-jobs.md](../parallel-jobs.md#jobs-on-several-nodes)",
             scripts=["lammps-restart-input", "on-node", "lammps-nodes"], nodes=2),
    _program("gromacs", "GROMACS, thread-MPI", "gromacs", "gmx --version -quiet | grep 'GROMACS version'", "frames.txt energies.txt",
             scripts=["gromacs-input", "gromacs"]),
    _program("gromacs-restart", "GROMACS, by its own checkpoints", "gromacs", "gmx --version -quiet | grep 'GROMACS version'", "frames.txt",
             lambda text: "", settings="`ckpt-run --method gromacs`", scripts=["gromacs-input", "gromacs-restart"]),
    _program("gromacs-nodes", "GROMACS, Open MPI, 4 ranks on two nodes, by its own checkpoints", "gromacs openmpi-bin",
             "gmx --version -quiet | grep 'GROMACS version'", "frames.txt", lambda text: "",
             settings="`ckpt-run`, see [parallel-jobs.md](../parallel-jobs.md#jobs-on-several-nodes)",
             scripts=["gromacs-input", "on-node", "gromacs-nodes"], nodes=2),
    _program("dmtcp", "Python and Perl with pipes between them, by DMTCP", "g++ make python3 perl", "/opt/dmtcp/bin/dmtcp_launch --version",
             "result.txt", settings="`ckpt-run --method dmtcp`", moves=5, source="dmtcp-4.2.0"),
    _program("ompi", "Open MPI with ompi-checkpoint, 4 ranks", "g++ make flex", "/opt/openmpi/bin/mpirun --version", "result.*",
             without("Error: Thread registration failed$"),
             settings="`ckpt-run --method ompi`, see [parallel-jobs.md](../parallel-jobs.md#open-mpi-13-to-16)", moves=5,
             source="openmpi-1.6.5", options=OLD_OPENMPI),
    _program("mpich", "MPICH, 4 ranks", "mpich libmpich-dev gcc libc6-dev", "mpiexec.mpich --version | grep Version:", "result.*",
             scripts=["mpi-program", "mpich"], moves=5),
    _program("openmpi", "Open MPI, 4 ranks", "openmpi-bin libopenmpi-dev gcc libc6-dev", "mpirun.openmpi --version", "result.*",
             scripts=["mpi-program", "openmpi"], moves=5),
    _program("mpich-threads", "MPICH, 4 ranks with 2 threads each, bound to cores", "mpich libmpich-dev gcc libc6-dev libgomp1",
             "mpiexec.mpich --version | grep Version:", "result.* affinity.*", scripts=["mpi-threads", "mpich-threads"], moves=5),
    _program("openmpi-nodes", "Open MPI, 4 ranks on two nodes, by restart files", "openmpi-bin libopenmpi-dev gcc libc6-dev",
             "mpirun.openmpi --version", "result.*", without(r"^pbsdsh\(\): "),
             settings="`ckpt-run`, see [parallel-jobs.md](../parallel-jobs.md#jobs-on-several-nodes)",
             scripts=["mpi-program", "on-node", "openmpi-nodes"], moves=5, nodes=2),
    _program("make", "make -j2 with gcc", "make gcc libc6-dev", "make --version", "program all.o", sort_lines),
    _program("pipelines", "pipelines of bash, awk, perl, sort", "bash gawk perl coreutils", "bash --version", "sorted.txt",
             settings="`TMPDIR` on a shared file system, since sort closes its temporary files"),
    _program("random-writes", "random writes in place, on a shared file system and in the node's /tmp", "python3", PYTHON,
             "here.bin there.bin"),
    _program("asyncio", "Python asyncio, unix sockets and threads", "python3", PYTHON, "result.txt"),
    _program("multiprocessing", "Python multiprocessing, pool, queue and locks", "python3", PYTHON, "result.txt"),
    _program("multiprocessing-spawn", "the same with the start method spawn: named semaphores", "python3", PYTHON, "result.txt"),
    _program("timers", "interval timers, timerfd, alarm in Python and Perl", "python3 perl", PYTHON),
    _program("mappings", "shared mappings: removed file, memfd, /dev/shm", "python3", PYTHON, "result.bin"),
    _program("xz", "xz, threads", "xz-utils", "xz --version", "text.xz", without("works$"), refused="has confined itself (by Landlock"),
    _program("7zip", "7-Zip, threads, which writes the format of xz", "7zip", "7z i | head -3", "text.xz", without("works$")),
    _program("flock-fifo", "flock and FIFOs between shells", "util-linux bash", "flock --version", "log.txt"),
    _program("expect", "a program on a pty, by expect", "expect bc", "expect -v"),
    _program("bc", "bc", "bc", "bc --version"),
    _program("openmp", "OpenMP of gcc, 2 threads", "gcc libc6-dev libgomp1", "gcc --version"),
    _program("jupyter", "Jupyter kernel and its client", "python3-ipykernel python3-jupyter-client",
             "python3 -c 'import ipykernel; print(ipykernel.__version__)'", "result.txt"),
    _program("dask", "Dask LocalCluster, 2 workers as processes", "python3-distributed",
             "python3 -c 'import distributed; print(distributed.__version__)'", "result.txt"),
    _program("stress-ng", "stress-ng: cpu, vm, pipe, futex, switch", "stress-ng", "stress-ng --version",
             normalise=lambda text: re.sub(r"\d+\.\d+ secs?|\[\d+\]", "-", text)),
]
