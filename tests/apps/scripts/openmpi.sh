mpicc.openmpi -O1 -DSTEPS=${STEPS:-1000} -o program program.c || exit 1
mpirun.openmpi --oversubscribe -n 4 ./program
