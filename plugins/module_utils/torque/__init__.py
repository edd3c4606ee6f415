"""What modules know of TORQUE: its server, its nodes, pbs_mom's configuration, its commands."""
