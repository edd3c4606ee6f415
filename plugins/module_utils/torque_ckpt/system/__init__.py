"""Linux, as far as the hooks need it."""
