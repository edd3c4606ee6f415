"""The checkpoint engines."""
