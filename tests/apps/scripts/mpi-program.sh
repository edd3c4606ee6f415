cat > program.c <<'EOF'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 100000 };

int main(int count, char **arguments)
{
    static double data[LENGTH], received[LENGTH];
    int rank, size;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < LENGTH; i++)
        data[i] = rank + i * 1e-5;
    for (int step = 0; step < STEPS; step++) {
        double sum = 0, total;
        for (int turn = 0; turn < 10; turn++) {
            MPI_Sendrecv(data, LENGTH, MPI_DOUBLE, (rank + 1) % size, 0, received, LENGTH, MPI_DOUBLE, (rank + size - 1) % size, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int i = 0; i < LENGTH; i++)
                data[i] = 0.7 * received[i] + 0.3 * data[(i * 7) % LENGTH] + 1e-3 * rank;
        }
        for (int i = 0; i < LENGTH; i++)
            sum += data[i];
        MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("%d %.12e\n", step, total);
            fflush(stdout);
        }
    }
    char name[20];
    sprintf(name, "result.%d", rank);
    FILE *stream = fopen(name, "w");
    fwrite(data, sizeof data, 1, stream);
    fclose(stream);
    MPI_Finalize();
}
EOF
