/usr/local/bin/ckpt-run --method lammps -- mpirun.openmpi --oversubscribe -n 4 lmp -in in.melt | grep --line-buffered '^ *[0-9]'
grep . steps.txt | uniq > steps && mv steps steps.txt
