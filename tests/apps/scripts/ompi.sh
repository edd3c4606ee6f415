export PATH=/opt/openmpi/bin:$PATH LD_LIBRARY_PATH=/opt/openmpi/lib
cat > program.c <<'EOF'
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 1000, STEPS = 180 };

/* The data at the begin of a step. Two ranks are at most one step apart, so each keeps its last two. */
typedef struct { int step; double data[LENGTH]; } State;
typedef struct { State states[2]; int printed; } Memory;

static Memory memory = {{{-1}, {-1}}, -1};
static int rank, checkpoints, restarted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Open MPI calls these, possibly in a thread of its own. What continues is this command, so each checkpoint has files of its own. */
int opal_crs_self_user_checkpoint(char **restart_command)
{
    char name[60];
    sprintf(name, "state.%d.%d.%d", rank, (int)getpid(), ++checkpoints);
    pthread_mutex_lock(&lock);
    FILE *stream = fopen(name, "w");
    int written = stream && fwrite(&memory, sizeof memory, 1, stream) == 1;
    pthread_mutex_unlock(&lock);
    if (stream && fclose(stream) == 0 && written && (*restart_command = malloc(80)))
        sprintf(*restart_command, "./program %s", name);
    return 0;
}

int opal_crs_self_user_continue(void)
{
    return 0;
}

int opal_crs_self_user_restart(void)
{
    restarted = 1;
    return 0;
}

static void keep(int step, const double *data)
{
    pthread_mutex_lock(&lock);
    memory.states[step % 2].step = step;
    memcpy(memory.states[step % 2].data, data, sizeof memory.states[0].data);
    pthread_mutex_unlock(&lock);
}

static void print(int step, double total)
{
    pthread_mutex_lock(&lock);
    if (step > memory.printed) {
        printf("%d %.12e\n", step, total);
        fflush(stdout);
        memory.printed = step;
    }
    pthread_mutex_unlock(&lock);
}

/* Return the step at which all ranks continue. */
static int load(const char *name, double *data)
{
    FILE *stream = fopen(name, "r");
    if (!restarted || !stream || fread(&memory, sizeof memory, 1, stream) != 1)
        MPI_Abort(MPI_COMM_WORLD, 1);
    int newest = memory.states[0].step > memory.states[1].step ? memory.states[0].step : memory.states[1].step, step;
    MPI_Allreduce(&newest, &step, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (step < 0 || memory.states[step % 2].step != step)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memcpy(data, memory.states[step % 2].data, sizeof memory.states[0].data);
    return step;
}

int main(int count, char **arguments)
{
    static double data[LENGTH], received[LENGTH];
    int size, step = 0;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < LENGTH; i++)
        data[i] = rank + i * 1e-5;
    if (count > 1)
        step = load(arguments[1], data);
    for (; step < STEPS; step++) {
        double sum = 0, total;
        keep(step, data);
        for (int turn = 0; turn < 10; turn++) {
            MPI_Sendrecv(data, LENGTH, MPI_DOUBLE, (rank + 1) % size, 0, received, LENGTH, MPI_DOUBLE, (rank + size - 1) % size, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int i = 0; i < LENGTH; i++)
                data[i] = 0.7 * received[i] + 0.3 * data[(i * 7) % LENGTH] + 1e-3 * rank;
        }
        for (int i = 0; i < LENGTH; i++)
            sum += data[i];
        MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        usleep(500000);
        if (rank == 0)
            print(step, total);
    }
    char name[20];
    sprintf(name, "result.%d", rank);
    FILE *stream = fopen(name, "w");
    fwrite(data, sizeof data, 1, stream);
    fclose(stream);
    MPI_Finalize();
    return 0;
}
EOF
mpicc -O1 -rdynamic -o program program.c -lpthread || exit 1
/usr/local/bin/ckpt-run --method ompi -- mpirun -am ft-enable-cr -np 4 ./program
