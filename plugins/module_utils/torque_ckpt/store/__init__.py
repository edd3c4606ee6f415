"""Where images are stored, on which nodes, and how they are transferred."""
