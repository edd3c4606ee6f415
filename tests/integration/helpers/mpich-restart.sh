# Four ranks over the nodes of the job, started by pbs_mom. At SIGTERM they write restart files and end.
cat > start <<'EOF'
rm -f leave
trap 'touch leave; wait $pid; exit 3' TERM
mpiexec.mpich -f $PBS_NODEFILE -launcher rsh -launcher-exec $PWD/on-node -n 4 ./program & pid=$!
wait $pid
EOF
mpicc.mpich -O1 -DSTEPS=${STEPS:-600} -o program program.c || exit 1
/usr/local/bin/ckpt-run -- sh ./start
