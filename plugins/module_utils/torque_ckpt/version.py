VERSION = "0.3.0"
"""The collection's version, as galaxy.yml has it."""
