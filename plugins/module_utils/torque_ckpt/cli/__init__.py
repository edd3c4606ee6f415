"""The command torque-ckpt."""
