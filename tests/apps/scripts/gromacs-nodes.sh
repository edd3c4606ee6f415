/usr/local/bin/ckpt-run --checkpoint 'pkill -TERM -P $CKPT_RUN_PID gmx_mpi' --restart '{command} -cpi' -- \
  mpirun.openmpi --leave-session-attached -n 4 gmx_mpi -quiet mdrun -s run.tpr -deffnm run -ntomp 1 -nb cpu -pin off -reprod -npme 0 \
  -v -stepout 50 2>&1 | stdbuf -oL tr '\r' '\n' | grep --line-buffered -o 'step [0-9]*,'
gmx -quiet dump -f run.trr > frames.txt 2> /dev/null
