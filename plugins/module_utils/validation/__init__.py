"""Round trips that prove checkpoint and restart, and their report."""
