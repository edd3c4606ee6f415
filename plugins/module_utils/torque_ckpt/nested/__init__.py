"""Programs that write restart files of their own: ckpt-run starts them, and a checkpoint asks it to end them."""
