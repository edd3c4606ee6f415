"""The hooks: installed on the nodes by the role checkpoint_hooks, imported by modules, too."""

VERSION = "0.2.0"
"""The collection's version, as galaxy.yml has it."""
