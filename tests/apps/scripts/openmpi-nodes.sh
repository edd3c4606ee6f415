cat > start <<'EOF'
rm -f leave
trap 'touch leave; wait $pid; exit 3' TERM
mpirun.openmpi --leave-session-attached -n 4 ./program & pid=$!
wait $pid
EOF
mpicc.openmpi -O1 -DSTEPS=${STEPS:-600} -o program program.c || exit 1
/usr/local/bin/ckpt-run -- sh ./start
