"""Where images lie, on which nodes, and how they get there."""
