VERSION = "0.2.0"
"""The collection's version (str), as galaxy.yml has it."""
