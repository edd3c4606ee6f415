export OMP_NUM_THREADS=2
cat > program.c <<'EOF'
#define _GNU_SOURCE
#include <mpi.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 40000 };

/* Each rank notes on which CPUs it may run, at the beginning and at the end. */
static void note_cpus(int rank)
{
    char name[20];
    cpu_set_t cpus;
    sprintf(name, "affinity.%d", rank);
    FILE *stream = fopen(name, "a");
    sched_getaffinity(0, sizeof cpus, &cpus);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus))
            fprintf(stream, " %d", cpu);
    fprintf(stream, "\n");
    fclose(stream);
}

int main(int count, char **arguments)
{
    static double data[LENGTH], next[LENGTH];
    int rank, size, level;
    MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (level < MPI_THREAD_MULTIPLE)
        MPI_Abort(MPI_COMM_WORLD, 1);
    note_cpus(rank);
    for (int i = 0; i < LENGTH; i++)
        data[i] = rank + i * 1e-5;
    for (int step = 0; step < STEPS; step++) {
        double sum = 0, total;
        for (int turn = 0; turn < 10; turn++) {
            /* Each thread exchanges a half of its own with the neighbours' same thread. */
            #pragma omp parallel num_threads(2)
            {
                int thread = omp_get_thread_num(), first = thread * LENGTH / 2;
                MPI_Sendrecv(data + first, LENGTH / 2, MPI_DOUBLE, (rank + 1) % size, thread, next + first, LENGTH / 2, MPI_DOUBLE,
                             (rank + size - 1) % size, thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                #pragma omp barrier
                for (int i = first; i < first + LENGTH / 2; i++)
                    data[i] = 0.7 * next[i] + 0.3 * next[(i * 7) % LENGTH] + 1e-3 * rank;
            }
        }
        for (int i = 0; i < LENGTH; i++)
            sum += data[i];
        MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("%d %.12e\n", step, total);
            fflush(stdout);
        }
    }
    note_cpus(rank);
    char name[20];
    sprintf(name, "result.%d", rank);
    FILE *stream = fopen(name, "w");
    fwrite(data, sizeof data, 1, stream);
    fclose(stream);
    MPI_Finalize();
}
EOF
