"""Level L1: a round trip of the engine alone, and the program that is moved."""
