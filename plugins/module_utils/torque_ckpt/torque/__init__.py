"""All that is TORQUE's: the arguments of the hooks, and its commands."""
