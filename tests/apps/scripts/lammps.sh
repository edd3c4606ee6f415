stdbuf -oL lmp -in in.melt
