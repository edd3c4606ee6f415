cat > program.c <<'EOF'
#include <omp.h>
#include <stdio.h>

enum { SIZE = 600 };
static double a[SIZE][SIZE], b[SIZE][SIZE], c[SIZE][SIZE];

int main(void)
{
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++)
            a[i][j] = (i * 7 + j) % 11, b[i][j] = (i + j * 3) % 13;
    for (int step = 0; step < 60; step++) {
        long threads = 0;
        #pragma omp parallel reduction(+: threads)
        {
            threads += 1;
            #pragma omp for schedule(dynamic, 8)
            for (int i = 0; i < SIZE; i++)
                for (int j = 0; j < SIZE; j++) {
                    double sum = 0;
                    for (int k = 0; k < SIZE; k++)
                        sum += a[i][k] * b[k][j];
                    c[i][j] = sum;
                }
            #pragma omp for
            for (int i = 0; i < SIZE; i++)
                for (int j = 0; j < SIZE; j++)
                    a[i][j] = (long)(c[i][j] + step) % 17;
        }
        double total = 0;
        for (int i = 0; i < SIZE; i++)
            for (int j = 0; j < SIZE; j++)
                total += c[i][j] * (i + 1);
        printf("%d %ld threads %.0f\n", step, threads, total);
        fflush(stdout);
    }
}
EOF
gcc -O1 -fopenmp -o program program.c && OMP_NUM_THREADS=2 OMP_DYNAMIC=false ./program
