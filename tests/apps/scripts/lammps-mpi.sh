mpirun.openmpi --oversubscribe -n 4 lmp -in in.melt
