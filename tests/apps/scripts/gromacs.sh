gmx -quiet mdrun -s run.tpr -deffnm run -ntmpi 2 -ntomp 1 -nb cpu -pin off -reprod -v -stepout 50 2>&1 |
  stdbuf -oL tr '\r' '\n' | grep --line-buffered -o '^step [0-9]*'
gmx -quiet dump -f run.trr > frames.txt 2> /dev/null
gmx -quiet dump -e run.edr > energies.txt 2> /dev/null
