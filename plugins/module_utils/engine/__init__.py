"""Which engine a node gets, and what its kernel offers."""
