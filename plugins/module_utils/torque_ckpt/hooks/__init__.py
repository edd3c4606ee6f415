"""What pbs_mom starts: one file for each installed program, and what several of them share."""
