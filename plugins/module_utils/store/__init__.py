"""What a checkpoint store really is."""
