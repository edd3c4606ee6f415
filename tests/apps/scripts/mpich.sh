mpicc.mpich -O1 -DSTEPS=${STEPS:-600} -o program program.c || exit 1
mpiexec.mpich -n 4 ./program
