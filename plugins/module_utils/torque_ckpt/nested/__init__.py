"""Programs that take part in a checkpoint: ckpt-run starts them, and a checkpoint asks it to end them, or to prepare them for the image."""
