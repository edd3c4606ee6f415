export OMP_NUM_THREADS=1 GMX_MAXBACKUP=-1
cat > topol.top <<'EOF'
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
water
[ molecules ]
EOF
cat > grompp.mdp <<'EOF'
integrator = md
nsteps = 2000
dt = 0.001
nstxout = 500
nstenergy = 100
coulombtype = PME
tcoupl = v-rescale
tc-grps = System
tau-t = 0.1
ref-t = 300
gen-vel = yes
gen-seed = 5
ld-seed = 5
EOF
gmx -quiet solvate -cs spc216 -box 2.4 2.4 2.4 -o conf.gro -p topol.top > prepare.log 2>&1 &&
gmx -quiet grompp -f grompp.mdp -c conf.gro -p topol.top -o run.tpr >> prepare.log 2>&1 || { cat prepare.log >&2; exit 1; }
