"""Reading a file that may not be there."""


def read_text(path):
    """Return a file's text (str), empty when it cannot be read; bytes that are no UTF-8 become U+FFFD."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
