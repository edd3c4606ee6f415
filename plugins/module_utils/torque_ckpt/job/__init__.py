"""A job on this node: its processes, root's records of it, and what keeps it whole."""
