"""Reading a file that may be missing."""


def read_text(path, tolerated=OSError):
    """Return a file's text (str), empty if it cannot be read; bytes that are not UTF-8 become U+FFFD.

    :param tolerated: the errors for which it is empty (class or tuple of classes); others are raised
    """
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except tolerated:
        return ""
