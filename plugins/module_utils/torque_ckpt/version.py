VERSION = "0.2.0"
"""The collection's version, as galaxy.yml has it."""
