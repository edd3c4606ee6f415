export OMP_NUM_THREADS=1
cat > begin.in <<'EOF'
atom_style atomic
lattice fcc 0.8442
region box block 0 12 0 12 0 12
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
EOF
# A restart sums up forces in another order. The step is so short that this does not show in steps.txt.
cat > in.melt <<'EOF'
units lj
variable continue index no
if "${continue} == yes" then "read_restart lammps.restart" else "include begin.in"
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
timestep 0.001
fix 1 all nve
variable step equal step
variable energy equal temp
variable text format energy %.3f
fix steps all print 40 "${step} ${text}" append steps.txt screen no title ""
variable leave equal is_file(lammps.leave)
fix leave all halt 20 v_leave != 0 error continue message no
thermo_modify flush yes
thermo 40
run 2000 upto
if "$(step) < 2000" then "write_restart lammps.part" "shell mv lammps.part lammps.restart"
EOF
