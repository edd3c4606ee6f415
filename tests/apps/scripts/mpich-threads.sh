mpicc.mpich -O1 -fopenmp -DSTEPS=${STEPS:-2500} -o program program.c || exit 1
mpiexec.mpich -bind-to core -n 4 ./program
